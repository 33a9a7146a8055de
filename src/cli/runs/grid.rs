//! Tables of text.

use crate::terminal::{columns, one_line, visible};

/// A table whose columns are as wide as what is in them.
pub struct Grid {
    rows: Vec<Vec<String>>,
    /// How many columns are set flush left, from the first on; the others are numbers.
    left: Vec<bool>,
}

impl Grid {
    /// A table with that head; the first `left` columns are texts.
    pub fn new(head: Vec<String>, left: usize) -> Grid {
        let mut grid = Grid { left: (0..head.len()).map(|i| i < left).collect(), rows: Vec::new() };
        grid.row(head);
        grid
    }

    /// Column `number` is of texts, too.
    pub fn left(&mut self, number: usize) {
        self.left[number] = true;
    }

    /// Adds a row, of as many cells as the head has. What would end its line, or is not seen, is written out.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| one_line(&visible(cell))).collect());
    }

    /// Leaves out columns of these names, one after the other, until the lines have at most `most` columns of a terminal.
    pub fn narrow(&mut self, most: usize, spare: &[&str]) {
        for name in spare {
            let widths = self.widths();
            let whole = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            let at = self.rows[0].iter().position(|head| head == name);
            if let Some(at) = at.filter(|_| whole > most) {
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
                self.left.remove(at);
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let wide = |i: usize| self.rows.iter().map(|row| columns(&row[i])).max().unwrap_or(0);
        (0..self.left.len()).map(wide).collect()
    }

    /// The lines.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let room = " ".repeat(widths[i] - columns(cell));
                let gap = if i == 0 { "" } else { "  " };
                line += &if self.left[i] { format!("{gap}{cell}{room}") } else { format!("{gap}{room}{cell}") };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_each_other() {
        let mut grid = Grid::new(["a", "number"].map(str::to_owned).to_vec(), 1);
        grid.row(["名前", "1"].map(str::to_owned).to_vec());
        assert_eq!(grid.text(), "a     number\n名前       1\n");
        grid.row(["a\nb\u{1b}[2J", "2"].map(str::to_owned).to_vec());
        assert_eq!(grid.text().lines().count(), 3, "{}", grid.text());
        assert!(grid.text().lines().all(|line| columns(line) == columns("a\\nb\\x1b[2J  number")), "{}", grid.text());
    }
}

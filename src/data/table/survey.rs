//! What the columns of a table are like: how much is missing, what the cells are, how many differ.

use super::super::parallel::{at_once, parallel};
use super::super::row_names::Lines;
use super::super::sheet::{Piece, Sheet};
use super::aside::Aside;
use super::kinds::{Column, Odd};
use super::look::Look;
use super::numbers::Numbers;
use super::skipped::Skipped;
use super::stored::Stored;
use anyhow::{Result, ensure};
use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// A table, looked at.
pub struct Surveyed {
    /// Its columns.
    pub columns: Vec<Column>,
    /// How many rows there are.
    pub rows: usize,
    /// Cells that need not be read once more.
    pub known: Known,
}

/// The cells that were read while the columns were looked at.
#[derive(Default)]
pub struct Known {
    /// The columns of numbers alone, by their names.
    pub numbers: HashMap<String, Stored>,
    /// Where the rows are.
    pub lines: Lines,
    /// Rows that cannot be read.
    pub skipped: Skipped,
}

/// Looks at all columns of a table, in all rows. The numbers that are found lie in memory, or in a file `aside`.
///
/// # Errors
/// As [`Sheet::each_cells`]; the file cannot be written.
pub fn survey(text: &Sheet, decimal: char, aside: Option<&Arc<Aside>>) -> Result<Surveyed> {
    let hasher = RandomState::default();
    let mut looks = vec![Look::new(true); text.names().len()];
    let (mut rows, mut lines, mut skipped) = (0, Lines::default(), Skipped::default());
    let (decimal, several) = (text.decimal(decimal), text.paths().count() > 1);
    let readable = text.readable();
    let pieces: Vec<(Piece, usize)> = text.pieces().into_iter().map(|piece| (piece, text.most_rows(piece))).collect();
    let mut numbers = Numbers::new(looks.len(), pieces.iter().map(|(_, most)| most).sum(), aside);
    // More pieces at once each time: those after the first need not count the values of which there are enough already.
    let (mut left, mut count) = (&pieces[..], 1);
    while !left.is_empty() {
        let (now, later) = left.split_at(count.min(left.len()));
        let most: Vec<usize> = now.iter().map(|(_, most)| *most).collect();
        let fresh: Vec<Look> = looks.iter().map(|look| Look::new(look.counts_on())).collect();
        let work: Vec<_> = now.iter().zip(numbers.places(&most)).collect();
        let looked: Vec<Result<(Vec<Look>, Lines, Skipped)>> = parallel(work, |((piece, most), mut places)| {
            let (mut own, mut lines, mut skipped) = (fresh.clone(), Lines::default(), Skipped::default());
            text.each_cells_of(*piece, &readable, |place, row| {
                let at = lines.lines.len();
                ensure!(at < *most, "`{}` has changed since it was looked at", place.path.display());
                lines.add(place, at, several);
                if let Some(fault) = place.fault {
                    skipped.add(at, || fault.to_owned());
                    places.iter_mut().flatten().for_each(|numbers| numbers[at] = f64::NAN);
                    return Ok(());
                }
                for ((look, cell), numbers) in own.iter_mut().zip(row).zip(&mut places) {
                    match (look.take(place, several, cell, decimal, &hasher), &mut *numbers) {
                        (Some(number), Some(numbers)) => numbers[at] = number,
                        _ => *numbers = None,
                    }
                }
                Ok(())
            })?;
            Ok((own, lines, skipped))
        });
        let mut parts: Vec<(Look, Vec<Look>)> = looks.into_iter().map(|look| (look, Vec::new())).collect();
        let mut each = Vec::new();
        for piece in looked {
            let (own, more, more_skipped): (Vec<Look>, Lines, Skipped) = piece?;
            let before = rows;
            skipped.join(more_skipped, before);
            each.push(more.lines.len());
            rows += more.lines.len();
            lines.join(more, before);
            parts.iter_mut().zip(own).for_each(|((_, next), own)| next.push(own));
        }
        looks = parallel(parts, |(mut look, next)| {
            next.into_iter().for_each(|next| look.join(next));
            look
        });
        numbers.keep(&most, &each, |column| looks[column].has_numbers_alone())?;
        (left, count) = (later, (2 * count).min(at_once()));
    }
    let kinds = text.kinds();
    let mut known = HashMap::new();
    let columns = text.names().iter().zip(looks).zip(numbers.done()).enumerate();
    let columns = columns.map(|(at, ((name, look), cells))| {
        known.extend(cells.map(|cells| (name.clone(), cells)));
        look.column(name, kinds.map(|kinds| &kinds[at]), text.has_cells())
    });
    Ok(Surveyed { columns: columns.collect(), rows, known: Known { numbers: known, lines, skipped } })
}

/// The columns of texts that are meant as numbers, dates or truths nearly everywhere, with why they are not that.
///
/// # Errors
/// A file that cannot be read, or is no table.
pub fn odd_columns(text: &Sheet) -> Result<HashMap<String, Odd>> {
    let columns = survey(text, '.', None)?.columns;
    Ok(columns.into_iter().filter_map(|column| Some((column.name, column.odd?))).collect())
}

#[cfg(test)]
mod tests {
    use super::super::codec::Cells;
    use super::super::kinds::{At, CellType, Odd};
    use super::super::text::{Format, open};
    use super::*;

    #[test]
    fn columns_are_what_all_their_rows_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let content = "number,whole,mixed,date,truth,empty,same,code\n1.5,1,1,2026-01-01,yes,NA,x,00062\n-2,NA,one,2026-01-03,no,,x,10115\n";
        std::fs::write(&path, content).unwrap();
        let text = open(&path, Format::default()).unwrap();
        let Surveyed { columns, rows, known } = survey(&text, '.', None).unwrap();
        let numbers = |name: &str| known.numbers[name].all().unwrap().into_owned();
        assert_eq!(numbers("number"), Cells::Numbers(vec![1.5, -2.0]));
        assert!(numbers("whole").is_missing(1));
        assert!(!["mixed", "date", "truth", "same"].iter().any(|name| known.numbers.contains_key(*name)));
        assert_eq!(known.lines.lines, [2, 3]);
        let cells: Vec<CellType> = columns.iter().map(|column| column.cells).collect();
        use CellType::{Codes, Dates, Nothing, Numbers, Texts, Truths};
        assert_eq!((cells, rows), (vec![Numbers, Numbers, Texts, Dates, Truths, Nothing, Texts, Codes], 2));
        assert_eq!([columns[0].whole, columns[1].whole], [false, true]);
        assert_eq!((columns[1].missing, columns[1].distinct), (1, 1));
        assert_eq!(
            (columns[0].range, &columns[0].examples[..]),
            (Some([-2.0, 1.5]), &["1.5".to_owned(), "-2".to_owned()][..])
        );
        assert_eq!(columns[2].odd, None);
        let rows_of = (0..20).map(|i| if i == 7 { "about 3\n".to_owned() } else { format!("{i}\n") });
        std::fs::write(&path, "x\n".to_owned() + &rows_of.collect::<String>()).unwrap();
        let text = open(&path, Format::default()).unwrap();
        let odd = survey(&text, '.', None).unwrap().columns.remove(0).odd.unwrap();
        assert_eq!(
            odd,
            Odd::Others { meant: CellType::Numbers, line: "line 9".into(), cell: "about 3".into(), count: 1, of: 20 }
        );
        let useless: Vec<bool> = columns.iter().map(|column| column.useless(rows).is_some()).collect();
        assert_eq!(useless, [false, false, false, false, false, true, true, false]);
    }

    /// One cell that is none does not make texts of dates and truths without a word, and dates are known in other forms.
    #[test]
    fn the_cell_that_makes_texts_of_a_column_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let cells = |i: usize| match i {
            7 => ["soon", "maybe", "2024/13/01"].map(str::to_owned),
            _ => [format!("2024-01-{:02}", i + 1), ["yes", "no"][i % 2].to_owned(), format!("2024/02/{}", i + 1)],
        };
        let mut content = "date,truth,slashes,days,months,either,words,time\n".to_owned();
        for i in 0..28 {
            let [date, truth, slashes] = cells(i);
            let row = [
                date,
                truth,
                slashes,
                format!("{}.{}.2024", i + 1, i % 12 + 1),
                format!("{:02}/{:02}/2024", i % 12 + 1, i + 1),
                format!("{}/1/2024", i % 9 + 1),
                ["1-2", "1.2.3", "a/b/2024"][i % 3].to_owned(),
                format!("{}:30", i % 24),
            ];
            content += &(row.join(",") + "\n");
        }
        std::fs::write(&path, &content).unwrap();
        let columns = survey(&open(&path, Format::default()).unwrap(), '.', None).unwrap().columns;
        let others = |meant: CellType, cell: &str| {
            Some(Odd::Others { meant, line: "line 9".into(), cell: cell.into(), count: 1, of: 28 })
        };
        let form = |cell: &str, format: &str| {
            Some(Odd::DateFormat(At { cell: cell.into(), line: "line 2".into() }, format.into()))
        };
        let odd: Vec<Option<Odd>> = columns.into_iter().map(|column| column.odd).collect();
        assert_eq!(
            odd,
            [
                others(CellType::Dates, "soon"),
                others(CellType::Truths, "maybe"),
                // There is no 13th month.
                None,
                form("1.1.2024", "%d.%m.%Y"),
                form("01/01/2024", "%m/%d/%Y"),
                form("1/1/2024", "%m/%d/%Y"),
                None,
                Some(Odd::Time(At { cell: "0:30".into(), line: "line 2".into() })),
            ]
        );
    }

    /// Numbers with a comma before the fraction, if nearly all cells are that.
    #[test]
    fn decimal_commas_are_distinguished_from_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let rows: String = (0..30).map(|i| format!("{i},5;{i};{},500;{i},5;{i};{i},{i}\n", i + 1)).collect();
        let content = format!("comma;whole;thousands;point;odd;list\n{rows}7;7;7;7.5;7,5;1,2,3\nNA;;;;;4,5,6\n");
        std::fs::write(&path, &content).unwrap();
        let odd = |decimal| {
            let text = open(&path, Format::default()).unwrap();
            let columns = survey(&text, decimal, None).unwrap().columns;
            columns.into_iter().map(|column| column.odd).collect::<Vec<_>>()
        };
        let at = |cell: &str, line: &str| At { cell: cell.to_owned(), line: line.to_owned() };
        let of = |cell: &str| Some(Odd::Comma(at(cell, "line 2")));
        let thousands = |cell: &str, line: &str| Some(Odd::Thousands(at(cell, line)));
        assert_eq!(
            odd('.'),
            [
                of("0,5"),
                None,
                thousands("1,500", "line 2"),
                of("0,5"),
                Some(Odd::Comma(at("7,5", "line 32"))),
                of("0,0")
            ]
        );
        // A cell with a comma is named, not the word before it.
        let others: String = (0..28).map(|i| format!("{i}\n")).collect();
        std::fs::write(&path, format!("x\nnone of it\n{others}\"1,234\"\n")).unwrap();
        let found = survey(&open(&path, Format::default()).unwrap(), '.', None).unwrap().columns.remove(0).odd;
        assert_eq!(found, thousands("1,234", "line 31"));
        std::fs::write(&path, &content).unwrap();
        let others = odd(',');
        let count = |odd: &Option<Odd>| odd.as_ref().map(|odd| matches!(odd, Odd::Others { .. }));
        assert_eq!(others.iter().map(count).collect::<Vec<_>>(), [None, None, None, Some(true), None, Some(true)]);
    }
}

//! Rows that cannot be read and are left out, if the configuration says so.

use super::super::unreadable::most_unreadable;
use anyhow::{Result, ensure};

/// The most rows that a message lists.
const MOST_LISTED: usize = 5;

/// The rows, and why the first of them cannot be read.
#[derive(Debug, Clone, Default)]
pub struct Skipped {
    rows: Vec<u32>,
    why: Vec<(u32, String)>,
}

impl Skipped {
    /// Adds a row. A row may be added several times: its first reason is kept. `why` is called only for rows that a message will list.
    pub fn add(&mut self, row: usize, why: impl FnOnce() -> String) {
        let row = row as u32;
        self.rows.push(row);
        let at = self.why.partition_point(|(known, _)| *known < row);
        if at < MOST_LISTED && self.why.get(at).is_none_or(|(known, _)| *known != row) {
            self.why.insert(at, (row, why()));
            self.why.truncate(MOST_LISTED);
        }
    }

    /// Adds those of the next piece of the table, before which there are `before` rows.
    pub fn join(&mut self, next: Skipped, before: usize) {
        let before = before as u32;
        self.rows.extend(next.rows.iter().map(|row| before + row));
        let room = MOST_LISTED.saturating_sub(self.why.len());
        self.why.extend(next.why.into_iter().take(room).map(|(row, why)| (before + row, why)));
    }

    /// Puts them in the order of the rows, each once.
    pub fn sort(&mut self) {
        self.rows.sort_unstable();
        self.rows.dedup();
    }

    /// Whether a row is left out.
    pub fn has(&self, row: u32) -> bool {
        self.rows.binary_search(&row).is_ok()
    }

    /// The message about them; `None` if there are none. `done`: what is done with them.
    ///
    /// # Errors
    /// They are too many of `all` rows to be a few mistakes.
    pub fn in_words(&self, all: usize, done: &str) -> Result<Option<String>> {
        let count = self.rows.len();
        if count == 0 {
            return Ok(None);
        }
        let why: Vec<&str> = self.why.iter().map(|(_, why)| why.as_str()).collect();
        let more = if count > why.len() { format!("; and {} more", count - why.len()) } else { String::new() };
        let (of, most) = (format!("{count} of {all} rows cannot be read"), most_unreadable(all));
        ensure!(count <= most, "{of}, more than the {most} that are left out: {}{more}", why.join("; "));
        Ok(Some(format!("{of} and {done}: {}{more}", why.join("; "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_listed_once_and_too_many_are_an_error() {
        let (mut first, mut next) = (Skipped::default(), Skipped::default());
        assert_eq!(first.in_words(9, "are left out").unwrap(), None);
        for row in [1, 1, 4] {
            first.add(row, || format!("row {row}"));
        }
        (0..6).for_each(|row| next.add(2 * row, || format!("next {row}")));
        first.join(next, 10);
        first.add(2, || "row 2".into());
        first.add(4, || "again".into());
        first.sort();
        assert!(first.has(4) && first.has(20) && !first.has(3));
        let message = first.in_words(200, "are left out").unwrap().unwrap();
        assert_eq!(
            message,
            "9 of 200 rows cannot be read and are left out: row 1; row 2; row 4; next 0; next 1; and 4 more"
        );
        let error = first.in_words(160, "are left out").unwrap_err().to_string();
        assert!(error.starts_with("9 of 160 rows cannot be read, more than the 8 that are left out: row 1"), "{error}");
    }
}

//! What no training row has, and the model cannot know what it means: texts in columns of categories, and cells that are missing where none was.

use super::super::held::listed;
use super::codec::{Cells, ColumnCodec};
use super::raw::Raw;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};

/// The texts, column by column, and in how many rows they stand.
#[derive(Debug, Default)]
pub struct Unseen {
    texts: BTreeMap<String, (BTreeSet<String>, usize)>,
    /// In how many rows a column is missing that was there in all of training, and what the model is given for it.
    missing: BTreeMap<String, (String, usize)>,
    /// Columns that the model does not take.
    untaken: BTreeSet<String>,
    /// What there is to say of rows that cannot be read, and of dates with a time zone.
    others: Vec<String>,
}

impl Unseen {
    /// Takes what there is to say of rows that cannot be read.
    pub fn skip(&mut self, note: Option<String>) {
        self.others.extend(note);
    }

    /// Takes other notes, each once: files of one table have the same.
    pub fn note(&mut self, notes: &[String]) {
        let new = notes.iter().filter(|note| !self.others.contains(note)).cloned().collect::<Vec<_>>();
        self.others.extend(new);
    }

    /// Takes the columns of a table that the model does not take, and that neither name rows nor are learnt.
    pub fn look_at_columns<'a>(&mut self, untaken: impl Iterator<Item = &'a String>) {
        self.untaken.extend(untaken.cloned());
    }

    /// Which columns the model does not take, if there are such.
    pub fn untaken_in_words(&self) -> Option<String> {
        const SHOWN: usize = 20;
        let names: Vec<String> = self.untaken.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        let more = self.untaken.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let columns = if self.untaken.len() == 1 { "a column" } else { "columns" };
        (!names.is_empty()).then(|| format!("{columns} that the model does not take: {}{more}", names.join(", ")))
    }

    /// Looks at `rows` of a table. Of a column in which rare texts share a place nothing is found: an unknown text has that place, too.
    ///
    /// # Errors
    /// The rows are in a file that cannot be read.
    pub fn look(&mut self, columns: &[ColumnCodec], raw: &Raw, rows: &[u32]) -> Result<()> {
        for column in columns {
            let given = column.instead_of_missing();
            if given.is_none() && !column.is_category() {
                continue;
            }
            let cells = raw.column(&column.name)?;
            if let Some(given) = given {
                let missing = rows.iter().filter(|row| cells.is_missing(**row)).count();
                if missing > 0 {
                    self.missing.entry(column.name.clone()).or_insert((given, 0)).1 += missing;
                }
            }
            if !column.is_category() {
                continue;
            }
            let Cells::Texts(numbers, texts) = &*cells else { continue };
            let unseen: Vec<bool> = texts.iter().map(|text| !column.has_place_for(text)).collect();
            let texts_of = rows.iter().filter_map(|row| numbers[*row as usize]);
            for text in texts_of.filter(|text| unseen[*text as usize]) {
                let (known, rows) = self.texts.entry(column.name.clone()).or_default();
                *rows += 1;
                let text = &texts[text as usize];
                if !known.contains(text) {
                    known.insert(text.clone());
                }
            }
        }
        Ok(())
    }

    /// What there is to say of each column.
    pub fn in_words(&self) -> Vec<String> {
        let plural = |rows: usize| if rows == 1 { "" } else { "s" };
        let missing = |(column, (given, rows)): (&String, &(String, usize))| {
            let s = plural(*rows);
            format!(
                "the column `{column}` is missing in {rows} row{s} and in no training row, and the model takes it for {given}"
            )
        };
        let words = |(column, (texts, rows)): (&String, &(BTreeSet<String>, usize))| {
            let texts: Vec<String> = texts.iter().map(|text| text.chars().take(40).collect()).collect();
            let s = plural(*rows);
            format!(
                "the column `{column}` has in {rows} row{s} what no training row has, and the model takes it for none of the categories \
                 that it knows: {}",
                listed(&texts)
            )
        };
        let missing = self.missing.iter().map(missing);
        self.others.iter().cloned().chain(self.texts.iter().map(words)).chain(missing).collect()
    }
}

//! From the labels in a list to targets.

use super::super::classes::{distinct, numbering, value};
use super::super::held::UnknownClasses;
use super::Kind;
use super::table::Cell;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// A line of a list.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// The list.
    pub file: &'a Path,
    /// Its number, from 1.
    pub number: u64,
    /// Its photo is trained on.
    pub trained: bool,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, line {}", self.file.display(), self.number)
    }
}

/// The words that labels are, each with a number, in the order in which they first occurred.
#[derive(Debug, Default)]
pub struct Words {
    numbers: HashMap<String, u32>,
    list: Vec<Word>,
}

#[derive(Debug)]
struct Word {
    text: String,
    /// The first line that has it.
    place: String,
    trained: bool,
}

impl Words {
    fn number(&mut self, text: &str, line: Line) -> u32 {
        let text = value(text);
        if let Some(number) = self.numbers.get(text) {
            self.list[*number as usize].trained |= line.trained;
            return *number;
        }
        let number = self.list.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.list.push(Word { text: text.to_owned(), place: line.to_string(), trained: line.trained });
        number
    }
}

/// The labels of a part as they are written.
#[derive(Debug, Default)]
pub struct Raw {
    /// Numbers of words, one photo after the other.
    words: Vec<u32>,
    /// Where in `words` those of each photo end, if they may be several.
    ends: Vec<usize>,
    /// Numbers, one photo after the other.
    values: Vec<f32>,
}

impl Raw {
    /// Adds the label of a photo, which stands in these columns.
    ///
    /// # Errors
    /// It is none.
    pub fn add(
        &mut self,
        kind: &Kind,
        columns: &[String],
        cells: &[Cell],
        words: &mut Words,
        line: Line,
    ) -> Result<()> {
        let column = &columns[0];
        let none = || anyhow!("{line}: there is no label: `{column}` is empty");
        match (kind, &cells[0]) {
            (Kind::Class, Cell::Text(word)) => self.words.push(words.number(word, line)),
            (Kind::Class, Cell::Missing | Cell::Absent) => return Err(none()),
            (Kind::Class, Cell::List(_)) => {
                bail!("{line}: `{column}` is a list: for several classes a photo say `label_kind = \"classes\"`")
            }
            // Nothing says that the photo is of no class.
            (Kind::Classes { .. }, Cell::Absent) => {
                bail!(
                    "{line}: there is no label: the key `{column}` is not there; a photo of no class has an empty list"
                )
            }
            (Kind::Classes { .. }, cell) => {
                let all: Vec<&str> = match (kind, cell) {
                    (Kind::Classes { separator }, Cell::Text(text)) => {
                        text.split(&separator[..]).map(str::trim).collect()
                    }
                    (_, Cell::List(all)) => all.iter().map(String::as_str).collect(),
                    _ => Vec::new(),
                };
                ensure!(all.iter().all(|word| !word.is_empty()), "{line}: `{column}` has an empty class in it");
                self.words.extend(all.iter().map(|word| words.number(word, line)));
                self.ends.push(self.words.len());
            }
            // Their files are no labels of the list.
            (Kind::Mask { .. }, _) => {}
            (Kind::Numbers { range }, _) => {
                for (cell, column) in cells.iter().zip(columns) {
                    let all = match cell {
                        Cell::Missing | Cell::Absent => bail!("{line}: there is no label: `{column}` is empty"),
                        Cell::Text(text) => std::slice::from_ref(text),
                        Cell::List(all) => all,
                    };
                    for text in all {
                        let value = text.parse::<f32>().ok().filter(|value| value.is_finite());
                        let value = value
                            .with_context(|| format!("{line}: `{column}` is `{}`, which is no number", shown(text)))?;
                        if let Some(range) = range.filter(|range| !range.contains(f64::from(value))) {
                            bail!("{line}: `{column}` is `{}`, and {range}", shown(text));
                        }
                        self.values.push(value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Forgets the label that was added last, of `width` numbers.
    pub fn remove_last(&mut self, kind: &Kind, width: usize) {
        match kind {
            Kind::Class => drop(self.words.pop()),
            Kind::Classes { .. } => {
                self.ends.pop();
                self.words.truncate(self.ends.last().copied().unwrap_or_default());
            }
            Kind::Numbers { .. } => self.values.truncate(self.values.len() - width),
            Kind::Mask { .. } => {}
        }
    }

    /// How many numbers there are so far.
    pub fn values(&self) -> usize {
        self.values.len()
    }

    /// Targets as bytes. `classes[word]` is the class that a word means.
    ///
    /// # Errors
    /// There is not enough memory for them.
    pub fn targets(&self, kind: &Kind, classes: &[u32], count: usize) -> Result<Vec<u8>> {
        match kind {
            Kind::Class => {
                Ok(self.words.iter().flat_map(|word| (classes[*word as usize] as i32).to_ne_bytes()).collect())
            }
            Kind::Mask { .. } => Ok(Vec::new()),
            Kind::Numbers { .. } => Ok(self.values.iter().flat_map(|value| value.to_ne_bytes()).collect()),
            Kind::Classes { .. } => {
                let one = size_of::<f32>();
                let mut out = Vec::new();
                let bytes = self.ends.len().checked_mul(count * one);
                let room = bytes.filter(|bytes| out.try_reserve_exact(*bytes).is_ok());
                ensure!(
                    room.is_some(),
                    "there is not enough memory for {} targets of {count} classes",
                    self.ends.len()
                );
                out.resize(room.unwrap_or_default(), 0);
                let mut begin = 0;
                for (photo, end) in self.ends.iter().enumerate() {
                    for word in &self.words[begin..*end] {
                        let at = (photo * count + classes[*word as usize] as usize) * one;
                        out[at..at + one].copy_from_slice(&1f32.to_ne_bytes());
                    }
                    begin = *end;
                }
                Ok(out)
            }
        }
    }
}

/// The names of the classes in order, and the class that each word means.
///
/// Without `named` they are the words that are trained on: in the order of numbers if all are numbers, else by name. `1` and `1.0` are one class. With it,
/// a word is the name of a class or, unless there are numbers among the names, its number, counted from 0. If they are those that a
/// model was `trained` on, it is a name.
///
/// # Errors
/// A word is no class.
pub fn classes(words: &Words, named: Option<&[String]>, trained: bool) -> Result<(Vec<String>, Vec<u32>)> {
    let names: Vec<String> = match named {
        Some(names) => names.to_vec(),
        None => {
            let mut names: Vec<String> =
                words.list.iter().filter(|word| word.trained).map(|word| word.text.clone()).collect();
            distinct(&mut names);
            names
        }
    };
    let number = numbering(&names, named.is_some() && !trained);
    let class = |word: &Word| {
        number(&word.text).map(|class| class as u32).ok_or_else(|| {
            let known = match named {
                Some(_) => format!("the classes are {}", listed(&names)),
                None => "no photo that is trained on has it".to_owned(),
            };
            anyhow!("{}: `{}` is no class: {known}", word.place, shown(&word.text))
        })
    };
    if trained {
        let is_unknown = |word: &&Word| number(&word.text).is_none();
        let short = |word: &Word| shown(&word.text);
        let unknown: Vec<String> = words.list.iter().filter(is_unknown).map(short).collect();
        let own: Vec<String> = words.list.iter().map(short).collect();
        let first = words.list.iter().find(is_unknown).map_or("", |word| &word.place);
        if !unknown.is_empty() {
            return Err(anyhow::Error::new(UnknownClasses::new(&unknown, &own, &names)).context(first.to_string()));
        }
    }
    let classes = words.list.iter().map(class).collect::<Result<_>>()?;
    drop(number);
    Ok((names, classes))
}

/// The first few names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let some: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{}`", shown(name))).collect();
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", some.join(", "))
}

/// A text in a message: its begin, if it is long.
pub fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let begin: String = text.chars().take(MOST).collect();
    if begin.len() < text.len() { format!("{begin}…") } else { begin }
}

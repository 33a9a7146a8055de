//! Samples that cannot be read: which they are, and whether they are too many to go on.

use super::store::Unreadable;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// The samples of a split that could not be read so far, each once, in the order in which a run came to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unread(Vec<Unreadable>);

/// How many of `samples` samples may be such that cannot be read: a twentieth, and one in any case. More of them are no
/// accident: a disk is not there, or the files are of another kind.
pub fn most_unreadable(samples: usize) -> usize {
    (samples / 20).max(1)
}

impl Unread {
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All so far.
    pub fn list(&self) -> &[Unreadable] {
        &self.0
    }

    /// Forgets all but the first `before`.
    pub fn truncate(&mut self, before: usize) {
        self.0.truncate(before);
    }

    /// Takes note of those that a batch has met; those that are new. The split has `samples` samples.
    ///
    /// # Errors
    /// They are too many.
    pub fn note(&mut self, met: &[Unreadable], samples: usize) -> Result<&[Unreadable]> {
        let before = self.0.len();
        for one in met {
            if !self.0.iter().any(|known| known.name == one.name) {
                self.0.push(one.clone());
            }
        }
        if self.0.len() > most_unreadable(samples) && self.0.len() > before {
            bail!(too_many(self.0.len(), samples, &self.0));
        }
        Ok(&self.0[before..])
    }

    /// The message about those from number `first` on; `None` if there are no more.
    pub fn in_words(&self, first: usize) -> Option<String> {
        self.words(first, ["the next one is taken in its place", "the next one is taken in the place of each"])
    }

    /// The same of an evaluation.
    pub fn left_out_in_words(&self, first: usize) -> Option<String> {
        self.words(first, ["is left out", "are left out"])
    }

    fn words(&self, first: usize, [one, several]: [&str; 2]) -> Option<String> {
        let new = self.0.get(first..).filter(|new| !new.is_empty())?;
        let (what, then) = match new.len() {
            1 => ("a sample".to_owned(), one),
            n => (format!("{n} samples"), several),
        };
        Some(format!("{what} cannot be read, and {then}: {}", examples(new)))
    }
}

/// The error for so many of `samples` that cannot be read.
pub(super) fn too_many(found: usize, samples: usize, list: &[Unreadable]) -> String {
    format!(
        "{found} of {samples} samples cannot be read, more than the {} that are left out: {}",
        most_unreadable(samples),
        examples(list)
    )
}

/// The first few of them.
fn examples(list: &[Unreadable]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = list.iter().take(SHOWN).map(Unreadable::to_string).collect();
    let more = if list.len() > SHOWN { format!("; and {} more", list.len() - SHOWN) } else { String::new() };
    format!("{}{more}", shown.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(i: usize) -> Unreadable {
        Unreadable { name: format!("{i}.png"), why: "no image".into() }
    }

    #[test]
    fn each_is_noted_once_and_too_many_are_an_error() {
        let mut unread = Unread::default();
        assert_eq!(unread.note(&[bad(1), bad(1), bad(2)], 60).unwrap(), [bad(1), bad(2)]);
        assert_eq!(unread.note(&[bad(2), bad(3)], 60).unwrap(), [bad(3)]);
        assert_eq!(unread.list().len(), 3);
        let text = unread.in_words(1).unwrap();
        assert!(text.starts_with("2 samples cannot be read") && text.contains("`3.png`: no image"), "{text}");
        assert!(unread.in_words(2).unwrap().starts_with("a sample cannot"));
        assert_eq!(unread.in_words(3), None);
        let e = unread.note(&[bad(4)], 60).unwrap_err().to_string();
        assert!(e.contains("4 of 60 samples cannot be read, more than the 3") && e.contains("4.png"), "{e}");
        // Of a few samples one may be bad.
        assert!(Unread::default().note(&[bad(0)], 4).is_ok());
        assert!(Unread::default().note(&[bad(0), bad(1)], 39).is_err());
    }
}

//! Words as tokens: those that stand often enough in a text.

use std::collections::HashMap;

/// What stands for all words that are not known.
const UNKNOWN: &str = "<unk>";
/// The token of words that are not known. Batches are filled up with it, too: their lengths say which is which.
pub const UNKNOWN_TOKEN: u32 = 0;

/// The words that have tokens.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Words {
    /// Words as a checkpoint has them, in the order of their numbers; `None`, if one is there twice, or the first is not the one that stands for all
    /// others.
    pub fn of(all: Vec<String>) -> Option<Words> {
        let numbers: HashMap<String, u32> = all.iter().cloned().zip(0..).collect();
        (numbers.len() == all.len() && all.first().is_some_and(|first| first == UNKNOWN))
            .then_some(Words { all, numbers })
    }

    /// The words of texts, the most frequent first, `most` of them at most.
    pub fn in_texts<'a>(texts: impl Iterator<Item = &'a str>, most: usize) -> Words {
        let mut counts: HashMap<String, u64> = HashMap::new();
        for text in texts {
            for word in words(text) {
                *counts.entry(word).or_default() += 1;
            }
        }
        let mut counts: Vec<(String, u64)> = counts.into_iter().filter(|(word, _)| word != UNKNOWN).collect();
        counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let words = counts.into_iter().map(|(word, _)| word).take(most.saturating_sub(1));
        let all: Vec<String> = std::iter::once(UNKNOWN.to_owned()).chain(words).collect();
        let numbers = all.iter().cloned().zip(0..).collect();
        Words { all, numbers }
    }

    /// In the order of their numbers.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str) -> impl Iterator<Item = u32> {
        words(text).map(|word| self.numbers.get(&word).copied().unwrap_or(UNKNOWN_TOKEN))
    }
}

/// The words of a text in lower case: runs of letters, digits and apostrophes, and each other sign by itself.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let within = |c: char| c.is_alphanumeric() || c == '\'' || c == '’';
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let end = match within(first) {
            true => rest.find(|c| !within(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let word;
        (word, rest) = rest.split_at(end);
        Some(word.to_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_single_signs() {
        let all = |text| words(text).collect::<Vec<_>>();
        assert_eq!(all("Don't  stop, Ärger!!\n4th"), ["don't", "stop", ",", "ärger", "!", "!", "4th"]);
        assert_eq!(all(" \n"), Vec::<String>::new());
    }

    #[test]
    fn the_most_frequent_words_have_tokens() {
        let known = Words::in_texts(["b a b", "c a b"].into_iter(), 3);
        assert_eq!(known.all(), ["<unk>", "b", "a"]);
        assert_eq!(known.encode("B c a").collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(Words::of(known.all().to_vec()), Some(known));
        assert_eq!(Words::of(vec!["<unk>".into(), "a".into(), "a".into()]), None);
        assert_eq!(Words::of(vec!["a".into()]), None);
        assert_eq!(Words::of(Vec::new()), None);
    }
}

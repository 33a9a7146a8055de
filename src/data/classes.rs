//! The classes of a field.

use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The classes of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    /// How many there are.
    pub number: usize,
    /// False if that was only seen in the labels, so that there may be more.
    pub exact: bool,
    /// Their names, in the order of their numbers, if they have names.
    pub names: Option<Vec<String>>,
}

/// The number of a class by what a file has for it: its name or, where the configuration has `named` the classes and no name is a
/// number, its number. A name that is there as it is written comes before one that is the same [`plain`] value.
pub fn numbering(names: &[String], named: bool) -> impl Fn(&str) -> Option<usize> {
    let numbered = named && names.iter().all(|name| name.parse::<f64>().is_err());
    // Of names that are there twice the first one counts.
    let by_name: HashMap<&str, usize> = names.iter().enumerate().rev().map(|(at, name)| (name.as_str(), at)).collect();
    move |word| {
        let number = || word.parse().ok().filter(|number| numbered && *number < names.len());
        let same = || plain(word).and_then(|value| names.iter().position(|name| plain(name) == Some(value)));
        by_name.get(word).copied().or_else(number).or_else(same)
    }
}

/// A value that forms of files write in several ways, in one of them: `1` for `1.0`, `true` for `True`. `None`: there is one way.
pub fn plain(text: &str) -> Option<&str> {
    if let Some((plain, _)) = TRUTHS.into_iter().find(|(_, others)| others.contains(&text)) {
        return Some(plain);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_number = digits == "0" || !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = !digits.is_empty() && !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0');
    (is_number && is_whole).then_some(whole)
}

/// The other ways in which files write a value: those of Parquet, pandas and spreadsheets.
pub fn spellings(text: &str) -> Vec<String> {
    let Some(plain) = plain(text) else { return Vec::new() };
    let all = match TRUTHS.into_iter().find(|(truth, _)| *truth == plain) {
        Some((_, all)) => all.map(str::to_owned).to_vec(),
        None => vec![plain.to_owned(), format!("{plain}.0")],
    };
    all.into_iter().filter(|other| other != text).collect()
}

/// Truths as programs write them.
const TRUTHS: [(&str, [&str; 3]); 2] = [("true", ["true", "True", "TRUE"]), ("false", ["false", "False", "FALSE"])];

/// The place of a text among sorted values: its own, or that of the same [`plain`] value.
pub fn place(values: &[String], text: &str) -> Option<usize> {
    let own = |text: &str| values.binary_search_by(|value| value.as_str().cmp(text)).ok();
    own(text).or_else(|| spellings(text).iter().find_map(|other| own(other))).or_else(|| {
        // A number with more zeros after the point stands where one with some more would.
        let value = plain(text)?;
        let begin = format!("{value}.0");
        let at = values.partition_point(|other| *other < begin);
        values.get(at).filter(|other| plain(other) == Some(value)).map(|_| at)
    })
}

/// What stands for a value as a category or a class: `-0.0` is `0.0`, which a number and its rounding may each have become.
pub fn value(text: &str) -> &str {
    let is_zero = |rest: &str| {
        rest.contains('0') && rest.contains(['.', ',']) && rest.bytes().all(|byte| matches!(byte, b'0' | b'.' | b','))
    };
    text.strip_prefix('-').filter(|rest| is_zero(rest)).unwrap_or(text)
}

/// Sorts names of classes that were found in data: by number if all are numbers, else by name.
pub fn in_order(names: &mut [String]) {
    names.sort_unstable();
    let number = |name: &String| name.parse::<f64>().ok().filter(|number| number.is_finite());
    if names.iter().all(|name| number(name).is_some()) {
        names.sort_by(|a, b| number(a).unwrap_or_default().total_cmp(&number(b).unwrap_or_default()));
    }
}

/// Names that were found in data with one of each [`plain`] value: `1` where `1.0` is there, too. They are in order.
pub fn distinct(names: &mut Vec<String>) {
    in_order(names);
    let mut seen = HashSet::new();
    names.retain(|name| plain(name).is_none_or(|value| seen.insert(value.to_owned())));
}

/// The note about classes that were found in data and differ in capital letters alone; `None`: there are none.
pub fn alike(place: &Path, names: &[String]) -> Option<String> {
    let mut known: HashMap<String, &String> = HashMap::new();
    let (a, b) = names.iter().find_map(|name| Some((known.insert(name.to_lowercase(), name)?, name)))?;
    Some(format!(
        "`{}`: `{a}` and `{b}` differ in capital letters alone, and are two classes: give both one name if they are the same",
        place.display()
    ))
}

impl Classes {
    /// So many classes without names.
    pub fn of(number: usize) -> Self {
        Classes { number, exact: true, names: None }
    }

    /// So many at least: a model may have places for more.
    pub fn at_least(number: usize) -> Self {
        Classes { exact: false, ..Classes::of(number) }
    }

    /// A class for each name.
    pub fn named(names: Vec<String>) -> Self {
        Classes { number: names.len(), exact: true, names: Some(names) }
    }

    /// Whether so many outputs of a model are one for each class: where the number was only seen in the labels, there may be more.
    pub fn fit(&self, outputs: usize) -> bool {
        if self.exact { outputs == self.number } else { outputs >= self.number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_one_value() {
        let values = ["-0.0", "-0.00", "-0,0", "-.0", "0.0", "-0", "-0.1", "-", "-.", "-1.0", "a-0.0"].map(value);
        assert_eq!(values, ["0.0", "0.00", "0,0", ".0", "0.0", "-0", "-0.1", "-", "-.", "-1.0", "a-0.0"]);
    }

    #[test]
    fn a_value_is_the_same_in_every_form() {
        let texts =
            ["1", "1.0", "-12.000", "0.0", "True", "FALSE", "01", "01.0", "1.5", "1.", ".0", "", "-", "yes", "1,0"];
        let plain: Vec<_> = texts.into_iter().map(plain).collect();
        let known = [Some("1"), Some("1"), Some("-12"), Some("0"), Some("true"), Some("false")];
        assert_eq!(plain, [&known[..], &[None; 9]].concat());
        let values = ["1", "1.0", "10.00", "2", "3.0", "False"].map(str::to_owned);
        let places = ["1", "1.0", "1.00", "10", "2.0", "3", "false", "30", "3.5"].map(|text| place(&values, text));
        let expected = [0, 1, 0, 2, 3, 4, 5].map(Some);
        assert_eq!(places[..7], expected);
        assert_eq!(places[7..], [None; 2]);
        let names = ["0.0", "1.0", "True"].map(str::to_owned);
        assert_eq!(["0", "1.0", "true", "2"].map(numbering(&names, false)), [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn classes_found_in_data_are_one_for_each_value() {
        let mut names = ["10", "2.0", "1.0", "1", "2", "true"].map(str::to_owned).to_vec();
        distinct(&mut names);
        assert_eq!(names, ["1", "10", "2", "true"], "by name, as one is no number");
        let mut names = ["10.0", "2.0", "1.0", "1"].map(str::to_owned).to_vec();
        distinct(&mut names);
        assert_eq!(names, ["1", "2.0", "10.0"]);
        let note = alike(Path::new("photos"), &["Ants", "ants", "bees"].map(str::to_owned)).unwrap();
        assert!(note.starts_with("`photos`: `Ants` and `ants` differ in capital letters alone"), "{note}");
        assert_eq!(alike(Path::new("photos"), &["ants", "bees"].map(str::to_owned)), None);
    }

    #[test]
    fn numbers_stand_for_named_classes_alone() {
        let names = ["cat", "dog", "cat"].map(str::to_owned);
        let numbers = |named: bool| ["cat", "dog", "1", "3", "cow"].map(numbering(&names, named));
        assert_eq!(numbers(true), [Some(0), Some(1), Some(1), None, None]);
        assert_eq!(numbers(false), [Some(0), Some(1), None, None, None]);
    }
}

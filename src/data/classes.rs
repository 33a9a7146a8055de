//! The classes of a field.

use std::collections::HashMap;

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
/// number, its number.
pub fn numbering(names: &[String], named: bool) -> impl Fn(&str) -> Option<usize> {
    let numbered = named && names.iter().all(|name| name.parse::<f64>().is_err());
    // Of names that are there twice the first one counts.
    let by_name: HashMap<&str, usize> = names.iter().enumerate().rev().map(|(at, name)| (name.as_str(), at)).collect();
    move |word| {
        let number = || word.parse().ok().filter(|number| numbered && *number < names.len());
        by_name.get(word).copied().or_else(number)
    }
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
    fn numbers_stand_for_named_classes_alone() {
        let names = ["cat", "dog", "cat"].map(str::to_owned);
        let numbers = |named: bool| ["cat", "dog", "1", "3", "cow"].map(numbering(&names, named));
        assert_eq!(numbers(true), [Some(0), Some(1), Some(1), None, None]);
        assert_eq!(numbers(false), [Some(0), Some(1), None, None, None]);
    }
}

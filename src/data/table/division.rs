//! Which rows of a table are trained on, and which are validated on.

use super::super::{HoldOut, Split, Values};
use crate::random::{Purpose, Stream};
use crate::terminal::thousands;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How rows are divided.
#[derive(Debug, Clone, PartialEq)]
pub struct Division {
    /// How much is held out for validation.
    pub hold_out: Option<HoldOut>,
    /// Which of several parts is held out, if all are in turn.
    pub fold: Option<Fold>,
    /// What draws of rows are made from.
    pub seed: u64,
    /// A column that says of each row whether it is for training, validation or test.
    pub split_column: Option<String>,
    /// A column whose equal values stay together.
    pub group_column: Option<String>,
    /// A column whose greatest values are held out.
    pub time_column: Option<String>,
    /// A column of each of whose values the same part is held out; else the target, if it is of classes.
    pub stratify_column: Option<String>,
}

/// One of several parts of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fold {
    /// Its number, from 0.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

/// The rows of each part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// Those that are trained on.
    pub train: Vec<u32>,
    /// Those that are validated on.
    pub val: Vec<u32>,
    /// Those of a test set.
    pub test: Vec<u32>,
}

/// How far the part that is held out may be from the one that is asked for, as a part of all rows, without a word.
const NEAR: f64 = 0.05;

impl Division {
    /// What there is to say where whole groups make another part of the rows than is asked for.
    pub fn far_from_asked(&self, parts: &Parts) -> Option<String> {
        let (column, how) = (self.group_column.as_ref()?, self.hold_out.filter(|_| self.fold.is_none())?);
        let (val, all) = (parts.val.len(), parts.train.len() + parts.val.len());
        let (share, asked) = match how {
            HoldOut::Fraction(asked) => (val as f64 / all as f64, asked),
            HoldOut::Count(asked) => (val as f64 / all as f64, asked as f64 / all as f64),
        };
        let written = match how {
            HoldOut::Fraction(asked) => asked.to_string(),
            HoldOut::Count(asked) => asked.to_string(),
        };
        ((share - asked).abs() > NEAR).then(|| {
            format!(
                "`validation_split = {written}` holds out {} of {} rows ({:.0} %), as the groups of `{column}` are large and stay whole; `folds` holds out each part in turn",
                thousands(val as u64),
                thousands(all as u64),
                100.0 * share
            )
        })
    }
}

/// Names of the parts in a column that says which a row is of.
const TRAIN: [&str; 3] = ["train", "training", "trn"];
const VAL: [&str; 4] = ["val", "valid", "validation", "dev"];
const TEST: [&str; 2] = ["test", "testing"];

impl Parts {
    /// The part that a word of a column names.
    fn of_word(&mut self, word: &str) -> Option<&mut Vec<u32>> {
        let is = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(word));
        match () {
            () if is(&TRAIN) => Some(&mut self.train),
            () if is(&VAL) => Some(&mut self.val),
            () if is(&TEST) => Some(&mut self.test),
            () => None,
        }
    }

    /// Takes the next row by what a column has there, before which there are `rows`.
    ///
    /// # Errors
    /// The word names no part.
    pub fn add(&mut self, rows: usize, column: &str, word: &str) -> Result<()> {
        let part = self.of_word(word).with_context(|| {
            format!(
                "the column `{column}` has `{word}`, which names no part: it has `train`, `val` or `test` in every row"
            )
        })?;
        part.push(rows as u32);
        Ok(())
    }

    /// Takes the parts of the rows after its own, before which there are `rows`.
    pub fn join(&mut self, next: Parts, rows: usize) {
        let Parts { train, val, test } = next;
        for (own, next) in [(&mut self.train, train), (&mut self.val, val), (&mut self.test, test)] {
            own.extend(next.into_iter().map(|row| rows as u32 + row));
        }
    }
}

/// How many of `all` rows are held out.
fn held(how: HoldOut, all: usize) -> Result<usize> {
    let held = match how {
        HoldOut::Fraction(f) => (f * all as f64).round() as usize,
        HoldOut::Count(n) => n,
    };
    ensure!(held > 0 && held < all, "holding out {held} of {all} rows for validation leaves one of the parts empty");
    Ok(held)
}

/// The class of each row by what a column has there, of which the same part is held out: numbers of `texts`, and `None` where it is missing. Texts that stand
/// in one of the `rows` alone are one class. Numbers are in the order of the texts, whatever the order of the rows.
pub fn strata(numbers: &[Option<u32>], texts: &[String], rows: &[u32]) -> Vec<i32> {
    let mut counts = vec![0usize; texts.len()];
    rows.iter().filter_map(|row| numbers[*row as usize]).for_each(|text| counts[text as usize] += 1);
    let mut order: Vec<usize> = (0..texts.len()).filter(|text| counts[*text] > 1).collect();
    order.sort_by(|a, b| texts[*a].cmp(&texts[*b]));
    let mut rank = vec![1; texts.len()];
    order.iter().zip(2..).for_each(|(text, at)| rank[*text] = at);
    numbers.iter().map(|number| number.map_or(0, |number| rank[number as usize])).collect()
}

/// Holds out rows of `rows` at random: of each class the same part, where there are classes.
///
/// # Errors
/// One of the parts would be empty.
pub fn at_random(rows: &[u32], how: HoldOut, seed: u64, labels: Option<&[i32]>) -> Result<Parts> {
    let of_rows = rows.iter().map(|row| labels.map_or(0, |labels| labels[*row as usize])).collect();
    let split = Split::labelled(Values::Bytes(vec![0; rows.len()]), [1], of_rows)?;
    let (train, val) = split.hold_out(how, seed, labels.is_some())?;
    let places = |split: &Split| (0..split.len()).map(|i| rows[split.at(i)]).collect();
    Ok(Parts { train: places(&train), val: places(&val), test: Vec::new() })
}

/// Holds out whole groups, drawn one after the other until there are as many rows as were asked for.
///
/// # Errors
/// One of the parts would be empty.
pub fn by_groups(rows: &[u32], how: HoldOut, seed: u64, groups: &[u64]) -> Result<Parts> {
    let wanted = held(how, rows.len())?;
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *sizes.entry(groups[*row as usize]).or_default() += 1);
    let mut all: Vec<u64> = sizes.keys().copied().collect();
    ensure!(all.len() > 1, "all rows are of one group, so that none can be held out");
    Stream::new(seed, Purpose::Split, 2, 0).shuffle(&mut all);
    let (mut out, mut count) = (HashSet::new(), 0);
    for group in &all[..all.len() - 1] {
        if count >= wanted {
            break;
        }
        count += sizes[group];
        out.insert(*group);
    }
    let (val, train) = rows.iter().partition(|row| out.contains(&groups[**row as usize]));
    Ok(Parts { train, val, test: Vec::new() })
}

/// The parts where of each row it is known which fold it is of.
fn of_fold(rows: &[u32], number: usize, fold_of: impl Fn(u32) -> usize) -> Parts {
    let (val, train) = rows.iter().partition(|row| fold_of(**row) == number);
    Parts { train, val, test: Vec::new() }
}

/// Holds out a fold of rows that are dealt at random: of each class to all folds alike, where there are classes.
///
/// # Errors
/// There are fewer rows than folds.
pub fn fold_at_random(rows: &[u32], fold: Fold, seed: u64, labels: Option<&[i32]>) -> Result<Parts> {
    let Fold { number, of } = fold;
    ensure!(
        rows.len() >= of,
        "there are {} rows, and {of} folds are to have some each: `folds` is too large",
        rows.len()
    );
    let mut order = rows.to_vec();
    Stream::new(seed, Purpose::Split, 3, 0).shuffle(&mut order);
    if let Some(labels) = labels {
        order.sort_by_key(|row| labels[*row as usize]);
    }
    let mut folds = vec![0u32; rows.iter().max().map_or(0, |last| *last as usize + 1)];
    order.iter().enumerate().for_each(|(at, row)| folds[*row as usize] = (at % of) as u32);
    Ok(of_fold(rows, number, |row| folds[row as usize] as usize))
}

/// Holds out a fold of whole groups: the largest first, each goes to the fold that has fewest rows.
///
/// # Errors
/// There are fewer groups than folds.
pub fn fold_by_groups(rows: &[u32], fold: Fold, seed: u64, groups: &[u64]) -> Result<Parts> {
    let Fold { number, of } = fold;
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *sizes.entry(groups[*row as usize]).or_default() += 1);
    ensure!(
        sizes.len() >= of,
        "there are {} groups, and {of} folds are to have some each: `folds` is too large",
        sizes.len()
    );
    let mut all: Vec<(u64, usize)> = sizes.into_iter().collect();
    Stream::new(seed, Purpose::Split, 4, 0).shuffle(&mut all);
    all.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let (mut filled, mut fold_of) = (vec![0; of], HashMap::new());
    for (group, size) in all {
        let least = (0..of).min_by_key(|fold| filled[*fold]).unwrap_or(0);
        filled[least] += size;
        fold_of.insert(group, least);
    }
    Ok(of_fold(rows, number, |row| fold_of[&groups[row as usize]]))
}

/// Holds out the rows with the greatest times.
///
/// # Errors
/// One of the parts would be empty.
pub fn by_time(rows: &[u32], how: HoldOut, times: &[f64]) -> Result<Parts> {
    let wanted = held(how, rows.len())?;
    let mut order = rows.to_vec();
    order.sort_by(|a, b| times[*a as usize].total_cmp(&times[*b as usize]).then(a.cmp(b)));
    // Rows of one time are of one part: the cut is at the change of time that is nearest to what is asked for.
    let asked = order.len() - wanted;
    let changes = |at: &usize| times[order[*at - 1] as usize] != times[order[*at] as usize];
    let cut = (1..order.len()).filter(changes).min_by_key(|at| at.abs_diff(asked));
    let val = order.split_off(cut.unwrap_or(asked));
    let sorted = |mut rows: Vec<u32>| {
        rows.sort_unstable();
        rows
    };
    Ok(Parts { train: sorted(order), val: sorted(val), test: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_divided_as_asked() {
        let rows: Vec<u32> = (0..100).collect();
        let labels: Vec<i32> = (0..100).map(|i| i32::from(i >= 80)).collect();
        let parts = at_random(&rows, HoldOut::Fraction(0.2), 3, Some(&labels)).unwrap();
        assert_eq!((parts.train.len(), parts.val.len()), (80, 20));
        assert_eq!(parts.val.iter().filter(|row| **row >= 80).count(), 4, "of each class the same part");
        assert!(parts.val.is_sorted());

        let groups: Vec<u64> = (0..100).map(|i| i / 7).collect();
        let parts = by_groups(&rows, HoldOut::Fraction(0.2), 3, &groups).unwrap();
        assert!(parts.val.len() >= 20 && parts.val.len() < 27);
        let of = |rows: &[u32]| rows.iter().map(|row| row / 7).collect::<std::collections::BTreeSet<_>>();
        assert!(of(&parts.train).is_disjoint(&of(&parts.val)), "no group is in both parts");
        assert!(by_groups(&rows, HoldOut::Fraction(0.2), 3, &[1; 100]).is_err());
        let pairs: Vec<u64> = (0..100).map(|i| i / 2).collect();
        assert_eq!(
            by_groups(&rows, HoldOut::Count(20), 3, &pairs).unwrap().val.len(),
            20,
            "no more than was asked for"
        );

        let times: Vec<f64> = (0..100).map(|i| f64::from((i * 37) % 100)).collect();
        let parts = by_time(&rows, HoldOut::Count(10), &times).unwrap();
        assert!(parts.val.iter().all(|row| times[*row as usize] >= 90.0));
        assert_eq!(parts.train.len(), 90);
        assert!(by_time(&rows, HoldOut::Count(100), &times).is_err());
        // Rows of one time stay together: of times of four rows each, ten are nearest to eight or to twelve.
        let times: Vec<f64> = (0..100).map(|row| f64::from(row / 4)).collect();
        let held = |wanted: usize, times: &[f64]| by_time(&rows, HoldOut::Count(wanted), times).unwrap().val.len();
        assert_eq!([10, 11, 1, 99].map(|wanted| held(wanted, &times)), [12, 12, 4, 96]);
        assert_eq!(held(10, &[5.0; 100]), 10, "there is no change of time");

        let all = |part: &dyn Fn(Fold) -> Parts| {
            let parts: Vec<Parts> = (0..7).map(|number| part(Fold { number, of: 7 })).collect();
            let mut held: Vec<u32> = parts.iter().flat_map(|parts| parts.val.clone()).collect();
            held.sort_unstable();
            assert_eq!(held, rows, "each row is held out once");
            assert!(parts.iter().all(|parts| parts.train.len() + parts.val.len() == 100));
            parts
        };
        let parts = all(&|fold| fold_at_random(&rows, fold, 3, Some(&labels)).unwrap());
        for Parts { val, .. } in parts {
            assert!((14..=15).contains(&val.len()));
            assert!((2..=3).contains(&val.iter().filter(|row| **row >= 80).count()), "{val:?}");
        }
        assert_ne!(
            fold_at_random(&rows, Fold { number: 0, of: 7 }, 3, None).unwrap(),
            fold_at_random(&rows, Fold { number: 0, of: 7 }, 4, None).unwrap()
        );
        let parts = all(&|fold| fold_by_groups(&rows, fold, 3, &groups).unwrap());
        assert!(parts.iter().all(|parts| of(&parts.train).is_disjoint(&of(&parts.val)) && parts.val.len() <= 16));
        let fold = Fold { number: 0, of: 16 };
        assert!(fold_by_groups(&rows, fold, 3, &groups).unwrap_err().to_string().contains("15 groups"));
        assert!(fold_at_random(&rows[..9], fold, 3, None).unwrap_err().to_string().contains("9 rows"));

        // Of each of two values the same part, of those of a single row together, and of rows without one.
        let texts: Vec<String> = (0..22).map(|text| format!("t{text:02}")).collect();
        let text_of = |row: &u32| match row {
            0..40 => Some(21),
            40..60 => Some(3),
            60..80 => Some(row - 60),
            _ => None,
        };
        let texts_of: Vec<Option<u32>> = rows.iter().map(text_of).collect();
        let labels = strata(&texts_of, &texts, &rows);
        assert_eq!((labels[0], labels[99]), (3, 0), "`t21` is behind `t03`, and what is missing is a class");
        let parts = at_random(&rows, HoldOut::Fraction(0.1), 3, Some(&labels)).unwrap();
        let count = |range: std::ops::Range<u32>| parts.val.iter().filter(|row| range.contains(row)).count();
        assert_eq!([count(0..40), count(80..100)], [4, 2]);
        // `t03` is in one more row, so that it is no value of one row alone.
        assert_eq!((labels[63], labels[60]), (2, 1));
        assert_eq!(count(40..80), 4);
        for Parts { val, .. } in all(&|fold| fold_at_random(&rows, fold, 3, Some(&labels)).unwrap()) {
            assert!((5..=6).contains(&val.iter().filter(|row| **row < 40).count()), "{val:?}");
        }

        let words = |list: &[&str]| {
            let mut parts = Parts::default();
            list.iter().enumerate().try_for_each(|(row, word)| parts.add(row, "split", word))?;
            Ok::<Parts, anyhow::Error>(parts)
        };
        let mut parts = words(&["train", "Val", "TEST", "dev"]).unwrap();
        assert_eq!(parts, Parts { train: vec![0], val: vec![1, 3], test: vec![2] });
        parts.join(words(&["dev", "trn"]).unwrap(), 4);
        assert_eq!(parts, Parts { train: vec![0, 5], val: vec![1, 3, 4], test: vec![2] });
        let error = words(&["train", "later"]).unwrap_err().to_string();
        assert!(error.contains("`later`"), "{error}");
    }
}

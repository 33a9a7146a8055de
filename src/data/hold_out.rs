//! Dividing a split: a part held out for validation, fewer samples.

use super::Split;
use crate::random::{Purpose, Stream};
use anyhow::{Result, ensure};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How much is held out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HoldOut {
    /// This part of the samples, rounded to the nearest whole number.
    Fraction(f64),
    /// This many samples.
    Count(usize),
}

impl Split {
    /// Divides into (train, validation). Which samples are held out is drawn from `seed`; both parts keep the order of
    /// the whole. `by_class`: of each class the same part, as near as whole numbers come to it.
    ///
    /// # Errors
    /// One of the parts would be empty, or the fraction is not within 0 and 1.
    pub fn hold_out(&self, how: HoldOut, seed: u64, by_class: bool) -> Result<(Split, Split)> {
        let held = match how {
            HoldOut::Fraction(f) => {
                ensure!(f > 0.0 && f < 1.0, "a fraction of {f} cannot be held out: it must lie between 0 and 1");
                (f * self.len() as f64).round() as usize
            }
            HoldOut::Count(n) => n,
        };
        ensure!(
            held > 0 && held < self.len(),
            "holding out {held} of {} samples for validation leaves one of the parts empty",
            self.len()
        );
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        Stream::new(seed, Purpose::Split, 0, 0).shuffle(&mut order);
        if by_class {
            self.take_turns(&mut order, held);
        }
        // Each part in the order of the samples.
        let mut is_held = vec![false; self.len()];
        order[..held].iter().for_each(|at| is_held[*at as usize] = true);
        let [mut of_val, mut of_train] = [0, held];
        for (is_held, at) in is_held.into_iter().zip(0..) {
            let place = if is_held { &mut of_val } else { &mut of_train };
            order[*place] = at;
            *place += 1;
        }
        let (val, train) = order.split_at(held);
        Ok((self.select(train), self.select(val)))
    }

    /// Brings samples to the front of `order` so that the first `held` are the same part of each class, the others after them.
    /// Within a class the order stays. What is left by rounding goes to the classes that rounding took most from.
    fn take_turns(&self, order: &mut [u32], held: usize) {
        // Without labels there is one class of all, and no need of memory for lists of it.
        if order.first().is_none_or(|at| self.label(*at as usize).is_none()) {
            return;
        }
        let mut classes: BTreeMap<Option<i32>, Vec<u32>> = BTreeMap::new();
        for at in order.iter() {
            classes.entry(self.label(*at as usize)).or_default().push(*at);
        }
        // How many of each class, and what rounding takes from it in parts of the whole.
        let share = |n: usize| (held as u128 * n as u128, order.len() as u128);
        let mut parts: Vec<(usize, u128)> =
            classes.values().map(|all| share(all.len())).map(|(n, whole)| ((n / whole) as usize, n % whole)).collect();
        let mut most: Vec<usize> = (0..parts.len()).collect();
        most.sort_by_key(|class| Reverse(parts[*class].1));
        let left = held - parts.iter().map(|(n, _)| n).sum::<usize>();
        most.into_iter().take(left).for_each(|class| parts[class].0 += 1);
        let taken = classes.values().zip(&parts).flat_map(|(all, (n, _))| &all[..*n]);
        let others = classes.values().zip(&parts).flat_map(|(all, (n, _))| &all[*n..]);
        let all: Vec<u32> = taken.chain(others).copied().collect();
        order.copy_from_slice(&all);
    }

    /// `n` samples, or all if there are fewer, drawn from `seed` and the number of the `part` that this is: of each class the same part,
    /// as near as whole numbers come to it. They keep the order of the whole.
    pub fn limit(&self, n: usize, seed: u64, part: u64) -> Split {
        if n >= self.len() {
            return self.clone();
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        Stream::new(seed, Purpose::Split, 1, part).shuffle(&mut order);
        self.take_turns(&mut order, n);
        order.truncate(n);
        order.sort_unstable();
        self.select(&order)
    }

    /// The first `n` samples, or all if there are fewer.
    pub fn first(&self, n: usize) -> Split {
        if n >= self.len() {
            return self.clone();
        }
        let first: Vec<u32> = (0..n as u32).collect();
        self.select(&first)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Values;
    use super::*;

    fn numbered(n: usize) -> Split {
        Split::labelled(Values::Bytes(vec![0; n]), [1], (0..n as i32).collect()).unwrap()
    }

    fn labels(s: &Split) -> Vec<i32> {
        (0..s.len()).filter_map(|i| s.label(i)).collect()
    }

    #[test]
    fn parts_are_disjoint_sorted_and_repeatable() {
        let s = numbered(100);
        let (train, val) = s.hold_out(HoldOut::Fraction(0.25), 3, false).unwrap();
        assert_eq!((train.len(), val.len()), (75, 25));
        let mut all = [labels(&train), labels(&val)].concat();
        assert!(labels(&train).is_sorted() && labels(&val).is_sorted());
        all.sort_unstable();
        assert_eq!(all, labels(&s));
        let (_, again) = s.hold_out(HoldOut::Count(25), 3, false).unwrap();
        assert_eq!(labels(&again), labels(&val));
        let (_, other) = s.hold_out(HoldOut::Count(25), 4, false).unwrap();
        assert_ne!(labels(&other), labels(&val));
    }

    #[test]
    fn empty_parts_are_refused() {
        let s = numbered(4);
        for how in [HoldOut::Fraction(0.0), HoldOut::Fraction(f64::NAN), HoldOut::Fraction(1.0), HoldOut::Fraction(0.1)]
        {
            assert!(s.hold_out(how, 0, false).is_err(), "{how:?}");
        }
        for n in [0, 4, 5] {
            assert!(s.hold_out(HoldOut::Count(n), 0, false).is_err(), "{n}");
        }
        assert!(numbered(0).hold_out(HoldOut::Count(1), 0, false).is_err());
    }

    #[test]
    fn each_class_gives_the_same_part() {
        // Classes of 50, 30, 13 and 7.
        let class = |i: usize| [50, 80, 93, 100].iter().position(|end| i < *end).unwrap() as i32;
        let s = Split::labelled(Values::Bytes((0..100).collect()), [1], (0..100).map(class).collect()).unwrap();
        let (train, val) = s.hold_out(HoldOut::Fraction(0.2), 3, true).unwrap();
        let counts = |s: &Split| (0..4).map(|c| labels(s).iter().filter(|l| **l == c).count()).collect::<Vec<_>>();
        // Parts of 10, 6, 2.6 and 1.4.
        assert_eq!((counts(&val), counts(&train)), (vec![10, 6, 3, 1], vec![40, 24, 10, 6]));
        let places = |s: &Split| (0..s.len()).map(|i| s.bytes(i, 0).unwrap()[0]).collect::<Vec<_>>();
        assert!(places(&val).is_sorted() && places(&train).is_sorted());
        let mut all = [places(&val), places(&train)].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100));
        let again = |seed| places(&s.hold_out(HoldOut::Count(20), seed, true).unwrap().1);
        assert!(again(3) == places(&val) && again(4) != places(&val));
    }

    #[test]
    fn limit_draws_from_every_class() {
        assert_eq!(labels(&numbered(5).first(2)), [0, 1]);
        assert_eq!(numbered(5).limit(9, 0, 0).len(), 5);
        // As folders have them: one class after the other.
        let s = Split::labelled(Values::Bytes(vec![0; 90]), [1], (0..90).map(|i| i / 30).collect()).unwrap();
        let counts = |s: &Split| (0..3).map(|c| labels(s).iter().filter(|l| **l == c).count()).collect::<Vec<_>>();
        assert_eq!(counts(&s.limit(9, 3, 0)), [3, 3, 3]);
        assert_eq!(counts(&s.limit(10, 3, 0)).iter().sum::<usize>(), 10);
        assert!(labels(&s.limit(10, 3, 0)).is_sorted());
        // Of one class: any of its samples, the same ones for the same seed and part.
        let s = Split::labelled(Values::Bytes((0..100).collect()), [1], vec![0; 100]).unwrap();
        let places = |seed, part| {
            let s = s.limit(10, seed, part);
            (0..10).map(|i| s.bytes(i, 0).unwrap()[0]).collect::<Vec<_>>()
        };
        assert!(places(3, 0) == places(3, 0) && places(3, 0).is_sorted());
        assert!(places(3, 0) != places(4, 0) && places(3, 0) != places(3, 1));
        assert!(places(3, 0).iter().any(|at| *at >= 10), "the first alone are no draw");
    }
}

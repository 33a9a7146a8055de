//! Dividing a split: a part held out for validation, the first few samples.

use super::Split;
use crate::random::{Purpose, Stream};
use anyhow::{Result, ensure};

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
    /// the whole.
    ///
    /// # Errors
    /// One of the parts would be empty, or the fraction is not within 0 and 1.
    pub fn hold_out(&self, how: HoldOut, seed: u64) -> Result<(Split, Split)> {
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
        let (val, train) = order.split_at_mut(held);
        val.sort_unstable();
        train.sort_unstable();
        Ok((self.select(train), self.select(val)))
    }

    /// The first `n` samples, or all if there are fewer.
    pub fn limit(&self, n: usize) -> Split {
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
        let (train, val) = s.hold_out(HoldOut::Fraction(0.25), 3).unwrap();
        assert_eq!((train.len(), val.len()), (75, 25));
        let mut all = [labels(&train), labels(&val)].concat();
        assert!(labels(&train).is_sorted() && labels(&val).is_sorted());
        all.sort_unstable();
        assert_eq!(all, labels(&s));
        let (_, again) = s.hold_out(HoldOut::Count(25), 3).unwrap();
        assert_eq!(labels(&again), labels(&val));
        let (_, other) = s.hold_out(HoldOut::Count(25), 4).unwrap();
        assert_ne!(labels(&other), labels(&val));
    }

    #[test]
    fn empty_parts_are_refused() {
        let s = numbered(4);
        for how in [HoldOut::Fraction(0.0), HoldOut::Fraction(f64::NAN), HoldOut::Fraction(1.0), HoldOut::Fraction(0.1)]
        {
            assert!(s.hold_out(how, 0).is_err(), "{how:?}");
        }
        for n in [0, 4, 5] {
            assert!(s.hold_out(HoldOut::Count(n), 0).is_err(), "{n}");
        }
        assert!(numbered(0).hold_out(HoldOut::Count(1), 0).is_err());
    }

    #[test]
    fn limit_takes_the_first() {
        assert_eq!(labels(&numbered(5).limit(2)), [0, 1]);
        assert_eq!(numbered(5).limit(9).len(), 5);
    }
}

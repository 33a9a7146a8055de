//! A fingerprint of a set of samples: a line of text that is stored in checkpoints.
//!
//! Four parts: the inputs and the targets that are trained on, and those that are held out to validate or test on. Each is a hash over element
//! type, shape, number and every byte; whatever the files looked like that they were read from.

use super::field::Field;
use super::known::Known;
use super::split::Split;
use std::fmt;
use std::str::FromStr;

/// Hexadecimal digits of a part: 128 bits, so that no two sets will ever have the same by chance.
const DIGITS: usize = 32;
/// Bytes of samples that are hashed at a time: BLAKE3 works on several blocks of a long text at once.
const AT_ONCE: usize = 1 << 16;
/// What the parts are called.
const PARTS: [&str; 4] = ["the training inputs", "the training targets", "the held-out inputs", "the held-out targets"];

/// Identifies a set of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint([String; 4]);

impl Fingerprint {
    /// Of samples in memory.
    pub(super) fn of(train: &Split, test: &Split) -> Self {
        let [a, b] = [train, test].map(|split| [hash(split, Field::is_input), hash(split, Field::is_target)]);
        let ([a, b], [c, d]) = (a, b);
        Fingerprint([a, b, c, d])
    }

    /// Of a public set whose files have been verified.
    pub(super) fn of_known(set: Known) -> Option<Self> {
        Some(Fingerprint(set.fingerprint()?.map(String::from)))
    }

    /// What differs between the samples of `self` and of `other`, in words; `None` if nothing does.
    pub fn difference(&self, other: &Fingerprint) -> Option<String> {
        let differing: Vec<&str> =
            self.0.iter().zip(&other.0).zip(PARTS).filter(|((a, b), _)| a != b).map(|(_, name)| name).collect();
        match &differing[..] {
            [] => None,
            [one] => Some((*one).into()),
            [most @ .., last] => Some(format!("{} and {last}", most.join(", "))),
        }
    }
}

/// Of the fields that are wanted. Names count only where there are several.
fn hash(split: &Split, wanted: impl Fn(&Field) -> bool) -> String {
    let mut hash = blake3::Hasher::new();
    let fields: Vec<(usize, &Field)> = split.fields().iter().enumerate().filter(|(_, field)| wanted(field)).collect();
    let len = split.len();
    for (number, Field { name, dtype, shape, .. }) in fields.iter().filter(|_| len > 0) {
        if fields.len() > 1 {
            hash.update(format!("`{name}`, ").as_bytes());
        }
        hash.update(format!("{len} of {dtype} {shape}\n").as_bytes());
        if let Some(bytes) = split.all(*number) {
            hash.update(bytes);
        } else {
            let mut some = Vec::with_capacity(AT_ONCE);
            for i in 0..len {
                split.identify(i, *number, &mut |bytes| {
                    if some.len() + bytes.len() > AT_ONCE {
                        hash.update(&some);
                        some.clear();
                    }
                    // A long one needs no company.
                    match bytes.len() > AT_ONCE {
                        true => _ = hash.update(bytes),
                        false => some.extend_from_slice(bytes),
                    }
                });
            }
            hash.update(&some);
        }
    }
    hash.finalize().to_hex()[..DIGITS].to_string()
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("-"))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<String> = text.split('-').map(String::from).collect();
        let digits = |part: &String| part.len() == DIGITS && part.bytes().all(|b| b.is_ascii_hexdigit());
        match <[String; 4]>::try_from(parts) {
            Ok(parts) if parts.iter().all(digits) => Ok(Fingerprint(parts)),
            _ => Err(format!("`{text}` is no fingerprint of data")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Values;
    use super::super::{Classes, FieldKind};
    use super::*;
    use crate::graph::DType;

    fn bytes(values: &[u8], labels: &[i32], shape: &[usize]) -> Split {
        Split::labelled(Values::Bytes(values.to_vec()), shape, labels.to_vec()).unwrap()
    }

    #[test]
    fn of_several_inputs_all_count_and_their_names() {
        let set = |names: [&str; 2], second: u8| {
            let field = |i: usize, v: u8| (Field::numbers(names[i], DType::U8, [1]), Values::Bytes(vec![v]));
            let target = (Field::target("targets", FieldKind::Category(Classes::of(10)), []), Values::Ints(vec![1]));
            Split::in_memory(vec![field(0, 1), field(1, second), target], 1).unwrap()
        };
        let old = Fingerprint::of(&set(["a", "b"], 2), &set(["a", "b"], 2));
        for other in [set(["a", "b"], 3), set(["a", "c"], 2)] {
            let new = Fingerprint::of(&set(["a", "b"], 2), &other);
            assert_eq!(old.difference(&new).as_deref(), Some("the held-out inputs"));
        }
    }

    #[test]
    fn what_differs_is_named() {
        let train = bytes(&[1, 2, 3, 4], &[0, 1], &[2]);
        let test = bytes(&[5, 6], &[1], &[2]);
        let old = Fingerprint::of(&train, &test);
        assert_eq!(old.difference(&Fingerprint::of(&train.clone(), &test)), None);
        let names = |train: &Split, test: &Split| old.difference(&Fingerprint::of(train, test)).unwrap();
        assert_eq!(names(&bytes(&[1, 2, 3, 5], &[0, 1], &[2]), &test), "the training inputs");
        assert_eq!(names(&bytes(&[1, 2, 3, 4], &[1, 0], &[2]), &test), "the training targets");
        assert_eq!(names(&train, &bytes(&[5, 7], &[0], &[2])), "the held-out inputs and the held-out targets");
        assert_eq!(
            names(&test, &train),
            "the training inputs, the training targets, the held-out inputs and the held-out targets"
        );
        // Shapes and numbers count even where all bytes are alike.
        assert_eq!(names(&bytes(&[1, 2, 3, 4], &[0, 1], &[2, 1]), &test), "the training inputs");
        assert_eq!(names(&train, &train.first(0)), "the held-out inputs and the held-out targets");
    }

    #[test]
    fn a_view_is_what_it_shows() {
        let all = bytes(&[1, 2, 3, 4, 5, 6], &[0, 1, 2], &[2]);
        let empty = all.first(0);
        let shown = bytes(&[5, 6, 1, 2], &[2, 0], &[2]);
        assert_eq!(Fingerprint::of(&all.select(&[2, 0]), &empty), Fingerprint::of(&shown, &empty));
        assert_eq!(Fingerprint::of(&all.select(&[0, 1, 2]), &empty), Fingerprint::of(&all, &empty));
    }

    #[test]
    fn text_and_back() {
        let one = bytes(&[1, 2], &[0], &[2]);
        let print = Fingerprint::of(&one, &one);
        assert_eq!(print.to_string().parse(), Ok(print.clone()));
        for wrong in ["", "abc", "a-b-c-d", &print.to_string()[1..], &format!("{print}-00")] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}

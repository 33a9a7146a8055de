//! Texts as numbers of buckets, for which nothing is fitted: the hash of scikit-learn's `FeatureHasher` and `HashingVectorizer`.

use serde::{Deserialize, Serialize};
use unicode_normalization::char::is_combining_mark;

/// Most buckets: as many as scikit-learn's classes have by default.
pub const MOST_BUCKETS: usize = 1 << 20;

/// MurmurHash3 for 32 bits with the seed 0 (Appleby 2011): `sklearn.utils.murmurhash3_32`.
pub fn murmur3(bytes: &[u8]) -> i32 {
    let mixed = |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut hash = 0u32;
    for block in blocks {
        hash = (hash ^ mixed(u32::from_le_bytes(*block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let last = tail.iter().rev().fold(0, |last, byte| last << 8 | u32::from(*byte));
    hash ^= mixed(last) ^ bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    (hash ^ hash >> 16).cast_signed()
}

/// The bucket of a hash.
pub fn bucket(hash: i32, buckets: usize) -> usize {
    hash.unsigned_abs() as usize % buckets
}

/// What the words of a text are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// The root of the sum of the squares: 1 is left of it.
    L2,
    /// Nothing: they are counted.
    None,
}

/// The words of a text, counted in buckets. `sklearn.feature_extraction.text.HashingVectorizer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// How many numbers a text becomes.
    pub buckets: usize,
    /// What they are divided by.
    pub norm: Norm,
    /// Half of the words count −1, so that those that share a bucket cancel out on the average.
    pub alternate_sign: bool,
}

impl Words {
    /// Writes a text to as many numbers as there are buckets.
    pub fn write(&self, text: &str, row: &mut [f32]) {
        row.fill(0.0);
        // As a whole: how a sigma is written depends on what is beside it.
        let text = text.to_lowercase();
        for word in text.split(|c| !is_of_word(c)).filter(|word| word.chars().nth(1).is_some()) {
            let hash = murmur3(word.as_bytes());
            row[bucket(hash, self.buckets)] += if self.alternate_sign && hash < 0 { -1.0 } else { 1.0 };
        }
        if self.norm == Norm::L2 {
            let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            row.iter_mut().filter(|x| **x != 0.0).for_each(|x| *x = (f64::from(*x) / norm) as f32);
        }
    }
}

/// `\w` of Python: a letter, a number, `_`. Marks and letters in circles, which Rust takes for letters, are none.
fn is_of_word(c: char) -> bool {
    let is_circled = matches!(c, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}');
    c == '_' || c.is_alphanumeric() && !is_combining_mark(c) && !is_circled
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Cells, ColumnCodec, Decoded, Encoding};
    use super::*;

    const GOLDEN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/table_codecs.json"));

    fn numbers(value: &serde_json::Value) -> Vec<f64> {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn texts_are_hashed_as_scikit_learn_does() {
        let golden: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
        let list = |value: &serde_json::Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
        let encoded = |encoding: Encoding, cells: Cells, rows: usize| {
            let codec = ColumnCodec::fit("x", &encoding, &cells, &(0..rows as u32).collect::<Vec<_>>(), None);
            let row = |at: usize| {
                let mut out = vec![9.0; codec.width()];
                codec.encode(&cells, at, &mut out);
                out
            };
            (0..rows).map(row).collect::<Vec<_>>()
        };
        let words = list(&golden["hashed"]["words"]);
        let hashes = words.iter().map(|word| f64::from(murmur3(word.as_bytes()))).collect();
        let rows = encoded(Encoding::Hashed { buckets: 1000 }, Cells::Numbers(hashes), words.len());
        for ((word, row), place) in words.iter().zip(rows).zip(numbers(&golden["hashed"]["places"])) {
            assert_eq!((row[place as usize], row.iter().sum::<f32>()), (1.0, 1.0), "{word}");
        }
        let texts = list(&golden["texts"]["texts"]);
        let cells = Cells::Texts((0..texts.len() as u32).map(Some).collect(), texts.clone().into());
        for (name, words) in [
            ("l2", Words { buckets: 64, norm: Norm::L2, alternate_sign: true }),
            ("counts", Words { buckets: 64, norm: Norm::None, alternate_sign: false }),
            ("signs", Words { buckets: MOST_BUCKETS, norm: Norm::None, alternate_sign: true }),
        ] {
            let rows = encoded(Encoding::Text(words), cells.clone(), texts.len());
            for ((text, row), golden) in texts.iter().zip(rows).zip(golden["texts"][name].as_array().unwrap()) {
                let mut expected = vec![0.0; words.buckets];
                let places = numbers(&golden["places"]);
                places.iter().zip(numbers(&golden["numbers"])).for_each(|(at, x)| expected[*at as usize] = x as f32);
                assert!(row == expected, "{name}: {text}");
            }
        }
    }

    /// A cell that is missing is no bucket and no word, and a bucket that no training has can be none of a checkpoint.
    #[test]
    fn what_is_missing_is_not_hashed() {
        let fitted = |encoding: Encoding, cells: &Cells| ColumnCodec::fit("x", &encoding, cells, &[0, 1], None);
        let missing = |codec: &ColumnCodec, cells: &Cells| {
            let mut out = vec![9.0; codec.width()];
            codec.encode(cells, 1, &mut out);
            assert_eq!(codec.decode(&out), Decoded::Missing);
            out
        };
        let hashes = Cells::Numbers(vec![-7.0, f64::NAN]);
        let hashed = fitted(Encoding::Hashed { buckets: 5 }, &hashes);
        assert_eq!(missing(&hashed, &hashes), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        let mut row = vec![9.0; 6];
        hashed.encode(&hashes, 0, &mut row);
        assert_eq!((row[2], hashed.decode(&row).to_string().as_str()), (1.0, "(bucket 2)"));
        let texts = Cells::Texts(vec![Some(0), None], vec!["two words".to_owned()].into());
        let words = Words { buckets: 3, norm: Norm::L2, alternate_sign: true };
        assert_eq!(missing(&fitted(Encoding::Text(words), &texts), &texts), [0.0, 0.0, 0.0, 1.0]);
        for buckets in [0, MOST_BUCKETS + 1] {
            assert!(!fitted(Encoding::Hashed { buckets }, &hashes).is_sane());
            assert!(!fitted(Encoding::Text(Words { buckets, ..words }), &texts).is_sane());
        }
    }
}

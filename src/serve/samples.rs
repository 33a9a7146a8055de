//! Samples of a request, as the bytes that a model takes.

use super::nested::Nested;
use super::refusal::Refusal;
use crate::data::text::Placed;
use crate::data::{Field, check_tokens};
use crate::graph::DType;
use serde_json::{Value, json};

/// The samples of a request.
#[derive(Debug)]
pub struct Samples {
    /// The bytes of all of them, for each field that the model takes.
    pub rows: Vec<Vec<u8>>,
    /// How many there are.
    pub count: usize,
    /// What they are called.
    pub names: Names,
}

/// What samples are called in an answer.
#[derive(Debug)]
pub enum Names {
    /// By their files, where those have names.
    Files(Vec<Option<String>>),
    /// By their numbers, and by what a column says.
    Rows(Option<Vec<String>>),
    /// By the number of the last row of each, and by what a column says.
    Windows(Vec<(u32, Option<String>)>),
    /// By their numbers; they are sentences of these words.
    Sentences(Vec<Placed>),
}

impl Names {
    /// A JSON object that says which sample it is about.
    pub fn of(&self, number: usize) -> Value {
        match self {
            Names::Files(names) => match names.get(number) {
                Some(Some(name)) => json!({ "file": name }),
                _ => json!({}),
            },
            Names::Windows(rows) => json!({ "sample": rows.get(number).map(|(row, _)| row) }),
            Names::Rows(_) | Names::Sentences(_) => json!({ "sample": number }),
        }
    }

    /// The words of a sentence.
    pub fn sentence(&self, number: usize) -> Option<&Placed> {
        match self {
            Names::Sentences(all) => all.get(number),
            _ => None,
        }
    }

    /// What a column calls a row.
    pub fn row(&self, number: usize) -> Option<&str> {
        match self {
            Names::Rows(Some(ids)) => ids.get(number).map(String::as_str),
            Names::Windows(rows) => rows.get(number)?.1.as_deref(),
            _ => None,
        }
    }
}

/// Adds numbers to the bytes of a field's samples. `what` says which they are.
///
/// # Errors
/// One is not what elements of the field can be.
pub fn put(field: &Field, numbers: &[f64], what: &str, into: &mut Vec<u8>) -> Result<(), Refusal> {
    let refused = |number: f64, expected: &str| {
        Refusal::unfit(format!("{what}: `{}` has {number}, and its elements are {expected}", field.name))
    };
    let before = into.len();
    for &number in numbers {
        match field.dtype {
            DType::U8 if number.fract() == 0.0 && (0.0..=255.0).contains(&number) => into.push(number as u8),
            DType::U8 => return Err(refused(number, "whole numbers from 0 to 255")),
            DType::I32 if number.fract() == 0.0 && number >= f64::from(i32::MIN) && number <= f64::from(i32::MAX) => {
                into.extend((number as i32).to_ne_bytes());
            }
            DType::I32 => return Err(refused(number, "whole numbers of 32 bits")),
            _ if (number as f32).is_finite() => into.extend((number as f32).to_ne_bytes()),
            _ => return Err(refused(number, "numbers of single precision")),
        }
    }
    channels_last(field, &mut into[before..]);
    Ok(())
}

/// Adds a sample that is given as nested lists.
///
/// # Errors
/// It has another shape than those of the field, or elements that there are not.
pub fn put_nested(field: &Field, nested: &Nested, what: &str, into: &mut Vec<u8>) -> Result<(), Refusal> {
    let expected = outside(field);
    if nested.shape != expected {
        let shown = |shape: &[usize]| match shape {
            [] => "a number".to_owned(),
            shape => format!("lists of {}", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" × ")),
        };
        return Err(Refusal::unfit(format!(
            "{what}: `{}` is {}, and a sample of it is {}",
            field.name,
            shown(&nested.shape),
            shown(&expected)
        )));
    }
    put(field, &nested.numbers, what, into)
}

/// Holds tokens and lengths against what there is to look up.
///
/// # Errors
/// One is none of them.
pub fn looked_up(fields: &[Field], rows: &[Vec<u8>]) -> Result<(), Refusal> {
    let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    check_tokens(fields, &rows).map_err(|error| Refusal::unfit(format!("{error:#}")))
}

/// Brings samples of a field, whose images come channels first, to the order in which the model takes them.
pub fn channels_last(field: &Field, bytes: &mut [u8]) {
    let &[height, width, channels] = field.shape.dims() else { return };
    if !field.is_image() || channels == 1 || bytes.is_empty() {
        return;
    }
    let (pixels, element) = (height * width, field.dtype.bytes());
    let mut sample = Vec::new();
    for bytes in bytes.chunks_exact_mut(field.bytes()) {
        sample.clear();
        sample.extend_from_slice(bytes);
        for (pixel, out) in bytes.chunks_exact_mut(channels * element).enumerate() {
            for (channel, out) in out.chunks_exact_mut(element).enumerate() {
                out.copy_from_slice(&sample[(channel * pixels + pixel) * element..][..element]);
            }
        }
    }
}

/// The shape of a sample as others have it: channels of images first.
pub fn outside(field: &Field) -> Vec<usize> {
    match *field.shape.dims() {
        [h, w, c] if field.is_image() => vec![c, h, w],
        ref dims => dims.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(text: &str) -> Nested {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn images_come_channels_first() {
        let field = Field::image("x", DType::U8, [1, 2, 3]);
        let mut bytes = vec![9];
        put_nested(&field, &nested("[[[1, 2]], [[3, 4]], [[5, 6]]]"), "sample 0", &mut bytes).unwrap();
        assert_eq!(bytes, [9, 1, 3, 5, 2, 4, 6]);
        let field = Field::image("x", DType::F32, [2, 1, 2]);
        let mut bytes = Vec::new();
        put_nested(&field, &nested("[[[1], [2]], [[3], [4]]]"), "sample 0", &mut bytes).unwrap();
        assert_eq!(bytes, [1f32, 3.0, 2.0, 4.0].map(f32::to_ne_bytes).concat());
    }

    #[test]
    fn elements_are_what_they_can_be() {
        for (dtype, number, part) in [
            (DType::U8, 256.0, "whole numbers from 0 to 255"),
            (DType::U8, -1.0, "whole numbers from 0 to 255"),
            (DType::U8, 0.5, "whole numbers from 0 to 255"),
            (DType::I32, 2_147_483_648.0, "whole numbers of 32 bits"),
            (DType::F32, 1e39, "numbers of single precision"),
        ] {
            let field = Field::numbers("x", dtype, [1]);
            let error = put(&field, &[number], "sample 3", &mut Vec::new()).unwrap_err();
            assert!(error.reason.contains(part) && error.reason.starts_with("sample 3: `x` has"), "{error:?}");
        }
        let error = put_nested(&Field::numbers("x", DType::F32, [3]), &nested("[1, 2]"), "sample 0", &mut Vec::new());
        assert_eq!(error.unwrap_err().reason, "sample 0: `x` is lists of 2, and a sample of it is lists of 3");
    }
}

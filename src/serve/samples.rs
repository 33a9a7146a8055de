//! Samples of a request, as the bytes that a model takes: of images, of rows, of tensors.

use super::budget::Charge;
use super::nested::Nested;
use super::refusal::Refusal;
use super::served::{Served, Takes, outside};
use crate::data::table::{Given, Raw, TooManyRows, read_text};
use crate::data::{Field, image_bytes, image_measures};
use crate::graph::DType;
use axum::body::Bytes;
use serde_json::{Value, json};

/// Bytes of memory that a byte of a text becomes at most while it is read: a number of two characters is one of eight bytes, and lists grow by doubling.
pub const READING: usize = 10;

/// How much a request may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Pixels of an image.
    pub pixels: u64,
    /// Samples of a request.
    pub rows: usize,
}

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
}

impl Names {
    /// A JSON object that says which sample it is about.
    pub fn of(&self, number: usize) -> Value {
        match self {
            Names::Files(names) => match names.get(number) {
                Some(Some(name)) => json!({ "file": name }),
                _ => json!({}),
            },
            Names::Rows(_) => json!({ "sample": number }),
        }
    }

    /// What a column calls a row.
    pub fn row(&self, number: usize) -> Option<&str> {
        match self {
            Names::Rows(Some(ids)) => ids.get(number).map(String::as_str),
            _ => None,
        }
    }
}

/// What becomes of a body.
pub struct Reader<'a> {
    /// The model.
    pub served: &'a Served,
    /// What is allowed.
    pub limits: &'a Limits,
    /// What the request has of the memory.
    pub charge: &'a mut Charge,
    /// Classes that are told.
    pub top: usize,
    /// Black and white are swapped in images.
    pub invert: bool,
}

/// A part of a body: a file.
pub struct File {
    /// Its name.
    pub name: Option<String>,
    /// What is in it.
    pub content: Bytes,
}

impl Reader<'_> {
    /// Takes the memory of so many samples and their answers.
    ///
    /// # Errors
    /// There are more than a request may have, or there is not enough memory.
    pub fn expect(&mut self, samples: usize) -> Result<(), Refusal> {
        self.allowed(samples)?;
        self.charge.add(samples.saturating_mul(self.served.each(self.top)))
    }

    fn allowed(&self, samples: usize) -> Result<(), Refusal> {
        let most = self.limits.rows;
        if samples > most {
            let reason = format!("there are {samples} samples, and a request may have {most} (--max-rows)");
            return Err(Refusal::too_large(reason));
        }
        Ok(())
    }

    /// Image files.
    ///
    /// # Errors
    /// The model takes none; one of them is none, or is too large.
    pub fn images(&mut self, files: &[File]) -> Result<Samples, Refusal> {
        let served = self.served;
        let field = match (served.takes(), &served.seen.fields[..]) {
            (Takes::Images, [field]) => field,
            _ => return Err(Refusal::other_type(format!("the model takes no images: it takes {}", accepted(served)))),
        };
        self.expect(files.len())?;
        let mut rows = Vec::with_capacity(files.len() * field.bytes());
        for (number, file) in files.iter().enumerate() {
            let place = match &file.name {
                Some(name) => format!("`{name}`: "),
                None if files.len() > 1 => format!("file {}: ", number + 1),
                None => String::new(),
            };
            let bad = |error: anyhow::Error| Refusal::bad(format!("{place}{error:#}"));
            let ([height, width], decoding) = image_measures(&file.content).map_err(bad)?;
            if height as u64 * width as u64 > self.limits.pixels {
                let most = self.limits.pixels;
                return Err(Refusal::too_large(format!(
                    "{place}the image has {width}×{height} pixels, and at most {most} are read (--max-pixels)"
                )));
            }
            self.charge.add(decoding)?;
            let transforms = served.seen.transforms.as_deref();
            rows.extend(image_bytes(&file.content, field, transforms, self.invert).map_err(bad)?);
            self.charge.give_back(decoding);
        }
        let names = files.iter().map(|file| file.name.clone()).collect();
        Ok(Samples { rows: vec![rows], count: files.len(), names: Names::Files(names) })
    }

    /// A table as text.
    ///
    /// # Errors
    /// The model takes none; it is none; its columns or cells do not fit.
    pub fn table(&mut self, file: &File) -> Result<Samples, Refusal> {
        let Some(codec) = &self.served.table else {
            let reason = format!("the model takes no tables: it takes {}", accepted(self.served));
            return Err(Refusal::other_type(reason));
        };
        self.charge.add(file.content.len().saturating_mul(READING))?;
        let name = file.name.as_deref().unwrap_or("body");
        let raw = read_text(name, file.content.to_vec(), codec, self.limits.rows).map_err(|error| {
            match error.downcast_ref::<TooManyRows>() {
                Some(_) => Refusal::too_large(format!("{error} (--max-rows)")),
                None => Refusal::unfit(format!("{error:#}")),
            }
        });
        self.encoded(&raw?)
    }

    /// Rows that have come one by one.
    ///
    /// # Errors
    /// There are too many.
    pub fn given(&mut self, given: Given) -> Result<Samples, Refusal> {
        self.encoded(&given.raw())
    }

    fn encoded(&mut self, raw: &Raw) -> Result<Samples, Refusal> {
        let Some(codec) = &self.served.table else { return Err(Refusal::internal("the model takes no tables")) };
        self.expect(raw.rows())?;
        let inputs = codec.inputs(raw).map_err(|error| Refusal::too_large(format!("{error:#}")))?;
        let bytes = inputs.into_iter().flat_map(f32::to_ne_bytes).collect();
        let names = Names::Rows(raw.ids().map(<[String]>::to_vec));
        Ok(Samples { rows: vec![bytes], count: raw.rows(), names })
    }
}

/// What a model takes, in words.
pub fn accepted(served: &Served) -> &'static str {
    match served.takes() {
        Takes::Images => {
            "an image (image/png, image/jpeg, …), several as multipart/form-data, or tensors as application/json"
        }
        Takes::Rows => "rows as application/json, or a table with a header as text/csv",
        Takes::Tensors => "tensors as application/json",
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
        put_nested(&field, &nested("[[[1, 2]], [[3, 4]], [[5, 6]]]"), "instance 0", &mut bytes).unwrap();
        assert_eq!(bytes, [9, 1, 3, 5, 2, 4, 6]);
        let field = Field::image("x", DType::F32, [2, 1, 2]);
        let mut bytes = Vec::new();
        put_nested(&field, &nested("[[[1], [2]], [[3], [4]]]"), "instance 0", &mut bytes).unwrap();
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
            let error = put(&field, &[number], "instance 3", &mut Vec::new()).unwrap_err();
            assert!(error.reason.contains(part) && error.reason.starts_with("instance 3: `x` has"), "{error:?}");
        }
        let error = put_nested(&Field::numbers("x", DType::F32, [3]), &nested("[1, 2]"), "instance 0", &mut Vec::new());
        assert_eq!(error.unwrap_err().reason, "instance 0: `x` is lists of 2, and a sample of it is lists of 3");
    }
}

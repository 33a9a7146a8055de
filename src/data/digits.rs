//! The bundled set: 1,797 hand-written digits of 8×8 pixels (UCI Machine Learning Repository, E. Alpaydin & C. Kaynak
//! 1998, CC BY 4.0; see `data/README.md`). It is part of the binary.

use super::footprint::UNPACKING;
use super::progress::Event;
use super::{DataSpec, Dataset, Describes, Footprint, Split, Values, idx, mnist};
use crate::graph::DType;
use anyhow::{Result, bail};

/// Side of an image, in pixels.
const SIDE: usize = 8;

/// Images and labels, to train on and to test on.
const FILES: [(&str, &[u8]); 4] = [
    ("train-images", include_bytes!("../../data/digits/train-images-idx3-ubyte.gz")),
    ("train-labels", include_bytes!("../../data/digits/train-labels-idx1-ubyte.gz")),
    ("test-images", include_bytes!("../../data/digits/test-images-idx3-ubyte.gz")),
    ("test-labels", include_bytes!("../../data/digits/test-labels-idx1-ubyte.gz")),
];

/// The set.
pub(super) struct Digits;

impl Describes for Digits {
    fn describe(&self) -> Result<DataSpec> {
        Ok(spec())
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        open()
    }

    fn footprint(&self) -> Footprint {
        Footprint::of(&spec(), UNPACKING)
    }
}

/// What the samples look like.
pub fn spec() -> DataSpec {
    DataSpec {
        train: Some(1_500),
        val: Some(297),
        ..DataSpec::labelled(DType::U8, [SIDE, SIDE, 1], 10).named((0..10).map(|d| d.to_string()))
    }
}

/// Unpacks the set.
///
/// # Errors
/// The binary is damaged.
pub fn open() -> Result<Dataset> {
    let shape = [SIDE, SIDE, 1].into();
    let part = |first: usize| {
        let [(images, image_bytes), (labels, label_bytes)] = [FILES[first], FILES[first + 1]];
        mnist::pair(idx::parse(image_bytes, images, 3)?, idx::parse(label_bytes, labels, 1)?, &shape, images, labels)
    };
    Ok(Dataset::new(spec(), part(0)?, part(2)?))
}

/// The digits in the place of another set of images in ten classes: resized (bilinear) to its shape, the grey value in
/// every channel. Float images run from 0 to 1. The result's note says that it is a stand-in.
///
/// # Errors
/// The set that `spec` describes is not one of images in ten classes.
pub fn resized_like(spec: &DataSpec) -> Result<Dataset> {
    let Some(input) = spec.only_input() else {
        bail!("the bundled digits cannot stand in for this data: they have one field alone");
    };
    let &[h, w, c] = input.shape.dims() else {
        bail!("the bundled digits cannot stand in for samples of shape {}: they are images", input.shape);
    };
    if spec.labels().is_none_or(|classes| classes.number != 10) {
        bail!("the bundled digits cannot stand in for this data: they have ten classes");
    }
    let digits = open()?;
    let resize = |split: &Split| {
        let mut pixels = Vec::with_capacity(split.len() * input.shape.len());
        let mut labels = Vec::with_capacity(split.len());
        for i in 0..split.len() {
            let image = split.bytes(i, 0).unwrap_or_default();
            bilinear(image, h, w, |value| pixels.extend(std::iter::repeat_n(value, c)));
            labels.extend(split.label(i));
        }
        let inputs = match input.dtype {
            DType::U8 => Values::Bytes(pixels.into_iter().map(|v| v.round() as u8).collect()),
            _ => Values::Floats(pixels.into_iter().map(|v| v / 255.0).collect()),
        };
        Split::labelled(inputs, input.shape.clone(), labels)
    };
    let mut out = Dataset::new(
        DataSpec { fields: spec.fields.clone(), ..self::spec() },
        resize(&digits.train)?,
        resize(&digits.val)?,
    );
    out.note = Some(format!(
        "the data asked for is not there: using the bundled digits ({} images to train on, {} to test on), resized \
         from 8×8 to {h}×{w} pixels and {c} channel{}; results say nothing about the data asked for",
        digits.train.len(),
        digits.val.len(),
        if c == 1 { "" } else { "s" }
    ));
    Ok(out)
}

/// Resizes one digit as PyTorch's `interpolate(mode="bilinear", align_corners=False)` does: pixels are squares, and the
/// border's value goes on beyond it. Gives the values row by row.
fn bilinear(image: &[u8], h: usize, w: usize, mut give: impl FnMut(f32)) {
    let at = |i: usize, n: usize| {
        let x = ((i as f32 + 0.5) * SIDE as f32 / n as f32 - 0.5).max(0.0);
        let low = (x as usize).min(SIDE - 1);
        (low, (low + 1).min(SIDE - 1), x - low as f32)
    };
    let pixel = |y: usize, x: usize| f32::from(image[y * SIDE + x]);
    for y in 0..h {
        let (top, bottom, fy) = at(y, h);
        for x in 0..w {
            let (left, right, fx) = at(x, w);
            let upper = pixel(top, left) * (1.0 - fx) + pixel(top, right) * fx;
            let lower = pixel(bottom, left) * (1.0 - fx) + pixel(bottom, right) * fx;
            give(upper * (1.0 - fy) + lower * fy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(split: &Split) -> Vec<usize> {
        let mut n = vec![0; 10];
        (0..split.len()).for_each(|i| n[split.label(i).unwrap() as usize] += 1);
        n
    }

    #[test]
    fn the_bundled_files_are_whole() {
        let set = open().unwrap();
        assert_eq!(set.spec, spec());
        assert_eq!(counts(&set.train), [151, 151, 150, 153, 148, 152, 151, 149, 146, 149]);
        assert_eq!(counts(&set.val), [27, 31, 27, 30, 33, 30, 30, 30, 28, 31]);
        // The first row of the first digit in the original is 0 0 5 13 9 1 0 0.
        assert_eq!(set.train.bytes(0, 0).unwrap()[..8], [0, 0, 80, 207, 143, 16, 0, 0]);
    }

    #[test]
    fn stands_in_for_other_images() {
        let like = super::super::cifar::spec(super::super::cifar::Variant::Ten);
        let set = resized_like(&like).unwrap();
        let looks = |field: &crate::data::Field| (field.dtype, field.shape.clone());
        assert_eq!(
            set.train.fields().iter().map(looks).collect::<Vec<_>>(),
            like.fields.iter().map(looks).collect::<Vec<_>>()
        );
        assert_eq!(set.spec.train, Some(1_500));
        assert!(set.note.as_deref().is_some_and(|n| n.contains("bundled digits") && n.contains("32×32")));
        let image = set.train.bytes(0, 0).unwrap();
        assert!(image.chunks(3).all(|p| p[0] == p[1] && p[1] == p[2]));
        // Four times the size: columns 9 and 10 stand at 1.875 and 2.125 of the original's; rows 0 and 1 are row 0.
        assert_eq!([image[9 * 3], image[10 * 3]], [70, 96]);
        let same = resized_like(&spec()).unwrap();
        assert_eq!(same.val.bytes(7, 0), open().unwrap().val.bytes(7, 0));
    }

    #[test]
    fn floats_run_from_0_to_1() {
        let set = resized_like(&DataSpec::labelled(DType::F32, [8, 8, 1], 10)).unwrap();
        let first: Vec<f32> =
            set.train.bytes(0, 0).unwrap().chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
        assert_eq!(first[2], 80.0 / 255.0);
    }

    #[test]
    fn refuses_what_is_not_ten_classes_of_images() {
        assert!(resized_like(&DataSpec::labelled(DType::U8, [64], 10)).is_err());
        assert!(resized_like(&DataSpec::labelled(DType::U8, [8, 8, 1], 3)).is_err());
    }
}

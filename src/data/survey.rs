//! How large the photos of a source are, by the headers of some of them.

use super::decoders::Measured;
use super::photo::{measure, read_head};
use super::transforms::{Transform, fixed};
use crate::files;
use crate::graph::Shape;
use anyhow::Result;
use std::cmp::Reverse;
use std::path::Path;

/// How many photos are looked at: spread evenly over all, and of those with the largest files.
const SPREAD: usize = 128;
const LARGEST: usize = 16;
/// How many sizes of files are asked for.
const SIZES: usize = 4096;
/// Bytes of a file that its header is looked for in, before all of it is read.
const HEAD: u64 = 256 << 10;

/// What some of the photos of a part of a source are like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Whether all photos were looked at.
    complete: bool,
    /// Height and width of those that were looked at and can be read.
    sides: Vec<[usize; 2]>,
    /// Bytes of memory that decoding takes, of the one that takes most.
    pub decoding: usize,
}

/// What images take that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of one, in the mean.
    pub each: usize,
    /// Bytes of all.
    pub all: usize,
    /// Bytes of all at most, if all of them were looked at, or are of one size.
    pub most: Option<usize>,
}

impl Survey {
    /// Looks at some of `photos`. `size` returns the bytes of a file, `read` reads it, but for what is beyond a number of bytes.
    pub(super) fn of(
        photos: usize,
        size: impl Fn(usize) -> u64,
        read: impl Fn(usize, u64, &mut Vec<u8>) -> Result<()>,
    ) -> Survey {
        let spread = |most: usize| (0..photos.min(most)).map(move |i| i * photos / photos.min(most));
        let mut chosen: Vec<usize> = spread(SPREAD).collect();
        if photos > SPREAD {
            let mut sizes: Vec<(u64, usize)> = spread(SIZES).map(|at| (size(at), at)).collect();
            sizes.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
            let seen = chosen.clone();
            chosen.extend(sizes.iter().map(|(_, at)| *at).filter(|at| !seen.contains(at)).take(LARGEST));
        }
        let mut file = Vec::new();
        let mut look = |at: usize| -> Option<Measured> {
            read(at, HEAD, &mut file).ok()?;
            let bytes = size(at);
            measure(&file, bytes).or_else(|| {
                // What comes before the image, such as a small one, may be long.
                let whole = file.len() as u64 == HEAD;
                (whole && read(at, u64::MAX, &mut file).is_ok()).then(|| measure(&file, bytes)).flatten()
            })
        };
        let found: Vec<Measured> = chosen.into_iter().filter_map(&mut look).collect();
        let decoding = found.iter().map(|one| one.decoding).max().unwrap_or(0);
        Survey { complete: photos <= SPREAD, sides: found.into_iter().map(|one| one.sides).collect(), decoding }
    }

    /// The same of image files.
    pub(super) fn of_files(folder: &Path, paths: &[Box<Path>]) -> Survey {
        let size = |at: usize| {
            let path = folder.join(&paths[at]);
            files::uninterrupted(|| std::fs::metadata(&path)).map_or(0, |metadata| metadata.len())
        };
        Survey::of(paths.len(), size, |at, most, file| read_head(&folder.join(&paths[at]), most, file))
    }

    /// Height and width of the least, the median and the largest, by area, of those that were looked at.
    pub fn sizes(&self) -> Option<[[usize; 2]; 3]> {
        let mut sides = self.sides.clone();
        sides.sort_unstable_by_key(|sides| (sides[0] * sides[1], *sides));
        let (first, last) = (sides.first()?, sides.last()?);
        Some([*first, sides[sides.len() / 2], *last])
    }

    /// What `photos` of them take when they are kept after the first of these transforms, those that draw nothing. `None`: of none is
    /// known how large it is.
    pub fn kept(&self, transforms: &[Transform], photos: usize) -> Option<Taken> {
        let first = &transforms[..fixed(transforms)];
        let after = |sides: [usize; 2]| {
            let shape = Shape::from([sides[0], sides[1], 3]);
            first.iter().try_fold(shape, |shape, transform| transform.output_shape(&shape)).ok()
        };
        // One that fixes the size.
        if let Some(each) = after([0, 0]).map(|shape| shape.len()).filter(|bytes| *bytes > 0) {
            let all = each.saturating_mul(photos);
            return Some(Taken { each, all, most: Some(all) });
        }
        let mut bytes: Vec<usize> = self.sides.iter().filter_map(|sides| Some(after(*sides)?.len())).collect();
        let each = bytes.iter().copied().fold(0, usize::saturating_add).checked_div(bytes.len())?;
        // They may be the largest of all.
        bytes.sort_unstable_by_key(|bytes| Reverse(*bytes));
        let most = bytes.iter().take(photos).copied().fold(0, usize::saturating_add);
        let all = if self.complete && photos >= bytes.len() { most } else { each.saturating_mul(photos) };
        Some(Taken { each, all, most: self.complete.then_some(most) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::transforms::{Interpolation, Size};
    use super::*;
    use image::{Rgb, RgbImage};
    use std::cell::RefCell;

    fn resize(size: Size) -> Transform {
        Transform::Resize { size, interpolation: Interpolation::Bilinear, antialias: true }
    }

    #[test]
    fn some_photos_stand_for_all() {
        let place = tempfile::tempdir().unwrap();
        // Two hundred of 6 × 4 pixels, a large one, and one that is none.
        let names: Vec<Box<Path>> = (0..202).map(|i| Path::new(&format!("{i}.png")).into()).collect();
        for name in &names {
            RgbImage::from_pixel(4, 6, Rgb([1, 2, 3])).save(place.path().join(name)).unwrap();
        }
        RgbImage::from_fn(90, 50, |x, y| Rgb([x as u8, y as u8, (x * y) as u8]))
            .save(place.path().join("77.png"))
            .unwrap();
        std::fs::write(place.path().join("100.png"), "no photo").unwrap();
        let survey = Survey::of_files(place.path(), &names);
        assert!(survey.sides.contains(&[50, 90]), "the largest file is looked at wherever it is");
        assert_eq!(survey.sizes(), Some([[6, 4], [6, 4], [50, 90]]));
        assert_eq!(Survey::default().sizes(), None);
        // Its pixels, and two rows of as many bytes as there can be.
        assert_eq!(survey.decoding, 3 * 50 * 90 + 16 * 90);
        assert!(survey.sides.len() >= SPREAD && survey.sides.len() < names.len(), "{}", survey.sides.len());
        // After a transform that fixes the size all is known.
        let fixed = [resize(Size::Both([8, 5])), Transform::RandomHorizontalFlip { p: 0.5 }];
        assert_eq!(survey.kept(&fixed, 10), Some(Taken { each: 120, all: 1200, most: Some(1200) }));
        let whole = survey.kept(&[Transform::RandomHorizontalFlip { p: 0.5 }], 202).unwrap();
        assert!(whole.most.is_none() && whole.each > 72 && whole.all == 202 * whole.each, "{whole:?}");
        // Of a few photos all are looked at.
        let few = Survey::of_files(place.path(), &names[..3]);
        assert_eq!(few.kept(&[resize(Size::Shorter(8))], 3), Some(Taken { each: 288, all: 864, most: Some(864) }));
        // Of a part of them it is known what they take at most.
        let part = Survey::of_files(place.path(), &names[76..79]);
        assert_eq!(part.kept(&[], 2), Some(Taken { each: 4548, all: 9096, most: Some(13_572) }));
        assert_eq!(Survey::default().kept(&[], 2), None);
    }

    #[test]
    fn no_more_of_a_file_is_read_than_its_header_needs() {
        let plain =
            std::fs::read(format!("{}/tests/golden/jpeg/420-37x53-edges.jpg", env!("CARGO_MANIFEST_DIR"))).unwrap();
        // Six comments as long as they may be come first, so that the header is behind what is read at first.
        let comment = [&[0xff, 0xfe, 0xff, 0xff][..], &vec![7; 65_533]].concat();
        let late = [&plain[..2], &comment.repeat(6), &plain[2..]].concat();
        let asked = RefCell::new(Vec::new());
        for (file, expected) in [(&plain, vec![HEAD]), (&late, vec![HEAD, u64::MAX])] {
            let survey = Survey::of(
                1,
                |_| 0,
                |_, most, out| {
                    asked.borrow_mut().push(most);
                    out.clear();
                    out.extend(file.iter().take(usize::try_from(most).unwrap_or(usize::MAX)));
                    Ok(())
                },
            );
            assert_eq!((survey.sides, asked.take()), (vec![[53, 37]], expected));
        }
    }
}

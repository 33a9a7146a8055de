//! Samples whose class was not found, the worst first, with their pictures.

use crate::collective::Collective;
use crate::data::Batch;
use crate::graph::op::Task;
use crate::graph::{DType, Input};
use crate::plan::SlotInput;
use crate::train::setup::programs::Kind;
use crate::train::setup::session::Session;
use anyhow::{Context, Result};
use image::imageops::{FilterType, resize};
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Cursor;

/// The longer side of a picture in pixels; a larger one is made smaller.
pub const SIDE: u32 = 96;

/// A sample whose class was not found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mistake {
    /// Its place in the split.
    pub sample: u32,
    /// Its class, and the one that it was taken for.
    pub pair: (usize, usize),
    /// The probabilities that the model gave to both.
    pub probabilities: (f64, f64),
    /// The negative logarithm of the first: its cross-entropy.
    pub loss: f64,
    /// What the model was shown; `None` where samples are no images.
    pub picture: Option<Picture>,
}

/// A small picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Numbers of a pixel: 1 or 3.
    pub channels: u32,
    /// Its PNG file.
    pub png: Vec<u8>,
}

/// The worst mistakes so far.
pub struct Worst {
    kept: BTreeMap<(usize, usize), Vec<Mistake>>,
    keep: Keep,
}

/// Which mistakes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// So many.
    Any(usize),
    /// So many of each pair of classes, and so many in all: the worst of every pair first, then the second of every pair, and so on.
    OfPairs(usize, usize),
}

/// The worse comes first.
fn by_badness(a: &Mistake, b: &Mistake) -> std::cmp::Ordering {
    b.loss.total_cmp(&a.loss).then(a.sample.cmp(&b.sample))
}

impl Worst {
    /// None so far.
    pub fn new(keep: Keep) -> Worst {
        Worst { kept: BTreeMap::new(), keep }
    }

    /// Looks at a batch that has just been evaluated. Only of one class a sample there is something to see.
    ///
    /// # Errors
    /// The device failed.
    pub fn see(&mut self, session: &mut Session, batch: &Batch) -> Result<()> {
        if session.programs.loss.task() != Task::Classification {
            return Ok(());
        }
        let layout = session.programs.plan.slot.clone();
        let place = |wanted: &dyn Fn(&SlotInput, bool) -> bool| {
            let fields = &session.programs.fields;
            let is = |input: &&SlotInput| match input.input {
                Input::Field(n) => fields.get(n as usize).is_some_and(|field| wanted(input, field.is_target())),
                _ => false,
            };
            layout.inputs.iter().find(is)
        };
        // A class for each sample; of several at a time there is no picture of one mistake.
        let Some(labels) =
            place(&|at, target| target && at.dtype == DType::I32 && at.shape.rank() <= 2 && one_each(at))
        else {
            return Ok(());
        };
        let image = place(&|at, target| !target && at.dtype == DType::U8 && at.shape.rank() == 4);
        let outputs = session.last_prediction(Kind::Eval, batch.shape)?;
        let classes = outputs.len() / batch.shape.samples.max(1);
        if classes < 2 {
            return Ok(());
        }
        let bytes = batch.buffer.bytes();
        let labels =
            bytes[labels.offset..][..4 * batch.shape.samples].as_chunks().0.iter().map(|b| i32::from_ne_bytes(*b));
        for (i, (row, label)) in outputs.chunks_exact(classes).zip(labels).enumerate() {
            // Of those that do not count there is no class.
            let Some(found) = usize::try_from(label).ok().and_then(|label| mistake(row, label, batch.samples()[i]))
            else {
                continue;
            };
            self.take(found, || picture(&bytes[image?.offset..], image?.shape.dims(), i));
        }
        Ok(())
    }

    /// Takes in what all other ranks have kept, as they do.
    ///
    /// # Errors
    /// A rank has failed.
    pub fn join(&mut self, team: &dyn Collective) -> Result<()> {
        let own: Vec<&Mistake> = self.kept.values().flatten().collect();
        let given = serde_json::to_vec(&own).context("the mistakes for the other ranks")?;
        for (rank, of_rank) in team.gather(&given)?.into_iter().enumerate() {
            if rank == team.rank() {
                continue;
            }
            let mistakes: Vec<Mistake> = serde_json::from_slice(&of_rank).context("the mistakes of another rank")?;
            for mut mistake in mistakes {
                let picture = mistake.picture.take();
                self.take(mistake, || picture);
            }
        }
        Ok(())
    }

    /// Takes a mistake in, if it is among the worst.
    fn take(&mut self, mistake: Mistake, picture: impl FnOnce() -> Option<Picture>) {
        let (group, most) = match self.keep {
            Keep::Any(most) => ((0, 0), most),
            Keep::OfPairs(most, _) => (mistake.pair, most),
        };
        let kept = self.kept.entry(group).or_default();
        // One that stands in for another that cannot be read comes again in its own place.
        if kept.iter().any(|other| other.sample == mistake.sample) {
            return;
        }
        let at = kept.partition_point(|other| by_badness(other, &mistake).is_lt());
        if at < most {
            kept.insert(at, Mistake { picture: picture(), ..mistake });
            kept.truncate(most);
        }
        // Of very many classes, not all pairs can be kept until the end.
        if let Keep::OfPairs(_, all) = self.keep
            && self.kept.len() > 4 * all
        {
            self.cut(2 * all);
        }
    }

    /// Keeps `most` mistakes: the worst of every pair first.
    fn cut(&mut self, most: usize) {
        let mut ranked: Vec<(usize, Mistake)> = Vec::new();
        for list in std::mem::take(&mut self.kept).into_values() {
            ranked.extend(list.into_iter().enumerate());
        }
        ranked.sort_by(|(i, a), (k, b)| i.cmp(k).then(by_badness(a, b)));
        ranked.truncate(most);
        for (_, mistake) in ranked {
            self.kept.entry(mistake.pair).or_default().push(mistake);
        }
    }

    /// Those that are kept, by pairs of classes; the worst of each first.
    pub fn by_pairs(mut self) -> BTreeMap<(usize, usize), Vec<Mistake>> {
        self.cut(if let Keep::OfPairs(_, all) = self.keep { all } else { usize::MAX });
        self.kept
    }

    /// Those that are kept, the worst first.
    pub fn list(self) -> Vec<Mistake> {
        let mut all: Vec<Mistake> = self.kept.into_values().flatten().collect();
        all.sort_by(by_badness);
        all
    }
}

fn one_each(at: &SlotInput) -> bool {
    at.shape.dims().iter().skip(1).product::<usize>() == 1
}

/// What the outputs for a sample of class `label` say, if that is another class.
fn mistake(row: &[f32], label: usize, sample: u32) -> Option<Mistake> {
    let own = f64::from(*row.get(label)?);
    let predicted = (1..row.len()).fold(0, |best, class| if row[class] > row[best] { class } else { best });
    if predicted == label || !row.iter().all(|x| x.is_finite()) {
        return None;
    }
    let most = f64::from(row[predicted]);
    let sum: f64 = row.iter().map(|x| (f64::from(*x) - most).exp()).sum();
    let probabilities = ((own - most).exp() / sum, 1.0 / sum);
    Some(Mistake { sample, pair: (label, predicted), probabilities, loss: sum.ln() + most - own, picture: None })
}

/// Image `number` of a batch `[N, H, W, C]` of bytes.
fn picture(bytes: &[u8], dims: &[usize], number: usize) -> Option<Picture> {
    let &[_, h, w, c] = dims else { return None };
    let pixels = bytes.get(number * h * w * c..(number + 1) * h * w * c)?;
    let (width, height) = (u32::try_from(w).ok()?, u32::try_from(h).ok()?);
    let image = match c {
        1 => DynamicImage::ImageLuma8(GrayImage::from_raw(width, height, pixels.to_vec())?),
        3.. => {
            let rgb = pixels.chunks_exact(c).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
            DynamicImage::ImageRgb8(RgbImage::from_raw(width, height, rgb)?)
        }
        _ => DynamicImage::ImageLuma8(GrayImage::from_raw(
            width,
            height,
            pixels.chunks_exact(c).map(|p| p[0]).collect(),
        )?),
    };
    let longest = width.max(height);
    let image = match longest > SIDE {
        true => {
            let side = |side: u32| (side * SIDE / longest).max(1);
            let (width, height) = (side(width), side(height));
            match &image {
                DynamicImage::ImageLuma8(gray) => {
                    DynamicImage::ImageLuma8(resize(gray, width, height, FilterType::Triangle))
                }
                other => DynamicImage::ImageRgb8(resize(&other.to_rgb8(), width, height, FilterType::Triangle)),
            }
        }
        false => image,
    };
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, ImageFormat::Png).ok()?;
    let channels = u32::from(image.color().channel_count());
    Some(Picture { width: image.width(), height: image.height(), channels, png: png.into_inner() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sample: u32, pair: (usize, usize), p: f64) -> Mistake {
        Mistake { sample, pair, probabilities: (p, 1.0 - p), loss: -p.ln(), picture: None }
    }

    fn samples(list: &[Mistake]) -> Vec<u32> {
        list.iter().map(|mistake| mistake.sample).collect()
    }

    #[test]
    fn the_worst_of_every_pair_are_kept_first() {
        let mut worst = Worst::new(Keep::OfPairs(2, 3));
        for mistake in [of(1, (0, 1), 0.1), of(2, (0, 1), 0.2), of(4, (0, 1), 0.15), of(3, (1, 0), 0.3)] {
            worst.take(mistake, || None);
        }
        let kept: Vec<Mistake> = worst.by_pairs().into_values().flatten().collect();
        assert_eq!(samples(&kept), [1, 4, 3]);
        let mut worst = Worst::new(Keep::OfPairs(2, 2));
        for mistake in [of(1, (0, 1), 0.1), of(2, (0, 1), 0.2), of(3, (1, 0), 0.3)] {
            worst.take(mistake, || None);
        }
        let kept: Vec<Mistake> = worst.by_pairs().into_values().flatten().collect();
        assert_eq!(samples(&kept), [1, 3]);
    }

    #[test]
    fn the_worst_of_all_are_kept_and_only_those_have_pictures() {
        let mut worst = Worst::new(Keep::Any(2));
        let mut made = 0;
        for (sample, p) in [(1, 0.2), (2, 0.1), (3, 0.4), (4, 0.2), (5, 0.01)] {
            worst.take(of(sample, (0, sample as usize), p), || {
                made += 1;
                None
            });
        }
        // Of equals the earlier one.
        assert_eq!((samples(&worst.list()), made), (vec![5, 2], 3));
    }

    #[test]
    fn the_loss_of_a_mistake_is_its_cross_entropy() {
        assert_eq!(mistake(&[1.0, 3.0, 2.0], 1, 0), None);
        assert_eq!(mistake(&[1.0, f32::NAN, 2.0], 0, 0), None);
        assert_eq!(mistake(&[1.0, 2.0], 2, 0), None, "a class that there is not");
        let found = mistake(&[1.0, 3.0, 2.0], 0, 7).unwrap();
        assert_eq!((found.sample, found.pair), (7, (0, 1)));
        let expected = (1f64.exp() + 3f64.exp() + 2f64.exp()).ln() - 1.0;
        assert!((found.loss - expected).abs() < 1e-12, "{found:?}");
        assert!((found.probabilities.0 - (-expected).exp()).abs() < 1e-12, "{found:?}");
        // Where the probability is no number above 0 any more, there is an order still.
        let far = mistake(&[-2000.0, 3.0], 0, 0).unwrap();
        assert_eq!((far.probabilities.0, far.loss), (0.0, 2003.0));
    }

    #[test]
    fn pictures_have_a_largest_side() {
        let big = picture(&[7; 2 * 200 * 400 * 3], &[2, 200, 400, 3], 1).unwrap();
        assert_eq!((big.width, big.height, big.channels), (96, 48, 3));
        let read = image::load_from_memory(&big.png).unwrap();
        assert_eq!((read.width(), read.height(), read.color().channel_count()), (96, 48, 3));
        for channels in [1, 2, 3, 4] {
            let small = picture(&vec![9; 64 * channels], &[1, 8, 8, channels], 0).unwrap();
            assert_eq!((small.width, small.height), (8, 8));
            assert_eq!(small.channels, if channels < 3 { 1 } else { 3 });
        }
        assert!(picture(&[0; 10], &[1, 8, 8, 1], 0).is_none());
    }
}

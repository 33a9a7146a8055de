//! The figures of a run's best checkpoint, and its worst mistakes with their pictures.

use super::html::data_url;
use crate::cli::args::{ReportArgs, SplitName};
use crate::cli::eval::{Asked, Evaluated, evaluated};
use crate::cli::failure::Failure;
use crate::data::Batch;
use crate::graph::{DType, Input};
use crate::plan::SlotInput;
use crate::train::setup::class_report::ClassReport;
use crate::train::setup::programs::Kind;
use crate::train::setup::session::Session;
use anyhow::Result;
use image::imageops::{FilterType, resize};
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

/// Mistakes that are kept of each pair of classes, and of all.
pub const OF_A_PAIR: usize = 6;
/// Mistakes that are kept in all.
pub const OF_ALL: usize = 300;
/// The longer side of a picture in pixels; a larger one is made smaller.
pub const SIDE: u32 = 96;

/// A sample whose class was not found.
#[derive(Debug, Clone, PartialEq)]
pub struct Mistake {
    /// Its place in the split.
    pub sample: u32,
    /// Its class, and the one that it was taken for.
    pub pair: (usize, usize),
    /// The probabilities that the model gave to both.
    pub probabilities: (f64, f64),
    /// Its picture as a PNG address; `None` where samples are no images.
    pub picture: Option<String>,
}

/// What is reported of an evaluation.
pub struct Evaluation {
    /// The samples: which data, which part, how many.
    pub of: String,
    /// Names and values of figures.
    pub figures: Vec<(String, f64)>,
    /// Of each class.
    pub report: Option<ClassReport>,
    /// What classes are called.
    pub names: Vec<String>,
    /// The worst mistakes, by pairs of classes; the worst of each first.
    pub mistakes: BTreeMap<(usize, usize), Vec<Mistake>>,
    /// What must be known of the samples.
    pub notes: Vec<String>,
}

/// Evaluates a checkpoint on what training validates on.
///
/// # Errors
/// The checkpoint or its data cannot be read, or the device is not there.
pub fn evaluation(checkpoint: &Path, args: &ReportArgs) -> Result<Evaluation, Failure> {
    let asked = Asked {
        model: checkpoint,
        overrides: &args.overrides,
        passes: crate::passes::PassOptions::default(),
        split: SplitName::Val,
        allow_download: false,
        threads: args.threads,
    };
    let mut worst = Worst::default();
    let Evaluated { samples, split, count, figures, report, notes, .. } =
        evaluated(&asked, &mut |session, batch, _| worst.see(session, batch))?;
    let mut list: Vec<(String, f64)> = figures.list().map(|(f, value)| (f.name().to_owned(), value)).collect();
    if let Some(report) = &report {
        use crate::graph::op::Figure;
        let counted = [Figure::BalancedAccuracy, Figure::MacroPrecision, Figure::MacroRecall, Figure::MacroF1];
        let more = counted.iter().filter(|f| figures.get(**f).is_none());
        list.extend(more.filter_map(|f| Some((f.name().to_owned(), report.figure(*f)?))));
    }
    Ok(Evaluation {
        of: format!("{}, {split}, {} samples", samples.name, crate::cli::thousands(count as u64)),
        figures: list,
        report,
        names: samples.spec.class_names.clone().unwrap_or_default(),
        mistakes: worst.chosen(),
        notes,
    })
}

/// The worst mistakes so far.
#[derive(Default)]
struct Worst {
    kept: BTreeMap<(usize, usize), Vec<Mistake>>,
}

/// How wrong the model is: what it believes the class to be less likely, the worse.
fn by_badness(a: &Mistake, b: &Mistake) -> std::cmp::Ordering {
    a.probabilities.0.total_cmp(&b.probabilities.0).then(a.sample.cmp(&b.sample))
}

impl Worst {
    /// Looks at a batch that has been evaluated.
    fn see(&mut self, session: &mut Session, batch: &Batch) -> Result<()> {
        let layout = session.programs.plan.slot.clone();
        let place = |wanted: &dyn Fn(&SlotInput, bool) -> bool| {
            let fields = &session.programs.fields;
            let is = |input: &&SlotInput| match input.input {
                Input::Field(n) => fields.get(n as usize).is_some_and(|field| wanted(input, field.target)),
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
        let outputs = session.last_prediction(Kind::Eval, batch.len)?;
        let classes = outputs.len() / batch.len.max(1);
        if classes < 2 {
            return Ok(());
        }
        let bytes = batch.buffer.bytes();
        let labels = bytes[labels.offset..][..4 * batch.len].as_chunks().0.iter().map(|b| i32::from_ne_bytes(*b));
        for (i, (row, label)) in outputs.chunks_exact(classes).zip(labels).enumerate() {
            // Of those that do not count there is no class.
            let Ok(label) = usize::try_from(label) else { continue };
            let Some(own) = row.get(label) else { continue };
            let predicted = (1..classes).fold(0, |best, class| if row[class] > row[best] { class } else { best });
            if predicted == label || !row.iter().all(|x| x.is_finite()) {
                continue;
            }
            let most = f64::from(row[predicted]);
            let sum: f64 = row.iter().map(|x| (f64::from(*x) - most).exp()).sum();
            let probabilities = ((f64::from(*own) - most).exp() / sum, 1.0 / sum);
            let sample = batch.samples()[i];
            let mistake = Mistake { sample, pair: (label, predicted), probabilities, picture: None };
            let kept = self.kept.entry(mistake.pair).or_default();
            let at = kept.partition_point(|other| by_badness(other, &mistake).is_lt());
            if at < OF_A_PAIR {
                let picture = image.and_then(|at| picture(&bytes[at.offset..], at.shape.dims(), i));
                kept.insert(at, Mistake { picture, ..mistake });
                kept.truncate(OF_A_PAIR);
            }
        }
        // Of very many classes, not all pairs can be kept until the end.
        if self.kept.len() > 4 * OF_ALL {
            self.cut(2 * OF_ALL);
        }
        Ok(())
    }

    /// Keeps `most` mistakes: the worst of every pair first, then the second of every pair, and so on.
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

    fn chosen(mut self) -> BTreeMap<(usize, usize), Vec<Mistake>> {
        self.cut(OF_ALL);
        self.kept
    }
}

fn one_each(at: &SlotInput) -> bool {
    at.shape.dims().iter().skip(1).product::<usize>() == 1
}

/// Image `number` of a batch `[N, H, W, C]` of bytes, as a PNG.
fn picture(bytes: &[u8], dims: &[usize], number: usize) -> Option<String> {
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
    Some(data_url("image/png", png.get_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_every_pair_are_kept_first() {
        let mut worst = Worst::default();
        let of = |sample: u32, pair: (usize, usize), p: f64| Mistake {
            sample,
            pair,
            probabilities: (p, 1.0 - p),
            picture: None,
        };
        worst.kept.insert((0, 1), vec![of(1, (0, 1), 0.1), of(2, (0, 1), 0.2)]);
        worst.kept.insert((1, 0), vec![of(3, (1, 0), 0.3)]);
        worst.cut(2);
        let samples: Vec<u32> = worst.kept.values().flatten().map(|mistake| mistake.sample).collect();
        assert_eq!(samples, [1, 3]);
    }

    #[test]
    fn pictures_have_a_largest_side() {
        let big = picture(&[7; 2 * 200 * 400 * 3], &[2, 200, 400, 3], 1).unwrap();
        let bytes = big.strip_prefix("data:image/png;base64,").unwrap();
        assert!(bytes.len() < 2000);
        for channels in [1, 2, 3, 4] {
            assert!(picture(&vec![9; 64 * channels], &[1, 8, 8, channels], 0).is_some());
        }
        assert!(picture(&[0; 10], &[1, 8, 8, 1], 0).is_none());
    }
}

//! `runner predict`.

use super::args::PredictArgs;
use super::failure::Failure;
use super::memory::Planned;
use super::model::{build, device, load_model};
use crate::backend::HostBuffer;
use crate::data::tensors::read_fields;
use crate::data::{DataSpec, Field, Footprint, Split, Transform, image_sample, photo_sample};
use crate::graph::op::Task;
use crate::graph::{Input, Shape};
use crate::model::{input_fields, task};
use crate::plan::SlotLayout;
use crate::terminal::say;
use crate::train::setup::input::transforms;
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::programs::Sizes;
use crate::train::setup::session::Session;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Applies a model to image files, or to the samples in files of tensors.
pub(super) fn run(args: &PredictArgs) -> Result<ExitCode, Failure> {
    let model = load_model(&args.model, &args.overrides.sets())?;
    let experiment = &model.loaded.experiment;
    let backend = device(experiment, args.threads)?;
    let data = model.sample()?;
    // Photos go through the transforms that those of validation went through; others are brought to the size of the samples.
    let photos = data.only_input().is_some_and(Field::is_of_any_size);
    let transforms = photos.then(|| transforms(experiment, false));
    // What the model sees after its transforms.
    let fields = input_fields(experiment, &data, false);
    let targets = data.fields.iter().filter(|field| field.target).cloned();
    let data = DataSpec { fields: fields.iter().cloned().chain(targets).collect(), ..data };
    let sizes = Sizes { predict: vec![1.into()], ..Sizes::default() };
    let passes = args.passes.options();
    let programs = build(&model.loaded, &data, &sizes, backend.as_ref(), &passes)?;
    let planned = Planned {
        loaded: &model.loaded,
        data: &data,
        plan: &programs.plan,
        backend: backend.as_ref(),
        what: Use::Prediction,
        needs: Needs { data: held(&args.files), ..Needs::of_prediction() },
        passes: &passes,
    };
    planned.require()?;
    let layout = programs.plan.slot.clone();
    let session = model.session(programs, backend.as_ref())?;
    let buffer = backend.host_buffer(layout.bytes)?;
    let mut answers = Answers {
        session,
        buffer,
        layout,
        task: task(experiment),
        args,
        data: &data,
        results: Vec::new(),
        text: String::new(),
    };
    let mut failed = false;
    for file in &args.files {
        match read(file, &fields, transforms.as_deref(), args.invert) {
            Ok(given) => answers.all(file, &given, fields.len())?,
            Err(e) => {
                // The other files are still processed; the exit code shows that one failed.
                say(&format!("error: {e:#}"));
                failed = true;
            }
        }
    }
    let Answers { results, text, .. } = answers;
    if args.output.json {
        super::print_json(&Value::Array(results))?;
    } else if !text.is_empty() {
        super::print(&text)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The memory that the samples of the largest file of tensors take: one file after the other is read whole.
fn held(files: &[PathBuf]) -> Footprint {
    let tensors = files.iter().filter(|file| is_tensors(file));
    let bytes = tensors.filter_map(|file| std::fs::metadata(file).ok()).map(|meta| meta.len()).max().unwrap_or(0);
    Footprint { held: usize::try_from(bytes).unwrap_or(usize::MAX), reading: 0 }
}

/// True for a file of tensors, by its name.
fn is_tensors(file: &Path) -> bool {
    file.extension().is_some_and(|e| e.eq_ignore_ascii_case("safetensors"))
}

/// The samples of a file.
enum Given {
    /// One image.
    Image(Vec<u8>),
    /// Those of tensors.
    Tensors(Split),
}

/// Reads an image, or tensors that have the names of the model's inputs.
fn read(file: &Path, fields: &[Field], transforms: Option<&[Transform]>, invert: bool) -> anyhow::Result<Given> {
    if is_tensors(file) {
        return Ok(Given::Tensors(read_fields(file, fields)?));
    }
    match fields {
        [_] if let Some(transforms) = transforms => Ok(Given::Image(photo_sample(file, transforms, invert)?)),
        [field] => Ok(Given::Image(image_sample(file, field, invert)?)),
        _ => {
            let names: Vec<String> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
            let names = names.join(" and ");
            bail!("the model takes {names}, not one image: give a .safetensors file with tensors of these names")
        }
    }
}

/// What a model says of samples, one after the other.
struct Answers<'a> {
    session: Session,
    buffer: HostBuffer,
    layout: SlotLayout,
    task: Task,
    args: &'a PredictArgs,
    data: &'a DataSpec,
    results: Vec<Value>,
    text: String,
}

impl Answers<'_> {
    /// Adds what the model says of all samples of a file, of which each has so many fields.
    fn all(&mut self, file: &Path, given: &Given, fields: usize) -> anyhow::Result<()> {
        let samples = match given {
            Given::Image(sample) => {
                self.put(0, sample);
                return self.answer(file, None);
            }
            Given::Tensors(samples) => samples,
        };
        for sample in 0..samples.len() {
            for field in 0..fields {
                self.put(field, samples.bytes(sample, field).context("the samples of a file are in memory")?);
            }
            self.answer(file, Some(sample))?;
        }
        Ok(())
    }

    /// Writes a field of the next sample into the batch, if the model reads it.
    fn put(&mut self, field: usize, bytes: &[u8]) {
        if let Some(at) = self.layout.find(Input::Field(field as u32)) {
            self.buffer.bytes_mut()[at.offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Adds what the model says of what is in the batch: the sample of that number in `file`, if that has several.
    fn answer(&mut self, file: &Path, sample: Option<usize>) -> anyhow::Result<()> {
        let output = self.session.predict(&self.buffer, 1)?;
        let mut result = json!({ "file": file.to_string_lossy() });
        let number = sample.map_or(String::new(), |n| format!(", sample {n}"));
        self.text.push_str(&format!("{}{number}\n", file.display()));
        if let Some(n) = sample {
            result["sample"] = n.into();
        }
        // Shape of what has a class each in a sample; of rank 0 where a sample has one.
        let positions = self.data.target().map_or(Shape::default(), |(_, field)| field.shape.clone());
        match self.task {
            Task::Classification if positions.rank() > 0 => {
                let classes = classes_at(&output, &positions);
                let mut counts = vec![0usize; output.len() / positions.len()];
                classes.iter().for_each(|class| counts[*class] += 1);
                let mut most: Vec<usize> = (0..counts.len()).filter(|class| counts[*class] > 0).collect();
                most.sort_by_key(|class| std::cmp::Reverse(counts[*class]));
                self.text.push_str(&format!("  {} positions\n", positions.len()));
                for class in most.into_iter().take(self.args.top as usize) {
                    let share = counts[class] as f64 / positions.len() as f64;
                    self.text.push_str(&format!("  {:>6.2} %  {}\n", 100.0 * share, self.label(class)));
                }
                result["classes"] = match positions.rank() {
                    1 => json!(classes),
                    _ => json!(classes.chunks(positions.last()).collect::<Vec<_>>()),
                };
            }
            Task::BinaryClassification => {
                let list: Vec<f64> = output.iter().map(|x| 1.0 / (1.0 + f64::from(-x).exp())).collect();
                for (i, p) in list.iter().enumerate() {
                    self.text.push_str(&format!("  {:>6.2} %  {}\n", 100.0 * p, self.label(i)));
                }
                result["probabilities"] = json!(list);
            }
            Task::Classification => {
                let best = top(&softmax(&output), self.args.top as usize);
                for (class, p) in &best {
                    self.text.push_str(&format!("  {:>6.2} %  {}\n", 100.0 * p, self.label(*class)));
                }
                let one = |(class, p): &(usize, f64)| json!({ "class": class, "label": self.label(*class), "probability": p });
                result["top"] = best.iter().map(one).collect();
            }
            Task::Regression => {
                self.text.push_str(&format!("  {output:?}\n"));
                result["values"] = json!(output);
            }
        }
        self.results.push(result);
        Ok(())
    }

    fn label(&self, class: usize) -> String {
        let name = self.data.class_names.as_ref().and_then(|names| names.get(class).cloned());
        name.unwrap_or_else(|| class.to_string())
    }
}

/// The class with the largest logit at each position. Logits of images come channels first, others channels last.
fn classes_at(logits: &[f32], positions: &Shape) -> Vec<usize> {
    let (n, classes) = (positions.len(), logits.len() / positions.len());
    let first = positions.rank() == 2;
    let at =
        |position: usize, class: usize| logits[if first { class * n + position } else { position * classes + class }];
    let largest =
        |position| (1..classes).fold(0, |best, c| if at(position, c) > at(position, best) { c } else { best });
    (0..n).map(largest).collect()
}

/// Probabilities of logits.
fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    let e: Vec<f64> = logits.iter().map(|l| (*l as f64 - largest).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

/// The `k` largest probabilities with their classes, largest first; of equals the lower class.
fn top(probabilities: &[f64], k: usize) -> Vec<(usize, f64)> {
    let mut list: Vec<(usize, f64)> = probabilities.iter().copied().enumerate().collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    list.truncate(k);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_its_class() {
        let logits = [0.0, 5.0, 1.0, 1.0, 2.0, 0.0];
        // Channels first: (0, 1), (5, 2), (1, 0).
        assert_eq!(classes_at(&logits, &[1, 3].into()), [1, 0, 0]);
        // Channels last: (0, 5), (1, 1), (2, 0).
        assert_eq!(classes_at(&logits, &[3].into()), [1, 0, 0]);
    }

    #[test]
    fn the_likeliest_come_first() {
        let p = softmax(&[1.0, 3.0, 3.0, -1000.0]);
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let t = top(&p, 3);
        assert_eq!(t.iter().map(|(c, _)| *c).collect::<Vec<_>>(), [1, 2, 0]);
    }
}

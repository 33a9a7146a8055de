//! `runner predict`.

use super::args::PredictArgs;
use super::failure::Failure;
use super::memory::Planned;
use super::model::{build, device, load_model};
use crate::build::{sample_shape, task};
use crate::data::{DataSpec, image_sample};
use crate::graph::op::Task;
use crate::graph::{Input, Shape};
use crate::terminal::say;
use crate::train::memory::{Needs, Use};
use crate::train::programs::Sizes;
use anyhow::Context;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Classifies image files.
pub(super) fn run(args: &PredictArgs) -> Result<ExitCode, Failure> {
    let model = load_model(&args.model, &args.overrides.sets())?;
    let experiment = &model.loaded.experiment;
    let backend = device(experiment, args.threads)?;
    let data = model.sample()?;
    // What the model sees after its transforms.
    let data = DataSpec { input: sample_shape(experiment, &data, false), ..data };
    let sizes = Sizes { predict: vec![1], ..Sizes::default() };
    let passes = args.passes.options();
    let programs = build(&model.loaded, &data, &sizes, backend.as_ref(), &passes)?;
    let planned = Planned {
        loaded: &model.loaded,
        data: &data,
        plan: &programs.plan,
        backend: backend.as_ref(),
        what: Use::Prediction,
        needs: Needs::of_prediction(),
        passes: &passes,
    };
    planned.require()?;
    let layout = programs.plan.slot.clone();
    let mut session = model.session(programs, backend.as_ref())?;
    let mut buffer = backend.host_buffer(layout.bytes)?;
    let at = layout.find(Input::Data).context("the model reads no data")?.offset;
    let task = task(experiment);
    let label = |class: usize| match &data.class_names {
        Some(names) => names.get(class).cloned().unwrap_or_else(|| class.to_string()),
        None => class.to_string(),
    };
    let mut results: Vec<Value> = Vec::new();
    let mut text = String::new();
    let mut failed: Option<anyhow::Error> = None;
    for file in &args.files {
        let sample = match image_sample(file, &data, args.invert) {
            Ok(s) => s,
            Err(e) => {
                // The other files are still classified; the exit code tells.
                say(&format!("error: {e:#}"));
                failed = Some(e);
                continue;
            }
        };
        buffer.bytes_mut()[at..at + sample.len()].copy_from_slice(&sample);
        let output = session.predict(&buffer, 1)?;
        text.push_str(&format!("{}\n", file.display()));
        match task {
            Task::Classification if data.targets.shape().rank() > 0 => {
                let positions = data.targets.shape();
                let classes = classes_at(&output, &positions);
                let mut counts = vec![0usize; output.len() / positions.len()];
                classes.iter().for_each(|class| counts[*class] += 1);
                let share = |class: usize| counts[class] as f64 / positions.len() as f64;
                let mut most: Vec<usize> = (0..counts.len()).filter(|class| counts[*class] > 0).collect();
                most.sort_by_key(|class| std::cmp::Reverse(counts[*class]));
                text.push_str(&format!("  {} positions\n", positions.len()));
                for class in most.into_iter().take(args.top as usize) {
                    text.push_str(&format!("  {:>6.2} %  {}\n", 100.0 * share(class), label(class)));
                }
                let rows: Vec<&[usize]> = classes.chunks(positions.last()).collect();
                results.push(json!({ "file": file.to_string_lossy(), "classes": rows }));
            }
            Task::Classification => {
                let best = top(&softmax(&output), args.top as usize);
                for (class, p) in &best {
                    text.push_str(&format!("  {:>6.2} %  {}\n", 100.0 * p, label(*class)));
                }
                let list: Vec<Value> = best
                    .iter()
                    .map(|(class, p)| json!({ "class": class, "label": label(*class), "probability": p }))
                    .collect();
                results.push(json!({ "file": file.to_string_lossy(), "top": list }));
            }
            Task::BinaryClassification => {
                let list: Vec<f64> = output.iter().map(|x| 1.0 / (1.0 + f64::from(-x).exp())).collect();
                for (i, p) in list.iter().enumerate() {
                    text.push_str(&format!("  {:>6.2} %  {}\n", 100.0 * p, label(i)));
                }
                results.push(json!({ "file": file.to_string_lossy(), "probabilities": list }));
            }
            Task::Regression => {
                text.push_str(&format!("  {output:?}\n"));
                results.push(json!({ "file": file.to_string_lossy(), "values": output }));
            }
        }
    }
    if args.output.json {
        super::print_json(&Value::Array(results))?;
    } else if !text.is_empty() {
        super::print(&text)?;
    }
    Ok(if failed.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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

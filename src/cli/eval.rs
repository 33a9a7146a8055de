//! `runner eval`.

use super::args::{EvalArgs, SplitName};
use super::failure::Failure;
use super::memory::Planned;
use super::model::{build, describe_data, device, load_model};
use crate::train::evaluate::evaluate;
use crate::train::input;
use crate::train::memory::{Needs, Use};
use crate::train::programs::Sizes;
use crate::train::report::say;
use crate::train::run::eval_options;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Evaluates a model on a part of its data.
pub(super) fn run(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let model = load_model(&args.model, &args.overrides.sets())?;
    let experiment = &model.loaded.experiment;
    let backend = device(experiment, args.threads)?;
    // Mistakes in the model come before the data is read.
    let spec = describe_data(&model.loaded)?;
    let passes = args.passes.options();
    let batch = experiment.data.loading.eval_batch_size();
    let whole = Sizes { eval: vec![batch], ..Sizes::default() };
    let programs = build(&model.loaded, &spec, &whole, backend.as_ref(), &passes)?;
    let planned = Planned {
        loaded: &model.loaded,
        data: &spec,
        plan: &programs.plan,
        backend: backend.as_ref(),
        what: Use::Evaluation(batch),
        needs: Needs::of_evaluation(experiment, input::footprint(experiment)),
        passes: &passes,
    };
    planned.require()?;

    let mut progress = super::data::Progress::new();
    let samples = input::load(experiment, &mut |e| progress.show(e))?;
    if let Some(note) = &samples.note {
        say(&format!("warning: {note}"));
    }
    let (name, split) = match args.split {
        SplitName::Val => ("val", &samples.val),
        SplitName::Test => ("test", &samples.test),
        SplitName::Train => ("train", &samples.train),
    };
    if split.is_empty() {
        return Err(Failure::Usage(format!(
            "the data has no samples in the split `{name}`; choose another with --split"
        )));
    }
    let sizes = Sizes { eval: Sizes::of(batch, Some(split.len()), false), ..Sizes::default() };
    let programs = build(&model.loaded, &samples.spec, &sizes, backend.as_ref(), &passes)?;
    let planned = Planned {
        data: &samples.spec,
        plan: &programs.plan,
        what: Use::Evaluation(split.len()),
        needs: Needs::of_evaluation(experiment, samples.footprint()),
        ..planned
    };
    planned.require()?;
    let mut session = model.session(programs, backend.as_ref())?;
    let never = AtomicBool::new(false);
    let figures = evaluate(&mut session, backend.as_ref(), split, &eval_options(experiment), &never, |_| {})?
        .ok_or_else(|| anyhow::anyhow!("the evaluation was interrupted"))?;
    if args.output.json {
        let metrics: Map<String, Value> = figures.list().map(|(n, v)| (n.to_string(), json!(v))).collect();
        let mut out = json!({ "split": name, "samples": split.len(), "metrics": metrics });
        if let Some(note) = &samples.note {
            out["note"] = json!(note);
        }
        super::print_json(&out)?;
    } else {
        let list: Vec<String> = figures
            .list()
            .map(|(n, v)| if n == "accuracy" { format!("{n} {:.2} %", 100.0 * v) } else { format!("{n} {v:.6}") })
            .collect();
        super::print(&format!("{name}, {} samples: {}", super::thousands(split.len() as u64), list.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

//! Figures of several models: of each row by the fold that has not seen it; of other rows, and of seeds, by all together.

mod answers;
mod target;

use super::predictions::{Predictions, rows_to};
use super::{Asked, SplitName, counted, in_lines, in_words, with_top5, written};
use crate::api::failure::Failure;
use crate::api::members::{Members, models_of, together_in_parts};
use crate::api::samples::SaidOnce;
use crate::cli::args::{EvalArgs, Overrides};
use crate::cli::{class_table, error_table};
use crate::files::output::Output;
use crate::graph::op::Figure;
use crate::terminal::{Stream, say, thousands, width};
use crate::train::setup::figures::Figures;
use answers::{Answers, Sample};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use target::Measured;

/// Evaluates the models of the folder, and prints the figures.
///
/// # Errors
/// As for one of them; what is asked for is there for one alone.
pub fn run(args: &EvalArgs, members: Members) -> Result<ExitCode, Failure> {
    let folders = &models_of(&args.model)?[..];
    if let Some(option) = args.writing.asked() {
        return Err(Failure::Usage(format!(
            "`{option}` is for one model that writes answers, and `{}` has {}\nhelp: leave it out",
            args.model.display(),
            members.counted()
        )));
    }
    let mut overrides: Overrides = args.overrides.clone();
    let other = match members {
        Members::Folds(_) => {
            if args.split != SplitName::Val {
                let first = folders.first().map(|path| path.display().to_string()).unwrap_or_default();
                return Err(Failure::Usage(format!(
                    "there is no such split of several folds\nhelp: give the folder of one, such as `{first}`"
                )));
            }
            // Rows that are none of theirs are answered by all of them.
            let other = args.overrides.set.iter().any(|set| set.starts_with("data.val_path="));
            if other {
                overrides.unset.extend(["data.folds".to_owned(), "data.fold".to_owned()]);
            }
            other
        }
        Members::Seeds(_) => true,
    };
    rows_to(args)?;
    let all = match &args.predictions {
        Some(path) => written(path, args.guard_formulas, &mut |out, rows| {
            answers(args, folders, &overrides, other, Some((out, rows)))
        })?,
        None => answers(args, folders, &overrides, other, None)?,
    };
    let (source, spec, count, split) = (all.source.clone(), all.spec.clone(), all.samples.len(), all.split);
    let chosen = all.chosen.iter().map(|one| one.best.value).collect::<Vec<_>>();
    let chosen = all.chosen.first().map(|first| (first.in_words(true), first.json(), chosen));
    let (measured, notes) = all.measured();
    notes.iter().for_each(|note| say(&format!("warning: {note}")));
    let figures = measured.iter().fold(Figures::none(), |all, one| match &one.head {
        None => with_top5(one.figures.clone(), one.report.as_ref()),
        Some(head) => all.and_of_head(head.clone(), Some(one.figures.clone())),
    });
    let errors = |one: &Measured| one.errors.clone().zip(spec.as_ref()).filter(|_| one.head.is_none());
    if args.output.json {
        let mut metrics: Map<String, Value> =
            figures.named().map(|(name, _, v)| (name.into_owned(), json!(v))).collect();
        let main = measured.iter().filter(|one| one.head.is_none());
        metrics.extend(main.filter_map(|one| one.report.as_ref()).flat_map(counted));
        let by = if other { "all" } else { "each" };
        let mut out = json!({ "data": source, "split": split, "samples": count, format!("{}s", members.one()): members.number(), "by": by, "metrics": metrics });
        for one in &measured {
            let of = match &one.head {
                None => &mut out,
                Some(head) => &mut out["heads"][head],
            };
            if let Some(report) = &one.report {
                class_table::add_json(of, report, names(one));
            }
            if let Some(each) = errors(one).and_then(|(errors, spec)| error_table::json(&errors, spec)) {
                out["per_target"] = each;
            }
        }
        if let Some((_, of_first, values)) = chosen {
            out["chosen"] = of_first;
            out["chosen"].as_object_mut().map(|chosen| chosen.remove("value"));
            out["chosen"]["values"] = json!(values);
        }
        if !notes.is_empty() {
            out["note"] = json!(notes.join("; "));
        }
        crate::cli::print_json(&out)?;
    } else {
        let n = thousands(count as u64);
        let what = match other {
            true => format!("{split}, {n} samples, by {} together:", members.counted()),
            false => format!("{split}, {n} samples, each by the one of {} that has not seen it:", members.counted()),
        };
        let width = width(Stream::Out);
        let tables = measured.iter().filter_map(|one| {
            let of_classes = one.report.as_ref().map(|report| class_table::text(report, names(one), false, width));
            let table =
                of_classes.or_else(|| errors(one).and_then(|(errors, spec)| error_table::text(&errors, spec)))?;
            Some(one.head.as_ref().map_or_else(|| format!("\n\n{table}"), |head| format!("\n\n{head}\n{table}")))
        });
        // Programs find it under both names.
        let twice = measured.iter().any(|one| one.head.is_none() && one.is_likelihood) && measured.len() == 1;
        let figures = if twice { figures.without(Figure::LogLoss) } else { figures };
        let line = in_lines(&what, &in_words(&figures), width);
        crate::cli::print_beside(rows_to(args)?.as_ref(), &format!("{line}{}", tables.collect::<String>()))?;
        if let Some((note, ..)) = chosen {
            say(&format!("note: {note}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of its classes, if they have some.
fn names(one: &Measured) -> Option<&[String]> {
    Some(&one.names[..]).filter(|names| !names.is_empty())
}

/// What all models say: each fold of the rows that it has held out or, of `other` samples, all together. It goes to `rows`, too.
fn answers(
    args: &EvalArgs,
    folders: &[PathBuf],
    overrides: &Overrides,
    other: bool,
    mut rows: Option<(&Output, &mut Predictions)>,
) -> Result<Answers, Failure> {
    let _once = SaidOnce::begin();
    let mut all = Answers::default();
    let mut each: Vec<Answers> = Vec::with_capacity(folders.len());
    for (at, folder) in folders.iter().enumerate() {
        let asked = Asked {
            model: folder,
            overrides,
            passes: args.passes.options(),
            split: args.split,
            other_data: false,
            allow_download: args.allow_download,
            threads: args.threads,
            out: rows.as_ref().map(|(out, _)| *out),
        };
        if let Some((_, rows)) = rows.as_mut().filter(|_| !other) {
            rows.of_fold(at + 1);
        }
        let last = at + 1 == folders.len();
        let mut found = Answers::of(&asked, &mut |session, batch, split| match &mut rows {
            Some((_, rows)) if !other => rows.see(session, batch, split),
            // The joint answer is known once the last model has answered.
            Some((_, rows)) if last => {
                let parts = each.first().map_or(Vec::new(), Answers::parts);
                let with = |sample: usize, output: Vec<f32>| {
                    let others = each.iter().map(|one| &one.samples[sample].output[..]);
                    together_in_parts(&parts, &others.chain([&output[..]]).collect::<Vec<_>>())
                };
                rows.see_with(session, batch, split, &with)
            }
            _ => Ok(()),
        })?;
        match other {
            true => each.push(found),
            false => {
                all.samples.append(&mut found.samples);
                all.chosen.append(&mut found.chosen);
                let naive = all.naive.into_iter().chain(found.naive).reduce(|mut all, own| {
                    all.merge(own);
                    all
                });
                all = Answers { samples: all.samples, chosen: all.chosen, naive, ..found };
            }
        }
    }
    let scores = each.last_mut().and_then(|last| last.scores.take());
    let chosen = each.iter_mut().flat_map(|one| std::mem::take(&mut one.chosen)).collect();
    if let Some(last) = each.last() {
        let parts = last.parts();
        // Losses are those of the last one, as in the rows that are written.
        let together = |(at, own): (usize, &Sample)| {
            let outputs: Vec<&[f32]> = each.iter().map(|one| &one.samples[at].output[..]).collect();
            last.sample(together_in_parts(&parts, &outputs), own.target.clone(), own.weight)
        };
        all = Answers {
            samples: last.samples.iter().enumerate().map(together).collect(),
            learnt: last.learnt.clone(),
            source: last.source.clone(),
            spec: last.spec.clone(),
            split: last.split,
            scores,
            naive: last.naive,
            chosen,
        };
    }
    Ok(all)
}

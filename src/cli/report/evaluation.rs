//! The figures of a run's best checkpoint, and its worst mistakes with their pictures.

use crate::api::failure::Failure;
use crate::cli::args::{ReportArgs, SplitName};
use crate::cli::eval::{Asked, Evaluated, evaluated};
use crate::data::{RowName, Split};
use crate::train::run::mistakes::{Keep, Mistake, Worst};
use crate::train::setup::class_report::ClassReport;
use std::collections::BTreeMap;
use std::path::Path;

/// Mistakes that are kept of each pair of classes, and of all.
pub const OF_A_PAIR: usize = 6;
/// Mistakes that are kept in all.
pub const OF_ALL: usize = 300;

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
    /// What the samples among them are called: by their files, their ids or their lines, else by their numbers.
    pub called: BTreeMap<u32, String>,
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
        other_data: false,
        allow_download: false,
        threads: args.threads,
        out: None,
    };
    let mut worst = Worst::new(Keep::OfPairs(OF_A_PAIR, OF_ALL));
    let mut of = None;
    let Evaluated { samples, split, count, figures, report, notes, .. } =
        evaluated(&asked, &mut |session, batch, split| {
            of.get_or_insert_with(|| split.clone());
            worst.see(session, batch)
        })?;
    let mistakes = worst.by_pairs();
    let called = |sample: u32| (sample, of.as_ref().map_or_else(|| called_by_number(sample), |of| called(of, sample)));
    let mut list: Vec<(String, f64)> = figures.list().map(|(f, value)| (f.name().to_owned(), value)).collect();
    if let Some(report) = &report {
        use crate::graph::op::Figure;
        let counted = [Figure::BalancedAccuracy, Figure::MacroPrecision, Figure::MacroRecall, Figure::MacroF1];
        let more = counted.iter().filter(|f| figures.get(**f).is_none());
        list.extend(more.filter_map(|f| Some((f.name().to_owned(), report.figure(*f)?))));
    }
    Ok(Evaluation {
        of: format!("{}, {split}, {} samples", samples.name, crate::terminal::thousands(count as u64)),
        figures: list,
        report,
        names: samples.spec.label_names().map(<[String]>::to_vec).unwrap_or_default(),
        called: mistakes.values().flatten().map(|mistake| called(mistake.sample)).collect(),
        mistakes,
        notes,
    })
}

fn called_by_number(sample: u32) -> String {
    format!("sample {sample}")
}

fn called(split: &Split, sample: u32) -> String {
    let i = sample as usize;
    match split.row(i) {
        Some(RowName::Id(column, id)) => format!("{column} {id}"),
        Some(RowName::Line(Some(file), line)) => format!("{file}, line {line}"),
        Some(RowName::Line(None, line)) => format!("line {line}"),
        None => split.name(i).unwrap_or_else(|| called_by_number(sample)),
    }
}

//! A folder with several runs whose models answer together: one for each fold of the samples, or one for each of several seeds.

mod alike;

pub use alike::difference;

use super::failure::Failure;
use crate::files::durable;
use crate::graph::op::Task;
use crate::runs::folder::is_run;
use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The files that make a folder one of folds or one of seeds, whose runs they list.
pub const FILES: [&str; 2] = ["folds.json", "seeds.json"];

/// The runs of such a folder, and how many there are. In its file they are `{"folds": 5}` or `{"seeds": 5}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Members {
    /// Each has held out another part of the samples.
    Folds(usize),
    /// Each began with another seed, on the same samples.
    Seeds(usize),
}

impl Members {
    /// Those of a folder; `None`: it has no such file.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn of(folder: &Path) -> Result<Option<Members>> {
        let path = FILES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
        // A run may have taken their place.
        let Some(path) = path.filter(|_| !is_run(folder)) else { return Ok(None) };
        let cannot = || format!("cannot read `{}`", path.display());
        let text = fs::read_to_string(&path).with_context(cannot)?;
        let members: Members = serde_json::from_str(&text).with_context(cannot)?;
        ensure!(
            (2..=100).contains(&members.number()),
            "`{}` says that there are {}",
            path.display(),
            members.counted()
        );
        Ok(Some(members))
    }

    /// Those whose runs are in a folder that has lost its file, as many as are there.
    pub fn without_file(folder: &Path) -> Option<Members> {
        let begun = |one: &str| (1..=100).take_while(|number| is_run(&folder.join(format!("{one}-{number}")))).count();
        let all = [Members::Folds(begun("fold")), Members::Seeds(begun("seed"))];
        all.into_iter().find(|members| members.number() > 0)
    }

    /// Makes a folder theirs.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(self, folder: &Path) -> Result<()> {
        let path = folder.join(self.file());
        let text = serde_json::to_string(&self)? + "\n";
        durable::write(&path, text.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// The name of that file.
    pub fn file(self) -> String {
        format!("{}s.json", self.one())
    }

    /// How many there are.
    pub fn number(self) -> usize {
        let (Members::Folds(number) | Members::Seeds(number)) = self;
        number
    }

    /// What one of them is called.
    pub fn one(self) -> &'static str {
        match self {
            Members::Folds(_) => "fold",
            Members::Seeds(_) => "seed",
        }
    }

    /// How many there are, in words.
    pub fn counted(self) -> String {
        format!("{} {}s", self.number(), self.one())
    }

    /// The folders of the runs.
    pub fn folders(self, folder: &Path) -> Vec<PathBuf> {
        (1..=self.number()).map(|number| folder.join(format!("{}-{number}", self.one()))).collect()
    }
}

/// The models that answer together for what a path names: all of a folder of folds or seeds, or the one that it names.
///
/// # Errors
/// The folder's file cannot be read; one of its runs has not begun; they are not of one training.
pub fn models_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let Some(members) = Members::of(path)? else { return Ok(vec![path.to_owned()]) };
    let folders = members.folders(path);
    if let Some(missing) = folders.iter().find(|folder| !folder.exists()) {
        let (place, counted) = (path.display(), members.counted());
        return Err(Failure::Usage(format!(
            "`{place}` is to have {counted}, and `{}` is not there: its training has not come so far\nhelp: `runner train --resume {place}` goes on",
            missing.display()
        )));
    }
    match difference(members, &folders) {
        Some(what) => Err(not_of_one_training(path, members, &what)),
        None => Ok(folders),
    }
}

/// The failure for runs that do not answer together.
pub fn not_of_one_training(path: &Path, members: Members, what: &str) -> Failure {
    let (shown, one) = (path.display(), members.one());
    Failure::Other(anyhow!(
        "the {one}s of `{shown}` are not of one training: {what}\nhelp: `runner train --resume {shown}` ends a training that was cut off, and gives \
         all of them what `--set` says after it; `{shown}/{one}-1` is one of them by itself"
    ))
}

/// What several models say of a sample together, before anything is made of it: the logarithm of the mean of their probabilities, the logit of
/// that of labels, or the mean of numbers.
pub fn together(task: Task, outputs: &[&[f32]]) -> Vec<f32> {
    let Some(first) = outputs.first() else { return Vec::new() };
    let mean = |of: &dyn Fn(&[f32]) -> Vec<f64>| {
        let mut sum = vec![0f64; first.len()];
        for each in outputs {
            sum.iter_mut().zip(of(each)).for_each(|(sum, value)| *sum += value);
        }
        sum.into_iter().map(|sum| sum / outputs.len() as f64).collect::<Vec<f64>>()
    };
    // A probability that is too small for a number has a logarithm all the same: losses stay finite, as those of one model do.
    let log = |p: f64| p.max(f64::MIN_POSITIVE).ln();
    match task {
        Task::Classification => {
            let probabilities = mean(&|x| super::scores::softmax(x.iter().copied()).collect());
            probabilities.into_iter().map(|p| log(p) as f32).collect()
        }
        Task::BinaryClassification => {
            // That of a no is not one less that of a yes, which is 0 where all are sure.
            let [yes, no] = [1.0, -1.0]
                .map(|sign: f32| mean(&|x| x.iter().map(|logit| super::scores::sigmoid(sign * logit)).collect()));
            yes.into_iter().zip(no).map(|(yes, no)| (log(yes) - log(no)) as f32).collect()
        }
        Task::Regression => {
            mean(&|x| x.iter().map(|value| f64::from(*value)).collect()).into_iter().map(|value| value as f32).collect()
        }
    }
}

/// The same of models with heads: `parts` are what stands one after the other in an output, each with how many numbers it is.
pub fn together_in_parts(parts: &[(Task, usize)], outputs: &[&[f32]]) -> Vec<f32> {
    let mut first = 0;
    let mean = |(task, numbers): &(Task, usize)| {
        let own = first..first + numbers;
        first = own.end;
        together(*task, &outputs.iter().map(|output| &output[own.clone()]).collect::<Vec<_>>())
    };
    parts.iter().flat_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_means_of_their_own() {
        let parts = [(Task::Regression, 1), (Task::Classification, 2), (Task::BinaryClassification, 1)];
        let (a, b) = ([1.0, 0.9f32.ln(), 0.1f32.ln(), 0.0], [2.0, 0.5f32.ln(), 0.5f32.ln(), 0.0]);
        let mean = together_in_parts(&parts, &[&a, &b]);
        let wanted = [1.5, 0.7f32.ln(), 0.3f32.ln(), 0.0];
        assert!(
            mean.len() == 4 && mean.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-6),
            "{mean:?}"
        );
    }

    #[test]
    fn means_are_of_probabilities() {
        let near =
            |got: Vec<f32>, wanted: [f32; 2]| got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-6);
        let ln = |p: f32| p.ln();
        let (a, b) = ([ln(0.9), ln(0.1)], [ln(0.5) + 3.0, ln(0.5) + 3.0]);
        assert!(near(together(Task::Classification, &[&a, &b]), [ln(0.7), ln(0.3)]));
        let logit = |p: f32| (p / (1.0 - p)).ln();
        let (a, b) = ([logit(0.9), logit(0.2)], [logit(0.5), logit(0.4)]);
        assert!(near(together(Task::BinaryClassification, &[&a, &b]), [logit(0.7), logit(0.3)]));
        assert!(near(together(Task::Regression, &[&[1.0, 4.0], &[2.0, -4.0]]), [1.5, 0.0]));
    }

    #[test]
    fn sure_models_are_sure_together() {
        for logit in [50.0, 1e4] {
            let sure = [logit, -logit];
            let together = together(Task::BinaryClassification, &[&sure, &sure]);
            assert!(together[0].is_finite() && together[0] == -together[1] && together[0] >= 50.0, "{together:?}");
        }
        let far = together(Task::Classification, &[&[1e4, 0.0], &[1e4, 0.0]]);
        assert!(far[0] == 0.0 && far[1].is_finite() && far[1] < -700.0, "{far:?}");
    }
}

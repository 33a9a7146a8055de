//! A folder with a run for each fold of the samples, each of which has held out another part of them.

use super::failure::Failure;
use crate::files::durable;
use crate::graph::op::Task;
use crate::runs::folder::is_run;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that makes a folder one of folds.
pub const FILE: &str = "folds.json";

/// What that file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folds {
    /// How many there are.
    pub folds: usize,
}

impl Folds {
    /// Those of a folder; `None`: it is none of folds.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn of(folder: &Path) -> Result<Option<Folds>> {
        let path = folder.join(FILE);
        // A run without folds may have taken their place.
        if !path.is_file() || is_run(folder) {
            return Ok(None);
        }
        let cannot = || format!("cannot read `{}`", path.display());
        let text = fs::read_to_string(&path).with_context(cannot)?;
        let folds: Folds = serde_json::from_str(&text).with_context(cannot)?;
        anyhow::ensure!(
            (2..=100).contains(&folds.folds),
            "`{}` says that there are {} folds",
            path.display(),
            folds.folds
        );
        Ok(Some(folds))
    }

    /// Makes a folder one of folds.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_string(&self)? + "\n";
        durable::write(&path, text.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// The folders of the runs.
    pub fn folders(self, folder: &Path) -> Vec<PathBuf> {
        (1..=self.folds).map(|fold| folder.join(format!("fold-{fold}"))).collect()
    }
}

/// The models that answer together for what a path names: those of all folds of a folder, or the one that it names.
///
/// # Errors
/// The folder's file cannot be read.
pub fn models_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    Ok(Folds::of(path)?.map_or_else(|| vec![path.to_owned()], |folds| folds.folders(path)))
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
    let floats = |values: Vec<f64>, f: fn(f64) -> f64| values.into_iter().map(|value| f(value) as f32).collect();
    match task {
        Task::Classification => floats(mean(&|x| super::scores::softmax(x.iter().copied()).collect()), f64::ln),
        Task::BinaryClassification => {
            let probabilities = mean(&|x| x.iter().map(|logit| super::scores::sigmoid(*logit)).collect());
            floats(probabilities, |p| p.ln() - (-p).ln_1p())
        }
        Task::Regression => floats(mean(&|x| x.iter().map(|value| f64::from(*value)).collect()), |value| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

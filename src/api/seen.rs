//! What a model takes, and what it learnt.

use super::failure::Failure;
use super::model::Model;
use crate::data::{DataSpec, Field, Transform, target_names};
use crate::graph::op::Task;
use crate::model::{input_fields, target_field};
use crate::train::setup::input::transforms;
use crate::train::setup::programs::HeadOf;

/// A sample as it is given, and as a model sees it after the transforms of validation.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What a batch consists of: what the model takes, then what it learns.
    pub data: DataSpec,
    /// What the model takes.
    pub fields: Vec<Field>,
    /// What is given for it, in the same order: images of one size as the data has them, before `transforms`. Photos, each of which has a size of its own, are given
    /// as the model takes them.
    pub given: Vec<Field>,
    /// What image files go through to become what is given: photos the transforms of validation. `None`: they are brought to its size.
    pub of_files: Option<Vec<Transform>>,
    /// What images that are given go through on their way into a batch: those of one size the transforms of validation.
    pub transforms: Vec<Transform>,
    /// The quantiles of each target that it puts out, if there are several.
    pub quantiles: Vec<f64>,
    /// What it learns beside its target, in the order of its heads.
    pub heads: Vec<HeadSeen>,
}

/// A head of a model.
#[derive(Debug, Clone)]
pub struct HeadSeen {
    /// What it is called.
    pub name: String,
    /// What it was trained for.
    pub task: Task,
    /// What a batch would consist of if the model learnt that alone.
    pub data: DataSpec,
}

impl HeadSeen {
    /// How many numbers the model puts out for it.
    pub fn outputs(&self) -> usize {
        self.data.classes().map_or(1, |classes| classes.number)
    }
}

impl Seen {
    /// By that model.
    ///
    /// # Errors
    /// Its checkpoint does not say what a sample looks like, and the data's file cannot be read.
    pub fn by(model: &Model) -> Result<Seen, Failure> {
        let experiment = &model.loaded.experiment;
        let data = model.sample()?;
        let transforms = transforms(experiment, false);
        let fields = input_fields(experiment, &data, false);
        let (given, of_files, transforms) = match data.only_input().is_some_and(Field::is_of_any_size) {
            true => (fields.clone(), Some(transforms), Vec::new()),
            false => (data.fields.iter().filter(|field| field.is_input()).cloned().collect(), None, transforms),
        };
        let targets = target_field(experiment, &data, false).map(|(_, field)| field);
        let of_heads: Vec<Field> = data.heads().map(|(_, field)| field.clone()).collect();
        let alone = |(head, field): (HeadOf, &Field)| {
            let fields = fields.iter().chain([field]).cloned().collect();
            HeadSeen { task: head.task(), name: head.name, data: DataSpec { fields, fitted: None, ..data.clone() } }
        };
        let heads = HeadOf::all(experiment).into_iter().zip(&of_heads).map(alone).collect();
        let all = fields.iter().cloned().chain(targets).chain(of_heads.iter().cloned()).collect();
        let data = DataSpec { fields: all, ..data.clone() };
        Ok(Seen { data, fields, given, of_files, transforms, quantiles: experiment.loss.quantiles().to_vec(), heads })
    }

    /// What the numbers are called that it puts out, if there are several quantiles of each target: `price_q0.05`; else none.
    pub fn quantile_names(&self) -> Vec<String> {
        let own = target_names(&self.data);
        let targets = self.data.target().map_or(1, |(_, field)| field.shape.len().max(1));
        let target = |i: usize| match (own.get(i), targets) {
            (Some(name), _) => name.clone(),
            (None, 1) => "value".to_owned(),
            (None, _) => format!("value_{}", i + 1),
        };
        let of_target = |i: usize| self.quantiles.iter().map(move |q| format!("{}_q{q}", target(i)));
        (0..targets).flat_map(of_target).collect()
    }
}

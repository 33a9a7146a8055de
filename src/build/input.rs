//! From a batch as the loader makes it to what the first layer sees.

use super::{Builder, Tensor};
use crate::config::sections::Transform;
use crate::config::{Diagnostic, Experiment};
use crate::data::DataSpec;
use crate::graph::op::Normalize;
use crate::graph::{DType, Input, Role, Shape};

/// Shape of one sample as it comes out of the transforms, channels last: `train` says which transforms.
pub fn sample_shape(experiment: &Experiment, data: &DataSpec, train: bool) -> Shape {
    let d = &experiment.data;
    let first = if train { d.train_transforms.as_slice() } else { &[] };
    let crop = first.iter().chain(&d.transforms).rev().find_map(|t| match t {
        Transform::RandomCrop(c) => Some(c.size.0),
        Transform::Normalize(_) | Transform::RandomHorizontalFlip(_) => None,
    });
    match (crop, data.input.dims()) {
        (Some([h, w]), &[_, _, c]) => Shape::from([h, w, c]),
        _ => data.input.clone(),
    }
}

impl Builder<'_> {
    /// The batch, as floats and normalised if the transforms say so.
    pub(super) fn input(&mut self, experiment: &Experiment, data: &DataSpec) -> Tensor {
        let [train, eval] = [true, false].map(|t| sample_shape(experiment, data, t));
        if train != eval {
            let (a, b) = (Shape(vec![train.dims()[0], train.dims()[1]]), Shape(vec![eval.dims()[0], eval.dims()[1]]));
            let mut error = Diagnostic::error(format!("training sees images of {a}, but evaluation of {b}"));
            if let Some(span) = experiment.nearest_span("data.train_transforms") {
                error = error.at(span, "changes the size in training alone");
            }
            self.errors.push(error.help("make the transforms of both put out one size"));
        }
        let mut dims = vec![self.batch];
        dims.extend_from_slice(train.dims());
        let value = self.graph.input(Input::Data, data.dtype, Shape(dims));
        let mut x = Tensor { value, flat: None, made_by: None };

        let bytes = data.dtype == DType::U8;
        let scale = if bytes { 1.0 / 255.0 } else { 1.0 };
        let found = experiment.data.transforms.iter().enumerate().find_map(|(i, t)| match t {
            Transform::Normalize(n) => Some((i, n)),
            Transform::RandomCrop(_) | Transform::RandomHorizontalFlip(_) => None,
        });
        let floats = |list: &[f64]| list.iter().map(|v| *v as f32).collect();
        let op = match found {
            Some((_, n)) => Normalize { scale, mean: floats(&n.mean), std: floats(&n.std) },
            None if bytes => Normalize { scale, mean: vec![0.0], std: vec![1.0] },
            None => return x,
        };
        x.value = self.graph.add1(op, &[value]).unwrap_or_else(|e| {
            let mut error = Diagnostic::error(e.message);
            if let Some(span) = found.and_then(|(i, _)| experiment.nearest_span(&format!("data.transforms.{i}"))) {
                error = error.at(span, "does not fit the data");
            }
            self.errors.push(error);
            let shape = self.graph.shape(value).clone();
            self.graph.add_value(DType::F32, shape, Role::Temporary)
        });
        x
    }
}

//! From a batch as the loader makes it to what the first layer sees.

use super::{Builder, Mode, Tensor};
use crate::config::sections::{self as cfg, Transform};
use crate::config::{Diagnostic, Experiment};
use crate::data::DataSpec;
use crate::graph::op::Normalize;
use crate::graph::{DType, Input, MAX_ELEMENTS, Shape};

/// The transforms of training samples (`train`) or of all others, in order, with their keys in the configuration.
fn transforms(experiment: &Experiment, train: bool) -> impl Iterator<Item = (String, &Transform)> {
    let d = &experiment.data;
    let first = if train { d.train_transforms.as_slice() } else { &[] };
    let keyed = |section: &'static str| move |(i, t)| (format!("data.{section}.{i}"), t);
    let first = first.iter().enumerate().map(keyed("train_transforms"));
    first.chain(d.transforms.iter().enumerate().map(keyed("transforms")))
}

/// Shape of one sample as it comes out of the transforms, channels last: `train` says which transforms.
pub fn sample_shape(experiment: &Experiment, data: &DataSpec, train: bool) -> Shape {
    let mut shape = data.input.clone();
    for (_, t) in transforms(experiment, train) {
        if let (Transform::RandomCrop(crop), &[_, _, c]) = (t, shape.dims()) {
            let [h, w] = crop.size.0;
            shape = Shape::from([h, w, c]);
        }
    }
    shape
}

/// A sample's shape as PyTorch shows it, without the batch.
pub(super) fn sample_to_pytorch(sample: &Shape) -> Shape {
    match *sample.dims() {
        [h, w, c] => Shape::from([c, h, w]),
        _ => sample.clone(),
    }
}

impl Builder<'_> {
    /// The batch, as floats and normalised if the transforms say so.
    pub(super) fn input(&mut self) -> Tensor {
        let (experiment, data) = (self.experiment, self.data);
        self.check_transforms();
        let fit = self.errors.is_empty();
        let [train, eval] = [true, false].map(|t| sample_shape(experiment, data, t));
        if train != eval && fit {
            let (a, b) = (sample_to_pytorch(&train), sample_to_pytorch(&eval));
            let mut error = Diagnostic::error(format!("training sees images of {a}, but evaluation of {b}"));
            if let Some(span) = experiment.nearest_span("data.train_transforms") {
                error = error.at(span, "changes the size in training alone");
            }
            self.report(error.help("crop to the size of the images, or resize the data set beforehand"));
        }
        let mut dims = vec![self.batch];
        dims.extend_from_slice(train.dims());
        let mut shape = Shape(dims);
        if shape.len() > MAX_ELEMENTS {
            let mut error = Diagnostic::error(format!("a batch of shape {} is too large", shape.to_pytorch()));
            if let Some(span) = experiment.nearest_span("data.batch_size") {
                error = error.at(span, format!("more than {MAX_ELEMENTS} elements"));
            }
            self.report(error);
            self.batch = 1;
            shape.0[0] = 1;
        }
        let mut x = Tensor { value: self.graph.input(Input::Data, data.dtype, shape), flat: None, made_by: None };

        // A transform that is written twice acts twice, as in torchvision.
        let mut scale = if data.dtype == DType::U8 { 1.0 / 255.0 } else { 1.0 };
        let floats = |list: &[f64]| list.iter().map(|v| *v as f32).collect();
        for (key, t) in transforms(experiment, self.mode == Mode::Train) {
            if let Transform::Normalize(n) = t {
                let op = Normalize { scale, mean: floats(&n.mean), std: floats(&n.std), to: DType::F32 };
                x.value = self.normalize(x, &key, op, n);
                scale = 1.0;
            }
        }
        if self.graph.value(x.value).dtype == DType::U8 {
            x.value = self.plain(Normalize { scale, mean: vec![0.0], std: vec![1.0], to: DType::F32 }, &[x.value]);
        }
        x
    }

    fn normalize(&mut self, x: Tensor, key: &str, op: Normalize, n: &cfg::Normalize) -> crate::graph::ValueId {
        let shape = self.shape(x).clone();
        let c = shape.last();
        for (what, list) in [("mean", &n.mean), ("std", &n.std)] {
            if list.len() != 1 && list.len() != c {
                let channels = if shape.rank() == 4 { "channels" } else { "values each" };
                let message =
                    format!("`normalize` has {} numbers in `{what}`, but the samples have {c} {channels}", list.len());
                let mut error = Diagnostic::error(message).help(format!("write one number for all, or {c}"));
                if let Some(span) = self.experiment.nearest_span(&format!("{key}.{what}")) {
                    error = error.at(span, format!("{} numbers", list.len()));
                }
                if let Some(span) = self.data_span() {
                    error = error.context(span, format!("a sample comes as {}", sample_to_pytorch(&self.data.input)));
                }
                self.report(error);
                return self.graph.add_value(DType::F32, shape, crate::graph::Role::Temporary);
            }
        }
        self.plain(op, &[x.value])
    }

    /// Reports random transforms that the samples cannot go through.
    fn check_transforms(&mut self) {
        let experiment = self.experiment;
        let mut shape = self.data.input.clone();
        for (key, t) in transforms(experiment, true) {
            let name = match t {
                Transform::Normalize(_) => continue,
                Transform::RandomCrop(_) => "random_crop",
                Transform::RandomHorizontalFlip(_) => "random_horizontal_flip",
            };
            let (message, label, help) = match (t, shape.dims()) {
                (Transform::RandomCrop(crop), &[h, w, c]) => {
                    let ([ph, pw], [ch, cw]) = (crop.padding.0, crop.size.0);
                    let (fh, fw) = (h + 2 * ph, w + 2 * pw);
                    shape = Shape::from([ch, cw, c]);
                    if ch <= fh && cw <= fw {
                        continue;
                    }
                    let padded = if ph + pw > 0 { format!(", {fh}×{fw} with its padding") } else { String::new() };
                    let message = format!("`{name}` cannot cut {ch}×{cw} out of an image of {h}×{w}{padded}");
                    (message, "does not fit into the image", "take a smaller `size` or more `padding`")
                }
                (_, &[_, _, _]) => continue,
                _ => (
                    format!("`{name}` takes images, but a sample has the shape {shape}"),
                    "takes images",
                    "leave it out",
                ),
            };
            let mut error = Diagnostic::error(message).help(help);
            if let Some(span) = experiment.nearest_span(&key) {
                error = error.at(span, label);
            }
            if let Some(span) = self.data_span() {
                error = error.context(span, format!("a sample comes as {}", sample_to_pytorch(&self.data.input)));
            }
            self.report(error);
        }
    }
}

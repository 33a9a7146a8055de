//! The inputs of the model: from the loader's batch to the first layer.

use super::transforms::of_pixels;
use super::{Builder, Mode, Tensor};
use crate::config::language::sections::{self as cfg, Transform};
use crate::config::{Diagnostic, Experiment};
use crate::data::{DataSpec, Field, transformed};
use crate::graph::op::Normalize;
use crate::graph::{DType, Input, MAX_ELEMENTS, Shape};
use std::collections::HashSet;

/// The transforms of training samples (`train`) or of all others, in order, with their keys in the configuration.
fn transforms(experiment: &Experiment, train: bool) -> impl Iterator<Item = (String, &Transform)> {
    let d = &experiment.data;
    let keyed = |section: &'static str| move |(i, t)| (format!("data.{section}.{i}"), t);
    let (first, section) =
        if train { (&d.train_transforms, "train_transforms") } else { (&d.val_transforms, "val_transforms") };
    let first = first.iter().enumerate().map(keyed(section));
    first.chain(d.transforms.iter().enumerate().map(keyed("transforms")))
}

/// The shape of the batches that a program is for. There is a program for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchShape {
    /// Samples.
    pub samples: usize,
    /// The length of sequences, where batches differ in that; else they have that of their fields.
    pub length: Option<usize>,
}

impl From<usize> for BatchShape {
    fn from(samples: usize) -> Self {
        BatchShape { samples, length: None }
    }
}

impl std::fmt::Display for BatchShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.samples)?;
        match self.length {
            Some(length) => write!(f, " of length {length}"),
            None => Ok(()),
        }
    }
}

/// The fields that the model takes, as they come out of the transforms: `train` says which.
pub fn input_fields(experiment: &Experiment, data: &DataSpec, train: bool) -> Vec<Field> {
    let changed = transformed(&data.fields);
    let with_shape = |number: usize, field: &Field| {
        let mut shape = field.shape.clone();
        for (_, t) in transforms(experiment, train).filter(|_| changed == Some(number)) {
            // What does not fit is reported elsewhere.
            if let Some(Ok(after)) = of_pixels(t).map(|change| change.output_shape(&shape)) {
                shape = after;
            }
        }
        Field { shape, ..field.clone() }
    };
    data.fields.iter().enumerate().filter(|(_, field)| !field.target).map(|(i, f)| with_shape(i, f)).collect()
}

/// A sample's shape as PyTorch shows it, without the batch.
pub(super) fn sample_to_pytorch(sample: &Shape) -> Shape {
    match *sample.dims() {
        [h, w, c] => Shape::from([c, h, w]),
        _ => sample.clone(),
    }
}

impl Builder<'_> {
    /// What the model takes, as floats and normalised if the transforms say so: the first of it. All of it can be taken by name,
    /// if the model names it.
    pub(super) fn input(&mut self) -> Tensor {
        let (experiment, data) = (self.experiment, self.data);
        self.check_transforms();
        let fit = self.errors.is_empty();
        let mut fields = [true, false].map(|t| input_fields(experiment, data, t));
        // Images that stay of any size have been reported, and the layers see some.
        for field in fields.iter_mut().flatten() {
            if let &[0, 0, c] = field.shape.dims() {
                field.shape = Shape::from([224, 224, c]);
            }
        }
        let [train, eval] = fields;
        for (train, eval) in train.iter().zip(&eval).filter(|(train, eval)| train != eval && fit) {
            let (a, b) = (sample_to_pytorch(&train.shape), sample_to_pytorch(&eval.shape));
            let mut error = Diagnostic::error(format!("training sees images of {a}, but evaluation of {b}"));
            if let Some(span) = experiment.nearest_span("data.train_transforms") {
                error = error.at(span, "changes the size in training alone");
            }
            let example = match train.shape.dims() {
                [h, w, _] if h == w => format!("{{ type = \"center_crop\", size = {h} }}"),
                [h, w, _] => format!("{{ type = \"center_crop\", size = [{h}, {w}] }}"),
                _ => String::new(),
            };
            self.report(
                error.help(format!("give both the same size, for example with `val_transforms = [{example}]`")),
            );
        }
        let shape_of = |field: &Field, batch: usize, length| {
            let mut shape = field.shape_of(length);
            shape.0.insert(0, batch);
            shape
        };
        let too_large = train.iter().map(|field| shape_of(field, self.batch, self.length));
        if let Some(shape) = too_large.into_iter().find(|shape| shape.len() > MAX_ELEMENTS) {
            let mut error = Diagnostic::error(format!("a batch of shape {} is too large", shape.to_pytorch()));
            if let Some(span) = experiment.nearest_span("data.batch_size") {
                error = error.at(span, format!("more than {MAX_ELEMENTS} elements"));
            }
            self.report(error);
            self.batch = 1;
        }
        let changed = transformed(&data.fields).map(|number| Input::Field(number as u32));
        let mut first = None;
        for ((place, _), field) in data.inputs().zip(&train) {
            let value = self.graph.input(place, field.dtype, shape_of(field, self.batch, self.length));
            let x = Tensor { value, flat: None, made_by: None };
            let x = self.prepared(x, changed == Some(place));
            first = first.or(Some(x));
            if experiment.model.inputs.iter().any(|(name, _)| *name == field.name) {
                self.named.insert(field.name.clone(), x);
            }
        }
        first.unwrap_or_else(|| {
            let error = Diagnostic::error("the samples have nothing that a model could take");
            self.report(match self.data_span() {
                Some(span) => error.at(span, "the samples"),
                None => error,
            });
            let value = self.guess(Shape::from([self.batch, 1]));
            Tensor { value, flat: None, made_by: None }
        })
    }

    /// A field of the batch as the layers see it: as floats and, if transforms `change` it, normalised as they say.
    fn prepared(&mut self, mut x: Tensor, change: bool) -> Tensor {
        let experiment = self.experiment;
        // A transform that is written twice acts twice, as in torchvision.
        let mut scale = if self.graph.value(x.value).dtype == DType::U8 { 1.0 / 255.0 } else { 1.0 };
        let floats = |list: &[f64]| list.iter().map(|v| *v as f32).collect();
        for (key, t) in transforms(experiment, self.mode == Mode::Train).filter(|_| change) {
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
                    error = error.context(span, format!("a sample comes as {}", self.sample_as_it_comes()));
                }
                self.report(error);
                return self.graph.add_value(DType::F32, shape, crate::graph::Role::Temporary);
            }
        }
        self.plain(op, &[x.value])
    }

    /// Reports transforms that the samples cannot go through.
    fn check_transforms(&mut self) {
        let experiment = self.experiment;
        let Some(number) = transformed(&self.data.fields) else { return self.check_there_are_no_transforms() };
        let field = &self.data.fields[number];
        // Those that are for both are reported once.
        let mut checked = HashSet::new();
        for train in [true, false] {
            let mut shape = field.shape.clone();
            for (key, t) in transforms(experiment, train) {
                let Some(change) = of_pixels(t) else { continue };
                let takes_it = field.dtype == DType::U8 || change.only_moves();
                let misfit = match change.output_shape(&shape) {
                    Ok(after) => {
                        shape = after;
                        let (name, dtype) = (change.name(), field.dtype);
                        let why = format!("`{name}` takes images of bytes, but a sample is of {dtype}");
                        (!takes_it).then_some((why, "takes bytes", "change the samples beforehand, and leave it out"))
                    }
                    Err(error) => Some(misfit(t, change.name(), &shape, &error)),
                };
                if let (Transform::RandomCrop(crop), &[_, _, c]) = (t, shape.dims()) {
                    let [h, w] = crop.size.0;
                    shape = Shape::from([h, w, c]);
                }
                let (Some((message, label, help)), true) = (misfit, checked.insert(key.clone())) else { continue };
                self.report_misfit(Diagnostic::error(message).help(help), &key, label);
            }
            let (list, example) = match train {
                true => ("train_transforms", r#"{ type = "random_resized_crop", size = 224 }"#),
                false => ("val_transforms", r#"{ type = "resize", size = 256 }, { type = "center_crop", size = 224 }"#),
            };
            if let &[0, 0, _] = shape.dims() {
                let message = match train {
                    true => "every image has a size of its own, and in training they stay of any size",
                    false => "every image has a size of its own, and in evaluation they stay of any size",
                };
                let help = format!("a batch takes images of one size: for example `{list} = [{example}]`");
                self.report_misfit(Diagnostic::error(message).help(help), &format!("data.{list}"), "fixes no size");
            }
        }
    }

    /// Reports a transform, or a list of them, that does not fit the samples.
    fn report_misfit(&mut self, mut error: Diagnostic, key: &str, label: &str) {
        if let Some(span) = self.experiment.nearest_span(key) {
            error = error.at(span, label);
        }
        if let Some(span) = self.data_span() {
            let comes = match self.sample_as_it_comes() {
                any if any.len() == 0 => format!("images of any size come with {} channels", any.dims()[0]),
                shape => format!("a sample comes as {shape}"),
            };
            error = error.context(span, comes);
        }
        self.report(error);
    }

    /// Reports transforms where it is not clear what they are to change.
    fn check_there_are_no_transforms(&mut self) {
        let Some((key, _)) = transforms(self.experiment, true).next() else { return };
        let images = self.data.inputs().filter(|(_, field)| field.shape.rank() == 3).count();
        let message = match images {
            0 => "transforms change images, and the model takes none".to_string(),
            n => format!("transforms change the one image that a model takes, and this one takes {n}"),
        };
        let mut error = Diagnostic::error(message).help("change the samples beforehand, and leave the transforms out");
        if let Some(span) = self.experiment.nearest_span(&key) {
            error = error.at(span, "it is not clear what this is to change");
        }
        if let Some((_, span)) = self.experiment.model.inputs.first() {
            error = error.context(*span, "what the model takes");
        }
        self.report(error);
    }

    /// The shape, as PyTorch shows it, of what transforms change.
    fn sample_as_it_comes(&self) -> Shape {
        transformed(&self.data.fields).map_or(Shape::default(), |i| sample_to_pytorch(&self.data.fields[i].shape))
    }
}

/// What is wrong with a transform that cannot take images of this shape, in short, and what may be done.
fn misfit(t: &Transform, name: &str, shape: &Shape, error: &anyhow::Error) -> (String, &'static str, &'static str) {
    match (t, shape.dims()) {
        (Transform::RandomCrop(crop), &[h, w, _]) => {
            let ([ph, pw], [ch, cw]) = (crop.padding.0, crop.size.0);
            let (fh, fw) = (h + 2 * ph, w + 2 * pw);
            let padded = if ph + pw > 0 { format!(", {fh}×{fw} with its padding") } else { String::new() };
            let message = format!("`{name}` cannot cut {ch}×{cw} out of an image of {h}×{w}{padded}");
            (message, "does not fit into the image", "take a smaller `size` or more `padding`")
        }
        (_, &[_, _, _]) => {
            (error.to_string(), "does not fit the images", "leave it out, or change the samples beforehand")
        }
        _ => (format!("`{name}` takes images, but a sample has the shape {shape}"), "takes images", "leave it out"),
    }
}

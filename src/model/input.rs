//! The inputs of the model: from the loader's batch to the first layer.

use super::order::Order;
use super::transforms::{keyed, of_loader, transforms};
use super::{Builder, Mode, Tensor};
use crate::config::language::sections as cfg;
use crate::config::{Diagnostic, Experiment};
use crate::data::{DataSpec, Field, Transform, mask, transformed};
use crate::graph::op::Normalize;
use crate::graph::{DType, Input, MAX_ELEMENTS, Shape};

/// The fields that the model takes, as they come out of the transforms: `train` says which.
pub fn input_fields(experiment: &Experiment, data: &DataSpec, train: bool) -> Vec<Field> {
    let changed = transformed(&data.fields);
    let with_shape = |number: usize, field: &Field| {
        // What does not fit is reported elsewhere.
        let through = |shape: Shape, t: &Transform| t.output_shape(&shape).unwrap_or(shape);
        let transforms = if changed == Some(number) { transforms(experiment, train) } else { Vec::new() };
        Field { shape: transforms.iter().fold(field.shape.clone(), through), ..field.clone() }
    };
    data.fields.iter().enumerate().filter(|(_, field)| field.is_input()).map(|(i, f)| with_shape(i, f)).collect()
}

/// The field that is learnt, with its place in a batch, as it comes out of the transforms: `train` says which. Of masks, which have the
/// sides of their image.
pub fn target_field(experiment: &Experiment, data: &DataSpec, train: bool) -> Option<(Input, Field)> {
    let (place, field) = data.target()?;
    let mut field = field.clone();
    if let (Some(number), Some(_)) = (transformed(&data.fields), mask(&data.fields)) {
        let image = data.fields[number].clone();
        let image = input_fields(experiment, &DataSpec { fields: vec![image], ..data.clone() }, train).remove(0);
        field.shape = Shape::from(&image.shape.dims()[..2]);
    }
    Some((place, field))
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
        self.target = target_field(experiment, data, self.mode == Mode::Train);
        if let Some((_, field)) = &mut self.target
            && *field.shape.dims() == [0, 0]
        {
            field.shape = Shape::from([224, 224]);
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
        let shape_of = |field: &Field, batch: usize, lengths| {
            let mut shape = field.shape_of(lengths);
            shape.0.insert(0, batch);
            shape
        };
        let too_large = train.iter().map(|field| shape_of(field, self.batch, self.lengths));
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
            let value = self.graph.input(place, field.dtype, shape_of(field, self.batch, self.lengths));
            let x = Tensor { value, order: Order::Usual, made_by: None };
            let x = self.prepared(x, changed == Some(place));
            first = first.or(Some(x));
            self.prepared.push((field.name.clone(), x));
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
            Tensor { value, order: Order::Usual, made_by: None }
        })
    }

    /// A field of the batch as the layers see it: as floats and, if transforms `change` it, normalised by them.
    fn prepared(&mut self, mut x: Tensor, change: bool) -> Tensor {
        let experiment = self.experiment;
        // A transform that is written twice acts twice, as in torchvision.
        let mut scale = if self.graph.value(x.value).dtype == DType::U8 { 1.0 / 255.0 } else { 1.0 };
        let floats = |list: &[f64]| list.iter().map(|v| *v as f32).collect();
        for (key, t) in keyed(experiment, self.mode == Mode::Train).filter(|_| change) {
            if let cfg::Transform::Normalize(n) = t {
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
        let (field, masks) = (&self.data.fields[number], mask(&self.data.fields).is_some());
        // Which samples keep a size of their own: those of training, or the others.
        let mut without = Vec::new();
        for train in [true, false] {
            let mut shape = field.shape.clone();
            for (key, t) in keyed(experiment, train) {
                if matches!(t, cfg::Transform::Cutmix(_)) && shape.rank() != 3 {
                    let message = format!("`cutmix` takes images, but the samples are of shape {shape}");
                    self.report_misfit(
                        Diagnostic::error(message).help("leave it out"),
                        &key,
                        "cannot change these samples",
                    );
                }
                let Some(transform) = of_loader(t) else { continue };
                let (message, help) = match transform.output_shape(&shape) {
                    Ok(_) if masks && !transform.takes_masks() => (
                        format!("`{}` changes images alone, and these have a class for every pixel", transform.name()),
                        Some("leave it out: `random_affine`, `color_jitter` and others change both alike"),
                    ),
                    Ok(after) => {
                        shape = after;
                        if field.dtype == DType::U8 || transform.only_moves() {
                            continue;
                        }
                        let (name, dtype) = (transform.name(), field.dtype);
                        let message = format!("`{name}` takes images of bytes, and these are of {dtype}");
                        (message, Some("change the samples beforehand, and leave it out"))
                    }
                    Err(error) => {
                        let help = match t {
                            _ if shape.rank() != 3 => Some("leave it out"),
                            cfg::Transform::RandomCrop(_) => Some("take a smaller `size` or more `padding`"),
                            _ => None,
                        };
                        (format!("{error:#}"), help)
                    }
                };
                let mut error = Diagnostic::error(message);
                if let Some(help) = help {
                    error = error.help(help);
                }
                self.report_misfit(error, &key, "cannot change these samples");
            }
            if field.is_of_any_size() && shape.dims().starts_with(&[0, 0]) {
                without.push(train);
            }
        }
        // One place may be to blame for both.
        let (when, list) = match without[..] {
            [] => return,
            [true] => (" in training", "train_transforms"),
            [false] => (" in evaluation", "val_transforms"),
            _ => ("", "transforms"),
        };
        let examples: Vec<&str> = without
            .iter()
            .map(|train| match train {
                true => r#"`train_transforms = [{ type = "random_resized_crop", size = 224 }]`"#,
                false => {
                    r#"`val_transforms = [{ type = "resize", size = 256 }, { type = "center_crop", size = 224 }]`"#
                }
            })
            .collect();
        let message = format!("every image has a size of its own, and no transform{when} gives them one");
        let help = format!("the images of a batch have one size: for example {}", examples.join(" and "));
        self.report_misfit(Diagnostic::error(message).help(help), &format!("data.{list}"), "of any size");
    }

    /// Reports a transform, or a list of them, that does not fit the samples. An error of both kinds of samples is reported once.
    fn report_misfit(&mut self, mut error: Diagnostic, key: &str, label: &str) {
        if let Some(span) = self.experiment.nearest_span(key) {
            error = error.at(span, label);
        }
        if let Some(span) = self.data_span() {
            let comes = match self.sample_as_it_comes() {
                any if any.is_empty() => {
                    let c = any.dims()[0];
                    format!("images of any size come with {c} channel{}", if c == 1 { "" } else { "s" })
                }
                shape => format!("a sample comes as {shape}"),
            };
            error = error.context(span, comes);
        }
        if !self.errors.contains(&error) {
            self.report(error);
        }
    }

    /// Reports transforms where it is not clear what they are to change.
    fn check_there_are_no_transforms(&mut self) {
        let Some((key, _)) = keyed(self.experiment, true).next() else { return };
        let images = self.data.inputs().filter(|(_, field)| field.is_image()).count();
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

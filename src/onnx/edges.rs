//! What is before the first layer and after the last: samples as they are given, probabilities, and what the file says of both.

use super::graph::{int, value_info};
use super::images::{self, Image};
use super::proto::{self, DataType};
use super::{Translator, Value};
use crate::config::Diagnostic;
use crate::config::language::sections;
use crate::data::table::TableCodec;
use crate::data::text::TextCodec;
use crate::data::{Field, FieldKind, Standard, Transform, transformed};
use crate::graph::op::Task;
use crate::graph::{DType, Shape};
use crate::model::{input_fields, task, transforms};
use serde_json::json;

/// How samples are normalised: `(x / divisor - mean) / std`, with a number for all channels or one for each.
struct Normalization {
    divisor: f64,
    mean: Vec<f64>,
    std: Vec<f64>,
}

impl Normalization {
    /// Whether it changes anything.
    fn acts(&self) -> bool {
        self.divisor != 1.0 || self.mean.iter().any(|m| *m != 0.0) || self.std.iter().any(|s| *s != 1.0)
    }
}

/// The key of the metadata for what a source has fitted.
fn key_of_fitted(fitted: &serde_json::Value) -> &'static str {
    if TextCodec::is(fitted) { "text" } else { "columns" }
}

/// A sample's shape as PyTorch has it.
fn outside(sample: &Shape) -> Vec<usize> {
    match *sample.dims() {
        [h, w, c] => vec![c, h, w],
        ref other => other.to_vec(),
    }
}

impl Translator<'_> {
    /// Declares the inputs of the model; the first of them, as the first layer sees it.
    pub(super) fn input(&mut self) -> Result<Value, Diagnostic> {
        let (experiment, data) = (self.source.experiment, self.source.data);
        let changed = transformed(&data.fields);
        let numbers = data.fields.iter().enumerate().filter(|(_, field)| field.is_input()).map(|(number, _)| number);
        let table = TableCodec::of(data).filter(|_| self.options.preprocess);
        if table.as_ref().is_some_and(|table| table.tokens.is_some()) {
            return Err(Diagnostic::error(
                "a column of the table becomes tokens, which no operator of ONNX makes of a text",
            )
            .help("leave out `--preprocess`: `columns` in the file's metadata says how columns become the inputs"));
        }
        if let Some(windows) = table.as_ref().and_then(|table| table.windows.as_ref()) {
            return Err(Diagnostic::error(format!("the model takes {} rows of a series, and `--preprocess` makes inputs of the columns of one", windows.rows))
                .help("leave out `--preprocess`: `columns` in the file's metadata says how columns become the numbers of a row"));
        }
        let has_text = data.fitted.is_some() && data.vocabulary().is_some();
        if self.options.preprocess && table.is_none() && has_text {
            return Err(Diagnostic::error("a text becomes tokens, which no operator of ONNX makes of it").help(
                "leave out `--preprocess`: the model takes the numbers of tokens, and the file's metadata has the tokenizer",
            ));
        }
        let mut first = None;
        for (number, field) in numbers.zip(input_fields(experiment, data, false)) {
            let named = experiment.model.inputs.iter().any(|(name, _)| *name == field.name);
            let of_layers = matches!(field.kind, FieldKind::Length | FieldKind::PairStart);
            let by_name = named || of_layers;
            let wanted = if by_name { &field.name } else { "input" };
            let name = if table.is_some() { String::new() } else { self.graph.fresh(wanted) };
            let mut shape = [vec![1], outside(&field.shape)].concat();
            let normalization = self.normalization(&field, changed == Some(number));
            let inside = self.options.preprocess && normalization.acts();
            let transforms = match changed == Some(number) && self.options.preprocess {
                true => self.transforms(&field),
                false => Vec::new(),
            };
            let made = shape.clone();
            if !transforms.is_empty() {
                shape = [vec![1], outside(&data.fields[number].shape)].concat();
            }
            let bytes = field.dtype == DType::U8 && (inside || !transforms.is_empty());
            let r#type = match field.dtype {
                DType::U8 if bytes => DataType::Uint8,
                DType::I32 => DataType::Int32,
                _ => DataType::Float,
            };
            let mut x = match &table {
                Some(table) => self.columns(table),
                None => {
                    self.inputs.push(value_info(&name, r#type, &shape));
                    Value { name: name.clone(), shape }
                }
            };
            if !transforms.is_empty() {
                let image = Image { name: x.name, channels: x.shape[1] };
                x = Value { name: images::transformed(&mut self.graph, image, &transforms).name, shape: made };
            }
            if inside {
                x.name = self.normalized(&x, bytes, &normalization);
            } else if self.options.preprocess && transforms.is_empty() && self.source.data.fitted.is_none() {
                self.notes.push(format!("`{name}` needs no preprocessing: it goes in as it is"));
            }
            let fitted = self.source.data.fitted.as_ref();
            if let FieldKind::Tokens(tokens) = &field.kind {
                let key = fitted.map_or("text", |fitted| key_of_fitted(fitted));
                self.notes.push(format!(
                    "`{name}` has the numbers of tokens, of which there are {}: `{key}` in the file's metadata has the tokenizer",
                    tokens.number
                ));
            } else if !of_layers && fitted.is_some() && table.is_none() {
                let has_tokens = data.vocabulary().is_some();
                let in_windows = TableCodec::of(data).is_some_and(|table| table.windows.is_some());
                let inside = match has_tokens || in_windows {
                    true => "",
                    false => ": with `--preprocess` the model takes the columns themselves",
                };
                self.notes.push(format!(
                    "`{name}` has the numbers that the columns of a table become, and `columns` in the file's metadata what each column was \
                     fitted to{inside}"
                ));
            }
            if named {
                self.named.insert(field.name.clone(), x.clone());
            }
            first = first.or(Some(x));
        }
        first.ok_or_else(|| Diagnostic::error("the samples have nothing that a model could take"))
    }

    /// What the transforms of evaluation do to the image `field` before it is normalised, if the graph can have it all.
    fn transforms(&mut self, field: &Field) -> Vec<Transform> {
        let all = transforms(self.source.experiment, false);
        if all.is_empty() || field.dtype == DType::U8 && field.is_image() && images::has_form(&all) {
            return all;
        }
        self.notes.push(format!(
            "not all transforms of `{}` have a form in ONNX that gives the same pixels: the model takes images as they come out of \
             them, and normalises inside",
            field.name
        ));
        Vec::new()
    }

    /// What the transforms of evaluation do to the numbers of a field; those that come one after the other as one.
    fn normalization(&self, field: &Field, change: bool) -> Normalization {
        let divisor = if field.dtype == DType::U8 { 255.0 } else { 1.0 };
        let mut all = Normalization { divisor, mean: vec![0.0], std: vec![1.0] };
        let data = &self.source.experiment.data;
        for transform in data.val_transforms.iter().chain(&data.transforms).filter(|_| change) {
            let sections::Transform::Normalize(n) = transform else { continue };
            let channels = all.mean.len().max(n.mean.len()).max(n.std.len());
            let of = |list: &[f64], i: usize| list[i % list.len()];
            let mean = |i| of(&all.mean, i) + of(&all.std, i) * of(&n.mean, i);
            let std = |i| of(&all.std, i) * of(&n.std, i);
            let (mean, std) = ((0..channels).map(mean).collect(), (0..channels).map(std).collect());
            all = Normalization { divisor, mean, std };
        }
        all
    }

    fn normalized(&mut self, x: &Value, bytes: bool, by: &Normalization) -> String {
        let mut y = x.name.clone();
        if bytes {
            y = self.graph.op("Cast", &[&y], [int("to", DataType::Float as i64)]);
        }
        if by.divisor != 1.0 {
            y = self.graph.with_scalar("Div", &y, by.divisor as f32);
        }
        // Of images the channels are the second dimension, else they are the last.
        let image = x.shape.len() == 4;
        for (op_type, numbers) in [("Sub", &by.mean), ("Div", &by.std)] {
            let numbers: Vec<f32> = numbers.iter().map(|n| *n as f32).collect();
            let shape = [numbers.len(), 1, 1];
            let numbers = self.graph.floats(if image { &shape } else { &shape[..1] }, &numbers);
            y = self.graph.op(op_type, &[&y, &numbers], []);
        }
        y
    }

    /// The logarithms of the probabilities of classes, where what the model puts out is of the steps between them.
    pub(super) fn ordered_classes(&mut self, mut y: Value) -> Value {
        if !self.source.experiment.loss.is_ordinal() {
            return y;
        }
        let axis = if y.shape.len() == 4 { 1 } else { y.shape.len() - 1 };
        self.graph.scope = "ordinal".into();
        let minus = self.graph.op("Neg", &[&y.name], []);
        let [above, not] = [&minus, &y.name].map(|logits| {
            // ln(sigmoid(x)) is −softplus(−x). The last class has no step of its own.
            let soft = self.graph.op("Softplus", &[logits], []);
            let log = self.graph.op("Neg", &[&soft], []);
            let mut pads = vec![0; 2 * y.shape.len()];
            pads[y.shape.len() + axis] = 1;
            let pads = self.graph.list(&pads);
            self.graph.op("Pad", &[&log, &pads], [])
        });
        let along = self.graph.index(axis);
        let above = self.graph.op("CumSum", &[&above, &along], [int("exclusive", 1)]);
        y.name = self.graph.op("Add", &[&above, &not], []);
        y.shape[axis] += 1;
        y
    }

    /// The output in the target's own unit, where the model learnt standardised numbers.
    fn in_own_unit(&mut self, y: &Value) -> String {
        let experiment = self.source.experiment;
        let learns_it = task(experiment) == Task::Regression && experiment.loss.target().is_none();
        let target = self.source.data.target().filter(|_| learns_it);
        let Some(standard) = target.and_then(|(_, field)| field.standard.as_ref()) else { return y.name.clone() };
        let standard = standard.repeated(experiment.loss.quantiles().len().max(1));
        self.unstandardized(y, &standard)
    }

    /// Standardised numbers in their own unit.
    pub(super) fn unstandardized(&mut self, y: &Value, standard: &Standard) -> String {
        let deviation = self.graph.floats(&[standard.deviation.len()], &standard.deviation);
        let mean = self.graph.floats(&[standard.mean.len()], &standard.mean);
        let scaled = self.graph.op("Mul", &[&y.name, &deviation], []);
        self.graph.op("Add", &[&scaled, &mean], [])
    }

    /// Declares the output of the model, which is `y` or probabilities of it, under that name.
    pub(super) fn output(&mut self, mut y: Value, name: String) -> Result<proto::ValueInfo, Diagnostic> {
        let experiment = self.source.experiment;
        self.graph.scope.clear();
        y.name = self.in_own_unit(&y);
        if self.options.softmax {
            y.name = match task(experiment) {
                Task::Classification => {
                    let axis = if y.shape.len() == 4 { 1 } else { -1 };
                    self.graph.op("Softmax", &[&y.name], [int("axis", axis)])
                }
                Task::BinaryClassification => self.graph.op("Sigmoid", &[&y.name], []),
                Task::Regression => {
                    let error = Diagnostic::error("the model has no probabilities: it puts out values, not classes");
                    let error = match experiment.nearest_span("loss.type") {
                        Some(span) => error.at(span, "compares values"),
                        None => error,
                    };
                    return Err(error.help("leave out `--softmax`"));
                }
            };
        }
        Ok(self.put_out(y, name))
    }

    /// Declares an output of that name.
    pub(super) fn put_out(&mut self, mut y: Value, name: String) -> proto::ValueInfo {
        // The last node puts it out under its name. What is an input, or read elsewhere, too, keeps its own.
        let made = self.graph.nodes.iter().any(|node| node.output.contains(&y.name));
        if !made {
            y.name = self.graph.op("Identity", &[&y.name], []);
        }
        let old = std::mem::replace(&mut y.name, name);
        for node in &mut self.graph.nodes {
            node.input.iter_mut().chain(&mut node.output).filter(|n| **n == old).for_each(|n| n.clone_from(&y.name));
        }
        self.results.retain(|info| info.name() != old);
        value_info(&y.name, DataType::Float, &y.shape)
    }

    /// What the file says of itself besides the graph.
    pub(super) fn metadata(&self) -> Vec<proto::Entry> {
        let (experiment, data) = (self.source.experiment, self.source.data);
        let mut entries = vec![("runner_version", json!(env!("CARGO_PKG_VERSION")))];
        if let Some(names) = data.class_names() {
            entries.push(("class_names", json!(names)));
        }
        // How the columns of a table become the numbers of the input.
        let table = TableCodec::of(data).filter(|_| self.options.preprocess);
        if let Some(table) = &table {
            entries.push(("inputs", self.inputs_in_words(table)));
        } else if let Some(fitted) = &data.fitted {
            let mut columns = serde_json::Value::clone(fitted);
            // The output is in the target's own unit.
            if let Some(numbers) = columns.pointer_mut("/target/numbers").and_then(serde_json::Value::as_object_mut) {
                numbers.remove("standard");
            }
            for head in columns.get_mut("heads").and_then(serde_json::Value::as_array_mut).into_iter().flatten() {
                let numbers = head.pointer_mut("/target/numbers").and_then(serde_json::Value::as_object_mut);
                numbers.map(|numbers| numbers.remove("standard"));
            }
            entries.push((key_of_fitted(fitted), columns));
        }
        if let Some(table) = TableCodec::of(data) {
            entries.push(("targets", json!(table.answers_named())));
        }
        if !experiment.heads.is_empty() {
            entries.push(("heads", self.heads_in_words()));
        }
        if !experiment.loss.quantiles().is_empty() {
            entries.push(("quantiles", json!(experiment.loss.quantiles())));
        }
        let images = data.fitted.is_none();
        if let Some((number, field)) =
            transformed(&data.fields).filter(|_| images).and_then(|n| Some((n, data.fields.get(n)?)))
        {
            let after = input_fields(experiment, data, false);
            let shape = after.iter().find(|f| f.name == field.name).map_or_else(Vec::new, |f| outside(&f.shape));
            let normalization = self.normalization(field, transformed(&data.fields) == Some(number));
            entries.push(("input_size", json!(shape)));
            entries.push(("input_divisor", json!(normalization.divisor)));
            entries.push(("mean", json!(normalization.mean)));
            entries.push(("std", json!(normalization.std)));
            let data = &experiment.data;
            entries.push(("transforms", json!(data.val_transforms.iter().chain(&data.transforms).collect::<Vec<_>>())));
        }
        let changes = transforms(experiment, false);
        entries.push((
            "preprocess",
            json!(match self.options.preprocess {
                _ if table.is_some() => "inside",
                _ if data.fitted.is_some() => "outside",
                true if images::has_form(&changes) => "inside",
                true => "normalization inside",
                false => "outside",
            }),
        ));
        let values = task(experiment) == Task::Regression;
        let output = if self.options.softmax {
            "probabilities"
        } else if values {
            "values"
        } else {
            "logits"
        };
        entries.push(("output", json!(output)));
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        let entry =
            |(key, value): (&str, serde_json::Value)| proto::Entry { key: Some(key.into()), value: Some(text(value)) };
        entries.into_iter().map(entry).collect()
    }
}

//! Requests of the Open Inference Protocol, version 2: tensors as JSON, or as bytes after it.
//! <https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md>, and for tensors as bytes
//! <https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>.

use super::nested::Nested;
use super::object::{Object, Written};
use super::reader::{READING, Reader};
use super::refusal::Refusal;
use super::samples::{Names, Samples, channels_last, looked_up, outside, put};
use super::served::{Served, TEXT, Tensor, datatype};
use crate::data::Field;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;

/// Number of JSON bytes, of a body with tensors after them.
pub const HEADER: &str = "Inference-Header-Content-Length";

type Parameters = HashMap<String, Parameter>;

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parameter {
    Flag(bool),
    Number(u64),
    /// Any other, of whatever size, which is not kept.
    Other,
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParameterVisitor)
    }
}

struct ParameterVisitor;

impl<'de> Visitor<'de> for ParameterVisitor {
    type Value = Parameter;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a parameter")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Parameter, E> {
        Ok(Parameter::Flag(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Parameter, E> {
        Ok(Parameter::Number(value))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Parameter, E> {
        Ok(Parameter::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Parameter, E> {
        Ok(Parameter::Other)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Parameter, E> {
        Ok(Parameter::Other)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Parameter, E> {
        Ok(Parameter::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parameter, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Parameter::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameter, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Parameter::Other)
    }
}

/// What a request asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    id: Option<String>,
    #[serde(default)]
    parameters: Parameters,
    inputs: Vec<Object<Input>>,
    #[serde(default)]
    outputs: Vec<Object<Output>>,
}

impl Written for Asked {
    const WHAT: &'static str = "an object as {\"inputs\": [...]}";
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    name: String,
    shape: Vec<Extent>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    data: Option<Nested>,
}

impl Written for Input {
    const WHAT: &'static str = "a tensor as {\"name\": ..., \"shape\": [...], \"datatype\": ..., \"data\": [...]}";
}

/// A number of a shape.
#[derive(Debug, Clone, Copy)]
struct Extent(usize);

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(ExtentVisitor)
    }
}

struct ExtentVisitor;

impl Visitor<'_> for ExtentVisitor {
    type Value = Extent;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an element of `shape`, a whole number from 0")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Extent, E> {
        // One that is larger than any memory is refused as such.
        Ok(Extent(usize::try_from(value).unwrap_or(usize::MAX)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Extent, E> {
        Err(E::invalid_value(de::Unexpected::Signed(value), &self))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Output {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

impl Written for Output {
    const WHAT: &'static str = "an output as {\"name\": ...}";
}

/// How the answer is written.
pub struct Form {
    id: Option<String>,
    /// Which of the model's tensors, and whether as bytes.
    tensors: Vec<(Tensor, bool)>,
}

impl Reader<'_> {
    /// The samples of a request, of whose body the first `header` bytes are JSON, and how its answer is written.
    ///
    /// # Errors
    /// It is no request of the protocol; tensors do not fit the model; there are too many samples.
    pub fn tensors(&mut self, body: &[u8], header: usize) -> Result<(Samples, Form), Refusal> {
        let Some((text, mut binary)) = body.split_at_checked(header) else {
            let reason = format!("`{HEADER}` is {header}, and the body has {} bytes", body.len());
            return Err(Refusal::bad(reason));
        };
        self.charge.add(text.len().saturating_mul(READING))?;
        let Object(asked): Object<Asked> = serde_json::from_slice(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Refusal::unfit(error.to_string()),
            _ => Refusal::bad(format!("the body is no JSON: {error}")),
        })?;
        if !self.served.other_tables.is_empty() {
            return Err(Refusal::unfit(
                "the models of folds take rows of tables, each in its own way: POST them to /predict, or serve one of the folds",
            ));
        }
        let form = form(&asked, self.served)?;
        let fields = &self.served.seen.given;
        let mut rows: Vec<Option<Vec<u8>>> = vec![None; fields.len()];
        let mut count = None;
        for Object(input) in &asked.inputs {
            let name = shown(&input.name);
            let at = fields.iter().position(|field| field.name == input.name);
            let Some((at, field)) = at.map(|at| (at, &fields[at])) else {
                let known = fields.iter().map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(", ");
                return Err(Refusal::unfit(format!("the model takes no `{name}`: it takes {known}")));
            };
            if rows[at].is_some() {
                return Err(Refusal::unfit(format!("`{name}` is there twice")));
            }
            let samples = fitting(field, input)?;
            let known = *count.get_or_insert(samples);
            if samples != known {
                let reason = format!("`{name}` has {samples} samples, and the tensors before it have {known}");
                return Err(Refusal::unfit(reason));
            }
            self.expect(samples)?;
            rows[at] = Some(elements(field, input, samples, &mut binary)?);
        }
        if !binary.is_empty() {
            return Err(Refusal::bad(format!("{} bytes are left after the tensors", binary.len())));
        }
        let there = rows.into_iter().zip(fields).map(|(rows, field)| {
            rows.ok_or_else(|| Refusal::unfit(format!("the model takes `{}`, which is not there", field.name)))
        });
        let rows: Vec<Vec<u8>> = there.collect::<Result<_, _>>()?;
        looked_up(fields, &rows)?;
        let as_text = form.tensors.iter().filter(|(_, binary)| !binary).map(|(tensor, _)| tensor.within.len());
        self.charge.add(count.unwrap_or(0).saturating_mul(as_text.sum()).saturating_mul(TEXT))?;
        Ok((Samples { rows, count: count.unwrap_or(0), names: Names::Rows(None) }, form))
    }
}

/// A name of a client's, for a message.
fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

/// Reads what an answer shall be like.
fn form(asked: &Asked, served: &Served) -> Result<Form, Refusal> {
    let flag = |parameters: &Parameters, known: &str, of: &str| {
        let mut set = None;
        for (name, value) in parameters {
            match value {
                Parameter::Flag(flag) if name == known => set = Some(*flag),
                _ => {
                    let reason = format!("the parameter `{}` of {of} is not known here, or wrong", shown(name));
                    return Err(Refusal::bad(reason));
                }
            }
        }
        Ok(set)
    };
    let all = flag(&asked.parameters, "binary_data_output", "a request")?.unwrap_or(false);
    let mut left = served.tensors();
    let is_output = |name: &str| served.tensors().iter().any(|tensor| tensor.name == name);
    let known = left.iter().map(|tensor| format!("`{}`", tensor.name)).collect::<Vec<_>>().join(", ");
    let mut tensors = Vec::new();
    for Object(output) in &asked.outputs {
        let Some(at) = left.iter().position(|tensor| tensor.name == output.name) else {
            let name = shown(&output.name);
            return Err(Refusal::unfit(match is_output(&output.name) {
                true => format!("the output `{name}` is asked for twice"),
                false => format!("the model has no output `{name}`: it has {known}"),
            }));
        };
        let binary = flag(&output.parameters, "binary_data", "an output")?.unwrap_or(all);
        tensors.push((left.remove(at), binary));
    }
    if asked.outputs.is_empty() {
        tensors = left.into_iter().map(|tensor| (tensor, all)).collect();
    }
    Ok(Form { id: asked.id.clone(), tensors })
}

/// The number of samples of a tensor that fits a field.
fn fitting(field: &Field, input: &Input) -> Result<usize, Refusal> {
    let expected = outside(field);
    let name = &field.name;
    if input.datatype != datatype(field.dtype) {
        let (given, right) = (shown(&input.datatype), datatype(field.dtype));
        return Err(Refusal::unfit(format!("`{name}` is of the datatype {right}, not {given}")));
    }
    match input.shape.split_first() {
        Some((samples, shape)) if shape.iter().map(|extent| extent.0).eq(expected.iter().copied()) => Ok(samples.0),
        _ => {
            let given: Vec<usize> = input.shape.iter().take(8).map(|extent| extent.0).collect();
            let mut right = vec!["-1".to_owned()];
            right.extend(expected.iter().map(usize::to_string));
            Err(Refusal::unfit(format!("`{name}` has the shape {given:?}, and the model takes [{}]", right.join(", "))))
        }
    }
}

/// The bytes of a tensor's samples: from its data, or from the beginning of what is `binary`.
fn elements(field: &Field, input: &Input, samples: usize, binary: &mut &[u8]) -> Result<Vec<u8>, Refusal> {
    let name = &field.name;
    let mut size = None;
    for (parameter, value) in &input.parameters {
        match value {
            Parameter::Number(bytes) if parameter == "binary_data_size" => size = usize::try_from(*bytes).ok(),
            _ => {
                let reason = format!("the parameter `{}` of `{name}` is not known here, or wrong", shown(parameter));
                return Err(Refusal::bad(reason));
            }
        }
    }
    let bytes = samples.checked_mul(field.bytes()).ok_or_else(|| Refusal::too_large("there are too many samples"))?;
    let mut into = Vec::new();
    match (&input.data, size) {
        (Some(data), None) => {
            let expected = samples * field.shape.len();
            if data.numbers.len() != expected {
                let reason = format!("`{name}` has {} elements, and its shape asks for {expected}", data.numbers.len());
                return Err(Refusal::unfit(reason));
            }
            for sample in data.numbers.chunks_exact(field.shape.len().max(1)) {
                put(field, sample, "inputs", &mut into)?;
            }
        }
        (None, Some(size)) if size != bytes => {
            return Err(Refusal::unfit(format!("`{name}` has {size} bytes, and its shape asks for {bytes}")));
        }
        (None, Some(size)) => {
            let Some((own, rest)) = binary.split_at_checked(size) else {
                return Err(Refusal::bad(format!("`{name}` has {size} bytes, and the body {} for it", binary.len())));
            };
            *binary = rest;
            // The protocol's elements are little-endian, as those of all machines that this program is for.
            into.extend_from_slice(own);
            channels_last(field, &mut into);
        }
        (None, None) => return Err(Refusal::unfit(format!("`{name}` has neither `data` nor `binary_data_size`"))),
        (Some(_), Some(_)) => return Err(Refusal::unfit(format!("`{name}` has both `data` and `binary_data_size`"))),
    }
    Ok(into)
}

/// The answer to a request: the bytes of its body, and how many of them are JSON if there are others.
pub fn answer(form: Form, model: &str, served: &Served, outputs: &[f32]) -> (Vec<u8>, Option<usize>) {
    let samples = outputs.len() / served.width();
    let mut bytes = Vec::new();
    let mut tensors = Vec::new();
    for (tensor, binary) in &form.tensors {
        let scores = served.scores(tensor, outputs);
        let shape: Vec<usize> = std::iter::once(samples).chain(tensor.shape.iter().copied()).collect();
        let mut output = json!({ "name": tensor.name, "datatype": "FP32", "shape": shape });
        match binary {
            true => {
                output["parameters"] = json!({ "binary_data_size": size_of_val(&scores[..]) });
                bytes.extend(scores.iter().flat_map(|score| score.to_le_bytes()));
            }
            false => output["data"] = json!(scores),
        }
        tensors.push(output);
    }
    let mut answer = json!({ "model_name": model, "outputs": tensors });
    if let Some(id) = form.id {
        answer["id"] = id.into();
    }
    let mut body = answer.to_string().into_bytes();
    let header = form.tensors.iter().any(|(_, binary)| *binary).then_some(body.len());
    body.append(&mut bytes);
    (body, header)
}

/// The metadata of a model; `None`: of one that writes texts, which takes no tensors and puts out none.
pub fn metadata(name: &str, served: Option<&Served>) -> Value {
    let with_samples = |shape: Vec<usize>| -> Vec<i64> {
        std::iter::once(-1).chain(shape.into_iter().map(|extent| i64::try_from(extent).unwrap_or(i64::MAX))).collect()
    };
    let input = |field: &Field| json!({ "name": field.name, "datatype": datatype(field.dtype), "shape": with_samples(outside(field)) });
    let output =
        |tensor: Tensor| json!({ "name": tensor.name, "datatype": "FP32", "shape": with_samples(tensor.shape) });
    json!({
        "name": name,
        "platform": "runner",
        "inputs": served.map_or(&[][..], |served| &served.seen.given).iter().map(input).collect::<Vec<_>>(),
        "outputs": served.map(Served::tensors).into_iter().flatten().map(output).collect::<Vec<_>>(),
    })
}

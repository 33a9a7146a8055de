//! A graph of ONNX as it grows: nodes, their names, and constants.

use super::proto::{self, AttributeType, DataType};
use std::collections::HashSet;

/// An attribute of a node.
pub(super) type Attribute = proto::Attribute;

fn attribute(name: &str, r#type: AttributeType) -> Attribute {
    Attribute { name: Some(name.into()), r#type: Some(r#type.into()), ..Attribute::default() }
}

/// The operators that ONNX has for machine learning beside its own.
pub(super) const ML: &str = "ai.onnx.ml";

/// A whole number.
pub(super) fn int(name: &str, value: i64) -> Attribute {
    Attribute { i: Some(value), ..attribute(name, AttributeType::Int) }
}

/// A list of whole numbers, of which some may be below zero.
pub(super) fn signed(name: &str, ints: Vec<i64>) -> Attribute {
    Attribute { ints, ..attribute(name, AttributeType::Ints) }
}

/// A list of numbers.
pub(super) fn floats(name: &str, floats: Vec<f32>) -> Attribute {
    Attribute { floats, ..attribute(name, AttributeType::Floats) }
}

/// A list of whole numbers.
pub(super) fn ints(name: &str, values: impl IntoIterator<Item = usize>) -> Attribute {
    signed(name, values.into_iter().map(|v| v as i64).collect())
}

/// A number.
pub(super) fn float(name: &str, value: f32) -> Attribute {
    Attribute { f: Some(value), ..attribute(name, AttributeType::Float) }
}

/// A word.
pub(super) fn word(name: &str, value: &str) -> Attribute {
    Attribute { s: Some(value.into()), ..attribute(name, AttributeType::String) }
}

/// A list of words.
pub(super) fn words(name: &str, values: &[&str]) -> Attribute {
    let strings = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    Attribute { strings, ..attribute(name, AttributeType::Strings) }
}

/// The name, type and shape of a value whose first dimension is the batch. A dimension of length 0 is an image's height or width
/// that the model takes as it comes.
pub(super) fn value_info(name: &str, r#type: DataType, shape: &[usize]) -> proto::ValueInfo {
    let open = |name: &str| proto::Dimension { dim_param: Some(name.into()), dim_value: None };
    let dim = shape.iter().enumerate().map(|(i, n)| match (i, n) {
        (0, _) => open("batch"),
        (2, 0) => open("height"),
        (_, 0) => open("width"),
        _ => proto::Dimension { dim_value: Some(*n as i64), dim_param: None },
    });
    let shape = proto::TensorShape { dim: dim.collect() };
    let tensor = proto::TensorType { elem_type: Some(r#type.into()), shape: Some(shape) };
    proto::ValueInfo { name: Some(name.into()), r#type: Some(proto::Type { tensor_type: Some(tensor) }) }
}

/// Nodes that are computed or not, by a condition, and the result of the last of them.
pub(super) struct Subgraph {
    nodes: Vec<proto::Node>,
    result: String,
}

/// Nodes and constants. Names are unique; those of nodes and of their results begin with the path of their layer.
#[derive(Default)]
pub(super) struct Graph {
    pub nodes: Vec<proto::Node>,
    pub constants: Vec<proto::Tensor>,
    /// The path of the layer that is being translated.
    pub scope: String,
    names: HashSet<String>,
}

impl Graph {
    /// `wanted`, or with a number after it if there is something of that name.
    pub fn fresh(&mut self, wanted: &str) -> String {
        let numbered = (1..).map(|i| format!("{wanted}_{i}"));
        let free = std::iter::once(wanted.to_owned()).chain(numbered).find(|name| !self.names.contains(name));
        let name = free.expect("there are more numbers than names");
        self.names.insert(name.clone());
        name
    }

    fn within(&mut self, what: &str) -> String {
        match self.scope.is_empty() {
            true => self.fresh(what),
            false => self.fresh(&format!("{}/{what}", self.scope)),
        }
    }

    /// Adds a node with one result; the result's name.
    pub fn op(&mut self, op_type: &str, inputs: &[&str], attributes: impl Into<Vec<Attribute>>) -> String {
        let name = self.within(op_type);
        self.push(op_type, name.clone(), inputs, vec![name.clone()], attributes.into());
        name
    }

    /// Adds a node with `N` results; their names.
    pub fn ops<const N: usize>(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        attributes: impl Into<Vec<Attribute>>,
    ) -> [String; N] {
        let name = self.within(op_type);
        let outputs: [String; N] = std::array::from_fn(|i| self.fresh(&format!("{name}.{i}")));
        self.push(op_type, name, inputs, outputs.to_vec(), attributes.into());
        outputs
    }

    fn push(&mut self, op_type: &str, name: String, inputs: &[&str], output: Vec<String>, attribute: Vec<Attribute>) {
        let input = inputs.iter().map(|name| (*name).to_owned()).collect();
        let (name, op_type) = (Some(name), Some(op_type.into()));
        self.nodes.push(proto::Node { input, output, name, op_type, attribute, domain: None });
    }

    /// What `LabelEncoder` makes of texts. It is of the operators that ONNX has for machine learning ([`ML`]).
    pub fn labels(&mut self, texts: &str, attributes: impl Into<Vec<Attribute>>) -> String {
        let name = self.op("LabelEncoder", &[texts], attributes);
        self.nodes.last_mut().expect("a node").domain = Some(ML.into());
        name
    }

    /// The nodes that `make` adds, apart from all others. They may read what the graph has so far.
    pub fn subgraph(&mut self, make: impl FnOnce(&mut Self) -> String) -> Subgraph {
        let outer = std::mem::take(&mut self.nodes);
        let result = make(self);
        Subgraph { nodes: std::mem::replace(&mut self.nodes, outer), result }
    }

    /// The result of the first of two subgraphs of bytes where `condition` holds, else that of the second.
    pub fn either(&mut self, condition: &str, branches: [Subgraph; 2]) -> String {
        let mut names = ["then_branch", "else_branch"].into_iter();
        let attributes = branches.map(|branch| {
            let name = names.next().unwrap_or_default();
            let tensor = proto::TensorType { elem_type: Some(DataType::Uint8.into()), shape: None };
            let r#type = Some(proto::Type { tensor_type: Some(tensor) });
            let graph = proto::Graph {
                node: branch.nodes,
                name: Some(name.into()),
                output: vec![proto::ValueInfo { name: Some(branch.result), r#type }],
                ..proto::Graph::default()
            };
            Attribute { g: Some(Box::new(graph)), ..attribute(name, AttributeType::Graph) }
        });
        self.op("If", &[condition], attributes)
    }

    /// A constant of whole numbers: a list, or with no dimensions one number.
    fn whole(&mut self, dims: Vec<i64>, values: &[i64]) -> String {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(dims, DataType::Int64, data)
    }

    /// A constant list of whole numbers.
    pub fn list(&mut self, values: &[i64]) -> String {
        self.whole(vec![values.len() as i64], values)
    }

    /// A constant whole number.
    pub fn index(&mut self, value: usize) -> String {
        self.whole(Vec::new(), &[value as i64])
    }

    /// A constant tensor.
    pub fn floats(&mut self, shape: &[usize], values: &[f32]) -> String {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(shape.iter().map(|n| *n as i64).collect(), DataType::Float, data)
    }

    /// A constant number.
    pub fn scalar(&mut self, value: f32) -> String {
        self.floats(&[], &[value])
    }

    /// A constant number in double precision.
    pub fn double(&mut self, value: f64) -> String {
        self.constant(Vec::new(), DataType::Double, value.to_le_bytes().to_vec())
    }

    /// A constant list of numbers in double precision.
    pub fn doubles(&mut self, values: &[f64]) -> String {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(vec![values.len() as i64], DataType::Double, data)
    }

    /// A constant text.
    pub fn text(&mut self, text: &str) -> String {
        let name = self.fresh(&format!("constant/{}", self.constants.len()));
        let (data_type, string_data) = (Some(DataType::String.into()), vec![text.into()]);
        let named = Some(name.clone());
        self.constants.push(proto::Tensor { data_type, string_data, name: named, ..proto::Tensor::default() });
        name
    }

    /// A constant tensor of whole numbers of 32 bits.
    pub fn int32s(&mut self, shape: &[usize], values: &[i32]) -> String {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(shape.iter().map(|n| *n as i64).collect(), DataType::Int32, data)
    }

    /// A constant whole number of 32 bits.
    pub fn int32(&mut self, value: i32) -> String {
        self.int32s(&[], &[value])
    }

    /// A constant byte.
    pub fn byte(&mut self, value: u8) -> String {
        self.constant(Vec::new(), DataType::Uint8, vec![value])
    }

    fn constant(&mut self, dims: Vec<i64>, r#type: DataType, data: Vec<u8>) -> String {
        let same = |c: &&proto::Tensor| {
            c.dims == dims && c.data_type == Some(r#type.into()) && c.raw_data.as_deref() == Some(&data[..])
        };
        // Layers need the same numbers again and again, such as 0.5.
        if let Some(name) = self.constants.iter().find(same).and_then(|c| c.name.clone()) {
            return name;
        }
        let name = self.fresh(&format!("constant/{}", self.constants.len()));
        let data_type = Some(r#type.into());
        let (named, raw_data) = (Some(name.clone()), Some(data));
        self.constants.push(proto::Tensor { dims, data_type, name: named, raw_data, ..proto::Tensor::default() });
        name
    }

    /// The numbers of a batch under another shape, of which the first dimension stays the batch.
    pub fn reshape(&mut self, x: &str, shape: &[usize]) -> String {
        let sizes: Vec<i64> = std::iter::once(0).chain(shape[1..].iter().map(|n| *n as i64)).collect();
        let sizes = self.list(&sizes);
        self.op("Reshape", &[x, &sizes], [])
    }

    /// `x` from `start` to before `end` along `axis`.
    pub fn slice(&mut self, x: &str, axis: usize, start: usize, end: usize) -> String {
        let [starts, ends, axes] = [start, end, axis].map(|n| self.list(&[n as i64]));
        self.op("Slice", &[x, &starts, &ends, &axes], [])
    }

    /// The places `at` of `x` along `axis`.
    pub fn gather(&mut self, x: &str, axis: i64, at: &[usize]) -> String {
        let at = self.list(&at.iter().map(|n| *n as i64).collect::<Vec<_>>());
        self.op("Gather", &[x, &at], [int("axis", axis)])
    }

    /// Values one after the other in an axis.
    pub fn joined(&mut self, parts: &[String], axis: i64) -> String {
        match parts {
            [one] => one.clone(),
            parts => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                self.op("Concat", &parts, [int("axis", axis)])
            }
        }
    }

    /// `x` in single precision.
    pub fn single(&mut self, x: &str) -> String {
        self.op("Cast", &[x], [int("to", DataType::Float as i64)])
    }

    /// The mean over `axes`, which stay with the length 1.
    pub fn mean(&mut self, x: &str, axes: &[usize]) -> String {
        self.reduce("ReduceMean", x, axes, true)
    }

    /// A sum, mean or maximum over `axes`.
    pub fn reduce(&mut self, op_type: &str, x: &str, axes: &[usize], keep: bool) -> String {
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        let axes = self.list(&axes);
        self.op(op_type, &[x, &axes], [int("keepdims", keep.into())])
    }

    /// `values`, a number for each channel, so that they go with a value of so many dimensions, of which the second is the channels.
    pub fn per_channel(&mut self, values: &str, rank: usize) -> String {
        if rank <= 2 {
            return values.to_owned();
        }
        let axes: Vec<i64> = (1..rank as i64 - 1).collect();
        let axes = self.list(&axes);
        self.op("Unsqueeze", &[values, &axes], [])
    }

    /// `op` of `x` and a number.
    pub fn with_scalar(&mut self, op_type: &str, x: &str, value: f32) -> String {
        let value = self.scalar(value);
        self.op(op_type, &[x, &value], [])
    }

    /// `op` of `x` and a number in double precision.
    pub fn with_double(&mut self, op_type: &str, x: &str, value: f64) -> String {
        let value = self.double(value);
        self.op(op_type, &[x, &value], [])
    }
}

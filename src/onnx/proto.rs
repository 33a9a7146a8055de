//! The messages of `onnx.proto` that a model for inference needs, with its field numbers
//! (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>).
//!
//! The schema is of proto2: lists of numbers are not packed, and a field that is there is written even where it is zero.

use prost::Message;

/// The whole file.
#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub producer_version: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<Entry>,
}

/// A version of a set of operators.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// A key with a text.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// Nodes in an order in which they can be computed.
#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfo>,
}

/// An operator with the names of its operands and results.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
    /// The set that the operator is of; by default that of ONNX itself.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
}

/// An attribute: one of the values is there, the one of the type.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub s: Option<Vec<u8>>,
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<Graph>>,
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    #[prost(enumeration = "AttributeType", optional, tag = "20")]
    pub r#type: Option<i32>,
}

/// Which value an attribute has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
}

/// Numbers of one type, little-endian, or texts; row-major.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    #[prost(enumeration = "DataType", optional, tag = "2")]
    pub data_type: Option<i32>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub string_data: Vec<Vec<u8>>,
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub raw_data: Option<Vec<u8>>,
}

/// Types of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    Undefined = 0,
    Float = 1,
    Uint8 = 2,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Double = 11,
}

/// A value's name, type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<Type>,
}

/// A type: that of tensors is the only one of use here.
#[derive(Clone, PartialEq, Message)]
pub struct Type {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

/// Element type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(enumeration = "DataType", optional, tag = "1")]
    pub elem_type: Option<i32>,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShape>,
}

/// Dimensions.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShape {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// A dimension: a number, or the name of one that is not known before.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

//! TensorBoard's messages, as far as they are written: `event.proto`, `summary.proto` and what they name, with their numbers.

use super::histogram::Histogram;
use super::image::Image;

/// `Event`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    #[prost(oneof = "What", tags = "3, 4, 5, 7")]
    pub what: Option<What>,
}

/// What an event is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// A message `GraphDef`.
    #[prost(bytes = "vec", tag = "4")]
    GraphDef(Vec<u8>),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// `SessionLog`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionLog {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

impl SessionLog {
    /// `SessionStatus.START`.
    pub fn start() -> SessionLog {
        SessionLog { status: 1 }
    }
}

/// `Summary`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Value>,
}

/// `Summary.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    #[prost(string, tag = "1")]
    pub tag: String,
    #[prost(oneof = "Content", tags = "2, 4, 5, 8")]
    pub content: Option<Content>,
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<Metadata>,
}

/// What a value is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Content {
    #[prost(float, tag = "2")]
    Scalar(f32),
    #[prost(message, tag = "4")]
    Image(ImageProto),
    #[prost(message, tag = "5")]
    Histogram(HistogramProto),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

/// `Summary.Image`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImageProto {
    #[prost(int32, tag = "1")]
    pub height: i32,
    #[prost(int32, tag = "2")]
    pub width: i32,
    /// Numbers of a pixel.
    #[prost(int32, tag = "3")]
    pub colorspace: i32,
    #[prost(bytes = "vec", tag = "4")]
    pub encoded: Vec<u8>,
}

/// `HistogramProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HistogramProto {
    #[prost(double, tag = "1")]
    pub min: f64,
    #[prost(double, tag = "2")]
    pub max: f64,
    #[prost(double, tag = "3")]
    pub num: f64,
    #[prost(double, tag = "4")]
    pub sum: f64,
    #[prost(double, tag = "5")]
    pub sum_squares: f64,
    #[prost(double, repeated, tag = "6")]
    pub bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub bucket: Vec<f64>,
}

/// `TensorProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tensor {
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub strings: Vec<Vec<u8>>,
}

/// `TensorShapeProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Shape {
    #[prost(message, repeated, tag = "2")]
    pub dims: Vec<Dim>,
}

/// `TensorShapeProto.Dim`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Dim {
    #[prost(int64, tag = "1")]
    pub size: i64,
}

/// `SummaryMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub plugin: Option<Plugin>,
}

/// `SummaryMetadata.PluginData`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Plugin {
    #[prost(string, tag = "1")]
    pub name: String,
    /// A message of the plugin's own.
    #[prost(bytes = "vec", tag = "2")]
    pub content: Vec<u8>,
}

/// `DataType.DT_STRING`.
const STRING: i32 = 7;

impl Value {
    /// A number.
    pub fn scalar(tag: &str, value: f64) -> Value {
        Value { tag: tag.into(), content: Some(Content::Scalar(value as f32)), metadata: None }
    }

    /// A text, shown as it stands: TensorBoard reads it as Markdown, where four spaces begin such lines.
    pub fn text(tag: &str, text: &str) -> Value {
        let block: String = text.lines().map(|line| format!("    {line}\n")).collect();
        Value::markdown(tag, &block)
    }

    /// A text in Markdown.
    pub fn markdown(tag: &str, text: &str) -> Value {
        let shape = Shape { dims: vec![Dim { size: 1 }] };
        Value {
            tag: tag.into(),
            content: Some(Content::Tensor(Tensor {
                dtype: STRING,
                shape: Some(shape),
                strings: vec![text.as_bytes().to_vec()],
            })),
            metadata: Some(Metadata { plugin: Some(Plugin { name: "text".into(), content: Vec::new() }) }),
        }
    }

    /// A picture.
    pub fn image(of: &Image) -> Value {
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let content = ImageProto {
            height: number(of.height),
            width: number(of.width),
            colorspace: number(of.channels),
            encoded: of.png.to_vec(),
        };
        Value { tag: of.tag.clone(), content: Some(Content::Image(content)), metadata: None }
    }

    /// A histogram.
    pub fn histogram(tag: &str, of: &Histogram) -> Value {
        let (bucket_limit, bucket) = of.buckets().into_iter().unzip();
        let content = HistogramProto {
            min: of.min,
            max: of.max,
            num: of.count,
            sum: of.sum,
            sum_squares: of.squares,
            bucket_limit,
            bucket,
        };
        Value { tag: tag.into(), content: Some(Content::Histogram(content)), metadata: None }
    }
}

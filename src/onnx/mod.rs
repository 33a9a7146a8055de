//! A trained model as an ONNX file, for inference anywhere.
//!
//! The layers are translated one by one from the configuration, in PyTorch's order of dimensions (`[N, C, H, W]`), so that the file
//! looks as one that PyTorch exported: `Conv`, `BatchNormalization`, `Gemm`, with parameters under PyTorch's names. Shapes come from
//! the layer table that the model's own graph was listed with; the first dimension is the batch, which may have any size.
//!
//! One function matches over all layers of the language: a new one does not compile without its translation.

mod columns;
mod edges;
mod graph;
mod heads;
mod images;
mod layers;
mod proto;
mod walk;

use crate::checkpoint::Tensor;
use crate::config::{Diagnostic, Experiment};
use crate::data::DataSpec;
use crate::graph::{DType, VarKind, Variables};
use crate::model::LayerRow;
use graph::{Graph, ML, value_info};
use prost::Message as _;
use proto::DataType;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The version of the operators, and that of the format that came with it: what all of PyTorch 2's relatives read.
const OPSET: i64 = 18;
const IR_VERSION: i64 = 8;
/// The version of the operators for machine learning that came with it.
const ML_OPSET: i64 = 3;
/// No message of Protocol Buffers may be longer.
const MAX_BYTES: usize = i32::MAX as usize;

/// What the file has besides the layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Probabilities come out instead of logits.
    pub softmax: bool,
    /// Samples go in as they come from the data: images are resized, cropped and normalised inside, cells of a table encoded.
    pub preprocess: bool,
}

/// A model to be translated.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its layers and transforms.
    pub experiment: &'a Experiment,
    /// The samples.
    pub data: &'a DataSpec,
    /// The layer table of its graph for batches of some size.
    pub rows: &'a [LayerRow],
    /// The variables of that graph.
    pub variables: &'a Variables,
}

/// An ONNX file.
#[derive(Debug)]
pub struct Exported {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Parameters and buffers in it.
    pub tensors: usize,
    /// Their elements.
    pub elements: usize,
    /// Operators in its graph.
    pub nodes: usize,
    /// Something that was asked for and that there was no need to do.
    pub notes: Vec<String>,
}

/// Translates a model; `tensors` are its parameters and buffers by name, as PyTorch has them.
///
/// # Errors
/// A layer, or what was asked for, cannot be expressed, with its place in the configuration; the file would be too large.
pub fn export(source: Source, tensors: BTreeMap<String, Tensor>, options: Options) -> Result<Exported, Diagnostic> {
    let (model, notes) = translate(source, tensors, options)?;
    fits(model.encoded_len())?;
    let graph = model.graph.as_ref();
    let named = |t: &&proto::Tensor| source.variables.find(t.name()).is_some();
    let all = graph.map_or(&[][..], |graph| &graph.initializer);
    let tensors = all.iter().filter(named).count();
    let elements = all.iter().filter(named).map(|t| t.dims.iter().product::<i64>() as usize).sum();
    let nodes = graph.map_or(0, |graph| graph.node.len());
    Ok(Exported { bytes: model.encode_to_vec(), tensors, elements, nodes, notes })
}

/// Refuses a file of more bytes than there may be.
fn fits(bytes: usize) -> Result<(), Diagnostic> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    let message = format!("the model takes {bytes} bytes as ONNX, and such a file has less than 2 GiB");
    Err(Diagnostic::error(message).help("write its weights to a .safetensors or a .pth file"))
}

/// A value of the graph.
#[derive(Debug, Clone)]
struct Value {
    name: String,
    /// As PyTorch has it. The first dimension is that of the batch.
    shape: Vec<usize>,
}

struct Translator<'a> {
    source: Source<'a>,
    options: Options,
    /// The rows of the layers that are still to come.
    rows: std::slice::Iter<'a, LayerRow>,
    graph: Graph,
    /// Results by the full path of the layer, and inputs of the model by name, for `from`.
    named: HashMap<String, Value>,
    /// Names of parameters and buffers that the graph reads.
    used: HashSet<String>,
    inputs: Vec<proto::ValueInfo>,
    /// The results of layers.
    results: Vec<proto::ValueInfo>,
    notes: Vec<String>,
}

fn translate(
    source: Source,
    tensors: BTreeMap<String, Tensor>,
    options: Options,
) -> Result<(proto::Model, Vec<String>), Diagnostic> {
    let mut t = Translator {
        source,
        options,
        rows: source.rows.iter(),
        graph: Graph::default(),
        named: HashMap::new(),
        used: HashSet::new(),
        inputs: Vec::new(),
        results: Vec::new(),
        notes: Vec::new(),
    };
    // Parameters have their names; everything else takes what is left.
    for (_, variable) in source.variables.iter() {
        t.graph.fresh(&variable.name);
    }
    // What comes out is called the same whatever goes in: an input that has a column's name gives way.
    let of_heads: Vec<String> = source.experiment.heads.iter().map(|head| t.graph.fresh(head.name())).collect();
    let of_output = t.graph.fresh(if options.softmax { "probabilities" } else { "output" });
    let x = t.input()?;
    let y = t.sequence(&source.experiment.model.layers, x)?;
    let y = t.ordered_classes(y);
    let heads =
        of_heads.into_iter().enumerate().map(|(at, name)| t.output_of_head(at, name)).collect::<Result<Vec<_>, _>>()?;
    let output = [vec![t.output(y, of_output)?], heads].concat();
    if source.experiment.data.source.carries_state() {
        t.notes.push(
            "recurrent layers begin with zeros in each run of the file, and their states do not come out: `carry_state` \
             goes on from batch to batch here, and not in the file"
                .into(),
        );
    }
    let metadata_props = t.metadata();
    let mut initializer = t.parameters(tensors)?;
    initializer.append(&mut t.graph.constants);
    let graph = proto::Graph {
        node: t.graph.nodes,
        name: Some("main_graph".into()),
        initializer,
        input: t.inputs,
        output,
        value_info: t.results,
    };
    check(&graph)?;
    let ml = graph.node.iter().any(|node| node.domain() == ML).then_some((ML, ML_OPSET));
    let opset =
        |(domain, version): (&str, i64)| proto::OperatorSet { domain: Some(domain.into()), version: Some(version) };
    let model = proto::Model {
        ir_version: Some(IR_VERSION),
        producer_name: Some("runner".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        graph: Some(graph),
        opset_import: [("", OPSET)].into_iter().chain(ml).map(opset).collect(),
        metadata_props,
    };
    Ok((model, t.notes))
}

/// A mistake of this program, which is reported as any other.
fn internal(why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::error(format!("the model could not be translated: {why}"))
        .help("this is a mistake in the program: please report it with the configuration")
}

/// Every operand is there before it is read.
fn check(graph: &proto::Graph) -> Result<(), Diagnostic> {
    let tensors = graph.initializer.iter().map(|t| t.name());
    let mut known: HashSet<&str> = tensors.chain(graph.input.iter().map(|value| value.name())).collect();
    // An operand that is left out has no name.
    known.insert("");
    for node in &graph.node {
        if let Some(missing) = node.input.iter().find(|name| !known.contains(name.as_str())) {
            return Err(internal(format!("`{}` reads `{missing}`, which is not there", node.name())));
        }
        known.extend(node.output.iter().map(String::as_str));
    }
    match graph.output.iter().find(|value| !known.contains(value.name())) {
        Some(value) => Err(internal(format!("nothing puts out `{}`", value.name()))),
        None => Ok(()),
    }
}

impl Translator<'_> {
    /// The parameters and buffers that the graph reads.
    fn parameters(&self, mut tensors: BTreeMap<String, Tensor>) -> Result<Vec<proto::Tensor>, Diagnostic> {
        let mut out = Vec::with_capacity(self.used.len());
        let wanted = self.source.variables.iter().filter(|(_, v)| self.used.contains(&v.name));
        for (_, variable) in wanted {
            let dims: Vec<i64> = variable.storage.outside.dims().iter().map(|n| *n as i64).collect();
            let data = match variable.kind {
                VarKind::Constant => crate::model::init::initial_outside(variable, self.source.experiment.seed),
                _ => {
                    let tensor = tensors.remove(&variable.name);
                    let fits = |t: &Tensor| t.dtype == variable.dtype && t.shape == variable.storage.outside.dims();
                    let tensor = tensor.filter(fits);
                    tensor.ok_or_else(|| internal(format!("`{}` is missing", variable.name)))?.data
                }
            };
            let data_type = match variable.dtype {
                DType::F32 => DataType::Float,
                DType::I64 => DataType::Int64,
                other => return Err(internal(format!("`{}` is of {other}", variable.name))),
            };
            let (data_type, name) = (Some(data_type.into()), Some(variable.name.clone()));
            out.push(proto::Tensor { dims, data_type, name, raw_data: Some(data), ..proto::Tensor::default() });
        }
        Ok(out)
    }

    /// Notes the shape of a layer's result.
    fn shown(&mut self, y: &Value) {
        let known = |info: &proto::ValueInfo| info.name() == y.name;
        if !self.results.iter().chain(&self.inputs).any(known) {
            self.results.push(value_info(&y.name, DataType::Float, &y.shape));
        }
    }
}

#[cfg(test)]
mod tests;

//! The graph of a model for TensorBoard, which folds it at the slashes in the names of its nodes: `graph.proto` and what it names, with their
//! numbers.

use super::event::{Dim, Shape};
use crate::graph::{VarKind, Variables};
use crate::model::{LayerRow, Operand};
use std::collections::{BTreeMap, HashMap, HashSet};

/// `GraphDef`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GraphDef {
    /// The nodes.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeDef>,
}

/// `NodeDef`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeDef {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it does.
    #[prost(string, tag = "2")]
    pub op: String,
    /// The names of the nodes whose results it takes.
    #[prost(string, repeated, tag = "3")]
    pub input: Vec<String>,
    /// Its attributes.
    #[prost(btree_map = "string, message", tag = "5")]
    pub attr: BTreeMap<String, AttrValue>,
}

/// `AttrValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AttrValue {
    /// What it is.
    #[prost(oneof = "Attr", tags = "1, 3")]
    pub value: Option<Attr>,
}

/// What an attribute is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Attr {
    /// Shapes.
    #[prost(message, tag = "1")]
    List(ListValue),
    /// A number.
    #[prost(int64, tag = "3")]
    Int(i64),
}

/// `AttrValue.ListValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// Shapes.
    #[prost(message, repeated, tag = "7")]
    pub shape: Vec<Shape>,
}

/// Where TensorBoard finds the shapes of what a node puts out.
const SHAPES: &str = "_output_shapes";

/// Something that the model is given.
#[derive(Debug, Clone, PartialEq)]
pub struct InputNode {
    /// Its name.
    pub name: String,
    /// The shape of a batch of it, in PyTorch's order.
    pub shape: crate::graph::Shape,
}

/// The end of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct LossNode {
    /// Its type.
    pub kind: String,
    /// What the outputs are compared with; of a model that learns what it is given, nothing else.
    pub targets: Vec<InputNode>,
}

impl NodeDef {
    fn new(name: String, op: &str, input: Vec<String>, shape: &crate::graph::Shape) -> NodeDef {
        let size = |d: &usize| Dim { size: i64::try_from(*d).unwrap_or(i64::MAX) };
        let shape = Shape { dims: shape.dims().iter().map(size).collect() };
        let shapes = AttrValue { value: Some(Attr::List(ListValue { shape: vec![shape] })) };
        NodeDef { name, op: op.to_owned(), input, attr: BTreeMap::from([(SHAPES.to_owned(), shapes)]) }
    }

    /// The same with a number as an attribute, unless it is 0.
    fn with(mut self, name: &str, number: u64) -> NodeDef {
        if number > 0 {
            let value = Some(Attr::Int(i64::try_from(number).unwrap_or(i64::MAX)));
            self.attr.insert(name.to_owned(), AttrValue { value });
        }
        self
    }
}

/// The graph of a model: its inputs, its layers with their parameters, and the loss. Layers of groups and blocks fold into one node. So does a
/// layer with its parameters; it has its type in its name, as in `features/0.conv2d`.
pub fn graph_def(rows: &[LayerRow], variables: &Variables, inputs: &[InputNode], loss: &LossNode) -> GraphDef {
    let mut of_layer: HashMap<&str, Vec<(String, &crate::graph::Variable)>> = HashMap::new();
    for (_, var) in variables.iter().filter(|(_, var)| var.kind == VarKind::Parameter) {
        let own = var.name.strip_prefix(&var.origin).map_or(var.name.as_str(), |rest| rest.trim_start_matches('.'));
        let name = if own.is_empty() { "parameter" } else { own };
        of_layer.entry(&var.origin).or_default().push((name.to_owned(), var));
    }
    let mut taken = HashSet::new();
    let input_name = |name: &str| format!("inputs/{name}");
    let target_name = |name: &str| format!("targets/{name}");
    let mut node = Vec::new();
    for InputNode { name, shape } in inputs {
        node.push(NodeDef::new(input_name(name), "input", Vec::new(), shape));
    }
    let mut names: Vec<String> = Vec::with_capacity(rows.len());
    for row in rows {
        let parameters = of_layer.remove(row.path.as_str()).unwrap_or_default();
        let inside = folded(row);
        let own = if parameters.is_empty() { inside.clone() } else { format!("{inside}/{}", row.kind) };
        // Containers need no names: several may be in one place.
        let mut others = (1..).map(|n| format!("{own}_{n}"));
        let own = std::iter::once(own.clone()).chain(&mut others).find(|name| taken.insert(name.clone()));
        let own = own.unwrap_or_default();
        let mut input: Vec<String> = row
            .from
            .iter()
            .map(|operand| match operand {
                Operand::Layer(number) => names.get(*number).cloned().unwrap_or_default(),
                Operand::Input(name) => input_name(name),
            })
            .collect();
        for (name, var) in parameters {
            let name = format!("{inside}/{name}");
            input.push(name.clone());
            node.push(NodeDef::new(name, "parameter", Vec::new(), &var.storage.outside));
        }
        let params = row.params as u64;
        let layer = NodeDef::new(own.clone(), &row.kind, input, &row.output);
        node.push(layer.with("parameters", params).with("flops", row.flops));
        names.push(own);
    }
    let mut compared: Vec<String> = names.last().cloned().into_iter().collect();
    for InputNode { name, shape } in &loss.targets {
        compared.push(target_name(name));
        node.push(NodeDef::new(target_name(name), "input", Vec::new(), shape));
    }
    node.push(NodeDef::new("loss".into(), &loss.kind, compared, &crate::graph::Shape::default()));
    GraphDef { node }
}

/// The name of a layer: its path with its type. What joins the ends of the layers of a container is among them.
fn folded(row: &LayerRow) -> String {
    let path = row.path.replace('/', "_").replace('.', "/");
    let container = ["residual", "gate", "branches"].contains(&row.kind.as_str());
    match (path.is_empty(), container) {
        (true, _) => row.kind.clone(),
        (false, true) => format!("{path}/{}", row.kind),
        (false, false) => format!("{path}.{}", row.kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::graph::DType;
    use crate::model::{Mode, forward};

    /// The nodes of a model of images, each with its type, its inputs and its shape.
    fn nodes_of(layers: &str) -> Vec<String> {
        let text = format!(
            "[data]\nsource = \"synthetic\"\nshape = [1, 6, 6]\nclasses = 3\nsamples = 4\nbatch_size = 2\n[model]\nlayers = [{layers}]\n\
             [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n"
        );
        let loaded = config::load_str("graph.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}"));
        let data = crate::data::DataSpec::labelled(DType::F32, [6, 6, 1], 3);
        let mut vars = Variables::new();
        let rows = forward(&loaded.experiment, &data, &mut vars, 2, Mode::Train).unwrap().rows;
        let node = |name: &str, shape: &[usize]| InputNode { name: name.into(), shape: shape.into() };
        let loss = LossNode { kind: "cross_entropy".into(), targets: vec![node("targets", &[2])] };
        let graph = graph_def(&rows, &vars, &[node("inputs", &[2, 1, 6, 6])], &loss);
        let one = |node: &NodeDef| {
            let Some(Attr::List(list)) = node.attr[SHAPES].value.clone() else { panic!("{node:?}") };
            let shape: Vec<i64> = list.shape[0].dims.iter().map(|d| d.size).collect();
            format!("{} {} {:?} {shape:?}", node.name, node.op, node.input)
        };
        graph.node.iter().map(one).collect()
    }

    #[test]
    fn layers_fold_by_what_they_are_in() {
        let layers = "{ name = \"block\", type = \"residual\", layers = [{ type = \"conv2d\", out_channels = 1, kernel_size = 3, padding = 1, bias = false }, \
                      \"relu\"] }, \"flatten\", { name = \"head\", type = \"linear\", out_features = 3 }";
        let expected = [
            r#"inputs/inputs input [] [2, 1, 6, 6]"#,
            r#"block/0.conv2d/weight parameter [] [1, 1, 3, 3]"#,
            r#"block/0.conv2d/conv2d conv2d ["inputs/inputs", "block/0.conv2d/weight"] [2, 1, 6, 6]"#,
            r#"block/1.relu relu ["block/0.conv2d/conv2d"] [2, 1, 6, 6]"#,
            r#"block/residual residual ["block/1.relu", "inputs/inputs"] [2, 1, 6, 6]"#,
            r#"1.flatten flatten ["block/residual"] [2, 36]"#,
            r#"head.linear/weight parameter [] [3, 36]"#,
            r#"head.linear/bias parameter [] [3]"#,
            r#"head.linear/linear linear ["1.flatten", "head.linear/weight", "head.linear/bias"] [2, 3]"#,
            r#"targets/targets input [] [2]"#,
            r#"loss cross_entropy ["head.linear/linear", "targets/targets"] []"#,
        ];
        assert_eq!(nodes_of(layers), expected);
    }

    /// Containers without names have the path of what they are in.
    #[test]
    fn every_node_has_a_name_of_its_own() {
        let residual = "{ type = \"residual\", layers = [\"relu\"] }";
        let nodes =
            nodes_of(&format!("{residual}, {residual}, \"flatten\", {{ type = \"linear\", out_features = 3 }}"));
        let of = |name: &str| nodes.iter().filter(|node| node.split(' ').next() == Some(name)).count();
        assert_eq!(
            ["residual", "residual_1", "0.relu", "0.relu_1", "residual_2"].map(of),
            [1, 1, 1, 1, 0],
            "{nodes:#?}"
        );
        assert!(nodes.iter().any(|node| node.contains("[\"0.relu_1\", \"residual\"]")), "{nodes:#?}");
    }

    #[test]
    fn layers_that_compute_nothing_are_there_and_branches_meet() {
        let layers = "\"identity\", { name = \"mix\", type = \"branches\", branches = [[\"relu\"], [\"identity\", \"tanh\"]], combine = \"concat\" }, \"flatten\", \
                      { type = \"linear\", out_features = 3, bias = false }";
        let nodes = nodes_of(layers);
        let of = |name: &str| {
            nodes.iter().find(|node| node.starts_with(name)).unwrap_or_else(|| panic!("{name}: {nodes:#?}"))
        };
        assert!(of("0.identity").contains("[\"inputs/inputs\"]"));
        assert!(of("mix/0/0.relu").contains("[\"0.identity\"]"));
        assert!(of("mix/1/0.identity").contains("[\"0.identity\"]"));
        assert!(of("mix/1/1.tanh").contains("[\"mix/1/0.identity\"]"));
        assert!(of("mix/branches").contains("[\"mix/0/0.relu\", \"mix/1/1.tanh\"] [2, 2, 6, 6]"), "{nodes:#?}");
    }
}

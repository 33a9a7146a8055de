//! Files as they are read back. That runtimes compute the same with them is held by `scripts/onnx_check.py`: a change of the snapshot
//! asks for that.

use super::proto::AttributeType;
use super::*;
use crate::config::declare::tagged::Tagged as _;
use crate::config::language::layers::Layer;
use crate::config::{self, LayerKind, LayerNode};
use crate::graph::Shape;
use crate::model::{BatchShape, Mode, forward, init};
use crate::train::setup::input::describe;
use crate::train::setup::transfer::in_state_dict;
use safetensors::SafeTensors;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A model with the values that it starts from, as a file that is read back.
pub(super) fn exported(experiment: &Experiment, options: Options) -> Result<proto::Model, Diagnostic> {
    let data = describe(experiment)?;
    let mut variables = Variables::new();
    let forward = forward(experiment, &data, &mut variables, BatchShape::from(2), Mode::Predict)
        .unwrap_or_else(|errors| panic!("{errors:?}"));
    let tensors: BTreeMap<String, Tensor> = variables
        .iter()
        .filter(|(_, v)| in_state_dict(v))
        .map(|(_, v)| {
            let shape = v.storage.outside.dims().to_vec();
            (v.name.clone(), Tensor { dtype: v.dtype, shape, data: init::initial_outside(v, experiment.seed) })
        })
        .collect();
    let source = Source { experiment, data: &data, rows: &forward.rows, variables: &variables };
    let exported = export(source, tensors.clone(), options)?;
    let model = proto::Model::decode(exported.bytes.as_slice()).expect("it is read back");
    // All parameters are there, to the bit.
    let graph = model.graph.as_ref().unwrap();
    let there: BTreeMap<&str, &proto::Tensor> = graph.initializer.iter().map(|t| (t.name(), t)).collect();
    for (name, tensor) in tensors.iter().filter(|(name, _)| !name.ends_with("num_batches_tracked")) {
        let found = there.get(name.as_str()).unwrap_or_else(|| panic!("`{name}` is left out"));
        let dims: Vec<usize> = found.dims.iter().map(|n| *n as usize).collect();
        assert_eq!((&dims, found.raw_data.as_ref()), (&tensor.shape, Some(&tensor.data)), "{name}");
    }
    assert_eq!(dims(&graph.output[0]), ["batch".into()].into_iter().chain(last_row(&forward.rows)).collect::<Vec<_>>());
    Ok(model)
}

fn last_row(rows: &[LayerRow]) -> impl Iterator<Item = String> {
    rows.last().map_or(Shape::default(), |row| row.output.clone()).0.into_iter().skip(1).map(|n| n.to_string())
}

pub(super) fn dims(info: &proto::ValueInfo) -> Vec<String> {
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).expect("a tensor");
    let dim = &tensor.shape.as_ref().expect("a shape").dim;
    dim.iter().map(|d| d.dim_param.clone().unwrap_or_else(|| d.dim_value().to_string())).collect()
}

/// The nodes in the order of the file: operands, where they are constants with their numbers, and attributes.
fn listed(graph: &proto::Graph, with_names: bool) -> String {
    let constant = |name: &str| {
        let t = graph.initializer.iter().find(|t| t.name() == name && name.starts_with("constant/"))?;
        let data = t.raw_data.as_deref()?;
        let numbers: Vec<String> = match t.data_type() {
            DataType::Int64 => data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b).to_string()).collect(),
            _ => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).to_string()).collect(),
        };
        let numbers = match numbers.len() {
            0..=8 => numbers.join(","),
            n => format!("{},… {n}", numbers[..3].join(",")),
        };
        Some(format!("[{numbers}]"))
    };
    let mut text = String::new();
    for node in &graph.node {
        let operands: Vec<String> =
            node.input.iter().filter_map(|name| constant(name).or_else(|| with_names.then(|| name.clone()))).collect();
        let attributes: String = node
            .attribute
            .iter()
            .map(|a| {
                let value = match a.r#type() {
                    AttributeType::Int => a.i().to_string(),
                    AttributeType::Float => a.f().to_string(),
                    AttributeType::String => String::from_utf8_lossy(a.s()).into_owned(),
                    AttributeType::Ints => format!("{:?}", a.ints).replace(' ', ""),
                    AttributeType::Strings => {
                        let words: Vec<String> =
                            a.strings.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                        words.join(",")
                    }
                    AttributeType::Graph => "{…}".into(),
                    AttributeType::Floats => format!("{:?}", a.floats),
                    AttributeType::Undefined => "?".into(),
                };
                format!(" {}={value}", a.name())
            })
            .collect();
        let results = if with_names { format!(" -> {}", node.output.join(", ")) } else { String::new() };
        let operands = operands.join(" ");
        let _ = writeln!(text, "{}({operands}){attributes}{results}", node.op_type());
    }
    text
}

/// The layers in a model.
fn kinds(layers: &[LayerNode], into: &mut BTreeSet<&'static str>) {
    for node in layers {
        into.insert(node.kind_name());
        match &node.kind {
            LayerKind::Layer(_) => {}
            LayerKind::Group(list) | LayerKind::Gate(list) => kinds(list, into),
            LayerKind::Branches { branches, .. } => kinds(branches, into),
            LayerKind::Residual { body, projection, .. } => {
                kinds(body, into);
                projection.iter().for_each(|p| kinds(std::slice::from_ref(p), into));
            }
        }
    }
}

/// The cases that the engine is held to PyTorch with, of which `scripts/onnx_check.py` holds runtimes to the same numbers.
fn cases() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = ["layers", "structure", "combinations"].map(|folder| std::fs::read_dir(golden.join(folder)).unwrap());
    let mut files: Vec<PathBuf> = files.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    // Activations of vectors are those of images.
    files.retain(|path| !path.file_stem().unwrap().to_str().unwrap().ends_with("_vector"));
    files.sort();
    files
}

/// Models of text and of a table, which are in `folder`.
fn of_text(folder: &Path) -> Vec<(String, String)> {
    std::fs::write(folder.join("a.txt"), "abcdefgh".repeat(40)).unwrap();
    std::fs::write(folder.join("a.csv"), "text,label\na b c d,x\nb d,y\nc a b,x\n").unwrap();
    std::fs::write(folder.join("b.csv"), "text,second,label\na b,c d,x\nb,d,y\nc a,b,x\n").unwrap();
    std::fs::write(folder.join("c.csv"), "x,kind,y\n1,ash,3\n2,elm,5\n4,ash,8\n").unwrap();
    let rest = "[loss]\ntype = 'cross_entropy'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n";
    let folder = folder.display();
    let language_model = format!(
        "[data]\nsource = 'text'\npath = '{folder}/a.txt'\ncontext = 6\nvalidation_split = 0.5\n[model]\nlayers = [\n  \
         {{ name = 'wte', type = 'embedding', num_embeddings = 8, embedding_dim = 8 }},\n  {{ name = 'qkv', type = 'linear', out_features = 16 }},\n  \
         {{ type = 'scaled_dot_product_attention', num_heads = 4, num_kv_heads = 2, is_causal = true, rope_theta = 100.0 }},\n  \
         {{ name = 'head', type = 'linear', out_features = 8, tie = 'wte.weight', bias = false }},\n]\n{rest}"
    );
    let classifier = |mode: &str| {
        format!(
            "[data]\nsource = 'text_classes'\npath = '{folder}/a.csv'\nvalidation_split = 0.4\nmax_length = 4\nbuckets = [4]\n[model]\nlayers = [\n  \
             {{ name = 'embedding', type = 'embedding', num_embeddings = 8, embedding_dim = 8 }},\n  {{ type = 'sequence_pool', mode = '{mode}' }},\n  \
             {{ name = 'head', type = 'linear', out_features = 2 }},\n]\n{rest}"
        )
    };
    let classifiers = ["mean", "sum", "max", "first", "last"].map(|mode| (format!("text_{mode}"), classifier(mode)));
    let states = "{ name = 'lstm', type = 'lstm', hidden_size = 3, num_layers = 2, bidirectional = true },\n  { type = 'sequence_pool'";
    let recurrent = classifier("last").replace("{ type = 'sequence_pool'", states);
    let types = "{ name = 'types', type = 'token_type_embedding' },\n  { type = 'sequence_pool'";
    let pairs = classifier("mean")
        .replace("{ type = 'sequence_pool'", types)
        .replace("a.csv'", "b.csv'\ntext = ['text', 'second']");
    let sinusoids = "{ type = 'position_embedding', kind = 'sinusoidal', max_length = 6 },\n  { type = 'sequence_pool'";
    let positions = classifier("mean").replace("{ type = 'sequence_pool'", sinusoids);
    let bag = classifier("mean").replace("type = 'embedding'", "type = 'embedding_bag', mode = 'sum'");
    let bag = bag.replace("  { type = 'sequence_pool', mode = 'mean' },\n", "");
    let table = format!(
        "[data]\nsource = 'csv'\npath = '{folder}/c.csv'\ntarget = 'y'\ncolumns = {{ kind = {{ type = 'category', embedding = 3 }} }}\n[model]\n\
         layers = ['tabular_input', {{ name = 'head', type = 'linear', out_features = 1 }}]\n{}",
        rest.replace("cross_entropy", "mse")
    );
    let others = [
        ("language_model", language_model),
        ("text_lstm", recurrent),
        ("text_pairs", pairs),
        ("text_positions", positions),
        ("text_bag", bag),
        ("tabular_input", table),
    ];
    let others = others.map(|(name, config)| (name.to_owned(), config));
    others.into_iter().chain(classifiers).collect()
}

/// Every layer of the language, alone and in all that holds layers.
#[test]
#[cfg_attr(miri, ignore = "reads many files")]
fn every_layer_is_translated() {
    let mut seen = BTreeSet::new();
    kinds(&small("[loss]\ntype = 'cross_entropy'\n").model.layers, &mut seen);
    let mut text = String::new();
    let dir = tempfile::tempdir().unwrap();
    for path in cases() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let batch: Vec<_> = file.iter().filter_map(|(n, view)| Some((n.strip_prefix("batch.")?, view))).collect();
        safetensors::serialize_to_file(batch, None, &dir.path().join("batch.safetensors")).unwrap();
        for (name, view) in file.iter().filter_map(|(n, view)| Some((n.strip_prefix("file.")?, view))) {
            std::fs::write(dir.path().join(name), view.data()).unwrap();
        }
        let toml = dir.path().join("config.toml");
        std::fs::write(&toml, &header.metadata().as_ref().unwrap()["config"]).unwrap();
        let loaded = config::load(&toml, &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        kinds(&loaded.experiment.model.layers, &mut seen);
        let model = exported(&loaded.experiment, Options::default()).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let graph = model.graph.as_ref().unwrap();
        let _ = writeln!(text, "{name}\n{}", listed(graph, false).trim_end().replace('\n', "; "));
    }
    for (name, config) in of_text(dir.path()) {
        let experiment =
            config::load_str("text.toml", &config, &[]).unwrap_or_else(|e| panic!("{name}: {e}")).experiment;
        kinds(&experiment.model.layers, &mut seen);
        let model = exported(&experiment, Options::default()).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let nodes = listed(model.graph.as_ref().unwrap(), false);
        let _ = writeln!(text, "{name}\n{}", nodes.trim_end().replace('\n', "; "));
    }
    let missing: Vec<&&str> = Layer::TYPES.iter().filter(|word| !seen.contains(**word)).collect();
    assert!(missing.is_empty(), "no case has {missing:?}");
    insta::assert_snapshot!(text);
}

fn small(rest: &str) -> Experiment {
    let text = format!(
        "seed = 3\n[data]\nsource = 'digits'\ntransforms = [{{ type = 'normalize', mean = [0.5], std = [0.25] }}]\n\
         [model]\nlayers = [\n  {{ name = 'conv', type = 'conv2d', out_channels = 2, kernel_size = 3 }},\n  'batch_norm2d', 'relu',\n  \
         {{ name = 'output', type = 'layer_scale' }},\n  {{ type = 'residual', layers = ['dropout', 'relu', {{ type = 'stochastic_depth', p = 0.5 }}] }},\n  'flatten',\n  \
         {{ name = 'fc', type = 'linear', out_features = 10 }},\n]\n{rest}[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
    );
    config::load_str("small.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).experiment
}

/// A small net: names as PyTorch has them, any number of samples, what the file says of itself.
#[test]
fn a_small_net() {
    let experiment = small("[loss]\ntype = 'cross_entropy'\n");
    let model = exported(&experiment, Options::default()).unwrap();
    assert_eq!((model.ir_version(), model.opset_import[0].version()), (8, 18));
    assert_eq!(model.producer_name(), "runner");
    let graph = model.graph.as_ref().unwrap();
    let edges = |graph: &proto::Graph| {
        let [x, y] =
            [&graph.input[..], &graph.output[..]].map(|list| (list[0].name().to_owned(), dims(&list[0]).join(" ")));
        (x, y)
    };
    let of = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    // A parameter has the name `output`.
    assert_eq!(edges(graph), (of("input", "batch 1 8 8"), of("output_1", "batch 10")));
    assert_eq!(
        listed(graph, true),
        "Conv(input conv.weight conv.bias) kernel_shape=[3,3] strides=[1,1] pads=[0,0,0,0] dilations=[1,1] group=1 -> conv/Conv\n\
         BatchNormalization(conv/Conv 1.weight 1.bias 1.running_mean 1.running_var) epsilon=0.00001 -> 1/BatchNormalization\n\
         Relu(1/BatchNormalization) -> 2/Relu\n\
         Mul(2/Relu output) -> output/Mul\n\
         Relu(output/Mul) -> 1/Relu\n\
         Add(1/Relu output/Mul) -> Add\n\
         Flatten(Add) axis=1 -> 5/Flatten\n\
         Gemm(5/Flatten fc.weight fc.bias) transB=1 -> output_1\n"
    );
    let shapes: Vec<String> = graph.value_info.iter().map(|v| format!("{} {}", v.name(), dims(v).join(" "))).collect();
    assert!(shapes.contains(&"5/Flatten batch 72".to_owned()), "{shapes:?}");
    let said = |model: &proto::Model, key: &str| {
        let entry = model.metadata_props.iter().find(|entry| entry.key() == key);
        entry.map(|entry| entry.value().to_owned()).unwrap_or_default()
    };
    for (key, value) in [
        ("runner_version", env!("CARGO_PKG_VERSION")),
        ("class_names", r#"["0","1","2","3","4","5","6","7","8","9"]"#),
        ("input_size", "[1,8,8]"),
        ("mean", "[0.5]"),
        ("std", "[0.25]"),
        ("preprocess", "outside"),
        ("output", "logits"),
    ] {
        assert_eq!(said(&model, key), value, "{key}");
    }

    let all = Options { softmax: true, preprocess: true };
    let model = exported(&experiment, all).unwrap();
    let graph = model.graph.as_ref().unwrap();
    assert_eq!(edges(graph).1, of("probabilities", "batch 10"));
    let list = listed(graph, true);
    let first = "Cast(input) to=1 -> Cast\nDiv(Cast [255]) -> Div\nSub(Div [0.5]) -> Sub\nDiv(Sub [0.25]) -> Div_1\nConv(Div_1 ";
    assert!(list.starts_with(first), "{list}");
    assert!(list.ends_with("-> fc/Gemm\nSoftmax(fc/Gemm) axis=-1 -> probabilities\n"), "{list}");
    let input = graph.input[0].r#type.as_ref().unwrap().tensor_type.as_ref().unwrap();
    assert_eq!(input.elem_type(), DataType::Uint8);
    assert_eq!((said(&model, "preprocess"), said(&model, "output")), ("inside".into(), "probabilities".into()));
}

/// With `preprocess`, images are resized, cropped and made grey inside; what has no form in ONNX with the same pixels is left outside.
#[test]
fn images_are_changed_inside() {
    let made = |transforms: &str| {
        let text = format!(
            "[data]\nsource = 'digits'\ntransforms = [{transforms}, {{ type = 'normalize', mean = [0.5], std = [0.5] }}]\n\
             [model]\nlayers = ['flatten', {{ type = 'linear', out_features = 10 }}]\n[loss]\ntype = 'cross_entropy'\n\
             [optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
        );
        let experiment = config::load_str("images.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).experiment;
        let model = exported(&experiment, Options { softmax: false, preprocess: true }).unwrap();
        let said =
            |key: &str| model.metadata_props.iter().find(|e| e.key() == key).map(|e| e.value().to_owned()).unwrap();
        let (preprocess, transforms) = (said("preprocess"), said("transforms"));
        let graph = model.graph.unwrap();
        let input = dims(&graph.input[0]).join(" ");
        let tensor = graph.input[0].r#type.as_ref().unwrap().tensor_type.as_ref().unwrap().elem_type();
        let branches =
            graph.node.iter().flat_map(|node| &node.attribute).filter_map(|attribute| attribute.g.as_deref());
        let products =
            |graph: &proto::Graph| graph.node.iter().filter(|node| node.op_type() == "MatMulInteger").count();
        let inside: Vec<usize> = branches.map(products).collect();
        (input, tensor, inside, preprocess, transforms)
    };
    let resize = "{ type = 'resize', size = 12 }, { type = 'center_crop', size = [10, 14] }, 'grayscale'";
    let (input, tensor, inside, preprocess, transforms) = made(resize);
    assert_eq!((input.as_str(), tensor, preprocess.as_str()), ("batch 1 8 8", DataType::Uint8, "inside"));
    assert_eq!(inside, [6, 6], "three products along each axis, in either order");
    assert!(transforms.starts_with(r#"[{"type":"resize","size":12"#), "{transforms}");
    // The nearest pixel is found by adding up steps, which ONNX does not do.
    let (input, _, inside, preprocess, _) = made("{ type = 'resize', size = [12, 9], interpolation = 'nearest' }");
    assert_eq!((input.as_str(), preprocess.as_str()), ("batch 1 12 9", "normalization inside"));
    assert!(inside.is_empty());
}

/// An export that is not possible is an error, and so is a graph that is not valid.
#[test]
fn refusals() {
    let text = "[data]\nsource = 'synthetic'\nshape = [4]\ntargets = 2\n[model]\nlayers = [{ type = 'linear', out_features = 2 }]\n\
                [loss]\ntype = 'mse'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n";
    let loaded = config::load_str("values.toml", text, &[]).unwrap();
    let error = exported(&loaded.experiment, Options { softmax: true, preprocess: false }).unwrap_err();
    assert!(error.message.contains("values, not classes") && error.span().is_some(), "{error:?}");
    fits(MAX_BYTES).unwrap();
    assert!(fits(MAX_BYTES + 1).unwrap_err().message.contains("less than 2 GiB"));
    // An operand that nothing makes.
    let node = |input: &str, output: &str| proto::Node {
        input: vec![input.into()],
        output: vec![output.into()],
        ..proto::Node::default()
    };
    let output = value_info("y", DataType::Float, &[1]);
    let input = value_info("x", DataType::Float, &[1]);
    let graph = |node| proto::Graph {
        node,
        input: vec![input.clone()],
        output: vec![output.clone()],
        ..proto::Graph::default()
    };
    check(&graph(vec![node("x", "a"), node("a", "y")])).unwrap();
    for wrong in [vec![node("b", "a"), node("a", "y")], vec![node("a", "y"), node("x", "a")], vec![node("x", "a")]] {
        assert!(check(&graph(wrong)).is_err());
    }
}

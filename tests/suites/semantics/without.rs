//! Passes make programs smaller and faster, and nothing else: each left out in turn, and the same bits on any number of
//! threads, for the configurations of the repository and for nets that have what the passes look for.

use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::config::{self, Experiment};
use runner::graph::op::Figure;
use runner::graph::{DType, Graph, VarKind};
use runner::model::Mode;
use runner::passes::PassOptions;
use runner::train::setup::input::describe;
use runner::train::setup::programs::{self, Programs, Sizes, pass_names};
use runner::train::setup::session::{Saved, Session, StepInputs};
use runner::train::setup::synthetic_batch;
use std::path::{Path, PathBuf};

const STEPS: u64 = 3;

/// Much for most of these nets, so that a wrong gradient shows; plain, since Adam makes whole steps of gradients that are
/// nothing but rounding, as those of a bias before a batch norm.
const OPTIMIZER: &str = "optimizer = { type = \"sgd\", lr = 0.02, momentum = 0.9 }";
const LR: f32 = 0.02;

/// Error allowed to losses, and to how far a variable has moved: sums of some thousand products in another order differ by
/// a few times 10⁻⁷, which twenty layers with normalisations and three steps make ten times more of. Kernels that add in
/// the same order, joined or not, differ by nothing.
const TOLERANCE: f64 = 1e-5;

/// What a variable's own numbers cannot show: a step's result is rounded to half of 2⁻²³.
const ROUNDING: f64 = STEPS as f64 * 6e-8;

/// What three steps lead to.
struct Outcome {
    /// The loss of every step, and of an evaluation after them.
    losses: Vec<f64>,
    /// Every variable before and after.
    states: [Vec<Saved>; 2],
    /// The operations of the training step, and of the evaluation.
    ops: Vec<String>,
    /// The graphs that have them.
    graphs: Vec<Graph>,
    /// What they need while they run.
    transient_bytes: usize,
}

fn build(experiment: &Experiment, batch: usize, backend: &CpuBackend, without: &[&str]) -> Programs {
    let data = describe(experiment).unwrap_or_else(|e| panic!("{e:?}"));
    let sizes = Sizes { train: vec![batch.into()], eval: vec![batch.into()], predict: Vec::new(), ..Sizes::default() };
    let options = PassOptions { without: without.iter().map(|name| name.to_string()).collect(), stop_after: None };
    programs::build(experiment, &data, &sizes, backend, &options).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn graphs(programs: &Programs) -> Vec<Graph> {
    programs.plan.programs.iter().map(|program| program.graph.clone()).collect()
}

/// The operations of all programs.
fn ops(programs: &Programs) -> Vec<String> {
    programs.plan.programs.iter().flat_map(|p| &p.graph.nodes).map(|n| n.op.label()).collect()
}

fn run(experiment: &Experiment, batch: usize, threads: usize, without: &[&str]) -> Outcome {
    run_with(experiment, batch, threads, without, LR)
}

fn run_with(experiment: &Experiment, batch: usize, threads: usize, without: &[&str], lr: f32) -> Outcome {
    let backend = CpuBackend::new(Some(threads)).unwrap();
    let data = describe(experiment).unwrap_or_else(|e| panic!("{e:?}"));
    let programs = build(experiment, batch, &backend, without);
    let plan = programs.plan.clone();
    let (ops, graphs) = (ops(&programs), graphs(&programs));
    let task = runner::model::task(experiment);
    let mut session = Session::new(programs, &backend, task, experiment.seed).unwrap();
    let mut buffer = backend.host_buffer(plan.slot.bytes).unwrap();
    let start = session.save(|v| v.kind != VarKind::Metric).unwrap();
    let mut losses = Vec::new();
    for step in 0..STEPS {
        synthetic_batch::fill(&mut buffer, &plan.slot, &data.fields, experiment.seed, step);
        let inputs = StepInputs { lr, lr_floor: 0.0, grad_scale: 1.0, seed: experiment.seed, micro_step: step };
        session.train(0, &mut buffer, batch, inputs).unwrap();
        session.losses(true, &mut losses).unwrap();
    }
    let end = session.save(|v| v.kind != VarKind::Metric).unwrap();
    session.reset_figures(Mode::Eval).unwrap();
    session.evaluate(0, &buffer, batch).unwrap();
    let eval = session.figures(Mode::Eval).unwrap().0.and_then(|f| f.get(Figure::Loss)).expect("a batch was evaluated");
    let losses = losses.into_iter().map(f64::from).chain([eval]).collect();
    Outcome { losses, states: [start, end], ops, graphs, transient_bytes: plan.transient_bytes }
}

fn floats(saved: &Saved) -> Vec<f64> {
    assert_eq!(saved.dtype, DType::F32, "{}", saved.name);
    saved.bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_ne_bytes(*b))).collect()
}

/// The Euclidean length of `a - b`.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// How far each variable has moved.
fn moved(outcome: &Outcome) -> Vec<f64> {
    let [start, end] = &outcome.states;
    let moved = |(a, b): (&Saved, &Saved)| match a.dtype {
        DType::F32 => distance(&floats(a), &floats(b)),
        _ => 0.0,
    };
    start.iter().zip(end).map(moved).collect()
}

/// Holds one outcome against that of all passes, whose variables have moved so far: what differs by more than rounding.
fn compare(whole: &Outcome, moved: &[f64], other: &Outcome) -> Result<(), String> {
    if whole.losses.iter().zip(&other.losses).any(|(a, b)| (a - b).abs() > TOLERANCE * a.abs()) {
        return Err(format!("losses {:?} and {:?}", whole.losses, other.losses));
    }
    let [start, end] = &whole.states;
    let [other_start, other_end] = &other.states;
    assert!(start == other_start, "another start");
    // A gradient that is zero but for rounding has the scale of those that it is the difference of.
    let most = moved.iter().copied().fold(0.0, f64::max);
    for ((a, b), moved) in end.iter().zip(other_end).zip(moved) {
        if a == b {
            continue;
        }
        if a.dtype != DType::F32 {
            assert!(a == b, "a counter: {a:?} and {b:?}");
            continue;
        }
        let (name, a, b) = (&a.name, floats(a), floats(b));
        let length = distance(&a, &vec![0.0; a.len()]);
        let allowed = TOLERANCE * moved + ROUNDING * length + 0.01 * TOLERANCE * most;
        let found = distance(&a, &b);
        if found > allowed {
            return Err(format!("`{name}` has moved by {moved:e} and differs by {found:e}; {allowed:e} is allowed"));
        }
    }
    Ok(())
}

/// Checks an experiment; the passes that make another program of it.
fn check(name: &str, experiment: &Experiment, batch: usize) -> Vec<&'static str> {
    let whole = run(experiment, batch, 1, &[]);
    assert!(whole.losses.iter().all(|l| l.is_finite()), "{name}: {:?}", whole.losses);
    let (moved, one) = (moved(&whole), CpuBackend::new(Some(1)).unwrap());
    let mut different = Vec::new();
    // Without `fusions`, none of its patterns is looked for; each has its turn.
    for pass in pass_names(true).into_iter().filter(|name| *name != "fusions") {
        // The same program need not be run again.
        if graphs(&build(experiment, batch, &one, &[pass])) == whole.graphs {
            continue;
        }
        let other = run(experiment, batch, 1, &[pass]);
        compare(&whole, &moved, &other).unwrap_or_else(|e| panic!("{name} without {pass}: {e}"));
        if whole.ops == other.ops {
            continue;
        }
        different.push(pass);
        // One moves operations, one moves a part of some, three compute again what is read else, one takes the update
        // apart, and one names the parts of a batch; the others take some away.
        let fewer = whole.ops.len() < other.ops.len();
        let more =
            ["reorder", "recompute", "rematerialize", "norm_grad", "norm_statistics", "update_early", "split_batch"];
        assert!(fewer || more.contains(&pass), "{name}: {pass} makes more operations");
    }
    let bare = run(experiment, batch, 2, &pass_names(true));
    compare(&whole, &moved, &bare).unwrap_or_else(|e| panic!("{name} without any: {e}"));

    for threads in [2, 5] {
        let other = run(experiment, batch, threads, &[]);
        assert_eq!(whole.losses, other.losses, "{name} on {threads} threads");
        assert!(whole.states == other.states, "{name} on {threads} threads comes to other bits");
    }
    different
}

fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn the_configurations_of_the_repository() {
    let effective: [(&str, usize, &[&str]); 8] = [
        ("autoencoder", 9, &["fuse"]),
        ("cifar10_resnet18", 3, &["reorder", "recompute", "fold", "norm_grad", "norm_statistics", "residual", "fuse"]),
        ("digits_cnn", 9, &["reorder", "pool", "fuse", "chain", "update_early"]),
        ("digits_transformer", 9, &["simplify", "residual", "fuse"]),
        (
            "fashion_cnn",
            4,
            &["reorder", "recompute", "fold", "pool", "norm_grad", "norm_statistics", "fuse", "chain", "update_early"],
        ),
        ("linear_regression", 100, &[]),
        ("mnist_cnn", 9, &["reorder", "pool", "fuse", "chain", "update_early"]),
        ("mnist_mlp", 33, &["fuse"]),
    ];
    let files = std::fs::read_dir(repository("configs")).unwrap();
    // That of photos has the net of another, at a size that takes half a minute, and so has that of an hour; that of a sweep extends another; the text of five is not in the repository, and samples here have one input, which sentences, opinions, dates and visits do not.
    let others = "the files of `configs` but for `ants_bees`, `cifar10_hour`, `dates_seq2seq`, `digits_sweep`, `gpt2_124m`, `opinions_lstm`, `sentences_lstm`, `shakespeare_bpe`, `shakespeare_char`, `shakespeare_char_gpu`, `shakespeare_lstm` and `visits_forecast`";
    assert_eq!(files.count(), effective.len() + 12, "{others}");
    let found = effective.map(|(name, batch, _)| {
        let path = repository(&format!("configs/{name}.toml"));
        let loaded = config::load(&path, &[OPTIMIZER.into()]).unwrap_or_else(|e| panic!("{e}"));
        (name, batch, check(name, &loaded.experiment, batch))
    });
    assert_eq!(found, effective.map(|(name, batch, passes)| (name, batch, passes.to_vec())));
}

/// A net of `layers` on made-up samples of `shape`, with `train` in the section of that name.
fn experiment(name: &str, shape: &str, layers: &str, train: &str) -> Experiment {
    let text = format!(
        "seed = 2\n{OPTIMIZER}\n[data]\nsource = 'synthetic'\nshape = {shape}\nclasses = 7\n[model]\nlayers = [{layers}]\n\
         [loss]\ntype = 'cross_entropy'\n[train]\nepochs = 1\n{train}\n"
    );
    config::load_str(name, &text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}")).experiment
}

/// Checks a net of `layers`.
fn net(name: &str, shape: &str, layers: &str, effective: &[&str]) {
    let found = check(name, &experiment(name, shape, layers, ""), 6);
    assert_eq!(found, effective, "{name}: the passes that make a difference");
}

/// Layers that are computed again lead to the very same bits, and the program needs less memory.
#[test]
fn what_is_computed_again_has_the_same_bits() {
    let conv =
        "{ type = 'conv2d', out_channels = 16, kernel_size = 3, padding = 1 }, 'batch_norm2d', 'silu', 'dropout'";
    let head = "{ type = 'adaptive_avg_pool2d', output_size = 1 }, 'flatten', { type = 'linear', out_features = 7 }";
    let block = |n: usize| format!("{{ name = 'r{n}', type = 'residual', layers = [{conv}, {conv}] }}");
    let blocks: Vec<String> = (1..6).map(block).collect();
    let layers = format!("{conv}, {}, {head}", blocks.join(", "));
    let experiment = |recompute: &str| experiment("again", "[3, 24, 24]", &layers, &format!("recompute = {recompute}"));
    let whole = run(&experiment("false"), 6, 2, &[]);
    for recompute in ["true", "['r*']", "['r2', 'r4']"] {
        let again = run(&experiment(recompute), 6, 2, &[]);
        assert!(again.ops.len() > whole.ops.len(), "{recompute}");
        assert_eq!(whole.losses, again.losses, "{recompute}");
        assert!(whole.states == again.states, "{recompute} comes to other bits");
        let (less, bytes) = (again.transient_bytes, whole.transient_bytes);
        assert!(less < bytes, "{recompute}: {less} of {bytes} bytes");
    }
    let experiment = experiment("true");
    assert_eq!(run(&experiment, 6, 2, &["rematerialize"]).ops, whole.ops);
    for pass in pass_names(true) {
        let other = run(&experiment, 6, 2, &[pass]);
        compare(&whole, &moved(&whole), &other).unwrap_or_else(|e| panic!("computed again without {pass}: {e}"));
    }
}

/// Convolutions of several sizes, with pooling after every second one: that of a stage's end joins its convolution.
#[test]
fn a_net_like_vgg() {
    let conv = |n: usize| format!("{{ type = 'conv2d', out_channels = {n}, kernel_size = 3, padding = 1 }}, 'relu',");
    let pool = "{ type = 'max_pool2d', kernel_size = 2 },";
    let stage = |n: usize| format!("{0} {0} {pool}", conv(n));
    let head =
        "'flatten', { type = 'linear', out_features = 40 }, 'relu', 'dropout', { type = 'linear', out_features = 7 }";
    let layers = format!("{} {} {} {pool} {head}", stage(16), stage(32), conv(48));
    net("vgg", "[3, 18, 22]", &layers, &["reorder", "pool", "fuse", "chain"]);
    // With normalisation, which pooling joins in evaluation.
    let (stages, head) = layers.split_once("'flatten'").unwrap();
    let layers = format!("{}'flatten'{head}", stages.replace("'relu',", "'batch_norm2d', 'relu',"));
    let effective = ["reorder", "recompute", "fold", "pool", "norm_grad", "norm_statistics", "fuse", "chain"];
    net("vgg_bn", "[3, 18, 22]", &layers, &effective);
}

/// Batch norm between a convolution and its activation, sums, pooling after an activation after a sum, and two norms
/// over images as PyTorch orders them, whose changes of order cancel.
#[test]
fn a_residual_net_with_batch_norm() {
    let conv = |n: usize, stride: usize| {
        format!(
            "{{ type = 'conv2d', out_channels = {n}, kernel_size = 3, stride = {stride}, padding = 1 }}, 'batch_norm2d'"
        )
    };
    let block = |name: &str, n: usize, stride: usize| {
        let projection =
            format!("{{ type = 'conv2d', out_channels = {n}, kernel_size = 1, stride = {stride} }}, 'batch_norm2d'");
        let layers = format!("{}, 'relu', {}", conv(n, stride), conv(n, 1));
        format!("{{ name = '{name}', type = 'residual', layers = [{layers}], projection = [{projection}] }}, 'relu',")
    };
    let pool = "{ type = 'max_pool2d', kernel_size = 2 },";
    let norm = "{ type = 'layer_norm', normalized_dims = 2 },";
    let head = "{ type = 'adaptive_avg_pool2d', output_size = 1 }, 'flatten', { type = 'linear', out_features = 7 }";
    let blocks = format!("{} {}", block("a", 16, 1), block("b", 24, 2));
    let layers = format!("{}, 'relu', {pool} {blocks} {pool} {norm} {norm} {head}", conv(16, 1));
    net(
        "residual",
        "[3, 17, 20]",
        &layers,
        &["reorder", "simplify", "recompute", "fold", "pool", "norm_grad", "norm_statistics", "residual", "fuse"],
    );
}

/// Batch norm in front of activations whose gradients need their operand, with depthwise convolutions and gates.
#[test]
fn a_net_like_mobile_net() {
    let block = |act: &str, residual: bool| {
        let layers = format!(
            "{{ type = 'conv2d', out_channels = 24, kernel_size = 1 }}, 'batch_norm2d', {act},
             {{ type = 'conv2d', out_channels = 24, kernel_size = 3, padding = 1, groups = 24 }}, 'batch_norm2d', {act},
             {{ type = 'gate', layers = [{{ type = 'adaptive_avg_pool2d', output_size = 1 }}, {{ type = 'conv2d', out_channels = 24, kernel_size = 1 }}, 'hardsigmoid'] }},
             {{ type = 'conv2d', out_channels = 12, kernel_size = 1 }}, 'batch_norm2d'"
        );
        if residual {
            format!("{{ name = 'r', type = 'residual', layers = [{layers}] }},")
        } else {
            format!("{layers},")
        }
    };
    let head = "{ type = 'adaptive_avg_pool2d', output_size = 1 }, 'flatten', { type = 'linear', out_features = 7 }";
    let layers = format!("{} {} {head}", block("'hardswish'", false), block("'silu'", true));
    net(
        "mobile",
        "[3, 17, 20]",
        &layers,
        &["recompute", "fold", "norm_grad", "norm_read", "norm_statistics", "residual", "fuse", "chain"],
    );
}

/// Images that are too large for a cache, in layers that an evaluation goes through for some samples at a time.
#[test]
fn a_net_of_large_images() {
    let block = "{ type = 'conv2d', out_channels = 48, kernel_size = 1 }, 'batch_norm2d', 'relu6',
                 { type = 'conv2d', out_channels = 48, kernel_size = 3, padding = 1, groups = 48 }, 'batch_norm2d', 'relu6',
                 { type = 'conv2d', out_channels = 16, kernel_size = 1 }, 'batch_norm2d'";
    let head = "{ type = 'adaptive_avg_pool2d', output_size = 1 }, 'flatten', { type = 'linear', out_features = 7 }";
    let stem = "{ type = 'conv2d', out_channels = 16, kernel_size = 3, padding = 1 }, 'batch_norm2d'";
    let layers = format!("{stem}, {{ name = 'r', type = 'residual', layers = [{block}] }}, {head}");
    let experiment = experiment("large", "[3, 96, 96]", &layers, "");
    let effective =
        ["recompute", "fold", "norm_grad", "norm_read", "norm_statistics", "residual", "fuse", "split_batch"];
    assert_eq!(check("large", &experiment, 6), effective);
    let evaluation = |without: &[&str]| {
        let programs = build(&experiment, 6, &CpuBackend::new(Some(1)).unwrap(), without);
        let program = programs.plan.programs.iter().find(|program| program.name.starts_with("eval")).unwrap();
        (program.transient_bytes, program.graph.rounds().iter().map(|rounds| rounds.parts).max())
    };
    let ((less, parts), (bytes, whole)) = (evaluation(&[]), evaluation(&["split_batch"]));
    assert_eq!((parts, whole), (Some(3), Some(1)));
    assert!(2 * less < bytes, "{less} of {bytes} bytes");
}

#[test]
fn a_perceptron_with_every_activation() {
    let names = [
        "'relu'",
        "'relu6'",
        "{ type = 'leaky_relu', negative_slope = 0.1 }",
        "'elu'",
        "'gelu'",
        "{ type = 'gelu', approximate = 'tanh' }",
        "'silu'",
        "'tanh'",
        "'sigmoid'",
        "'hardsigmoid'",
        "'hardswish'",
        "'mish'",
        "'softplus'",
        "'selu'",
        "'celu'",
        "'softsign'",
        "'log_sigmoid'",
        "'sin'",
        "'cos'",
        "'hardtanh'",
        "{ type = 'softshrink', lambd = 0.01 }",
        "'tanhshrink'",
    ];
    let layers: String = names.iter().map(|act| format!("{{ type = 'linear', out_features = 24 }}, {act}, ")).collect();
    net("perceptron", "[13]", &format!("{layers} {{ type = 'linear', out_features = 7 }}"), &["fuse"]);
}

/// The check itself notices what is hardly more than rounding.
#[test]
fn steps_that_are_too_long_are_noticed() {
    let loaded = config::load(&repository("configs/digits_cnn.toml"), &[OPTIMIZER.into()]).unwrap();
    let steps = |lr: f32| run_with(&loaded.experiment, 4, 1, &[], lr);
    let one = steps(LR);
    let error = compare(&one, &moved(&one), &steps(LR * 1.0001)).unwrap_err();
    assert!(error.contains("has moved by"), "{error}");
}

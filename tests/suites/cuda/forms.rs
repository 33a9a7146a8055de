//! In which forms a convolution is asked of cuDNN, and which ones are not asked of it at all.

use super::convolutions::{CONV, Way};
use super::emulator::Fault;
use super::harness::Steps;
use super::plans::{Lab, TENSOR, choice, graph, plain, plans};
use runner::backend::Backend;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::Wanted;
use runner::graph::DType;
use runner::graph::op::Conv2d;
use std::path::Path;

/// What the library is not known to take, it is not asked for, however much it is to be used.
#[test]
fn the_library_is_not_asked_for_what_no_network_has() {
    let Some(lab) = Lab::new() else { return };
    let uneven = Conv2d { padding: [0, 2, 1, 1], ..CONV };
    let groups = Conv2d { groups: 4, ..CONV };
    for way in [Way::Forward, Way::Input, Way::Weight] {
        for conv in [&uneven, &groups] {
            let backend = lab.backend(None);
            let graph = graph(conv, way, DType::BF16);
            backend.workspace(&graph, &graph.nodes[0]);
            assert_eq!(backend.choices(), None, "{way:?}, {conv:?}");
        }
    }
}

/// The gradient of a weight in 16 bits, where that is the fastest: only if it is measured.
#[test]
fn a_weights_gradient_may_be_of_its_operands_type_where_that_is_faster() {
    let Some(lab) = Lab::new() else { return };
    lab.plant_all(Fault::SlowWide);
    let cache = lab.cache();
    let of = |cache: Option<&Path>, dtype| choice(&lab.backend(cache), &CONV, Way::Weight, dtype);
    assert!(of(Some(&cache), DType::BF16).starts_with("narrow eng"));
    assert_eq!(of(None, DType::BF16), plain(TENSOR));
    assert_eq!(of(Some(&cache), DType::F32), of(Some(&cache), DType::F32));
    // A sum over many pixels may exceed the range of these 16 bits.
    assert!(!of(Some(&cache), DType::F16).starts_with("narrow"));
    // The same choice again, of a checkpoint.
    let backend = lab.backend(Some(&cache));
    choice(&backend, &CONV, Way::Weight, DType::BF16);
    let resumed = lab.backend(None);
    assert_eq!(resumed.take_choices(&backend.choices().unwrap()), None);
    assert!(choice(&resumed, &CONV, Way::Weight, DType::BF16).starts_with("narrow eng"));
    // In a program, whose workspace has the gradient before it is converted.
    let text = NARROW.trim_start();
    let run = |backend: &CudaBackend| Steps::new(2, 4).run(text, Path::new(env!("CARGO_MANIFEST_DIR")), backend);
    let backend = lab.backend(Some(&cache));
    let outcome = run(&backend);
    assert_eq!(backend.notes(), Vec::<String>::new());
    let choices = plans(&backend.choices().unwrap());
    assert!(choices.values().any(|choice| choice.starts_with("narrow eng")), "{choices:?}");
    assert_eq!(run(&backend.with_graph(false)), outcome);
    let own = run(&CudaBackend::new(0).unwrap().with_libraries(&Wanted::default()));
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 0.1 * a.abs();
    assert!(own.losses.iter().zip(&outcome.losses).all(near), "{:?}, {:?}", own.losses, outcome.losses);
}

/// A convolution whose weight has a gradient.
const NARROW: &str = r#"
seed = 1
precision = "bf16"
data = { source = "synthetic", shape = [8, 6, 5], classes = 5, samples = 64, val_samples = 16, batch_size = 4 }
model.layers = [
  { type = "conv2d", out_channels = 16, kernel_size = 3, padding = 1, bias = false },
  "flatten",
  { type = "linear", out_features = 5 },
]
loss.type = "cross_entropy"
optimizer = { type = "sgd", lr = 0.05 }
train.epochs = 1
"#;

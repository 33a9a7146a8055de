//! Convolutions alone: graphs of one, and what the library has for those of usual networks.

use super::emulator;
use runner::backend::Backend;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::{Source, Wanted};
use runner::graph::op::{Activation, Conv2d, Conv2dGradInput, Conv2dGradWeight, Fused};
use runner::graph::{DType, Graph, Op, Role, Shape};

/// A kernel of three by three that leaves an image's size as it is.
pub const CONV: Conv2d = Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 1, bias: false };

/// What of a convolution is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    Forward,
    /// With an activation after it.
    Activated(Activation),
    Input,
    Weight,
}

/// The graph of `conv` on images `[N, H, W, I]` with a kernel `[O, KH, KW]`, or of one of its gradients.
pub fn convolution(conv: &Conv2d, way: Way, dtype: DType, x: [usize; 4], [o, kh, kw]: [usize; 3]) -> Graph {
    let mut graph = Graph::new();
    let [n, h, w, i] = x;
    let [oh, ow] = conv.out([h, w], [kh, kw]).unwrap();
    let mut value = |dtype, shape: [usize; 4]| graph.add_value(dtype, Shape::from(shape), Role::Temporary);
    let (x, weight, y) = (value(dtype, x), value(dtype, [o, kh, kw, i / conv.groups]), value(dtype, [n, oh, ow, o]));
    let (op, mut operands): (Op, Vec<_>) = match way {
        Way::Forward => (conv.clone().into(), vec![x, weight]),
        Way::Activated(act) => {
            let operands = 2 + usize::from(conv.bias);
            (Fused::activated(conv.clone(), operands, Some(act)), vec![x, weight])
        }
        Way::Input => {
            let op = Conv2dGradInput { conv: conv.clone(), input: [h, w] };
            (op.into(), vec![y, weight])
        }
        Way::Weight => {
            let op = Conv2dGradWeight { conv: conv.clone(), kernel: [kh, kw], bias: false };
            (op.into(), vec![x, y])
        }
    };
    if matches!(way, Way::Forward | Way::Activated(_)) && conv.bias {
        operands.push(graph.add_value(DType::F32, Shape::from([o]), Role::Temporary));
    }
    graph.add(op, &operands).unwrap();
    graph
}

/// What is chosen for the convolutions of usual networks, in every precision: printed, to see on a GPU which engines its
/// cuDNN has. That whatever is chosen is right has been checked when it was.
#[test]
fn plans_of_usual_convolutions() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    let cudnn = match emulator::emulated() {
        true => emulator::nvidia_library("libcudnn.so").map_or(Source::Nowhere, Source::File),
        false => Source::Found,
    };
    let wanted = Wanted { cudnn, everywhere: true, ..Wanted::default() };
    let open = CudaBackend::new(0).unwrap().with_libraries(&wanted);
    if open.libraries().dnn().is_none() {
        println!("skipped: there is no cuDNN to be used; {}", open.libraries().problems().join("; "));
        return;
    }
    // Images and channels; the emulated driver takes its time for each.
    let (images, scale) = if emulator::emulated() { (1, 8) } else { (64, 1) };
    let biased = Conv2d { bias: true, ..CONV };
    let relu = Way::Activated(Activation::Relu);
    let strided = Conv2d { stride: [2, 2], ..CONV };
    let grouped = Conv2d { groups: 2, ..CONV };
    let cases = [
        ("3x3, 64 to 64 at 56x56", &CONV, Way::Forward, 56, 64),
        ("3x3, bias, ReLU, 128 to 128 at 28x28", &biased, relu, 28, 128),
        ("3x3, stride 2, 128 to 128 at 56x56", &strided, Way::Forward, 56, 128),
        ("3x3, groups 2, 256 to 256 at 14x14", &grouped, Way::Forward, 14, 256),
        ("3x3, 512 to 512 at 7x7", &CONV, Way::Forward, 7, 512),
    ];
    println!(
        "| convolution | precision | forward | data gradient | weight gradient |\n| --- | --- | --- | --- | --- |"
    );
    for (name, conv, forward, side, channels) in cases {
        let (side, channels) = (side / if scale > 1 { 7 } else { 1 }, channels / scale);
        for (precision, dtype, tf32) in [
            ("fp32", DType::F32, false),
            ("tf32", DType::F32, true),
            ("bf16", DType::BF16, false),
            ("fp16", DType::F16, false),
        ] {
            let chosen = [forward, Way::Input, Way::Weight].map(|way| {
                // Each choice is made by a backend that has made no other.
                let backend = CudaBackend::new(0).unwrap().with_libraries(&wanted).with_tf32(tf32);
                let size = side.max(3);
                let graph = convolution(conv, way, dtype, [images, size, size, channels], [channels, 3, 3]);
                backend.workspace(&graph, &graph.nodes[0]);
                let said: serde_json::Value = serde_json::from_str(&backend.choices().unwrap()).unwrap();
                let plans = said["plans"].as_object().unwrap();
                assert_eq!(plans.len(), 1);
                backend.notes().iter().for_each(|note| println!("{note}"));
                plans.values().next().unwrap().as_str().unwrap().to_owned()
            });
            println!("| {name} | {precision} | {} |", chosen.join(" | "));
            assert!(!emulator::emulated() || chosen[..2].iter().all(|choice| choice != "own"), "{chosen:?}");
        }
    }
}

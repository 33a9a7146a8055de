use super::*;
use crate::graph::op::{Binary, BinaryKind, Conv2d, Dropout, GradNorm, Linear, MaxPool2d, Permute, Softmax};
use crate::graph::{DType, Role, Shape, VarId};

/// The outputs of `op` on operands given as shape and elements.
fn run(op: impl Into<Op>, operands: &[(&[usize], &[f64])]) -> Vec<Vec<f64>> {
    let mut graph = Graph::new();
    let mut values = Values::new();
    let mut ids = Vec::new();
    for (i, (dims, data)) in operands.iter().enumerate() {
        let id = graph.add_value(DType::F32, Shape::from(*dims), Role::State(VarId(i as u32)));
        values.insert(id, data.to_vec());
        ids.push(id);
    }
    let outputs = graph.add(op, &ids).unwrap();
    evaluate(&graph, &mut values);
    outputs.iter().map(|o| values[o].clone()).collect()
}

#[test]
fn products_by_hand() {
    let y = run(
        Linear { bias: true, act: None },
        &[(&[1, 2], &[1.0, 2.0]), (&[2, 2], &[1.0, 10.0, 100.0, 1000.0]), (&[2], &[0.5, 0.25])],
    );
    assert_eq!(y, [[21.5, 2100.25]]);
    // Two channels of a 1×3 image, padded on the right alone; the kernel takes a pixel and its right neighbour.
    let conv = Conv2d { stride: [1, 1], padding: [0, 0, 0, 1], dilation: [1, 1], groups: 1, bias: false, act: None };
    let y =
        run(conv, &[(&[1, 1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (&[1, 1, 2, 2], &[1.0, 10.0, 100.0, 1000.0])]);
    assert_eq!(y, [[4321.0, 6543.0, 65.0]]);
}

#[test]
fn windows_by_hand() {
    let pool = MaxPool2d { kernel: [1, 2], stride: [1, 2], padding: [0, 0], dilation: [1, 1], ceil_mode: true };
    let y = run(pool, &[(&[1, 1, 5, 1], &[3.0, 3.0, 1.0, 2.0, -7.0])]);
    // The first of equals; the last window has one pixel.
    assert_eq!(y, [[3.0, 2.0, -7.0], [0.0, 1.0, 0.0]]);
}

#[test]
fn broadcasts_and_axes_by_hand() {
    let add = Binary { kind: BinaryKind::Add, act: None };
    assert_eq!(run(add, &[(&[2, 1], &[1.0, 2.0]), (&[1, 2], &[10.0, 20.0])]), [[11.0, 21.0, 12.0, 22.0]]);
    let y = run(Permute { perm: vec![1, 0] }, &[(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])]);
    assert_eq!(y, [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]);
}

#[test]
fn sums_by_hand() {
    let y = run(Softmax {}, &[(&[1, 2], &[0.0, 3f64.ln()])]);
    assert!((y[0][0] - 0.25).abs() < 1e-15 && (y[0][1] - 0.75).abs() < 1e-15);
    let norm = run(GradNorm {}, &[(&[4], &[0.1, 0.5, 2.0, 0.0]), (&[1], &[3.0]), (&[2], &[0.0, -4.0])]);
    assert_eq!(norm, [[1.25]]);
}

#[test]
fn dropout_scales_what_it_keeps() {
    let y = run(Dropout { p: 0.5, stream: 1 }, &[(&[100], &[1.0; 100]), (&[4], &[1.0, 2.0, 3.0, 4.0])]);
    let kept = y[0].iter().filter(|v| **v != 0.0).count();
    assert!(y[0].iter().all(|v| *v == 0.0 || *v == 2.0) && (30..70).contains(&kept), "{kept}");
}

//! What may lie in memory rounded to bf16 where products are made in it: see [`crate::graph::Value::narrow`].

use super::fusions::{Behind, Known};
use super::lower::conv_shape;
use super::ops::conv::Conv2dKernel;
use super::ops::linear::{LinearKernel, LinearShape};
use crate::graph::{Graph, Narrow, Narrows, Node, Op, ValueId};
use crate::simd::bf16::Bf16Unit;

/// What the kernels of `unit` read and write in either width.
pub fn narrows(unit: Bf16Unit) -> Narrows {
    match unit {
        Bf16Unit::Avx512 => |graph, node| narrows_of(graph, node, Bf16Unit::Avx512),
        Bf16Unit::Amx | Bf16Unit::Plain => |graph, node| narrows_of(graph, node, Bf16Unit::Amx),
    }
}

fn narrows_of(graph: &Graph, node: &Node, unit: Bf16Unit) -> Narrow {
    let (head, behind) = match &node.op {
        Op::Fused(op) => match Known::of(op) {
            Known::Head(head, behind) => (head, behind),
            _ => return element_wise(graph, node),
        },
        Op::Binary(_) => return element_wise(graph, node),
        op => (op, Behind::default()),
    };
    let x = |i: usize| graph.shape(node.inputs[i]);
    let y = || graph.shape(node.outputs[0]);
    let takes = match head {
        Op::Linear(_) => LinearKernel::takes_rounded(
            LinearShape { rows: x(0).rows(), inputs: x(0).last(), outputs: y().last() },
            unit,
        ),
        Op::Conv2d(op) => Conv2dKernel::takes_rounded(op, conv_shape(x(0), x(1), y()), unit, behind.summand.is_some()),
        Op::Normalize(_) => return Narrow { reads: vec![], writes: vec![0] },
        Op::MaxPool2d(_) | Op::AvgPool2d(_) | Op::AdaptiveAvgPool2d(_) | Op::Activation(_) => true,
        _ => false,
    };
    if !takes {
        return Narrow::default();
    }
    Narrow { reads: [0].into_iter().chain(behind.summand).collect(), writes: vec![0] }
}

/// What a chain of element-wise operations reads and writes: all that is not stretched.
fn element_wise(graph: &Graph, node: &Node) -> Narrow {
    let is_chain = match &node.op {
        Op::Fused(op) => op.steps.iter().all(|step| step.op.element_wise().is_some()),
        op => op.element_wise().is_some(),
    };
    let is_whole = |v: &ValueId| graph.shape(*v) == graph.shape(node.outputs[0]);
    let whole = |list: &[ValueId]| -> Vec<usize> { (0..list.len()).filter(|i| is_whole(&list[*i])).collect() };
    let narrow = Narrow { reads: whole(&node.inputs), writes: whole(&node.outputs) };
    if is_chain && !narrow.reads.is_empty() { narrow } else { Narrow::default() }
}

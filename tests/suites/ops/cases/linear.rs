use super::ACTIVATIONS;
use crate::case::{Case, Draw};
use runner::graph::op::Linear;

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    // Rows, inputs, outputs: single ones, odd ones, and sizes on both sides of common vector and tile widths.
    let sizes = [
        (1, 1, 1),
        (1, 5, 3),
        (3, 1, 2),
        (4, 7, 1),
        (5, 16, 10),
        (17, 33, 15),
        (13, 64, 65),
        (64, 48, 10),
        (2, 100, 31),
    ];
    for (rows, inputs, outputs) in sizes {
        for bias in [false, true] {
            list.push(Case::new(format!("linear {rows}×{inputs} to {outputs}, bias {bias}"), Linear { bias }, |d| {
                let mut operands = vec![d.normal([rows, inputs]).wrt(), d.normal([outputs, inputs]).wrt()];
                if bias {
                    operands.push(d.normal([outputs]).wrt());
                }
                operands
            }));
        }
    }
    list.push(Case::new("linear over three axes", Linear { bias: true }, |d| {
        vec![d.normal([2, 3, 5]).wrt(), d.normal([4, 5]).wrt(), d.normal([4]).wrt()]
    }));
    // What a frozen neighbour leaves of the gradients.
    for wanted in [[true, false, false], [false, true, false], [false, false, true], [false, true, true]] {
        list.push(Case::new(format!("linear, gradients wanted {wanted:?}"), Linear { bias: true }, |d: &mut Draw| {
            let mut operands = vec![d.normal([6, 5]), d.normal([3, 5]), d.normal([3])];
            for (o, w) in operands.iter_mut().zip(wanted) {
                o.wrt = w;
            }
            operands
        }));
    }
    for act in ACTIVATIONS {
        let case = Case::new(format!("linear and {act:?}"), Linear { bias: true }, |d| {
            vec![d.normal([9, 11]), d.normal([19, 11]), d.normal([19])]
        });
        list.push(case.activated(Some(act)));
    }
    list
}

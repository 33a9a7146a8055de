use super::ACTIVATIONS;
use crate::case::{Case, Operand};
use runner::graph::op::{ActivationOp, Binary, BinaryKind, Cast, Dropout, SumTo};
use runner::graph::{DType, Input, Shape};

/// Where some activation of the list has a kink, or jumps.
const KINKS: [f64; 12] = [0.0, -3.0, 3.0, 6.0, 2.0 / 1.7, -1.3, 0.8, 0.6, -0.6, 0.4, -0.4, 1.3];

/// Keeps at a distance from the points where some activation has a kink.
fn away_from_kinks(x: f64) -> f64 {
    KINKS.iter().fold(x, |x, kink| if (x - kink).abs() < 0.05 { kink + 0.07 } else { x })
}

fn activations(list: &mut Vec<Case>) {
    for act in ACTIVATIONS {
        for shape in [vec![3, 7], vec![2, 3, 5, 4], vec![1, 1], vec![129]] {
            list.push(Case::new(format!("{act:?} of {shape:?}"), ActivationOp { act }, |d| {
                vec![d.normal(shape).map(|x| away_from_kinks(3.0 * x)).wrt()]
            }));
        }
        let special = vec![
            0.0, -0.0, 6.0, 20.0, -20.0, 100.0, -100.0, 1e-8, -1e-8, 9.0, -9.0, 1e-40, -1e-40, 3e4, -3e4, 88.9, -88.9,
        ];
        let case = Case::new(format!("{act:?} at special points"), ActivationOp { act }, |_| {
            let operand = Operand::new(DType::F32, [special.len()], special.clone());
            vec![operand.map(|x| x).wrt()]
        });
        list.push(case.kinked());
    }
}

fn binaries(list: &mut Vec<Case>) {
    let shapes: [(&[usize], &[usize]); 14] = [
        (&[3, 5], &[3, 5]),
        (&[2, 3, 5, 4], &[2, 3, 5, 4]),
        (&[2, 3, 5, 4], &[2, 1, 1, 4]),
        (&[2, 1, 1, 4], &[2, 3, 5, 4]),
        (&[2, 3, 5, 4], &[1, 1, 1, 4]),
        (&[2, 3, 5, 4], &[2, 3, 5, 1]),
        (&[4, 1], &[1, 3]),
        (&[2, 1, 3], &[1, 4, 3]),
        (&[1], &[7]),
        (&[3, 35], &[1, 1]),
        // Rows of whole vectors, and more of them than a block of threads has.
        (&[2, 3, 3, 8], &[2, 1, 1, 8]),
        (&[2, 3, 3, 16], &[2, 3, 3, 1]),
        (&[1, 24], &[300, 24]),
        (&[2, 1, 3, 1], &[1, 4, 1, 8]),
    ];
    for kind in [BinaryKind::Add, BinaryKind::Mul] {
        for (a, b) in shapes {
            list.push(Case::new(format!("{kind:?} of {a:?} and {b:?}"), Binary { kind }, |d| {
                vec![d.normal(a).wrt(), d.normal(b).wrt()]
            }));
        }
        list.push(Case::new(format!("{kind:?}, one gradient wanted"), Binary { kind }, |d| {
            vec![d.normal([3, 5]), d.normal([1, 5]).wrt()]
        }));
        for act in ACTIVATIONS {
            let case = Case::new(format!("{kind:?} and {act:?}"), Binary { kind }, |d| {
                vec![d.normal([2, 3, 3, 5]), d.normal([2, 3, 3, 5])]
            });
            list.push(case.activated(Some(act)));
        }
    }
}

fn sums(list: &mut Vec<Case>) {
    let shapes: [(&[usize], &[usize]); 12] = [
        (&[6, 5], &[5]),
        (&[2, 3, 5, 17], &[17]),
        (&[2, 3, 5, 4], &[2, 1, 1, 4]),
        (&[2, 3, 5, 4], &[2, 3, 5, 1]),
        (&[2, 3, 5, 4], &[1, 1, 1, 1]),
        (&[70, 3], &[1, 3]),
        (&[9], &[9]),
        // Sums of which every other axis stays.
        (&[3, 4, 5], &[1, 4, 1]),
        (&[3, 4, 5, 6], &[3, 1, 5, 1]),
        // Enough rows to be divided.
        (&[4100], &[1]),
        (&[700, 3], &[3]),
        (&[2, 150, 40], &[2, 1, 40]),
    ];
    for (from, to) in shapes {
        list.push(Case::new(format!("sum of {from:?} to {to:?}"), SumTo { shape: Shape::from(to) }, |d| {
            // Sums over leading axes are made by gradient rules alone.
            let x = d.normal(from);
            vec![if to.len() == from.len() { x.wrt() } else { x }]
        }));
    }
}

fn dropouts(list: &mut Vec<Case>) {
    for (p, stream, shape) in
        [(0.0, 0, vec![3, 5]), (0.1, 1, vec![2, 3, 5, 3]), (0.5, 2, vec![7, 19]), (0.9, 300, vec![1, 131])]
    {
        list.push(Case::new(format!("dropout {p} of {shape:?}"), Dropout { p, stream }, |d| {
            let key = d.below(DType::U32, [4], 1 << 20).input(Input::Random);
            vec![d.normal(shape).wrt(), key]
        }));
    }
    list.push(Case::new("dropout under a key of large words", Dropout { p: 0.3, stream: 5 }, |d| {
        let words = [u32::MAX, 0x8000_0001, 0xffff_fff0, 3].map(f64::from);
        vec![d.normal([33]).wrt(), Operand::new(DType::U32, [4], words.to_vec()).input(Input::Random)]
    }));
}

fn casts(list: &mut Vec<Case>) {
    for shape in [vec![1], vec![2, 3, 5, 4], vec![131]] {
        list.push(Case::new(format!("cast of {shape:?} to f32"), Cast { to: DType::F32 }, |d| {
            vec![d.normal(shape).wrt()]
        }));
    }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    casts(&mut list);
    activations(&mut list);
    binaries(&mut list);
    sums(&mut list);
    dropouts(&mut list);
    list
}

use crate::case::{Case, Operand};
use runner::graph::op::Rotary;
use runner::graph::{DType, Input};

/// Samples, positions, heads, heads of the keys, floats of a head, rows of the table; where samples begin.
fn case([n, l, heads, kv_heads, width, rows]: [usize; 6], first: Option<&[i32]>) -> Case {
    let name = format!("rotary of {n} × {l}, {heads} and {kv_heads} heads of {width}, {rows} angles, from {first:?}");
    Case::new(name, Rotary { heads, kv_heads, position: first.is_some(), back: false }, |d| {
        let mut operands = vec![d.normal([n, l, (heads + 2 * kv_heads) * width]).wrt(), d.normal([rows, width])];
        operands.extend(first.map(|first| {
            let data = first.iter().map(|p| f64::from(*p)).collect();
            Operand::new(DType::I32, [n], data).input(Input::Field(1))
        }));
        operands
    })
}

pub fn cases() -> Vec<Case> {
    vec![
        case([1, 1, 1, 1, 2, 1], None),
        case([2, 5, 2, 2, 8, 5], None),
        case([2, 3, 3, 1, 6, 9], None),
        case([1, 40, 2, 2, 66, 64], None),
        case([3, 4, 4, 2, 32, 20], Some(&[0, 16, 7])),
        case([2, 600, 1, 1, 64, 700], Some(&[100, 0])).kinked(),
        // Positions that the table does not have.
        case([4, 3, 1, 1, 4, 5], Some(&[3, -2, i32::MAX, i32::MIN])).kinked(),
    ]
}

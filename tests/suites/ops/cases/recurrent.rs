use crate::case::{Case, Operand};
use runner::graph::op::{Cell, Recurrent};
use runner::graph::{DType, Input};

const CELLS: [Cell; 4] = [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu];

/// Of samples with these lengths, if such are given, with weights about as large as those that a layer starts with.
fn case(cell: Cell, sizes: [usize; 3], reverse: bool, bias: bool, lengths: Option<&[i32]>, saves: bool) -> Case {
    of(Recurrent { cell, reverse, bias, lengths: lengths.is_some(), saves, carries: false }, sizes, lengths)
}

/// The same of sequences that go on from others.
fn carried(cell: Cell, sizes: [usize; 3], bias: bool, lengths: Option<&[i32]>, saves: bool) -> Case {
    of(Recurrent { cell, reverse: false, bias, lengths: lengths.is_some(), saves, carries: true }, sizes, lengths)
}

fn of(op: Recurrent, [n, l, h]: [usize; 3], lengths: Option<&[i32]>) -> Case {
    let Recurrent { cell, reverse, bias, saves, carries, .. } = op;
    let goes_on = if carries { ", carried" } else { "" };
    let name = format!(
        "recurrent {cell:?} of {n} × {l} positions, {h} numbers, reverse: {reverse}, bias: {bias}, lengths: {lengths:?}, saves: {saves}{goes_on}"
    );
    let gates = cell.gates() * h;
    let case = Case::new(name, op, |d| {
        let scale = 1.0 / (h as f64).sqrt();
        let mut operands = vec![d.normal([n, l, gates]), d.normal([gates, h]).map(|w| w * scale)];
        operands.extend(bias.then(|| d.normal([gates]).map(|b| b * scale)));
        if saves {
            operands = operands.into_iter().map(Operand::wrt).collect();
        }
        if let Some(lengths) = lengths {
            let data = lengths.iter().map(|length| f64::from(*length)).collect();
            operands.push(Operand::new(DType::I32, [n], data).input(Input::Field(1)));
        }
        operands.extend(carries.then(|| d.normal([n, cell.carried() * h])));
        operands
    });
    // A sum near 0 is near the kink of ReLU.
    if cell == Cell::Relu { case.kinked() } else { case }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for cell in CELLS {
        for reverse in [false, true] {
            list.push(case(cell, [1, 1, 1], reverse, true, None, true));
            list.push(case(cell, [3, 4, 2], reverse, true, None, true));
            list.push(case(cell, [2, 5, 3], reverse, false, None, true));
            list.push(case(cell, [4, 5, 3], reverse, true, Some(&[3, 0, 5, 1]), true));
            list.push(case(cell, [4, 3, 2], reverse, false, Some(&[-1, i32::MAX, 2, i32::MIN]), true));
            list.push(case(cell, [3, 4, 5], reverse, true, Some(&[4, 2, 3]), false));
            list.push(case(cell, [2, 3, 17], reverse, true, None, false));
            // More numbers than vectors and panels have, more samples than tiles and tasks have, on both sides of these.
            list.push(case(cell, [5, 3, 16], reverse, true, None, true).kinked());
            list.push(case(cell, [17, 4, 33], reverse, true, None, true).kinked());
            list.push(case(cell, [70, 3, 8], reverse, true, None, true).kinked());
            list.push(case(cell, [33, 5, 20], reverse, true, Some(&[2, 5, 1].repeat(11)), true).kinked());
        }
        list.push(carried(cell, [1, 1, 1], true, None, true));
        list.push(carried(cell, [3, 4, 2], false, None, true));
        list.push(carried(cell, [4, 5, 3], true, Some(&[3, 0, 5, 1]), true));
        list.push(carried(cell, [3, 1, 17], true, None, false));
        list.push(carried(cell, [17, 3, 33], true, None, true).kinked());
        list.push(carried(cell, [70, 2, 8], true, Some(&[2, 1].repeat(35)), false).kinked());
        // More than a block of the sum has, forward and backward.
        list.push(case(cell, [3, 3, 130], false, true, None, true).kinked());
        list.push(case(cell, [2, 2, 300], true, true, None, true).kinked());
        list.push(case(cell, [2, 40, 6], false, true, Some(&[40, 23]), true).kinked());
    }
    list
}

use crate::case::{Case, Draw, Operand};
use runner::graph::op::Embedding;
use runner::graph::{DType, Input};

/// Rows and columns of the table, the shape of the ids, and the row without a gradient.
fn case(
    name: &str,
    [rows, width]: [usize; 2],
    ids: &[usize],
    padding: Option<u32>,
    draw: impl FnOnce(&mut Draw) -> Operand,
) -> Case {
    let name = format!("embedding of {name}, {ids:?} ids of {rows} × {width}, padding: {padding:?}");
    let case =
        Case::new(name, Embedding { padding }, |d| vec![d.normal([rows, width]).wrt(), draw(d).input(Input::Field(0))]);
    // The row of padding has a derivative, which the rule leaves out.
    if padding.is_some() { case.kinked() } else { case }
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (table, ids) in [
        ([1, 1], vec![1]),
        ([5, 3], vec![4]),
        ([7, 16], vec![2, 9]),
        ([3, 33], vec![3, 5, 2]),
        ([300, 8], vec![2, 20]),
        ([2, 130], vec![40]),
    ] {
        for padding in [None, Some(1)] {
            let draw = |d: &mut Draw| d.below(DType::I32, &ids[..], table[0] as u32);
            list.push(case("any", table, &ids, padding, draw));
        }
    }
    // Runs of one id within a block of sorted ids, over several, and over all.
    for (table, ids) in
        [([65, 20], vec![3, 150]), ([3, 40], vec![500]), ([1, 9], vec![2, 200]), ([1000, 12], vec![700])]
    {
        for padding in [None, Some(0)] {
            let draw = |d: &mut Draw| d.below(DType::I32, &ids[..], table[0] as u32);
            list.push(case("many", table, &ids, padding, draw).kinked());
        }
    }
    // As text is: a few ids are half of it. More rows than one digit and than two digits of a sort have.
    for rows in [257, 70_000] {
        let draw = |d: &mut Draw| {
            let mut ids = d.below(DType::I32, [2, 350], rows);
            ids.data.iter_mut().for_each(|id| *id = if d.coin() { (*id % 3.0) * 256.0 % f64::from(rows) } else { *id });
            ids
        };
        list.push(case("words", [rows as usize, 4], &[2, 350], Some(256), draw).kinked());
    }
    // Ids that no row has.
    let beyond = |_: &mut Draw| {
        let ids = [-1.0, 0.0, 5.0, 4.0, f64::from(i32::MIN), 4.0, f64::from(i32::MAX), 2.0];
        Operand::new(DType::I32, [8], ids.to_vec())
    };
    list.push(case("ids without a row", [5, 6], &[8], None, beyond).kinked());
    let none = |_: &mut Draw| Operand::new(DType::I32, [3], vec![5.0, -3.0, 2.0]);
    list.push(case("ids of which none has a gradient", [5, 6], &[3], Some(2), none).kinked());
    list.push(case("as many as there are rows, in reverse", [90, 5], &[90], None, |_| {
        Operand::new(DType::I32, [90], (0..90).rev().map(f64::from).collect())
    }));
    list
}

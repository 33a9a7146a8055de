use crate::case::{Case, Draw};
use runner::graph::op::Normalize;
use runner::graph::{DType, Input};

fn list(d: &mut Draw, n: usize) -> Vec<f32> {
    (0..n).map(|_| 0.2 + 0.5 * d.uniform() as f32).collect()
}

pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (shape, stats) in [(vec![2, 5, 3, 3], 3), (vec![2, 5, 3, 3], 1), (vec![3, 7, 7, 1], 1), (vec![5, 13], 13)] {
        for bytes in [false, true] {
            let name = format!("normalize {shape:?} by {stats}, bytes {bytes}");
            let mut d = Draw::new(&format!("{name} (statistics)"));
            let scale = if bytes { 1.0 / 255.0 } else { 1.0 };
            let op = Normalize { scale, mean: list(&mut d, stats), std: list(&mut d, stats), to: DType::F32 };
            all.push(Case::new(name, op, |d| {
                let shape = shape.clone();
                let x = if bytes { d.below(DType::U8, shape, 256) } else { d.normal(shape) };
                vec![x.input(Input::Field(0))]
            }));
        }
    }
    all
}

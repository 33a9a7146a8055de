use crate::case::{Case, Draw, Operand};
use runner::graph::DType;
use runner::graph::op::{BatchNormFromSums, BatchNormGradFromSums, BatchNormGradSums, BatchNormSums};

/// Rows and channels of many kinds: few and many of both, images, whole vectors and parts of them.
const SHAPES: [&[usize]; 8] =
    [&[3, 5, 4, 7], &[1, 3], &[4, 3], &[2, 9, 9, 1], &[300, 33], &[2, 24, 13, 64], &[700, 130], &[5, 3, 3, 257]];

fn data(d: &mut Draw, shape: &[usize]) -> Operand {
    d.normal(shape).map(|x| 1.5 * x + 0.7)
}

/// Sums over `rows` rows, of means and variances that are drawn, and the number of rows.
fn sums(d: &mut Draw, channels: usize, rows: f64) -> Operand {
    let (mean, variance) = (d.normal([channels]).data, d.positive([channels]).data);
    let squares = mean.iter().zip(&variance).map(|(mean, variance)| rows * (mean * mean + variance));
    let all = mean.iter().map(|mean| rows * mean).chain(squares).chain([rows]).collect();
    Operand::new(DType::F64, [2 * channels + 1], all)
}

/// `mean` and `invstd`.
fn statistics(d: &mut Draw, channels: usize) -> [Operand; 2] {
    [d.normal([channels]), d.positive([channels])]
}

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for shape in SHAPES {
        let c = shape[shape.len() - 1];
        list.push(Case::new(format!("sums of a shard of {shape:?} for batch norm"), BatchNormSums {}, |d| {
            vec![data(d, shape)]
        }));
        for affine in [true, false] {
            let op = BatchNormGradSums { affine };
            list.push(Case::new(
                format!("sums of a shard of {shape:?} for the gradient of batch norm, {op:?}"),
                op,
                |d| {
                    let [mean, invstd] = statistics(d, c);
                    vec![data(d, shape), d.normal(shape), mean, invstd]
                },
            ));
            let op = BatchNormGradFromSums { affine };
            list.push(Case::new(format!("gradient of batch norm of {shape:?} over all shards, {op:?}"), op, |d| {
                let [mean, invstd] = statistics(d, c);
                let rows = 3.0 * (shape.iter().product::<usize>() / c) as f64;
                let grad_sums = Operand::new(DType::F64, [2 * c], d.normal([2 * c]).map(|x| rows * x).data);
                let gamma = affine.then(|| d.normal([c]));
                let operands = vec![data(d, shape), d.normal(shape), mean, invstd, sums(d, c, rows), grad_sums];
                operands.into_iter().chain(gamma).collect()
            }));
        }
    }
    for (channels, rows) in [(1, 2.0), (3, 1.0), (7, 96.0), (300, 5000.0)] {
        for (momentum, track) in [(Some(0.2), true), (None, true), (None, false)] {
            let op = BatchNormFromSums { eps: 1e-3, momentum, track };
            let name = format!("batch norm's statistics of {channels} channels over {rows} rows of all shards, {op:?}");
            list.push(Case::new(name, op, |d| {
                let mut operands = vec![sums(d, channels, rows)];
                if track {
                    let counter = Operand::new(DType::I64, Vec::new(), vec![3.0]);
                    operands.extend([d.normal([channels]), d.positive([channels]), counter]);
                }
                operands
            }));
        }
    }
    list
}

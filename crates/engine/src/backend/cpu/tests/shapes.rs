use super::harness::{Tensor, outputs};
use crate::graph::op::{Concat, Permute, Slice};

#[test]
fn axes_are_permuted() {
    let cases: [(&[usize], &[usize]); 14] = [
        (&[3, 5, 7, 4], &[0, 3, 1, 2]),
        (&[3, 5, 7, 4], &[3, 1, 0, 2]),
        (&[2, 300, 70], &[0, 2, 1]),
        (&[2, 3, 4], &[0, 1, 2]),
        (&[1, 6, 1, 5], &[2, 3, 0, 1]),
        (&[1, 1], &[1, 0]),
        (&[40, 50, 20], &[1, 0, 2]),
        // Channels that are shuffled in two groups, and back; in three; axes between those that are turned; runs and results that are longer
        // than a task's.
        (&[9, 2, 29], &[0, 2, 1]),
        (&[9, 29, 2], &[0, 2, 1]),
        (&[50, 3, 31], &[0, 2, 1]),
        (&[4, 18, 5, 66], &[0, 3, 2, 1]),
        (&[2, 100, 17, 33], &[3, 0, 2, 1]),
        (&[2, 20000], &[1, 0]),
        (&[20000, 2], &[1, 0]),
    ];
    for (dims, perm) in cases {
        let n: usize = dims.iter().product();
        let index: Vec<usize> = {
            let mut strides = vec![1; dims.len()];
            for i in (0..dims.len() - 1).rev() {
                strides[i] = strides[i + 1] * dims[i + 1];
            }
            (0..n)
                .map(|mut i| {
                    let mut at = 0;
                    for p in perm.iter().rev() {
                        at += i % dims[*p] * strides[*p];
                        i /= dims[*p];
                    }
                    at
                })
                .collect()
        };
        let op = Permute { perm: perm.to_vec() };
        let floats: Vec<f32> = (0..n).map(|i| i as f32).collect();
        for got in outputs(op.clone(), &[Tensor::from_f32(dims, &floats)]) {
            assert_eq!(got[0].f32s(), index.iter().map(|i| *i as f32).collect::<Vec<_>>());
        }
        let bytes: Vec<u8> = (0..n).map(|i| (i % 251) as u8).collect();
        for got in outputs(op, &[Tensor::from_u8(dims, &bytes)]) {
            assert_eq!(got[0].u8s(), index.iter().map(|i| (i % 251) as u8).collect::<Vec<_>>());
        }
    }
}

#[test]
fn parts_are_joined_and_cut_out_again() {
    for (axis, lengths) in [(0, [3, 1, 4]), (1, [5, 2, 7]), (2, [1, 33, 2]), (3, [64, 3, 10])] {
        let mut dims = [6, 5, 9, 7];
        let parts: Vec<Tensor> = lengths
            .iter()
            .enumerate()
            .map(|(i, len)| {
                dims[axis] = *len;
                Tensor::normal(dims, i as u64)
            })
            .collect();
        for joined in outputs(Concat { axis }, &parts) {
            let (mut start, inner) = (0, dims[axis + 1..].iter().product::<usize>());
            let total: usize = lengths.iter().sum();
            for (part, len) in parts.iter().zip(lengths) {
                let (all, data) = (joined[0].f32s(), part.f32s());
                for (i, v) in data.iter().enumerate() {
                    let (outer, rest) = (i / (len * inner), i % (len * inner));
                    assert_eq!(all[(outer * total + start) * inner + rest], *v);
                }
                for cut in outputs(Slice { axis, start, len }, &[joined[0].clone()]) {
                    assert_eq!(cut[0], *part);
                }
                start += len;
            }
        }
    }
}

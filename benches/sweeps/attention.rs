//! Attention over lengths, heads and widths: forward and backward.

use crate::operations::times;
use anyhow::Result;
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::graph::Shape;
use runner::graph::op::Attention;

/// Samples, heads, positions, floats of a head, and whether a position sees none after it. The first three are those of
/// `scripts/bench_pytorch.py --attention`.
const SIZES: [([usize; 4], bool); 9] = [
    ([16, 6, 128, 32], true),
    ([8, 12, 197, 64], false),
    ([64, 4, 64, 16], false),
    ([16, 6, 128, 32], false),
    ([64, 4, 65, 20], false),
    ([2, 8, 512, 64], true),
    ([2, 8, 1024, 64], true),
    ([1, 4, 2048, 80], false),
    ([1, 1, 1024, 64], false),
];

/// Prints the sweep, in single precision and, where there is a unit for it, in bf16.
///
/// # Errors
/// The backend fails.
pub fn sweep(threads: usize) -> Result<()> {
    let single = CpuBackend::new(Some(threads))?;
    sweep_on(&single)?;
    let rounding = single.in_bf16(true);
    if rounding.makes_bf16_products() { sweep_on(&rounding) } else { Ok(()) }
}

fn sweep_on(backend: &CpuBackend) -> Result<()> {
    println!("attention on {}: ms, and GFLOP/s of the scores that count", backend.describe());
    println!(
        "| samples, heads, positions, width | forward | | backward | | both |\n| --- | --- | --- | --- | --- | --- |"
    );
    for ([samples, heads, length, width], causal) in SIZES {
        let qkv = Shape::from([samples, length, 3 * heads * width]);
        let timed = times(backend, Attention { heads, causal, ..Attention::default() }.into(), &[qkv])?;
        let mut cells = String::new();
        for t in &timed {
            cells += &format!(" {:.3} | {:.0} |", 1e3 * t.seconds, t.flops as f64 / t.seconds / 1e9);
        }
        let both: f64 = timed.iter().map(|t| t.seconds).sum();
        let causal = if causal { ", causal" } else { "" };
        println!("| {samples}, {heads}, {length}, {width}{causal} |{cells} {:.3} |", 1e3 * both);
    }
    println!();
    Ok(())
}

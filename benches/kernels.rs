//! Speed of the CPU's matrix products and convolutions: `cargo bench --bench kernels`. `RUNNER_SIMD` chooses the level; with
//! `RUNNER_BF16=amx` or `avx512_bf16` products are made in bf16.

use runner::backend::cpu::ops::conv::{Conv2dGradInputKernel, Conv2dGradWeightKernel, Conv2dKernel, ConvShape};
use runner::backend::cpu::ops::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel, LinearShape};
use runner::backend::cpu::run::threads::Pool;
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::cpu::simd::bf16::{self, Bf16Unit, Instructions};
use runner::graph::op;
use std::time::Instant;

/// Times a kernel shorter than this together with its repetitions.
const SECONDS: f64 = 0.15;

fn main() -> anyhow::Result<()> {
    // `cargo test --all-targets` runs this too, and without the flag: building is test enough.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let level = SimdLevel::from_env()?;
    // Single precision, unless a unit is asked for.
    let bf16 = if std::env::var_os(bf16::ENV).is_some() { Bf16Unit::from_env()? } else { None };
    let how = Instructions { level, bf16 };
    let most = std::thread::available_parallelism().map_or(1, |n| n.get()).min(2);
    for threads in 1..=most {
        let unit = bf16.map_or(String::new(), |unit| format!(", bf16 by {unit}"));
        println!("{level}{unit}, {threads} thread(s): forward, by input, by weight in ms (GFLOP/s)");
        let pool = Pool::new(threads)?;
        // Large ones, the layers of a perceptron, few columns, few rows, short sums, and sizes that fill no vector.
        for (rows, inputs, outputs) in [
            (1024, 1024, 1024),
            (2000, 2000, 2000),
            (256, 784, 256),
            (256, 256, 128),
            (256, 3136, 256),
            (2048, 384, 1536),
            (50176, 64, 64),
            (2304, 128, 512),
            (2304, 512, 128),
            (256, 256, 10),
            (256, 256, 16),
            (64, 3136, 10),
            (1, 1024, 1024),
            (4, 1024, 1024),
            (7, 784, 256),
            (16, 1024, 1024),
            (24, 1024, 1024),
            (4096, 9, 32),
            (4096, 27, 64),
            (256, 250, 100),
            (256, 256, 112),
            (100, 100, 33),
        ] {
            linear(&pool, how, LinearShape { rows, inputs, outputs });
        }
        // Images, side, input and output channels, kernel, stride, groups.
        for [images, side, channels, outputs, kernel, stride, groups] in [
            [256, 28, 1, 32, 3, 1, 1],
            [256, 14, 32, 64, 3, 1, 1],
            [128, 32, 3, 64, 3, 1, 1],
            [32, 32, 64, 64, 3, 1, 1],
            [32, 32, 64, 128, 3, 2, 1],
            [128, 4, 512, 512, 3, 1, 1],
            [16, 3, 512, 512, 3, 1, 1],
            [16, 5, 384, 384, 3, 1, 1],
            [4, 224, 3, 64, 7, 2, 1],
            [16, 28, 100, 33, 3, 1, 1],
            [16, 28, 256, 64, 1, 1, 1],
            [16, 28, 128, 128, 3, 1, 32],
            [16, 28, 240, 240, 3, 1, 240],
            [1, 56, 64, 64, 3, 1, 1],
        ] {
            let shape = ConvShape { images, input: [side; 2], channels, kernel: [kernel; 2], outputs };
            conv(&pool, how, shape, stride, groups);
        }
    }
    Ok(())
}

/// Prints the medians of three kernels that each do `flop` operations.
fn report(name: String, flop: f64, kernels: [&mut dyn FnMut(); 3]) {
    print!("{name:36}");
    for kernel in kernels {
        let mut times = Vec::new();
        let start = Instant::now();
        while times.len() < 3 || start.elapsed().as_secs_f64() < SECONDS {
            let begin = Instant::now();
            kernel();
            times.push(begin.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        print!("{:9.3} ({:5.1})", median * 1e3, flop / median / 1e9);
    }
    println!();
}

fn draw(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect()
}

/// Workspace that starts at a multiple of 64 bytes.
struct Workspace(Vec<u8>);

impl Workspace {
    fn new(bytes: usize) -> Self {
        Workspace(vec![0; bytes + 64])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(64);
        &mut self.0[skip..]
    }
}

fn linear(pool: &Pool, how: Instructions, shape: LinearShape) {
    let LinearShape { rows, inputs, outputs } = shape;
    let (x, w, b, dy) = (draw(rows * inputs), draw(inputs * outputs), draw(outputs), draw(rows * outputs));
    let (mut y, mut dx, mut dw, mut db) = (dy.clone(), x.clone(), w.clone(), b.clone());
    let threads = pool.threads();
    let forward = LinearKernel::new(Some(op::Activation::Relu), shape, how, threads, true);
    let by_input = LinearGradInputKernel::new(shape, how, threads);
    let by_weight = LinearGradWeightKernel::new(&op::LinearGradWeight { bias: true }, shape, how, threads);
    let mut workspaces =
        [forward.workspace_bytes(), by_input.workspace_bytes(), by_weight.workspace_bytes()].map(Workspace::new);
    let [w0, w1, w2] = &mut workspaces;
    report(
        format!("linear {rows} x {inputs} -> {outputs}"),
        2.0 * rows as f64 * inputs as f64 * outputs as f64,
        [
            &mut || forward.run(pool, x[..].into(), &w, Some(&b[..]), &mut y, w0.bytes()),
            &mut || by_input.run(pool, &dy, &w, None, &mut dx, w1.bytes()),
            &mut || by_weight.run(pool, x[..].into(), &dy, &mut dw, Some(&mut db), w2.bytes()),
        ],
    );
}

fn conv(pool: &Pool, how: Instructions, shape: ConvShape, stride: usize, groups: usize) {
    let act = Some(op::Activation::Relu);
    let (padding, dilation) = ([shape.kernel[0] / 2; 4], [1, 1]);
    let op = op::Conv2d { stride: [stride; 2], padding, dilation, groups, bias: true };
    let [oh, ow] = shape.output(&op);
    let x = draw(shape.images * shape.input[0] * shape.input[1] * shape.channels);
    let w = draw(shape.outputs * shape.kernel[0] * shape.kernel[1] * shape.channels / groups);
    let (b, dy) = (draw(shape.outputs), draw(shape.images * oh * ow * shape.outputs));
    let (mut y, mut dx, mut dw, mut db) = (dy.clone(), x.clone(), w.clone(), b.clone());
    let threads = pool.threads();
    let forward = Conv2dKernel::new(&op, act, shape, how, threads, true);
    let by_input = op::Conv2dGradInput { conv: op.clone(), input: shape.input };
    let by_input = Conv2dGradInputKernel::new(&by_input, shape, how, threads);
    let by_weight = op::Conv2dGradWeight { conv: op.clone(), kernel: shape.kernel, bias: true };
    let by_weight = Conv2dGradWeightKernel::new(&by_weight, shape, how, threads);
    let bytes = [forward.workspace_bytes(), by_input.workspace_bytes(), by_weight.workspace_bytes()];
    let [mut w0, mut w1, mut w2] = bytes.map(Workspace::new);
    let ConvShape { images, input, channels, kernel, outputs } = shape;
    let side = input[0];
    report(
        format!("conv {images}x{side}², {channels} -> {outputs}, {}² /{stride} g{groups}", kernel[0]),
        2.0 * (images * oh * ow) as f64 * w.len() as f64,
        [
            &mut || forward.run(pool, &x, &w, Some(&b[..]), &mut y, w0.bytes()),
            &mut || by_input.run(pool, &dy, &w, None, &mut dx, w1.bytes()),
            &mut || by_weight.run(pool, &x, &dy, &mut dw, Some(&mut db), w2.bytes()),
        ],
    );
}

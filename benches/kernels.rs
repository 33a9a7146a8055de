//! Speed of the CPU's matrix products and convolutions: `cargo bench --bench kernels`. `RUNNER_SIMD` chooses the level.

use runner::backend::cpu::linear::{LinearGradInputKernel, LinearGradWeightKernel, LinearKernel, LinearShape};
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::cpu::threads::Pool;
use runner::graph::op;
use std::time::Instant;

/// Times a kernel shorter than this together with its repetitions.
const SECONDS: f64 = 0.15;

fn main() -> anyhow::Result<()> {
    let level = SimdLevel::from_env()?;
    let most = std::thread::available_parallelism().map_or(1, |n| n.get()).min(2);
    for threads in 1..=most {
        println!("{level}, {threads} thread(s): forward, by input, by weight in ms (GFLOP/s)");
        let pool = Pool::new(threads)?;
        for (rows, inputs, outputs) in
            [(256, 784, 512), (256, 3136, 256), (256, 256, 10), (2048, 384, 1536), (4, 1024, 1024), (50176, 64, 64)]
        {
            linear(&pool, level, LinearShape { rows, inputs, outputs });
        }
    }
    Ok(())
}

/// Prints the medians of three kernels that each do `flop` operations.
fn report(name: String, flop: f64, kernels: [&mut dyn FnMut(); 3]) {
    print!("{name:32}");
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

fn linear(pool: &Pool, level: SimdLevel, shape: LinearShape) {
    let LinearShape { rows, inputs, outputs } = shape;
    let (x, w, b, dy) = (draw(rows * inputs), draw(inputs * outputs), draw(outputs), draw(rows * outputs));
    let (mut y, mut dx, mut dw, mut db) = (dy.clone(), x.clone(), w.clone(), b.clone());
    let threads = pool.threads();
    let forward = LinearKernel::new(&op::Linear { bias: true, act: Some(op::Activation::Relu) }, shape, level, threads);
    let by_input = LinearGradInputKernel::new(&op::LinearGradInput {}, shape, level, threads);
    let by_weight = LinearGradWeightKernel::new(&op::LinearGradWeight { bias: true }, shape, level, threads);
    let mut workspaces =
        [forward.workspace_bytes(), by_input.workspace_bytes(), by_weight.workspace_bytes()].map(Workspace::new);
    let [w0, w1, w2] = &mut workspaces;
    report(
        format!("linear {rows} x {inputs} -> {outputs}"),
        2.0 * rows as f64 * inputs as f64 * outputs as f64,
        [
            &mut || forward.run(pool, &x, &w, Some(&b), &mut y, w0.bytes()),
            &mut || by_input.run(pool, &dy, &w, &mut dx, w1.bytes()),
            &mut || by_weight.run(pool, &x, &dy, &mut dw, Some(&mut db), w2.bytes()),
        ],
    );
}

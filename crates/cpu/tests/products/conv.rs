//! Convolutions and their gradients, by every kernel.

use crate::gemm::memory::Memory;
use crate::gemm::tile::EpilogueOperands;
use crate::graph::op::{self, Activation, Conv2d};
use crate::ops::conv::{Conv2dGradInputKernel, Conv2dGradWeightKernel, Conv2dKernel, ConvShape};
use crate::plan::Kept;
use crate::random::{Purpose, Stream};
use crate::reference::{Sum, Workspace, draw, on_every_level};
use crate::run::frame::KeptMemory;
use crate::simd::SimdLevel;

/// A plain convolution to be tried.
fn conv(stride: [usize; 2], padding: [usize; 4], dilation: [usize; 2], groups: usize) -> Conv2d {
    Conv2d { stride, padding, dilation, groups, bias: true }
}

fn shape(images: usize, input: [usize; 2], channels: usize, kernel: [usize; 2], outputs: usize) -> ConvShape {
    ConvShape { images, input, channels, kernel, outputs }
}

/// Many corners: odd channels, strides larger than the kernel, padding larger than the kernel, images of one pixel.
fn cases() -> Vec<(Conv2d, ConvShape)> {
    let (one, same) = ([1, 1], [1, 1, 1, 1]);
    vec![
        (conv(one, same, one, 1), shape(3, [8, 8], 1, [3, 3], 32)),
        (conv(one, same, one, 1), shape(2, [5, 5], 3, [3, 3], 10)),
        (conv(one, same, one, 1), shape(1, [4, 6], 33, [3, 3], 5)),
        (conv(one, [0; 4], one, 1), shape(3, [5, 4], 20, [1, 1], 35)),
        (conv([2, 2], [0; 4], one, 1), shape(2, [7, 6], 8, [1, 1], 17)),
        (conv([2, 2], [3, 3, 3, 3], one, 1), shape(2, [11, 12], 3, [7, 7], 16)),
        (conv([2, 1], [1, 0, 2, 3], one, 1), shape(2, [6, 5], 4, [3, 2], 6)),
        (conv([3, 2], [1, 2, 0, 1], [2, 3], 1), shape(1, [12, 11], 5, [3, 2], 7)),
        (conv([1, 1], [2, 2, 4, 4], [2, 4], 1), shape(1, [6, 9], 2, [3, 3], 3)),
        (conv([5, 4], [0, 0, 0, 0], one, 1), shape(2, [11, 9], 3, [2, 3], 4)),
        (conv(one, [4, 3, 5, 0], one, 1), shape(1, [2, 3], 2, [3, 2], 3)),
        (conv([4, 4], [0; 4], one, 1), shape(2, [8, 8], 3, [4, 4], 12)),
        (conv(one, same, one, 2), shape(2, [5, 5], 6, [3, 3], 10)),
        (conv([2, 2], same, one, 4), shape(2, [6, 6], 32, [3, 3], 64)),
        (conv(one, [0; 4], one, 3), shape(2, [4, 4], 9, [1, 1], 6)),
        (conv(one, same, one, 1), shape(40, [1, 1], 4, [3, 3], 3)),
        (conv(one, same, one, 1), shape(35, [3, 3], 18, [3, 3], 15)),
        (conv(one, [2, 2, 2, 2], one, 1), shape(1, [70, 41], 16, [5, 5], 3)),
        (conv([2, 2], [2, 1, 2, 2], one, 1), shape(1, [90, 70], 12, [5, 4], 2)),
        // Depthwise; the last but one has several outputs a group, which is not.
        (conv(one, same, one, 10), shape(2, [5, 6], 10, [3, 3], 10)),
        (conv([2, 2], [2, 2, 2, 2], one, 33), shape(2, [7, 9], 33, [5, 5], 33)),
        (conv([2, 3], [1, 0, 3, 2], [2, 1], 16), shape(1, [9, 8], 16, [3, 4], 16)),
        (conv(one, same, one, 5), shape(20, [4, 4], 5, [3, 3], 10)),
        (conv(one, same, one, 40), shape(2, [40, 60], 40, [3, 3], 40)),
        // Wide enough to be read where they lie: every padding, strides, dilations, channels that end in parts of vectors, and kernels that are
        // higher than the image.
        (conv(one, [2, 0, 1, 3], one, 21), shape(2, [6, 19], 21, [4, 3], 21)),
        (conv([2, 2], [1, 1, 1, 1], one, 72), shape(2, [13, 22], 72, [3, 3], 72)),
        (conv([1, 3], [2, 2, 4, 3], [2, 2], 37), shape(1, [7, 40], 37, [3, 5], 37)),
        (conv(one, [3, 3, 3, 3], one, 48), shape(3, [4, 16], 48, [7, 7], 48)),
        (conv(one, [0, 0, 0, 0], one, 8), shape(2, [5, 9], 8, [3, 1], 8)),
    ]
}

/// Shapes drawn at random, small ones.
fn drawn_cases() -> Vec<(Conv2d, ConvShape)> {
    let mut numbers = Stream::new(7, Purpose::Synthetic, 0, 0);
    let mut below = |n: u32| numbers.below(n) as usize;
    let mut cases = Vec::new();
    while cases.len() < 40 {
        let groups = 1 + below(3);
        let stride = [1 + below(3), 1 + below(3)];
        let padding = [below(4), below(4), below(4), below(4)];
        let op = conv(stride, padding, [1 + below(2), 1 + below(2)], groups);
        let kernel = [1 + below(4), 1 + below(4)];
        let (channels, outputs) = (groups * (1 + below(12)), groups * (1 + below(12)));
        let s = shape(1 + below(4), [1 + below(11), 1 + below(11)], channels, kernel, outputs);
        if op.out(s.input, s.kernel).is_some() {
            cases.push((op, s));
        }
    }
    cases
}

/// Those that the transforms are for: odd sides, channels that do not fill vectors, every padding.
fn winograd_cases() -> Vec<(Conv2d, ConvShape)> {
    let one = [1, 1];
    vec![
        (conv(one, [1, 1, 1, 1], one, 1), shape(3, [9, 12], 25, [3, 3], 33)),
        (conv(one, [0, 2, 1, 0], one, 1), shape(2, [16, 15], 40, [3, 3], 24)),
        (conv(one, [2, 2, 2, 2], one, 1), shape(7, [5, 6], 26, [3, 3], 28)),
        (conv(one, [1, 1, 1, 1], one, 1), shape(5, [11, 10], 34, [3, 3], 33)),
        // Fewer tiles than channels: some channels at a time, and all of them for two blocks of tiles.
        (conv(one, [1, 1, 1, 1], one, 1), shape(2, [8, 12], 128, [3, 3], 128)),
        (conv(one, [1, 0, 2, 1], one, 1), shape(1, [13, 15], 130, [3, 3], 131)),
        (conv(one, [1, 1, 1, 1], one, 1), shape(2, [13, 16], 112, [3, 3], 112)),
    ]
}

/// Those whose gradient by the weight goes from pixel to pixel, and nothing else: images and weights of every size for which
/// it does, strides that pass over pixels.
fn weight_by_pixels_cases() -> Vec<(Conv2d, ConvShape)> {
    let (one, same) = ([1, 1], [1, 1, 1, 1]);
    vec![
        (conv(one, same, one, 1), shape(1, [6, 7], 32, [3, 3], 64)),
        (conv(one, same, one, 1), shape(8, [4, 4], 18, [3, 3], 35)),
        (conv([2, 2], same, one, 1), shape(5, [8, 8], 33, [5, 5], 17)),
        (conv([2, 2], [0; 4], one, 1), shape(4, [8, 8], 20, [1, 1], 40)),
        (conv([2, 2], same, one, 1), shape(4, [14, 13], 170, [3, 3], 172)),
    ]
}

/// Batches of images of few pixels: strides, positions of the kernel that meet only padding, channels and images that do
/// not fill tiles, more images than a task takes, nothing joined at all.
fn few_pixels_cases() -> Vec<(Conv2d, ConvShape)> {
    let (one, same) = ([1, 1], [1, 1, 1, 1]);
    vec![
        (conv(one, same, one, 1), shape(17, [1, 1], 20, [3, 3], 35)),
        (conv(one, same, one, 1), shape(9, [2, 2], 16, [3, 3], 50)),
        (conv(one, same, one, 1), shape(1, [1, 1], 33, [3, 3], 70)),
        (conv([2, 2], same, one, 1), shape(2, [4, 4], 16, [3, 3], 40)),
        (conv([2, 2], same, one, 1), shape(33, [4, 4], 18, [3, 3], 17)),
        (conv([2, 2], [0; 4], one, 1), shape(8, [2, 2], 70, [1, 1], 16)),
        (conv([3, 4], [3, 2, 0, 1], [2, 1], 1), shape(10, [3, 5], 19, [3, 2], 21)),
        (conv(one, same, one, 1), shape(270, [1, 2], 16, [3, 3], 16)),
        // More pixels, in place of transforms whose tiles would hang over the edges.
        (conv(one, same, one, 1), shape(14, [3, 3], 18, [3, 3], 33)),
        (conv(one, [0, 2, 1, 0], one, 1), shape(13, [3, 4], 16, [3, 3], 16)),
        // Nothing but padding is read.
        (conv([4, 4], [2; 4], one, 1), shape(3, [1, 1], 16, [1, 1], 16)),
    ]
}

/// Channels that fill vectors badly: planes whose rows begin at vectors or not, strips, groups that are worked on together or
/// not, the end of the source within a square, both strides with odd sides, a kernel of one pixel, more channels than a tile.
fn planar_cases() -> Vec<(Conv2d, ConvShape)> {
    let (one, same) = ([1, 1], [1, 1, 1, 1]);
    vec![
        (conv(one, same, one, 1), shape(3, [28, 28], 3, [3, 3], 3)),
        (conv(one, same, one, 1), shape(2, [32, 33], 2, [3, 3], 1)),
        (conv(one, [2, 1, 0, 2], one, 1), shape(2, [9, 40], 4, [3, 3], 4)),
        (conv(one, [2, 2, 2, 2], one, 1), shape(2, [40, 25], 5, [5, 5], 3)),
        (conv(one, [2, 4, 4, 2], [2, 2], 1), shape(1, [23, 17], 6, [3, 3], 5)),
        (conv(one, same, one, 32), shape(2, [14, 14], 128, [3, 3], 128)),
        (conv(one, same, one, 3), shape(2, [15, 30], 21, [3, 3], 6)),
        (conv(one, same, one, 5), shape(2, [40, 13], 10, [3, 3], 15)),
        (conv([2, 2], same, one, 1), shape(3, [27, 28], 3, [3, 3], 3)),
        (conv([2, 2], same, one, 16), shape(2, [28, 29], 64, [3, 3], 64)),
        (conv([2, 2], [2, 2, 3, 1], one, 1), shape(1, [35, 30], 5, [5, 4], 4)),
        (conv([2, 2], [0; 4], one, 1), shape(2, [31, 34], 3, [2, 3], 4)),
        (conv(one, same, one, 3), shape(3, [28, 27], 3, [3, 3], 3)),
        (conv(one, same, one, 1), shape(1, [30, 31], 40, [3, 3], 9)),
    ]
}

/// One pixel of the kernel with a stride: one product, and several; rows and columns that the stride ends before; a stride in one
/// direction.
fn strided_cases() -> Vec<(Conv2d, ConvShape)> {
    vec![
        (conv([2, 2], [0; 4], [1, 1], 1), shape(2, [17, 20], 18, [1, 1], 33)),
        (conv([1, 3], [0; 4], [1, 1], 1), shape(3, [5, 8], 40, [1, 1], 5)),
        (conv([3, 2], [0; 4], [1, 1], 1), shape(6, [60, 41], 16, [1, 1], 16)),
        (conv([2, 2], [0; 4], [1, 1], 1), shape(6, [40, 41], 240, [1, 1], 3)),
    ]
}

/// Every case, and how much larger than that of a plain sum the rounding error may be: a transformed tile holds sums
/// of up to 6 × 6 pixels, which cancel again in the end.
pub fn all_cases() -> impl Iterator<Item = (Conv2d, ConvShape, f64)> {
    let plain = cases().into_iter().chain(drawn_cases()).chain(few_pixels_cases()).chain(planar_cases());
    let plain = plain.chain(weight_by_pixels_cases()).chain(strided_cases()).map(|(op, s)| (op, s, 1.0));
    plain.chain(winograd_cases().into_iter().map(|(op, s)| (op, s, 8.0)))
}

/// The modules of the kernels that are chosen: forward, by the input, by the weight.
fn chosen(op: &Conv2d, s: ConvShape, level: SimdLevel) -> [&'static str; 3] {
    let forward = Conv2dKernel::new(op, None, s, level, 1, false);
    let by_input = op::Conv2dGradInput { conv: op.clone(), input: s.input };
    let by_input = Conv2dGradInputKernel::new(&by_input, s, level, 1);
    let by_weight = op::Conv2dGradWeight { conv: op.clone(), kernel: s.kernel, bias: true };
    let by_weight = Conv2dGradWeightKernel::new(&by_weight, s, level, 1);
    let module = |path: &'static str| path.split("::").skip_while(|part| *part != "ops").nth(2).unwrap_or(path);
    let modules = [forward.name(), by_input.name(), by_weight.name()].map(module);
    // A matrix product's is not among those of convolutions.
    modules.map(|module| if module.starts_with("Linear") { "pointwise" } else { module })
}

/// For each of [`chosen`], whether it is `module`.
fn is_chosen(module: &str, op: &Conv2d, s: ConvShape, level: SimdLevel) -> [bool; 3] {
    chosen(op, s, level).map(|name| name == module)
}

#[test]
fn every_kernel_is_chosen_for_its_shapes() {
    let (one, same) = ([1, 1], [1, 1, 1, 1]);
    for (op, s, want) in [
        (conv(one, [0; 4], one, 1), shape(16, [1, 1], 20, [1, 1], 35), ["pointwise"; 3]),
        (conv(one, same, one, 1), shape(16, [2, 2], 32, [3, 3], 32), ["few_pixels"; 3]),
        (conv(one, same, one, 1), shape(16, [8, 8], 32, [3, 3], 32), ["winograd"; 3]),
        (conv(one, same, one, 64), shape(16, [8, 8], 64, [3, 3], 64), ["depthwise"; 3]),
        (conv([2, 2], same, one, 1), shape(16, [28, 28], 16, [3, 3], 32), ["dense", "dense", "grad_weight"]),
        (conv([2, 2], same, one, 1), shape(16, [8, 8], 16, [3, 3], 32), ["dense", "dense", "few_pixels"]),
    ] {
        for level in SimdLevel::supported() {
            assert_eq!(chosen(&op, s, level), want, "{level} {op:?} {s:?}");
        }
    }
}

#[test]
fn transforms_are_chosen_by_shape() {
    for (op, s, error) in all_cases() {
        assert_eq!(is_chosen("winograd", &op, s, SimdLevel::detect()), [error > 1.0; 3], "{op:?} {s:?}");
    }
}

/// What a step of training lets pass should not depend on how a convolution is computed.
#[test]
fn tiles_are_small_where_results_decide() {
    let (op, s) = winograd_cases().remove(0);
    for (trains, want) in [(false, "Four"), (true, "Two")] {
        let kernel = Conv2dKernel::new(&op, None, s, SimdLevel::detect(), 1, trains);
        let name = kernel.name();
        assert!(name.ends_with(&format!("::{want}>")), "in training {trains}: {name}");
    }
}

/// Transformed weights of 1024 channels: 151 MB for tiles of 4 × 4, 67 MB for those of 2 × 2.
#[test]
fn transformed_weights_are_bounded() {
    let op = conv([1, 1], [1; 4], [1, 1], 1);
    let with = |channels: usize| {
        let s = shape(16, [56, 56], channels, [3, 3], channels);
        Conv2dKernel::new(&op, None, s, SimdLevel::detect(), 1, false)
    };
    let (fits, does_not) = (with(512), with(1024));
    assert!(fits.name().ends_with("::Four>"), "{}", fits.name());
    assert!(does_not.name().ends_with("::Two>"), "{}", does_not.name());
    assert!(does_not.workspace_bytes() < 80_000_000, "{} bytes", does_not.workspace_bytes());
}

#[test]
fn few_pixels_are_chosen_by_shape() {
    let (few, by_weight_only) = (few_pixels_cases(), weight_by_pixels_cases());
    for (op, s, _) in all_cases() {
        let chosen = is_chosen("few_pixels", &op, s, SimdLevel::detect());
        let case = (op, s);
        let few = few.contains(&case);
        assert_eq!(chosen, [few, few, few || by_weight_only.contains(&case)], "{case:?}");
    }
}

#[test]
fn strides_are_chosen_by_shape() {
    for (op, s) in strided_cases() {
        for level in SimdLevel::supported() {
            assert_eq!(is_chosen("strided", &op, s, level), [true, false, false], "{level} {op:?} {s:?}");
        }
    }
    // Too few pixels of an image for a product of its own, and too many images for one.
    let prime = shape(2053, [3, 3], 16, [1, 1], 16);
    assert_eq!(is_chosen("strided", &conv([2, 2], [0; 4], [1, 1], 1), prime, SimdLevel::detect()), [false; 3]);
}

/// A residual is added to the pixels that it belongs to, however many images are copied together; packed weights serve once more.
#[test]
fn strides_with_a_residual_and_kept_weights() {
    for (op, s) in strided_cases() {
        let (x, w, residual) = (draw(s.x_len(), 1), draw(s.w_len(&op), 2), draw(s.y_len(&op), 3));
        on_every_level(|level, pool| {
            let kernel = Conv2dKernel::new(&op, None, s, level, pool.threads(), false);
            let run = |w: &[f32], residual: Option<&[f32]>, memory: Memory| {
                let mut y = vec![f32::NAN; s.y_len(&op)];
                kernel.run(pool, &x, w, EpilogueOperands { residual, ..EpilogueOperands::default() }, &mut y, memory);
                y
            };
            let mut workspace = Workspace::new(kernel.workspace_bytes());
            let plain = run(&w, None, workspace.bytes().into());
            let added: Vec<f32> = plain.iter().zip(&residual).map(|(y, r)| y + r).collect();
            assert!(run(&w, Some(&residual), workspace.bytes().into()) == added, "{level} {op:?} {s:?}");
            if let Some(Kept { bytes, workspace, .. }) = kernel.kept() {
                let (mut packed, mut workspace) = (Workspace::new(bytes), Workspace::new(workspace));
                for ready in [false, true] {
                    let w = if ready { vec![f32::NAN; w.len()] } else { w.clone() };
                    let kept = Some(KeptMemory { bytes: packed.bytes(), ready });
                    let memory = Memory { workspace: workspace.bytes(), kept };
                    assert!(run(&w, None, memory) == plain, "{level} {op:?} {s:?}, ready {ready}");
                }
            }
            plain
        });
    }
}

#[test]
fn planes_are_chosen_by_shape() {
    for level in SimdLevel::supported().filter(|level| level.lanes() >= 8) {
        let chosen = |op: &Conv2d, s: ConvShape| is_chosen("planar", op, s, level);
        // Tiles of few registers are for the fewest channels only.
        let most = if level == SimdLevel::Avx512 { usize::MAX } else { 3 };
        let few = |op: &Conv2d, s: ConvShape| s.channels.max(s.outputs) / op.groups <= most;
        let cases = planar_cases().into_iter().filter(|(op, s)| few(op, *s) && (most > 3 || op.stride == [1, 1]));
        for (op, s) in cases {
            assert_eq!(chosen(&op, s), [true, op.stride == [1, 1], true], "{level} {op:?} {s:?}");
        }
        // Whole vectors of channels; and a first layer with them, whose gradient by the input has three.
        let (one, same) = ([1, 1], [1, 1, 1, 1]);
        let whole = shape(16, [28, 28], 16, [3, 3], 16);
        assert_eq!(chosen(&conv(one, same, one, 1), whole), [false; 3], "{level}");
        let first = ConvShape { channels: 3, ..whole };
        assert_eq!(chosen(&conv(one, same, one, 1), first), [false, true, false], "{level}");
    }
}

/// Calls `f(x, w, y)` with the places of every product that a convolution adds up.
pub fn for_each_product(op: &Conv2d, s: &ConvShape, mut f: impl FnMut(usize, usize, usize)) {
    let ([oh, ow], [kh, kw]) = (s.output(op), s.kernel);
    let (inputs, outputs) = (s.channels / op.groups, s.outputs / op.groups);
    for n in 0..s.images {
        for (y, x) in (0..oh).flat_map(|y| (0..ow).map(move |x| (y, x))) {
            for (i, j) in (0..kh).flat_map(|i| (0..kw).map(move |j| (i, j))) {
                let h = (y * op.stride[0] + i * op.dilation[0]).wrapping_sub(op.padding[0]);
                let w = (x * op.stride[1] + j * op.dilation[1]).wrapping_sub(op.padding[2]);
                if h >= s.input[0] || w >= s.input[1] {
                    continue;
                }
                for o in 0..s.outputs {
                    for c in 0..inputs {
                        let from = ((n * s.input[0] + h) * s.input[1] + w) * s.channels + o / outputs * inputs + c;
                        let weight = ((o * kh + i) * kw + j) * inputs + c;
                        f(from, weight, ((n * oh + y) * ow + x) * s.outputs + o);
                    }
                }
            }
        }
    }
}

pub fn compare(sums: &[Sum], results: Vec<(SimdLevel, Vec<f32>)>, error: f64, what: &str) {
    for (level, got) in results {
        assert_eq!(got.len(), sums.len());
        for (i, (sum, &got)) in sums.iter().zip(&got).enumerate() {
            sum.assert_within(error, got, &format!("{level} {what} at {i}"));
        }
    }
}

#[test]
fn forward() {
    for (op, s, error) in all_cases() {
        let (x, w, b) = (draw(s.x_len(), 1), draw(s.w_len(&op), 2), draw(s.outputs, 3));
        let mut sums = vec![Sum::default(); s.y_len(&op)];
        for_each_product(&op, &s, |from, weight, to| sums[to].add(x[from], w[weight]));
        for (i, sum) in sums.iter_mut().enumerate() {
            sum.add(b[i % s.outputs], 1.0);
            *sum = sum.map(|x| x.max(0.0));
        }
        for trains in [false, true] {
            let results = on_every_level(|level, pool| {
                let kernel = Conv2dKernel::new(&op, Some(Activation::Relu), s, level, pool.threads(), trains);
                assert_eq!(kernel.remaining_act(), None);
                let mut y = vec![f32::NAN; s.y_len(&op)];
                kernel.run(pool, &x, &w, Some(&b[..]), &mut y, Workspace::new(kernel.workspace_bytes()).bytes());
                y
            });
            compare(&sums, results, error, &format!("{op:?} {s:?}, in training {trains}"));
        }
    }
}

#[test]
fn gradient_by_the_input() {
    for (op, s, error) in all_cases() {
        let (w, dy) = (draw(s.w_len(&op), 2), draw(s.y_len(&op), 4));
        let mut sums = vec![Sum::default(); s.x_len()];
        for_each_product(&op, &s, |from, weight, to| sums[from].add(dy[to], w[weight]));
        let results = on_every_level(|level, pool| {
            let op = op::Conv2dGradInput { conv: op.clone(), input: s.input };
            let kernel = Conv2dGradInputKernel::new(&op, s, level, pool.threads());
            let mut dx = vec![f32::NAN; s.x_len()];
            kernel.run(pool, &dy, &w, None, &mut dx, Workspace::new(kernel.workspace_bytes()).bytes());
            dx
        });
        compare(&sums, results, error, &format!("{op:?} {s:?}"));
    }
}

#[test]
fn gradient_by_the_weight() {
    for (op, s, error) in all_cases() {
        let (x, dy) = (draw(s.x_len(), 1), draw(s.y_len(&op), 4));
        let weights = s.w_len(&op);
        let mut sums = vec![Sum::default(); weights + s.outputs];
        for_each_product(&op, &s, |from, weight, to| sums[weight].add(x[from], dy[to]));
        for (i, &dy) in dy.iter().enumerate() {
            sums[weights + i % s.outputs].add(dy, 1.0);
        }
        let results = on_every_level(|level, pool| {
            let op = op::Conv2dGradWeight { conv: op.clone(), kernel: s.kernel, bias: true };
            let kernel = Conv2dGradWeightKernel::new(&op, s, level, pool.threads());
            let mut dw = vec![f32::NAN; weights + s.outputs];
            let (w, b) = dw.split_at_mut(weights);
            kernel.run(pool, &x, &dy, w, Some(b), Workspace::new(kernel.workspace_bytes()).bytes());
            dw
        });
        compare(&sums, results, error, &format!("{op:?} {s:?}"));
    }
}

//! Launches of depthwise convolutions by the kernels made for them: square kernels of 3, 5 and 7, strides of 1 and 2.

use super::{Conv2d, Sizes};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module, suffix};
use crate::backend::gpu::lower::linear::library::activation;
use crate::backend::gpu::lower::linear::sums::{Finish, aligned, of_slices};
use crate::graph::DType;

/// Threads of a block, and most of them along the channels: `MOST_ALONG` of `kernels/cuda/depthwise.cu`.
const BLOCK: usize = 128;
const MOST_ALONG: usize = 64;

/// Threads along the channels that read whole lines of memory.
const LEAST_ALONG: usize = 16;

/// Threads that a large GPU runs at once. With fewer, images are divided into strips.
const WANTED_THREADS: usize = 1 << 16;

/// Most blocks of partial sums of a weight's gradient.
const MOST_BLOCKS: usize = 528;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// The convolution, or the gradient by the input if the stride is 1.
    Forward,
    /// The gradient by the input if the stride is 2.
    Input,
    Weight,
}

/// Neighbouring channels and columns of a thread, as the end of `kernels/cuda/depthwise.cu` lists them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Form {
    channels: usize,
    columns: usize,
}

impl Form {
    fn of(kind: Kind, kernel: usize, stride: usize) -> Form {
        let [channels, columns] = match (kind, kernel, stride) {
            (Kind::Forward | Kind::Weight, 3, 1) => [4, 4],
            (_, 3, _) => [4, 2],
            (Kind::Forward, _, 1) => [2, 7],
            (Kind::Input, 7, _) => [2, 2],
            _ => [2, 4],
        };
        Form { channels, columns }
    }
}

/// Threads of a block, and blocks along the channels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Threads {
    along: usize,
    down: usize,
    tiles: usize,
}

impl Threads {
    /// For so many packs of channels: those that leave the fewest lanes of warps idle.
    fn new(packs: usize) -> Threads {
        let tiles = packs.div_ceil(MOST_ALONG)..=packs.div_ceil(LEAST_ALONG);
        let candidates = tiles.map(|tiles| {
            let along = packs.div_ceil(tiles);
            Threads { along, down: BLOCK / along, tiles }
        });
        let idle = |t: &Threads| {
            let lanes = t.tiles * (t.along * t.down).next_multiple_of(32);
            (lanes - packs * t.down) * 1024 / lanes
        };
        candidates.min_by_key(idle).expect("there is a channel")
    }
}

/// The sizes of a convolution that the kernels take, by its shape alone.
struct Depthwise<'a> {
    s: &'a Sizes<'a>,
    channels: usize,
    kernel: usize,
    stride: usize,
    dtype: DType,
}

/// What a launch goes over in each image: rows, or for a weight the steps down them, and columns.
struct Work {
    kind: Kind,
    rows: usize,
    columns: usize,
}

impl<'a> Depthwise<'a> {
    fn new(s: &'a Sizes<'a>, dtype: DType) -> Option<Depthwise<'a>> {
        let Conv2d { stride: [stride, across], padding, dilation, groups, .. } = *s.conv;
        let [kernel, width] = s.kernel;
        let square = kernel == width && matches!(kernel, 3 | 5 | 7) && stride == across && matches!(stride, 1 | 2);
        let single = s.inputs == 1 && s.outputs == 1 && groups > 1 && dilation == [1, 1];
        let whole = groups.is_multiple_of(Form::of(Kind::Forward, kernel, stride).channels);
        // Offsets within an image, with its padding, are counted in 32 bits, and so are pixels.
        let most = padding.into_iter().max().unwrap_or(0) + kernel;
        let counted = [s.input, s.output].into_iter().all(|[h, w]| {
            let padded = (h + 2 * most).saturating_mul(w + 2 * most);
            i32::try_from(padded.saturating_mul(groups.max(s.images))).is_ok()
        });
        (square && single && whole && counted).then_some(Depthwise { s, channels: groups, kernel, stride, dtype })
    }

    /// Output rows that an input row belongs to at most.
    fn live(&self) -> usize {
        self.kernel.div_ceil(self.stride)
    }

    /// A launch over `work` of the kernel named `name`, which takes `pointers` first; beside it its blocks for each tile of channels.
    fn launch(
        &self,
        name: &str,
        pointers: &[Arg],
        work: &Work,
        [input, output]: [[usize; 2]; 2],
        padding: [i32; 2],
    ) -> (Kernel, usize) {
        let form = Form::of(work.kind, self.kernel, self.stride);
        let threads = Threads::new(self.channels / form.channels);
        let columns = work.columns.div_ceil(form.columns);
        let whole = self.s.images * columns * threads.tiles * threads.along;
        // Each strip reads some rows that its neighbour reads, too.
        let strips = (WANTED_THREADS / whole).min(work.rows / (2 * self.kernel)).max(1);
        let rows = work.rows.div_ceil(strips);
        let strips = work.rows.div_ceil(rows);
        let items = self.s.images * columns * strips;
        let most = if work.kind == Kind::Weight { (MOST_BLOCKS / threads.tiles).max(1) } else { usize::MAX };
        let blocks = items.div_ceil(threads.down).min(most);
        let name = format!("depthwise{}{name}_{}", self.kernel, suffix(self.dtype));
        let kernel = Kernel::new(Module::Depthwise, name)
            .block(threads.along as u32, threads.down as u32)
            .grid(blocks * threads.tiles, 1, 1)
            .shared(self.kernel * self.kernel * MOST_ALONG * form.channels * 4);
        let kernel = pointers.iter().cloned().fold(kernel, Kernel::arg).int(self.s.images);
        let kernel = [input, output].into_iter().flatten().fold(kernel, Kernel::int).int(self.channels);
        let kernel = padding.into_iter().map(Arg::I32).fold(kernel, Kernel::arg);
        let kernel = [threads.tiles, columns, strips, rows].into_iter().fold(kernel, Kernel::int);
        (kernel, blocks)
    }

    /// What is before the first row and column.
    fn padding(&self) -> [i32; 2] {
        [0, 2].map(|side| i32::try_from(self.s.conv.padding[side]).expect("padding was looked at"))
    }

    fn strided(&self, name: &str) -> String {
        let strided = if self.stride == 2 { "_stride2" } else { "" };
        format!("{name}{strided}")
    }
}

/// Lowers the convolution, if the kernels take it.
pub fn forward(s: &Sizes, dtype: DType, finish: &Finish) -> Option<Lowered> {
    let d = Depthwise::new(s, dtype).filter(|_| finish.y_type == dtype)?;
    let pointers = [Memory::Input(0).into(), Memory::Input(1).into(), finish.bias_arg(), finish.y.into()];
    let work = Work { kind: Kind::Forward, rows: s.output[0], columns: s.output[1] };
    let (kernel, _) = d.launch(&d.strided(""), &pointers, &work, [s.input, s.output], d.padding());
    let mut lowered = Lowered::one(kernel.int(0));
    // Networks have a normalisation after a depthwise convolution: its activation is that one's.
    lowered.steps.extend(finish.act.map(|act| activation(finish, act, s.pixels() * d.channels)));
    Some(lowered)
}

/// Lowers the gradient by the input, if the kernels take it.
pub fn grad_input(s: &Sizes, dtype: DType, finish: &Finish) -> Option<Lowered> {
    let d = Depthwise::new(s, dtype).filter(|_| finish.y_type == dtype)?;
    let [dy, w] = [0, 1].map(|i| Arg::from(Memory::Input(i)));
    let kernel = if d.stride == 1 {
        // The convolution of dy by the kernel turned round.
        let work = Work { kind: Kind::Forward, rows: s.input[0], columns: s.input[1] };
        let padding = d.padding().map(|before| d.kernel as i32 - 1 - before);
        d.launch("", &[dy, w, Arg::Null, finish.y.into()], &work, [s.output, s.input], padding).0.int(1)
    } else {
        // Pairs of rows and of columns, of which the first and the last may be half outside.
        let [rows, columns] = [0, 1].map(|i| {
            let before = s.conv.padding[2 * i];
            (s.input[i] - 1 + before) / 2 - before / 2 + 1
        });
        let work = Work { kind: Kind::Input, rows, columns };
        d.launch("_grad_stride2", &[dy, w, finish.y.into()], &work, [s.input, s.output], d.padding()).0
    };
    Some(Lowered::one(kernel))
}

/// Lowers the gradient by the weight, if the kernels take it.
pub fn grad_weight(s: &Sizes, dtype: DType) -> Option<Lowered> {
    let d = Depthwise::new(s, dtype)?;
    let finish = Finish::plain(Memory::Output(0));
    // Steps of as many rows of x as the stride, from the first that meets a row of dy to the last.
    let before = s.conv.padding[0];
    let last = ((s.input[0] - 1 + before) / d.stride).min(s.output[0] + d.live() - 2);
    let work =
        Work { kind: Kind::Weight, rows: (last + 1).saturating_sub(before / d.stride).max(1), columns: s.output[1] };
    let elements = d.channels * s.taps();
    let launch = |partials: Memory| {
        let pointers = [Memory::Input(0), Memory::Input(1), partials].map(Arg::from);
        d.launch(&d.strided("_weight"), &pointers, &work, [s.input, s.output], d.padding())
    };
    let (kernel, blocks) = launch(finish.y);
    if blocks == 1 {
        return Some(Lowered::one(kernel));
    }
    let partials = Memory::Scratch(0);
    let steps = vec![launch(partials).0.into(), of_slices(partials, blocks, elements, s.taps(), &finish)];
    Some(Lowered { steps, scratch_bytes: aligned(blocks * elements * 4) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conv(groups: usize) -> Conv2d {
        Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups, bias: false }
    }

    fn sizes(conv: &Conv2d, kernel: usize) -> Sizes<'_> {
        let output = conv.out([14, 14], [kernel; 2]).unwrap();
        Sizes { conv, images: 2, input: [14, 14], output, kernel: [kernel; 2], inputs: 1, outputs: 1 }
    }

    #[test]
    fn shapes_of_usual_networks_are_taken() {
        let taken = |conv: &Conv2d, kernel| Depthwise::new(&sizes(conv, kernel), DType::BF16).is_some();
        for channels in [8, 16, 24, 72, 96, 184, 1152] {
            for (kernel, stride) in [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (7, 2)] {
                assert!(
                    taken(&Conv2d { stride: [stride; 2], ..conv(channels) }, kernel),
                    "{channels} {kernel} {stride}"
                );
            }
        }
        assert!(!taken(&conv(6), 3) && taken(&conv(6), 5) && !taken(&conv(7), 5));
        assert!(!taken(&conv(8), 4) && !taken(&conv(8), 9));
        assert!(!taken(&Conv2d { dilation: [2, 2], ..conv(8) }, 3));
        assert!(!taken(&Conv2d { stride: [1, 2], ..conv(8) }, 3));
        assert!(!taken(&Conv2d { padding: [1, 1, 1 << 20, 1], ..conv(8) }, 3));
    }

    #[test]
    fn threads_cover_the_channels() {
        for packs in 1..=2000 {
            let t = Threads::new(packs);
            assert!(t.along * t.tiles >= packs && t.along * (t.tiles - 1) < packs, "{packs}: {t:?}");
            assert!(t.along <= MOST_ALONG && t.down >= 1 && t.along * t.down <= BLOCK, "{packs}: {t:?}");
        }
        assert_eq!(Threads::new(8), Threads { along: 8, down: 16, tiles: 1 });
        assert_eq!(Threads::new(192), Threads { along: 64, down: 2, tiles: 3 });
    }
}

//! Trials of plans before a program is planned: their times, and whether they agree with our own kernels.

use super::agreement::{Tolerance, decoded, numbers};
use super::engines::{Call, Plan};
use super::graph::Places;
use crate::backend::cuda::driver::Context;
use crate::backend::cuda::driver::memory::DeviceBlock;
use crate::backend::cuda::driver::stream::{Event, Stream};
use crate::backend::cuda::modules::{Function, Modules, launch};
use crate::backend::cuda::ready::{LibraryCall, Ready, Tables, own as ready_own, table_bytes};
use crate::backend::cuda::settings::Bindings;
use crate::backend::gpu::launch::{
    Convolution, Direction, Kernel, LaunchConfig, Lowered, Memory, Module, WORKSPACE_ALIGNMENT, suffix,
};
use crate::backend::gpu::target::{Form, Problem};
use crate::graph::DType;
use anyhow::Result;
use std::sync::Arc;

/// Most runs that are timed as one.
const TOGETHER: usize = 16;

/// Period of an operand's numbers: a prime, so that neighbouring pixels differ.
const PERIOD: usize = 65_537;

/// One 32-bit operand is scaled up by this, the other down: beyond the range of 16 bits, so that rounding to those shows.
const SCALE: f32 = (1u32 << 20) as f32;

/// Pieces of the block begin at multiples of this.
const PIECE: usize = 256;

/// A stream and kernels to try plans with.
pub struct Bench {
    modules: Modules,
    stream: Stream,
    events: [Event; 2],
    context: Arc<Context>,
}

/// Where a trial's tensors are in its block.
struct Layout {
    /// The first operand, the second, and the bias: in the order in which the node has them.
    inputs: [usize; 3],
    /// Results of our own kernels and of the library.
    results: [usize; 2],
    result_bytes: usize,
    /// The result in the operands' type, or what our own kernels need.
    scratch: usize,
    workspace: usize,
    tables: usize,
    /// Where the number of a wrong element goes.
    found: usize,
    bytes: usize,
}

/// A problem with memory and random operands.
pub struct Trial<'a> {
    bench: &'a Bench,
    problem: &'a Problem<'a>,
    block: DeviceBlock,
    layout: Layout,
    own: Vec<Ready>,
    /// What follows a plan that is plain, and one that is narrow.
    after: Vec<Ready>,
    widen: Vec<Ready>,
    /// Looks for the first element of both results that is not as it should be: see [`Trial::first`].
    compare: Function,
}

/// Why a plan is not used.
pub enum Verdict {
    /// It is: it agrees with our own kernels, and gives the same bits again.
    Good,
    /// What is wrong.
    Bad(String),
}

impl Bench {
    /// # Errors
    /// The driver failed.
    pub fn new(context: &Arc<Context>) -> Result<Bench> {
        let modules = Modules::new(context, Bindings::default())?;
        let stream = modules.stream()?;
        let events = [Event::new(context, true)?, Event::new(context, true)?];
        Ok(Bench { modules, stream, events, context: context.clone() })
    }
}

/// Elements of the two operands and of the result, in the order of the node that computes `c`.
fn sizes(c: &Convolution) -> [usize; 3] {
    let [x, w, y] = c.elements();
    match c.direction {
        Direction::Forward => [x, w, y],
        Direction::Input => [y, w, x],
        Direction::Weight => [x, y, w],
    }
}

impl Layout {
    fn new(problem: &Problem, own: &Lowered, workspace: usize) -> Layout {
        let c = problem.convolution;
        let mut end = 0;
        let mut piece = |bytes: usize| {
            let start = end;
            end = (start + bytes).next_multiple_of(PIECE);
            start
        };
        let [a, b, result] = sizes(c);
        let inputs = [a * c.dtype.bytes(), b * c.dtype.bytes(), if c.bias { 4 * c.outputs } else { 0 }].map(&mut piece);
        let result_bytes = result * c.result.bytes();
        let results = [result_bytes; 2].map(&mut piece);
        let scratch = [own, &problem.after, &problem.widen].map(|lowered| lowered.scratch_bytes);
        let scratch = piece(scratch.into_iter().max().unwrap_or(0));
        let tables = piece([own, &problem.after, &problem.widen].map(table_bytes).iter().sum());
        let found = piece(size_of::<u32>());
        let workspace = piece(workspace + WORKSPACE_ALIGNMENT);
        Layout { inputs, results, result_bytes, scratch, workspace, tables, found, bytes: end }
    }
}

impl<'a> Trial<'a> {
    /// Memory for `problem`, with the numbers in it that our own kernels get as their result; plans may have so many bytes of
    /// workspace.
    ///
    /// # Errors
    /// There is not enough memory, or the driver failed.
    pub fn new(bench: &'a mut Bench, problem: &'a Problem<'a>, workspace: usize) -> Result<Trial<'a>> {
        bench.context.bind()?;
        let own = (problem.own)();
        let layout = Layout::new(problem, &own, workspace);
        let block = DeviceBlock::new(&bench.context, layout.bytes)?;
        let at = |offset: usize| block.address() + offset as u64;
        let mut tables = Tables::new(at(layout.tables));
        let mut resolve = |lowered: &Lowered, result: usize| -> Result<Vec<Ready>> {
            let address = |memory| {
                Ok(match memory {
                    Memory::Input(i) => at(layout.inputs[i]),
                    Memory::InputFrom(i, from) => at(layout.inputs[i] + from),
                    Memory::Output(_) => at(result),
                    Memory::Scratch(offset) => at(layout.scratch + offset),
                })
            };
            lowered.steps.iter().map(|s| ready_own(s, &address, &mut tables, &mut bench.modules)).collect()
        };
        let own = resolve(&own, layout.results[0])?;
        let after = resolve(&problem.after, layout.results[1])?;
        let widen = resolve(&problem.widen, layout.results[1])?;
        let name = format!("first_difference_{}", suffix(problem.convolution.result));
        let compare = bench.modules.function(Module::Runtime, &name, 0)?;
        // SAFETY: the tables live until the stream has been waited for, in `fill`.
        unsafe { block.write(&bench.stream, layout.tables, &tables.bytes)? };
        let mut trial = Trial { bench, problem, block, layout, own, after, widen, compare };
        trial.fill()?;
        trial.run(&trial.own)?;
        trial.bench.stream.synchronize()?;
        Ok(trial)
    }

    /// Writes the operands.
    fn fill(&mut self) -> Result<()> {
        let c = self.problem.convolution;
        let [a, b, _] = sizes(c);
        let scale = if c.dtype == DType::F32 { SCALE } else { 1.0 };
        let bias = if c.bias { c.outputs } else { 0 };
        let operands = [(c.dtype, a, scale), (c.dtype, b, 1.0 / scale), (DType::F32, bias, 1.0)];
        let stream = &self.bench.stream;
        for (key, ((dtype, count, scale), offset)) in operands.into_iter().zip(self.layout.inputs).enumerate() {
            let bytes = numbers(dtype, key as u32, count.min(PERIOD), scale);
            // SAFETY: the bytes live until the wait below.
            unsafe { self.block.write(stream, offset, &bytes)? };
            stream.synchronize()?;
            // What is there is copied behind itself until the operand is full.
            let (mut filled, all) = (bytes.len(), count * dtype.bytes());
            while filled < all {
                let bytes = filled.min(all - filled);
                let from = self.block.address() + offset as u64;
                // SAFETY: both parts lie within the operand's piece of the block.
                unsafe { Ready::Copy { from, to: from + filled as u64, bytes }.enqueue(stream)? };
                filled += bytes;
            }
        }
        Ok(stream.synchronize()?)
    }

    fn run(&self, steps: &[Ready]) -> Result<()> {
        // SAFETY: all addresses lie in the block, which lives until the stream has been waited for.
        steps.iter().try_for_each(|step| unsafe { step.enqueue(&self.bench.stream) })
    }

    /// The plan's call on this trial's memory.
    fn call(&self, plan: &Arc<Plan>) -> Result<Call> {
        let at = |offset: usize| self.block.address() + offset as u64;
        let result = if plan.form == Form::Narrow { self.layout.scratch } else { self.layout.results[1] };
        let ([a, b, bias], result) = (self.layout.inputs.map(at), at(result));
        let (x, w, y) = match self.problem.convolution.direction {
            Direction::Forward => (a, b, result),
            Direction::Input => (result, b, a),
            Direction::Weight => (a, result, b),
        };
        let bias = self.problem.convolution.bias.then_some(bias);
        let workspace = at(self.layout.workspace);
        Ok(Call::new(plan, &Places { x, w, y, bias, workspace })?)
    }

    fn run_plan(&self, plan: &Plan, call: &Call) -> Result<()> {
        // SAFETY: the context is current, and all addresses lie in the block, in pieces that are large enough.
        unsafe { call.enqueue(&self.bench.stream)? };
        match plan.form {
            Form::Plain => self.run(&self.after),
            Form::Fused => Ok(()),
            Form::Narrow => self.run(&self.widen),
        }
    }

    /// Seconds of a run: of one, or of as many together as take `least` seconds.
    fn seconds(&self, run: impl Fn() -> Result<()>, least: f64) -> Result<f64> {
        let [start, end] = &self.bench.events;
        let timed = |count: usize| -> Result<f64> {
            start.record(&self.bench.stream)?;
            (0..count).try_for_each(|_| run())?;
            end.record(&self.bench.stream)?;
            end.synchronize()?;
            Ok(end.seconds_since(start)? / count as f64)
        };
        // Kernels are loaded in the first run, and what lies in the cache is its own.
        run()?;
        let one = timed(1)?;
        let together = (least / one).min(TOGETHER as f64) as usize;
        if together < 2 { Ok(one) } else { Ok(one.min(timed(together)?)) }
    }

    /// Seconds that our own kernels take, timed for `least` seconds.
    ///
    /// # Errors
    /// The driver failed.
    pub fn own_seconds(&self, least: f64) -> Result<f64> {
        self.seconds(|| self.run(&self.own), least)
    }

    /// Seconds that a plan takes, with what follows it, timed for `least` seconds.
    ///
    /// # Errors
    /// The library or the driver failed.
    pub fn seconds_of(&self, plan: &Arc<Plan>, least: f64) -> Result<f64> {
        let call = self.call(plan)?;
        self.settled(self.seconds(|| self.run_plan(plan, &call), least))
    }

    /// What was enqueued before something failed may still run, and the plan must live until it has.
    fn settled<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_err() {
            // The first error is the one that is worth a report.
            let _ = self.bench.stream.synchronize();
        }
        done
    }

    /// Runs a plan twice, on memory that holds nothing but NaNs: whether it gives what our own kernels give, and the same
    /// bits both times.
    ///
    /// # Errors
    /// The library or the driver failed.
    pub fn check(&self, plan: &Arc<Plan>) -> Result<Verdict> {
        let call = self.call(plan)?;
        self.settled(self.verdict(plan, &call))
    }

    fn verdict(&self, plan: &Plan, call: &Call) -> Result<Verdict> {
        let (stream, [own, theirs]) = (&self.bench.stream, self.layout.results);
        let spoil = |offset: usize, bytes: usize| self.block.fill(stream, offset, 0xff, bytes);
        let run = || -> Result<()> {
            spoil(theirs, self.layout.result_bytes)?;
            spoil(self.layout.workspace, plan.workspace + WORKSPACE_ALIGNMENT)?;
            self.run_plan(plan, call)
        };
        run()?;
        let tolerance = Tolerance::new(self.problem.convolution, plan.form);
        if let Some(at) = self.first([own, theirs], Some(tolerance))? {
            let [a, b] = [self.element(own, at)?, self.element(theirs, at)?];
            return Ok(Verdict::Bad(format!("element {at} of a trial is {b}, and {a} by our own kernels")));
        }
        // The other result is kept where that of our own kernels is, and that made again.
        let (from, to) = (self.block.address() + theirs as u64, self.block.address() + own as u64);
        // SAFETY: both are results of that many bytes in the block.
        unsafe { Ready::Copy { from, to, bytes: self.layout.result_bytes }.enqueue(stream)? };
        run()?;
        let differs = self.first([own, theirs], None)?;
        self.run(&self.own)?;
        stream.synchronize()?;
        Ok(match differs {
            Some(_) => Verdict::Bad("it gives other bits when it is run again".into()),
            None => Verdict::Good,
        })
    }

    /// The first element of the second result that is further from the first than the tolerance; without one, whose bits are
    /// others. It is looked for on the device, which has both.
    fn first(&self, results: [usize; 2], tolerance: Option<Tolerance>) -> Result<Option<usize>> {
        let (stream, found) = (&self.bench.stream, self.layout.found);
        let at = |offset: usize| self.block.address() + offset as u64;
        let count = self.layout.result_bytes / self.problem.convolution.result.bytes();
        let [absolute, relative] = tolerance.map_or([-1.0; 2], |t| [t.absolute as f32, t.relative as f32]);
        let floats = [absolute, relative].map(|x| u64::from(x.to_bits()));
        let Kernel { grid, block, shared_bytes, .. } = Kernel::new(Module::Runtime, "first_difference").over(count);
        let config = LaunchConfig { grid, block, shared_bytes };
        let cells = [at(results[0]), at(results[1]), count as u64, floats[0], floats[1], at(found)];
        self.block.fill(stream, found, 0xff, size_of::<u32>())?;
        // SAFETY: these are the kernel's arguments, all addresses lie in the block, and the stream is waited for below.
        unsafe { launch(stream, &self.compare, config, &cells)? };
        let mut first = [0xff; size_of::<u32>()];
        // SAFETY: the bytes are not read before the wait.
        unsafe { self.block.read(stream, found, &mut first)? };
        stream.synchronize()?;
        let first = u32::from_ne_bytes(first);
        Ok((first != u32::MAX).then_some(first as usize))
    }

    /// An element of a result.
    fn element(&self, result: usize, at: usize) -> Result<f32> {
        let dtype = self.problem.convolution.result;
        let mut bytes = vec![0; dtype.bytes()];
        // SAFETY: the bytes are not read before the wait.
        unsafe { self.block.read(&self.bench.stream, result + at * dtype.bytes(), &mut bytes)? };
        self.bench.stream.synchronize()?;
        Ok(decoded(dtype, &bytes)[0])
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // The block is freed next.
        let _ = self.bench.stream.synchronize();
    }
}

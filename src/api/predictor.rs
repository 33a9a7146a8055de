//! A model that answers: samples in, what it says of them out, from any number of threads.

use super::failure::Failure;
use super::memory::Planned;
use super::model::{Model, build, device, load_model};
use super::options::expect_valid;
use super::scores::scores;
pub use super::seen::{HeadSeen, Seen};
use crate::backend::{Backend, DeviceError, HostBuffer};
use crate::config::language::values::Device;
use crate::data::{DataSpec, Field, Footprint, changed_sample, check_tokens, image_bytes, transformed};
use crate::graph::op::Task;
use crate::graph::{Input, Shape};
use crate::model::task;
use crate::passes::PassOptions;
use crate::plan::SlotLayout;
use crate::terminal::{Listener, heard_by, human_bytes};
use crate::train::setup::memory::{MemoryPlan, Needs, Use, available};
use crate::train::setup::programs::{Programs, Sizes};
use crate::train::setup::session::Session;
use anyhow::{Context, Result, ensure};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Operations of a millisecond or so: of a few cores, and of a GPU.
const QUICK_ON_CPU: u64 = 100_000_000;
const QUICK_ON_GPU: u64 = 20_000_000_000;
/// The largest batch of [`Predictor::quick_batch`].
const MOST_AT_ONCE: u64 = 32;

/// How a model is opened.
#[derive(Clone)]
pub struct Options {
    /// The device, if not that of the model's configuration.
    pub device: Option<Device>,
    /// Values that lie over the model's configuration, in the form of `--set`.
    pub sets: Vec<String>,
    /// Passes over the graph that are left out.
    pub without: Vec<String>,
    /// Compute threads of the CPU that each executable has, 1 to 1024; all cores, if `None`.
    pub threads: Option<usize>,
    /// The most samples that are computed at once. Where there is no room for them they are fewer.
    pub batch: usize,
    /// How many batches are computed at a time, each with weights of its own. Callers wait for one of these executables; with one, calls are answered one
    /// after the other, each by all threads.
    pub executables: usize,
    /// Black and white are swapped in images.
    pub invert: bool,
    /// What is needed besides, and for whom.
    pub room: Room,
    /// Gets the messages while it is opened; `None`: they go to the terminal.
    pub listener: Option<Listener>,
}

/// The memory that a caller needs beside a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Batch slots, for each executable.
    pub slots: usize,
    /// Samples and the like.
    pub data: Footprint,
}

impl Default for Options {
    /// One sample at a time by one executable on all cores, without messages.
    fn default() -> Self {
        Options {
            device: None,
            sets: Vec::new(),
            without: Vec::new(),
            threads: None,
            batch: 1,
            executables: 1,
            invert: false,
            room: Room { slots: 1, data: Footprint::default() },
            listener: Some(Arc::new(|_| ())),
        }
    }
}

/// A model on a device, which answers from several threads at once.
pub struct Predictor {
    seen: Seen,
    task: Task,
    invert: bool,
    /// The number of the field that transforms change.
    changed: Option<usize>,
    batch: usize,
    /// Numbers that the model puts out for a sample.
    outputs: usize,
    /// What has a class each in a sample.
    positions: Shape,
    layout: SlotLayout,
    /// The executables that are not at work.
    free: Mutex<Vec<Worker>>,
    freed: Condvar,
    backend: Box<dyn Backend>,
}

/// An executable with what it needs.
struct Worker {
    session: Session,
    /// A batch of its own, from the first call on that needs one.
    buffer: Option<HostBuffer>,
    /// Outputs as the device has them.
    bytes: Vec<u8>,
    /// As PyTorch has them.
    outputs: Vec<f32>,
    /// Of each sample with those of heads after them; empty if there are no heads.
    wide: Vec<f32>,
    /// Those of a head.
    of_head: Vec<f32>,
}

impl Predictor {
    /// Opens a checkpoint, that of a run's folder (its best, else its last), or a configuration that names weights.
    ///
    /// # Errors
    /// It cannot be read, or is none; an option is not what it may be; there is no such device, or not enough memory.
    pub fn open(path: &Path, options: &Options) -> Result<Predictor, Failure> {
        heard_by(options.listener.clone(), || {
            expect_valid(options.threads, &options.without)?;
            let device_set = options.device.map(|device| format!("device=\"{device}\""));
            let sets: Vec<String> = options.sets.iter().cloned().chain(device_set).collect();
            let model = load_model(path, &sets)?;
            let backend = device(&model.loaded.experiment, options.threads)?;
            Predictor::new(&model, Seen::by(&model)?, backend, options)
        })
    }

    /// Of a model that is read, for a device that is chosen: `options` say the rest.
    ///
    /// # Errors
    /// There is not enough memory; the weights do not fit.
    pub fn new(model: &Model, seen: Seen, backend: Box<dyn Backend>, options: &Options) -> Result<Predictor, Failure> {
        let (programs, batch) = plan(model, &seen.data, backend.as_ref(), options)?;
        let layout = programs.plan.slot.clone();
        let predicted =
            programs.plan.programs.first().and_then(|program| Some(program.graph.value(program.prediction?)));
        let outputs = predicted.context("the program predicts nothing")?.shape.len() / batch;
        let worker = |_| -> Result<Worker, Failure> {
            let session = model.session(programs.clone(), &seen.data, backend.as_ref())?;
            let width = outputs + seen.heads.iter().map(HeadSeen::outputs).sum::<usize>();
            let most = seen.heads.iter().map(HeadSeen::outputs).max().unwrap_or(0);
            let wide = vec![0.0; if most > 0 { width * batch } else { 0 }];
            let of_head = vec![0.0; most * batch];
            Ok(Worker { session, buffer: None, bytes: Vec::new(), outputs: vec![0.0; outputs * batch], wide, of_head })
        };
        let free = (0..options.executables.max(1)).map(worker).collect::<Result<_, _>>()?;
        Ok(Predictor {
            task: task(&model.loaded.experiment),
            invert: options.invert,
            changed: transformed(&seen.given).filter(|_| !seen.transforms.is_empty()),
            batch,
            outputs,
            positions: seen.data.target().map_or(Shape::default(), |(_, field)| field.shape.clone()),
            layout,
            seen,
            free: Mutex::new(free),
            freed: Condvar::new(),
            backend,
        })
    }

    /// The samples of a batch that takes about a millisecond: a power of 2, at most 32. It follows from the operations of the model and the kind of the device
    /// alone, so that it is the same whenever the model is opened.
    ///
    /// # Errors
    /// Layers and samples do not fit.
    pub fn quick_batch(model: &Model, seen: &Seen, backend: &dyn Backend) -> Result<usize, Failure> {
        let sizes = Sizes { predict: vec![1.into()], ..Sizes::default() };
        let programs = build(&model.loaded, &seen.data, &sizes, backend, &PassOptions::default())?;
        let each: u64 = programs.rows.iter().map(|row| row.flops).sum();
        let budget = if backend.is_asynchronous() { QUICK_ON_GPU } else { QUICK_ON_CPU };
        let most = (budget / each.max(1)).clamp(1, MOST_AT_ONCE);
        Ok(1 << most.ilog2())
    }

    /// What is given of a sample, in the order of [`Predictor::predict`]: names, shapes (images are `[H, W, C]`) and types of elements. Images of one size are
    /// given as the data has them: they go through the transforms of validation here. Photos are given as they come out of those.
    pub fn fields(&self) -> &[Field] {
        self.seen.given.as_slice()
    }

    /// The names of the classes or labels; `None` where they have none.
    pub fn classes(&self) -> Option<&[String]> {
        self.seen.data.class_names()
    }

    /// A sample as the model sees it.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// What the model was trained for.
    pub fn task(&self) -> Task {
        self.task
    }

    /// The most samples that are computed at once.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// How many numbers there are in an answer, without those of heads.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// How many there are with those of heads.
    pub fn width(&self) -> usize {
        self.outputs + self.seen.heads.iter().map(HeadSeen::outputs).sum::<usize>()
    }

    /// What stands one after the other in an answer with heads, each with how many numbers it is.
    pub fn parts(&self) -> Vec<(Task, usize)> {
        let of_heads = self.seen.heads.iter().map(|head| (head.task, head.outputs()));
        std::iter::once((self.task, self.outputs)).chain(of_heads).collect()
    }

    /// What the model learnt beside its target, in the order in which it answers.
    pub fn heads(&self) -> &[HeadSeen] {
        &self.seen.heads
    }

    /// Writes what the model says of samples to `out`, [`Predictor::outputs`] numbers for each: probabilities of classes or labels, or numbers. Where a sample
    /// has a class at each position, they lie as PyTorch has them, those of images channels first.
    ///
    /// `rows` has the bytes of all samples, one behind the other, for each field of [`Predictor::fields`], as elements of this machine. There may be any
    /// number of samples. Nothing is allocated once each executable has answered, but for images that transforms change.
    ///
    /// # Errors
    /// The bytes are not those of whole samples, or `out` is not for so many; the device failed.
    pub fn predict(&self, rows: &[&[u8]], out: &mut [f32]) -> Result<()> {
        self.each(rows, out, self.outputs, &|raw, out| {
            scores(self.task, &self.positions, &raw[..self.outputs], out);
        })
    }

    /// The same with what the model says of its heads, in their order, after that: [`Predictor::width`] numbers for each sample.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub fn predict_with_heads(&self, rows: &[&[u8]], out: &mut [f32]) -> Result<()> {
        self.each(rows, out, self.width(), &|raw, out| {
            let mut first = self.outputs;
            scores(self.task, &self.positions, &raw[..first], &mut out[..first]);
            for head in &self.seen.heads {
                let own = first..first + head.outputs();
                scores(head.task, &Shape::default(), &raw[own.clone()], &mut out[own.clone()]);
                first = own.end;
            }
        })
    }

    /// The same before anything is made of it: the logits of classes and labels, in the place of their probabilities.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub fn raw(&self, rows: &[&[u8]], out: &mut [f32]) -> Result<()> {
        self.each(rows, out, self.outputs, &|raw, out| out.copy_from_slice(&raw[..self.outputs]))
    }

    /// The same with those of heads, as [`Predictor::predict_with_heads`] has them.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub fn raw_with_heads(&self, rows: &[&[u8]], out: &mut [f32]) -> Result<()> {
        self.each(rows, out, self.width(), &|raw, out| out.copy_from_slice(raw))
    }

    /// Hands what the model puts out for each sample to `put`, with its place of `width` numbers in `out`.
    fn each(&self, rows: &[&[u8]], out: &mut [f32], width: usize, put: &dyn Fn(&[f32], &mut [f32])) -> Result<()> {
        let samples = self.samples(rows)?;
        check_tokens(self.fields(), rows)?;
        ensure!(
            out.len() == samples * width,
            "an answer for {samples} samples has {} numbers, and there is room for {}",
            samples * width,
            out.len()
        );
        let mut worker = self.worker();
        let mut buffer = match worker.buffer.take() {
            Some(buffer) => buffer,
            None => self.host_buffer()?,
        };
        for (at, out) in out.chunks_mut(self.batch * width).enumerate() {
            let (first, count) = (at * self.batch, out.len() / width);
            for (number, (field, row)) in self.seen.given.iter().zip(rows).enumerate() {
                // One that the model does not look at has no place.
                let Some(place) = self.layout.find(Input::Field(number as u32)) else { continue };
                let each = field.bytes();
                let (given, into) = (&row[first * each..][..count * each], &mut buffer.bytes_mut()[place.offset..]);
                if Some(number) == self.changed {
                    let seen = self.seen.fields[number].bytes();
                    for (given, into) in given.chunks_exact(each).zip(into.chunks_exact_mut(seen)) {
                        changed_sample(&self.seen.transforms, field, given, into);
                    }
                } else {
                    into[..count * each].copy_from_slice(given);
                }
            }
            let raw = self.computed(&mut worker, (0, &buffer))?;
            for (raw, out) in raw.chunks_exact(self.width()).zip(out.chunks_exact_mut(width)) {
                put(raw, out);
            }
        }
        worker.buffer = Some(buffer);
        Ok(())
    }

    /// What the model puts out for a batch that lies in a slot, with that of heads: [`Predictor::width`] numbers for each sample.
    fn computed<'w>(&self, worker: &'w mut Worker, (slot, batch): (usize, &HostBuffer)) -> Result<&'w [f32]> {
        let Worker { session, bytes, outputs, wide, of_head, .. } = worker;
        session.predict_into((slot, batch), self.batch, bytes, outputs)?;
        if wide.is_empty() {
            return Ok(outputs);
        }
        let width = self.width();
        let mut put = |from: &[f32], first: usize, each: usize| {
            for (row, into) in from.chunks_exact(each).zip(wide.chunks_exact_mut(width)) {
                into[first..first + each].copy_from_slice(row);
            }
        };
        put(outputs, 0, self.outputs);
        let mut first = self.outputs;
        for (number, head) in self.seen.heads.iter().enumerate() {
            let own = &mut of_head[..head.outputs() * self.batch];
            session.head_into(number, self.batch, bytes, own)?;
            put(own, first, head.outputs());
            first += head.outputs();
        }
        Ok(wide)
    }

    /// The same for the content of an image file, which goes the way that the images of validation went.
    ///
    /// # Errors
    /// It is no image; the model takes none, or more than one; `out` is not for one answer; the device failed.
    pub fn predict_image(&self, file: &[u8], out: &mut [f32]) -> Result<()> {
        let [field] = self.fields() else {
            let names: Vec<&str> = self.fields().iter().map(|field| field.name.as_str()).collect();
            anyhow::bail!("the model takes {}, not one image", names.join(" and "));
        };
        let sample = image_bytes(file, field, self.seen.of_files.as_deref(), self.invert)?;
        self.predict(&[&sample], out)
    }

    /// How batches lie in memory, for a loader that makes them.
    pub fn layout(&self) -> &SlotLayout {
        &self.layout
    }

    /// Memory for a batch.
    ///
    /// # Errors
    /// There is not enough.
    pub fn host_buffer(&self) -> Result<HostBuffer> {
        self.backend.host_buffer(self.layout.bytes)
    }

    /// Hands what the model puts out for a batch that lies in a slot of a ring to `see`, before anything is made of it: [`Predictor::width`] numbers for each of
    /// [`Predictor::batch`] samples.
    ///
    /// # Errors
    /// The device failed; `see` fails.
    pub fn outputs_of<T>(&self, slot: usize, batch: &HostBuffer, see: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
        let mut worker = self.worker();
        see(self.computed(&mut worker, (slot, batch))?)
    }

    /// The number of samples in `rows`.
    fn samples(&self, rows: &[&[u8]]) -> Result<usize> {
        let fields = self.fields();
        ensure!(
            rows.len() == fields.len(),
            "a sample has {} fields, and bytes of {} are given",
            fields.len(),
            rows.len()
        );
        let mut samples = None;
        for (field, row) in fields.iter().zip(rows) {
            let (name, each) = (&field.name, field.bytes());
            ensure!(
                row.len().is_multiple_of(each),
                "`{name}` has {each} bytes for each sample ({} {}), and {} are given",
                field.dtype,
                field.shape,
                row.len()
            );
            let given = row.len() / each;
            let known = *samples.get_or_insert(given);
            ensure!(given == known, "`{name}` is given for {given} samples, and `{}` for {known}", fields[0].name);
        }
        Ok(samples.unwrap_or(0))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Worker>> {
        // Nothing under the lock can panic.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An executable, waiting for it if need be.
    fn worker(&self) -> Working<'_> {
        let mut free = self.lock();
        loop {
            match free.pop() {
                Some(worker) => return Working { of: self, worker: Some(worker) },
                None => free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// An executable that is at work. It is free again when this is dropped, also after an error.
struct Working<'a> {
    of: &'a Predictor,
    worker: Option<Worker>,
}

impl Deref for Working<'_> {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        self.worker.as_ref().expect("it is here until this is dropped")
    }
}

impl DerefMut for Working<'_> {
    fn deref_mut(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("it is here until this is dropped")
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.of.lock().extend(self.worker.take());
        self.of.freed.notify_one();
    }
}

/// The program for a batch, and the number of samples in that: fewer than are asked for, if there is no room for them.
fn plan(
    model: &Model,
    data: &DataSpec,
    backend: &dyn Backend,
    options: &Options,
) -> Result<(Programs, usize), Failure> {
    let mut batch = options.batch.max(1);
    let passes = PassOptions { without: options.without.clone(), stop_after: None };
    loop {
        let sizes = Sizes { predict: vec![batch.into()], ..Sizes::default() };
        let programs = build(&model.loaded, data, &sizes, backend, &passes)?;
        let planned = Planned {
            loaded: &model.loaded,
            data,
            plan: &programs.plan,
            backend,
            what: Use::Prediction,
            needs: Needs::of_prediction(options.room.slots, options.room.data),
            passes: &passes,
        };
        let lacking = lacking(&planned.memory()?, options.executables);
        if batch > 1 && lacking.is_some() {
            batch = batch.div_ceil(2);
            continue;
        }
        planned.require()?;
        return match lacking {
            Some(text) => Err(DeviceError(text).into()),
            None => Ok((programs, batch)),
        };
    }
}

/// What is lacking for so many executables.
pub(super) fn lacking(memory: &MemoryPlan, executables: usize) -> Option<String> {
    let refused = |needed: usize, had: usize, place: &str| {
        format!(
            "not enough memory {place} for {executables} executables: {} are needed, and {} can be had\nhelp: take fewer of them",
            human_bytes(needed),
            human_bytes(had)
        )
    };
    let on_device =
        memory.device.map(|device| (memory.summary.total * executables.max(1), available(device), "on the device"));
    let on_host = memory.host.memory.as_ref().map(|m| (memory.of_ranks(executables, true), m.available, "on the host"));
    let first = [on_device, on_host].into_iter().flatten().find(|(needed, had, _)| needed > had);
    first.map(|(needed, had, place)| refused(needed, had, place))
}

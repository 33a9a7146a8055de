//! What is under way allocates nothing: neither a training step nor an evaluation nor an answer, on any thread.

#[path = "../../support/allocations.rs"]
mod allocations;

use allocations::allocations;
use runner::api::predictor::{Options, Predictor};
use runner::api::train::{Asked, Request, start};
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::config;
use runner::data::{Batch, Loader, LoaderOptions, Position};
use runner::passes::PassOptions;
use runner::train::setup::input::{self, transforms};
use runner::train::setup::programs::{self, Sizes};
use runner::train::setup::session::{Session, StepInputs};
use runner::train::setup::slots;
use std::sync::{Mutex, PoisonError};

/// What one test allocates is not to be counted for another.
static ALONE: Mutex<()> = Mutex::new(());

const CONFIG: &str = r#"
seed = 1
[data]
source = "synthetic"
shape = [3, 12, 12]
classes = 10
samples = 70
val_samples = 40
batch_size = 16
workers = 2
train_transforms = [{ type = "random_crop", size = 12, padding = 2 }, "random_horizontal_flip"]
transforms = [{ type = "normalize", mean = [0.5], std = [0.2] }]

[model]
layers = [
  { type = "conv2d", out_channels = 16, kernel_size = 3, padding = 1, bias = false },
  "batch_norm2d",
  "relu",
  { name = "block", type = "residual", layers = [
    { type = "conv2d", out_channels = 32, kernel_size = 3, stride = 2, padding = 1 },
    { type = "group_norm", num_groups = 4 },
    "gelu",
    { type = "conv2d", kernel_size = 3, padding = 1, groups = "in_channels" },
  ], projection = [{ type = "conv2d", out_channels = 32, kernel_size = 1, stride = 2 }] },
  { type = "max_pool2d", kernel_size = 2 },
  { name = "gate", type = "gate", layers = [
    { type = "adaptive_avg_pool2d", output_size = 1 },
    { type = "conv2d", out_channels = 32, kernel_size = 1 },
    "sigmoid",
  ] },
  "flatten",
  { type = "linear", out_features = 64 },
  "batch_norm1d",
  "silu",
  "dropout",
  "layer_norm",
  { type = "linear", out_features = 10 },
]

[loss]
type = "cross_entropy"
label_smoothing = 0.1

[optimizer]
type = "adamw"
lr = 1e-3

[train]
epochs = 1000
clip_grad_norm = 1.0
accumulate = 2
"#;

/// Batches one after the other, as the training loop takes them.
struct Underway<'a> {
    session: Session,
    losses: Vec<f32>,
    loader: Loader,
    batches: u64,
    config: &'a config::Experiment,
}

impl Underway<'_> {
    fn next(&mut self) -> Batch {
        self.loader.next().unwrap().unwrap()
    }

    fn done(&mut self, batch: Batch) {
        self.session.wait_slot(batch.slot).unwrap();
        self.loader.release(batch);
    }

    /// An update from two micro-batches, the way the loop makes it.
    fn update(&mut self) {
        for k in 0..2 {
            let mut batch = self.next();
            let inputs = StepInputs {
                lr: 1e-3,
                lr_floor: 0.0,
                grad_scale: 1.0,
                seed: self.config.seed,
                micro_step: self.batches,
            };
            self.session.train(batch.slot, &mut batch.buffer, batch.shape.samples, inputs).unwrap();
            self.losses.clear();
            self.session.losses(true, &mut self.losses).unwrap();
            assert!(self.losses.iter().all(|loss| loss.is_finite()));
            if k == 1 {
                self.session.update(batch.slot, &mut batch.buffer, inputs).unwrap();
            }
            self.batches += 1;
            self.done(batch);
        }
    }

    fn evaluate(&mut self) {
        let batch = self.next();
        self.session.evaluate(batch.slot, &batch.buffer, batch.shape.samples).unwrap();
        self.done(batch);
    }
}

/// Does `step` again and again until a whole round allocates nothing. Threads allocate while they start, which may be
/// late; what a step costs shows in every round.
fn is_quiet(mut step: impl FnMut()) -> bool {
    (0..10).any(|_| {
        let before = allocations();
        (0..20).for_each(|_| step());
        allocations() == before
    })
}

#[test]
fn nothing_is_allocated_by_steps_and_evaluations() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = config::load_str("steady.toml", CONFIG, &[]).unwrap_or_else(|e| panic!("{e}"));
    let experiment = &loaded.experiment;
    let samples = input::load(experiment, &mut |_| {}).unwrap();
    let backend = CpuBackend::new(Some(2)).unwrap();
    // Both splits have a last batch that is smaller: 70 = 4 · 16 + 6, 40 = 2 · 16 + 8.
    let sizes = Sizes {
        train: vec![16.into(), 6.into()],
        eval: vec![16.into(), 8.into()],
        predict: Vec::new(),
        ..Sizes::default()
    };
    for train in [true, false] {
        let programs = programs::build(experiment, &samples.spec, &sizes, &backend, &PassOptions::default()).unwrap();
        let layout = programs.plan.slot.clone();
        let task = runner::model::task(experiment);
        let session = Session::new(programs, &backend, task, experiment.seed).unwrap();
        let options = LoaderOptions {
            batch_size: 16,
            batches_together: 1,
            own: None,
            shuffle: train,
            drop_last: false,
            seed: experiment.seed,
            workers: 2,
            mixing: None,
            transforms: transforms(experiment, train),
            end_epoch: None,
        };
        let buffers = (0..slots::training(experiment)).map(|_| backend.host_buffer(layout.bytes).unwrap()).collect();
        let split = if train { &samples.train } else { &samples.val };
        let loader = Loader::start(split, options, &layout, buffers, Position::default()).unwrap();
        let mut run = Underway { session, losses: Vec::new(), loader, batches: 0, config: experiment };
        let quiet = is_quiet(|| if train { run.update() } else { run.evaluate() });
        assert!(quiet, "{}", if train { "training" } else { "evaluation" });
    }
}

#[test]
fn nothing_is_allocated_by_answers() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let sets = ["train.max_steps=1".into(), "device=\"cpu\"".into()];
    let loaded = config::load_str("steady.toml", CONFIG, &sets).unwrap_or_else(|e| panic!("{e}"));
    let asked = Asked::Loaded(Box::new(loaded));
    let request = Request { out: Some(dir.path().join("run")), threads: Some(2), ..Request::new(asked) };
    let trained = start(&request).unwrap();
    for executables in [1, 2] {
        let options = Options { threads: Some(2), batch: 4, executables, ..Options::default() };
        let model = Predictor::open(&trained.folder, &options).unwrap();
        // Two whole batches, and one that is not.
        let samples = vec![7; 10 * model.fields()[0].bytes()];
        let mut out = vec![0.0; 10 * model.outputs()];
        let mut answer = || model.predict(&[&samples], &mut out).unwrap();
        assert!(is_quiet(&mut answer), "{executables} executables");
    }
}

//! Training steps on made-up batches, on any backend.

use runner::backend::{Backend, HostBuffer};
use runner::config;
use runner::graph::op::Figure;
use runner::graph::{Input, VarKind};
use runner::passes::PassOptions;
use runner::train::setup::programs::{self, Sizes};
use runner::train::setup::session::{Session, StepInputs};
use runner::train::setup::synthetic_batch;
use std::collections::BTreeMap;
use std::path::Path;

/// What a few steps have led to.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The loss of every step.
    pub losses: Vec<f32>,
    /// Every variable, by name.
    pub state: BTreeMap<String, Vec<u8>>,
    /// The evaluation's loss, after the steps.
    pub eval: Option<f64>,
}

/// The share of the new values in moving averages, where there are some.
pub const AVERAGE_SHARE: f64 = 0.25;

/// How to go about it.
pub struct Steps {
    /// How many.
    pub steps: u64,
    /// Samples in a batch.
    pub batch: usize,
    /// Host buffers in turn.
    pub slots: usize,
    /// Wait until a host buffer has been read before it is filled anew, as one must.
    pub wait: bool,
    /// The step, counted from 0, whose targets, which are floats, are no numbers.
    pub spoilt: Option<u64>,
}

impl Steps {
    /// `steps` steps of `batch` samples, by the rules.
    pub fn new(steps: u64, batch: usize) -> Steps {
        Steps { steps, batch, slots: 2, wait: true, spoilt: None }
    }

    /// Trains with the configuration `text` on `backend`, then evaluates one batch.
    pub fn run(&self, text: &str, folder: &Path, backend: &dyn Backend) -> Outcome {
        let name = folder.join("test.toml");
        let loaded = config::load_str(&name.to_string_lossy(), text, &[]).unwrap_or_else(|e| panic!("{e}"));
        self.experiment(&loaded.experiment, backend)
    }

    /// As [`Steps::run`].
    pub fn experiment(&self, experiment: &config::Experiment, backend: &dyn Backend) -> Outcome {
        let data =
            runner::train::setup::input::describe(experiment).unwrap_or_else(|_| panic!("the data is described"));
        let sizes = Sizes {
            train: vec![self.batch.into()],
            eval: vec![self.batch.into()],
            predict: Vec::new(),
            ..Sizes::default()
        };
        let programs = programs::build(experiment, &data, &sizes, backend, &PassOptions::default()).unwrap();
        let layout = programs.plan.slot.clone();
        let task = runner::model::task(experiment);
        let mut session = Session::new(programs, backend, task, experiment.seed).unwrap();
        let mut buffers: Vec<HostBuffer> =
            (0..self.slots).map(|_| backend.host_buffer(layout.bytes).unwrap()).collect();
        session.set_average_share(AVERAGE_SHARE);
        let mut losses = Vec::new();
        let group = experiment.micro_batches() as u64;
        for step in 0..self.steps {
            let slot = step as usize % self.slots;
            if self.wait {
                session.wait_slot(slot).unwrap();
            }
            synthetic_batch::fill(&mut buffers[slot], &layout, &data.fields, experiment.seed, step);
            if self.spoilt == Some(step) {
                let at = layout.find(Input::Field(1)).unwrap();
                buffers[slot].bytes_mut()[at.offset..][..4 * at.shape.len()].fill(0xff);
            }
            let inputs = StepInputs {
                lr: 1e-3 / (step + 1) as f32,
                lr_floor: 0.0,
                grad_scale: 1.0,
                seed: experiment.seed,
                micro_step: step,
            };
            session.set_shard((step % group) as usize, group as usize);
            session.train(slot, &mut buffers[slot], self.batch, inputs).unwrap();
            if experiment.updates_apart() && (step + 1).is_multiple_of(group) {
                session.wait_slot(slot).unwrap();
                session.update(slot, &mut buffers[slot], inputs).unwrap();
            }
            session.losses(false, &mut losses).unwrap();
        }
        session.losses(true, &mut losses).unwrap();
        let state = session.save(|v| v.kind != VarKind::Metric).unwrap();
        session.wait_slot(0).unwrap();
        synthetic_batch::fill(&mut buffers[0], &layout, &data.fields, experiment.seed, 1000);
        session.reset_figures(runner::model::Mode::Eval).unwrap();
        session.evaluate(0, &buffers[0], self.batch).unwrap();
        let eval = session.figures(runner::model::Mode::Eval).unwrap().0.and_then(|f| f.get(Figure::Loss));
        let state = state.into_iter().map(|s| (s.name, s.bytes)).collect();
        Outcome { losses, state, eval }
    }
}

/// The floats of a variable's bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
}

//! What the engine makes of a case: the product's own loader, programs and loop, from the configuration's file on.

use super::case::{Case, Tensor, Tensors, decode};
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::backend::cpu::simd::bf16::Bf16Unit;
use runner::backend::cuda::CudaBackend;
use runner::config::language::values::Precision;
use runner::config::{self, Experiment, Loaded};
use runner::data::{Batch, Loader, LoaderOptions, Position};
use runner::graph::{DType, VarKind, Variable};
use runner::passes::PassOptions;
use runner::passes::update::SHARES_VARIABLE;
use runner::train::files::folder::{Folder, Replaces, file};
use runner::train::files::metrics_file::MetricsFile;
use runner::train::files::state::RunState;
use runner::train::files::weights;
use runner::train::run::report::{Reporter, Verbosity};
use runner::train::run::waiting::Waiting;
use runner::train::run::{Outcome, Run};
use runner::train::setup::input::{self, Samples};
use runner::train::setup::programs::{self, Kind, Programs, Sizes};
use runner::train::setup::schedule::Schedule;
use runner::train::setup::session::{Session, StepInputs};
use runner::train::setup::transfer::in_state_dict;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// What the untrained model puts out, and the first step's loss and gradients.
pub struct FirstStep {
    /// For the first batch, in training mode; row-major, in PyTorch's order.
    pub output: Vec<f32>,
    /// For the first batch, in evaluation mode.
    pub eval_output: Vec<f32>,
    /// Mean over what counts in the micro-batches of the step.
    pub loss: f64,
    /// By the parameters' names; means likewise.
    pub grads: Tensors,
}

/// What the loop leaves behind.
#[derive(Debug, PartialEq)]
pub struct Trained {
    /// Loss of every step.
    pub losses: Vec<f64>,
    /// Learning rate of every step.
    pub lr: Vec<f64>,
    /// Parameters and buffers after the last step.
    pub state: Tensors,
    /// Validation loss after every epoch.
    pub val_loss: Vec<f64>,
    /// Validation accuracy after every epoch.
    pub val_accuracy: Vec<f64>,
}

/// A configuration, its samples, and a device: what programs are built from.
struct Setup {
    loaded: Loaded,
    samples: Samples,
    backend: Box<dyn Backend>,
}

/// The device that a case is run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The CPU with this many threads.
    Cpu(usize),
    /// The first GPU.
    Cuda,
}

impl On {
    /// For a configuration that asks for `precision`. In bf16, a CPU that has no unit for it uses plain code, with the same bits.
    fn backend(self, precision: Precision) -> Box<dyn Backend> {
        match self {
            On::Cpu(threads) => {
                let unit = Bf16Unit::from_env().unwrap().unwrap_or(Bf16Unit::Plain);
                let backend = CpuBackend::new(Some(threads)).unwrap().with_unit(Some(unit));
                Box::new(backend.in_bf16(precision == Precision::Bf16))
            }
            On::Cuda => Box::new(cuda()),
        }
    }
}

/// The first GPU. One backend lives as long as the process, and others use what it has: to make a context and to open a library
/// takes a real GPU longer than a case.
fn cuda() -> CudaBackend {
    static FIRST: OnceLock<CudaBackend> = OnceLock::new();
    let first = FIRST.get_or_init(|| CudaBackend::new(0).unwrap());
    CudaBackend::new(0).unwrap().with_libraries_of(first)
}

impl Setup {
    fn new(config: &Path, sets: &[String], on: On) -> Self {
        let loaded = config::load(config, sets).unwrap_or_else(|e| panic!("{e}"));
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let samples = input::load(&loaded.experiment, &mut |_| {}).unwrap();
        let backend = on.backend(loaded.experiment.precision);
        Setup { loaded, samples, backend }
    }

    fn experiment(&self) -> &Experiment {
        &self.loaded.experiment
    }

    fn programs(&self, sizes: &Sizes, options: &PassOptions) -> Programs {
        programs::build(self.experiment(), &self.samples.spec, sizes, self.backend.as_ref(), options).unwrap_or_else(
            |errors| {
                panic!("{}", config::text::diagnostics::render(&self.loaded.sources, &errors, false));
            },
        )
    }

    /// A session that starts from the configuration's weights.
    fn session(&self, programs: Programs) -> Session {
        let experiment = self.experiment();
        let start = weights::read(experiment, &programs.plan.variables, &self.samples.spec).unwrap();
        let start = start.expect("cases start from weights");
        assert_eq!(start.left_out, None);
        weights::session(Some(start), programs, self.backend.as_ref(), experiment).unwrap()
    }

    /// The first `n` training batches.
    fn batches(&self, session: &Session, n: usize) -> Vec<Batch> {
        let layout = &session.programs.plan.slot;
        let loading = &self.experiment().data.loading;
        let options = LoaderOptions {
            batch_size: loading.batch_size,
            batches_together: 1,
            own: None,
            shuffle: loading.shuffle,
            drop_last: loading.drop_last,
            seed: self.experiment().seed,
            workers: 1,
            mixing: None,
            transforms: Vec::new(),
            end_epoch: Some(1),
        };
        let buffers = (0..=n).map(|_| self.backend.host_buffer(layout.bytes).unwrap()).collect();
        let mut loader = Loader::start(&self.samples.train, options, layout, buffers, Position::default()).unwrap();
        (0..n).map(|_| loader.next().unwrap().unwrap()).collect()
    }
}

/// Runs the first step of a case without its update.
pub fn first_step(case: &Case, on: On) -> FirstStep {
    let dir = tempfile::tempdir().unwrap();
    step(&case.write_files(dir.path()), on, &Setup::session, &|_| true)
}

/// Runs the first step of a configuration without its update, from the values that `start` gives parameters and buffers, zeros where
/// it gives none. Gradients are those of the `wanted` parameters.
pub fn first_step_from(
    config: &Path,
    on: On,
    start: &dyn Fn(&Variable) -> Option<Vec<u8>>,
    wanted: &dyn Fn(&str) -> bool,
) -> FirstStep {
    let session = |setup: &Setup, programs: Programs| {
        let task = runner::model::task(setup.experiment());
        let mut session = Session::unset(programs, setup.backend.as_ref(), task).unwrap();
        session.initialize(1, |var| var.kind == VarKind::Constant).unwrap();
        let variables = session.programs.plan.variables.clone();
        for (id, var) in variables.iter().filter(|(_, var)| in_state_dict(var)) {
            if let Some(bytes) = start(var) {
                session.restore(id, &bytes).unwrap();
            }
        }
        session
    };
    step(config, on, &session, wanted)
}

fn step(
    path: &Path,
    on: On,
    session: &dyn Fn(&Setup, Programs) -> Session,
    wanted: &dyn Fn(&str) -> bool,
) -> FirstStep {
    let written = Setup::new(path, &[], on);
    let accumulate = written.experiment().train.accumulate;
    // Gradients are kept where they are summed: a step that sums leaves them behind.
    let setup = Setup::new(path, &[format!("train.accumulate={}", accumulate.max(2))], on);
    let loading = &setup.experiment().data.loading;
    let train = Sizes::of_run(setup.experiment(), &setup.samples.spec).train;
    let first = train[0];
    let group = accumulate.min(setup.samples.train.len().div_ceil(loading.batch_size));
    let sizes = Sizes { train, eval: Vec::new(), predict: vec![first], ..Sizes::default() };
    let mut session = session(&setup, setup.programs(&sizes, &PassOptions::default()));
    let mut batches = setup.batches(&session, group);

    let eval_output = session.predict(&batches[0].buffer, first).unwrap();
    let (mut output, mut loss) = (Vec::new(), 0.0);
    for (k, batch) in batches.iter_mut().enumerate() {
        let inputs = StepInputs {
            // Nothing is updated.
            lr: f32::NAN,
            lr_floor: f32::NAN,
            grad_scale: 1.0,
            seed: setup.experiment().seed,
            micro_step: k as u64,
        };
        session.train(batch.slot, &mut batch.buffer, batch.shape.samples, inputs).unwrap();
        let mut losses = Vec::new();
        session.losses(true, &mut losses).unwrap();
        // The mean so far.
        loss = f64::from(losses[0]);
        if k == 0 {
            output = session.last_prediction(Kind::Train, batch.shape.samples).unwrap();
        }
    }
    let shares = tensors(&mut session, |v| v.name == SHARES_VARIABLE)[SHARES_VARIABLE].data[1];
    let of = |v: &Variable| v.name.strip_prefix("gradient_sum.").is_some_and(|name| name != "loss" && wanted(name));
    let grads = tensors(&mut session, |v| v.kind == VarKind::Gradient && of(v))
        .into_iter()
        .filter_map(|(name, mut t)| {
            t.data.iter_mut().for_each(|x| *x /= shares);
            Some((name.strip_prefix("gradient_sum.")?.to_string(), t))
        })
        .collect();
    FirstStep { output, eval_output, loss, grads }
}

/// What may differ from a case as it is written, without a difference in the results.
pub struct Way {
    /// Changes of the configuration.
    pub sets: Vec<String>,
    /// Passes.
    pub options: PassOptions,
    /// The device.
    pub on: On,
}

impl Default for Way {
    fn default() -> Self {
        // Cases run side by side, so that one thread for each is enough.
        Way { sets: Vec::new(), options: PassOptions::default(), on: On::Cpu(1) }
    }
}

/// Trains with the loop, from the configuration's file to the metrics file.
pub fn train(case: &Case, Way { sets, options, on }: &Way) -> Trained {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&case.write_files(dir.path()), sets, *on);
    let experiment = setup.experiment();
    let programs = setup.programs(&Sizes::of_run(experiment, &setup.samples.spec), options);
    let mut folder = Folder::new(Some(&dir.path().join("run")), &experiment.name, Replaces::Nothing).unwrap();
    folder.claim(false).unwrap();
    let metrics = MetricsFile::open(&folder.file(file::METRICS), 0).unwrap();
    let mut run = Run {
        experiment,
        config: &config::to_toml(&setup.loaded),
        backend: setup.backend.as_ref(),
        samples: &setup.samples,
        session: setup.session(programs),
        state: RunState::default(),
        schedule: Schedule::new(experiment, setup.samples.train.len()),
        folder,
        metrics,
        reporter: Reporter::new(Verbosity::Quiet),
        pending: runner::train::run::pending::Pending::default(),
        waiting: Waiting::default(),
        pause_after: None,
        evaluated: None,
        empty: None,
        texts: None,
        any_stopped: None,
    };
    let outcome = run.run(&AtomicBool::new(false)).unwrap();
    let expected = if experiment.train.max_steps.is_some() { Outcome::MaxSteps } else { Outcome::Finished };
    assert_eq!(outcome, expected);

    let text = fs::read_to_string(run.folder.file(file::METRICS)).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let column = |kind: &str, key: &str| -> Vec<f64> {
        lines.iter().filter(|l| l["kind"] == kind).filter_map(|l| l[key].as_f64()).collect()
    };
    Trained {
        losses: column("step", "loss"),
        lr: column("step", "lr"),
        val_loss: column("epoch", "val_loss"),
        val_accuracy: column("epoch", "val_accuracy"),
        state: tensors(&mut run.session, in_state_dict),
    }
}

/// Variables in the outside layout.
fn tensors(session: &mut Session, wanted: impl Fn(&Variable) -> bool) -> Tensors {
    let saved = session.save(wanted).unwrap();
    let tensor = |dtype: DType, shape: Vec<usize>, bytes: &[u8]| Tensor {
        shape,
        data: match dtype {
            DType::F32 => decode(bytes, f32::from_ne_bytes).map(f64::from).collect(),
            DType::F64 => decode(bytes, f64::from_ne_bytes).collect(),
            DType::I64 => decode(bytes, i64::from_ne_bytes).map(|x| x as f64).collect(),
            other => panic!("state of {other:?}"),
        },
    };
    saved.into_iter().map(|s| (s.name, tensor(s.dtype, s.shape, &s.bytes))).collect()
}

//! Loss scaling over thousands of steps, and what is left of a step whose loss is not finite.

use super::emulator;
use super::harness::floats;
use super::root::root;
use runner::backend::cuda::CudaBackend;
use runner::backend::{Backend, HostBuffer};
use runner::config::{self, Experiment};
use runner::data::Field;
use runner::graph::{Input, VarKind};
use runner::passes::PassOptions;
use runner::train::setup::programs::{self, Sizes};
use runner::train::setup::session::{Session, StepInputs};
use runner::train::setup::synthetic_batch;
use std::collections::BTreeMap;

/// A network with batch normalisation and momentum, so small that thousands of steps take seconds.
const MODEL: &str = r#"
seed = 5
precision = "fp16"
[data]
source = "synthetic"
shape = [6]
classes = 3
samples = 64
batch_size = 4

[model]
layers = [
  { type = "linear", out_features = 8 },
  "batch_norm1d",
  "relu",
  { type = "linear", out_features = 3 },
]

[loss]
type = "cross_entropy"

[optimizer]
type = "adamw"
lr = 1e-3

[train]
epochs = 1
"#;

const BATCH: usize = 4;

fn experiment(sets: &[&str]) -> Experiment {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    let path = root().join("test.toml");
    config::load_str(&path.to_string_lossy(), MODEL, &sets).unwrap_or_else(|e| panic!("{e}")).experiment
}

type State = BTreeMap<String, Vec<u8>>;

/// Training whose state is looked at between steps.
struct Training {
    session: Session,
    buffer: HostBuffer,
    experiment: Experiment,
    fields: Vec<Field>,
    step: u64,
}

/// What is wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Spoilt {
    Nothing,
    /// A number of the data is this: with NaN the loss is none, and with what fp16 cannot hold neither.
    Data(f32),
    /// The factor of all gradients is this: the loss is finite, and what is scaled is not.
    Gradient(f32),
}

impl Training {
    fn new(experiment: Experiment, graph: bool) -> Training {
        let backend = CudaBackend::new(0).unwrap().with_graph(graph);
        let data =
            runner::train::setup::input::describe(&experiment).unwrap_or_else(|_| panic!("the data is described"));
        let sizes =
            Sizes { train: vec![BATCH.into()], eval: vec![BATCH.into()], predict: Vec::new(), ..Sizes::default() };
        let programs = programs::build(&experiment, &data, &sizes, &backend, &PassOptions::default()).unwrap();
        let buffer = backend.host_buffer(programs.plan.slot.bytes).unwrap();
        let task = runner::model::task(&experiment);
        let session = Session::new(programs, &backend, task, experiment.seed).unwrap();
        Training { session, buffer, experiment, fields: data.fields, step: 0 }
    }

    /// One micro-batch.
    fn train(&mut self, spoilt: Spoilt) {
        self.session.wait_slot(0).unwrap();
        let layout = self.session.programs.plan.slot.clone();
        synthetic_batch::fill(&mut self.buffer, &layout, &self.fields, self.experiment.seed, self.step);
        if let Spoilt::Data(x) = spoilt {
            let at = layout.find(Input::Field(0)).unwrap();
            self.buffer.bytes_mut()[at.offset + 8..][..4].copy_from_slice(&x.to_ne_bytes());
        }
        let inputs = self.inputs(spoilt);
        self.session.train(0, &mut self.buffer, BATCH, inputs).unwrap();
        self.step += 1;
    }

    fn inputs(&self, spoilt: Spoilt) -> StepInputs {
        let grad_scale = if let Spoilt::Gradient(factor) = spoilt { factor } else { 1.0 };

        StepInputs { lr: 1e-3, lr_floor: 0.0, grad_scale, seed: self.experiment.seed, micro_step: self.step }
    }

    /// The update after micro-batches.
    fn update(&mut self) {
        self.session.wait_slot(0).unwrap();
        let inputs = self.inputs(Spoilt::Nothing);
        self.session.update(0, &mut self.buffer, inputs).unwrap();
    }

    /// Everything that a checkpoint would hold.
    fn state(&mut self) -> State {
        let saved =
            self.session.save(|v| matches!(v.kind, VarKind::Parameter | VarKind::Buffer | VarKind::Optimizer)).unwrap();
        saved.into_iter().map(|s| (s.name, s.bytes)).collect()
    }

    fn losses(&mut self) -> Vec<f32> {
        let mut losses = Vec::new();
        self.session.losses(true, &mut losses).unwrap();
        losses
    }
}

fn integer(state: &State, name: &str) -> i64 {
    i64::from_ne_bytes(state[name][..].try_into().unwrap())
}

/// Everything that the optimizer changes.
fn updated(state: &State) -> State {
    let statistics =
        |name: &str| name.contains("running_") || name.contains("num_batches") || name.contains("grad_scaler");
    state.iter().filter(|(name, _)| !statistics(name)).map(|(n, b)| (n.clone(), b.clone())).collect()
}

fn bits(losses: &[f32]) -> Vec<u32> {
    losses.iter().map(|loss| loss.to_bits()).collect()
}

/// Steps of the run below, of which some are given gradients that no scale makes fit. The scale grows after 2000 updates in a
/// row, so that there is room for one growth after the last of them.
const STEPS: u64 = 2300;
const OVERFLOWS: [u64; 4] = [3, 150, 151, 200];

/// Every step of thousands keeps PyTorch's rule: it updates, and counts towards the next growth; or it finds gradients that are
/// not finite, leaves everything as it was but the running statistics, and halves the scale. Captured and not, to the same
/// bits.
#[test]
fn the_loss_scale_keeps_its_rule_over_thousands_of_steps() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    emulator::stream_order(0);
    let mut captured = Training::new(experiment(&[]), true);
    let mut plain = Training::new(experiment(&[]), false);
    let mut before = captured.state();
    let (mut halvings, mut growths) = (0, 0);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let spoilt = if OVERFLOWS.contains(&step) { Spoilt::Gradient(f32::INFINITY) } else { Spoilt::Nothing };
        captured.train(spoilt);
        plain.train(spoilt);
        let now = captured.state();
        let at = format!("step {step}");
        let scale = |state: &State| floats(&state["grad_scaler.scale"])[0];
        let tracker = |state: &State| integer(state, "grad_scaler.growth_tracker");
        let count = |state: &State| integer(state, "optimizer.step");
        let batches = |state: &State| integer(state, "1.num_batches_tracked");
        assert_eq!(batches(&now), batches(&before) + 1, "{at}: the forward pass has been made");
        if count(&now) == count(&before) {
            halvings += 1;
            assert_eq!(scale(&now), 0.5 * scale(&before), "{at}");
            assert_eq!(tracker(&now), 0, "{at}");
            assert!(updated(&now) == updated(&before), "{at}: something was updated");
        } else {
            assert!(!OVERFLOWS.contains(&step), "{at}: updated from gradients that are not finite");
            assert_eq!(count(&now), count(&before) + 1, "{at}");
            assert!(updated(&now) != updated(&before), "{at}: nothing was updated");
            if tracker(&before) + 1 == 2000 {
                growths += 1;
                assert_eq!((tracker(&now), scale(&now)), (0, 2.0 * scale(&before)), "{at}");
            } else {
                assert_eq!((tracker(&now), scale(&now)), (tracker(&before) + 1, scale(&before)), "{at}");
            }
        }
        before = now;
        if step % 100 == 99 {
            assert!(plain.state() == before, "{at}: other bits when it is not captured");
            losses.extend(captured.losses());
            assert_eq!(bits(&losses[losses.len() - 100..]), bits(&plain.losses()), "{at}");
        }
    }
    assert!(halvings >= OVERFLOWS.len() && growths >= 1, "{halvings} halvings, {growths} growths");
    assert!(losses.iter().all(|loss| loss.is_finite()), "a loss is not finite");
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    assert!(mean(&losses[2000..]).is_finite() && losses.len() as u64 == STEPS);
}

/// A loss that is not finite, in any micro-batch of an update: parameters, moments, counters, running statistics and the
/// loss scale are those of before, whatever is enqueued after it.
#[test]
fn nothing_is_left_of_an_update_whose_loss_is_not_finite() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    emulator::stream_order(0);
    let mut checked = 0;
    for precision in ["fp32", "bf16", "fp16"] {
        for (group, bad) in [(1, 0b1), (2, 0b01), (2, 0b10), (2, 0b11), (3, 0b100), (3, 0b010)] {
            for graph in [true, false] {
                let what = format!("{precision}, micro-batches {group}, spoilt {bad:b}, graph = {graph}");
                let sets = [format!("precision={precision:?}"), format!("train.accumulate={group}")];
                let mut training = Training::new(experiment(&sets.each_ref().map(String::as_str)), graph);
                let update = |training: &mut Training, bad: u32| {
                    for i in 0..group {
                        let nan = Spoilt::Data(f32::NAN);
                        training.train(if bad >> i & 1 == 1 { nan } else { Spoilt::Nothing });
                    }
                    if group > 1 {
                        training.update();
                    }
                };
                update(&mut training, 0);
                update(&mut training, 0);
                let before = training.state();
                assert_eq!(integer(&before, "1.num_batches_tracked"), 2 * group, "{what}");
                assert_eq!(integer(&before, "optimizer.step"), 2, "{what}");
                update(&mut training, bad);
                for _ in 0..3 {
                    update(&mut training, 0);
                }
                let after = training.state();
                let other: Vec<&String> = before.iter().filter(|(n, b)| after[*n] != **b).map(|(n, _)| n).collect();
                assert!(other.is_empty(), "{what}: {other:?} changed");
                let losses = training.losses();
                let first = (2 * group) as usize + bad.trailing_zeros() as usize;
                assert!(losses[..first].iter().all(|loss| loss.is_finite()), "{what}: {losses:?}");
                assert!(losses[first].is_nan(), "{what}: {losses:?}");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 36);
}

//! Traces: what they show, and that steps are the same with them.

use super::emulator;
use runner::backend::cuda::CudaBackend;
use runner::backend::{Detail, Span, Track, Work};
use runner::config;
use runner::graph::{NodeId, VarKind};
use runner::passes::PassOptions;
use runner::train::setup::programs::{self, Kind, Sizes};
use runner::train::setup::session::{Saved, Session, StepInputs};
use runner::train::setup::synthetic_batch;

const CONFIG: &str = r#"
seed = 1
[data]
source = "synthetic"
shape = [1, 6, 6]
classes = 3
samples = 32
batch_size = 4
[model]
layers = [
  { type = "conv2d", out_channels = 4, kernel_size = 3, padding = 1 },
  "relu",
  "flatten",
  { type = "linear", out_features = 3 },
]
[loss]
type = "cross_entropy"
[optimizer]
type = "adamw"
lr = 1e-2
[train]
epochs = 1
"#;

const BATCH: usize = 4;
const STEPS: usize = 20;

/// What became of [`STEPS`] steps on one batch: the spans, if they were traced, losses and variables.
fn steps(accumulate: usize, detail: Option<Detail>) -> (Session, Vec<Span>, Vec<f32>, Vec<Saved>) {
    let backend = CudaBackend::new(0).unwrap();
    let sets = [format!("train.accumulate={accumulate}")];
    let loaded = config::load_str("trace.toml", CONFIG, &sets).unwrap_or_else(|e| panic!("{e}"));
    let experiment = &loaded.experiment;
    let data = runner::train::setup::input::describe(experiment).unwrap_or_else(|_| panic!("the data is described"));
    let sizes = Sizes { train: vec![BATCH.into()], ..Sizes::default() };
    let programs = programs::build(experiment, &data, &sizes, &backend, &PassOptions::default()).unwrap();
    let layout = programs.plan.slot.clone();
    let mut session = Session::new(programs, &backend, runner::model::task(experiment), 1).unwrap();
    let mut buffer = runner::backend::Backend::host_buffer(&backend, layout.bytes).unwrap();
    synthetic_batch::fill(&mut buffer, &layout, &data.fields, 1, 0);
    let inputs = StepInputs { lr: 1e-2, lr_floor: 0.0, grad_scale: 1.0, seed: 1, micro_step: 0 };
    let mut spans = Vec::new();
    match detail {
        // Twice, so that the second trace begins in the middle of a run.
        Some(detail) => {
            session.trace(Kind::Train, &mut buffer, BATCH, inputs, 3, detail).unwrap();
            spans = session.trace(Kind::Train, &mut buffer, BATCH, inputs, STEPS - 3, detail).unwrap();
        }
        None => {
            for _ in 0..STEPS {
                session.wait_slot(0).unwrap();
                session.train(0, &mut buffer, BATCH, inputs).unwrap();
                if accumulate > 1 {
                    session.wait_slot(0).unwrap();
                    session.update(0, &mut buffer, inputs).unwrap();
                }
            }
        }
    }
    let mut losses = Vec::new();
    session.losses(true, &mut losses).unwrap();
    let state = session.save(|v| v.kind != VarKind::Metric).unwrap();
    (session, spans, losses, state)
}

#[test]
fn traced_steps_are_steps_and_every_piece_of_work_has_a_span() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    for (accumulate, seed) in [(1, 0), (1, 5), (2, 6)] {
        emulator::stream_order(seed);
        let (_, _, losses, state) = steps(accumulate, None);
        assert!(losses.len() == STEPS && losses.iter().all(|l| l.is_finite()), "{losses:?}");
        for detail in [Detail::Nodes, Detail::Programs] {
            let (session, spans, traced, traced_state) = steps(accumulate, Some(detail));
            assert_eq!((traced, &traced_state), (losses.clone(), &state), "{detail:?}");
            let plan = &session.programs.plan;
            let programs: Vec<usize> = (0..plan.programs.len()).collect();
            assert_eq!(programs.len(), accumulate, "training, and the update where it is apart");
            let on = |track| -> Vec<&Span> { spans.iter().filter(|s| s.track == track).collect() };
            for track in [Track::CopyIn, Track::Compute, Track::ReadBack] {
                let spans = on(track);
                assert!(spans.iter().all(|s| 0.0 <= s.start && s.start <= s.end), "{track:?}: {spans:?}");
                assert!(spans.windows(2).all(|s| s[0].end <= s[1].start), "{track:?} overlaps: {spans:?}");
            }
            let mut expected = Vec::new();
            for (step, program) in (0..STEPS - 3).flat_map(|s| programs.iter().map(move |p| (s, *p))) {
                let nodes = plan.programs[program].graph.nodes.len() as u32;
                match detail {
                    Detail::Nodes => expected.extend((0..nodes).map(|n| (step, program, Work::Node(NodeId(n))))),
                    Detail::Programs => expected.push((step, program, Work::Program)),
                }
            }
            let computed: Vec<_> = on(Track::Compute).iter().map(|s| (s.step, s.program, s.work)).collect();
            assert_eq!(computed, expected);
            assert_eq!(on(Track::CopyIn).len(), (STEPS - 3) * accumulate);
            assert!(!on(Track::ReadBack).is_empty(), "the losses came back");
            // A batch is there before it is computed on.
            for copy in on(Track::CopyIn) {
                let first = on(Track::Compute).into_iter().find(|s| (s.step, s.program) == (copy.step, copy.program));
                assert!(first.is_some_and(|s| copy.end <= s.start), "{copy:?}");
            }
        }
    }
}

//! What is left of an update whose loss is not finite: nothing, running statistics included.

use crate::random::build;
use runner::backend::cpu::CpuBackend;
use runner::backend::{Backend, HostBuffer};
use runner::config;
use runner::graph::{Input, VarKind};
use runner::train::setup::session::{Saved, Session, StepInputs};

const BATCH: usize = 8;

struct Training {
    session: Session,
    good: HostBuffer,
    bad: HostBuffer,
    inputs: StepInputs,
}

impl Training {
    fn new(accumulate: usize, momentum: &str) -> Self {
        let text = format!(
            "[data]\nsource = \"synthetic\"\nshape = [5]\nclasses = 3\nsamples = 64\nbatch_size = {BATCH}\n[model]\nlayers = \
             [{{ type = \"linear\", out_features = 6 }}, {{ type = \"batch_norm1d\", momentum = {momentum} }}, \"relu\", \
             \"batch_norm1d\", {{ type = \"linear\", out_features = 3 }}]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\n\
             type = \"adam\"\nlr = 0.01\n[train]\nepochs = 1\naccumulate = {accumulate}\n"
        );
        let experiment = config::load_str("c.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).experiment;
        let backend = CpuBackend::new(Some(2)).unwrap();
        let programs = build(&experiment, &backend).unwrap();
        let layout = programs.plan.slot.clone();
        let task = runner::model::task(&experiment);
        let session = Session::new(programs, &backend, task, 3).unwrap();
        let batch = |spoilt: bool| {
            let mut buffer = backend.host_buffer(layout.bytes).unwrap();
            let data = layout.find(Input::Field(0)).unwrap();
            for (i, x) in buffer.bytes_mut()[data.offset..][..4 * BATCH * 5].as_chunks_mut().0.iter_mut().enumerate() {
                *x = if spoilt && i == 7 { f32::NAN } else { (i as f32 * 0.7).sin() }.to_ne_bytes();
            }
            buffer
        };
        let inputs = StepInputs { lr: 0.01, lr_floor: 0.0, grad_scale: 1.0, seed: 3, micro_step: 0 };
        Training { session, good: batch(false), bad: batch(true), inputs }
    }

    /// One update from micro-batches that are good or not.
    fn update(&mut self, batches: &[bool]) {
        for good in batches {
            let batch = if *good { &mut self.good } else { &mut self.bad };
            self.session.train(0, batch, BATCH, self.inputs).unwrap();
        }
        if batches.len() > 1 {
            self.session.update(0, &mut self.good, self.inputs).unwrap();
        }
    }

    /// Everything that a checkpoint would hold.
    fn state(&mut self) -> Vec<Saved> {
        self.session.save(|v| matches!(v.kind, VarKind::Parameter | VarKind::Buffer | VarKind::Optimizer)).unwrap()
    }
}

fn names_that_differ(a: &[Saved], b: &[Saved]) -> Vec<String> {
    a.iter().zip(b).filter(|(a, b)| a != b).map(|(a, _)| a.name.clone()).collect()
}

#[test]
fn an_update_that_is_given_up_leaves_running_statistics_as_they_were() {
    let cases: [(&[bool], &[&[bool]]); 3] = [
        (&[true], &[&[false]]),
        (&[true, true], &[&[false, true], &[true, false], &[false, false]]),
        (&[true, true, true], &[&[true, true, false], &[true, false, true]]),
    ];
    for (good, bad) in cases {
        for momentum in ["0.1", "\"cumulative\""] {
            let mut straight = Training::new(good.len(), momentum);
            let mut tried = Training::new(good.len(), momentum);
            for bad in bad {
                straight.update(good);
                tried.update(good);
                let before = tried.state();
                assert!(before.iter().any(|s| s.name.ends_with("num_batches_tracked") && s.bytes[0] > 0));
                tried.update(bad);
                assert_eq!(names_that_differ(&before, &tried.state()), [""; 0], "{bad:?}");
                // Nor does it change anything later.
                straight.update(good);
                tried.update(good);
                let (a, b) = (straight.state(), tried.state());
                assert_eq!(names_that_differ(&a, &b), [""; 0], "after {bad:?}");
                let changed = names_that_differ(&before, &b);
                assert!(changed.iter().any(|n| n.ends_with("running_var")), "{changed:?}");
            }
        }
    }
}

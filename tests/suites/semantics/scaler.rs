//! Dynamic loss scaling: updates with a gradient that is not finite are left out, the scale follows, the run goes on.

use runner::backend::cpu::CpuBackend;
use runner::backend::{Backend, Executable, HostBuffer};
use runner::graph::op::{Algorithm, ElementwiseLoss, Linear, LossOp, TensorOptions, UpdateScale};
use runner::graph::{DType, Graph, Input, Shape, ValueId, VarKind, Variable, Variables, verify};
use runner::model::init::initial;
use runner::passes::grad::backward;
use runner::passes::update::{
    GRAD_SCALER, GROWTH_VARIABLE, INITIAL_SCALE, SCALE_VARIABLE, STEP_VARIABLE, add_accumulation, add_update,
    loss_gradient, update_graph,
};
use runner::passes::update_spec::UpdateSpec;
use runner::plan::{Plan, Source};
use std::sync::Arc;

/// Samples whose outputs stay small, and one whose gradient overflows once it is scaled: the first weight is 0 and only
/// that sample moves it.
const PLAIN: [f32; 2] = [0.0, 0.5];
const PLANTED: [f32; 2] = [1e36, 0.5];

/// `mean((x · w − 1)²)` of one sample with two numbers, on the CPU.
struct Run {
    plan: Arc<Plan>,
    executable: Box<dyn Executable>,
    batch: HostBuffer,
    accumulate: usize,
}

impl Run {
    fn new(scaler: Option<UpdateScale>, clip_norm: Option<f32>, accumulate: usize) -> Self {
        let mut vars = Variables::new();
        let weight = Variable { trainable: true, ..Variable::zeros("w", DType::F32, [1, 2], VarKind::Parameter) };
        let w = vars.get_or_add(weight);
        let tensors = vec![(w, TensorOptions { lr_scale: 1.0, weight_decay: 0.0 })];
        let algorithm = Algorithm::Sgd { momentum: 0.9, dampening: 0.0, nesterov: false };
        let micro_batch = (accumulate > 1).then_some(1.0);
        let spec = UpdateSpec {
            muon: None,
            algorithm,
            clip_norm,
            clip_value: None,
            clip_adaptive: None,
            scaler,
            micro_batch,
            shards: None,
            sync_batch_norm: false,
            division: None,
            tensors,
            thawed: Vec::new(),
            averaged: Vec::new(),
        };

        let mut graph = Graph::new();
        let x = graph.input(Input::Field(0), DType::F32, Shape::from([1, 2]));
        let t = graph.input(Input::Field(1), DType::F32, Shape::from([1, 1]));
        let weight = graph.variable(&vars, w);
        let y = graph.add1(Linear::default(), &[x, weight]).unwrap();
        let loss = graph.add(LossOp::from(ElementwiseLoss::Mse), &[y, t]).unwrap();
        let start = loss_gradient(&mut graph, &mut vars, &spec, [loss[0], loss[1]]).unwrap();
        let grad: ValueId = backward(&mut graph, &[(loss[0], start.gradient)], &[weight]).unwrap()[0].unwrap();
        let mut graphs = Vec::new();
        if accumulate == 1 {
            add_update(&mut graph, &mut vars, &spec, start.loss, |_| Some(grad)).unwrap();
            graphs.push(graph);
        } else {
            let sums = add_accumulation(&mut graph, &mut vars, &spec, start.loss, |_| Some(grad)).unwrap();
            graphs.extend([graph, update_graph(&mut vars, &spec, &sums).unwrap()]);
        }
        for graph in &graphs {
            verify(graph).unwrap();
        }
        let source = |graph| Source { name: "step".into(), graph, loss: None, prediction: None };
        let backend = CpuBackend::new(Some(1)).unwrap();
        let sources = graphs.into_iter().map(source).collect();
        let plan = Arc::new(Plan::new(Arc::new(vars), sources, |g, n| backend.workspace(g, n)));
        let mut executable = backend.compile(plan.clone()).unwrap();
        for (id, var) in plan.variables.iter() {
            executable.upload(id, &initial(var, 0)).unwrap();
        }
        let batch = backend.host_buffer(plan.slot.bytes).unwrap();
        Run { plan, executable, batch, accumulate }
    }

    fn write(&mut self, input: Input, numbers: &[f32]) {
        let at = self.plan.slot.find(input).unwrap().offset;
        let bytes: Vec<u8> = numbers.iter().flat_map(|v| v.to_ne_bytes()).collect();
        self.batch.bytes_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    /// A micro-step for each of `samples`, then the update.
    fn step(&mut self, samples: &[[f32; 2]]) {
        assert_eq!(samples.len(), self.accumulate);
        self.write(Input::Field(1), &[1.0]);
        self.write(Input::Schedule, &[0.1, 1.0, 1.0, 0.0]);
        for sample in samples {
            self.write(Input::Field(0), sample);
            self.executable.run(0, 0, &self.batch).unwrap();
        }
        if samples.len() > 1 {
            self.executable.run(1, 0, &self.batch).unwrap();
        }
    }

    fn variable<const N: usize>(&mut self, name: &str) -> [u8; N] {
        let id = self.plan.variables.find(name).unwrap_or_else(|| panic!("there is no variable {name}"));
        let mut bytes = [0; N];
        self.executable.download(id, &mut bytes).unwrap();
        bytes
    }

    /// Scale, growth tracker, updates done.
    fn state(&mut self) -> (f32, i64, i64) {
        (
            f32::from_ne_bytes(self.variable(SCALE_VARIABLE)),
            i64::from_ne_bytes(self.variable(GROWTH_VARIABLE)),
            i64::from_ne_bytes(self.variable(STEP_VARIABLE)),
        )
    }
}

#[test]
fn a_planted_overflow_costs_one_update() {
    let scaler = UpdateScale { interval: 2, ..GRAD_SCALER };
    for clip_norm in [None, Some(0.25)] {
        let mut run = Run::new(Some(scaler), clip_norm, 1);
        let mut plain = Run::new(None, clip_norm, 1);
        let start = INITIAL_SCALE as f32;
        assert_eq!(run.state(), (start, 0, 0));
        let mut expected = vec![(PLAIN, (start, 1, 1))];
        expected.extend([(PLANTED, (start / 2.0, 0, 1)), (PLANTED, (start / 4.0, 0, 1))]);
        expected.extend([(PLAIN, (start / 4.0, 1, 2)), (PLAIN, (start / 2.0, 0, 3)), (PLAIN, (start / 2.0, 1, 4))]);
        for (sample, state) in expected {
            run.step(&[sample]);
            assert_eq!(run.state(), state);
            if sample == PLAIN {
                plain.step(&[sample]);
            }
            // The scale is a power of two: scaled and unscaled gradients have the same digits.
            assert_eq!(run.variable::<8>("w"), plain.variable("w"));
            assert_eq!(run.variable::<8>("optimizer.momentum_buffer.w"), plain.variable("optimizer.momentum_buffer.w"));
        }
        assert_ne!(run.variable("w"), [0; 8]);
    }
}

#[test]
fn an_overflow_in_one_micro_batch_costs_the_whole_update() {
    let mut run = Run::new(Some(GRAD_SCALER), None, 2);
    let mut plain = Run::new(None, None, 2);
    let start = INITIAL_SCALE as f32;
    for (samples, state) in [
        ([PLANTED, PLAIN], (start / 2.0, 0, 0)),
        ([PLAIN, PLAIN], (start / 2.0, 1, 1)),
        ([PLAIN, PLANTED], (start / 4.0, 0, 1)),
        ([PLAIN, PLAIN], (start / 4.0, 1, 2)),
    ] {
        run.step(&samples);
        assert_eq!(run.state(), state);
        if samples == [PLAIN; 2] {
            plain.step(&samples);
        }
        assert_eq!(run.variable::<8>("w"), plain.variable("w"));
    }
}

//! Gradients that are looked at, on any backend: they are those that the next update is made with, and looking at them changes nothing.

use runner::backend::{Backend, HostBuffer};
use runner::config;
use runner::graph::VarKind;
use runner::model;
use runner::passes::PassOptions;
use runner::train::setup::programs::{self, Sizes};
use runner::train::setup::session::{Session, StepInputs};
use runner::train::setup::{input, synthetic_batch};
use std::collections::BTreeMap;

/// Statistics, random draws, and parameters in every layout; a step of plain descent with the rate 1 takes off the gradient itself.
fn config(top: &str, model: &str, tensorboard: bool) -> String {
    format!(
        "seed = 3\n{top}[data]\nsource = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 4\nsamples = 11\nbatch_size = 8\n\
         [model]\n{model}layers = [{{ name = \"conv\", type = \"conv2d\", out_channels = 6, kernel_size = 3, padding = 1, bias = false }}, \
         \"batch_norm2d\", \"relu\", {{ type = \"max_pool2d\", kernel_size = 2 }}, \"flatten\", {{ type = \"dropout\", p = 0.3 }}, \
         {{ name = \"head\", type = \"linear\", out_features = 4 }}]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 1.0\n[train]\nepochs = 2\n[log]\ntensorboard = {tensorboard}\n"
    )
}

const SHAPES: [usize; 2] = [8, 3];

fn session(text: &str, backend: &dyn Backend) -> (Session, HostBuffer) {
    let loaded = config::load_str("gradients.toml", text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let experiment = &loaded.experiment;
    let data = input::describe(experiment).unwrap_or_else(|_| panic!("the data is described"));
    let sizes =
        Sizes { train: SHAPES.map(Into::into).to_vec(), eval: vec![8.into()], predict: Vec::new(), ..Sizes::default() };
    let programs = programs::build(experiment, &data, &sizes, backend, &PassOptions::default()).unwrap();
    let layout = programs.plan.slot.clone();
    let session = Session::new(programs, backend, model::task(experiment), experiment.seed).unwrap();
    let mut buffer = backend.host_buffer(layout.bytes).unwrap();
    synthetic_batch::fill(&mut buffer, &layout, &data.fields, 3, 7);
    (session, buffer)
}

/// The numbers of a variable as the device has them.
fn inside(session: &mut Session, name: &str) -> Vec<f32> {
    let plan = session.programs.plan.clone();
    let saved = session.save(|var| var.name == name).unwrap();
    let outside: Vec<f32> = saved[0].bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
    plan.variables[plan.variables.find(name).unwrap()].storage.to_inside(&outside)
}

/// All that persists, by name.
fn state(session: &mut Session) -> BTreeMap<String, Vec<u8>> {
    session.save(|_| true).unwrap().into_iter().map(|saved| (saved.name, saved.bytes)).collect()
}

/// Gradients of batches of both shapes are those that updates with these batches are made with, to the bit.
pub fn are_those_of_the_update(backend: &dyn Backend, top: &str) {
    for (step, shape) in SHAPES.into_iter().enumerate() {
        // With such steps parameters soon are so large that half precision overflows.
        let (mut session, mut buffer) = session(&config(top, "", true), backend);
        let inputs = StepInputs { lr: 1.0, lr_floor: 0.0, grad_scale: 1.0, seed: 3, micro_step: step as u64 };
        let before = state(&mut session);
        let of_session = session.gradients(&mut buffer, shape, inputs).unwrap();
        assert_eq!(of_session.of.len(), 5, "a convolution, a normalisation, a linear layer");
        let mut gradients = BTreeMap::new();
        for one in &of_session.of {
            let name = session.programs.plan.variables[one.parameter].name.clone();
            let mut list: Vec<f32> = Vec::new();
            let mut take = |piece: &[u8]| {
                list.extend(piece.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b) / of_session.scale));
                Ok(())
            };
            session.read_gradient(&of_session, *one, &mut take).unwrap();
            assert!(list.iter().any(|g| *g != 0.0), "{name}");
            gradients.insert(name, list);
        }
        assert!(state(&mut session) == before, "something was changed");
        let weights: BTreeMap<&String, Vec<f32>> =
            gradients.keys().map(|name| (name, inside(&mut session, name))).collect();
        let mut losses = Vec::new();
        session.losses(true, &mut losses).unwrap();
        assert!(losses.is_empty(), "it is no step of training");
        session.train(0, &mut buffer, shape, inputs).unwrap();
        session.losses(true, &mut losses).unwrap();
        assert_eq!(losses.len(), 1);
        // In 16 bits a gradient may be too large, and the update is then left out, as with those that the session gives.
        let finite = gradients.values().flatten().all(|g| g.is_finite());
        assert!(finite || step > 0, "{top}the first update is made");
        for (name, gradient) in &gradients {
            let after = inside(&mut session, name);
            for (i, ((w, g), after)) in weights[name].iter().zip(gradient).zip(&after).enumerate() {
                let expected = if finite { w - g } else { *w };
                let equal = expected.to_bits() == after.to_bits();
                assert!(equal, "{top}batch of {shape}: {name} {i}: {w}, less {g}, is {expected}, not {after}");
            }
        }
    }
}

/// What is frozen for now has none; and the plan has memory for all of them at once, but only where they are asked for.
pub fn are_planned(backend: &dyn Backend) {
    let frozen = "freeze = [\"conv\"]\nthaw_after = 1\n";
    let (mut session, mut buffer) = session(&config("", frozen, true), backend);
    let inputs = StepInputs { lr: 1.0, lr_floor: 0.0, grad_scale: 1.0, seed: 3, micro_step: 0 };
    for (is_frozen, expected) in [(true, 4), (false, 5)] {
        session.set_frozen(is_frozen);
        assert_eq!(session.gradients(&mut buffer, 8, inputs).unwrap().of.len(), expected);
    }
    let bytes = |kind: VarKind| -> usize {
        session.programs.plan.variables.iter().filter(|(_, v)| v.kind == kind).map(|(_, v)| v.bytes()).sum()
    };
    let parameters = bytes(VarKind::Parameter);
    let program = |p: &&runner::plan::Program| p.name == "gradients, batch of 8";
    let planned = session.programs.plan.programs.iter().find(program).unwrap();
    assert!(planned.transient_bytes >= parameters, "{} for {parameters}", planned.transient_bytes);
    let (without, _) = self::session(&config("", frozen, false), backend);
    assert!(!without.has_gradient_programs() && !without.programs.plan.programs.iter().any(|p| program(&p)));
}

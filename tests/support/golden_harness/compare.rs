//! How far the engine may be from PyTorch, and where it is further.
//!
//! PyTorch itself, run in another memory layout, in double precision, or from inputs that differ in their last bits,
//! comes to the results of these cases within about the same bounds (`faults` in `scripts/golden/case.py`). What is
//! beyond them is therefore no rounding.

use super::case::{Case, Tensor, Tensors};
use crate::engine::{FirstStep, Trained};
use std::collections::BTreeMap;

/// Outputs: norm of the difference, relative to the norm.
const OUTPUT: f64 = 5e-6;
/// Gradients: likewise.
const GRADIENT: f64 = 2e-5;
/// Losses: relative.
const LOSS: f64 = 1e-5;
/// Learning rates: both sides compute them in double precision, PyTorch by a recursion.
const LR: f64 = 1e-9;
/// Parameters: norm of the difference, relative to the norm of what training changed.
const CHANGE: f64 = 1e-3;
/// Buffers: norm of the difference, relative to the norm.
const BUFFER: f64 = 5e-6;
/// Losses in bf16: a product of two rounded factors is off by two units, and a loss after a few layers by a few of those.
const MIXED_LOSS: f64 = 8.0 / 256.0;
/// Whole architectures, whose many layers add up their rounding: largest difference, relative to the largest number.
const DEEP: f64 = 1e-4;
/// Their gradients: relative to the norm.
const DEEP_GRADIENT: f64 = 1e-3;

/// What is further from the expected than it may be, and how far the rest is.
#[derive(Default)]
pub struct Findings {
    /// A line for each.
    pub faults: Vec<String>,
    /// The largest figure of each kind, in units of what is allowed, and of what it is.
    pub worst: BTreeMap<&'static str, (f64, String)>,
    /// The largest figure of each kind.
    errors: BTreeMap<&'static str, f64>,
}

impl Findings {
    fn note(&mut self, kind: &'static str, name: &str, figure: f64, allowed: f64) {
        // A figure that is not a number is a fault, too.
        let within = figure <= allowed;
        if !within {
            self.faults.push(format!("{kind} {name}: {figure:.1e}, more than {allowed:.0e}"));
        }
        let largest = self.errors.entry(kind).or_insert(0.0);
        *largest = largest.max(figure);
        let share = figure / allowed;
        let worst = self.worst.entry(kind).or_insert((0.0, String::new()));
        if !within || share > worst.0 {
            *worst = (share, name.to_string());
        }
    }

    /// The largest figure of that kind: 0 where there is none.
    pub fn error(&self, kind: &str) -> f64 {
        self.errors.get(kind).copied().unwrap_or(0.0)
    }

    /// Adds the findings of `other`, about the case of that name.
    pub fn absorb(&mut self, name: &str, other: Findings) {
        self.faults.extend(other.faults.into_iter().map(|f| format!("{name}: {f}")));
        for (kind, (share, what)) in other.worst {
            let worst = self.worst.entry(kind).or_insert((0.0, String::new()));
            if share > worst.0 {
                *worst = (share, format!("{name} {what}"));
            }
        }
    }

    fn near(&mut self, kind: &'static str, name: &str, got: &[f64], want: &[f64], scale: f64, allowed: f64) {
        if got.len() != want.len() {
            self.faults.push(format!("{kind} {name}: {} elements, not {}", got.len(), want.len()));
            return;
        }
        let difference = norm(got.iter().zip(want).map(|(a, b)| a - b));
        // Zero and zero agree.
        self.note(kind, name, if difference == 0.0 { 0.0 } else { difference / scale }, allowed);
    }

    /// Lists of numbers, each to be near by itself.
    fn list(&mut self, kind: &'static str, got: &[f64], want: &[f64], allowed: f64) {
        if got.len() != want.len() {
            self.faults.push(format!("{kind}: {} of them, not {}: {got:?}, not {want:?}", got.len(), want.len()));
            return;
        }
        for (i, (a, b)) in got.iter().zip(want).enumerate() {
            self.near(kind, &format!("{}", i + 1), &[*a], &[*b], b.abs(), allowed);
        }
    }

    fn same_names<'a>(&mut self, kind: &str, got: &Tensors, want: impl Iterator<Item = (&'a &'a str, &'a &'a Tensor)>) {
        let got: BTreeMap<&str, &[usize]> = got.iter().map(|(n, t)| (n.as_str(), &t.shape[..])).collect();
        let want: BTreeMap<&str, &[usize]> = want.map(|(n, t)| (*n, &t.shape[..])).collect();
        if got != want {
            self.faults.push(format!("{kind}: names and shapes are {got:?}, not {want:?}"));
        }
    }

    /// Compares the first step.
    pub fn first_step(&mut self, case: &Case, got: &FirstStep) {
        for (name, got) in [("output", &got.output), ("eval_output", &got.eval_output)] {
            let want = &case.tensor(&format!("expected.{name}")).data;
            let got: Vec<f64> = got.iter().map(|x| f64::from(*x)).collect();
            self.near("output", name, &got, want, norm(want.iter().copied()), OUTPUT);
        }
        self.list("first loss", &[got.loss], &case.tensor("expected.loss").data, LOSS);
        let want = case.with_prefix("expected.grad.");
        self.same_names("gradients", &got.grads, want.iter());
        for (name, want) in want {
            let Some(got) = got.grads.get(name) else { continue };
            self.near("gradient", name, &got.data, &want.data, norm(want.data.iter().copied()), GRADIENT);
        }
    }

    /// Compares the first step and a whole run in mixed precision with single precision: as far off as PyTorch's autocast to bf16, or
    /// twice that.
    pub fn mixed(&mut self, case: &Case, first: &FirstStep, run: &Trained) {
        let exact = |name: &str| &case.tensor(&format!("expected.{name}")).data;
        let mut as_autocast = |kind: &'static str, name: &str, got: &[f64]| {
            let (want, theirs) = (exact(name), &case.tensor(&format!("autocast.{name}")).data);
            let error = |x: &[f64]| norm(x.iter().zip(want).map(|(a, b)| a - b)) / norm(want.iter().copied());
            assert_eq!(got.len(), want.len(), "{kind} {name}");
            self.note(kind, name, error(got), 2.0 * error(theirs));
        };
        for (name, got) in [("output", &first.output), ("eval_output", &first.eval_output)] {
            let got: Vec<f64> = got.iter().map(|x| f64::from(*x)).collect();
            as_autocast("output in bf16", name, &got);
        }
        for name in case.with_prefix("expected.grad.").keys() {
            as_autocast("gradient in bf16", &format!("grad.{name}"), &first.grads[*name].data);
        }
        self.list("loss in bf16", &run.losses, exact("losses"), MIXED_LOSS);
        if ["output in bf16", "gradient in bf16", "loss in bf16"].iter().any(|kind| self.error(kind) == 0.0) {
            self.faults.push("the bits of single precision: nothing was rounded".to_string());
        }
    }

    /// Compares what a whole architecture comes to, relative to the largest number of it.
    pub fn near_scale(&mut self, kind: &'static str, got: &[f32], want: &[f64]) {
        assert_eq!(got.len(), want.len(), "{kind}");
        let scale = want.iter().fold(0.0, |scale: f64, x| scale.max(x.abs()));
        let differences = got.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).abs());
        // `max` would pass over what is not a number.
        let worst = differences.fold(0.0, |worst: f64, d| if d <= worst { worst } else { d });
        self.note(kind, "", worst / scale, DEEP);
    }

    /// Compares the norm of a gradient in a whole architecture, and its product with numbers from -1 to 1.
    pub fn summary(&mut self, name: &str, got: [f64; 2], want: &[f64]) {
        for (kind, got, expected) in [("norm of the gradient", got[0], want[0]), ("gradient", got[1], want[1])] {
            self.note(kind, name, (got - expected).abs() / want[0], DEEP_GRADIENT);
        }
    }

    /// Compares a whole run.
    pub fn trained(&mut self, case: &Case, got: &Trained) {
        self.list("loss", &got.losses, &case.tensor("expected.losses").data, LOSS);
        self.list("learning rate", &got.lr, &case.tensor("expected.lr").data, LR);
        let none = Tensor::list(Vec::new());
        let list = |name: &str| &case.get(name).unwrap_or(&none).data;
        self.list("validation loss", &got.val_loss, list("expected.val_loss"), LOSS);
        self.list("validation accuracy", &got.val_accuracy, list("expected.val_accuracy"), 1e-12);

        let parameters = case.with_prefix("expected.param.");
        let buffers = case.with_prefix("expected.buffer.");
        self.same_names("state", &got.state, parameters.iter().chain(&buffers));
        for (name, want) in parameters {
            let Some(got) = got.state.get(name) else { continue };
            let before = &case.tensor(&format!("init.{name}")).data;
            let change = norm(want.data.iter().zip(before).map(|(a, b)| a - b));
            self.near("parameter", name, &got.data, &want.data, change, CHANGE);
        }
        for (name, want) in buffers {
            let Some(got) = got.state.get(name) else { continue };
            self.near("buffer", name, &got.data, &want.data, norm(want.data.iter().copied()), BUFFER);
        }
    }
}

/// The Euclidean norm.
fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum::<f64>().sqrt()
}

//! Convolutions by cuDNN, on tensors whose channels come last.
//!
//! [`graph`] describes a convolution to the library, [`engines`] asks which engines may compute it, [`trial`] measures their
//! plans and compares them with our own kernels, [`choices`] keeps what was chosen. What is measured may come out otherwise
//! the next time, and another plan gives other bits. So a measured choice is used only if it could be kept, and a run that
//! is resumed takes those that its checkpoint names.

mod choices;
mod descriptor;
mod engines;
mod graph;
mod trial;

use super::{LibraryCall, LibraryError};
use crate::backend::cuda::driver::{self, Context, CudaError};
use crate::backend::cuda::launch::Lowered;
use crate::graph::DType;
use crate::graph::op::Activation;
use anyhow::Result;
use choices::{Choice, Choices, Machine, Store};
pub use choices::{ENV as CACHE_ENV, folder as cache_folder};
use descriptor::Api;
pub use descriptor::check;
use engines::{Call, Candidate, Plan};
use graph::can_be_fused;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trial::{Bench, Trial, Verdict};

/// Where a workspace begins: at a multiple of this, as the driver's own allocations do.
pub const WORKSPACE_ALIGNMENT: usize = 256;

/// Most bytes of workspace: as much as the tensors have, but within these bounds. What is faster by needing more is not
/// worth the memory.
const WORKSPACE: [usize; 2] = [32 << 20, 256 << 20];

/// Plans that are measured together: to make one may take the library half a second. Those that it thinks slower come only
/// if none of these is any good.
const MEASURED: usize = 4;

/// What of a convolution is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// y of x and w.
    Forward,
    /// x's gradient of y's and w.
    Input,
    /// w's gradient of x and y's.
    Weight,
}

/// A convolution.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// What is computed.
    pub direction: Direction,
    /// Images of a batch.
    pub images: usize,
    /// Height and width of x.
    pub input: [usize; 2],
    /// Channels of x.
    pub inputs: usize,
    /// Height and width of y.
    pub output: [usize; 2],
    /// Channels of y.
    pub outputs: usize,
    /// Height and width of w.
    pub kernel: [usize; 2],
    /// Channels are split into so many groups.
    pub groups: usize,
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Top, bottom, left, right.
    pub padding: [usize; 4],
    /// Rows, columns.
    pub dilation: [usize; 2],
    /// Element type of the operands; sums are of 32 bits.
    pub dtype: DType,
    /// Element type of the result.
    pub result: DType,
    /// 32-bit operands may be rounded to TF32.
    pub tf32: bool,
    /// Forward: a bias, which is of 32 bits, is added.
    pub bias: bool,
    /// Forward: applied to the sum.
    pub act: Option<Activation>,
}

/// By this a choice is known.
impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Forward => "forward",
            Direction::Input => "data gradient",
            Direction::Weight => "weight gradient",
        };
        let ([h, w], [oh, ow], [kh, kw]) = (self.input, self.output, self.kernel);
        let ([sh, sw], [dh, dw], [top, bottom, left, right]) = (self.stride, self.dilation, self.padding);
        let Convolution { images, inputs, outputs, groups, dtype, result, .. } = self;
        write!(f, "{direction} {images}x{h}x{w}x{inputs} to {oh}x{ow}x{outputs}, kernel {kh}x{kw}, groups {groups}, ")?;
        write!(f, "stride {sh}x{sw}, padding {top}+{bottom}x{left}+{right}, dilation {dh}x{dw}, ")?;
        write!(f, "{} to {}", dtype.name(), result.name())?;
        if self.tf32 {
            f.write_str(", tf32")?;
        }
        if self.bias {
            f.write_str(", bias")?;
        }
        match self.act {
            None => Ok(()),
            Some(act @ (Activation::LeakyRelu { slope: x } | Activation::Elu { alpha: x })) => {
                write!(f, ", {} {x}", act.name())
            }
            Some(act) => write!(f, ", {}", act.name()),
        }
    }
}

impl Convolution {
    /// Elements of x, w and y.
    fn elements(&self) -> [usize; 3] {
        let ([h, w], [oh, ow], [kh, kw]) = (self.input, self.output, self.kernel);
        let weights = self.outputs * kh * kw * (self.inputs / self.groups);
        [self.images * h * w * self.inputs, weights, self.images * oh * ow * self.outputs]
    }

    /// Bytes of workspace that a plan may have.
    fn most_workspace(&self) -> usize {
        let [least, most] = WORKSPACE;
        (self.elements().iter().sum::<usize>() * self.dtype.bytes()).clamp(least, most)
    }

    /// The steepest that its activation is made by a parameter.
    fn slope(&self) -> f64 {
        match self.act {
            Some(Activation::LeakyRelu { slope: x } | Activation::Elu { alpha: x }) => f64::from(x.abs()),
            _ => 0.0,
        }
    }

    #[cfg(test)]
    fn example() -> Convolution {
        Convolution {
            direction: Direction::Forward,
            images: 8,
            input: [28, 28],
            inputs: 16,
            output: [14, 28],
            outputs: 32,
            kernel: [3, 5],
            groups: 2,
            stride: [2, 1],
            padding: [1, 0, 2, 2],
            dilation: [1, 1],
            dtype: DType::BF16,
            result: DType::BF16,
            tf32: false,
            bias: true,
            act: Some(Activation::LeakyRelu { slope: 0.1 }),
        }
    }
}

/// Where a convolution's tensors are.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// x, or its gradient.
    pub x: u64,
    /// w, or its gradient.
    pub w: u64,
    /// y, or its gradient.
    pub y: u64,
    /// The bias, if there is one.
    pub bias: Option<u64>,
    /// The workspace, at a multiple of [`WORKSPACE_ALIGNMENT`].
    pub workspace: u64,
}

/// A convolution for which something must be chosen.
pub struct Problem<'a> {
    /// Which.
    pub convolution: &'a Convolution,
    /// What our own kernels do for it: inputs are the operands and the bias, the only output is the result.
    pub own: &'a dyn Fn() -> Lowered,
    /// What follows a plan that is not fused: on the result, and on the bias.
    pub after: Lowered,
    /// Whether a plan is taken even if our own kernels are faster.
    pub always: bool,
}

/// What the library does for a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// Bias and activation, too.
    pub fused: bool,
    /// Bytes of workspace.
    pub workspace: usize,
}

/// An open cuDNN on a device.
pub struct Dnn {
    api: Arc<Api>,
    machine: Machine,
    state: Mutex<State>,
}

/// What was chosen, and what there is to choose with.
#[derive(Default)]
struct State {
    /// By the convolution; without a plan our own kernels compute it.
    chosen: HashMap<String, (Choice, Option<Arc<Plan>>)>,
    /// What a checkpoint says.
    taken: Option<Choices>,
    /// Where measured choices are kept; without it nothing is measured.
    folder: Option<PathBuf>,
    store: Option<Store>,
    bench: Option<Bench>,
    notes: Vec<String>,
    /// It was said that there is too little memory to try plans.
    short_of_memory: bool,
    /// See [`Dnn::estimate`].
    estimating: bool,
}

impl fmt::Debug for Dnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dnn").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// What GPU, driver and library there are.
fn machine(api: &Api) -> Machine {
    let info = &api.context.info;
    let cuda = driver::start().map_or(0, |(version, _)| version);
    Machine {
        gpu: format!("{}, {}, {} multiprocessors", info.name, info.capability_text(), info.multiprocessors),
        driver: format!("{} ({})", driver::release().unwrap_or_default(), driver::version(cuda)),
        cudnn: api.version,
        program: env!("CARGO_PKG_VERSION").into(),
    }
}

impl Dnn {
    /// Opens the library in `path` for the device of `context`. Plans are chosen by measuring if the choice can be kept in
    /// the folder `cache`; otherwise the first is taken that the library offers and that is right.
    ///
    /// # Errors
    /// It does not load, lacks something, or does not start.
    pub fn open(path: &Path, context: &Arc<Context>, cache: Option<&Path>) -> Result<Arc<Dnn>, String> {
        let api = Api::open(path, context)?;
        let state = State { folder: cache.map(Path::to_path_buf), ..State::default() };
        Ok(Arc::new(Dnn { machine: machine(&api), api, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was chosen, now or before, for a convolution; `None` if our own kernels compute it.
    pub fn choose(&self, problem: &Problem) -> Option<Chosen> {
        let key = problem.convolution.to_string();
        let mut state = self.state();
        if !state.chosen.contains_key(&key) {
            if state.estimating {
                let workspace = problem.convolution.most_workspace().max((problem.own)().scratch_bytes);
                return Some(Chosen { fused: false, workspace });
            }
            let chosen = self.decide(&mut state, &key, problem);
            state.chosen.insert(key.clone(), chosen);
        }
        let plan = state.chosen[&key].1.as_ref()?;
        Some(Chosen { fused: plan.fused, workspace: plan.workspace })
    }

    fn decide(&self, state: &mut State, key: &str, problem: &Problem) -> (Choice, Option<Arc<Plan>>) {
        const NOTHING: (Choice, Option<Arc<Plan>>) = (Choice::Own, None);
        if self.api.context.bind().is_err() {
            return NOTHING;
        }
        if let Some(choice) = state.taken.as_ref().and_then(|taken| taken.get(key)) {
            if let Some(plan) = self.plan_of(problem.convolution, &choice) {
                return (choice, plan);
            }
            state.notes.push(format!(
                "note: the run computed with cuDNN's plan `{choice}`, which there is no more, for {key}; it goes on with another, and no longer bit for bit as it would have"
            ));
        }
        self.open_store(state);
        let before = state.store.as_ref().and_then(|store| store.get(key));
        if let Some(choice) = &before
            && let Some(plan) = self.plan_of(problem.convolution, choice)
        {
            return (choice.clone(), plan);
        }
        let selected = self.select(state, problem);
        let (choice, plan) = match selected {
            Ok(selected) => selected,
            Err(e) => {
                let full = e.downcast_ref::<CudaError>().is_some_and(CudaError::is_out_of_memory);
                if !(full && std::mem::replace(&mut state.short_of_memory, full)) {
                    let own = "our own kernels compute it";
                    state.notes.push(format!("note: cuDNN's plans cannot be tried for {key}: {e:#}; {own}"));
                }
                return NOTHING;
            }
        };
        let Some(store) = &state.store else { return (choice, plan) };
        match store.keep(key, choice.clone(), before.as_ref()) {
            // Another process was faster, and its choice is to be the choice of all.
            Ok(kept) if kept != choice => match self.plan_of(problem.convolution, &kept) {
                Some(plan) => (kept, plan),
                None => (choice, plan),
            },
            Ok(_) => (choice, plan),
            Err(e) => {
                state.notes.push(cannot_be_kept(store.path(), &e));
                // What is measured and not kept may be otherwise the next time.
                state.store = None;
                self.select(state, problem).unwrap_or(NOTHING)
            }
        }
    }

    /// Opens the place where choices are kept, the first time that one is made.
    fn open_store(&self, state: &mut State) {
        let Some(folder) = state.folder.take() else { return };
        match Store::open(&folder, &self.machine) {
            Ok(store) => state.store = Some(store),
            Err(e) => state.notes.push(cannot_be_kept(&folder, &e)),
        }
    }

    /// The plan of a choice that was made before; `None` if there is no such plan any more.
    fn plan_of(&self, c: &Convolution, choice: &Choice) -> Option<Option<Arc<Plan>>> {
        let Choice::Plan { fused, tag } = choice else { return Some(None) };
        if *fused && !can_be_fused(c) {
            return None;
        }
        let found = engines::candidates(&self.api, c, *fused).into_iter().find(|candidate| candidate.tag == *tag)?;
        Some(Some(Arc::new(found.plan(&self.api, c, *fused).ok()?)))
    }

    /// Chooses: the fastest plan that is right, where there is a store for the choice; otherwise the first that is right.
    fn select(&self, state: &mut State, problem: &Problem) -> Result<(Choice, Option<Arc<Plan>>)> {
        let State { bench, notes, store, .. } = state;
        for fused in [true, false] {
            if fused && !can_be_fused(problem.convolution) {
                continue;
            }
            let mut candidates = engines::candidates(&self.api, problem.convolution, fused).into_iter();
            loop {
                let most = if store.is_some() { MEASURED } else { 1 };
                let plans = self.next_plans(&mut candidates, problem.convolution, fused, most);
                let Some(workspace) = plans.iter().map(|plan| plan.workspace).max() else { break };
                if bench.is_none() {
                    *bench = Some(Bench::new(&self.api.context)?);
                }
                let Some(bench) = bench else { break };
                let trial = Trial::new(bench, problem, workspace)?;
                let ordered = match store {
                    Some(_) => in_order(&trial, plans, problem, notes)?,
                    None => plans.into_iter().map(Some).collect(),
                };
                for plan in ordered {
                    // In the order by time our own kernels have a place, too.
                    let Some(plan) = plan else { return Ok((Choice::Own, None)) };
                    match trial.check(&plan) {
                        Ok(Verdict::Good) => {
                            return Ok((Choice::Plan { fused, tag: plan.tag.clone() }, Some(plan)));
                        }
                        Ok(Verdict::Bad(why)) => notes.push(not_used(&plan, problem, &why)),
                        Err(e) => notes.push(not_used(&plan, problem, &brief(&e))),
                    }
                }
            }
        }
        Ok((Choice::Own, None))
    }

    /// The next plans that the library supports and that are not too large, at most `most`.
    fn next_plans(
        &self,
        candidates: &mut impl Iterator<Item = Candidate>,
        c: &Convolution,
        fused: bool,
        most: usize,
    ) -> Vec<Arc<Plan>> {
        let plans = candidates.filter_map(|candidate| candidate.plan(&self.api, c, fused).ok());
        plans.map(Arc::new).take(most).collect()
    }

    /// A convolution ready to be enqueued, for which a plan was chosen.
    ///
    /// # Errors
    /// The library refuses a descriptor.
    pub fn prepare(
        &self,
        convolution: &Convolution,
        places: &Places,
    ) -> Result<Option<Arc<dyn LibraryCall>>, LibraryError> {
        let state = self.state();
        let Some((_, Some(plan))) = state.chosen.get(&convolution.to_string()) else { return Ok(None) };
        Ok(Some(Arc::new(Call::new(plan, places)?)))
    }

    /// What was chosen so far, as a checkpoint has it; `None` if that is nothing.
    pub fn choices(&self) -> Option<String> {
        let mut choices = Choices::new(self.machine.clone());
        for (key, (choice, _)) in &self.state().chosen {
            choices.insert(key, choice);
        }
        (!choices.is_empty()).then(|| choices.to_json())
    }

    /// From now on chooses as [`Dnn::choices`] says that it was chosen; what is to be said, if that cannot be.
    pub fn take(&self, said: &str) -> Option<String> {
        let but = "the run goes on with plans that are chosen now, and no longer bit for bit as it would have";
        match Choices::parse(said.as_bytes()) {
            Some(choices) if choices.machine == self.machine => {
                self.state().taken = Some(choices);
                None
            }
            Some(Choices { machine, .. }) => {
                Some(format!("cuDNN's plans in the checkpoint are of {machine}, and here is {}; {but}", self.machine))
            }
            None => Some(format!("cuDNN's plans in the checkpoint cannot be read; {but}")),
        }
    }

    /// Whether only the size of programs matters, which will not be run: nothing is tried then, and every plan counts for as
    /// much workspace as it may have.
    pub fn estimate(&self, on: bool) {
        self.state().estimating = on;
    }

    /// What was found while plans were chosen, since this was last asked.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }
}

/// The plans, the fastest first, up to where our own kernels are faster, which is `None`.
fn in_order(
    trial: &Trial,
    plans: Vec<Arc<Plan>>,
    problem: &Problem,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<Arc<Plan>>>> {
    let mut timed = Vec::new();
    for plan in plans {
        match trial.seconds_of(&plan) {
            Ok(seconds) => timed.push((seconds, Some(plan))),
            Err(e) => notes.push(not_used(&plan, problem, &brief(&e))),
        }
    }
    if !problem.always {
        timed.push((trial.own_seconds()?, None));
    }
    timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Ok(timed.into_iter().map(|(_, plan)| plan).collect())
}

fn not_used(plan: &Plan, problem: &Problem, why: &str) -> String {
    format!("note: cuDNN's plan `{}` is not used for {}: {why}", plan.tag, problem.convolution)
}

/// An error without its help, which is of another situation.
fn brief(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.split("\nhelp: ").next().unwrap_or_default().to_owned()
}

fn cannot_be_kept(path: &Path, error: &std::io::Error) -> String {
    format!(
        "note: the choice of cuDNN's plans cannot be kept in `{}`: {error}; they are not chosen by measuring\nhelp: {CACHE_ENV} names another folder",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_of_a_convolution_is_in_the_name_of_a_choice() {
        let c = Convolution::example();
        let name = "forward 8x28x28x16 to 14x28x32, kernel 3x5, groups 2, stride 2x1, padding 1+0x2+2, dilation 1x1, \
                    bf16 to bf16, bias, leaky_relu 0.1";
        assert_eq!(c.to_string(), name);
        let others = [
            Convolution { direction: Direction::Input, ..c.clone() },
            Convolution { images: 9, ..c.clone() },
            Convolution { input: [28, 29], ..c.clone() },
            Convolution { inputs: 18, ..c.clone() },
            Convolution { output: [15, 28], ..c.clone() },
            Convolution { outputs: 34, ..c.clone() },
            Convolution { kernel: [5, 3], ..c.clone() },
            Convolution { groups: 1, ..c.clone() },
            Convolution { stride: [1, 2], ..c.clone() },
            Convolution { padding: [0, 1, 2, 2], ..c.clone() },
            Convolution { dilation: [1, 2], ..c.clone() },
            Convolution { dtype: DType::F16, ..c.clone() },
            Convolution { result: DType::F32, ..c.clone() },
            Convolution { tf32: true, ..c.clone() },
            Convolution { bias: false, ..c.clone() },
            Convolution { act: Some(Activation::LeakyRelu { slope: 0.2 }), ..c.clone() },
            Convolution { act: Some(Activation::Elu { alpha: 0.1 }), ..c.clone() },
            Convolution { act: None, ..c.clone() },
        ];
        let mut names: Vec<String> = others.iter().map(Convolution::to_string).collect();
        names.push(name.into());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), others.len() + 1);
    }
}

//! Convolutions by cuDNN, on tensors whose channels come last.
//!
//! `graph` describes a convolution to the library, `engines` asks which engines may compute it,
//! `trial` measures their plans and compares them with our own kernels, as `agreement` says, and `choices` keeps what was
//! chosen. What is measured may come out otherwise the next time, and another plan gives other bits. So a measured choice is
//! used only if it could be kept, and a run that is resumed takes those that its checkpoint names.

mod agreement;
mod choices;
mod descriptor;
mod engines;
mod graph;
mod trial;

use super::status::{LibraryError, Unusable, is_out_of_memory};
use crate::backend::cuda::driver::{self, Context};
use crate::backend::cuda::ready::LibraryCall;
use crate::backend::cuda::settings::CACHE;
use crate::backend::gpu::launch::Convolution;
use crate::backend::gpu::target::{Chosen, Form, Problem};
use crate::graph::DType;
use anyhow::Result;
use choices::{Choice, Choices, Machine, Store};
use descriptor::Api;
pub use descriptor::check;
use engines::{Call, Candidate, Plan};
pub use graph::Places;
use graph::forms;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trial::{Bench, Trial, Verdict};

/// Plans that are measured together: to make one may take the library half a second. Those that it thinks slower come only
/// if none of these is any good.
const MEASURED: usize = 4;

/// The same for 32-bit operands without tensor cores, whose engines are many, compiled beforehand, and badly ordered.
const MEASURED_SINGLE: usize = 8;

/// Seconds for which plans that are close to one another are timed at a time.
const TIMED: f64 = 1e-3;

/// An open cuDNN on a device.
pub struct Dnn {
    api: Arc<Api>,
    machine: Machine,
    state: Mutex<State>,
    /// Convolutions for which plans are or were measured.
    measured: AtomicUsize,
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
    /// What is kept where nothing more can be, and why that is so, until it has been said.
    kept: Option<Choices>,
    unkept: Option<String>,
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
    pub fn open(path: &Path, context: &Arc<Context>, cache: Option<&Path>) -> Result<Arc<Dnn>, Unusable> {
        let api = Api::open(path, context)?;
        let state = State { folder: cache.map(Path::to_path_buf), ..State::default() };
        Ok(Arc::new(Dnn { machine: machine(&api), api, state: Mutex::new(state), measured: AtomicUsize::new(0) }))
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
                return Some(Chosen { form: largest(problem), workspace });
            }
            let chosen = self.decide(&mut state, &key, problem);
            state.chosen.insert(key.clone(), chosen);
        }
        let plan = state.chosen[&key].1.as_ref()?;
        Some(Chosen { form: plan.form, workspace: plan.workspace })
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
        let kept = state.kept.as_ref().and_then(|kept| kept.get(key));
        let before = state.store.as_ref().map_or(kept, |store| store.get(key));
        if let Some(choice) = &before
            && let Some(plan) = self.plan_of(problem.convolution, choice)
        {
            return (choice.clone(), plan);
        }
        state.notes.extend(state.unkept.take());
        let selected = self.select(state, problem);
        let (choice, plan) = match selected {
            Ok(selected) => selected,
            Err(e) => {
                let full = is_out_of_memory(&e);
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
            Err(e) => {
                state.kept = Some(Choices::kept_in(&folder, &self.machine));
                state.unkept = Some(cannot_be_kept(&folder, &e));
            }
        }
    }

    /// The plan of a choice that was made before; `None` if there is no such plan any more.
    fn plan_of(&self, c: &Convolution, choice: &Choice) -> Option<Option<Arc<Plan>>> {
        let Choice::Plan { form, tag } = choice else { return Some(None) };
        if !forms(c, true).concat().contains(form) {
            return None;
        }
        let found = engines::candidates(&self.api, c, *form).find(|candidate| candidate.tag == *tag)?;
        Some(Some(Arc::new(found.plan(&self.api, c, 0).ok()?)))
    }

    /// Chooses: the fastest plan that is right, where there is a store for the choice; otherwise the first that is right.
    fn select(&self, state: &mut State, problem: &Problem) -> Result<(Choice, Option<Arc<Plan>>)> {
        let State { bench, notes, store, .. } = state;
        let c = problem.convolution;
        self.measured.fetch_add(usize::from(store.is_some()), Ordering::Relaxed);
        let most = match store {
            None => 1,
            Some(_) if c.dtype == DType::F32 && !c.tf32 => MEASURED_SINGLE,
            Some(_) => MEASURED,
        };
        let mut candidates = forms(c, store.is_some())
            .iter()
            .flat_map(|group| in_turn(group.iter().map(|form| engines::candidates(&self.api, c, *form)).collect()));
        loop {
            let plans = self.next_plans(&mut candidates, c, most);
            let Some(workspace) = plans.iter().map(|plan| plan.workspace).max() else { return Ok((Choice::Own, None)) };
            if bench.is_none() {
                *bench = Some(Bench::new(&self.api.context)?);
            }
            let Some(bench) = bench else { return Ok((Choice::Own, None)) };
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
                        return Ok((Choice::Plan { form: plan.form, tag: plan.tag.clone() }, Some(plan)));
                    }
                    Ok(Verdict::Bad(why)) => notes.push(not_used(&plan, problem, &why)),
                    Err(e) => notes.push(not_used(&plan, problem, &brief(&e))),
                }
            }
        }
    }

    /// The next plans that the library supports and that are not too large, at most `most`, in the order of the candidates.
    /// They are made at the same time: some engines compile their kernels then, and that takes longer than anything else.
    fn next_plans(
        &self,
        candidates: &mut dyn Iterator<Item = Candidate>,
        c: &Convolution,
        most: usize,
    ) -> Vec<Arc<Plan>> {
        let mut plans = Vec::new();
        while plans.len() < most {
            let batch: Vec<Candidate> = candidates.take(most - plans.len()).collect();
            if batch.is_empty() {
                break;
            }
            let made = self.made_beside(&batch, c);
            // What a thread of its own did not get, the handle that has the graph may.
            let again = |candidate: &Candidate| candidate.plan(&self.api, c, 0).ok();
            let made = batch.iter().zip(made).filter_map(|(candidate, plan)| plan.or_else(|| again(candidate)));
            plans.extend(made.map(Arc::new));
        }
        plans
    }

    /// The plans that threads with handles of their own can make; `None` for all others.
    fn made_beside(&self, batch: &[Candidate], c: &Convolution) -> Vec<Option<Plan>> {
        let mut made: Vec<Option<Plan>> = batch.iter().map(|_| None).collect();
        if batch.len() < 2 {
            return made;
        }
        let makers = self.api.makers().min(batch.len());
        let each = batch.len().div_ceil(makers);
        std::thread::scope(|scope| {
            for (maker, (batch, made)) in batch.chunks(each).zip(made.chunks_mut(each)).enumerate() {
                let make = move || {
                    if self.api.context.bind().is_ok() {
                        for (candidate, made) in batch.iter().zip(made) {
                            *made = candidate.plan(&self.api, c, maker).ok();
                        }
                    }
                };
                // Without another thread it is made later.
                let _ = std::thread::Builder::new().spawn_scoped(scope, make);
            }
        });
        made
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
        (!choices.is_empty()).then(|| choices.to_line())
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

    /// How far measuring is; `None` if nothing has been measured. It does not wait for what is at work.
    pub fn progress(&self) -> Option<String> {
        let measured = self.measured.load(Ordering::Relaxed);
        (measured > 0).then(|| format!("choosing kernels for convolutions: {measured} so far (later starts find them)"))
    }

    /// What was found while plans were chosen, since this was last asked.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().notes)
    }
}

/// The form with the most workspace beside that of the plan.
fn largest(problem: &Problem) -> Form {
    let wide = problem.widen.scratch_bytes > problem.after.scratch_bytes;
    if wide { Form::Narrow } else { Form::Plain }
}

/// One of each list in turn, until all are used up.
fn in_turn<T>(mut lists: Vec<impl Iterator<Item = T>>) -> impl Iterator<Item = T> {
    let mut turn = 0;
    std::iter::from_fn(move || {
        while !lists.is_empty() {
            turn %= lists.len();
            if let Some(next) = lists[turn].next() {
                turn += 1;
                return Some(next);
            }
            drop(lists.remove(turn));
        }
        None
    })
}

/// The plans, the fastest first, up to where our own kernels are faster, which is `None`.
///
/// Each runs once to be ready and is timed once. After that only those are timed again that may still be the fastest, for as
/// long as there are several of them: the first run separates most of them.
fn in_order(
    trial: &Trial,
    plans: Vec<Arc<Plan>>,
    problem: &Problem,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<Arc<Plan>>>> {
    let seconds = |plan: &Option<Arc<Plan>>, least: f64| match plan {
        Some(plan) => trial.seconds_of(plan, least),
        None => trial.own_seconds(least),
    };
    let own = (!problem.always).then_some(None);
    let mut timed = Vec::new();
    for plan in plans.into_iter().map(Some).chain(own) {
        match (seconds(&plan, 0.0), &plan) {
            (Ok(seconds), _) => timed.push((seconds, plan)),
            (Err(e), Some(plan)) => notes.push(not_used(plan, problem, &brief(&e))),
            (Err(e), None) => return Err(e),
        }
    }
    // A GPU that has been idle is slower at first: the first times are the least certain.
    for apart in [2.0, 1.25, 1.1] {
        let best = timed.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
        let near = |seconds: f64| seconds <= best * apart;
        if timed.iter().filter(|(seconds, _)| near(*seconds)).count() < 2 {
            break;
        }
        for (before, plan) in timed.iter_mut().filter(|(seconds, _)| near(*seconds)) {
            *before = before.min(seconds(plan, TIMED)?);
        }
    }
    timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Ok(timed.into_iter().map(|(_, plan)| plan).collect())
}

fn not_used(plan: &Plan, problem: &Problem, why: &str) -> String {
    let choice = Choice::Plan { form: plan.form, tag: plan.tag.clone() };
    format!("note: cuDNN's plan `{choice}` is not used for {}: {why}", problem.convolution)
}

/// An error without its help, which is of another situation.
fn brief(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.split("\nhelp: ").next().unwrap_or_default().to_owned()
}

fn cannot_be_kept(path: &Path, error: &std::io::Error) -> String {
    format!(
        "note: the choice of cuDNN's plans cannot be kept in `{}`: {error}; they are not chosen by measuring\nhelp: {CACHE} names another folder",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::in_turn;

    #[test]
    fn lists_of_any_length_are_taken_in_turn() {
        let lists =
            |lists: &[&[u32]]| in_turn(lists.iter().map(|list| list.iter()).collect()).copied().collect::<Vec<_>>();
        assert_eq!(lists(&[&[1, 4, 6], &[2], &[3, 5]]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(lists(&[&[], &[1, 2], &[]]), [1, 2]);
        assert_eq!(lists(&[]), [0; 0]);
    }
}

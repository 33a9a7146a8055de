//! Adds the optimizer to a graph: the update is a part of the step like any other operation.

use super::adafactor::{by_moments, counter_of, means};
use super::keep::Kept;
use super::muon::MOMENTUM_SLOT;
use super::shards::{ShardSums, ShardTotals, norm, total_of};
use super::update_spec::{Division, UpdateSpec};
use crate::graph::op::{
    AccumulateGrad, AccumulateLoss, AdaptiveClip, Algorithm, Binary, BinaryKind, GradNorm, MeanScale, Moments,
    OptimizerStep, Part, Slice, TensorOptions, UpdateScale, ZeroGrad, units,
};
use crate::graph::{
    DType, Fill, Graph, Holder, Input, Role, Shape, ShapeError, ValueId, VarId, VarKind, Variable, Variables,
};
use std::collections::HashMap;

/// Name of the counter of updates.
pub const STEP_VARIABLE: &str = "optimizer.step";

/// Name of the counter of updates of the parameters that were frozen at first.
pub const THAWED_STEP_VARIABLE: &str = "optimizer.thawed_step";

/// Name of the counter of updates of moving averages.
pub const AVERAGE_STEP_VARIABLE: &str = "optimizer.average_step";

/// What the name of a moving average begins with, before that of its variable.
pub const AVERAGE_PREFIX: &str = "optimizer.average.";

/// The moving average of a variable, if one is kept.
pub fn average_of(vars: &Variables, of: VarId) -> Option<VarId> {
    vars.find(&format!("{AVERAGE_PREFIX}{}", vars[of].name))
}

/// Name of the factor of the loss.
pub const SCALE_VARIABLE: &str = "grad_scaler.scale";

/// Name of the number of updates since the factor last changed.
pub const GROWTH_VARIABLE: &str = "grad_scaler.growth_tracker";

/// The factor that the loss starts with, that of `torch.amp.GradScaler`.
pub const INITIAL_SCALE: f64 = 65536.0;

/// How `torch.amp.GradScaler` changes the factor of the loss.
pub const GRAD_SCALER: UpdateScale = UpdateScale { growth: 2.0, backoff: 0.5, interval: 2000 };

/// The factor of the loss.
fn loss_scale(graph: &mut Graph, vars: &mut Variables) -> ValueId {
    let start = Fill::Constant(INITIAL_SCALE);
    let zeros = Variable::zeros(SCALE_VARIABLE, DType::F32, [1], VarKind::Optimizer);
    let scale = vars.get_or_add(Variable { init: start, ..zeros });
    graph.variable(vars, scale)
}

/// Name of the sums over micro-batches of losses and shares.
pub const SHARES_VARIABLE: &str = "micro_batches";

/// Its number.
pub(super) fn shares_variable(vars: &mut Variables) -> VarId {
    vars.get_or_add(Variable::zeros(SHARES_VARIABLE, DType::F64, [2], VarKind::Gradient))
}

fn shares(graph: &mut Graph, vars: &mut Variables) -> ValueId {
    let sums = shares_variable(vars);
    graph.variable(vars, sums)
}

/// Where the gradient pass starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Start {
    /// The gradient of the loss by itself.
    pub gradient: ValueId,
    /// The loss that is reported, and that must be finite for the update to be made: over micro-batches, their mean so far.
    pub loss: ValueId,
}

/// The gradient of the loss by itself, from which the gradient pass starts: the loss scale of the schedule, times that of
/// the scaler if there is one, times the share that a micro-batch has. `weight` is what the batch weighs.
///
/// # Errors
/// As [`add_update`].
pub fn loss_gradient(
    graph: &mut Graph,
    vars: &mut Variables,
    spec: &UpdateSpec,
    [loss, weight]: [ValueId; 2],
) -> Result<Start, ShapeError> {
    graph.set_origin("loss");
    graph.in_backward = true;
    const MUL: Binary = Binary { kind: BinaryKind::Mul };
    let schedule = schedule(graph);
    let mut start = Start { gradient: graph.add1(Slice { axis: 0, start: 2, len: 1 }, &[schedule])?, loss };
    if spec.scaler.is_some() {
        let scale = loss_scale(graph, vars);
        start.gradient = graph.add1(MUL, &[start.gradient, scale])?;
    }
    if let Some(full) = spec.micro_batch {
        let sums = shares(graph, vars);
        let of_batch = graph.add(AccumulateLoss { full }, &[loss, weight, sums])?;
        start.loss = of_batch[0];
        graph.values[start.loss.index()].role = Role::Output;
        start.gradient = graph.add1(MUL, &[start.gradient, of_batch[1]])?;
    }
    Ok(start)
}

/// The step's scalars as an input of `graph`.
fn schedule(graph: &mut Graph) -> ValueId {
    graph.input(Input::Schedule, DType::F32, Shape::from([4]))
}

/// A variable of the same layout as parameter `of`.
fn companion(vars: &mut Variables, of: VarId, name: String, (kind, holder): (VarKind, Holder), initial: f32) -> VarId {
    let Variable { shape, storage, origin, .. } = vars[of].clone();
    let mut variable = Variable { storage, origin, holder, ..Variable::zeros(name, DType::F32, shape, kind) };
    if initial != 0.0 {
        variable.init = Fill::Constant(f64::from(initial));
    }
    vars.get_or_add(variable)
}

/// Makes the variables that `algorithm` keeps of a parameter.
fn states(vars: &mut Variables, of: VarId, algorithm: &Algorithm, holder: Holder) -> Result<Vec<VarId>, ShapeError> {
    if let Algorithm::Adafactor { moments: Moments::Factored, .. } = algorithm {
        return means(vars, of, holder).map(Vec::from);
    }
    let slots = algorithm.slots().map(|slot| {
        let name = format!("optimizer.{slot}.{}", vars[of].name);
        companion(vars, of, name, (VarKind::Optimizer, holder), algorithm.initial(slot))
    });
    Ok(slots.collect())
}

/// Adds the update of the parameters in `spec`, given the gradient of each. Makes the optimizer's state variables.
///
/// # Errors
/// A gradient has another shape than its parameter (a bug of the gradient pass).
pub fn add_update(
    graph: &mut Graph,
    vars: &mut Variables,
    spec: &UpdateSpec,
    loss: ValueId,
    gradient: impl Fn(VarId) -> Option<ValueId>,
) -> Result<(), ShapeError> {
    graph.set_origin("");
    graph.in_backward = true;
    let with_grad = |list: &[(VarId, TensorOptions)]| -> Vec<(VarId, TensorOptions, ValueId)> {
        list.iter().filter_map(|(id, o)| Some((*id, *o, gradient(*id)?))).collect()
    };
    let mut counted = vec![(STEP_VARIABLE, with_grad(&spec.tensors))];
    counted.extend((!spec.thawed.is_empty()).then(|| (THAWED_STEP_VARIABLE, with_grad(&spec.thawed))));
    let mut schedule = schedule(graph);
    if spec.micro_batch.is_some() {
        let own = shares_variable(vars);
        let total = spec.shards.and_then(|_| total_of(graph, vars, own));
        let sums = total.unwrap_or_else(|| graph.variable(vars, own));
        schedule = graph.add1(MeanScale {}, &[schedule, sums])?;
    }
    let update = OptimizerStep {
        algorithm: spec.algorithm,
        clip_norm: spec.clip_norm,
        clip_value: spec.clip_value,
        scaled: spec.scaler.is_some(),
        counts: true,
        tensors: Vec::new(),
        parts: Vec::new(),
    };
    let mut head = vec![schedule, loss];
    if update.has_norm() {
        let all = counted.iter().flat_map(|(_, tensors)| tensors).map(|(id, _, gradient)| (*id, *gradient));
        let all: Vec<(VarId, ValueId)> = all.collect();
        head.push(match spec.shards {
            Some(_) => norm(graph, vars, spec.division.as_ref(), schedule, &all)?,
            None => {
                let list: Vec<ValueId> = std::iter::once(schedule).chain(all.into_iter().map(|(_, g)| g)).collect();
                graph.add1(GradNorm {}, &list)?
            }
        });
    }
    let holder = |id: VarId| spec.division.as_ref().map_or(Holder::All, |division| division.holder(id));
    let part = |id: VarId, length: usize| {
        let whole = Part { start: 0, len: length };
        spec.division.as_ref().map_or(whole, |division| division.own(id, length))
    };
    let by_parts = spec.division.as_ref().is_some_and(Division::is_by_parts);
    if update.scaled {
        head.push(loss_scale(graph, vars));
    }
    if let Some(clip) = &spec.clip_adaptive {
        let scale = update.scaled.then(|| head[3]);
        for (id, _, gradient) in counted.iter_mut().flat_map(|(_, tensors)| tensors) {
            if clip.except.contains(id) || matches!(holder(*id), Holder::Other(_)) {
                continue;
            }
            let units = units(&vars[*id].storage).map_err(ShapeError::new)?;
            let op = AdaptiveClip { factor: clip.factor, eps: clip.eps, scaled: update.scaled, units };
            let operands = [schedule].into_iter().chain(scale).chain([*gradient, graph.variable(vars, *id)]);
            *gradient = graph.add1(op, &operands.collect::<Vec<_>>())?;
        }
    }
    for (counter, list) in &counted {
        let is_matrix = |id: &VarId| spec.muon.as_ref().is_some_and(|muon| muon.parameters.contains(id));
        let (matrices, list): (Vec<_>, Vec<_>) = list.iter().partition(|(id, _, _)| is_matrix(id));
        let parts = by_moments(spec.algorithm, vars, list, |(id, _, _)| *id)?;
        for (algorithm, list) in parts {
            let counter = counter_of(counter, &algorithm);
            let step = vars.get_or_add(Variable::zeros(counter, DType::I64, [1], VarKind::Optimizer));
            let mut operands = head.clone();
            operands.push(graph.variable(vars, step));
            let (mut tensors, mut parts) = (Vec::new(), Vec::new());
            for (id, options, grad) in &list {
                // Of those that another rank updates it is known which there are: checkpoints have all.
                let states = states(vars, *id, &algorithm, holder(*id))?;
                let part = part(*id, vars[*id].shape.len());
                if part.len == 0 {
                    continue;
                }
                parts.extend(by_parts.then_some(part));
                operands.extend([graph.variable(vars, *id), *grad]);
                operands.extend(states.into_iter().map(|state| graph.variable(vars, state)));
                tensors.push(*options);
            }
            graph.add(OptimizerStep { algorithm, tensors, parts, ..update.clone() }, &operands)?;
        }
        let Some(muon) = &spec.muon else { continue };
        for (id, options, grad) in matrices {
            let name = format!("optimizer.{MOMENTUM_SLOT}.{}", vars[id].name);
            let momentum = companion(vars, id, name, (VarKind::Optimizer, holder(id)), 0.0);
            if matches!(holder(id), Holder::Other(_)) {
                continue;
            }
            let values = [graph.variable(vars, id), grad, graph.variable(vars, momentum)];
            muon.add(graph, (update.clipping(), &head), options, values)?;
        }
    }
    if let Some(scaler) = spec.scaler {
        let tracker = vars.get_or_add(Variable::zeros(GROWTH_VARIABLE, DType::I64, [1], VarKind::Optimizer));
        let tracker = graph.variable(vars, tracker);
        graph.add(scaler, &[head[2], head[3], tracker, loss])?;
    }
    Ok(())
}

/// Adds the update of the moving averages, after that of what they are averages of. Makes their variables.
///
/// An average `a` of `x` becomes `a − share · (a − x)`. That is a step of gradient descent with the rate `share`, a weight decay
/// of 1 and the gradient `−x`, and the kernel of that does it: for all tensors at once, and not after a loss that is not
/// finite.
///
/// # Errors
/// None, unless there is a bug.
pub fn add_averages(
    graph: &mut Graph,
    vars: &mut Variables,
    spec: &UpdateSpec,
    loss: ValueId,
) -> Result<(), ShapeError> {
    if spec.averaged.is_empty() {
        return Ok(());
    }
    graph.set_origin("");
    graph.in_backward = true;
    let share = graph.input(Input::Averaging, DType::F32, Shape::from([4]));
    let step = vars.get_or_add(Variable::zeros(AVERAGE_STEP_VARIABLE, DType::I64, [1], VarKind::Optimizer));
    let mut operands = vec![share, loss, graph.variable(vars, step)];
    for id in &spec.averaged {
        let name = format!("{AVERAGE_PREFIX}{}", vars[*id].name);
        let average = companion(vars, *id, name, (VarKind::Optimizer, Holder::All), 0.0);
        operands.extend([graph.variable(vars, average), graph.variable(vars, *id)]);
    }
    let update = OptimizerStep {
        algorithm: Algorithm::Sgd { momentum: 0.0, dampening: 0.0, nesterov: false },
        clip_norm: None,
        clip_value: None,
        scaled: false,
        counts: true,
        tensors: vec![TensorOptions { lr_scale: 1.0, weight_decay: 1.0 }; spec.averaged.len()],
        parts: Vec::new(),
    };
    graph.add(update, &operands).map(|_| ())
}

/// The variables in which gradients (and the loss) are summed over micro-batches.
#[derive(Debug, Clone, PartialEq)]
pub struct Accumulators {
    loss: VarId,
    gradients: Vec<(VarId, VarId)>,
    /// What is restored if the loss is not finite.
    pub kept: Kept,
}

/// Adds the sums of loss and gradients over micro-batches, in place of the update. `loss` is that of [`Start`]: the update is
/// not made if that of any micro-batch is not finite.
///
/// # Errors
/// As [`add_update`].
pub fn add_accumulation(
    graph: &mut Graph,
    vars: &mut Variables,
    spec: &UpdateSpec,
    loss: ValueId,
    gradient: impl Fn(VarId) -> Option<ValueId>,
) -> Result<Accumulators, ShapeError> {
    graph.set_origin("");
    graph.in_backward = true;
    let sum = vars.get_or_add(Variable::zeros("gradient_sum.loss", DType::F32, [1], VarKind::Gradient));
    let value = graph.variable(vars, sum);
    graph.add(AccumulateGrad {}, &[loss, value])?;
    let mut gradients = Vec::new();
    for (id, _) in spec.tensors.iter().chain(&spec.thawed) {
        let Some(grad) = gradient(*id) else { continue };
        let name = format!("gradient_sum.{}", vars[*id].name);
        let sum = companion(vars, *id, name, (VarKind::Gradient, Holder::All), 0.0);
        let value = graph.variable(vars, sum);
        graph.add(AccumulateGrad {}, &[grad, value])?;
        gradients.push((*id, sum));
    }
    Ok(Accumulators { loss: sum, gradients, kept: Kept::default() })
}

/// A graph that updates the parameters, statistics and figures from the sums over the shards of a step, and the loss of the step.
///
/// # Errors
/// As [`add_update`].
pub fn shard_update_graph(
    vars: &mut Variables,
    spec: &UpdateSpec,
    sums: &ShardSums,
) -> Result<(Graph, ValueId), ShapeError> {
    let mut graph = Graph::new();
    let division = spec.division.as_ref();
    let ShardTotals { loss, gradients } = sums.totals(&mut graph, vars, division)?;
    add_update(&mut graph, vars, spec, loss, |id| gradients.get(&id).copied())?;
    sums.gather(&mut graph, vars, division)?;
    sums.share(&mut graph, vars, loss)?;
    add_averages(&mut graph, vars, spec, loss)?;
    Ok((graph, loss))
}

/// A graph that updates the parameters with the sums that [`add_accumulation`] gathers, divided by the sum of the
/// micro-batches' shares, and clears the sums.
///
/// # Errors
/// As [`add_update`].
pub fn update_graph(vars: &mut Variables, spec: &UpdateSpec, sums: &Accumulators) -> Result<Graph, ShapeError> {
    let mut graph = Graph::new();
    let loss = graph.variable(vars, sums.loss);
    let values: Vec<(VarId, ValueId)> =
        sums.gradients.iter().map(|(id, sum)| (*id, graph.variable(vars, *sum))).collect();
    let by_id: HashMap<VarId, ValueId> = values.iter().copied().collect();
    add_update(&mut graph, vars, spec, loss, |id| by_id.get(&id).copied())?;
    sums.kept.restore(&mut graph, vars, loss)?;
    add_averages(&mut graph, vars, spec, loss)?;
    let mark = sums.kept.mark(&mut graph, vars);
    let shares = shares(&mut graph, vars);
    let gradients = values.into_iter().map(|(_, v)| v);
    let sums: Vec<ValueId> = [loss, shares].into_iter().chain(gradients).chain(mark).collect();
    debug_assert!(sums.iter().all(|v| matches!(graph.value(*v).role, Role::State(_))));
    graph.add(ZeroGrad {}, &sums)?;
    Ok(graph)
}

//! The fusion pass: groups of operations become one node, where the device has one kernel for them.

use super::edit::{Links, remove};
use crate::graph::op::{Fused, Group, Pattern, Source, Step, StepOutput};
use crate::graph::{Graph, Node, Op, Role, Value, ValueId};

/// Fuses the groups that `pattern` takes. Nodes are visited in order. Each is joined with the nodes or groups that produce its
/// operands, the latest first, or with two of them in a row, as long as the pattern takes the result. A group must be able to run in the place of its last node,
/// where all of its operands are known: none of its results may be read before.
///
/// Run it after the gradient pass: a group has no gradient rule.
pub fn fuse(graph: &mut Graph, pattern: &Pattern) {
    if graph.nodes.iter().any(|node| (pattern.repeats)(&node.op)) {
        repeat(graph, pattern);
    }
    let links = Links::of(graph);
    let updates: Vec<usize> = (0..graph.nodes.len()).filter(|at| updates_something(&graph.nodes[*at])).collect();
    // The group of each node: the number of the group's first node.
    let mut group: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    for at in 0..graph.nodes.len() {
        if !may_have(pattern, &graph.nodes[at].op) {
            continue;
        }
        let mut members = vec![at];
        let mut makers: Vec<usize> = graph.nodes[at].inputs.iter().filter_map(|v| links.maker(*v)).collect();
        makers.sort_unstable_by(|a, b| b.cmp(a));
        for maker in makers {
            let Some(before) = group[maker].filter(|first| !members.contains(first)) else { continue };
            // What the pattern does not take with this one, it may take with one more, which produces an operand of this one.
            let one_more = groups[before].iter().flat_map(|at| &graph.nodes[*at].inputs);
            let one_more = one_more.filter_map(|v| group[links.maker(*v)?]).filter(|first| *first != before);
            let found = std::iter::once(None).chain(one_more.map(Some)).find_map(|further| {
                let further = further.filter(|first| !members.contains(first));
                let before: Vec<usize> = further.into_iter().chain([before]).flat_map(|g| groups[g].clone()).collect();
                let mut all = [&before[..], &members].concat();
                all.sort_unstable();
                let taken = can_move(graph, &links, &updates, &all, &before)
                    && joined(graph, &links, &all, None).is_some_and(|node| takes(graph, pattern, &node));
                taken.then_some((all, further))
            });
            if let Some((all, further)) = found {
                further.into_iter().chain([before]).for_each(|first| groups[first].clear());
                members = all;
            }
        }
        for member in &members {
            group[*member] = Some(members[0]);
        }
        let first = members[0];
        groups[first] = members;
    }
    groups.retain(|members| members.len() > 1);
    let places = places(graph, &links, &updates, &groups);
    let mut gone = vec![false; graph.nodes.len()];
    let nodes: Vec<Node> =
        groups.iter().map(|members| joined(graph, &links, members, None).expect("it could be joined before")).collect();
    for ((members, place), node) in groups.iter().zip(places).zip(nodes) {
        members.iter().for_each(|member| gone[*member] = *member != place);
        graph.nodes[place] = node;
    }
    remove(graph, &gone);
}

/// The position of each group. A group that begins with more than an element-wise operation, such as a product, takes the place
/// of that operation if all operands of the group are known there: what runs after it then finds the caches as before. Any other
/// group takes the place of its last node.
fn places(graph: &Graph, links: &Links, updates: &[usize], groups: &[Vec<usize>]) -> Vec<usize> {
    // Where each node's results are made.
    let mut made_at: Vec<usize> = (0..graph.nodes.len()).collect();
    for members in groups {
        members.iter().for_each(|member| made_at[*member] = members[members.len() - 1]);
    }
    let mut places = Vec::with_capacity(groups.len());
    for members in groups {
        let (first, last) = (members[0], members[members.len() - 1]);
        let known = |value: ValueId, reader: usize| match links.maker(value) {
            Some(maker) => members.contains(&maker) || made_at[maker] < first,
            // Unless it is another by then.
            None => !updates[updates.partition_point(|at| *at < first)..]
                .iter()
                .take_while(|at| **at < reader)
                .any(|at| changed(&graph.nodes[*at]).any(|v| v == value)),
        };
        let all_known =
            members[1..].iter().all(|reader| graph.nodes[*reader].inputs.iter().all(|value| known(*value, *reader)));
        let head = match &graph.nodes[first].op {
            Op::Fused(op) => &op.steps[0].op,
            op => op,
        };
        let place = if !head.keeps_places() && all_known { first } else { last };
        members.iter().for_each(|member| made_at[*member] = place);
        places.push(place);
    }
    places
}

/// The operands that a node updates.
fn changed(node: &Node) -> impl Iterator<Item = ValueId> {
    node.op.rules().mutates(node.inputs.len()).into_iter().map(|m| node.inputs[m])
}

/// Recomputation: every reader of a value makes it itself, where the pattern takes the producing node with each of them.
fn repeat(graph: &mut Graph, pattern: &Pattern) {
    let links = Links::of(graph);
    let mut gone = vec![false; graph.nodes.len()];
    let firsts: Vec<usize> = (0..graph.nodes.len()).filter(|at| (pattern.repeats)(&graph.nodes[*at].op)).collect();
    for at in firsts {
        let &[value] = &graph.nodes[at].outputs[..] else { continue };
        let readers = links.readers(value);
        if readers.is_empty() || graph.value(value).role != Role::Temporary {
            continue;
        }
        let one = |reader: &usize| {
            let node = joined(graph, &links, &[at, *reader], Some(value))?;
            (may_have(pattern, &graph.nodes[*reader].op) && takes(graph, pattern, &node)).then_some((*reader, node))
        };
        if let Some(all) = readers.iter().map(one).collect::<Option<Vec<_>>>() {
            gone[at] = true;
            all.into_iter().for_each(|(reader, node)| graph.nodes[reader] = node);
        }
    }
    remove(graph, &gone);
}

/// True if `op`, or each of its steps, can be part of the pattern.
fn may_have(pattern: &Pattern, op: &Op) -> bool {
    match op {
        Op::Fused(op) => op.steps.iter().all(|step| (pattern.has)(&step.op)),
        op => (pattern.has)(op),
    }
}

fn takes(graph: &Graph, pattern: &Pattern, node: &Node) -> bool {
    let Op::Fused(op) = &node.op else { return false };
    let operands: Vec<&Value> = node.inputs.iter().map(|v| graph.value(*v)).collect();
    Group::new(op, operands).is_ok_and(|group| (pattern.takes)(&group))
}

fn updates_something(node: &Node) -> bool {
    changed(node).next().is_some()
}

/// True if two values have one type and shape.
fn alike(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    graph.value(a).dtype == graph.value(b).dtype && graph.shape(a) == graph.shape(b)
}

/// True if the nodes `all` can become one node in the place of the last of them; those of `before` are one already. `updates`
/// are the nodes that update an operand in place.
fn can_move(graph: &Graph, links: &Links, updates: &[usize], all: &[usize], before: &[usize]) -> bool {
    let (first, last) = (all[0], all[all.len() - 1]);
    let early = |at: &usize| {
        let readers = graph.nodes[*at].outputs.iter().flat_map(|v| links.readers(*v));
        readers.into_iter().any(|reader| *reader < last && !all.contains(reader))
    };
    if all.iter().any(early) {
        return false;
    }
    // Nothing that a member reads may change between its place and that of the last.
    let from = updates.partition_point(|at| *at <= first);
    let changes = |at: &usize| {
        changed(&graph.nodes[*at])
            .any(|v| all.iter().any(|member| member < at && graph.nodes[*member].inputs.contains(&v)))
    };
    if updates[from..].iter().take_while(|at| **at < last).any(|at| !all.contains(at) && changes(at)) {
        return false;
    }
    // A node that moves to the place of the last one keeps its operands alive until then. If other nodes run in between, at most
    // one operand of the size of the result may be kept alive in this way.
    let between = (first..last).any(|at| !all.contains(&at) && !graph.nodes[at].op.rules().is_alias());
    let mut operands: Vec<ValueId> = before.iter().flat_map(|at| &graph.nodes[*at].inputs).copied().collect();
    operands.sort_unstable();
    operands.dedup();
    let result = graph.nodes[last].outputs[0];
    let own = |v: &ValueId| links.maker(*v).is_some_and(|maker| before.contains(&maker));
    let waiting = operands.iter().filter(|v| {
        graph.value(**v).role == Role::Temporary
            && alike(graph, **v, result)
            && !own(v)
            && links.readers(**v).iter().all(|reader| *reader < last)
    });
    !between || waiting.count() <= 1
}

/// The nodes `members` as one; `None` if one of them reads an output that groups do not pass on. `repeated` is not a result,
/// though it may be read elsewhere.
fn joined(graph: &Graph, links: &Links, members: &[usize], repeated: Option<ValueId>) -> Option<Node> {
    let (mut operands, mut steps): (Vec<ValueId>, Vec<Step>) = (Vec::new(), Vec::new());
    // What steps make that is a value of the graph.
    let mut made: Vec<(ValueId, StepOutput)> = Vec::new();
    for at in members {
        let node = &graph.nodes[*at];
        let mut sources: Vec<Source> = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            sources.push(match made.iter().find(|(value, _)| value == input) {
                Some((_, StepOutput { step, output: 0 })) => Source::Step(*step),
                Some(_) => return None,
                None => {
                    let known = operands.iter().position(|v| v == input);
                    Source::Operand(known.unwrap_or_else(|| {
                        operands.push(*input);
                        operands.len() - 1
                    }))
                }
            });
        }
        let first = steps.len();
        match &node.op {
            Op::Fused(op) => {
                let moved = |from: &Source| match *from {
                    Source::Operand(i) => sources[i],
                    Source::Step(i) => Source::Step(first + i),
                };
                let moved = |step: &Step| Step { op: step.op.clone(), from: step.from.iter().map(moved).collect() };
                steps.extend(op.steps.iter().map(moved));
                let outputs = node.outputs.iter().zip(&op.results);
                made.extend(outputs.map(|(v, r)| (*v, StepOutput { step: first + r.step, ..*r })));
            }
            op => {
                steps.push(Step { op: op.clone(), from: sources });
                let outputs = node.outputs.iter().enumerate();
                made.extend(outputs.map(|(output, v)| (*v, StepOutput { step: first, output })));
            }
        }
    }
    let end = StepOutput { step: steps.len() - 1, output: 0 };
    // The further outputs of a step are always results of the group.
    let wanted = |(value, from): &(ValueId, StepOutput)| {
        let read = || links.readers(*value).iter().any(|reader| !members.contains(reader));
        let is_needed = graph.value(*value).role == Role::Output || from.output > 0 || read();
        *from == end || is_needed && Some(*value) != repeated
    };
    let mut results: Vec<(ValueId, StepOutput)> = made.into_iter().filter(wanted).collect();
    results.sort_by_key(|(_, from)| (*from != end, *from));
    let (outputs, results): (Vec<ValueId>, Vec<StepOutput>) = results.into_iter().unzip();
    let last = members[members.len() - 1];
    let mut op = Fused { steps, results, in_place: None };
    if op.steps.iter().all(|step| step.op.rules().in_place().is_some() || matches!(step.op, Op::Cast(_))) {
        let dies = |i: &usize| {
            alike(graph, operands[*i], outputs[0])
                && !op.is_key(*i)
                && links.readers(operands[*i]).iter().all(|reader| *reader <= last)
        };
        op.in_place = (0..operands.len()).find(dies);
    }
    // In listings it belongs to the layer of its most expensive operation: the product at its beginning, if there is one.
    let head = if !op.steps[0].op.keeps_places() { members[0] } else { last };
    let Node { origin, backward, .. } = graph.nodes[head];
    Some(Node { op: op.into(), inputs: operands, outputs, origin, backward })
}

#[cfg(test)]
mod tests;

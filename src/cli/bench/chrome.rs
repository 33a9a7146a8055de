//! Traces in the format of Chrome's trace viewer, which Perfetto reads too: an array of events, times in microseconds.

use super::profile::Load;
use crate::backend::{Span, Track, Work};
use crate::plan::Plan;
use serde_json::{Value, json};

/// The events of `spans`, which were taken of programs of `plan`; `title` is the name of the whole.
pub fn events(plan: &Plan, spans: &[Span], title: &str) -> Value {
    let named = |name: &str, tid: Option<u32>, value: &str| {
        let mut event = json!({ "name": name, "ph": "M", "pid": 1, "args": { "name": value } });
        if let Some(tid) = tid {
            event["tid"] = tid.into();
        }
        event
    };
    let mut events = vec![named("process_name", None, title)];
    for (track, name) in [(Track::CopyIn, "copy in"), (Track::Compute, "compute"), (Track::ReadBack, "read back")] {
        if spans.iter().any(|s| s.track == track) {
            events.push(named("thread_name", Some(thread(track)), name));
        }
    }
    events.extend(spans.iter().map(|span| event(plan, span)));
    events.into()
}

fn thread(track: Track) -> u32 {
    match track {
        Track::CopyIn => 1,
        Track::Compute => 2,
        Track::ReadBack => 3,
    }
}

fn event(plan: &Plan, span: &Span) -> Value {
    let program = &plan.programs[span.program];
    let (name, category, mut args) = match span.work {
        Work::Batch => ("batch".to_owned(), "transfer", json!({ "bytes": plan.slot.bytes })),
        Work::Losses => ("losses".to_owned(), "transfer", json!({})),
        Work::Program => (program.name.clone(), "program", json!({})),
        Work::Node(node) => {
            let load = Load::of(&program.graph, &program.graph.nodes[node.index()]);
            let args = json!({
                "node": node.index(),
                "layer": load.layer,
                "op": load.op,
                "gflop": load.flops as f64 / 1e9,
                "bytes": load.bytes,
                "program": program.name,
            });
            (load.op, if load.backward { "backward" } else { "forward" }, args)
        }
    };
    args["step"] = span.step.into();
    // Whole nanoseconds: the end of a span is then exactly the beginning of the next.
    let [start, end] = [span.start, span.end].map(|seconds| (seconds * 1e9).round());
    json!({
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "pid": 1,
        "tid": thread(span.track),
        "args": args,
    })
}

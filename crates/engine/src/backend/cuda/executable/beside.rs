//! Sums over ranks that go on beside the computation: a stream of their own, which leaves the compute stream after the last gradient of a bucket and joins it
//! again at the end of the program. The program that ends the sums has nothing left to do for them.
//!
//! They begin in the last shard that a rank has in a step, which its batch says. So a program is captured with them and without.

use crate::backend::HostBuffer;
use crate::backend::cuda::driver::stream::{Event, Stream};
use crate::backend::cuda::modules::Modules;
use crate::graph::{Graph, Input, Op};
use crate::plan::Plan;
use anyhow::Result;

/// Elements of a shard's place before the one that says whether the shard is the last of its rank in the step.
const IS_LAST: usize = 3;

/// The stream of sums that are made beside the computation.
pub struct Beside {
    stream: Stream,
    left: Event,
    joined: Event,
}

/// What a node has to do with sums that are made beside the computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Nothing.
    None,
    /// Its work goes on beside the nodes after it, if the sums begin ahead.
    Begins,
    /// Its work is done already, if they have begun ahead.
    Ends,
}

/// True if what the operation does goes on beside the operations after it.
pub fn goes_beside(op: &Op) -> bool {
    Part::of(op) == Part::Begins
}

impl Part {
    /// That of an operation.
    pub fn of(op: &Op) -> Part {
        match op {
            Op::ShardBegin(_) => Part::Begins,
            Op::ShardReduce(op) if op.bucket.is_some() => Part::Ends,
            _ => Part::None,
        }
    }

    /// The part of a program: no program both begins and ends sums.
    pub fn of_all(graph: &Graph) -> Part {
        let mut parts = graph.nodes.iter().map(|node| Part::of(&node.op));
        parts.find(|part| *part != Part::None).unwrap_or(Part::None)
    }
}

impl Beside {
    /// # Errors
    /// The driver failed.
    pub fn new(modules: &Modules, compute: &Stream) -> Result<Beside> {
        let event = || Event::new(compute.context(), false);
        Ok(Beside { stream: modules.stream()?, left: event()?, joined: event()? })
    }

    /// The stream, which goes on after what is on `compute` by now.
    ///
    /// # Errors
    /// The driver failed.
    pub fn leave(&self, compute: &Stream) -> Result<&Stream> {
        self.left.record(compute)?;
        self.stream.wait(&self.left)?;
        Ok(&self.stream)
    }

    /// What is enqueued on `compute` from now on waits for it.
    ///
    /// # Errors
    /// The driver failed.
    pub fn join(&self, compute: &Stream) -> Result<()> {
        self.joined.record(&self.stream)?;
        Ok(compute.wait(&self.joined)?)
    }
}

/// Whether sums begin in this run, by the batch.
pub fn begins(plan: &Plan, batch: &HostBuffer) -> bool {
    let last = plan.slot.find(Input::Shard).and_then(|at| {
        let first = at.offset + IS_LAST * size_of::<i32>();
        batch.bytes().get(first..)?.first_chunk().copied()
    });
    last.is_some_and(|last| i32::from_ne_bytes(last) == 1)
}

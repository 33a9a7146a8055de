//! Sums over ranks, and what each rank gives to all: messages between GPUs, and the launches before and after them.
//!
//! A message has what is large by itself, without a copy; what is small is copied together, so that the number of messages does not
//! grow with that of the tensors.

use super::Context;
use super::columns::aligned;
use super::optim::Cut;
use super::shards::{MODULE, TYPES};
use crate::backend::gpu::launch::{Arg, BLOCK, Cell, Exchange, Lowered, Memory, Message, Step};
use crate::graph::DType;
use crate::graph::op::{Receivers, ShardGather, ShardReduce};
use crate::shards::{Shards, part_of};
use std::ops::Range;

/// Pieces of at most so many bytes travel together: to copy them costs less than a message.
const SMALL: usize = 64 << 10;

/// Sums of at most so many bytes are made by each rank that needs them, of what all others have: one exchange instead of two.
const BY_ALL: usize = 1 << 20;

/// Pieces that travel together begin at multiples of this, the largest element.
const PIECE_ALIGNMENT: usize = 8;

/// Shared memory of a block that every device has.
const SHARED_BYTES: usize = 48 << 10;

/// Bytes of memory.
#[derive(Debug, Clone, Copy)]
struct Piece {
    at: Memory,
    bytes: usize,
}

/// The piece of operand `i` with these of its elements, of type `dtype`.
fn piece(i: usize, elements: &Range<usize>, dtype: DType) -> Piece {
    let at = match elements.start {
        0 => Memory::Input(i),
        start => Memory::InputFrom(i, start * dtype.bytes()),
    };
    Piece { at, bytes: elements.len() * dtype.bytes() }
}

/// Which of some pieces travel by themselves, and where each of the others begins in the message that they share. Sender and receiver
/// find the same, for it depends on the sizes alone.
#[derive(Debug, Default, PartialEq)]
struct Parcel {
    alone: Vec<usize>,
    together: Vec<(usize, usize)>,
    /// Bytes of the shared message.
    bytes: usize,
}

impl Parcel {
    fn of(pieces: &[Piece]) -> Parcel {
        let (small, alone): (Vec<usize>, Vec<usize>) = (0..pieces.len()).partition(|i| pieces[*i].bytes <= SMALL);
        if small.len() == 1 {
            return Parcel { alone: (0..pieces.len()).collect(), ..Parcel::default() };
        }
        let mut parcel = Parcel { alone, ..Parcel::default() };
        for i in small {
            let at = parcel.bytes.next_multiple_of(PIECE_ALIGNMENT);
            parcel.together.push((i, at));
            parcel.bytes = at + pieces[i].bytes;
        }
        parcel
    }
}

/// An exchange while it is put together, with the copies that it needs.
#[derive(Default)]
struct Builder {
    exchange: Exchange,
    /// Before it, and after it: from, to, bytes.
    copies: [Vec<(Memory, Memory, usize)>; 2],
    /// Bytes of workspace.
    scratch: usize,
}

impl Builder {
    /// Workspace.
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.scratch;
        self.scratch = aligned(at + bytes);
        at
    }

    /// Sends the same pieces to each of some ranks.
    fn send(&mut self, pieces: &[Piece], to: impl Iterator<Item = usize>) {
        let parcel = Parcel::of(pieces);
        let mut given: Vec<Piece> = parcel.alone.iter().map(|i| pieces[*i]).collect();
        if parcel.bytes > 0 {
            let start = self.take(parcel.bytes);
            let copies =
                parcel.together.iter().map(|(i, at)| (pieces[*i].at, Memory::Scratch(start + at), pieces[*i].bytes));
            self.copies[0].extend(copies);
            given.push(Piece { at: Memory::Scratch(start), bytes: parcel.bytes });
        }
        for peer in to {
            self.exchange.sends.extend(given.iter().map(|piece| Message { peer, at: piece.at, bytes: piece.bytes }));
        }
    }

    /// Receives pieces like these from a rank, in the workspace: where each lies there.
    fn receive(&mut self, pieces: &[Piece], peer: usize) -> Vec<Memory> {
        let parcel = Parcel::of(pieces);
        let mut places = vec![Memory::Scratch(0); pieces.len()];
        for i in parcel.alone {
            let (at, bytes) = (Memory::Scratch(self.take(pieces[i].bytes)), pieces[i].bytes);
            places[i] = at;
            self.exchange.receives.push(Message { peer, at, bytes });
        }
        if parcel.bytes > 0 {
            let start = self.take(parcel.bytes);
            self.exchange.receives.push(Message { peer, at: Memory::Scratch(start), bytes: parcel.bytes });
            parcel.together.iter().for_each(|(i, at)| places[*i] = Memory::Scratch(start + at));
        }
        places
    }

    /// Receives these pieces from a rank, in their places.
    fn receive_in_place(&mut self, pieces: &[Piece], peer: usize) {
        let parcel = Parcel::of(pieces);
        for i in parcel.alone {
            self.exchange.receives.push(Message { peer, at: pieces[i].at, bytes: pieces[i].bytes });
        }
        if parcel.bytes > 0 {
            let start = self.take(parcel.bytes);
            self.exchange.receives.push(Message { peer, at: Memory::Scratch(start), bytes: parcel.bytes });
            let copies =
                parcel.together.iter().map(|(i, at)| (Memory::Scratch(start + at), pieces[*i].at, pieces[*i].bytes));
            self.copies[1].extend(copies);
        }
    }

    /// The exchange, between its copies.
    fn steps(self) -> (Vec<Step>, usize) {
        let copy = |pairs: &[(Memory, Memory, usize)]| -> Option<Step> {
            let cut = Cut::new(pairs.iter().map(|(.., bytes)| bytes / 4));
            let cells = pairs
                .iter()
                .flat_map(|(from, to, bytes)| [Cell::from(*from), (*to).into(), Cell::I64((bytes / 4) as i64)]);
            let cells = cells.collect();
            // Always: without a condition.
            (!pairs.is_empty()).then(|| cut.launch("copy_state", vec![Arg::Null], cells).int(0).into())
        };
        let [before, behind] = &self.copies;
        let has_messages = !self.exchange.sends.is_empty() || !self.exchange.receives.is_empty();
        let exchange = has_messages.then(|| Step::Exchange(self.exchange.clone()));
        (copy(before).into_iter().chain(exchange).chain(copy(behind)).collect(), self.scratch)
    }
}

/// A tensor of a sum: its first slot among the operands, its elements and their type.
struct Summed {
    first: usize,
    length: usize,
    dtype: DType,
}

/// The exchange of what each rank has of the sums of others, and the totals of what this one receives. Where sums are for all and many, another
/// exchange gives them to all.
pub fn reduce(cx: &Context, op: &ShardReduce) -> Lowered {
    let (rank, ranks) = cx.target.rank;
    if ranks == 1 || op.shards.ranks != ranks {
        // A rank alone has all there is.
        return Lowered::default();
    }
    let firsts = (1..cx.node.inputs.len()).step_by(op.slots);
    let tensors: Vec<Summed> =
        firsts.map(|first| Summed { first, length: cx.x(first).len(), dtype: cx.x_type(first) }).collect();
    let bytes: usize = tensors.iter().map(|tensor| op.slots * tensor.length * tensor.dtype.bytes()).sum();
    let by_all = op.to == Receivers::All && bytes <= BY_ALL;
    // The elements of a tensor that a rank receives.
    let part = |at: usize, of: usize| match &op.to {
        Receivers::All if by_all => 0..tensors[at].length,
        Receivers::All | Receivers::Parts => part_of(tensors[at].length, (of, ranks)),
        Receivers::Owners(owners) if owners[at] == of => 0..tensors[at].length,
        Receivers::Owners(_) => 0..0,
    };
    // The pieces that go to a rank: of each tensor, all its slots.
    let pieces = |of: usize| -> Vec<Piece> {
        let received = (0..tensors.len()).map(|at| (&tensors[at], part(at, of))).filter(|(_, part)| !part.is_empty());
        received.flat_map(|(t, part)| (0..op.slots).map(move |slot| piece(t.first + slot, &part, t.dtype))).collect()
    };
    let mut builder = Builder::default();
    let others = || (0..ranks).filter(|other| *other != rank);
    match by_all {
        true => builder.send(&pieces(rank), others()),
        false => others().for_each(|other| builder.send(&pieces(other), std::iter::once(other))),
    }
    let own = pieces(rank);
    let sources: Vec<Vec<Memory>> = (0..ranks)
        .map(|other| match other == rank {
            true => own.iter().map(|piece| piece.at).collect(),
            false => builder.receive(&own, other),
        })
        .collect();
    let (mut steps, mut scratch_bytes) = builder.steps();

    let received: Vec<(&Summed, Range<usize>)> =
        (0..tensors.len()).map(|at| (&tensors[at], part(at, rank))).filter(|(_, part)| !part.is_empty()).collect();
    let (orders, depth) = orders(op);
    for (dtype, suffix) in TYPES {
        let of_type: Vec<usize> = (0..received.len()).filter(|i| received[*i].0.dtype == dtype).collect();
        if of_type.is_empty() {
            continue;
        }
        let cut = Cut::new(of_type.iter().map(|i| received[*i].1.len()));
        let row = |i: &usize| -> Vec<Cell> {
            let slots = op.slots * i..op.slots * (i + 1);
            let partials = sources.iter().flat_map(|of_rank| of_rank[slots.clone()].iter().map(|at| Cell::from(*at)));
            [Cell::I64(received[*i].1.len() as i64), own[slots.start].at.into()].into_iter().chain(partials).collect()
        };
        let args = vec![Memory::Input(0).into(), Arg::Table(orders.clone())];
        let column = depth * dtype.bytes();
        let threads = if column * BLOCK as usize <= SHARED_BYTES { BLOCK } else { BLOCK / 2 };
        let launch =
            cut.launch_of(MODULE, &format!("shard_total_{suffix}"), args, of_type.iter().flat_map(row).collect());
        let launch = launch.block(threads, 1).shared(column * threads as usize);
        steps.push(launch.int(ranks * op.slots).int(op.shards.count).into());
    }
    if op.to == Receivers::All && !by_all {
        let mut parts = Vec::new();
        for tensor in &tensors {
            let of_rank =
                |rank: usize| (piece(tensor.first, &part_of(tensor.length, (rank, ranks)), tensor.dtype), rank);
            parts.extend((0..ranks).map(of_rank));
        }
        let (given, end) = give(&parts, cx.target.rank, scratch_bytes);
        steps.extend(given);
        scratch_bytes = end;
    }
    Lowered { steps, scratch_bytes }
}

/// For each number of shards that a step may have, which partial sums are added in which order, as the kernel reads it; and how deep its stack is.
fn orders(op: &ShardReduce) -> (Vec<Cell>, usize) {
    let Shards { count, .. } = op.shards;
    let mut depth = 1;
    let (mut offsets, mut lists) = (Vec::new(), Vec::new());
    for present in 0..=count {
        offsets.push(Cell::I64((count + 1 + lists.len()) as i64));
        let total = op.shards.total(present);
        lists.push(Cell::I64(total.len() as i64));
        for partial in total {
            let source = (partial.rank * op.slots + partial.slot) as i64;
            let (slot, merged) = (partial.place.slot as i64, partial.place.merged as i64);
            lists.push(Cell::I64(source | slot << 32 | merged << 48));
            depth = depth.max(partial.place.slot + 1);
        }
    }
    (offsets.into_iter().chain(lists).collect(), depth)
}

/// The exchange in which each rank gives what belongs to it to all others.
pub fn gather(cx: &Context, op: &ShardGather) -> Lowered {
    let mut list = op.parts.iter();
    let mut parts = Vec::new();
    for i in 0..cx.node.inputs.len() {
        let mut start = 0;
        while start < cx.x(i).len()
            && let Some((length, owner)) = list.next()
        {
            parts.push((piece(i, &(start..start + length), cx.x_type(i)), *owner));
            start += length;
        }
    }
    let (steps, scratch_bytes) = give(&parts, cx.target.rank, 0);
    Lowered { steps, scratch_bytes }
}

/// The exchange of pieces, each of which belongs to a rank, with workspace from byte `scratch` on; and where that ends.
fn give(parts: &[(Piece, usize)], (rank, ranks): (usize, usize), scratch: usize) -> (Vec<Step>, usize) {
    let of = |rank: usize| -> Vec<Piece> {
        parts.iter().filter(|(piece, owner)| *owner == rank && piece.bytes > 0).map(|(piece, _)| *piece).collect()
    };
    let mut builder = Builder { scratch, ..Builder::default() };
    let others = || (0..ranks).filter(|other| *other != rank);
    if ranks > 1 {
        builder.send(&of(rank), others());
        others().for_each(|other| builder.receive_in_place(&of(other), other));
    }
    builder.steps()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_travel_together_and_large_ones_alone() {
        let pieces = |sizes: &[usize]| -> Vec<Piece> {
            sizes.iter().enumerate().map(|(i, bytes)| Piece { at: Memory::Input(i), bytes: *bytes }).collect()
        };
        let of = |sizes: &[usize]| Parcel::of(&pieces(sizes));
        let large = SMALL + 4;
        assert_eq!(of(&[]), Parcel::default());
        assert_eq!(of(&[large, 12]), Parcel { alone: vec![0, 1], ..Parcel::default() });
        let expected = Parcel { alone: vec![1], together: vec![(0, 0), (2, 16), (3, 24)], bytes: 24 + SMALL };
        assert_eq!(of(&[12, large, 8, SMALL]), expected);
    }
}

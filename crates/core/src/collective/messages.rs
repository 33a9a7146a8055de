//! Ranks that send each other messages: sums and gathering, over whatever carries these.

use super::total::{parts, total};
use super::{Collective, Division, Slots};
use crate::shards::Partial;
use anyhow::{Result, anyhow};
use memmap2::Mmap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Where a part of a tensor begins in a message that has it: whole words for each.
const WORD: usize = 8;

/// How many times as long as what a rank gives in an exchange of bytes that of another may be.
const ALIKE: usize = 16;

/// Bytes that have arrived, aligned as any number must be.
#[derive(Debug, Default)]
pub struct Message {
    memory: Memory,
    len: usize,
}

/// Where the bytes of a message are.
#[derive(Debug)]
enum Memory {
    Words(Vec<u64>),
    /// Where another process has written them, from there on.
    Shared(Arc<Mmap>, usize),
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Words(Vec::new())
    }
}

impl Message {
    /// Room for so many bytes, in the memory of a message that is not needed any more; `None` if there is no memory for them.
    pub fn with_len(spare: Message, len: usize) -> Option<Message> {
        let mut words = match spare.memory {
            Memory::Words(words) => words,
            Memory::Shared(..) => Vec::new(),
        };
        let wanted = len.div_ceil(WORD);
        words.try_reserve(wanted.saturating_sub(words.len())).ok()?;
        // Never shortened, or what is longer would be set to zero each time.
        words.resize(wanted.max(words.len()), 0);
        Some(Message { memory: Memory::Words(words), len })
    }

    /// What another process has written there, which begins at a multiple of eight and is inside.
    pub fn shared(memory: Arc<Mmap>, range: Range<usize>) -> Message {
        assert!(range.start.is_multiple_of(WORD) && range.end <= memory.len(), "a message outside of its memory");
        Message { len: range.len(), memory: Memory::Shared(memory, range.start) }
    }

    /// Whether there is memory in it that can be used again.
    pub fn has_memory(&self) -> bool {
        matches!(&self.memory, Memory::Words(words) if words.capacity() > 0)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: there are as many, and a byte may have any value.
            Memory::Words(words) => unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), self.len) },
            Memory::Shared(memory, at) => &memory[*at..at + self.len],
        }
    }

    /// The bytes, to be written; none of those that another process has written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as above.
            Memory::Words(words) => unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), self.len) },
            Memory::Shared(..) => &mut [],
        }
    }
}

/// What a rank gives others in an exchange. It is written where it travels from: there is no other copy of it.
pub trait Parcels {
    /// How many bytes `to` is given.
    fn len(&self, to: usize) -> usize;

    /// Writes them, all of them.
    fn write(&self, to: usize, into: &mut [u8]);

    /// All are given the same, so that to write it once is enough.
    fn same(&self) -> bool;
}

/// Carries bytes between ranks. All of them call [`Wire::exchange`] in the same order.
pub trait Wire: Send + Sync + Debug {
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// Gives every other rank what is for it, and returns what they have given this one, in the order of ranks. This rank's own place is empty.
    ///
    /// # Errors
    /// A rank has failed, or does not answer; there is no memory for the messages.
    fn exchange(&self, parcels: &dyn Parcels) -> Result<Vec<Message>>;

    /// A message of so many bytes may come in the next exchange. What carries messages between processes that it has started itself may
    /// believe any length.
    fn allow(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Takes back messages that have been read: their memory is used again.
    fn recycle(&self, messages: Vec<Message>);

    /// As [`Collective::fail`].
    fn fail(&self, why: &str);

    /// As [`Collective::check`].
    ///
    /// # Errors
    /// The reason.
    fn check(&self) -> Result<()>;
}

/// A rank that sends messages.
#[derive(Debug)]
pub struct Messages<W> {
    wire: W,
}

impl<W: Wire> Messages<W> {
    /// Over this wire.
    pub fn new(wire: W) -> Self {
        Messages { wire }
    }

    /// Fails if a message is not as long as it must be: the ranks compute different programs then.
    fn expect(&self, messages: &[Message], bytes: impl Fn(usize) -> usize) -> Result<()> {
        for (rank, message) in messages.iter().enumerate().filter(|(rank, _)| *rank != self.wire.rank()) {
            if message.len != bytes(rank) {
                let error = format!("rank {rank} has sent {} bytes, not {}", message.len, bytes(rank));
                self.wire.fail(&error);
                return Err(anyhow!("{error}"));
            }
        }
        Ok(())
    }
}

/// How many bytes a message has with `parts` of `tensors`, `copies` of each.
fn length(tensors: &[Slots], parts: &[Range<usize>], copies: usize) -> usize {
    let bytes = |(tensor, part): (&Slots, &Range<usize>)| (part.len() * tensor.dtype.bytes()).next_multiple_of(WORD);
    tensors.iter().zip(parts).map(bytes).sum::<usize>() * copies
}

/// Parts of tensors, of some slots each.
struct PartsOf<'a> {
    tensors: &'a [Slots],
    /// What belongs to each rank.
    parts: &'a [Vec<Range<usize>>],
    slots: &'a [usize],
    /// The rank whose part all are given; `None`: each is given its own.
    of: Option<usize>,
}

impl<'a> PartsOf<'a> {
    /// # Safety
    /// These slots are valid for reads and initialised, and no thread writes them as long as this lives.
    unsafe fn new(
        tensors: &'a [Slots],
        parts: &'a [Vec<Range<usize>>],
        slots: &'a [usize],
        of: Option<usize>,
    ) -> PartsOf<'a> {
        PartsOf { tensors, parts, slots, of }
    }
}

impl Parcels for PartsOf<'_> {
    fn len(&self, to: usize) -> usize {
        length(self.tensors, &self.parts[self.of.unwrap_or(to)], self.slots.len())
    }

    fn write(&self, to: usize, into: &mut [u8]) {
        let mut rest = into;
        for (tensor, part) in self.tensors.iter().zip(&self.parts[self.of.unwrap_or(to)]) {
            let size = tensor.dtype.bytes();
            let (at, len) = (part.start * size, part.len() * size);
            for slot in self.slots {
                // SAFETY: inside the slot, which is valid for reads, as the caller of `new` promises.
                let bytes = unsafe { std::slice::from_raw_parts(tensor.slots[*slot].cast_const().add(at), len) };
                let (own, after) = rest.split_at_mut(len.next_multiple_of(WORD));
                own[..len].copy_from_slice(bytes);
                own[len..].fill(0);
                rest = after;
            }
        }
    }

    fn same(&self) -> bool {
        self.of.is_some()
    }
}

/// Bytes as they are.
struct Bytes<'a, 'b>(&'b dyn Fn(usize) -> &'a [u8]);

impl Parcels for Bytes<'_, '_> {
    fn len(&self, to: usize) -> usize {
        (self.0)(to).len()
    }

    fn write(&self, to: usize, into: &mut [u8]) {
        into.copy_from_slice((self.0)(to));
    }

    fn same(&self) -> bool {
        false
    }
}

impl<W: Wire> Collective for Messages<W> {
    fn rank(&self) -> usize {
        self.wire.rank()
    }

    fn ranks(&self) -> usize {
        self.wire.ranks()
    }

    /// Every rank is sent the partial sums of what belongs to it.
    unsafe fn reduce_scatter(&self, order: &[Partial], tensors: &[Slots], division: Division) -> Result<()> {
        let (own, ranks) = (self.wire.rank(), self.wire.ranks());
        let parts: Vec<Vec<Range<usize>>> = (0..ranks).map(|rank| parts(tensors, division, (rank, ranks))).collect();
        let slots_of =
            |rank: usize| order.iter().filter(move |of| of.rank == rank).map(|of| of.slot).collect::<Vec<_>>();
        let slots: Vec<Vec<usize>> = (0..ranks).map(slots_of).collect();
        let given = |rank: usize| length(tensors, &parts[own], slots[rank].len());
        self.wire.allow((0..ranks).map(given).max().unwrap_or(0));
        // SAFETY: the caller lets the slots be read until this returns.
        let partials = unsafe { PartsOf::new(tensors, &parts, &slots[own], None) };
        let given = self.wire.exchange(&partials)?;
        self.expect(&given, |rank| length(tensors, &parts[own], slots[rank].len()))?;
        // Where the partial sums of the next tensor are in what each rank has sent.
        let mut at = vec![0; ranks];
        for (tensor, part) in tensors.iter().zip(&parts[own]).filter(|(_, part)| !part.is_empty()) {
            let size = tensor.dtype.bytes();
            let stride = (part.len() * size).next_multiple_of(WORD);
            let from = |of: &Partial| {
                if of.rank == own {
                    // SAFETY: inside the slot.
                    return unsafe { tensor.slots[of.slot].cast_const().add(part.start * size) };
                }
                let nth = slots[of.rank].iter().position(|slot| *slot == of.slot).unwrap_or(0);
                given[of.rank].bytes()[at[of.rank] + nth * stride..].as_ptr()
            };
            // SAFETY: the slots are the caller's, and messages begin at words and are as long as expected.
            unsafe { total(order, from, tensor, part.clone()) };
            at.iter_mut().zip(&slots).for_each(|(at, slots)| *at += slots.len() * stride);
        }
        self.wire.recycle(given);
        Ok(())
    }

    /// Every rank sends what belongs to it.
    unsafe fn all_gather(&self, tensors: &[Slots], division: Division) -> Result<()> {
        let (own, ranks) = (self.wire.rank(), self.wire.ranks());
        let parts: Vec<Vec<Range<usize>>> = (0..ranks).map(|rank| parts(tensors, division, (rank, ranks))).collect();
        self.wire.allow((0..ranks).map(|rank| length(tensors, &parts[rank], 1)).max().unwrap_or(0));
        // SAFETY: the caller lets the slots be read until this returns.
        let totals = unsafe { PartsOf::new(tensors, &parts, &[0], Some(own)) };
        let given = self.wire.exchange(&totals)?;
        self.expect(&given, |rank| length(tensors, &parts[rank], 1))?;
        for rank in (0..ranks).filter(|rank| *rank != own) {
            let mut at = 0;
            for (tensor, part) in tensors.iter().zip(&parts[rank]) {
                let size = tensor.dtype.bytes();
                let bytes = &given[rank].bytes()[at..at + part.len() * size];
                // SAFETY: inside the slot, which the caller lets be written.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), tensor.slots[0].add(part.start * size), bytes.len());
                }
                at += bytes.len().next_multiple_of(WORD);
            }
        }
        self.wire.recycle(given);
        Ok(())
    }

    fn exchange<'a>(&self, given: &dyn Fn(usize) -> &'a [u8]) -> Result<Vec<Vec<u8>>> {
        let own = self.wire.rank();
        // The messages of ranks have about the same length.
        let longest = (0..self.wire.ranks()).map(|rank| given(rank).len()).max().unwrap_or(0);
        self.wire.allow(longest.saturating_mul(ALIKE));
        let messages = self.wire.exchange(&Bytes(given))?;
        let all = messages.iter().enumerate().map(|(rank, message)| match rank == own {
            true => given(own).to_vec(),
            false => message.bytes().to_vec(),
        });
        let all = all.collect();
        self.wire.recycle(messages);
        Ok(all)
    }

    fn fail(&self, why: &str) {
        self.wire.fail(why);
    }

    fn check(&self) -> Result<()> {
        self.wire.check()
    }
}

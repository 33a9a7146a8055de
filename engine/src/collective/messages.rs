//! Ranks that send each other messages: sums and gathering, over whatever carries these.

use super::total::{parts, total};
use super::{Collective, Division, Slots};
use crate::shards::Partial;
use anyhow::{Result, anyhow};
use memmap2::Mmap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a part of a tensor begins in a message that has it: whole words for each.
const WORD: usize = 8;

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

/// Carries bytes between ranks. All of them call [`Wire::exchange`] in the same order.
pub trait Wire: Send + Sync + Debug {
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// Sends `given(r)` to every other rank `r`, and returns what they have sent to this one, in the order of ranks. This rank's own place is empty.
    ///
    /// # Errors
    /// A rank has failed, or does not answer.
    fn exchange<'a>(&self, given: &dyn Fn(usize) -> &'a [u8]) -> Result<Vec<Message>>;

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
    /// What is sent, whose memory is used again.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl<W: Wire> Messages<W> {
    /// Over this wire.
    pub fn new(wire: W) -> Self {
        Messages { wire, buffers: Mutex::default() }
    }

    /// A buffer for each rank, with nothing in it.
    fn cleared(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.resize(self.wire.ranks(), Vec::new());
        buffers.iter_mut().for_each(Vec::clear);
        buffers
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

/// Writes `part` of a tensor's slot behind what a message has.
///
/// # Safety
/// The slot is valid for reads and initialised, and nobody writes it.
unsafe fn put(message: &mut Vec<u8>, tensor: &Slots, slot: usize, part: &Range<usize>) {
    let size = tensor.dtype.bytes();
    // SAFETY: inside the slot, which can be read.
    let bytes = unsafe {
        std::slice::from_raw_parts(tensor.slots[slot].cast_const().add(part.start * size), part.len() * size)
    };
    message.extend_from_slice(bytes);
    message.resize(message.len().next_multiple_of(WORD), 0);
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
        let mut partials = self.cleared();
        for rank in (0..ranks).filter(|rank| *rank != own) {
            partials[rank].reserve(length(tensors, &parts[rank], slots[own].len()));
            for (tensor, part) in tensors.iter().zip(&parts[rank]) {
                // SAFETY: the caller lets the slots be read.
                slots[own].iter().for_each(|slot| unsafe { put(&mut partials[rank], tensor, *slot, part) });
            }
        }
        let given = self.wire.exchange(&|rank| &partials[rank])?;
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
        let mut buffers = self.cleared();
        let message = &mut buffers[own];
        message.reserve(length(tensors, &parts[own], 1));
        for (tensor, part) in tensors.iter().zip(&parts[own]) {
            // SAFETY: the caller lets the slots be read.
            unsafe { put(message, tensor, 0, part) };
        }
        let given = self.wire.exchange(&|_| message)?;
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
        let messages = self.wire.exchange(given)?;
        let own = self.wire.rank();
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

//! What a kernel sees when it runs: its operands, its scratch memory, and the threads.
//!
//! The planner may put an output into the memory of an operand that dies there ([`crate::graph::OpRules::in_place`]).
//! A kernel that allows this reads and writes through [`View`]s (pointers); all others get slices, and a [`Frame`]
//! refuses to hand out a slice of memory that the same node writes.

use super::numbers::{Address, Numbers, NumbersMut};
use super::threads::Pool;
use crate::collective::Ahead;
use crate::graph::DType;
use crate::plan::{ALIGN, Kept, Region};
use half::{bf16, f16};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;

/// A Rust type that is the element type of a value. Every bit pattern is a valid number of it.
pub trait Element: Copy + Send + Sync + 'static {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}

elements!(f32 => F32, bf16 => BF16, f16 => F16, f64 => F64, u8 => U8, u32 => U32, i32 => I32, i64 => I64);

/// Computes one node. Made when the program is compiled; knows the shapes, not the places.
pub trait NodeKernel: Send + Sync {
    /// Bytes of scratch memory that a run needs.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// What it can keep from run to run: see [`Frame::kept`].
    fn kept(&self) -> Option<Kept> {
        None
    }

    /// Computes the outputs from the operands. Allocates nothing.
    fn run(&self, frame: &Frame<'_>);
}

/// Where one operand or result of a step lives.
#[derive(Debug, Clone, Copy)]
pub struct Operand {
    /// The block.
    pub region: Region,
    /// Bytes from its start.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
    /// Element type.
    pub dtype: DType,
    /// How many times the step runs with it one further on: once, but for a part of a batch.
    pub parts: usize,
    /// The step writes (some of) this memory.
    pub written: bool,
}

impl Operand {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.bytes()
    }

    /// Where it ends, in bytes from the start of the block, when the step has run for all parts.
    pub fn end(&self) -> usize {
        self.offset + self.parts * self.bytes()
    }

    /// Where it lies for part number `part`.
    fn at(&self, part: usize) -> usize {
        self.offset + if self.parts > 1 { part * self.bytes() } else { 0 }
    }

    /// True if the two share a byte, whatever the part.
    pub fn overlaps(&self, other: &Operand) -> bool {
        self.region == other.region && self.offset < other.end() && other.offset < self.end()
    }
}

/// A kernel with the places of its operands.
pub struct Step {
    /// What is computed.
    pub kernel: Box<dyn NodeKernel>,
    /// The node's operands.
    pub inputs: Vec<Operand>,
    /// The node's results.
    pub outputs: Vec<Operand>,
    /// Offset in [`Region::Transient`] and bytes of the scratch memory.
    pub scratch: (usize, usize),
    /// Offset in [`Region::Transient`] and bytes of what is kept from run to run.
    pub kept: (usize, usize),
}

/// Memory that a kernel has from run to run.
pub struct KeptMemory<'a> {
    /// It starts at a multiple of 64 bytes.
    pub bytes: &'a mut [u8],
    /// It holds what an earlier run has made of the same operand; if not, this run makes it.
    pub ready: bool,
}

/// Start of the memory blocks of one run.
#[derive(Clone, Copy)]
pub struct Bases {
    /// Start and size of [`Region::Persistent`].
    pub persistent: (*mut u8, usize),
    /// Start and size of [`Region::Transient`].
    pub transient: (*mut u8, usize),
    /// Start and size of [`Region::Slot`]; only read.
    pub slot: (*const u8, usize),
}

/// Elements in memory that others may be looking at: a pointer with a length, sent to threads.
pub struct View<'a, T> {
    ptr: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

// SAFETY: a view is a pointer; what is done with it is the duty of the unsafe code that uses it.
unsafe impl<T: Send> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for View<'_, T> {}

impl<'a, T> View<'a, T> {
    /// Number of elements.
    pub fn len(self) -> usize {
        self.len
    }

    /// True if there is no element.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Pointer to the first of the elements `range`.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn range(self, range: Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len, "a kernel reaches outside its operand");
        // SAFETY: the offset is inside the view's memory.
        unsafe { self.ptr.add(range.start) }
    }

    /// The elements `range`, to write.
    ///
    /// # Safety
    /// No other reference or access to these elements exists while the slice does.
    ///
    /// # Panics
    /// If the range is not inside.
    pub unsafe fn part(self, range: Range<usize>) -> &'a mut [T] {
        let len = range.len();
        // SAFETY: inside the view's memory; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.range(range), len) }
    }
}

/// How far into the blocks of memory kernels and transfers have reached.
#[derive(Debug, Default)]
pub struct Touched {
    persistent: Cell<usize>,
    transient: Cell<usize>,
}

impl Touched {
    /// Persistent memory was used up to byte `end`.
    pub fn persistent(&self, end: usize) {
        self.persistent.set(self.persistent.get().max(end.next_multiple_of(ALIGN)));
    }

    /// Transient memory was used up to byte `end`.
    pub fn transient(&self, end: usize) {
        self.transient.set(self.transient.get().max(end.next_multiple_of(ALIGN)));
    }

    /// Bytes of both.
    pub fn total(&self) -> usize {
        self.persistent.get() + self.transient.get()
    }
}

/// One run of one step.
pub struct Frame<'a> {
    bases: Bases,
    step: &'a Step,
    pool: &'a Pool,
    /// Bit `i`: output `i` has been handed out; bit `32 + i`: operand `i`; bit 62: what is kept; bit 63: the scratch memory.
    taken: Cell<u64>,
    touched: &'a Touched,
    ready: bool,
    part: usize,
    ahead: Option<&'a Ahead>,
}

const SCRATCH: u32 = 63;
const KEPT: u32 = 62;

impl<'a> Frame<'a> {
    /// A frame over the given memory. `touched` records how far the memory handed out reaches; `ready`: an earlier run has made
    /// what the step keeps.
    ///
    /// # Safety
    /// The blocks are valid, 64-byte aligned and initialised. Nothing else writes them while the frame lives. No written
    /// operand of the step overlaps anything but what the operation's rules allow.
    pub unsafe fn new(bases: Bases, step: &'a Step, pool: &'a Pool, touched: &'a Touched, ready: bool) -> Self {
        Frame { bases, step, pool, taken: Cell::new(0), touched, ready, part: 0, ahead: None }
    }

    /// With the ranks that compute the same program.
    pub fn with_team(self, ahead: Option<&'a Ahead>) -> Self {
        Frame { ahead, ..self }
    }

    /// For part number `part` of the batch. From the second one on, what the step keeps has been made.
    pub fn at_part(self, part: usize) -> Self {
        Frame { part, ready: self.ready || part > 0, ..self }
    }

    /// The ranks that compute the same program; `None` if there is this one alone.
    pub fn ahead(&self) -> Option<&'a Ahead> {
        self.ahead
    }

    /// The threads.
    pub fn pool(&self) -> &'a Pool {
        self.pool
    }

    fn take(&self, bit: u32) {
        assert!(bit < 64 && self.taken.get() >> bit & 1 == 0, "a kernel takes the same operand to write twice");
        self.taken.set(self.taken.get() | 1 << bit);
    }

    fn block(&self, region: Region, offset: usize, bytes: usize) -> *mut u8 {
        let (base, size) = match region {
            Region::Persistent => {
                self.touched.persistent(offset + bytes);
                self.bases.persistent
            }
            Region::Transient => {
                self.touched.transient(offset + bytes);
                self.bases.transient
            }
            Region::Slot => (self.bases.slot.0.cast_mut(), self.bases.slot.1),
        };
        assert!(offset + bytes <= size, "an operand lies outside its block");
        // SAFETY: inside the block.
        unsafe { base.add(offset) }
    }

    fn view<T: Element>(&self, o: &Operand) -> View<'a, T> {
        assert_eq!(o.dtype, T::DTYPE, "a kernel reads an operand as another type");
        let ptr = self.block(o.region, o.at(self.part), o.bytes()).cast();
        View { ptr, len: o.len, life: PhantomData }
    }

    /// Element type of operand `i`.
    pub fn input_dtype(&self, i: usize) -> DType {
        self.step.inputs[i].dtype
    }

    /// Element type of result `i`.
    pub fn output_dtype(&self, i: usize) -> DType {
        self.step.outputs[i].dtype
    }

    /// Operand `i`, which this node does not write.
    ///
    /// # Panics
    /// If the node writes this memory, or the type is another.
    pub fn input<T: Element>(&self, i: usize) -> &'a [T] {
        let o = &self.step.inputs[i];
        assert!(!o.written, "a kernel reads as a slice what it may be writing");
        let v = self.view(o);
        // SAFETY: valid memory of that many elements, and nothing writes it while the frame lives.
        unsafe { std::slice::from_raw_parts(v.ptr, v.len) }
    }

    /// Operand `i`, floats in either width, which this node does not write.
    ///
    /// # Panics
    /// As [`Frame::input`].
    pub fn numbers(&self, i: usize) -> Numbers<'a> {
        match self.input_dtype(i) {
            DType::BF16 => Numbers::Rounded(self.input(i)),
            _ => Numbers::Single(self.input(i)),
        }
    }

    /// Result `i`, floats in either width, which shares memory with nothing.
    ///
    /// # Panics
    /// As [`Frame::output`].
    pub fn numbers_out(&self, i: usize) -> NumbersMut<'a> {
        match self.output_dtype(i) {
            DType::BF16 => NumbersMut::Rounded(self.output(i)),
            _ => NumbersMut::Single(self.output(i)),
        }
    }

    /// Operand `i`, which may be the memory of an output or is updated in place.
    pub fn source<T: Element>(&self, i: usize) -> View<'a, T> {
        self.view(&self.step.inputs[i])
    }

    /// Where operand `i` begins, floats in either width, which may be the memory of an output.
    pub fn source_address(&self, i: usize) -> Address {
        self.address(&self.step.inputs[i])
    }

    /// Where result `i` begins, floats in either width: it may be the memory of an operand.
    pub fn target_address(&self, i: usize) -> Address {
        self.take(i as u32);
        self.address(&self.step.outputs[i])
    }

    fn address(&self, o: &Operand) -> Address {
        let rounded = match o.dtype {
            DType::F32 => false,
            DType::BF16 => true,
            other => panic!("a kernel of floats has an operand of type {other}"),
        };
        Address::new(self.block(o.region, o.at(self.part), o.bytes()), rounded)
    }

    /// Elements of result `i`.
    pub fn output_len(&self, i: usize) -> usize {
        self.step.outputs[i].len
    }

    /// Result `i`, as pointers: it may be the memory of an operand.
    pub fn target<T: Element>(&self, i: usize) -> View<'a, T> {
        self.take(i as u32);
        self.view(&self.step.outputs[i])
    }

    /// Result `i`, which shares memory with nothing.
    ///
    /// # Panics
    /// If it was handed out before, shares memory with an operand, or the type is another.
    #[allow(clippy::mut_from_ref, reason = "each operand is handed out once, which is checked")]
    pub fn output<T: Element>(&self, i: usize) -> &'a mut [T] {
        let o = &self.step.outputs[i];
        assert!(!self.step.inputs.iter().any(|x| x.overlaps(o)), "an output lies in an operand that is still read");
        let v = self.target(i);
        // SAFETY: valid memory; operands that overlap it are marked as written and never become slices; handed out once.
        unsafe { v.part(0..v.len) }
    }

    /// Operand `i`, which is updated in place.
    ///
    /// # Panics
    /// If it was handed out before, or the type is another.
    #[allow(clippy::mut_from_ref, reason = "each operand is handed out once, which is checked")]
    pub fn update<T: Element>(&self, i: usize) -> &'a mut [T] {
        let o = &self.step.inputs[i];
        assert!(o.written && i < 31, "a kernel updates an operand that the rules call constant");
        self.take(32 + i as u32);
        let v = self.view(o);
        // SAFETY: valid memory; marked as written, so never a shared slice; handed out once.
        unsafe { v.part(0..v.len) }
    }

    /// All operands, for kernels whose tasks look them up.
    pub fn operands(&self) -> Operands<'a> {
        for o in &self.step.inputs {
            self.block(o.region, o.at(self.part), o.bytes());
        }
        Operands { bases: self.bases, step: self.step, part: self.part }
    }

    /// The scratch memory. What it holds at first is arbitrary.
    ///
    /// # Panics
    /// If it was handed out before.
    pub fn scratch(&self) -> Scratch<'a> {
        self.take(SCRATCH);
        let (offset, bytes) = self.step.scratch;
        let view = View { ptr: self.block(Region::Transient, offset, bytes), len: bytes, life: PhantomData };
        // SAFETY: valid memory that the plan gives to this node alone; handed out once.
        Scratch { rest: unsafe { view.part(0..bytes) } }
    }

    /// Memory of the size that [`NodeKernel::kept`] gives; `None` if nothing is to be kept.
    ///
    /// # Panics
    /// If it was handed out before.
    pub fn kept(&self) -> Option<KeptMemory<'a>> {
        let (offset, bytes) = self.step.kept;
        if bytes == 0 {
            return None;
        }
        self.take(KEPT);
        let view = View { ptr: self.block(Region::Transient, offset, bytes), len: bytes, life: PhantomData };
        // SAFETY: as for the scratch memory.
        Some(KeptMemory { bytes: unsafe { view.part(0..bytes) }, ready: self.ready })
    }
}

/// The operands of a step, looked up from any thread.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    bases: Bases,
    step: &'a Step,
    part: usize,
}

// SAFETY: pointers are only added to here; who uses the views that come out has to answer for it.
unsafe impl Sync for Operands<'_> {}

impl<'a> Operands<'a> {
    /// Operand `i`.
    ///
    /// # Panics
    /// If the type is another.
    pub fn view<T: Element>(&self, i: usize) -> View<'a, T> {
        let o = &self.step.inputs[i];
        assert_eq!(o.dtype, T::DTYPE, "a kernel reads an operand as another type");
        let base = match o.region {
            Region::Persistent => self.bases.persistent.0,
            Region::Transient => self.bases.transient.0,
            Region::Slot => self.bases.slot.0.cast_mut(),
        };
        // SAFETY: `Frame::operands` has checked that all operands lie in their blocks.
        View { ptr: unsafe { base.add(o.at(self.part)) }.cast(), len: o.len, life: PhantomData }
    }

    /// Operand `i`, which this node does not write.
    ///
    /// # Panics
    /// If the node writes this memory, or the type is another.
    pub fn input<T: Element>(&self, i: usize) -> &'a [T] {
        assert!(!self.step.inputs[i].written, "a kernel reads as a slice what it may be writing");
        let v = self.view(i);
        // SAFETY: valid memory of that many elements, and nothing writes it while the frame lives.
        unsafe { std::slice::from_raw_parts(v.ptr, v.len) }
    }
}

/// Scratch memory, from which typed pieces are cut one after the other.
pub struct Scratch<'a> {
    rest: &'a mut [u8],
}

impl<'a> Scratch<'a> {
    /// Bytes that a piece of `n` elements takes.
    pub const fn size<T>(n: usize) -> usize {
        (n * size_of::<T>()).next_multiple_of(ALIGN)
    }

    /// The next `n` elements, 64-byte aligned.
    ///
    /// # Panics
    /// If the kernel asked for less than it cuts.
    pub fn take<T: Element>(&mut self, n: usize) -> &'a mut [T] {
        let (piece, rest) = std::mem::take(&mut self.rest).split_at_mut(Self::size::<T>(n));
        self.rest = rest;
        assert_eq!(piece.as_ptr() as usize % align_of::<T>(), 0);
        // SAFETY: initialised bytes of sufficient number and alignment, any bit pattern of which is a valid element,
        // borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(piece.as_mut_ptr().cast(), n) }
    }

    /// All that is left, as bytes.
    pub fn bytes(self) -> &'a mut [u8] {
        self.rest
    }
}

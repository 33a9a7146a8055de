//! Operands and results that lie in memory as floats or rounded to bf16.

use super::threads::Parts;
use half::bf16;

/// Numbers to read.
#[derive(Debug, Clone, Copy)]
pub enum Numbers<'a> {
    /// Floats.
    Single(&'a [f32]),
    /// Rounded ones.
    Rounded(&'a [bf16]),
}

/// Numbers to write.
pub enum NumbersMut<'a> {
    /// Floats.
    Single(&'a mut [f32]),
    /// They are rounded.
    Rounded(&'a mut [bf16]),
}

impl<'a> From<&'a [f32]> for Numbers<'a> {
    fn from(numbers: &'a [f32]) -> Self {
        Numbers::Single(numbers)
    }
}

impl<'a> From<&'a mut [f32]> for NumbersMut<'a> {
    fn from(numbers: &'a mut [f32]) -> Self {
        NumbersMut::Single(numbers)
    }
}

impl Numbers<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Numbers::Single(x) => x.len(),
            Numbers::Rounded(x) => x.len(),
        }
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the first one lies.
    pub fn address(&self) -> Address {
        match self {
            Numbers::Single(x) => Address { at: x.as_ptr().cast_mut().cast(), rounded: false },
            Numbers::Rounded(x) => Address { at: x.as_ptr().cast_mut().cast(), rounded: true },
        }
    }

    /// Where number `first` lies, of `len` that are there.
    ///
    /// # Panics
    /// They are not.
    pub fn part(&self, first: usize, len: usize) -> Address {
        assert!(first <= self.len() && len <= self.len() - first, "{len} numbers from {first} of {}", self.len());
        self.address().offset(first as isize)
    }
}

impl NumbersMut<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            NumbersMut::Single(x) => x.len(),
            NumbersMut::Rounded(x) => x.len(),
        }
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the first one lies, for tasks that write parts of their own.
    pub fn address(&mut self) -> Address {
        match self {
            NumbersMut::Single(x) => Address { at: Parts::new(x).as_ptr().cast(), rounded: false },
            NumbersMut::Rounded(x) => Address { at: Parts::new(x).as_ptr().cast(), rounded: true },
        }
    }

    /// The same once more.
    pub fn again(&mut self) -> NumbersMut<'_> {
        match self {
            NumbersMut::Single(x) => NumbersMut::Single(x),
            NumbersMut::Rounded(x) => NumbersMut::Rounded(x),
        }
    }
}

/// Where a number lies.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    at: *mut u8,
    rounded: bool,
}

// SAFETY: an address is a number. Code that reads or writes there is `unsafe`, and answers for it.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    /// Of a number that is rounded or not.
    pub fn new(at: *mut u8, rounded: bool) -> Address {
        Address { at, rounded }
    }

    /// Bytes of a number.
    pub fn size(self) -> usize {
        if self.rounded { 2 } else { 4 }
    }

    /// So many numbers on.
    #[inline(always)]
    pub fn offset(self, numbers: isize) -> Address {
        Address { at: self.at.wrapping_offset(numbers * self.size() as isize), ..self }
    }

    /// So many numbers on.
    #[inline(always)]
    pub fn at(self, numbers: usize) -> Address {
        self.offset(numbers as isize)
    }

    /// Its byte.
    pub fn byte(self) -> *mut u8 {
        self.at
    }

    /// As the address of a float.
    ///
    /// # Panics
    /// It is that of a rounded number.
    pub fn floats(self) -> *mut f32 {
        assert!(!self.rounded, "a kernel of floats takes rounded numbers");
        self.at.cast()
    }

    /// As the address of a rounded number, if it is one.
    pub fn rounded(self) -> Option<*mut bf16> {
        self.rounded.then_some(self.at.cast())
    }
}

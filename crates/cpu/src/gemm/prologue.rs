//! What a product does with the elements of an operand when it copies them.

use super::pack::Copy2d;
use crate::graph::op::Activation;
use crate::simd::SimdLevel;

/// A matrix, and what is done with its elements on the way to the place where the product reads them.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The elements.
    pub values: &'a [f32],
    /// Nothing, or what the kernel was made for.
    pub prologue: Option<Prologue<'a>>,
}

impl<'a> From<&'a [f32]> for Source<'a> {
    fn from(values: &'a [f32]) -> Self {
        Source { values, prologue: None }
    }
}

/// Each element is normalised by numbers of its column, and goes through an activation: `act((x − mean) · factor + offset)`.
#[derive(Clone, Copy)]
pub struct Prologue<'a> {
    /// Instructions.
    pub level: SimdLevel,
    /// The activation.
    pub act: Option<Activation>,
    /// `mean`, `factor` and `offset` of each column; the last may be empty for 0.
    pub tables: [&'a [f32]; 3],
    /// Does it to rows whose columns are those of the tables.
    pub apply: unsafe fn(SimdLevel, Option<Activation>, [&[f32]; 3], Copy2d),
}

impl Prologue<'_> {
    /// Copies rows that begin at column `first`.
    ///
    /// # Safety
    /// The rows are valid in full length, and the source and the target do not overlap.
    pub unsafe fn copy(&self, rows: Copy2d, first: usize) {
        let tables =
            self.tables.map(|table| if table.is_empty() { table } else { &table[first..first + rows.columns] });
        // SAFETY: the caller's promise.
        unsafe { (self.apply)(self.level, self.act, tables, rows) };
    }
}

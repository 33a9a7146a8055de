//! Where a head's operands and results begin.

use super::distance::Added;
use super::rows::Mask;
use std::ops::Range;

/// Of the forward pass.
pub struct Head {
    /// First query, key and value.
    pub qkv: [*const f32; 3],
    /// Floats from query to query, and from key to key and value to value.
    pub steps: [usize; 2],
    /// Keys before that of the first query.
    pub before: usize,
    /// First row of the result.
    pub y: *mut f32,
    /// First logarithm.
    pub lse: *mut f32,
    /// What is added to the scores.
    pub added: Added,
    /// What is left out, the rows being those of this head.
    pub mask: Mask,
}

impl Head {
    /// Sets some rows of the result, `step` floats apart and of `width` floats, and their logarithms to 0.
    ///
    /// # Safety
    /// They are valid, and no other thread reads or writes them.
    pub unsafe fn clear(&self, rows: Range<usize>, [step, width]: [usize; 2]) {
        for row in rows {
            // SAFETY: the caller's promise.
            unsafe {
                self.y.add(row * step).write_bytes(0, width);
                *self.lse.add(row) = 0.0;
            }
        }
    }
}

/// Of the backward pass.
pub struct HeadGrad {
    /// First query, key and value.
    pub qkv: [*const f32; 3],
    /// Floats from query to query, and from key to key and value to value; of the gradients, too.
    pub steps: [usize; 2],
    /// First row of the result, and of the gradient by it.
    pub y: *const f32,
    pub dy: *const f32,
    /// First logarithm.
    pub lse: *const f32,
    /// The gradients by the first query, key and value.
    pub dqkv: [*mut f32; 3],
    /// What is added to the scores.
    pub added: Added,
    /// The sum of the gradients by the bias, to which this head's are added; null if there is none.
    pub dbias: *mut f32,
    /// What is left out, the rows being those of this head.
    pub mask: Mask,
}

impl HeadGrad {
    /// Sets the gradients by some queries, and by some keys and values, of `width` floats, to 0.
    ///
    /// # Safety
    /// They are valid, and no other thread reads or writes them.
    pub unsafe fn clear(&self, queries: Range<usize>, keys: Range<usize>, width: usize) {
        let [of_query, of_key, of_value] = self.dqkv;
        let [query_step, key_step] = self.steps;
        for (rows, part, step) in
            [(queries, of_query, query_step), (keys.clone(), of_key, key_step), (keys, of_value, key_step)]
        {
            for row in rows {
                // SAFETY: the caller's promise.
                unsafe { part.add(row * step).write_bytes(0, width) };
            }
        }
    }
}

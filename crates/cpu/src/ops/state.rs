//! What keeps a step that goes wrong from leaving anything behind: a few small copies, not worth sharing among threads.

use crate::graph::DType;
use crate::run::frame::{Frame, NodeKernel};

/// Operands that are copied onto one another: from, to, and their type.
type Copies = Vec<(usize, usize, DType)>;

fn copy(frame: &Frame<'_>, copies: &Copies) {
    for (from, to, dtype) in copies {
        match dtype {
            DType::I64 => copy_of::<i64>(frame, *from, *to),
            DType::F64 => copy_of::<f64>(frame, *from, *to),
            _ => copy_of::<f32>(frame, *from, *to),
        }
    }
}

fn copy_of<T: crate::run::frame::Element>(frame: &Frame<'_>, from: usize, to: usize) {
    let (from, to) = (frame.source::<T>(from), frame.source::<T>(to));
    let n = from.len().min(to.len());
    // SAFETY: both are as long as that; the plan gives variables places that do not overlap, which `compile` has checked.
    unsafe { std::ptr::copy_nonoverlapping(from.range(0..n).cast_const(), to.range(0..n), n) };
}

/// [`crate::graph::op::KeepState`].
pub struct KeepStateKernel {
    /// There is a mark.
    pub once: bool,
    /// From variables to copies.
    pub copies: Copies,
}

impl NodeKernel for KeepStateKernel {
    fn run(&self, frame: &Frame<'_>) {
        if self.once {
            let mark = frame.update::<f32>(0);
            if mark[0] != 0.0 {
                return;
            }
            mark[0] = 1.0;
        }
        copy(frame, &self.copies);
    }
}

/// [`crate::graph::op::RestoreState`].
pub struct RestoreStateKernel {
    /// From copies to variables.
    pub copies: Copies,
}

impl NodeKernel for RestoreStateKernel {
    fn run(&self, frame: &Frame<'_>) {
        if !frame.input::<f32>(0)[0].is_finite() {
            copy(frame, &self.copies);
        }
    }
}

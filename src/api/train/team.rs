//! Who makes a step together.

use crate::backend::cpu::simd::SimdLevel;
use crate::collective::Collective;
use std::sync::Arc;

/// Who makes a step together.
#[derive(Clone)]
pub enum Team {
    /// So many ranks, which are threads of this process.
    Threads(usize),
    /// This process is one of several.
    Process(Arc<dyn Collective>, Agreed),
}

impl Team {
    /// How many ranks are threads of this process.
    pub fn threads(&self) -> usize {
        match self {
            Team::Threads(ranks) => *ranks,
            Team::Process(..) => 1,
        }
    }
}

/// What all ranks have agreed on.
#[derive(Debug, Clone, Copy)]
pub struct Agreed {
    /// The instructions that all of them have: others give other bits.
    pub level: SimdLevel,
    /// All of them can make products in bf16, whose bits do not depend on how.
    pub bf16: bool,
}

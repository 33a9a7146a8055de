//! The processor and the memory, as the `devices` command shows them.

use super::simd::SimdLevel;
use super::simd::bf16::Bf16Unit;
use crate::system;

/// The processor and the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuInfo {
    /// The name that the processor gives itself; `None` where the system does not report it.
    pub model: Option<String>,
    /// Physical cores; `None` where the system does not report them.
    pub physical_cores: Option<usize>,
    /// Logical cores that this process may use.
    pub logical_cores: usize,
    /// Instruction sets that the kernels can use here, widest first.
    pub simd: Vec<&'static str>,
    /// What makes products in bf16 faster than in single precision; `None` if nothing does.
    pub bf16: Option<&'static str>,
    /// Main memory, bytes.
    pub memory_total: Option<u64>,
    /// Main memory that a new process could have, bytes.
    pub memory_free: Option<u64>,
}

/// Looks at this machine.
pub fn cpu_info() -> CpuInfo {
    let (processor, memory) = (system::processor(), system::memory());
    let mut simd: Vec<&str> = SimdLevel::supported().map(SimdLevel::name).collect();
    simd.reverse();
    CpuInfo {
        model: processor.model,
        physical_cores: processor.cores,
        logical_cores: std::thread::available_parallelism().map_or(1, usize::from),
        simd,
        bf16: Bf16Unit::detect().map(Bf16Unit::name),
        memory_total: memory.map(|memory| memory.total),
        memory_free: memory.map(|memory| memory.available),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_core_and_a_level() {
        let info = cpu_info();
        assert!(info.logical_cores >= 1);
        assert!(!info.simd.is_empty());
    }
}

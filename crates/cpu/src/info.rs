//! What the `devices` command tells about the processor.

use super::simd::SimdLevel;
use super::simd::bf16::Bf16Unit;

/// The processor and the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuInfo {
    /// The name that the processor gives itself; `None` where the system does not tell.
    pub model: Option<String>,
    /// Physical cores; `None` where the system does not tell.
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
    let cpuinfo = read("/proc/cpuinfo");
    let meminfo = read("/proc/meminfo");
    let mut simd: Vec<&str> = SimdLevel::supported().map(SimdLevel::name).collect();
    simd.reverse();
    CpuInfo {
        model: field(&cpuinfo, "model name").map(str::to_string),
        physical_cores: physical_cores(&cpuinfo),
        logical_cores: std::thread::available_parallelism().map_or(1, usize::from),
        simd,
        bf16: Bf16Unit::detect().map(Bf16Unit::name),
        memory_total: field(&meminfo, "MemTotal").and_then(kibibytes),
        memory_free: field(&meminfo, "MemAvailable").and_then(kibibytes),
    }
}

/// The file's text, or nothing where there is no such file (any system but Linux).
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|l| {
        let (k, v) = l.split_once(':')?;
        (k.trim() == key).then(|| v.trim())
    })
}

/// Different pairs of socket and core among the processors listed.
fn physical_cores(cpuinfo: &str) -> Option<usize> {
    let mut seen: Vec<(&str, &str)> =
        cpuinfo.split("\n\n").filter_map(|cpu| Some((field(cpu, "physical id")?, field(cpu, "core id")?))).collect();
    seen.sort_unstable();
    seen.dedup();
    (!seen.is_empty()).then_some(seen.len())
}

/// Bytes of `16384 kB`.
fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_files() {
        let text = "processor\t: 0\nmodel name\t: A: B\nphysical id\t: 0\ncore id\t\t: 1\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 1\n\n";
        assert_eq!(field(text, "model name"), Some("A: B"));
        assert_eq!(physical_cores(text), Some(1));
        assert_eq!(physical_cores(""), None);
        assert_eq!(kibibytes("3 kB"), Some(3072));
        assert_eq!(kibibytes("x kB"), None);
    }

    #[test]
    fn this_machine_has_a_core_and_a_level() {
        let info = cpu_info();
        assert!(info.logical_cores >= 1);
        assert!(!info.simd.is_empty());
    }
}

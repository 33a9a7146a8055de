//! What the operating system says of the machine.

/// The machine's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What new processes could have.
    pub available: u64,
    /// What this process has.
    pub own: u64,
}

/// The processor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processor {
    /// What its maker calls it.
    pub model: Option<String>,
    /// Cores, of which each may compute for several threads in turn.
    pub cores: Option<usize>,
}

pub use own::{host_name, kernel, memory, parent, processor, release};

/// Bytes that cannot be guessed.
///
/// # Panics
/// If the system gives none. Then the standard library's hash tables cannot be made either.
pub fn unguessable<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

#[cfg(target_os = "linux")]
mod own {
    use super::{Memory, Processor};

    /// The machine's memory; `None` where the system does not report it.
    pub fn memory() -> Option<Memory> {
        let (info, status) = (read("/proc/meminfo"), read("/proc/self/status"));
        // What is mapped from files is given back whenever it is needed, so only the rest is the process's own.
        let own = ["RssAnon", "RssShmem"].into_iter().filter_map(|key| kibibytes(&status, key)).sum();
        // Kernels before 3.14 do not have the first.
        let free = || Some(kibibytes(&info, "MemFree")? + kibibytes(&info, "Cached")?);
        let available = kibibytes(&info, "MemAvailable").or_else(free)?;
        Some(Memory { total: kibibytes(&info, "MemTotal")?, available, own })
    }

    /// The name of the machine; empty where it has none.
    pub fn host_name() -> String {
        read("/proc/sys/kernel/hostname").trim().to_owned()
    }

    /// The version of the kernel.
    pub fn kernel() -> Option<String> {
        let text = read("/proc/sys/kernel/osrelease").trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// What the system calls itself.
    pub fn release() -> Option<String> {
        let text = read("/etc/os-release");
        let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(name.trim_matches('"').to_owned())
    }

    /// The process that has started this one.
    pub fn parent() -> Option<u32> {
        Some(std::os::unix::process::parent_id())
    }

    /// The processor.
    pub fn processor() -> Processor {
        let text = read("/proc/cpuinfo");
        Processor { model: field(&text, "model name").map(str::to_owned), cores: cores(&text) }
    }

    fn read(path: &str) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// The value of the first line `key : value`.
    fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim())
        })
    }

    /// Bytes of a line `key: 16384 kB`.
    fn kibibytes(text: &str, key: &str) -> Option<u64> {
        field(text, key)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Different pairs of socket and core among the processors listed.
    fn cores(cpuinfo: &str) -> Option<usize> {
        let of = |one: &str| Some((field(one, "physical id")?.to_owned(), field(one, "core id")?.to_owned()));
        let mut seen: Vec<(String, String)> = cpuinfo.split("\n\n").filter_map(of).collect();
        seen.sort_unstable();
        seen.dedup();
        (!seen.is_empty()).then_some(seen.len())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_lines_of_linux_are_read() {
            let info = "MemTotal:       16384 kB\nMemFree: 12 kB\nNothing: x kB\n";
            assert_eq!(kibibytes(info, "MemTotal"), Some(16 << 20));
            assert_eq!([kibibytes(info, "Nothing"), kibibytes(info, "MemAvailable")], [None, None]);
            let two = "model name\t: A 1\nphysical id\t: 0\ncore id\t: 0\n\nmodel name\t: A 1\nphysical id\t: 0\ncore id\t: 0\n\nphysical id\t: 1\ncore id\t: 0\n";
            assert_eq!((field(two, "model name"), cores(two), cores("")), (Some("A 1"), Some(2), None));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod own {
    use super::{Memory, Processor};
    use sysinfo::{CpuRefreshKind, ProcessRefreshKind, ProcessesToUpdate, System};

    /// The machine's memory; `None` where the system does not report it.
    pub fn memory() -> Option<Memory> {
        let mut system = System::new();
        system.refresh_memory();
        let id = sysinfo::get_current_pid().ok();
        if let Some(id) = id {
            let what = ProcessRefreshKind::nothing().with_memory();
            system.refresh_processes_specifics(ProcessesToUpdate::Some(&[id]), false, what);
        }
        let own = id.and_then(|id| system.process(id)).map_or(0, sysinfo::Process::memory);
        let (total, available) = (system.total_memory(), system.available_memory());
        (total > 0).then_some(Memory { total, available, own })
    }

    /// The name of the machine; empty where it has none.
    pub fn host_name() -> String {
        System::host_name().unwrap_or_default()
    }

    /// The version of the kernel.
    pub fn kernel() -> Option<String> {
        System::kernel_version()
    }

    /// What the system calls itself.
    pub fn release() -> Option<String> {
        System::long_os_version()
    }

    /// The process that has started this one.
    pub fn parent() -> Option<u32> {
        let own = sysinfo::get_current_pid().ok()?;
        let mut system = System::new();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, ProcessRefreshKind::nothing());
        Some(system.process(own)?.parent()?.as_u32())
    }

    /// The processor.
    pub fn processor() -> Processor {
        let mut system = System::new();
        system.refresh_cpu_list(CpuRefreshKind::nothing());
        let model = system.cpus().first().map(|one| one.brand().trim().to_owned()).filter(|name| !name.is_empty());
        Processor { model, cores: System::physical_core_count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_reports_its_memory_and_its_name() {
        let Memory { total, available, own } = memory().expect("tests run where the system reports its memory");
        assert!(own > 0 && own < total && available <= total, "{own} of {available} of {total}");
        assert!(!host_name().is_empty());
        // A program that Wine itself starts has no parent.
        assert!(parent().map_or(cfg!(windows), |parent| parent != std::process::id()));
    }
}

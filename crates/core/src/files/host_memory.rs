//! The memory that this process may have: what the machine has free, and what the limits on the process leave of it.

use crate::system::{self, Memory};
use std::path::{Path, PathBuf};

/// What can be had of the host's memory. Swap does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMemory {
    /// Bytes that this process may have in all, what it has now included.
    pub available: usize,
    /// What sets that: `the machine has no more free`, or a limit with its value.
    pub because: String,
}

/// Where the system reports its memory.
#[derive(Debug, Clone)]
pub struct Places {
    /// Processes: `/proc`.
    pub proc: PathBuf,
    /// Control groups: `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Places { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() }
    }
}

/// What a source says can still be had, beyond what the process has, and why no more.
type Room = (usize, String);

/// A limit that is as good as none: kernels write "unlimited" as numbers of this size.
const UNLIMITED: u64 = 1 << 60;

/// What this process may have. `None` where the system does not report it.
pub fn host_memory() -> Option<HostMemory> {
    if cfg!(target_os = "linux") {
        return read(&Places::default());
    }
    let Memory { total, available, own } = system::memory()?;
    let [total, available] = [total, available].map(to_size);
    let because = format!("the machine has {} free of its {}", bytes(available), bytes(total));
    Some(HostMemory { available: available.saturating_add(to_size(own)), because })
}

/// As [`host_memory`], with the system's files at `places`.
pub fn read(places: &Places) -> Option<HostMemory> {
    let own = places.proc.join("self");
    let status = std::fs::read_to_string(own.join("status")).unwrap_or_default();
    // What is mapped from files is given back whenever it is needed, so only the rest is the process's own.
    let has = kib(&status, "RssAnon:").unwrap_or(0) + kib(&status, "RssShmem:").unwrap_or(0);
    let mut rooms: Vec<Room> = Vec::new();
    rooms.extend(machine(&places.proc));
    rooms.extend(groups(places));
    rooms.extend(limits(&own, &status));
    let (left, because) = rooms.into_iter().min_by_key(|(left, _)| *left)?;
    Some(HostMemory { available: left.saturating_add(has), because })
}

fn machine(proc: &Path) -> Option<Room> {
    let info = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    // Kernels before 3.14 do not have the first.
    let free = kib(&info, "MemAvailable:").or_else(|| Some(kib(&info, "MemFree:")? + kib(&info, "Cached:")?))?;
    let all = kib(&info, "MemTotal:").map_or(String::new(), |n| format!(" of its {}", bytes(n)));
    Some((free, format!("the machine has {} free{all}", bytes(free))))
}

/// The limits of the control groups that the process is in, of both versions, up to the root of each hierarchy.
fn groups(places: &Places) -> Vec<Room> {
    let own = std::fs::read_to_string(places.proc.join("self/cgroup")).unwrap_or_default();
    let mut rooms = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let version_2 = controllers.is_empty();
        let roots: &[PathBuf] = match version_2 {
            true => &[places.cgroup.clone(), places.cgroup.join("unified")],
            false if controllers.split(',').any(|c| c == "memory") => &[places.cgroup.join("memory")],
            false => continue,
        };
        for root in roots.iter().filter(|root| root.is_dir()) {
            for folder in up_to(root, path) {
                let found = if version_2 { group_2(&folder) } else { group_1(&folder) };
                rooms.extend(found);
            }
        }
    }
    rooms
}

/// The folder of a control group and those above it, to the root. In a container the path may be one of the host's, which
/// cannot be seen: what there is of it counts.
fn up_to(root: &Path, path: &str) -> Vec<PathBuf> {
    let inside: PathBuf =
        Path::new(path).components().filter(|c| matches!(c, std::path::Component::Normal(_))).collect();
    let whole = root.join(inside);
    whole.ancestors().take_while(|f| f.starts_with(root)).filter(|f| f.is_dir()).map(Path::to_path_buf).collect()
}

fn group_2(folder: &Path) -> Vec<Room> {
    let Some(used) = number(&folder.join("memory.current")) else { return Vec::new() };
    let used = used.saturating_sub(reclaimable(folder, ["inactive_file", "active_file", "slab_reclaimable"]));
    let limits = ["memory.max", "memory.high"].map(|name| (name, number(&folder.join(name))));
    limits.into_iter().filter_map(|(name, limit)| group_room(folder, name, limit?, used)).collect()
}

fn group_1(folder: &Path) -> Vec<Room> {
    let Some(used) = number(&folder.join("memory.usage_in_bytes")) else { return Vec::new() };
    let used = used.saturating_sub(reclaimable(folder, ["total_inactive_file", "total_active_file", ""]));
    let name = "memory.limit_in_bytes";
    let limit = number(&folder.join(name));
    limit.and_then(|limit| group_room(folder, name, limit, used)).into_iter().collect()
}

fn group_room(folder: &Path, name: &str, limit: u64, used: u64) -> Option<Room> {
    let all = to_size(limit);
    let text = || format!("the control group's limit `{}` is {}", folder.join(name).display(), bytes(all));
    (limit < UNLIMITED).then(|| (to_size(limit.saturating_sub(used)), text()))
}

/// Bytes of a control group that the kernel takes back before it lets anything fail: cached files.
fn reclaimable(folder: &Path, names: [&str; 3]) -> u64 {
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let fields = stat.lines().filter_map(|l| l.split_once(' '));
    fields.filter(|(name, _)| names.contains(name)).filter_map(|(_, n)| n.trim().parse::<u64>().ok()).sum()
}

/// What `ulimit -v` and `ulimit -d` leave.
fn limits(own: &Path, status: &str) -> Vec<Room> {
    let text = std::fs::read_to_string(own.join("limits")).unwrap_or_default();
    let of = |name: &str, used: &str, shell: &str| -> Option<Room> {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        let soft: u64 = line.split_whitespace().next()?.parse().ok()?;
        let left = to_size(soft).saturating_sub(kib(status, used)?);
        (soft < UNLIMITED).then(|| (left, format!("the process is limited to {} (`{shell}`)", bytes(to_size(soft)))))
    };
    let list = [of("Max address space", "VmSize:", "ulimit -v"), of("Max data size", "VmData:", "ulimit -d")];
    list.into_iter().flatten().collect()
}

/// A line `NAME  123 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(to_size(number.saturating_mul(1024)))
}

/// A file with one number; `max` is none.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn to_size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// For people: `1.5 GiB`.
fn bytes(n: usize) -> String {
    let unit = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")].into_iter().find(|(size, _)| n >= *size);
    unit.map_or(format!("{n} B"), |(size, name)| format!("{:.1} {name}", n as f64 / size as f64))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    struct System(tempfile::TempDir);

    impl System {
        /// 16 GiB, of which 8 are free; the process has one, of two that it has mapped.
        fn new() -> Self {
            let system = System(tempfile::tempdir().unwrap());
            system.put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  100 kB\nMemAvailable:    8388608 kB\n");
            system.put("proc/self/status", "Name:\tx\nVmSize:\t 2097152 kB\nVmData:\t 1048576 kB\nRssAnon:\t 1048576 kB\nRssFile:\t 77 kB\nRssShmem:\t 0 kB\n");
            system
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        /// GiB to be had, and why no more.
        fn read(&self) -> (f64, String) {
            let at = |name: &str| self.0.path().join(name);
            let found = read(&Places { proc: at("proc"), cgroup: at("cgroup") }).unwrap();
            (found.available as f64 / GIB as f64, found.because)
        }
    }

    #[test]
    fn without_limits_it_is_what_the_machine_has_free() {
        let system = System::new();
        assert_eq!(system.read(), (9.0, "the machine has 8.0 GiB free of its 16.0 GiB".into()));
        system.put("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nCached: 2097152 kB\n");
        assert_eq!(system.read().0, 4.0);
        assert_eq!(read(&Places { proc: "/none".into(), cgroup: "/none".into() }), None);
    }

    #[test]
    fn control_groups_of_version_2_count_up_to_the_root() {
        let system = System::new();
        system.put("proc/self/cgroup", "0::/jobs/mine\n");
        system.put("cgroup/jobs/mine/memory.max", "max\n");
        system.put("cgroup/jobs/mine/memory.high", "max\n");
        system.put("cgroup/jobs/mine/memory.current", "1073741824\n");
        assert_eq!(system.read().0, 9.0);
        // Of three GiB used in the group above, one and a half are cached files.
        system.put("cgroup/jobs/memory.max", "4294967296\n");
        system.put("cgroup/jobs/memory.current", "3221225472\n");
        system.put(
            "cgroup/jobs/memory.stat",
            "anon 1\ninactive_file 1073741824\nactive_file 268435456\nslab_reclaimable 268435456\n",
        );
        let (gib, why) = system.read();
        assert_eq!(gib, 3.5);
        assert!(why.contains("jobs/memory.max` is 4.0 GiB"), "{why}");
        system.put("cgroup/jobs/mine/memory.high", "1610612736\n");
        let (gib, why) = system.read();
        assert_eq!(gib, 1.5);
        assert!(why.contains("mine/memory.high` is 1.5 GiB"), "{why}");
        // A limit that is below what is used leaves what the process has.
        system.put("cgroup/jobs/mine/memory.max", "1000\n");
        assert_eq!(system.read().0, 1.0);
    }

    #[test]
    fn a_group_that_cannot_be_seen_is_that_of_the_container() {
        let system = System::new();
        system.put("proc/self/cgroup", "0::/../../outside\n");
        system.put("cgroup/memory.max", "2147483648\n");
        system.put("cgroup/memory.current", "1073741824\n");
        assert_eq!(system.read().0, 2.0);
    }

    #[test]
    fn control_groups_of_version_1_count_too() {
        let system = System::new();
        system.put("proc/self/cgroup", "12:cpu,cpuacct:/a\n5:memory:/docker/b\n0::/\n");
        system.put("cgroup/memory/docker/b/memory.limit_in_bytes", "3221225472\n");
        system.put("cgroup/memory/docker/b/memory.usage_in_bytes", "2147483648\n");
        system.put("cgroup/memory/docker/b/memory.stat", "inactive_file 5\ntotal_inactive_file 536870912\n");
        system.put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        system.put("cgroup/memory/memory.usage_in_bytes", "2147483648\n");
        let (gib, why) = system.read();
        assert_eq!(gib, 2.5);
        assert!(why.contains("memory.limit_in_bytes` is 3.0 GiB"), "{why}");
    }

    #[test]
    fn limits_of_the_process_count() {
        let system = System::new();
        let limits = |address: &str, data: &str| {
            let head = "Limit                     Soft Limit           Hard Limit           Units\n";
            let text = format!(
                "{head}Max data size             {data}            unlimited            bytes\nMax address space         {address}            unlimited            bytes\n"
            );
            system.put("proc/self/limits", &text);
            system.read()
        };
        assert_eq!(limits("unlimited", "unlimited").0, 9.0);
        let (gib, why) = limits("4294967296", "unlimited");
        assert_eq!(gib, 3.0);
        assert!(why.contains("limited to 4.0 GiB (`ulimit -v`)"), "{why}");
        let (gib, why) = limits("4294967296", "2147483648");
        assert_eq!(gib, 2.0);
        assert!(why.contains("`ulimit -d`"), "{why}");
    }
}

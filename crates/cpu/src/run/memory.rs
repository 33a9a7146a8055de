//! Blocks of memory: page-aligned, zeroed, given by the system when they are first touched.

use crate::failure::DeviceError;
use memmap2::MmapMut;

/// From this size on, huge pages are asked for: fewer misses of the address cache, at most one page of slack.
#[cfg(target_os = "linux")]
const HUGE: usize = 16 << 20;

/// `bytes` bytes of zeros, page-aligned, for `what`.
///
/// # Errors
/// The system has no such block.
pub fn zeroed(bytes: usize, what: &str) -> Result<MmapMut, DeviceError> {
    let map = MmapMut::map_anon(bytes.max(1)).map_err(|e| {
        let mib = bytes as f64 / (1 << 20) as f64;
        DeviceError(format!(
            "not enough memory: the system has refused {mib:.1} MiB for {what} ({e})\nhelp: lower `batch_size`, take a smaller \
             model, or raise the limit on the process's memory"
        ))
    })?;
    #[cfg(target_os = "linux")]
    if bytes >= HUGE {
        // Only a hint: a system without huge pages refuses, and ordinary pages serve as well.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(map)
}

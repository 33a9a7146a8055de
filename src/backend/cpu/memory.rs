//! Blocks of memory: page-aligned, zeroed, given by the system when they are first touched.

use anyhow::{Context, Result};
use memmap2::MmapMut;

/// From this size on, huge pages are asked for: fewer misses of the address cache, at most one page of slack.
#[cfg(target_os = "linux")]
const HUGE: usize = 16 << 20;

/// `bytes` bytes of zeros, page-aligned.
///
/// # Errors
/// The system has no such block.
pub fn zeroed(bytes: usize) -> Result<MmapMut> {
    let map = MmapMut::map_anon(bytes.max(1))
        .with_context(|| format!("cannot allocate {:.1} MiB of memory", bytes as f64 / (1 << 20) as f64))?;
    #[cfg(target_os = "linux")]
    if bytes >= HUGE {
        // Only a hint: a system without huge pages refuses, and ordinary pages serve as well.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(map)
}

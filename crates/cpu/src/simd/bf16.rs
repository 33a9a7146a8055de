//! Which unit makes products of numbers rounded to bf16: the tiles of AMX, `vdpbf16ps` of AVX-512, or plain code, all with the same bits.

use super::SimdLevel;
use crate::failure::SettingError;
use anyhow::Result;
use std::fmt;

/// Environment variable that forces a unit, or forbids both.
pub const ENV: &str = "RUNNER_BF16";

/// What the variable says for neither.
const OFF: &str = "off";

/// What multiplies matrices of bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bf16Unit {
    /// Plain code: the bits of AMX on any machine. Slower than products of single precision, so it is used only where it is asked for.
    Plain,
    /// `vdpbf16ps` of AVX512-BF16: AMD's processors since Zen 4, which multiply twice as many numbers with it as in single precision.
    Avx512,
    /// The tiles of AMX: Intel's servers since 2023.
    Amx,
}

impl Bf16Unit {
    /// Every unit, the best last.
    pub const ALL: [Bf16Unit; 3] = [Bf16Unit::Plain, Bf16Unit::Avx512, Bf16Unit::Amx];

    /// As in `RUNNER_BF16`.
    pub fn name(self) -> &'static str {
        match self {
            Bf16Unit::Plain => "plain",
            Bf16Unit::Avx512 => "avx512_bf16",
            Bf16Unit::Amx => "amx",
        }
    }

    /// This machine has it, and the system lets this process use it. The first call asks for that.
    pub fn is_supported(self) -> bool {
        match self {
            Bf16Unit::Plain => true,
            #[cfg(target_arch = "x86_64")]
            Bf16Unit::Avx512 => SimdLevel::Avx512.is_supported() && is_x86_feature_detected!("avx512bf16"),
            #[cfg(not(target_arch = "x86_64"))]
            Bf16Unit::Avx512 => false,
            Bf16Unit::Amx => amx::is_permitted(),
        }
    }

    /// Whether it multiplies many times as fast as single precision does, and not twice: then nothing that saves multiplications there, and no zeros
    /// that fill tiles, make up for it.
    pub fn is_far_faster(self) -> bool {
        self != Bf16Unit::Avx512
    }

    /// Rows that it computes at a time: a block has whole ones.
    pub fn rows(self) -> usize {
        if self == Bf16Unit::Avx512 { 4 } else { 16 }
    }

    /// Whether it reads no terms after the last ones of a sum. Others need zeros there.
    pub fn leaves_out_terms(self) -> bool {
        self == Bf16Unit::Avx512
    }

    /// The units of this machine, the best last.
    pub fn supported() -> impl Iterator<Item = Bf16Unit> {
        Self::ALL.into_iter().filter(|unit| unit.is_supported())
    }

    /// The best that is made for this, if there is one: plain code is slow.
    pub fn detect() -> Option<Bf16Unit> {
        Self::supported().last().filter(|&unit| unit != Bf16Unit::Plain)
    }

    /// What the environment variable [`ENV`] says, else [`Bf16Unit::detect`].
    ///
    /// # Errors
    /// The variable names no unit, or one that this machine lacks.
    pub fn from_env() -> Result<Option<Bf16Unit>> {
        match std::env::var_os(ENV) {
            Some(name) => Self::from_name(&name.to_string_lossy()),
            None => Ok(Self::detect()),
        }
    }

    /// The unit called `name`; `None` for `off`.
    ///
    /// # Errors
    /// There is no such unit, or this machine lacks it.
    pub fn from_name(name: &str) -> Result<Option<Bf16Unit>> {
        if name == OFF {
            return Ok(None);
        }
        let found = Self::ALL.into_iter().find(|unit| unit.name() == name);
        match found {
            Some(unit) if unit.is_supported() => Ok(Some(unit)),
            _ => {
                let choices: Vec<_> = Self::supported().map(Bf16Unit::name).chain([OFF]).collect();
                let why = if found.is_some() { "this machine lacks it" } else { "there is no such unit" };
                Err(SettingError(format!("{ENV}={name}: {why}; choose among {}", choices.join(", "))).into())
            }
        }
    }
}

impl fmt::Display for Bf16Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What kernels of products are made for: vector instructions, and the unit for bf16 if products are to be made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instructions {
    /// Vectors.
    pub level: SimdLevel,
    /// Products are made in bf16, by this unit.
    pub bf16: Option<Bf16Unit>,
}

impl From<SimdLevel> for Instructions {
    fn from(level: SimdLevel) -> Self {
        Instructions { level, bf16: None }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::OnceLock;

    /// The processor has tiles of bf16, and Linux gives this process the room for their state. It is asked once: the
    /// permission is the process's, and threads started later have it, too.
    pub fn is_permitted() -> bool {
        static PERMITTED: OnceLock<bool> = OnceLock::new();
        *PERMITTED.get_or_init(|| has_tiles() && is_granted())
    }

    /// Bits 22 (`AMX-BF16`) and 24 (`AMX-TILE`) of leaf 7.
    fn has_tiles() -> bool {
        const BITS: u32 = 1 << 22 | 1 << 24;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
    }

    /// `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`: Linux since 5.16; an older one, or a sandbox, refuses.
    fn is_granted() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XTILEDATA: libc::c_long = 18;
        // SAFETY: the call takes two numbers and changes nothing but what this process may do.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod amx {
    /// Only Linux is asked.
    pub fn is_permitted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_their_names() {
        assert_eq!(Bf16Unit::from_name("off").unwrap(), None);
        for unit in Bf16Unit::ALL {
            let found = Bf16Unit::from_name(unit.name());
            if unit.is_supported() {
                assert_eq!(found.unwrap(), Some(unit));
            } else {
                let said = found.unwrap_err().to_string();
                assert!(said.contains("this machine lacks it; choose among plain, "), "{said}");
            }
        }
        let said = Bf16Unit::from_name("AMX").unwrap_err().to_string();
        assert!(said.starts_with("RUNNER_BF16=AMX: there is no such unit; choose among plain"), "{said}");
    }
}

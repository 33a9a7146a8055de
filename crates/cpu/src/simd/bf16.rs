//! Which unit makes products of numbers rounded to bf16: the tiles of AMX, or plain code with the same bits.

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
    /// The tiles of AMX: Intel's servers since 2023.
    Amx,
}

impl Bf16Unit {
    /// Every unit, the best last.
    pub const ALL: [Bf16Unit; 2] = [Bf16Unit::Plain, Bf16Unit::Amx];

    /// As in `RUNNER_BF16`.
    pub fn name(self) -> &'static str {
        match self {
            Bf16Unit::Plain => "plain",
            Bf16Unit::Amx => "amx",
        }
    }

    /// This machine has it, and the system lets this process use it. The first call asks for that.
    pub fn is_supported(self) -> bool {
        match self {
            Bf16Unit::Plain => true,
            Bf16Unit::Amx => amx::is_permitted(),
        }
    }

    /// The units of this machine, the best last.
    pub fn supported() -> impl Iterator<Item = Bf16Unit> {
        Self::ALL.into_iter().filter(|unit| unit.is_supported())
    }

    /// AMX, if it can be used.
    pub fn detect() -> Option<Bf16Unit> {
        Some(Bf16Unit::Amx).filter(|unit| unit.is_supported())
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
        assert_eq!(Bf16Unit::from_name("plain").unwrap(), Some(Bf16Unit::Plain));
        assert_eq!(Bf16Unit::from_name("off").unwrap(), None);
        let amx = Bf16Unit::from_name("amx");
        match Bf16Unit::detect() {
            Some(unit) => assert_eq!(amx.unwrap(), Some(unit)),
            None => assert!(amx.unwrap_err().to_string().contains("this machine lacks it; choose among plain, off")),
        }
        let said = Bf16Unit::from_name("AMX").unwrap_err().to_string();
        assert!(said.starts_with("RUNNER_BF16=AMX: there is no such unit; choose among plain"), "{said}");
    }
}

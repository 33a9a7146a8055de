//! What the environment says about how a GPU is used.

use super::launcher::{self, Bindings};
use super::nvidia::convolution::cache_folder;
use super::nvidia::{self, Wanted};
use crate::backend::SettingError;

/// Runs every program node by node, and waits behind each, so that an error names the node it comes from.
pub const SYNC: &str = "RUNNER_CUDA_SYNC";

/// Gives every value an allocation of its own, so that tools which know allocations see what reaches beyond one.
pub const SEPARATE: &str = "RUNNER_CUDA_SEPARATE";

/// All that the environment says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// NVIDIA's libraries that may be used.
    pub libraries: Wanted,
    /// Through what kernels are loaded and launched.
    pub bindings: Bindings,
    /// See [`SYNC`].
    pub sync: bool,
    /// See [`SEPARATE`].
    pub separate: bool,
}

impl Settings {
    /// Reads the variables.
    ///
    /// # Errors
    /// One of them says something that there is not.
    pub fn from_env() -> Result<Settings, SettingError> {
        let said = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
        let libraries = said(nvidia::ENV).map_or_else(|| Wanted::parse("1"), |v| Wanted::parse(&v))?;
        Ok(Settings {
            libraries: Wanted { cache: cache_folder(), ..libraries },
            bindings: said(launcher::VARIABLE).map_or_else(|| Ok(Bindings::default()), |v| Bindings::parse(&v))?,
            sync: switch(SYNC, said(SYNC).as_deref())?,
            separate: switch(SEPARATE, said(SEPARATE).as_deref())?,
        })
    }
}

/// A variable that is 0 or 1; not set or empty, it is 0.
fn switch(name: &str, said: Option<&str>) -> Result<bool, SettingError> {
    match said.unwrap_or_default() {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        other => Err(SettingError(format!("{name} is `{other}`\nhelp: it may be 0 or 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_0_or_1() {
        let of = |said| switch(SYNC, said);
        assert_eq!([of(None), of(Some("")), of(Some("0")), of(Some("1"))], [Ok(false), Ok(false), Ok(false), Ok(true)]);
        let told = of(Some("yes")).unwrap_err().to_string();
        assert!(told.contains("RUNNER_CUDA_SYNC is `yes`") && told.contains("0 or 1"), "{told}");
    }
}

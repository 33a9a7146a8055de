//! What the environment says about how a GPU is used.

use crate::backend::SettingError;
use crate::files::caches;
use std::ffi::OsString;
use std::path::PathBuf;

/// Says which libraries may be used: `0` none, `1` all that are found (as without it), or names: `cublaslt`.
pub const LIBRARIES: &str = "RUNNER_CUDA_LIBRARIES";

/// Where choices are kept: `0` nowhere, or a folder; without it the folder `runner` where the user's caches are.
pub const CACHE: &str = "RUNNER_CUDA_CACHE";

/// The environment variable that chooses the [`Bindings`].
pub const LAUNCHER: &str = "RUNNER_CUDA_LAUNCHER";

/// Runs every program node by node, and waits after each, so that an error names the node it comes from.
pub const SYNC: &str = "RUNNER_CUDA_SYNC";

/// Gives every value an allocation of its own, so that tools which know allocations see what reaches beyond one.
pub const SEPARATE: &str = "RUNNER_CUDA_SEPARATE";

/// All that the environment says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// NVIDIA's libraries that may be used.
    pub libraries: Wanted,
    /// What carries bytes between GPUs.
    pub nccl: Source,
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
        let libraries = said(LIBRARIES).map_or_else(|| Wanted::parse("1"), |v| Wanted::parse(&v))?;
        Ok(Settings {
            libraries: Wanted { cache: cache_folder(), ..libraries },
            nccl: Source::Found,
            bindings: said(LAUNCHER).map_or_else(|| Ok(Bindings::default()), |v| Bindings::parse(&v))?,
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

/// Where a library is to be taken from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// It is not used.
    #[default]
    Nowhere,
    /// From wherever it is found on this machine.
    Found,
    /// From this file.
    File(PathBuf),
}

/// Which libraries to use, and for what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Matrix products.
    pub cublaslt: Source,
    /// Convolutions.
    pub cudnn: Source,
    /// For everything that the library takes, sizes that are small or odd included, even if our own kernels are faster.
    pub everywhere: bool,
    /// The folder where measured choices are kept. Without one nothing is measured.
    pub cache: Option<PathBuf>,
}

impl Wanted {
    /// What [`LIBRARIES`] says.
    ///
    /// # Errors
    /// It says something that there is not.
    pub fn parse(said: &str) -> Result<Wanted, SettingError> {
        let mut wanted = Wanted::default();
        for word in said.split(',').map(str::trim) {
            match word {
                "0" => {}
                "1" => (wanted.cublaslt, wanted.cudnn) = (Source::Found, Source::Found),
                "cublaslt" => wanted.cublaslt = Source::Found,
                "cudnn" => wanted.cudnn = Source::Found,
                other => {
                    return Err(SettingError(format!(
                        "{LIBRARIES} is `{said}`, and `{other}` is no library that is used\nhelp: 0 (none), 1 (all), `cublaslt` or `cudnn`"
                    )));
                }
            }
        }
        Ok(wanted)
    }
}

/// The bindings of the driver through which kernels are loaded and launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bindings {
    /// The crate `cudarc`, as for everything else.
    #[default]
    Cudarc,
    /// The crate `cust`.
    #[cfg(feature = "cust")]
    Cust,
}

impl Bindings {
    /// What [`LAUNCHER`] asks for: `cudarc` or `cust`; `cudarc` if it is empty.
    ///
    /// # Errors
    /// It is neither, or this program was built without `cust`.
    pub fn parse(name: &str) -> Result<Bindings, SettingError> {
        match name {
            "" | "cudarc" => Ok(Bindings::Cudarc),
            #[cfg(feature = "cust")]
            "cust" => Ok(Bindings::Cust),
            #[cfg(not(feature = "cust"))]
            "cust" => Err(SettingError(format!(
                "{LAUNCHER} is `cust`, but this program was built without it\nhelp: build it with the feature `cust`"
            ))),
            _ => Err(SettingError(format!("{LAUNCHER} is `{name}`\nhelp: it may be `cudarc` or `cust`"))),
        }
    }
}

/// The folder that [`CACHE`] and the places of the user's caches say.
fn cache_folder() -> Option<PathBuf> {
    cache_folder_of(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn cache_folder_of(var: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    match var(CACHE) {
        Some(said) if said == "0" => None,
        Some(said) => Some(said.into()),
        None => caches::folder_of(var),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_0_or_1() {
        let of = |said| switch(SYNC, said);
        assert_eq!([of(None), of(Some("")), of(Some("0")), of(Some("1"))], [Ok(false), Ok(false), Ok(false), Ok(true)]);
        let message = of(Some("yes")).unwrap_err().to_string();
        assert!(message.contains("RUNNER_CUDA_SYNC is `yes`") && message.contains("0 or 1"), "{message}");
    }

    #[test]
    fn the_variable_names_libraries() {
        let of = |cublaslt: Source, cudnn: Source| Wanted { cublaslt, cudnn, ..Wanted::default() };
        assert_eq!(Wanted::parse("1").unwrap(), of(Source::Found, Source::Found));
        assert_eq!(Wanted::parse("0").unwrap(), Wanted::default());
        assert_eq!(Wanted::parse("cudnn").unwrap(), of(Source::Nowhere, Source::Found));
        assert_eq!(Wanted::parse("cudnn, cublaslt").unwrap(), Wanted::parse("1").unwrap());
        let message = Wanted::parse("cublas").unwrap_err().to_string();
        assert!(
            message.contains(LIBRARIES) && message.contains("`cublas`") && message.contains("cublaslt"),
            "{message}"
        );
    }

    #[test]
    fn the_folder_is_the_one_that_the_environment_says() {
        let of = |set: &[(&str, &str)]| {
            cache_folder_of(&|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
        };
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.cache/runner".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Some("/x/runner".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "x")]), Some("/h/.cache/runner".into()));
        assert_eq!(of(&[("HOME", "/h"), (CACHE, "there")]), Some("there".into()));
        assert_eq!(of(&[("HOME", "/h"), (CACHE, "0")]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn the_variable_names_the_bindings() {
        assert_eq!(Bindings::parse("").unwrap(), Bindings::Cudarc);
        assert_eq!(Bindings::parse("cudarc").unwrap(), Bindings::Cudarc);
        assert!(Bindings::parse("Cust").unwrap_err().to_string().contains("may be `cudarc` or `cust`"));
        match Bindings::parse("cust") {
            Ok(bindings) => assert_ne!(bindings, Bindings::Cudarc),
            Err(e) => assert!(!cfg!(feature = "cust") && e.to_string().contains("feature `cust`"), "{e}"),
        }
    }
}

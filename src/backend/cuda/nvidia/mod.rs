//! NVIDIA's libraries put to use: matrix products by cuBLASLt, convolutions by cuDNN, where they are found. What they do
//! not take, and all of it where they are missing, our own kernels compute.
//!
//! Functions are looked up by name when a library is opened, so that one which lacks a function is not used, rather than
//! failing in the middle of a run; their answers are plain numbers, for a newer library may give ones that the bindings do
//! not know. Types and constants are those of cudarc's bindings.
//!
//! A library is asked for an algorithm once for every shape, when a program is lowered. What it answers decides whether it
//! is used and with how much workspace; the answer is kept, so the plan and the program always agree. What cuDNN offers is
//! tried first.

pub mod convolution;
mod functions;
pub mod matmul;

use super::driver::Context;
use super::libraries::{self, Library};
use super::stream::Stream;
use crate::backend::DeviceError;
use anyhow::Result;
use convolution::Dnn;
use matmul::Blas;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Says which libraries may be used: `0` none, `1` all that are found (as without it), or names: `cublaslt`.
pub const ENV: &str = "RUNNER_CUDA_LIBRARIES";

/// Where a library is to be taken from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// It is not used.
    #[default]
    Nowhere,
    /// From where [`libraries::open`] finds it.
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
    /// What [`ENV`] and [`convolution::CACHE_ENV`] say; all that are found if the first is not set.
    ///
    /// # Errors
    /// It says something else.
    pub fn from_env() -> Result<Wanted> {
        let wanted = Wanted::parse(&std::env::var(ENV).unwrap_or_else(|_| "1".into()))?;
        Ok(Wanted { cache: convolution::cache_folder(), ..wanted })
    }

    fn parse(said: &str) -> Result<Wanted> {
        let mut wanted = Wanted::default();
        for word in said.split(',').map(str::trim) {
            match word {
                "0" => {}
                "1" => (wanted.cublaslt, wanted.cudnn) = (Source::Found, Source::Found),
                "cublaslt" => wanted.cublaslt = Source::Found,
                "cudnn" => wanted.cudnn = Source::Found,
                other => {
                    return Err(DeviceError(format!(
                        "{ENV} is `{said}`, and `{other}` is no library that is used\nhelp: 0 (none), 1 (all), `cublaslt` or `cudnn`"
                    ))
                    .into());
                }
            }
        }
        Ok(wanted)
    }
}

/// Whether a backend would use a library that was found; otherwise why not. Needs no device.
///
/// # Errors
/// Why it would not.
pub fn usable(library: Library, path: &Path) -> Result<(), String> {
    let wanted = Wanted::from_env().map_err(|e| e.to_string())?;
    let source = match library {
        Library::CublasLt => wanted.cublaslt,
        Library::Cudnn => wanted.cudnn,
        _ => return Err("this version does not use it".into()),
    };
    if source == Source::Nowhere {
        return Err(format!("{ENV} says so"));
    }
    let checked = if library == Library::CublasLt { matmul::check(path) } else { convolution::check(path) };
    checked.map_err(|why| format!("it {why}"))
}

/// The libraries that a backend computes with.
#[derive(Debug, Default)]
pub struct Libraries {
    /// Matrix products.
    pub blas: Option<Arc<Blas>>,
    /// Convolutions.
    pub dnn: Option<Arc<Dnn>>,
    /// See [`Wanted::everywhere`].
    pub everywhere: bool,
    /// What was found and cannot be used: why.
    pub problems: Vec<String>,
}

impl Libraries {
    /// Opens those that are wanted and there. What fails is noted and not used.
    pub fn open(context: &Arc<Context>, wanted: &Wanted) -> Libraries {
        let mut all = Libraries { everywhere: wanted.everywhere, ..Libraries::default() };
        if let Some(path) = file(Library::CublasLt, &wanted.cublaslt, &mut all.problems) {
            let opened = Blas::open(&path, context);
            all.blas = opened.map_err(|why| all.problems.push(unusable(Library::CublasLt, &path, &why))).ok();
        }
        if let Some(path) = file(Library::Cudnn, &wanted.cudnn, &mut all.problems) {
            let opened = Dnn::open(&path, context, wanted.cache.as_deref());
            all.dnn = opened.map_err(|why| all.problems.push(unusable(Library::Cudnn, &path, &why))).ok();
        }
        all
    }

    /// Names of those that are used.
    pub fn names(&self) -> Vec<&'static str> {
        let blas = self.blas.is_some().then_some(Library::CublasLt.name());
        let dnn = self.dnn.is_some().then_some(Library::Cudnn.name());
        blas.into_iter().chain(dnn).collect()
    }
}

/// The library's file; `None` if it is not wanted or not found. One that is there and does not load is a problem.
fn file(library: Library, source: &Source, problems: &mut Vec<String>) -> Option<PathBuf> {
    match source {
        Source::Nowhere => None,
        Source::File(path) => Some(path.clone()),
        Source::Found => match libraries::open(library) {
            Ok(found) => Some(found.path),
            Err(libraries::Missing::NotFound) => None,
            Err(libraries::Missing::Broken { path, why }) => {
                problems.push(unusable(library, &path, &format!("does not load: {why}")));
                None
            }
        },
    }
}

fn unusable(library: Library, path: &Path, why: &str) -> String {
    format!("{} in {} {why}; our own kernels do its work", library.name(), path.display())
}

/// A library did not do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryError {
    library: Library,
    doing: &'static str,
    code: u32,
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhelp: {ENV}=0 computes without it", self.brief())
    }
}

impl std::error::Error for LibraryError {}

impl LibraryError {
    /// Without what can be done about it.
    fn brief(&self) -> String {
        format!("{} failed while {} (status {})", self.library.name(), self.doing, self.code)
    }
}

/// A library's answer as a result.
fn answer(library: Library, doing: &'static str, code: u32) -> Result<(), LibraryError> {
    if code == 0 { Ok(()) } else { Err(LibraryError { library, doing, code }) }
}

/// Work of a library with everything that it needs, to be enqueued any number of times.
pub trait LibraryCall: fmt::Debug + Send + Sync {
    /// Puts it on `stream`.
    ///
    /// # Errors
    /// The library refuses it.
    ///
    /// # Safety
    /// The context is current, and the memory that it was made for lives until it has run.
    unsafe fn enqueue(&self, stream: &Stream) -> Result<(), LibraryError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_libraries() {
        let of = |cublaslt: Source, cudnn: Source| Wanted { cublaslt, cudnn, ..Wanted::default() };
        assert_eq!(Wanted::parse("1").unwrap(), of(Source::Found, Source::Found));
        assert_eq!(Wanted::parse("0").unwrap(), Wanted::default());
        assert_eq!(Wanted::parse("cudnn").unwrap(), of(Source::Nowhere, Source::Found));
        assert_eq!(Wanted::parse("cudnn, cublaslt").unwrap(), Wanted::parse("1").unwrap());
        let told = Wanted::parse("cublas").unwrap_err().to_string();
        assert!(told.contains(ENV) && told.contains("`cublas`") && told.contains("cublaslt"), "{told}");
    }
}

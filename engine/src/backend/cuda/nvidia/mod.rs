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
use super::settings::Settings;
use super::stream::Stream;
use crate::backend::SettingError;
use convolution::Dnn;
use matmul::Blas;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
    /// What [`ENV`] says.
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
                        "{ENV} is `{said}`, and `{other}` is no library that is used\nhelp: 0 (none), 1 (all), `cublaslt` or `cudnn`"
                    )));
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
    let wanted = Settings::from_env().map_err(|e| e.to_string())?.libraries;
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

/// The libraries that a backend computes with. Each is opened when it is asked for first: that takes a part of a second, and
/// memory of the device, which a program that gives it nothing to do should not pay.
#[derive(Debug, Default)]
pub struct Libraries {
    /// The device; none for no libraries.
    context: Option<Arc<Context>>,
    wanted: Wanted,
    blas: OnceLock<Option<Arc<Blas>>>,
    dnn: OnceLock<Option<Arc<Dnn>>>,
    /// What was found and cannot be used: why.
    problems: Mutex<Vec<String>>,
    /// A library that had not enough memory to start.
    failed: Mutex<Option<LibraryError>>,
    /// See [`Libraries::estimate`].
    estimating: AtomicBool,
}

impl Libraries {
    /// Those that are wanted; none is opened.
    pub fn new(context: &Arc<Context>, wanted: &Wanted) -> Libraries {
        Libraries { context: Some(context.clone()), wanted: wanted.clone(), ..Libraries::default() }
    }

    /// See [`Wanted::everywhere`].
    pub fn everywhere(&self) -> bool {
        self.wanted.everywhere
    }

    /// cuBLASLt, opened if it is not yet; `None` if it is not wanted, not there or of no use. Whoever asks has work for it.
    pub fn blas(&self) -> Option<&Arc<Blas>> {
        self.blas.get_or_init(|| self.open(Library::CublasLt, &self.wanted.cublaslt, Blas::open)).as_ref()
    }

    /// cuDNN, as [`Libraries::blas`].
    pub fn dnn(&self) -> Option<&Arc<Dnn>> {
        let open = |path: &Path, context: &Arc<Context>| {
            let dnn = Dnn::open(path, context, self.wanted.cache.as_deref())?;
            dnn.estimate(self.estimating.load(Ordering::Relaxed));
            Ok(dnn)
        };
        self.dnn.get_or_init(|| self.open(Library::Cudnn, &self.wanted.cudnn, open)).as_ref()
    }

    /// cuDNN, if it has been opened.
    pub fn opened_dnn(&self) -> Option<&Arc<Dnn>> {
        self.dnn.get()?.as_ref()
    }

    /// Whether only the size of programs matters, which will not be run: see [`Dnn::estimate`].
    pub fn estimate(&self, on: bool) {
        self.estimating.store(on, Ordering::Relaxed);
        if let Some(dnn) = self.opened_dnn() {
            dnn.estimate(on);
        }
    }

    fn open<T>(
        &self,
        library: Library,
        source: &Source,
        open: impl FnOnce(&Path, &Arc<Context>) -> Result<T, Unusable>,
    ) -> Option<T> {
        let context = self.context.as_ref()?;
        let path = match source {
            Source::Nowhere => return None,
            Source::File(path) => path.clone(),
            Source::Found => match libraries::open(library) {
                Ok(found) => found.path,
                Err(libraries::Missing::NotFound) => return None,
                Err(libraries::Missing::Broken { path, why }) => {
                    self.refuse(unusable(library, &path, &format!("does not load: {why}")));
                    return None;
                }
            },
        };
        match open(&path, context) {
            Ok(opened) => Some(opened),
            Err(Unusable::Memory(error)) => {
                locked(&self.failed).get_or_insert(error);
                None
            }
            Err(Unusable::Lacks(why)) => {
                self.refuse(unusable(library, &path, &why));
                None
            }
        }
    }

    fn refuse(&self, why: String) {
        if let Some(context) = &self.context {
            context.note(why.clone());
        }
        locked(&self.problems).push(why);
    }

    /// Fails if a library had not enough memory to start. It is not passed over as others are that do not start: with more
    /// memory the same program would be computed by it.
    ///
    /// # Errors
    /// What the library said.
    pub fn check(&self) -> Result<(), LibraryError> {
        locked(&self.failed).map_or(Ok(()), Err)
    }

    /// What was found and cannot be used: why.
    pub fn problems(&self) -> Vec<String> {
        locked(&self.problems).clone()
    }

    /// Names of those that have been opened.
    pub fn names(&self) -> Vec<&'static str> {
        let blas = self.blas.get().is_some_and(Option::is_some).then_some(Library::CublasLt.name());
        let dnn = self.dnn.get().is_some_and(Option::is_some).then_some(Library::Cudnn.name());
        blas.into_iter().chain(dnn).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// It lacks something, or does not start.
    Lacks(String),
    /// There is not enough memory for it.
    Memory(LibraryError),
}

impl From<String> for Unusable {
    fn from(why: String) -> Unusable {
        Unusable::Lacks(why)
    }
}

/// A library's answer to the call that starts it.
fn started(library: Library, code: u32) -> Result<(), Unusable> {
    match answer(library, "starting", code) {
        Ok(()) => Ok(()),
        Err(error) if error.is_out_of_memory() => Err(Unusable::Memory(error)),
        Err(_) => Err(Unusable::Lacks(format!("does not start (status {code})"))),
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

impl LibraryError {
    /// True if there was not enough memory, of the device or of the host.
    pub fn is_out_of_memory(&self) -> bool {
        use cudarc::cublas::sys::cublasStatus_t as Blas;
        use cudarc::cudnn::sys::cudnnStatus_t as Dnn;
        const DNN: [Dnn; 2] = [
            Dnn::CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
            Dnn::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
        ];
        match self.library {
            Library::Cudnn => DNN.iter().any(|code| *code as u32 == self.code),
            _ => self.code == Blas::CUBLAS_STATUS_ALLOC_FAILED as u32,
        }
    }
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

    /// As the libraries' manuals number them; what no manual knows is no lack of memory.
    #[test]
    fn each_library_has_its_own_numbers_for_a_lack_of_memory() {
        let is = |library, code| answer(library, "trying", code).unwrap_err().is_out_of_memory();
        let lacking = |library| [1, 2, 3, 4003, 4004, 4_000_000_000].map(|code| is(library, code));
        assert_eq!(lacking(Library::CublasLt), [false, false, true, false, false, false]);
        assert_eq!(lacking(Library::Cudnn), [false, false, false, true, true, false]);
    }

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

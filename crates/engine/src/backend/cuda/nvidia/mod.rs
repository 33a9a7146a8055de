//! NVIDIA's libraries: matrix products by cuBLASLt and convolutions by cuDNN, where these are found. Everything else is
//! computed by our own kernels. NCCL carries bytes between several GPUs.
//!
//! Functions are looked up by name when a library is opened, so that one which lacks a function is not used, rather than
//! failing in the middle of a run; their answers are plain numbers, for a newer library may give ones that the bindings do
//! not know. Types and constants are those of cudarc's bindings.
//!
//! A library selects an algorithm once for every shape, when a program is lowered. The answer says whether the library is used
//! and with how much workspace. It is kept, so that the memory plan and the program agree. Plans of cuDNN are measured and
//! checked before one is selected.

pub mod convolution;
mod functions;
pub mod installed;
pub mod matmul;
pub mod nccl;
mod status;

pub use status::LibraryError;
pub(super) use status::is_out_of_memory;

use super::driver::Context;
use super::settings::{LIBRARIES, Settings, Source, Wanted};
use crate::backend::gpu::launch::Matmul;
use crate::backend::gpu::target::{Chosen, LibraryPlanner, Problem};
use convolution::Dnn;
use installed::Library;
use matmul::Blas;
use status::Unusable;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Whether a backend would use a library that was found; otherwise why not. Needs no device.
///
/// # Errors
/// Why it would not.
pub fn usable(library: Library, path: &Path) -> Result<(), String> {
    let wanted = Settings::from_env().map_err(|e| e.to_string())?.libraries;
    let source = match library {
        Library::CublasLt => wanted.cublaslt,
        Library::Cudnn => wanted.cudnn,
        // Where there are several GPUs, nothing else can take its place.
        Library::Nccl => Source::Found,
        _ => return Err("this version does not use it".into()),
    };
    if source == Source::Nowhere {
        return Err(format!("{LIBRARIES} says so"));
    }
    let checked = match library {
        Library::CublasLt => matmul::check(path),
        Library::Nccl => nccl::check(path),
        _ => convolution::check(path),
    };
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

    /// cuBLASLt, opened if it is not yet; `None` if it is not wanted, not there or of no use. The caller has work for it.
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
            Source::Found => match installed::open(library) {
                Ok(found) => found.path,
                Err(installed::Missing::NotFound) => return None,
                Err(installed::Missing::Broken { path, why }) => {
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

impl LibraryPlanner for Libraries {
    fn everywhere(&self) -> bool {
        self.wanted.everywhere
    }

    fn matmul(&self, matmul: &Matmul) -> Option<usize> {
        self.blas()?.workspace(matmul)
    }

    fn convolution(&self, problem: &Problem) -> Option<Chosen> {
        self.dnn()?.choose(problem)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unusable(library: Library, path: &Path, why: &str) -> String {
    format!("{} in {} {why}; our own kernels do its work", library.name(), path.display())
}

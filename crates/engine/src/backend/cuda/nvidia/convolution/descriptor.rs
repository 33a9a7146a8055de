//! cuDNN's functions, and its descriptors: objects of all kinds after one opaque pointer, which are made, given their
//! attributes one by one, finalized, and asked for others.
//!
//! Whatever comes from the library comes as a plain number: a newer one may answer with values that the bindings'
//! enumerations do not have.

use super::super::functions::{Loaded, functions};
use super::super::installed::Library;
use super::super::status::{LibraryError, Unusable, answer, started};
use crate::backend::cuda::driver::Context;
use crate::backend::cuda::driver::stream::Stream;
use cudarc::cudnn::sys as dnn;
use dnn::cudnnBackendAttributeName_t as Name;
use dnn::cudnnBackendAttributeType_t as Type;
use dnn::cudnnBackendDescriptorType_t as Kind;
use std::ffi::c_void;
use std::fmt;
use std::num::NonZero;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The major version whose numbers for types and settings are those of the bindings.
const MAJOR: usize = 9;

/// Libraries that version 9 loads when it is first used, and without which it ends the program.
const PARTS: [&str; 5] = ["graph", "ops", "cnn", "heuristic", "engines_precompiled"];

/// The part that compiles kernels at run time. Without it, engines that do so are passed over.
const COMPILER: &str = "engines_runtime_compiled";

/// Most threads that make plans at the same time.
const MOST_MAKERS: usize = 8;

/// A handle, or a descriptor of any kind.
type Raw = *mut c_void;

functions! {
    /// What is used of cuDNN. Enumerations are numbers in both directions.
    Functions {
        cudnnCreate(*mut Raw);
        cudnnDestroy(Raw);
        cudnnSetStream(Raw, *mut c_void);
        cudnnBackendCreateDescriptor(u32, *mut Raw);
        cudnnBackendDestroyDescriptor(Raw);
        cudnnBackendSetAttribute(Raw, u32, u32, i64, *const c_void);
        cudnnBackendGetAttribute(Raw, u32, u32, i64, *mut i64, *mut c_void);
        cudnnBackendFinalize(Raw);
        cudnnBackendExecute(Raw, Raw, Raw);
    }
}

struct Handle(Raw);

// SAFETY: a handle may be used from every thread, by one at a time.
unsafe impl Send for Handle {}

/// An open cuDNN with a handle on a device.
pub struct Api {
    functions: Functions,
    /// Each is used by one thread at a time: it has the stream, and the library asks for that. The first has the graphs; the
    /// others make plans beside it, and exist when they are first wanted.
    handle: Mutex<Handle>,
    more: OnceLock<Vec<Mutex<Handle>>>,
    /// The device.
    pub context: Arc<Context>,
    /// What the library says its version is: 91002 for 9.10.2.
    pub version: usize,
    /// Engines that compile their kernels at run time have what they need.
    pub compiles: bool,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("version", &self.version).finish_non_exhaustive()
    }
}

fn cudnn(doing: &'static str, code: u32) -> Result<(), LibraryError> {
    answer(Library::Cudnn, doing, code)
}

/// What is known of a library once it is loaded.
struct Opened {
    functions: Functions,
    version: usize,
    compiles: bool,
}

/// Loads the library, and finds that it is of the right version and complete.
fn load(path: &Path) -> Result<Opened, String> {
    let functions = Functions::load(path)?;
    // SAFETY: the function has had this type since the first version.
    let version =
        unsafe { functions._loaded.get::<unsafe extern "C" fn() -> usize>(b"cudnnGetVersion\0").map(|f| f()) };
    let version = match version {
        // Four digits up to 8.9, five from 9.0 on.
        Ok(v) if v / 10_000 == MAJOR => v,
        Ok(v) => return Err(format!("is another version than {MAJOR} (it says {v})")),
        Err(_) => return Err("does not tell its version".into()),
    };
    let has = |part: &str| {
        let file = format!("libcudnn_{part}.so.{MAJOR}");
        let beside = path.parent().is_some_and(|folder| folder.join(&file).is_file());
        // SAFETY: a part of the library may be loaded at any time.
        if beside || unsafe { Loaded::new(&file) }.is_ok() { Ok(()) } else { Err(format!("lacks its part {file}")) }
    };
    PARTS.into_iter().try_for_each(has)?;
    Ok(Opened { functions, version, compiles: has(COMPILER).is_ok() })
}

/// What a library that was found lacks.
///
/// # Errors
/// It lacks something.
pub fn check(path: &Path) -> Result<(), String> {
    load(path).map(drop)
}

/// What the library answers when it is asked for a handle, and the handle. The context is current.
fn create(functions: &Functions) -> (u32, Option<Handle>) {
    let mut handle = null_mut();
    // SAFETY: the pointer is to a local.
    let code = unsafe { (functions.cudnnCreate)(&mut handle) };
    (code, (code == 0 && !handle.is_null()).then_some(Handle(handle)))
}

impl Api {
    /// Opens the library in `path` for the device of `context`.
    ///
    /// # Errors
    /// It does not load, lacks something, or does not start.
    pub fn open(path: &Path, context: &Arc<Context>) -> Result<Arc<Api>, Unusable> {
        let Opened { functions, version, compiles } = load(path)?;
        context.bind().map_err(|e| e.to_string())?;
        let (code, handle) = create(&functions);
        started(Library::Cudnn, code)?;
        let Some(handle) = handle else { return Err("gives no handle".to_owned().into()) };
        let (handle, more) = (Mutex::new(handle), OnceLock::new());
        Ok(Arc::new(Api { functions, handle, more, context: context.clone(), version, compiles }))
    }

    /// How many threads can make plans at the same time, each with the handle of its number.
    pub fn makers(&self) -> usize {
        1 + self
            .more
            .get_or_init(|| {
                let most = std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_MAKERS);
                // One that does not start for lack of memory is done without.
                (1..most).map_while(|_| create(&self.functions).1).map(Mutex::new).collect()
            })
            .len()
    }

    fn handle(&self, maker: usize) -> MutexGuard<'_, Handle> {
        let more = maker.checked_sub(1).and_then(|i| self.more.get()?.get(i));
        more.unwrap_or(&self.handle).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new descriptor, nothing of it set.
    ///
    /// # Errors
    /// The library refuses.
    pub fn descriptor(self: &Arc<Self>, kind: Kind) -> Result<Descriptor, LibraryError> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.functions.cudnnBackendCreateDescriptor)(kind as u32, &mut raw) };
        cudnn("making a descriptor", code)?;
        Ok(Descriptor { api: self.clone(), raw })
    }

    /// Puts a plan, which `maker` has made, with its addresses on `stream`.
    ///
    /// # Errors
    /// The library refuses.
    ///
    /// # Safety
    /// The context is current; the memory that `pack` names is as large as the plan's tensors and its workspace, and lives
    /// until it has run. So does the plan, for its kernels may be its own.
    pub unsafe fn execute(
        &self,
        (plan, maker): (&Descriptor, usize),
        pack: &Descriptor,
        stream: &Stream,
    ) -> Result<(), LibraryError> {
        let handle = self.handle(maker);
        // SAFETY: the handle and both descriptors live; the caller's word for the rest.
        unsafe {
            cudnn("choosing a stream", (self.functions.cudnnSetStream)(handle.0, stream.raw.cast()))?;
            cudnn("convolving", (self.functions.cudnnBackendExecute)(handle.0, plan.raw, pack.raw))
        }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            let more = self.more.take().unwrap_or_default();
            for maker in 0..=more.len() {
                let handle = maker.checked_sub(1).map_or(&self.handle, |i| &more[i]);
                let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: created by `create`; whatever uses it holds an `Arc`.
                unsafe { (self.functions.cudnnDestroy)(handle.0) };
            }
        }
    }
}

/// A descriptor. Those that it was given as attributes must outlive it, or the last use of it.
pub struct Descriptor {
    api: Arc<Api>,
    raw: Raw,
}

// SAFETY: a descriptor is only read once it is finalized, and until then there is one owner.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl Descriptor {
    /// Gives an attribute `values`, which are what the library takes for `kind`: `T` has its size.
    fn set<T: Copy>(&self, name: Name, kind: Type, values: &[T]) -> Result<(), LibraryError> {
        // SAFETY: the descriptor lives; the library copies `values.len()` elements, and `T` is of the kind's size.
        cudnn("describing a convolution", unsafe {
            let set = self.api.functions.cudnnBackendSetAttribute;
            set(self.raw, name as u32, kind as u32, values.len() as i64, values.as_ptr().cast())
        })
    }

    /// Integers.
    pub fn ints(&self, name: Name, values: &[i64]) -> Result<(), LibraryError> {
        self.set(name, Type::CUDNN_TYPE_INT64, values)
    }

    /// Sizes, which are integers to the library.
    pub fn sizes(&self, name: Name, values: &[usize]) -> Result<(), LibraryError> {
        let mut ints = [0i64; 8];
        for (to, from) in ints.iter_mut().zip(values) {
            *to = i64::try_from(*from).expect("lowering gives no sizes that do not fit 31 bits");
        }
        self.ints(name, &ints[..values.len()])
    }

    /// A number of an enumeration of the library, whose kind is `kind`.
    pub fn number(&self, name: Name, kind: Type, number: u32) -> Result<(), LibraryError> {
        self.set(name, kind, &[number])
    }

    /// A factor.
    pub fn float(&self, name: Name, value: f32) -> Result<(), LibraryError> {
        self.set(name, Type::CUDNN_TYPE_FLOAT, &[value])
    }

    /// A parameter of a function.
    pub fn double(&self, name: Name, value: f64) -> Result<(), LibraryError> {
        self.set(name, Type::CUDNN_TYPE_DOUBLE, &[value])
    }

    /// Yes or no.
    pub fn boolean(&self, name: Name, value: bool) -> Result<(), LibraryError> {
        self.set(name, Type::CUDNN_TYPE_BOOLEAN, &[value])
    }

    /// Addresses on the device; 0 for none.
    pub fn addresses(&self, name: Name, values: &[u64]) -> Result<(), LibraryError> {
        self.set(name, Type::CUDNN_TYPE_VOID_PTR, values)
    }

    /// Other descriptors, which stay where they are for as long as this one is used.
    pub fn descriptors(&self, name: Name, values: &[&Descriptor]) -> Result<(), LibraryError> {
        let mut raw = [null_mut(); 8];
        for (to, from) in raw.iter_mut().zip(values) {
            *to = from.raw;
        }
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw[..values.len()])
    }

    /// The handle that it is made for: that of a maker of plans, 0 for everything else.
    pub fn handle(&self, name: Name, maker: usize) -> Result<(), LibraryError> {
        let handle = self.api.handle(maker);
        self.set(name, Type::CUDNN_TYPE_HANDLE, &[handle.0])
    }

    /// Nothing more will be set.
    ///
    /// # Errors
    /// Attributes are missing or contradict each other, or the library does not support them.
    pub fn finalize(&self) -> Result<(), LibraryError> {
        // SAFETY: the descriptor lives.
        let code = unsafe { (self.api.functions.cudnnBackendFinalize)(self.raw) };
        cudnn("finalizing a descriptor", code)
    }

    /// Writes elements of an attribute to `into`; how many there are, which may be more than `into` has room for.
    fn get<T: Copy>(&self, name: Name, kind: Type, into: &mut [T]) -> Result<usize, LibraryError> {
        let mut count = 0;
        let to = if into.is_empty() { null_mut() } else { into.as_mut_ptr().cast() };
        // SAFETY: the descriptor lives; the library writes at most as many elements as there is room for, each of the
        // size of `T`, of which every pattern of bits is a value.
        let code = unsafe {
            let get = self.api.functions.cudnnBackendGetAttribute;
            get(self.raw, name as u32, kind as u32, into.len() as i64, &mut count, to)
        };
        cudnn("asking a descriptor", code)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// One integer.
    ///
    /// # Errors
    /// The library refuses.
    pub fn get_int(&self, name: Name) -> Result<i64, LibraryError> {
        let mut value = [0i64];
        self.get(name, Type::CUDNN_TYPE_INT64, &mut value)?;
        Ok(value[0])
    }

    /// One number of an enumeration whose kind is `kind`.
    ///
    /// # Errors
    /// The library refuses.
    pub fn get_number(&self, name: Name, kind: Type) -> Result<u32, LibraryError> {
        let mut value = [0u32];
        self.get(name, kind, &mut value)?;
        Ok(value[0])
    }

    /// Numbers of an enumeration whose kind is `kind`; `None` if there are more than `N`.
    ///
    /// # Errors
    /// The library refuses.
    pub fn get_numbers<const N: usize>(&self, name: Name, kind: Type) -> Result<Option<Vec<u32>>, LibraryError> {
        let mut numbers = [0u32; N];
        let count = self.get(name, kind, &mut numbers)?;
        Ok(numbers.get(..count).map(<[u32]>::to_vec))
    }

    /// How many descriptors an attribute has.
    ///
    /// # Errors
    /// The library refuses.
    pub fn count(&self, name: Name) -> Result<usize, LibraryError> {
        self.get::<Raw>(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut [])
    }

    /// At most `most` descriptors of `kind` that an attribute has, with how many there are.
    ///
    /// # Errors
    /// The library refuses.
    pub fn get_descriptors(
        &self,
        name: Name,
        kind: Kind,
        most: usize,
    ) -> Result<(Vec<Descriptor>, usize), LibraryError> {
        // The library fills descriptors that its caller has made.
        let mut made = (0..most).map(|_| self.api.descriptor(kind)).collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Raw> = made.iter().map(|d| d.raw).collect();
        let count = self.get(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut raw)?;
        made.truncate(count);
        Ok((made, count))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `descriptor`; enqueued work does not refer to it, but for plans, which their users keep.
        unsafe { (self.api.functions.cudnnBackendDestroyDescriptor)(self.raw) };
    }
}

//! The emulated CUDA driver for tests: builds it when it is needed, and puts it where `libcuda` is looked for.
//!
//! ```ignore
//! mod emulator;
//!
//! #[test]
//! fn on_the_emulated_driver() {
//!     if !emulator::install() {
//!         return; // It has been said why.
//!     }
//!     …
//! }
//! ```
//! `README.md` says how it works.

// Every test binary has its own copy and uses a part of it.
#![allow(dead_code, unused_imports)]

mod compile;
mod kernels;

pub use compile::{sanitizing, shared_library};
pub use kernels::names as kernel_names;

use runner::backend::cuda::extents::{self, Launched};
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The loaded library, or why there is none.
struct Library(*mut c_void);

// SAFETY: a handle of `dlopen` may be used from every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

fn folder() -> &'static Result<PathBuf, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(compile::library)
}

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let load = || {
        let folder = match folder() {
            Ok(folder) => folder,
            Err(why) => {
                eprintln!("skipped, as there is no emulated CUDA driver: {why}");
                return None;
            }
        };
        let path = CString::new(folder.join("libcuda.so").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: `path` is a C string. The library's initialisers only fill its own table of kernels.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: after a failure `dlerror` gives a C string that lives until the next call.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            panic!("the emulated CUDA driver does not load: {}", why.to_string_lossy());
        }
        if sanitizing() {
            extents::observe(register_operands);
        }
        Some(Library(handle))
    };
    LIBRARY.get_or_init(load).as_ref()
}

/// Loads the emulated driver into this process, so that code that looks for `libcuda.so` finds it. Call it before other code
/// does. False, with a message, on a machine without a C++ compiler. A kernel that does not compile is a panic.
pub fn install() -> bool {
    library().is_some()
}

/// The folder with `libcuda.so` for the `LD_LIBRARY_PATH` of a child process. `None` as with [`install`], and where the tests
/// are to run on a real GPU.
pub fn library_dir() -> Option<PathBuf> {
    if on_gpu() {
        say_skipped();
        return None;
    }
    match folder() {
        Ok(folder) => Some(folder.clone()),
        Err(why) => {
            eprintln!("skipped, as there is no emulated CUDA driver: {why}");
            None
        }
    }
}

/// The file of a test double of one of NVIDIA's libraries (`libcublasLt.so`), which computes on the emulated driver.
/// `None` as with [`install`].
pub fn nvidia_library(file: &str) -> Option<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    install().then(|| FOLDER.get_or_init(compile::libraries).as_ref().unwrap_or_else(|e| panic!("{e}")).join(file))
}

/// What a test double counts: calls that were enqueued, and objects that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub calls: i64,
    pub live: i64,
}

/// The counts of the test double in `file`, since it was loaded.
pub fn counts(file: &Path) -> Counts {
    let count = |name: &CStr| -> i64 {
        // SAFETY: the functions that are asked for have this type.
        let ask: extern "C" fn() -> i64 = unsafe { std::mem::transmute(function_in(file, name)) };
        ask()
    };
    Counts { calls: count(c"fake_calls"), live: count(c"fake_live") }
}

/// A copy of the test double of cuDNN in `folder`, with its parts: it has engines, counts and planted faults of its own.
/// `None` as with [`install`].
pub fn own_cudnn(folder: &Path) -> Option<PathBuf> {
    let shared = nvidia_library("libcudnn.so")?;
    for entry in std::fs::read_dir(shared.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        if name.starts_with("libcudnn") {
            std::fs::copy(&entry, folder.join(name)).unwrap();
        }
    }
    Some(folder.join("libcudnn.so"))
}

/// What an engine of the test double of cuDNN does that it should not: as in `libraries/cudnn.cpp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    Wrong,
    NanResult,
    Unsteady,
    NoPlan,
    NoRun,
    Large,
    Slow,
    Strange,
    ToHalf,
    ToTf32,
    SlowWide,
}

/// Makes `engine` of the test double of cuDNN in `file` do `fault`.
pub fn plant(file: &Path, engine: i32, fault: Fault) {
    // SAFETY: the function has this type.
    let plant: extern "C" fn(c_int, c_int) = unsafe { std::mem::transmute(function_in(file, c"fake_plant")) };
    plant(engine, fault as c_int);
}

/// How often `engine` of the test double of cuDNN in `file` has been run.
pub fn runs(file: &Path, engine: i32) -> i64 {
    // SAFETY: the function has this type.
    let runs: extern "C" fn(c_int) -> i64 = unsafe { std::mem::transmute(function_in(file, c"fake_runs")) };
    runs(engine)
}

/// A function of the library in `file`.
pub fn function_in(file: &Path, name: &CStr) -> *mut c_void {
    let path = CString::new(file.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: both are C strings; the library is one of ours, whose initialisers do nothing.
    let symbol = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
    assert!(!symbol.is_null(), "{} has no {name:?}", file.display());
    symbol
}

fn symbol(name: &CStr) -> *mut c_void {
    let library = library().expect("`install` has given true");
    // SAFETY: the handle is open, the name a C string.
    let symbol = unsafe { libc::dlsym(library.0, name.as_ptr()) };
    assert!(!symbol.is_null(), "the emulated driver has no {name:?}");
    symbol
}

/// Changes a setting of the driver, of the whole process: `seed` (0: all in the program's order; otherwise an order of
/// streams, blocks and threads drawn from it), `threads`, and before `cuInit` those that the README lists. In a child
/// process, the environment has them: `EMULATED_SEED`.
pub fn configure(name: &str, value: i64) {
    let text = CString::new(name).unwrap();
    // SAFETY: this is the function's type in `driver/api_device.cpp`.
    let configure: extern "C" fn(*const c_char, c_longlong) -> c_int =
        unsafe { std::mem::transmute(symbol(c"emulated_configure")) };
    assert!(configure(text.as_ptr(), value) != 0, "the emulated driver has no setting `{name}`");
}

/// Memory that a launch is given, as `struct Operand` in `driver/api_operands.cpp` has it.
#[repr(C)]
pub struct Operand {
    pub what: *const c_char,
    pub address: u64,
    pub bytes: u64,
    pub written: c_int,
}

/// Gives the sanitizer the memory that launches of `kernel` of so many blocks and threads (x, y, z of each) with these arguments, each
/// at the front of a cell, get. False if there is no such kernel.
pub fn operands(kernel: &str, size: [u32; 6], cells: &[u64], operands: &[Operand]) -> bool {
    type Register = extern "C" fn(*const c_char, *const u32, *const u64, usize, *const Operand, usize) -> c_int;
    // SAFETY: this is the function's type in `driver/api_operands.cpp`.
    let register: Register = unsafe { std::mem::transmute(symbol(c"emulated_operands")) };
    let kernel = CString::new(kernel).unwrap();
    register(kernel.as_ptr(), size.as_ptr(), cells.as_ptr(), cells.len(), operands.as_ptr(), operands.len()) != 0
}

/// What the backend calls for every launch that it makes ready.
fn register_operands(launched: Launched) {
    let Launched { kernel, config, cells, extents } = launched;
    let names: Vec<CString> = extents.iter().map(|e| CString::new(e.what.as_str()).unwrap()).collect();
    let memory: Vec<Operand> = extents
        .iter()
        .zip(&names)
        .map(|(e, name)| Operand {
            what: name.as_ptr(),
            address: e.address,
            bytes: e.bytes as u64,
            written: c_int::from(e.written),
        })
        .collect();
    let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
    let known = operands(kernel, [gx, gy, gz, bx, by, bz], cells, &memory);
    assert!(known, "the emulated driver has no kernel `{kernel}` with {} arguments", cells.len());
}

/// What the sanitizer has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// Races, and accesses to what was not given.
    pub findings: i64,
    /// Launches whose memory is not registered.
    pub unknown: i64,
}

/// What the sanitizer has found so far in this process.
pub fn watched() -> Watched {
    let ask = |name: &CStr| {
        // SAFETY: this is the functions' type in `driver/api_operands.cpp`.
        let ask: extern "C" fn() -> c_longlong = unsafe { std::mem::transmute(symbol(name)) };
        ask()
    };
    Watched { findings: ask(c"emulated_findings"), unknown: ask(c"emulated_unknown_launches") }
}

/// What the driver complained of last: the kernel, block and thread of a fault, and what was wrong.
pub fn message() -> String {
    // SAFETY: this is the function's type in `driver/api_device.cpp`.
    let message: extern "C" fn() -> *const c_char = unsafe { std::mem::transmute(symbol(c"emulated_message")) };
    // SAFETY: a C string that lives until the next complaint; complaints come from calls of the driver.
    unsafe { CStr::from_ptr(message()) }.to_string_lossy().into_owned()
}

/// True if the tests are to run on a real GPU: `RUNNER_TEST_GPU=1`. Without one they fail then, instead of passing over.
pub fn on_gpu() -> bool {
    std::env::var("RUNNER_TEST_GPU").is_ok_and(|v| v == "1")
}

/// True if there is a device to test on: the emulated driver, or a real GPU if that is asked for.
pub fn ready() -> bool {
    on_gpu() || install()
}

/// True if there is an emulated driver to test on, and not a real GPU.
pub fn emulated() -> bool {
    !on_gpu() && install()
}

/// As [`emulated`], for a test that nothing is left of on a real GPU: says there that it is skipped.
pub fn only_emulated() -> bool {
    if on_gpu() {
        say_skipped();
    }
    emulated()
}

/// The `LD_LIBRARY_PATH` of a child process that is to use a GPU: the emulated driver's folder, or on a real GPU what this
/// process has itself. `None` as with [`install`].
pub fn search_path() -> Option<PathBuf> {
    if on_gpu() { Some(std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default().into()) } else { library_dir() }
}

fn say_skipped() {
    eprintln!("skipped: only the emulated driver can do that");
}

/// Sets the order in which the emulated device gets to its work; 0 is the order of the program. A real GPU has its own.
pub fn stream_order(seed: u64) {
    if !on_gpu() {
        configure("seed", seed as i64);
    }
}

/// Keeps the other tests of this process that ask for it away from the device: settings are for all of them.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

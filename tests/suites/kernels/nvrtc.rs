//! NVIDIA's run-time compiler: where it is, and compiling with it. It needs neither a GPU nor a driver.

use crate::sources::{Architecture, Sources};
use cudarc::nvrtc::sys as rtc;
use std::env;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The oldest NVRTC that the sources are compiled with.
const OLDEST: (i32, i32) = (12, 1);

/// What NVRTC answers: a number, for a newer one may have others than cudarc's enumeration knows.
type Answer = c_int;

const SUCCESS: Answer = rtc::nvrtcResult::NVRTC_SUCCESS as Answer;
const WRONG_SOURCE: Answer = rtc::nvrtcResult::NVRTC_ERROR_COMPILATION as Answer;

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        /// # Safety
        /// What NVRTC's manual asks for; the library has been loaded.
        #[allow(non_snake_case)]
        unsafe fn $name($($arg: $type),*) -> Answer {
            // SAFETY: this is the function's type in every version; the rest is the caller's word.
            unsafe {
                let found = rtc::culib().get::<unsafe extern "C" fn($($type),*) -> Answer>(concat!(stringify!($name), "\0").as_bytes());
                found.unwrap_or_else(|e| panic!("NVRTC has no {}: {e}", stringify!($name)))($($arg),*)
            }
        }
    )*};
}

functions! {
    nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    nvrtcCreateProgram(
        program: *mut rtc::nvrtcProgram, source: *const c_char, name: *const c_char, count: c_int,
        headers: *const *const c_char, names: *const *const c_char,
    );
    nvrtcCompileProgram(program: rtc::nvrtcProgram, count: c_int, options: *const *const c_char);
    nvrtcDestroyProgram(program: *mut rtc::nvrtcProgram);
    nvrtcGetProgramLogSize(program: rtc::nvrtcProgram, bytes: *mut usize);
    nvrtcGetProgramLog(program: rtc::nvrtcProgram, log: *mut c_char);
    nvrtcGetPTXSize(program: rtc::nvrtcProgram, bytes: *mut usize);
    nvrtcGetPTX(program: rtc::nvrtcProgram, ptx: *mut c_char);
    nvrtcGetCUBINSize(program: rtc::nvrtcProgram, bytes: *mut usize);
    nvrtcGetCUBIN(program: rtc::nvrtcProgram, code: *mut c_char);
}

/// NVRTC, loaded.
pub struct Nvrtc {
    /// Its folder.
    pub folder: PathBuf,
}

/// What came of compiling a module.
pub struct Output {
    /// Messages of the compiler and the assembler.
    pub log: String,
    /// The PTX, if it compiled.
    pub ptx: Option<String>,
    /// The machine code, if it compiled.
    pub cubin: Vec<u8>,
}

/// NVRTC, from the folder that the environment variable `RUNNER_NVRTC` names, or else from where CUDA and Python's packages
/// are usually installed.
///
/// # Errors
/// It is not there, or too old: why.
///
/// # Panics
/// `RUNNER_NVRTC` is set, but NVRTC is not there.
pub fn find() -> Result<&'static Nvrtc, String> {
    static FOUND: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    FOUND.get_or_init(look).as_ref().map_err(Clone::clone)
}

fn look() -> Result<Nvrtc, String> {
    if let Some(folder) = env::var_os("RUNNER_NVRTC") {
        let nvrtc = load(Path::new(&folder)).and_then(checked);
        return Ok(nvrtc.unwrap_or_else(|why| panic!("RUNNER_NVRTC: {}: {why}", Path::new(&folder).display())));
    }
    let folder = usual_folders().into_iter().find(|folder| library(folder).is_some());
    let folder = folder.ok_or("NVRTC was not found (RUNNER_NVRTC names the folder of libnvrtc.so.12)")?;
    load(&folder).and_then(checked).map_err(|why| format!("{}: {why}", folder.display()))
}

fn checked(nvrtc: Nvrtc) -> Result<Nvrtc, String> {
    let (major, minor) = nvrtc.version()?;
    if (major, minor) < OLDEST {
        return Err(format!("NVRTC {major}.{minor} is older than {}.{}", OLDEST.0, OLDEST.1));
    }
    Ok(nvrtc)
}

/// Where it may be, the most particular place first.
pub fn usual_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths).collect();
    let toolkits = env::var_os("CUDA_HOME").map(PathBuf::from).into_iter().chain(["/usr/local/cuda".into()]);
    folders.extend(toolkits.flat_map(|t| [t.join("lib64"), t.join("lib")]));
    let mut pythons: Vec<PathBuf> = Vec::new();
    pythons.extend(env::var_os("VIRTUAL_ENV").map(|v| Path::new(&v).join("lib")));
    pythons.extend(env::var_os("HOME").map(|h| Path::new(&h).join(".local/lib")));
    pythons.extend(["/usr/local/lib", "/usr/lib"].map(PathBuf::from));
    for python in pythons.iter().flat_map(|lib| entries(lib)) {
        if python.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                folders.extend(["cuda_nvrtc/lib", "cu13/lib"].map(|inside| nvidia.join(inside)));
            }
        }
    }
    folders
}

/// What is in a folder, in order of names; nothing if it is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found
}

/// The library in a folder.
fn library(folder: &Path) -> Option<PathBuf> {
    ["libnvrtc.so.12", "libnvrtc.so.13"].map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

/// Loads NVRTC from `folder`, with its companion first. Whatever else is asked for under the same names is then this one.
fn load(folder: &Path) -> Result<Nvrtc, String> {
    let library = library(folder).ok_or("libnvrtc.so.12 is not there")?;
    let companion = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libnvrtc-builtins.so.") && !name.contains(".alt.")
    };
    let companions = entries(folder).into_iter().filter(companion);
    for path in companions.chain([library]) {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: NVIDIA's libraries do nothing at loading but set up themselves; they stay loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: after a failure `dlerror` gives a string, which is copied at once.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            return Err(format!("it can't be loaded: {why}"));
        }
    }
    // SAFETY: asks for the library that has just been loaded.
    if !unsafe { rtc::is_culib_present() } {
        return Err("its name is none that is looked for".into());
    }
    Ok(Nvrtc { folder: folder.to_owned() })
}

fn check(doing: &str, code: Answer) -> Result<(), String> {
    if code == SUCCESS { Ok(()) } else { Err(format!("NVRTC failed while {doing} (nvrtcResult {code})")) }
}

/// A text that NVRTC hands out in two calls: its size with the zero at its end, then the bytes.
fn text(
    doing: &str,
    size: impl FnOnce(*mut usize) -> Answer,
    fill: impl FnOnce(*mut c_char) -> Answer,
) -> Result<String, String> {
    let mut bytes = 0;
    check(doing, size(&mut bytes))?;
    let mut buffer = vec![0u8; bytes.max(1)];
    check(doing, fill(buffer.as_mut_ptr().cast()))?;
    let end = buffer.iter().position(|b| *b == 0).unwrap_or(bytes);
    Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
}

/// A program, destroyed at the end.
struct Program(rtc::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { nvrtcDestroyProgram(&mut self.0) };
    }
}

impl Nvrtc {
    /// Major and minor version.
    pub fn version(&self) -> Result<(i32, i32), String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is loaded; the pointers are to locals.
        check("asking for its version", unsafe { nvrtcVersion(&mut major, &mut minor) })?;
        Ok((major, minor))
    }

    /// Compiles a module. May be called from several threads.
    ///
    /// # Errors
    /// NVRTC itself fails; what is wrong in the source is in the log.
    pub fn compile(&self, sources: &Sources, module: &str, architecture: Architecture) -> Result<Output, String> {
        let c = |text: &str| CString::new(text).map_err(|e| e.to_string());
        let source = c(&sources.modules[module])?;
        let name = c(&format!("{module}.cu"))?;
        let names = sources.headers.keys().map(|n| c(n)).collect::<Result<Vec<_>, _>>()?;
        let headers = sources.headers.values().map(|t| c(t)).collect::<Result<Vec<_>, _>>()?;
        let options = architecture.options().iter().map(|o| c(o)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let (names, headers, options) = (&pointers(&names), &pointers(&headers), &pointers(&options));
        let mut program = Program(std::ptr::null_mut());
        // SAFETY: all pointers are to strings with a zero at their end, which live to the end of this function; the lists
        // have the lengths given.
        unsafe {
            let count = headers.len() as i32;
            let code = nvrtcCreateProgram(
                &mut program.0,
                source.as_ptr(),
                name.as_ptr(),
                count,
                headers.as_ptr(),
                names.as_ptr(),
            );
            check("taking a source", code)?;
            let code = nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr());
            let p = program.0;
            let log = text("giving its log", |n| nvrtcGetProgramLogSize(p, n), |b| nvrtcGetProgramLog(p, b))?;
            if code == WRONG_SOURCE {
                return Ok(Output { log, ptx: None, cubin: Vec::new() });
            }
            check("compiling", code)?;
            let ptx = text("giving PTX", |n| nvrtcGetPTXSize(p, n), |b| nvrtcGetPTX(p, b))?;
            let mut bytes = 0;
            check("giving machine code", nvrtcGetCUBINSize(p, &mut bytes))?;
            let mut cubin = vec![0u8; bytes];
            check("giving machine code", nvrtcGetCUBIN(p, cubin.as_mut_ptr().cast()))?;
            Ok(Output { log, ptx: Some(ptx), cubin })
        }
    }
}

//! NVIDIA's run-time linker, which is an assembler, too: from PTX to machine code. It needs neither a GPU nor a driver.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::env;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

/// A version that machine code is made with. Two versions can be loaded beside each other.
pub type Version = (u32, u32);

type Handle = *mut c_void;

/// What is used of the library. Answers are numbers: a newer version may have others than are known here.
pub struct Assembler {
    create: unsafe extern "C" fn(*mut Handle, c_uint, *const *const c_char) -> c_int,
    add: unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int,
    complete: unsafe extern "C" fn(Handle) -> c_int,
    code_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    code: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    errors_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    errors: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    infos_size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    infos: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    /// It stays loaded for as long as its functions may be called.
    _library: Library,
}

/// Options beside the architecture: the assembler's figures go to the log.
pub const OPTIONS: [&str; 2] = ["-O3", "-Xptxas=-v"];

/// `CU_JIT_INPUT_PTX`, as the library numbers it.
const PTX: c_int = 2;

/// The library of that version, from the folders that the environment variable `RUNNER_NVJITLINK` names, with `:` between.
///
/// # Errors
/// None of them has it.
pub fn find(version: Version) -> Result<Assembler, String> {
    let (major, minor) = version;
    let folders = env::var_os("RUNNER_NVJITLINK").unwrap_or_default();
    // A newer version has the functions of older ones, so the one that has no function of the next version is taken.
    let mut fits: Vec<Assembler> = Vec::new();
    for folder in env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()) {
        let library = open(&folder.join(format!("libnvJitLink.so.{major}")))?;
        // SAFETY: it is only looked whether there is one.
        let newer: Option<*const c_void> =
            unsafe { symbol(&library, &format!("__nvJitLinkCreate_{major}_{}", minor + 1)) };
        if newer.is_none()
            && let Some(found) = load(library, version)
        {
            fits.push(found);
        }
    }
    fits.into_iter().next().ok_or_else(|| {
        format!(
            "no folder of RUNNER_NVJITLINK has nvJitLink {major}.{minor} (pip install nvidia-nvjitlink-cu12=={major}.{minor}.*)"
        )
    })
}

/// Its symbols are for this handle alone, as another version may be loaded, too.
fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: NVIDIA's libraries do nothing at loading but set up themselves.
    let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    opened.map_err(|e| format!("{}: {e}", path.display()))
}

/// A function of the library.
///
/// # Safety
/// `F` is its type.
unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller's word.
    unsafe { library.get::<F>(name.as_bytes()).ok().map(|found| *found) }
}

fn load(library: Library, (major, minor): Version) -> Option<Assembler> {
    let name = |function: &str| format!("__nvJitLink{function}_{major}_{minor}");
    // SAFETY: these are the functions' types in every version of the library.
    unsafe {
        Some(Assembler {
            create: symbol(&library, &name("Create"))?,
            add: symbol(&library, &name("AddData"))?,
            complete: symbol(&library, &name("Complete"))?,
            code_size: symbol(&library, &name("GetLinkedCubinSize"))?,
            code: symbol(&library, &name("GetLinkedCubin"))?,
            errors_size: symbol(&library, &name("GetErrorLogSize"))?,
            errors: symbol(&library, &name("GetErrorLog"))?,
            infos_size: symbol(&library, &name("GetInfoLogSize"))?,
            infos: symbol(&library, &name("GetInfoLog"))?,
            destroy: symbol(&library, &name("Destroy"))?,
            _library: library,
        })
    }
}

/// Machine code, and what the assembler says of it.
pub struct Assembled {
    pub code: Vec<u8>,
    pub log: String,
}

impl Assembler {
    /// Assembles PTX for an architecture, as 80 for sm_80.
    ///
    /// # Errors
    /// What the assembler says.
    pub fn assemble(&self, name: &str, ptx: &str, architecture: u32) -> Result<Assembled, String> {
        let c = |text: &str| CString::new(text).map_err(|e| e.to_string());
        let (name, ptx) = (c(name)?, c(ptx)?);
        let own = [format!("-arch=sm_{architecture}")];
        let options = own.iter().map(String::as_str).chain(OPTIONS).map(c).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointers are to strings and locals that live until the calls are done; the handle is destroyed once.
        unsafe {
            let made = (self.create)(&mut handle, options.len() as c_uint, options.as_ptr());
            if made != 0 {
                return Err(format!("the assembler does not start ({made})"));
            }
            let text = ptx.as_bytes_with_nul();
            let mut code = (self.add)(handle, PTX, text.as_ptr().cast(), text.len(), name.as_ptr());
            if code == 0 {
                code = (self.complete)(handle);
            }
            let result = if code == 0 { self.taken(handle) } else { Err(log(handle, self.errors_size, self.errors)) };
            (self.destroy)(&mut handle);
            result
        }
    }

    /// # Safety
    /// The handle's work is complete.
    unsafe fn taken(&self, handle: Handle) -> Result<Assembled, String> {
        let mut bytes = 0;
        // SAFETY: the buffer is as long as the library says.
        unsafe {
            if (self.code_size)(handle, &mut bytes) != 0 || bytes == 0 {
                return Err("the assembler gives no code".into());
            }
            let mut code = vec![0u8; bytes];
            if (self.code)(handle, code.as_mut_ptr().cast()) != 0 {
                return Err("the assembler gives no code".into());
            }
            Ok(Assembled { code, log: log(handle, self.infos_size, self.infos) })
        }
    }
}

/// A log that is handed out in two calls.
///
/// # Safety
/// The handle lives, and the functions are those of one log.
unsafe fn log(
    handle: Handle,
    size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
    fill: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
) -> String {
    let mut bytes = 0;
    // SAFETY: the buffer is longer than the library says.
    unsafe {
        if size(handle, &mut bytes) != 0 {
            return String::new();
        }
        let mut buffer = vec![0u8; bytes + 1];
        fill(handle, buffer.as_mut_ptr().cast());
        let end = buffer.iter().position(|b| *b == 0).unwrap_or(bytes);
        String::from_utf8_lossy(&buffer[..end]).into_owned()
    }
}

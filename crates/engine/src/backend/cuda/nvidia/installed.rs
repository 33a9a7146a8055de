//! NVIDIA's libraries for GPUs: which there are, where, and in which version. None of them is needed.
//!
//! A library that is found is loaded by its path and stays loaded. From then on it is found under its plain name, too,
//! wherever it lies: that is how cudarc, which knows fewer places, comes by it.

mod folders;

use folders::Machine;
#[cfg(not(unix))]
use libloading::Library as Loaded;
#[cfg(unix)]
use libloading::os::unix::Library as Loaded;
use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One of NVIDIA's libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Library {
    /// Matrix products with epilogues.
    CublasLt,
    /// The classic matrix library.
    Cublas,
    /// Convolutions.
    Cudnn,
    /// Messages between several GPUs.
    Nccl,
    /// The compiler of kernels at run time.
    Nvrtc,
}

/// The libraries that this version computes with where they are found.
pub const USED: &[Library] = &[Library::CublasLt, Library::Cudnn, Library::Nccl];

impl Library {
    /// All of them.
    pub const ALL: [Library; 5] = [Library::CublasLt, Library::Cublas, Library::Cudnn, Library::Nccl, Library::Nvrtc];

    /// As NVIDIA writes it.
    pub fn name(self) -> &'static str {
        match self {
            Library::CublasLt => "cuBLASLt",
            Library::Cublas => "cuBLAS",
            Library::Cudnn => "cuDNN",
            Library::Nccl => "NCCL",
            Library::Nvrtc => "NVRTC",
        }
    }

    /// Whether this version computes with it.
    pub fn is_used(self) -> bool {
        USED.contains(&self)
    }

    /// What its absence costs.
    pub fn cost(self) -> &'static str {
        match (self, self.is_used()) {
            (Library::Nccl, true) => "several GPUs cannot train together; one needs nothing of it",
            (Library::CublasLt, true) => "matrix products are computed by our own kernels",
            (Library::Cudnn, true) => "convolutions are computed by our own kernels",
            (Library::CublasLt | Library::Cudnn, false) => {
                "costs nothing, for this version has kernels of its own and does not use it"
            }
            (Library::Cublas, _) => "costs nothing, for it is not used",
            (Library::Nccl, false) => "costs nothing, for this version trains on one GPU",
            (Library::Nvrtc, _) => "costs nothing, for the kernels travel in this program",
        }
    }

    /// Names of its file, the newest that are known to fit first.
    fn files(self) -> Vec<String> {
        let (stem, versions): (_, &[&str]) = match self {
            Library::CublasLt => ("libcublasLt", &[".13", ".12", ""]),
            Library::Cublas => ("libcublas", &[".13", ".12", ""]),
            Library::Cudnn => ("libcudnn", &[".9", ""]),
            Library::Nccl => ("libnccl", &[".2", ""]),
            Library::Nvrtc => ("libnvrtc", &[".13", ".12", ""]),
        };
        versions.iter().map(|v| format!("{stem}.so{v}")).collect()
    }

    /// Asks a loaded library for its version; `None` if it cannot say.
    fn version(self, loaded: &Loaded) -> Option<String> {
        let split =
            |v: usize, parts: [usize; 2]| format!("{}.{}.{}", v / parts[0], v % parts[0] / parts[1], v % parts[1]);
        // SAFETY: the functions have these signatures in every version that has them; they need no device, and the
        // pointers are to locals.
        unsafe {
            match self {
                Library::CublasLt => {
                    let ask = loaded.get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetVersion\0").ok()?;
                    Some(split(ask(), [10_000, 100]))
                }
                Library::Cublas => {
                    let ask =
                        loaded.get::<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(b"cublasGetProperty\0").ok()?;
                    let mut parts = [0; 3];
                    for (which, part) in parts.iter_mut().enumerate() {
                        if ask(which as c_int, part) != 0 {
                            return None;
                        }
                    }
                    Some(parts.map(|p: c_int| p.to_string()).join("."))
                }
                Library::Cudnn => {
                    let ask = loaded.get::<unsafe extern "C" fn() -> usize>(b"cudnnGetVersion\0").ok()?;
                    let v = ask();
                    // Four digits up to 8.9, five from 9.0 on.
                    Some(split(v, if v < 10_000 { [1000, 100] } else { [10_000, 100] }))
                }
                Library::Nccl => {
                    let ask = loaded.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0").ok()?;
                    let mut v = 0;
                    (ask(&mut v) == 0 && v > 0).then(|| split(v as usize, [10_000, 100]))
                }
                Library::Nvrtc => {
                    let ask =
                        loaded.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion\0").ok()?;
                    let (mut major, mut minor) = (0, 0);
                    (ask(&mut major, &mut minor) == 0).then(|| format!("{major}.{minor}"))
                }
            }
        }
    }
}

/// A library that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its file.
    pub path: PathBuf,
    /// What it says its version is.
    pub version: Option<String>,
}

/// Why a library is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// There is no file of its name.
    NotFound,
    /// A file of its name does not load.
    Broken {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::NotFound => f.write_str("not found"),
            Missing::Broken { path, why } => write!(f, "{} does not load: {why}", path.display()),
        }
    }
}

/// Looks for a library and loads it, for good; the same answer for as long as the process lives.
///
/// # Errors
/// It is not found, or what is found does not load.
pub fn open(library: Library) -> Result<Found, Missing> {
    static OPENED: [OnceLock<Result<Found, Missing>>; 5] = [const { OnceLock::new() }; 5];
    OPENED[library as usize].get_or_init(|| open_in(library, folders())).clone()
}

/// The folders of this machine, looked for once.
fn folders() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let machine =
            Machine { var: &|name| std::env::var_os(name), root: Path::new("/"), driver: mapped("libcuda.so") };
        machine.folders()
    })
}

/// The file of this process's memory whose name begins with `start`.
fn mapped(start: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    files
        .into_iter()
        .find(|file| file.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start)))
        .map(Path::to_path_buf)
}

/// The library from the first of `folders` that has one which loads; else what the system's loader finds by itself.
fn open_in(library: Library, folders: &[PathBuf]) -> Result<Found, Missing> {
    let mut missing = Missing::NotFound;
    for file in library.files() {
        for path in folders.iter().map(|folder| folder.join(&file)).filter(|path| path.is_file()) {
            match load(&path) {
                Ok(loaded) => return Ok(keep(library, loaded, path)),
                Err(why) => {
                    if missing == Missing::NotFound {
                        missing = Missing::Broken { path, why };
                    }
                }
            }
        }
    }
    for file in library.files() {
        if let Ok(loaded) = load(Path::new(&file)) {
            let path = mapped(&file).unwrap_or_else(|| PathBuf::from(&file));
            return Ok(keep(library, loaded, path));
        }
    }
    Err(missing)
}

fn keep(library: Library, loaded: Loaded, path: PathBuf) -> Found {
    let version = library.version(&loaded);
    // It stays: others find it by its name only while it is loaded.
    std::mem::forget(loaded);
    Found { path, version }
}

/// Loads a file so that its symbols are global.
fn load(path: &Path) -> Result<Loaded, String> {
    // SAFETY: NVIDIA's libraries may be loaded at any time; what they do then is what using them means.
    #[cfg(unix)]
    let loaded =
        unsafe { Loaded::open(Some(path), libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_GLOBAL) };
    // SAFETY: as above.
    #[cfg(not(unix))]
    let loaded = unsafe { Loaded::new(path) };
    loaded.map_err(|e| e.to_string())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compiles `code` to `folder/name` with that SONAME; false, with a message, where there is no C compiler.
    fn compile(folder: &Path, name: &str, code: &str) -> bool {
        std::fs::create_dir_all(folder).unwrap();
        let source = folder.join("source.c");
        std::fs::write(&source, code).unwrap();
        let soname = format!("-Wl,-soname,{name}");
        let done =
            Command::new("cc").args(["-shared", "-fPIC", &soname, "-o"]).arg(folder.join(name)).arg(&source).output();
        let Ok(done) = done else {
            eprintln!("skipped: there is no C compiler `cc`");
            return false;
        };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        true
    }

    #[test]
    fn a_library_is_loaded_from_the_first_folder_where_it_loads() {
        let dir = tempfile::tempdir().unwrap();
        let [broken, good, newer] = ["broken", "good", "newer"].map(|n| dir.path().join(n));
        let nvrtc = |major: u32| format!("int nvrtcVersion(int* a, int* b) {{ *a = {major}; *b = 6; return 0; }}");
        if !compile(&good, "libnvrtc.so.12", &nvrtc(12)) {
            return;
        }
        std::fs::create_dir_all(&broken).unwrap();
        std::fs::write(broken.join("libnvrtc.so.12"), "no library").unwrap();
        let found = open_in(Library::Nvrtc, &[broken.clone(), good.clone()]).unwrap();
        assert_eq!(found, Found { path: good.join("libnvrtc.so.12"), version: Some("12.6".into()) });
        // By its plain name it is found now, too.
        assert!(load(Path::new("libnvrtc.so.12")).is_ok());

        compile(&newer, "libnvrtc.so.13", &nvrtc(13));
        let found = open_in(Library::Nvrtc, &[good, newer]).unwrap();
        assert_eq!(found.version.as_deref(), Some("13.6"));
    }

    #[test]
    fn versions_are_read_as_each_library_writes_them() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            (Library::CublasLt, "libcublasLt.so.13", "unsigned long cublasLtGetVersion() { return 130102; }", "13.1.2"),
            (
                Library::Cublas,
                "libcublas.so.12",
                "int cublasGetProperty(int w, int* v) { *v = w == 0 ? 12 : w; return 0; }",
                "12.1.2",
            ),
            (Library::Cudnn, "libcudnn.so.9", "unsigned long cudnnGetVersion() { return 91002; }", "9.10.2"),
            (Library::Nccl, "libnccl.so.2", "int ncclGetVersion(int* v) { *v = 22703; return 0; }", "2.27.3"),
        ];
        for (library, file, code, version) in cases {
            let folder = dir.path().join(library.name());
            if !compile(&folder, file, code) {
                return;
            }
            let found = open_in(library, std::slice::from_ref(&folder)).unwrap();
            assert_eq!(found, Found { path: folder.join(file), version: Some(version.into()) });
        }
    }

    #[test]
    fn libraries_that_do_not_load_are_broken_and_mute_ones_have_no_version() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_path_buf();
        std::fs::write(folder.join("libcudnn.so"), "no library").unwrap();
        match open_in(Library::Cudnn, std::slice::from_ref(&folder)) {
            Err(Missing::Broken { path, why }) => assert!(path == folder.join("libcudnn.so") && !why.is_empty()),
            // This machine has one.
            other => assert!(other.is_ok(), "{other:?}"),
        }
        if compile(&folder.join("mute"), "libnccl.so", "int other() { return 0; }") {
            let found = open_in(Library::Nccl, &[folder.join("mute")]).unwrap();
            assert_eq!(found.version, None);
        }
    }
}

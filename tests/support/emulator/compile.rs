//! Builds the driver and the kernels into one library, once for every state of their sources.
//!
//! `target/emulator/objects` has an object file for every (file, headers, compiler); `target/emulator/<hash>` a library
//! for every state of all. Test binaries that run at the same time wait for the first of them to build.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::kernels;

/// Of all files. No contraction of products and sums: it would make results differ between kinds of processors. Vectors make the fibers of kernels no faster, and
/// would read ahead of need, which the sanitizer would report though the source does not do it.
const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
    "-pthread",
];

/// Of all files, too: without it, a fused multiply-add is a call, of the same result.
fn processor() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("fma") {
        return &["-mfma"];
    }
    &[]
}

/// Of the driver.
const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

/// Of kernels: an access that is not aligned as its type asks is a trap, as it is an error on a GPU.
const KERNEL: [&str; 3] = ["-w", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"];

/// Of kernels that the sanitizer watches: a call at every access, which more optimisation makes no faster, and line numbers for its findings, in the version that all tools
/// read rightly.
const SANITIZED: [&str; 5] = ["-O1", "-fsanitize=thread", "-DEMULATED_SANITIZED=1", "-gdwarf-4", "-g1"];

/// The variable that asks for the sanitizer, unless it is 0; the driver reads its number.
const SANITIZER: &str = "EMULATED_SANITIZER";

/// True if the kernels are to be watched.
pub fn sanitizing() -> bool {
    std::env::var(SANITIZER).is_ok_and(|v| !v.is_empty() && v != "0")
}

/// What kernels are compiled with, beside what all files are.
fn kernel_flags() -> Vec<&'static str> {
    let sanitized: &[&str] = if sanitizing() { &SANITIZED } else { &[] };
    [&KERNEL[..], sanitized].concat()
}

/// Builds that were not used for this long are removed by the next one.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Compilers that run at the same time.
const JOBS: usize = 2;

/// A file to compile.
struct Unit {
    path: PathBuf,
    kernels: bool,
}

fn sources(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e)));
    found.sort();
    found
}

fn hash(parts: &[Vec<u8>]) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    }
    sha.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first compiler that answers, and what it says of itself.
fn compiler() -> Result<(String, Vec<u8>), String> {
    let named = std::env::var("CXX").ok().into_iter();
    for name in named.chain(["g++", "c++", "clang++"].map(String::from)) {
        if let Ok(Output { status, stdout, .. }) = Command::new(&name).arg("--version").output()
            && status.success()
        {
            return Ok((name, stdout));
        }
    }
    Err("no C++ compiler was found (g++, c++, clang++, or what CXX names)".to_owned())
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the emulated CUDA driver does not build: {command:?}\n{stderr}");
    output.stdout
}

/// Holds the lock until it is dropped.
fn locked(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    // SAFETY: the descriptor is open as long as `file` lives.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Removes what was last changed long ago.
fn remove_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let changed = entry.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::now());
        if changed.elapsed().is_ok_and(|age| age > KEPT) && entry.file_name() != "objects" {
            let path = entry.path();
            // Whatever cannot be removed only takes room.
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

/// Folder of a library with the driver and all kernels as they are now. An error if there is no compiler.
pub fn library() -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("it needs Linux".to_owned());
    }
    let (compiler, version) = compiler()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = root.join("tests/support/emulator");
    let texts = |folders: &[PathBuf]| -> Vec<Vec<u8>> {
        let headers = folders.iter().flat_map(|folder| sources(folder, &["h", "cuh"]));
        headers.map(|path| read(&path)).collect()
    };
    // What kernels and driver both see, and what one of them does.
    let device = texts(&[own.clone(), own.join("device")]);
    let of_kernels = texts(&[root.join("kernels/cuda"), own.join("cases")]);
    let of_driver = texts(&[own.join("driver")]);
    let mut units = Vec::new();
    for (folder, kernels) in [(root.join("kernels/cuda"), true), (own.join("cases"), true), (own.join("driver"), false)]
    {
        let found = sources(&folder, &["cu", "cpp"]);
        units.extend(found.into_iter().map(|path| Unit { path, kernels }));
    }

    let flags = [&FLAGS[..], processor(), &STRICT[..], &KERNEL[..]].concat().join(" ").into_bytes();
    let watched = if sanitizing() { SANITIZED.join(" ").into_bytes() } else { Vec::new() };
    let mut common = vec![version, flags, read(&own.join("compile.rs")), read(&own.join("kernels.rs"))];
    common.extend(device);
    let keys: Vec<String> = units
        .iter()
        .map(|unit| {
            let path = unit.path.as_os_str().as_encoded_bytes().to_vec();
            let (headers, watched) =
                if unit.kernels { (&of_kernels, watched.clone()) } else { (&of_driver, Vec::new()) };
            hash(&[common.as_slice(), headers, &[path, read(&unit.path), watched]].concat())
        })
        .collect();

    // Beside `target/tmp`, the folder that Cargo names to integration tests.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("emulator");
    let folder = target.join(hash(&[keys.concat().into_bytes()]));
    let library = folder.join("libcuda.so");
    if library.exists() {
        return Ok(folder);
    }
    let objects = target.join("objects");
    let fail = |e: io::Error| panic!("{}: {e}", target.display());
    fs::create_dir_all(&objects).unwrap_or_else(fail);
    let lock = locked(&target.join("lock")).unwrap_or_else(|e| panic!("{}: {e}", target.display()));
    if library.exists() {
        return Ok(folder);
    }
    remove_old(&target);
    remove_old(&objects);
    let built = compile_all(&compiler, &own.join("emulated.h"), &units, &keys, &objects);
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let partial = folder.join("partial.so");
    // The name by which it is known once it is loaded: code that looks for `libcuda.so` then gets this one.
    run(Command::new(&compiler)
        .args(["-shared", "-pthread", "-Wl,-soname,libcuda.so", "-Wl,-z,defs", "-o"])
        .arg(&partial)
        .args(&built));
    let link = folder.join("libcuda.so.1");
    if !link.exists() {
        std::os::unix::fs::symlink("libcuda.so", &link).unwrap_or_else(|e| panic!("{}: {e}", link.display()));
    }
    fs::rename(&partial, &library).unwrap_or_else(|e| panic!("{}: {e}", library.display()));
    drop(lock);
    Ok(folder)
}

/// The libraries beside the driver, each of one file: `libcublasLt.so` of `cublaslt.cpp`.
const LIBRARIES: [(&str, &str); 3] = [("cublaslt", "libcublasLt.so"), ("cudnn", "libcudnn.so"), ("nccl", "libnccl.so")];

/// Parts of cuDNN, which must lie beside it.
const PARTS: [&str; 6] = ["graph", "ops", "cnn", "heuristic", "engines_precompiled", "engines_runtime_compiled"];

/// Folder of the test doubles of NVIDIA's libraries, which compute on the emulated driver. An error if there is no compiler.
pub fn libraries() -> Result<PathBuf, String> {
    let driver = library()?;
    let (compiler, _) = compiler()?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/emulator/libraries");
    let headers =
        ["fake.h", "cudnn_descriptor.h", "cudnn_problem.h"].map(|header| read(&sources.join(header))).concat();
    let target = driver.parent().expect("the driver is in a folder of a folder");
    let code = LIBRARIES.map(|(source, _)| read(&sources.join(source).with_extension("cpp")));
    let flags = [&FLAGS[..], processor()].concat().join(" ").into_bytes();
    let folder = target.join(format!("libraries-{}", hash(&[code.concat(), headers, flags])));
    let done = folder.join("done");
    let _lock = locked(&target.join("lock")).unwrap_or_else(|e| panic!("{}: {e}", target.display()));
    if !done.exists() {
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for (source, file) in LIBRARIES {
            let soname = format!("-Wl,-soname,{file}");
            let source = sources.join(source).with_extension("cpp");
            let last = ["-shared", &soname, "-o"];
            run(Command::new(&compiler)
                .args(FLAGS)
                .args(processor())
                .args(STRICT)
                .args(last)
                .arg(folder.join(file))
                .arg(source)
                .arg("-ldl"));
        }
        for part in PARTS {
            let link = folder.join(format!("libcudnn_{part}.so.9"));
            if !link.exists() {
                std::os::unix::fs::symlink("libcudnn.so", &link).unwrap_or_else(|e| panic!("{}: {e}", link.display()));
            }
        }
        fs::write(&done, "").unwrap_or_else(|e| panic!("{}: {e}", done.display()));
    }
    Ok(folder)
}

/// Builds a library of one file of C++.
pub fn shared_library(code: &str, to: &Path) {
    let (compiler, _) = compiler().unwrap_or_else(|e| panic!("{e}"));
    let source = to.with_extension("cpp");
    fs::write(&source, code).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    run(Command::new(compiler).args(["-shared", "-fPIC", "-o"]).arg(to).arg(source));
}

/// Object files of all units, compiled unless they are there.
fn compile_all(compiler: &str, header: &Path, units: &[Unit], keys: &[String], objects: &Path) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = keys.iter().map(|key| objects.join(format!("{key}.o"))).collect();
    let next = AtomicUsize::new(0);
    // The first failure, so that it is reported once and whole.
    let failed: Mutex<Option<String>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < units.len()) {
                    if paths[i].exists() || failed.lock().unwrap().is_some() {
                        continue;
                    }
                    if let Err(message) = compile(compiler, header, &units[i], &paths[i]) {
                        failed.lock().unwrap().get_or_insert(message);
                    }
                }
            });
        }
    });
    if let Some(message) = failed.into_inner().unwrap() {
        panic!("the emulated CUDA driver does not build: {message}");
    }
    paths
}

fn compile(compiler: &str, header: &Path, unit: &Unit, object: &Path) -> Result<(), String> {
    let partial = object.with_extension("partial.o");
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(processor());
    let path = if unit.kernels {
        let preprocessed = Command::new(compiler)
            .args(["-E", "-P", "-std=c++17", "-xc++", "-DRUNNER_EMULATED=1", "-D__launch_bounds__(...)="])
            .arg(&unit.path)
            .output()
            .map_err(|e| format!("{compiler}: {e}"))?;
        if !preprocessed.status.success() {
            let stderr = String::from_utf8_lossy(&preprocessed.stderr);
            return Err(format!("{}\n{stderr}", unit.path.display()));
        }
        let found = kernels::names(&String::from_utf8_lossy(&preprocessed.stdout));
        let source = object.with_extension("cpp");
        fs::write(&source, kernels::source(header, &unit.path, &found))
            .map_err(|e| format!("{}: {e}", source.display()))?;
        command.args(kernel_flags());
        source
    } else {
        command.args(STRICT);
        unit.path.clone()
    };
    let output =
        command.arg("-c").arg(path).arg("-o").arg(&partial).output().map_err(|e| format!("{compiler}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{}\n{}", unit.path.display(), String::from_utf8_lossy(&output.stderr)));
    }
    fs::rename(&partial, object).map_err(|e| format!("{}: {e}", object.display()))
}

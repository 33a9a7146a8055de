//! The modules compiled, once for all tests of this binary, and what the assembler says of them.

use crate::nvrtc::{self, Nvrtc, Output};
use crate::packed::{self, Packed};
use crate::sources::{Architecture, Sources};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

/// A module for an architecture.
pub struct Compiled {
    /// `matmul`
    pub module: String,
    /// What for.
    pub architecture: Architecture,
    /// What NVRTC said, if it failed or warned.
    messages: String,
    /// Its PTX; empty if it did not compile.
    pub ptx: String,
    /// Its machine code; empty if it did not compile.
    pub cubin: Vec<u8>,
    /// Its kernels, by name.
    pub kernels: Vec<Kernel>,
}

/// What the assembler says of a kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    /// `mean_pool_bf16`
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory whose size is known ahead.
    pub shared: u32,
    /// Bytes of a thread's stack in device memory, spilled registers and arrays.
    pub stack: u32,
    /// Bytes of registers written to device memory because there were too few.
    pub spills: u32,
}

impl Compiled {
    /// What is wrong with it.
    pub fn complaint(&self) -> Option<String> {
        let fault = match (self.ptx.is_empty(), self.messages.contains("warning")) {
            (true, _) => "does not compile",
            (false, true) => "compiles with warnings",
            (false, false) => return None,
        };
        Some(format!("kernels/{}.cu {fault} for {}:\n{}", self.module, self.architecture.name(), self.messages))
    }
}

/// All of them, in order of modules and architectures.
///
/// # Errors
/// There is no NVRTC: why.
pub fn compiled() -> Result<&'static [Compiled], String> {
    static ALL: OnceLock<Result<Vec<Compiled>, String>> = OnceLock::new();
    ALL.get_or_init(compile_all).as_deref().map_err(Clone::clone)
}

/// The modules of products, whose many kernels take four fifths of the time that all take.
const LONG: [&str; 4] = ["attention", "attention_far", "conv", "matmul"];

/// True where every module is compiled for every architecture: a source has changed since the kernels were packed, or `RUNNER_KERNELS=all` asks for it. Where
/// none has, the same sources were looked at then. [`Architecture::CHECKED`] alone is compiled for, and of the modules in [`LONG`] what travels in the binary is
/// looked at.
pub fn whole() -> bool {
    static WHOLE: OnceLock<bool> = OnceLock::new();
    *WHOLE.get_or_init(|| {
        let sources = Sources::read();
        let packed = |(module, architecture): (&String, Architecture)| {
            Packed::of(module, architecture).read_stamp() == packed::stamp(&sources, module, architecture)
        };
        let mut all = sources.modules.keys().flat_map(|module| Architecture::PACKED.map(|of| (module, of)));
        std::env::var("RUNNER_KERNELS").is_ok_and(|which| which == "all") || crate::updating() || !all.all(packed)
    })
}

/// The architectures that are looked at.
pub fn checked() -> &'static [Architecture] {
    if whole() { &Architecture::ALL } else { &[Architecture::CHECKED] }
}

/// The modules that are not compiled, but looked at as they are packed.
pub fn as_packed() -> &'static [&'static str] {
    if whole() { &[] } else { &LONG }
}

fn compile_all() -> Result<Vec<Compiled>, String> {
    let nvrtc = nvrtc::find()?;
    let version = nvrtc.version()?;
    let start = Instant::now();
    let sources = Sources::read();
    let modules = sources.modules.keys().filter(|module| !as_packed().contains(&module.as_str()));
    let mut work: Vec<(&String, Architecture)> =
        modules.flat_map(|module| checked().iter().map(move |a| (module, *a))).collect();
    // The largest first, so that no thread is left with one at the end.
    work.sort_by_key(|(module, _)| std::cmp::Reverse(sources.modules[*module].len()));
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(work.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((module, architecture)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = cached(nvrtc, version, &sources, module, *architecture);
                    done.lock().unwrap().push(output.map(|output| Compiled {
                        module: module.to_string(),
                        architecture: *architecture,
                        kernels: kernels(&output.log),
                        messages: messages(&output.log),
                        ptx: without_call_numbers(&output.ptx.unwrap_or_default()),
                        cubin: output.cubin,
                    }));
                }
            });
        }
    });
    let mut list: Vec<Compiled> = done.into_inner().unwrap().into_iter().collect::<Result<_, _>>()?;
    list.sort_by(|a, b| (&a.module, a.architecture).cmp(&(&b.module, b.architecture)));
    let (seconds, folder) = (start.elapsed().as_secs_f64(), nvrtc.folder.display());
    println!("{} modules in {seconds:.1} s, by NVRTC {}.{} of {folder}", list.len(), version.0, version.1);
    Ok(list)
}

/// Compiles a module, or takes what the same NVRTC made of the same sources before: all of them together take minutes.
fn cached(
    nvrtc: &Nvrtc,
    (major, minor): (i32, i32),
    sources: &Sources,
    module: &str,
    architecture: Architecture,
) -> Result<Output, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    let path = folder.join(format!("{module}.{}.nvrtc-{major}.{minor}", architecture.name()));
    let hash = sources.hash(module, architecture);
    let known = fs::read_to_string(&path).unwrap_or_default();
    let code = folder.join(format!("{module}.{}.nvrtc-{major}.{minor}.cubin", architecture.name()));
    let mut parts = known.splitn(3, '\0');
    if let (Some(of), Some(log), Some(ptx)) = (parts.next(), parts.next(), parts.next())
        && of == hash
        && let Ok(cubin) = fs::read(&code)
    {
        return Ok(Output { log: log.into(), ptx: Some(ptx.into()), cubin });
    }
    let output = nvrtc.compile(sources, module, architecture)?;
    if let Some(ptx) = &output.ptx {
        // Under another name first: a run beside this one must not read half a file. Without the file, the next run is slow.
        // The text comes last, and says of what both are.
        let part = path.with_extension(format!("part-{}", std::process::id()));
        let written = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&part, &output.cubin))
            .and_then(|()| fs::rename(&part, &code))
            .and_then(|()| fs::write(&part, format!("{hash}\0{}\0{ptx}", output.log)))
            .and_then(|()| fs::rename(&part, &path));
        if let Err(e) = written {
            println!("{}: {e}", path.display());
        }
    }
    Ok(output)
}

/// The PTX without the numbers of calls in its comments: NVRTC counts on from module to module of a process, so that they
/// depend on what else was compiled before.
fn without_call_numbers(ptx: &str) -> String {
    let mut kept = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        kept.push_str(line.split_once(" // callseq ").map_or(line, |(code, _)| code));
        if kept.as_bytes().last() != Some(&b'\n') && line.ends_with('\n') {
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn numbers_of_calls_are_left_out() {
    let ptx = "\t{ // callseq 2, 0\n\tcall.uni powf; // the power\n\t} // callseq 2\n\tret;";
    assert_eq!(without_call_numbers(ptx), "\t{\n\tcall.uni powf; // the power\n\t}\n\tret;");
}

/// The log without the assembler's figures.
fn messages(log: &str) -> String {
    let figures = |line: &&str| line.starts_with("ptxas info") || line.contains("bytes stack frame");
    log.lines().filter(|line| !figures(line)).collect::<Vec<_>>().join("\n")
}

/// The kernels in a log of the assembler's `-v`.
pub fn kernels(log: &str) -> Vec<Kernel> {
    let mut found: Vec<Kernel> = Vec::new();
    // A kernel's own figures follow those of functions that it calls.
    let mut own = false;
    for line in log.lines() {
        if let Some(name) = between(line, "Compiling entry function '", "'") {
            found.push(Kernel { name: name.into(), registers: 0, shared: 0, stack: 0, spills: 0 });
        }
        let Some(kernel) = found.last_mut() else { continue };
        if let Some((_, function)) = line.split_once("Function properties for ") {
            own = function.trim() == kernel.name;
        }
        if let (Some(stack), true) = (before(line, " bytes stack frame"), own) {
            kernel.stack = stack;
            kernel.spills =
                before(line, " bytes spill stores").unwrap_or(0) + before(line, " bytes spill loads").unwrap_or(0);
        }
        if let Some(registers) = before(line, " registers") {
            kernel.registers = registers;
            kernel.shared = before(line, " bytes smem").unwrap_or(0);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn between<'a>(line: &'a str, open: &str, close: &str) -> Option<&'a str> {
    line.split_once(open)?.1.split_once(close).map(|(inside, _)| inside)
}

/// The number that stands before `what`.
fn before(line: &str, what: &str) -> Option<u32> {
    let head = line.split_once(what)?.0;
    head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn logs_are_understood() {
    let log = "matmul.cu(7): warning #177-D: variable \"x\" was declared but never referenced\n\
               ptxas info    : 0 bytes gmem\n\
               ptxas info    : Compiling entry function 'gemm_f32' for 'sm_80'\n\
               ptxas info    : Function properties for slow_path\n\
               \x20   64 bytes stack frame, 60 bytes spill stores, 60 bytes spill loads\n\
               ptxas info    : Function properties for gemm_f32\n\
               \x20   8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
               ptxas info    : Used 128 registers, used 1 barriers, 49152 bytes smem, 388 bytes cmem[0]\n\
               ptxas info    : Compiling entry function 'add_f32' for 'sm_80'\n\
               ptxas info    : Function properties for add_f32\n\
               \x20   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               ptxas info    : Used 9 registers, 388 bytes cmem[0]\n";
    assert_eq!(
        kernels(log),
        [
            Kernel { name: "add_f32".into(), registers: 9, shared: 0, stack: 0, spills: 0 },
            Kernel { name: "gemm_f32".into(), registers: 128, shared: 49152, stack: 8, spills: 16 },
        ]
    );
    assert_eq!(messages(log), log.lines().next().unwrap());
}

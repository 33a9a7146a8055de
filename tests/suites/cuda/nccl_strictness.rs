//! The test double of NCCL ends the program at calls that the real one might not take, or might wait in for ever: each mistake here is made in a
//! process of its own.

use super::emulator;
use cudarc::driver::sys as cu;
use runner::backend::cuda::CudaBackend;
use std::ffi::{CStr, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;

/// A mistake, and a word of what is said then.
const MISTAKES: [(&str, &str); 10] = [
    ("a configuration that blocks", "config->blocking == 0"),
    ("a send outside of a group", "pending.open"),
    ("nothing in a group", "pending.of"),
    ("a message to itself", "peer != comm->rank"),
    ("elements that are no bytes", "type == UINT8"),
    ("lengths that differ", "sends 512 bytes, and rank"),
    ("an address outside of an allocation", "holds(message.at"),
    ("a first exchange in a capture", "comm.connected.count"),
    ("a call while another is not through", "comm->progress == SUCCESS"),
    ("used after it was aborted", "alive.count"),
];

type Raw = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    numbers: [c_int; 4],
    name: Raw,
    last: c_int,
}

/// The library's functions as they are.
struct Nccl {
    file: PathBuf,
}

impl Nccl {
    fn function(&self, name: &CStr) -> *mut c_void {
        emulator::function_in(&self.file, name)
    }

    fn id(&self) -> UniqueId {
        let mut id = UniqueId([0; 128]);
        // SAFETY: this is the function's type.
        let make: extern "C" fn(*mut UniqueId) -> c_int =
            unsafe { std::mem::transmute(self.function(c"ncclGetUniqueId")) };
        assert_eq!(make(&mut id), 0);
        id
    }

    fn join(&self, id: UniqueId, rank: c_int, blocking: c_int) -> Raw {
        let numbers = [blocking, c_int::MIN, c_int::MIN, c_int::MIN];
        let (size, magic, version) = (size_of::<Config>(), 0xcafe_beef, 21_700);
        let mut config = Config { size, magic, version, numbers, name: null_mut(), last: c_int::MIN };
        let mut comm = null_mut();
        // SAFETY: as above.
        let join: extern "C" fn(*mut Raw, c_int, UniqueId, c_int, *mut Config) -> c_int =
            unsafe { std::mem::transmute(self.function(c"ncclCommInitRankConfig")) };
        assert_eq!(join(&mut comm, 2, id, rank, &mut config), 7);
        comm
    }

    /// Waits until what was called is through.
    fn through(&self, comm: Raw) {
        // SAFETY: as above.
        let ask: extern "C" fn(Raw, *mut c_int) -> c_int =
            unsafe { std::mem::transmute(self.function(c"ncclCommGetAsyncError")) };
        let mut state = 7;
        while state == 7 {
            assert_eq!(ask(comm, &mut state), 0);
        }
        assert_eq!(state, 0);
    }

    fn call(&self, name: &CStr) -> c_int {
        // SAFETY: the functions that are called this way take nothing.
        let call: extern "C" fn() -> c_int = unsafe { std::mem::transmute(self.function(name)) };
        call()
    }

    fn message(
        &self,
        name: &CStr,
        (at, bytes, kind): (u64, usize, c_int),
        peer: c_int,
        comm: Raw,
        stream: cu::CUstream,
    ) {
        // SAFETY: as above.
        let call: extern "C" fn(u64, usize, c_int, c_int, Raw, cu::CUstream) -> c_int =
            unsafe { std::mem::transmute(self.function(name)) };
        assert_eq!(call(at, bytes, kind, peer, comm, stream), 0);
    }
}

/// An exchange between two devices by the book but for `mistake`.
fn exchange(mistake: &str) {
    let made = |name: &str| {
        assert!(name.is_empty() || MISTAKES.iter().any(|(m, _)| *m == name), "{name}");
        mistake == name
    };
    let nccl = Nccl { file: emulator::nvidia_library("libnccl.so").unwrap() };
    let backends = [0, 1].map(|ordinal| CudaBackend::new(ordinal).unwrap());
    let id = nccl.id();
    let mut ranks = Vec::new();
    for (rank, backend) in backends.iter().enumerate() {
        backend.context().bind().unwrap();
        let comm = nccl.join(id, rank as c_int, c_int::from(made("a configuration that blocks")));
        let (mut stream, mut memory) = (null_mut(), 0);
        // SAFETY: the context is current.
        unsafe {
            assert_eq!(cu::cuStreamCreate(&mut stream, 1) as u32, 0);
            assert_eq!(cu::cuMemAlloc_v2(&mut memory, 1 << 12) as u32, 0);
        }
        ranks.push((backend, comm, stream, memory));
    }
    ranks.iter().for_each(|(_, comm, ..)| nccl.through(*comm));
    let capture = made("a first exchange in a capture");
    for (rank, (backend, comm, stream, memory)) in ranks.iter().enumerate() {
        backend.context().bind().unwrap();
        if made("used after it was aborted") {
            // SAFETY: this is the function's type.
            let abort: extern "C" fn(Raw) -> c_int = unsafe { std::mem::transmute(nccl.function(c"ncclCommAbort")) };
            assert_eq!(abort(*comm), 0);
        }
        if capture {
            let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            // SAFETY: the stream lives.
            assert_eq!(unsafe { cu::cuStreamBeginCapture_v2(*stream, mode) } as u32, 0);
        }
        if !made("a send outside of a group") {
            assert_eq!(nccl.call(c"ncclGroupStart"), 0);
        }
        let peer = if made("a message to itself") { rank } else { 1 - rank } as c_int;
        let kind = if made("elements that are no bytes") { 7 } else { 1 };
        let sent = if made("lengths that differ") { 512 } else { 256 };
        let beyond = if made("an address outside of an allocation") { 4000 } else { 0 };
        if !made("nothing in a group") {
            nccl.message(c"ncclSend", (*memory, sent, kind), peer, *comm, *stream);
            nccl.message(c"ncclRecv", (*memory + 1024 + beyond, 256, kind), peer, *comm, *stream);
        }
        assert_eq!(nccl.call(c"ncclGroupEnd"), 7);
        if made("a call while another is not through") {
            assert_eq!(nccl.call(c"ncclGroupStart"), 0);
            nccl.message(c"ncclSend", (*memory, sent, kind), peer, *comm, *stream);
        }
        nccl.through(*comm);
    }
    for (backend, _, stream, _) in &ranks {
        backend.context().bind().unwrap();
        // SAFETY: the stream lives.
        assert_eq!(unsafe { cu::cuStreamSynchronize(*stream) } as u32, 0);
    }
}

/// The variable that names the mistake of a child.
const MISTAKE: &str = "RUNNER_TEST_NCCL_MISTAKE";

/// In a process of its own.
#[test]
fn child() {
    if let Ok(mistake) = std::env::var(MISTAKE)
        && emulator::emulated()
    {
        exchange(&mistake);
    }
}

#[test]
fn calls_that_are_not_allowed_end_the_program() {
    if !emulator::only_emulated() || emulator::nvidia_library("libnccl.so").is_none() {
        return;
    }
    let run = |mistake: &str| {
        // A child that is ended leaves the folder in which its ranks meet.
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "nccl_strictness::child"]).env("EMULATED_DEVICES", "2");
        command.env("TMPDIR", temporary.path()).env(MISTAKE, mistake).output().unwrap()
    };
    let right = run("");
    assert!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
    assert!(String::from_utf8_lossy(&right.stdout).contains("1 passed"));
    for (mistake, part) in MISTAKES {
        let child = run(mistake);
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success(), "{mistake}: it went on");
        assert!(said.contains(part), "{mistake}: {said}");
    }
}

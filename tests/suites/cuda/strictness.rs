//! The test double of cuDNN ends the program at calls that the library's documentation does not allow: each mistake here is
//! made in a process of its own.

use super::emulator;
use cudarc::driver::sys as cu;
use runner::backend::cuda::CudaBackend;
use std::ffi::{CStr, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;

/// A mistake, and a word of the condition that does not hold then.
const MISTAKES: [(&str, &str); 22] = [
    ("strides missing", "rule.needed"),
    ("channels first", "strides[1] == 1"),
    ("attribute of another kind", "rule &&"),
    ("attribute of another type", "rule->type == type"),
    ("too few elements", "count >= rule->least"),
    ("set after it was finalized", "!descriptor->finalized"),
    ("finalized twice", "!descriptor->finalized"),
    ("tensor not finalized", "other->finalized"),
    ("factor missing", "rule.needed"),
    ("two tensors of one number", "uids.insert"),
    ("sizes that do not agree", "room >= 0"),
    ("types that do not agree", "given[0]->type"),
    ("sums in 16 bits", "c->one<int>(100) == 0"),
    ("engine that gives other bits every time", "std::find"),
    ("plan not finalized", "plan->finalized"),
    ("tensor without an address", "uids.size()"),
    ("address of an unknown tensor", "found != uids.end()"),
    ("address that is not aligned", "aligned"),
    ("no workspace", "workspace"),
    ("no stream", "handle->stream"),
    ("first run in a capture", "capturing"),
    ("graph gone before the plan runs", "alive.count"),
];

type Raw = *mut c_void;

/// The library's functions as they are.
struct Dnn {
    file: PathBuf,
}

impl Dnn {
    fn function(&self, name: &CStr) -> *mut c_void {
        emulator::function_in(&self.file, name)
    }

    fn create(&self, kind: c_int) -> Raw {
        let mut made = null_mut();
        // SAFETY: this is the function's type.
        let create: extern "C" fn(c_int, *mut Raw) -> c_int =
            unsafe { std::mem::transmute(self.function(c"cudnnBackendCreateDescriptor")) };
        assert_eq!(create(kind, &mut made), 0);
        made
    }

    fn set<T>(&self, descriptor: Raw, name: c_int, kind: c_int, values: &[T]) {
        // SAFETY: as above.
        let set: extern "C" fn(Raw, c_int, c_int, i64, *const T) -> c_int =
            unsafe { std::mem::transmute(self.function(c"cudnnBackendSetAttribute")) };
        assert_eq!(set(descriptor, name, kind, values.len() as i64, values.as_ptr()), 0);
    }

    fn get(&self, descriptor: Raw, name: c_int, values: &mut [Raw]) {
        let mut count = 0i64;
        // SAFETY: as above.
        let get: extern "C" fn(Raw, c_int, c_int, i64, *mut i64, *mut Raw) -> c_int =
            unsafe { std::mem::transmute(self.function(c"cudnnBackendGetAttribute")) };
        assert_eq!(get(descriptor, name, DESCRIPTOR, values.len() as i64, &mut count, values.as_mut_ptr()), 0);
    }

    fn call(&self, name: &CStr, arguments: [Raw; 3]) {
        // SAFETY: the functions that are called this way take up to three pointers, and look at no more than they take.
        let call: extern "C" fn(Raw, Raw, Raw) -> c_int = unsafe { std::mem::transmute(self.function(name)) };
        let [a, b, c] = arguments;
        assert_eq!(call(a, b, c), 0, "{name:?}");
    }

    fn finalize(&self, descriptor: Raw) {
        self.call(c"cudnnBackendFinalize", [descriptor, null_mut(), null_mut()]);
    }
}

/// Numbers of attributes' types.
const DATA_TYPE: c_int = 1;
const INT64: c_int = 3;
const FLOAT: c_int = 4;
const POINTER: c_int = 6;
const DESCRIPTOR: c_int = 15;

/// A convolution by the book but for `mistake`.
fn convolve(mistake: &str) {
    let made = |name: &str| {
        assert!(name.is_empty() || MISTAKES.iter().any(|(m, _)| *m == name), "{name}");
        mistake == name
    };
    let dnn = Dnn { file: emulator::nvidia_library("libcudnn.so").unwrap() };
    let backend = CudaBackend::new(0).unwrap();
    backend.context().bind().unwrap();
    let mut handle: Raw = null_mut();
    dnn.call(c"cudnnCreate", [(&raw mut handle).cast(), null_mut(), null_mut()]);
    // Bit 0 of the flags: it does not wait for others.
    let mut stream = null_mut();
    // SAFETY: the context is current.
    assert_eq!(unsafe { cu::cuStreamCreate(&mut stream, 1) } as u32, 0);
    if !made("no stream") {
        dnn.call(c"cudnnSetStream", [handle, stream.cast(), null_mut()]);
    }

    let tensor = |number: i64, [n, c, h, w]: [i64; 4], kind: c_int| {
        let tensor = dnn.create(17);
        dnn.set(tensor, 901, DATA_TYPE, &[kind]);
        let dims = [n, c, h, w];
        let kind = if made("attribute of another type") { FLOAT } else { INT64 };
        dnn.set(tensor, 902, kind, if made("too few elements") { &dims[..3] } else { &dims });
        match mistake {
            "strides missing" => {}
            "channels first" => dnn.set(tensor, 903, INT64, &[c * h * w, h * w, w, 1]),
            _ => dnn.set(tensor, 903, INT64, &[h * w * c, 1, w * c, c]),
        }
        dnn.set(tensor, 906, INT64, &[number]);
        dnn.set(tensor, 900, INT64, &[16i64]);
        if made("attribute of another kind") {
            dnn.set(tensor, 106, INT64, &[2i64]);
        }
        if !made("tensor not finalized") {
            dnn.finalize(tensor);
        }
        tensor
    };
    let x = tensor(1, [1, 4, 5, 5], 0);
    // The double needs a workspace for a kernel of fifteen.
    let w = tensor(if made("two tensors of one number") { 1 } else { 2 }, [4, 4, 3, 5], 0);
    let rows = if made("sizes that do not agree") { 4 } else { 3 };
    let y = tensor(3, [1, 4, rows, 1], if made("types that do not agree") { 9 } else { 0 });
    if made("set after it was finalized") {
        dnn.set(y, 906, INT64, &[4i64]);
    }
    if made("finalized twice") {
        dnn.finalize(y);
    }
    let convolution = dnn.create(1);
    dnn.set(convolution, 100, DATA_TYPE, &[if made("sums in 16 bits") { 2 } else { 0 }]);
    dnn.set(convolution, 101, 7, &[1]);
    for (name, value) in [(102, 1i64), (103, 1), (104, 0), (105, 0)] {
        dnn.set(convolution, name, INT64, &[value; 2]);
    }
    dnn.set(convolution, 106, INT64, &[2i64]);
    dnn.finalize(convolution);
    let operation = dnn.create(10);
    for (name, part) in [(702, convolution), (703, w), (704, x), (705, y)] {
        dnn.set(operation, name, DESCRIPTOR, &[part]);
    }
    dnn.set(operation, 700, FLOAT, &[1.0f32]);
    if !made("factor missing") {
        dnn.set(operation, 701, FLOAT, &[0.0f32]);
    }
    dnn.finalize(operation);
    let graph = dnn.create(15);
    dnn.set(graph, 800, 0, &[handle]);
    dnn.set(graph, 801, DESCRIPTOR, &[operation]);
    dnn.finalize(graph);

    let heuristics = dnn.create(4);
    dnn.set(heuristics, 200, 8, &[3]);
    dnn.set(heuristics, 201, DESCRIPTOR, &[graph]);
    dnn.finalize(heuristics);
    let mut configurations = [(); 5].map(|()| dnn.create(3));
    dnn.get(heuristics, 202, &mut configurations);
    let plan = dnn.create(5);
    dnn.set(plan, 400, 0, &[handle]);
    // The last one is of an engine that is right.
    let which = if made("engine that gives other bits every time") { 0 } else { 4 };
    dnn.set(plan, 401, DESCRIPTOR, &[configurations[which]]);
    if !made("plan not finalized") {
        dnn.finalize(plan);
    }

    let mut memory = 0;
    // SAFETY: the context is current. The device's memory is not read before it is written: products of it do not matter.
    assert_eq!(unsafe { cu::cuMemAlloc_v2(&mut memory, 1 << 20) } as u32, 0);
    let pack = dnn.create(16);
    let by = if made("address that is not aligned") { 4 } else { 0 };
    let (mut numbers, mut addresses) = (vec![1i64, 2, 3], vec![memory, memory + 4096, memory + 65_536 + by]);
    if made("tensor without an address") {
        numbers.pop();
        addresses.pop();
    }
    if made("address of an unknown tensor") {
        numbers[0] = 7;
    }
    dnn.set(pack, 1000, INT64, &numbers);
    dnn.set(pack, 1001, POINTER, &addresses);
    dnn.set(pack, 1003, POINTER, &[if made("no workspace") { 0 } else { memory + 131_072 }]);
    dnn.finalize(pack);
    if made("graph gone before the plan runs") {
        dnn.call(c"cudnnBackendDestroyDescriptor", [operation, null_mut(), null_mut()]);
    }
    if made("first run in a capture") {
        let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        assert_eq!(unsafe { cu::cuStreamBeginCapture_v2(stream, mode) } as u32, 0);
    }
    dnn.call(c"cudnnBackendExecute", [handle, plan, pack]);
    // SAFETY: the stream lives.
    assert_eq!(unsafe { cu::cuStreamSynchronize(stream) } as u32, 0);
}

/// The variable that names the mistake of a child.
const MISTAKE: &str = "RUNNER_TEST_MISTAKE";

/// In a process of its own.
#[test]
fn child() {
    if let Ok(mistake) = std::env::var(MISTAKE)
        && emulator::emulated()
    {
        convolve(&mistake);
    }
}

#[test]
fn calls_that_are_not_allowed_end_the_program() {
    if !emulator::only_emulated() || emulator::nvidia_library("libcudnn.so").is_none() {
        return;
    }
    let run = |mistake: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "strictness::child"]).env(MISTAKE, mistake).output().unwrap()
    };
    let right = run("");
    assert!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
    assert!(String::from_utf8_lossy(&right.stdout).contains("1 passed"));
    for (mistake, condition) in MISTAKES {
        let child = run(mistake);
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success(), "{mistake}: it went on");
        assert!(said.contains("does not hold: ") && said.contains(condition), "{mistake}: {said}");
    }
}

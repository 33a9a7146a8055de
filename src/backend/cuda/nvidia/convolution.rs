//! Convolutions by cuDNN, on tensors whose channels come last.

use super::functions::functions;
use super::{LibraryCall, LibraryError, Unusable, answer, started};
use crate::backend::cuda::driver::Context;
use crate::backend::cuda::libraries::Library;
use crate::backend::cuda::stream::Stream;
use crate::graph::DType;
use cudarc::cudnn::sys as dnn;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

/// The major version whose numbers for types and settings are those of the bindings.
const MAJOR: usize = 9;

/// Libraries that version 9 loads when it is first used, and without which it ends the program.
const PARTS: [&str; 5] = ["graph", "ops", "cnn", "heuristic", "engines_precompiled"];

/// Where a workspace begins: at a multiple of this, as the driver's own allocations do.
pub const WORKSPACE_ALIGNMENT: usize = 256;

/// Most bytes of workspace: what is faster by needing more is not worth the memory.
const MOST_WORKSPACE: usize = 256 << 20;

/// Algorithms that there are at most, of one kind.
const CANDIDATES: usize = 10;

/// What of a convolution is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// y of x and w.
    Forward,
    /// x's gradient of y's and w.
    Input,
    /// w's gradient of x and y's.
    Weight,
}

impl Direction {
    /// Algorithms that add up products as a matrix product does, in an order that does not change: those by transforms
    /// (Winograd, Fourier) err more, and those that add atomically give other bits every time.
    fn allowed(self) -> &'static [u32] {
        use dnn::cudnnConvolutionBwdDataAlgo_t as Data;
        use dnn::cudnnConvolutionBwdFilterAlgo_t as Filter;
        use dnn::cudnnConvolutionFwdAlgo_t as Forward;
        const FORWARD: [u32; 2] = [
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM as u32,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM as u32,
        ];
        const INPUT: [u32; 1] = [Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 as u32];
        const WEIGHT: [u32; 1] = [Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 as u32];
        match self {
            Direction::Forward => &FORWARD,
            Direction::Input => &INPUT,
            Direction::Weight => &WEIGHT,
        }
    }
}

/// A convolution without groups, with the same padding on opposite sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// What is computed.
    pub direction: Direction,
    /// Images of a batch.
    pub images: usize,
    /// Height and width of x.
    pub input: [usize; 2],
    /// Channels of x.
    pub inputs: usize,
    /// Height and width of y.
    pub output: [usize; 2],
    /// Channels of y.
    pub outputs: usize,
    /// Height and width of w.
    pub kernel: [usize; 2],
    /// Rows, columns.
    pub stride: [usize; 2],
    /// Rows, columns.
    pub padding: [usize; 2],
    /// Rows, columns.
    pub dilation: [usize; 2],
    /// Element type of x, w and y; sums are of 32 bits.
    pub dtype: DType,
    /// 32-bit operands may be rounded to TF32.
    pub tf32: bool,
}

/// Where a convolution's tensors are.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// x, or its gradient.
    pub x: u64,
    /// w, or its gradient.
    pub w: u64,
    /// y, or its gradient.
    pub y: u64,
    /// The workspace, at a multiple of [`WORKSPACE_ALIGNMENT`].
    pub workspace: u64,
}

/// A descriptor of any kind.
type Raw = *mut c_void;

functions! {
    /// What is used of cuDNN. Descriptors of all kinds are opaque pointers, so that functions of one form have one type.
    Functions {
        cudnnCreate(*mut Raw);
        cudnnDestroy(Raw);
        cudnnSetStream(Raw, *mut c_void);
        cudnnCreateTensorDescriptor(*mut Raw);
        cudnnDestroyTensorDescriptor(Raw);
        cudnnSetTensor4dDescriptor(Raw, dnn::cudnnTensorFormat_t, dnn::cudnnDataType_t, c_int, c_int, c_int, c_int);
        cudnnCreateFilterDescriptor(*mut Raw);
        cudnnDestroyFilterDescriptor(Raw);
        cudnnSetFilter4dDescriptor(Raw, dnn::cudnnDataType_t, dnn::cudnnTensorFormat_t, c_int, c_int, c_int, c_int);
        cudnnCreateConvolutionDescriptor(*mut Raw);
        cudnnDestroyConvolutionDescriptor(Raw);
        cudnnSetConvolution2dDescriptor(
            Raw, c_int, c_int, c_int, c_int, c_int, c_int, dnn::cudnnConvolutionMode_t, dnn::cudnnDataType_t,
        );
        cudnnSetConvolutionMathType(Raw, u32);
        cudnnGetConvolutionForwardAlgorithm_v7(Raw, Raw, Raw, Raw, Raw, c_int, *mut c_int, *mut Candidate);
        cudnnGetConvolutionBackwardDataAlgorithm_v7(Raw, Raw, Raw, Raw, Raw, c_int, *mut c_int, *mut Candidate);
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(Raw, Raw, Raw, Raw, Raw, c_int, *mut c_int, *mut Candidate);
        cudnnGetConvolutionForwardWorkspaceSize(Raw, Raw, Raw, Raw, Raw, u32, *mut usize);
        cudnnGetConvolutionBackwardDataWorkspaceSize(Raw, Raw, Raw, Raw, Raw, u32, *mut usize);
        cudnnGetConvolutionBackwardFilterWorkspaceSize(Raw, Raw, Raw, Raw, Raw, u32, *mut usize);
        cudnnConvolutionForward(
            Raw, *const c_void, Raw, Raw, Raw, Raw, Raw, u32, Raw, usize, *const c_void, Raw, Raw,
        );
        cudnnConvolutionBackwardData(
            Raw, *const c_void, Raw, Raw, Raw, Raw, Raw, u32, Raw, usize, *const c_void, Raw, Raw,
        );
        cudnnConvolutionBackwardFilter(
            Raw, *const c_void, Raw, Raw, Raw, Raw, Raw, u32, Raw, usize, *const c_void, Raw, Raw,
        );
    }
}

/// `cudnnConvolutionFwdAlgoPerf_t`, and those for the gradients, which are the same but for names; enumerations as numbers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Candidate {
    algo: u32,
    status: u32,
    time: f32,
    memory: usize,
    determinism: u32,
    math: u32,
    reserved: [c_int; 3],
}

/// What was chosen for a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Algorithm {
    number: u32,
    math: u32,
    workspace: usize,
}

/// An open cuDNN on a device.
pub struct Dnn {
    functions: Functions,
    /// Used by one thread at a time, for it has the stream.
    handle: Mutex<Handle>,
    context: Arc<Context>,
    /// What was chosen so far; `None` for what the library does not take.
    chosen: Mutex<HashMap<Convolution, Option<Algorithm>>>,
}

struct Handle(Raw);

// SAFETY: a handle may be used from every thread, by one at a time.
unsafe impl Send for Handle {}

impl fmt::Debug for Dnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dnn").field("device", &self.context.info.ordinal).finish_non_exhaustive()
    }
}

fn cudnn(doing: &'static str, code: u32) -> Result<(), LibraryError> {
    answer(Library::Cudnn, doing, code)
}

/// Loads the library, and finds that it is of the right version and complete.
fn load(path: &Path) -> Result<Functions, String> {
    let functions = Functions::load(path)?;
    // SAFETY: the function has had this type since the first version.
    let version =
        unsafe { functions._loaded.get::<unsafe extern "C" fn() -> usize>(b"cudnnGetVersion\0").map(|f| f()) };
    match version {
        // Four digits up to 8.9, five from 9.0 on.
        Ok(v) if v / 10_000 == MAJOR => {}
        Ok(v) => return Err(format!("is another version than {MAJOR} (it says {v})")),
        Err(_) => return Err("does not tell its version".into()),
    }
    for part in PARTS.map(|part| format!("libcudnn_{part}.so.{MAJOR}")) {
        let beside = path.parent().is_some_and(|folder| folder.join(&part).is_file());
        // SAFETY: a part of the library may be loaded at any time.
        if !beside && unsafe { super::functions::Loaded::new(&part) }.is_err() {
            return Err(format!("lacks its part {part}"));
        }
    }
    Ok(functions)
}

/// What a library that was found lacks.
///
/// # Errors
/// It lacks something.
pub fn check(path: &Path) -> Result<(), String> {
    load(path).map(drop)
}

impl Dnn {
    /// Opens the library in `path` for the device of `context`.
    ///
    /// # Errors
    /// It does not load, lacks something, or does not start.
    pub fn open(path: &Path, context: &Arc<Context>) -> Result<Arc<Dnn>, Unusable> {
        let functions = load(path)?;
        context.bind().map_err(|e| e.to_string())?;
        let mut handle = null_mut();
        // SAFETY: the context is current.
        let code = unsafe { (functions.cudnnCreate)(&mut handle) };
        started(Library::Cudnn, code)?;
        if handle.is_null() {
            return Err("gives no handle".to_owned().into());
        }
        let handle = Mutex::new(Handle(handle));
        Ok(Arc::new(Dnn { functions, handle, context: context.clone(), chosen: Mutex::default() }))
    }

    /// Bytes of workspace of a convolution; `None` if the library does not take it.
    pub fn workspace(self: &Arc<Self>, convolution: &Convolution) -> Option<usize> {
        self.algorithm(convolution).map(|a| a.workspace)
    }

    fn algorithm(self: &Arc<Self>, convolution: &Convolution) -> Option<Algorithm> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        *chosen.entry(*convolution).or_insert_with(|| self.choose(convolution).ok().flatten())
    }

    /// Asks the library for the algorithm that it thinks the fastest of those that are allowed.
    fn choose(self: &Arc<Self>, convolution: &Convolution) -> Result<Option<Algorithm>, LibraryError> {
        if self.context.bind().is_err() {
            return Ok(None);
        }
        let call = Descriptors::new(self, convolution)?;
        let f = &self.functions;
        let (ask, size) = match convolution.direction {
            Direction::Forward => (f.cudnnGetConvolutionForwardAlgorithm_v7, f.cudnnGetConvolutionForwardWorkspaceSize),
            Direction::Input => {
                (f.cudnnGetConvolutionBackwardDataAlgorithm_v7, f.cudnnGetConvolutionBackwardDataWorkspaceSize)
            }
            Direction::Weight => {
                (f.cudnnGetConvolutionBackwardFilterAlgorithm_v7, f.cudnnGetConvolutionBackwardFilterWorkspaceSize)
            }
        };
        let ([a, b, result], handle) = (call.order(), self.handle.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut candidates, mut count) = ([Candidate::default(); CANDIDATES], 0);
        // SAFETY: all descriptors live, and there is room for as many candidates as are asked for.
        cudnn("choosing an algorithm", unsafe {
            let most = CANDIDATES as c_int;
            ask(handle.0, a, b, call.convolution, result, most, &mut count, candidates.as_mut_ptr())
        })?;
        for c in &candidates[..count.clamp(0, CANDIDATES as c_int) as usize] {
            let deterministic = c.determinism == dnn::cudnnDeterminism_t::CUDNN_DETERMINISTIC as u32;
            let Some(math) = math_of(convolution, c.math) else { continue };
            if c.status != 0 || !deterministic || !convolution.direction.allowed().contains(&c.algo) {
                continue;
            }
            call.set_math(math)?;
            let mut workspace = 0;
            // SAFETY: as above.
            let code = unsafe { size(handle.0, a, b, call.convolution, result, c.algo, &mut workspace) };
            if code == 0 && workspace <= MOST_WORKSPACE {
                return Ok(Some(Algorithm { number: c.algo, math, workspace }));
            }
        }
        Ok(None)
    }

    /// A convolution ready to be enqueued, if the library takes it.
    ///
    /// # Errors
    /// The library refuses a descriptor.
    pub fn prepare(
        self: &Arc<Self>,
        convolution: &Convolution,
        places: Places,
    ) -> Result<Option<Arc<dyn LibraryCall>>, LibraryError> {
        let Some(algorithm) = self.algorithm(convolution) else { return Ok(None) };
        let call = Descriptors::new(self, convolution)?;
        call.set_math(algorithm.math)?;
        Ok(Some(Arc::new(ConvolutionCall { call, direction: convolution.direction, algorithm, places })))
    }
}

/// The arithmetic to ask for before an algorithm is chosen.
fn wanted_math(convolution: &Convolution) -> u32 {
    let math = match (convolution.dtype, convolution.tf32) {
        // What this says is that 32-bit operands are not rounded, not even to TF32.
        (DType::F32, false) => dnn::cudnnMathType_t::CUDNN_FMA_MATH,
        (DType::F32, true) => dnn::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        _ => dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
    };
    math as u32
}

/// The arithmetic to run a candidate with; `None` if it is not to be run.
fn math_of(convolution: &Convolution, offered: u32) -> Option<u32> {
    let converts = offered == dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION as u32;
    let tensor = offered == dnn::cudnnMathType_t::CUDNN_TENSOR_OP_MATH as u32;
    match (convolution.dtype, convolution.tf32) {
        (DType::F32, false) => (!converts && !tensor).then(|| wanted_math(convolution)),
        _ => (!converts).then_some(offered),
    }
}

impl Drop for Dnn {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: created in `open`; whatever uses it holds an `Arc`.
            unsafe { (self.functions.cudnnDestroy)(handle.0) };
        }
    }
}

fn data_type(dtype: DType) -> dnn::cudnnDataType_t {
    match dtype {
        DType::F32 => dnn::cudnnDataType_t::CUDNN_DATA_FLOAT,
        DType::BF16 => dnn::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        DType::F16 => dnn::cudnnDataType_t::CUDNN_DATA_HALF,
        other => panic!("no convolution is of {other}"),
    }
}

/// A convolution as the library describes it.
struct Descriptors {
    dnn: Arc<Dnn>,
    direction: Direction,
    x: Raw,
    w: Raw,
    y: Raw,
    convolution: Raw,
}

// SAFETY: the descriptors are only read once they are made.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn new(dnn: &Arc<Dnn>, c: &Convolution) -> Result<Descriptors, LibraryError> {
        let f = &dnn.functions;
        // From here on, dropping it destroys what was made.
        let none = null_mut();
        let mut this =
            Descriptors { dnn: dnn.clone(), direction: c.direction, x: none, w: none, y: none, convolution: none };
        let int = |n: usize| c_int::try_from(n).expect("lowering gives no sizes that do not fit 31 bits");
        let (dtype, last) = (data_type(c.dtype), dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC);
        let float = dnn::cudnnDataType_t::CUDNN_DATA_FLOAT;
        let cross = dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        // SAFETY: the pointers are to fields; a descriptor is set only if it was made.
        unsafe {
            let ([h, w], [oh, ow], [kh, kw]) = (c.input.map(int), c.output.map(int), c.kernel.map(int));
            let (n, i, o) = (int(c.images), int(c.inputs), int(c.outputs));
            cudnn("describing a tensor", (f.cudnnCreateTensorDescriptor)(&mut this.x))?;
            cudnn("describing a tensor", (f.cudnnSetTensor4dDescriptor)(this.x, last, dtype, n, i, h, w))?;
            cudnn("describing a tensor", (f.cudnnCreateTensorDescriptor)(&mut this.y))?;
            cudnn("describing a tensor", (f.cudnnSetTensor4dDescriptor)(this.y, last, dtype, n, o, oh, ow))?;
            cudnn("describing a filter", (f.cudnnCreateFilterDescriptor)(&mut this.w))?;
            cudnn("describing a filter", (f.cudnnSetFilter4dDescriptor)(this.w, dtype, last, o, i, kh, kw))?;
            let ([pv, ph], [sv, sh], [dv, dh]) = (c.padding.map(int), c.stride.map(int), c.dilation.map(int));
            cudnn("describing a convolution", (f.cudnnCreateConvolutionDescriptor)(&mut this.convolution))?;
            let set = f.cudnnSetConvolution2dDescriptor;
            cudnn("describing a convolution", set(this.convolution, pv, ph, sv, sh, dv, dh, cross, float))?;
        }
        this.set_math(wanted_math(c))?;
        Ok(this)
    }

    fn set_math(&self, math: u32) -> Result<(), LibraryError> {
        // SAFETY: the descriptor lives, and nobody else uses it yet.
        cudnn("describing a convolution", unsafe {
            (self.dnn.functions.cudnnSetConvolutionMathType)(self.convolution, math)
        })
    }

    /// Descriptors of the two operands and of the result, in the order in which the library's functions take them.
    fn order(&self) -> [Raw; 3] {
        match self.direction {
            Direction::Forward => [self.x, self.w, self.y],
            Direction::Input => [self.w, self.y, self.x],
            Direction::Weight => [self.x, self.y, self.w],
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let f = &self.dnn.functions;
        // SAFETY: those that are not null were made in `new`; enqueued work does not refer to them.
        unsafe {
            for tensor in [self.x, self.y].into_iter().filter(|d| !d.is_null()) {
                (f.cudnnDestroyTensorDescriptor)(tensor);
            }
            if !self.w.is_null() {
                (f.cudnnDestroyFilterDescriptor)(self.w);
            }
            if !self.convolution.is_null() {
                (f.cudnnDestroyConvolutionDescriptor)(self.convolution);
            }
        }
    }
}

/// A convolution with its addresses.
struct ConvolutionCall {
    call: Descriptors,
    direction: Direction,
    algorithm: Algorithm,
    places: Places,
}

impl fmt::Debug for ConvolutionCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvolutionCall").field("places", &self.places).finish_non_exhaustive()
    }
}

impl LibraryCall for ConvolutionCall {
    unsafe fn enqueue(&self, stream: &Stream) -> Result<(), LibraryError> {
        let Places { x, w, y, workspace } = self.places;
        let (dnn, f) = (&self.call.dnn, &self.call.dnn.functions);
        let (run, [a, b, result]) = match self.direction {
            Direction::Forward => (f.cudnnConvolutionForward, [x, w, y]),
            Direction::Input => (f.cudnnConvolutionBackwardData, [w, y, x]),
            Direction::Weight => (f.cudnnConvolutionBackwardFilter, [x, y, w]),
        };
        let [a_is, b_is, result_is] = self.call.order();
        let (one, zero) = (1.0f32, 0.0f32);
        let Algorithm { number, workspace: bytes, .. } = self.algorithm;
        let workspace = if bytes > 0 { workspace as Raw } else { null_mut() };
        let handle = dnn.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the factors are read before the call returns; the caller's word for the rest.
        unsafe {
            cudnn("choosing a stream", (f.cudnnSetStream)(handle.0, stream.raw.cast()))?;
            cudnn(
                "convolving",
                run(
                    handle.0,
                    (&raw const one).cast(),
                    a_is,
                    a as Raw,
                    b_is,
                    b as Raw,
                    self.call.convolution,
                    number,
                    workspace,
                    bytes,
                    (&raw const zero).cast(),
                    result_is,
                    result as Raw,
                ),
            )
        }
    }
}

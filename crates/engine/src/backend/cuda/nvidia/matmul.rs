//! Matrix products by cuBLASLt.

use super::functions::functions;
use super::installed::Library;
use super::status::{LibraryError, Unusable, answer, started};
use crate::backend::cuda::driver::Context;
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::ready::LibraryCall;
use crate::backend::gpu::launch::{Epilogue, Matmul};
use crate::graph::DType;
use cudarc::cublaslt::sys as lt;
use lt::cublasLtMatmulDescAttributes_t as Attribute;
use lt::cublasLtMatmulPreferenceAttributes_t as Preference;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

/// The oldest version whose numbers for types and settings are those of the bindings.
const OLDEST: usize = 120_000;

/// Alignment of every matrix and vector. Without this hint, cuBLASLt assumes more.
const ALIGNMENT: u32 = 64;

/// Algorithms to choose from: the first that is allowed is taken.
const CANDIDATES: usize = 16;

/// Where a product's operands are.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// A.
    pub a: u64,
    /// B.
    pub b: u64,
    /// D.
    pub d: u64,
    /// The epilogue's vector, if it has one.
    pub vector: Option<u64>,
    /// The workspace, at a multiple of [`crate::backend::gpu::launch::WORKSPACE_ALIGNMENT`].
    pub workspace: u64,
}

functions! {
    /// What is used of cuBLASLt.
    Functions {
        cublasLtCreate(*mut lt::cublasLtHandle_t);
        cublasLtDestroy(lt::cublasLtHandle_t);
        cublasLtMatmulDescCreate(*mut lt::cublasLtMatmulDesc_t, lt::cublasComputeType_t, lt::cudaDataType);
        cublasLtMatmulDescDestroy(lt::cublasLtMatmulDesc_t);
        cublasLtMatmulDescSetAttribute(lt::cublasLtMatmulDesc_t, Attribute, *const c_void, usize);
        cublasLtMatrixLayoutCreate(*mut lt::cublasLtMatrixLayout_t, lt::cudaDataType, u64, u64, i64);
        cublasLtMatrixLayoutDestroy(lt::cublasLtMatrixLayout_t);
        cublasLtMatmulPreferenceCreate(*mut lt::cublasLtMatmulPreference_t);
        cublasLtMatmulPreferenceDestroy(lt::cublasLtMatmulPreference_t);
        cublasLtMatmulPreferenceSetAttribute(lt::cublasLtMatmulPreference_t, Preference, *const c_void, usize);
        cublasLtMatmulAlgoGetHeuristic(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatmulPreference_t, c_int, *mut Candidate,
            *mut c_int,
        );
        cublasLtMatmul(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *const c_void, lt::cublasLtMatrixLayout_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *mut c_void, lt::cublasLtMatrixLayout_t, *const lt::cublasLtMatmulAlgo_t, *mut c_void, usize,
            lt::cudaStream_t,
        );
    }
}

/// `cublasLtMatmulHeuristicResult_t`, with the status as a number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Candidate {
    algo: lt::cublasLtMatmulAlgo_t,
    workspace: usize,
    state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

/// What was chosen for a product.
#[derive(Debug, Clone, Copy)]
struct Algorithm {
    algo: lt::cublasLtMatmulAlgo_t,
    workspace: usize,
}

/// An open cuBLASLt on a device.
pub struct Blas {
    functions: Functions,
    handle: lt::cublasLtHandle_t,
    context: Arc<Context>,
    /// What was chosen so far; `None` for what the library does not take.
    chosen: Mutex<HashMap<Matmul, Option<Algorithm>>>,
}

// SAFETY: the library's functions may be called from every thread with the same handle.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blas").field("device", &self.context.info.ordinal).finish_non_exhaustive()
    }
}

fn cublas(doing: &'static str, code: u32) -> Result<(), LibraryError> {
    answer(Library::CublasLt, doing, code)
}

/// Loads the library, and finds that it is new enough and complete.
fn load(path: &Path) -> Result<Functions, String> {
    let functions = Functions::load(path)?;
    // SAFETY: the function has had this type since the first version.
    let version =
        unsafe { functions._loaded.get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetVersion\0").map(|f| f()) };
    match version {
        Ok(v) if v >= OLDEST => Ok(functions),
        Ok(v) => Err(format!("is too old ({}.{}, and 12.0 is needed)", v / 10_000, v % 10_000 / 100)),
        Err(_) => Err("does not tell its version".into()),
    }
}

/// What a library that was found lacks.
///
/// # Errors
/// It lacks something.
pub fn check(path: &Path) -> Result<(), String> {
    load(path).map(drop)
}

impl Blas {
    /// Opens the library in `path` for the device of `context`.
    ///
    /// # Errors
    /// It does not load, lacks something, or does not start.
    pub fn open(path: &Path, context: &Arc<Context>) -> Result<Arc<Blas>, Unusable> {
        let functions = load(path)?;
        context.bind().map_err(|e| e.to_string())?;
        let mut handle = null_mut();
        // SAFETY: the context is current.
        let code = unsafe { (functions.cublasLtCreate)(&mut handle) };
        started(Library::CublasLt, code)?;
        if handle.is_null() {
            return Err("gives no handle".to_owned().into());
        }
        Ok(Arc::new(Blas { functions, handle, context: context.clone(), chosen: Mutex::default() }))
    }

    /// Bytes of workspace of a product; `None` if the library does not take it.
    pub fn workspace(self: &Arc<Self>, matmul: &Matmul) -> Option<usize> {
        self.algorithm(matmul).map(|a| a.workspace)
    }

    fn algorithm(self: &Arc<Self>, matmul: &Matmul) -> Option<Algorithm> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        *chosen.entry(*matmul).or_insert_with(|| self.choose(matmul).ok().flatten())
    }

    /// Asks the library's heuristic for the fastest algorithm of those that are allowed.
    fn choose(self: &Arc<Self>, matmul: &Matmul) -> Result<Option<Algorithm>, LibraryError> {
        if self.context.bind().is_err() {
            return Ok(None);
        }
        // The library answers for an epilogue with a vector only if it is given one; it looks at the address alone.
        let call = Descriptors::new(self, matmul, matmul.epilogue.has_vector().then_some(u64::from(ALIGNMENT)))?;
        let preference = Preferences::new(self)?;
        // NVIDIA's advice: 32 MiB on Hopper, where large tiles are divided, 4 MiB elsewhere.
        let workspace: u64 = if self.context.info.capability >= 90 { 32 << 20 } else { 4 << 20 };
        preference.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace)?;
        // Partial sums of split-K are added in 32 bits, never in D's type.
        let scheme = lt::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, scheme)?;
        for operand in [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            preference.set(operand, ALIGNMENT)?;
        }
        let none = Candidate {
            algo: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
            workspace: 0,
            state: u32::MAX,
            waves: 0.0,
            reserved: [0; 4],
        };
        let (mut candidates, mut count) = ([none; CANDIDATES], 0);
        let [a, b, d] = call.layouts;
        // SAFETY: all descriptors live, and there is room for as many candidates as are asked for.
        cublas("choosing an algorithm", unsafe {
            (self.functions.cublasLtMatmulAlgoGetHeuristic)(
                self.handle,
                call.matmul,
                a,
                b,
                d,
                d,
                preference.raw,
                CANDIDATES as c_int,
                candidates.as_mut_ptr(),
                &mut count,
            )
        })?;
        let offered = &candidates[..count.clamp(0, CANDIDATES as c_int) as usize];
        let fits = offered.iter().find(|c| c.state == 0 && c.workspace as u64 <= workspace);
        Ok(fits.map(|c| Algorithm { algo: c.algo, workspace: c.workspace }))
    }

    /// A product ready to be enqueued, if the library takes it.
    ///
    /// # Errors
    /// The library refuses a descriptor.
    pub fn prepare(
        self: &Arc<Self>,
        matmul: &Matmul,
        places: Places,
    ) -> Result<Option<Arc<dyn LibraryCall>>, LibraryError> {
        let Some(algorithm) = self.algorithm(matmul) else { return Ok(None) };
        let call = Descriptors::new(self, matmul, places.vector)?;
        Ok(Some(Arc::new(MatmulCall { call, algorithm, places })))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created in `open`; whatever uses it holds an `Arc`.
            unsafe { (self.functions.cublasLtDestroy)(self.handle) };
        }
    }
}

/// The library's number for an epilogue.
fn number(epilogue: Epilogue) -> lt::cublasLtEpilogue_t {
    match epilogue {
        Epilogue::Plain => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
        Epilogue::Relu => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
        Epilogue::Bias => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
        Epilogue::ReluBias => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
        Epilogue::SumsOfB => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BGRADB,
    }
}

fn data_type(dtype: DType) -> lt::cudaDataType {
    match dtype {
        DType::F32 => lt::cudaDataType::CUDA_R_32F,
        DType::BF16 => lt::cudaDataType::CUDA_R_16BF,
        DType::F16 => lt::cudaDataType::CUDA_R_16F,
        other => panic!("no matrix product is of {other}"),
    }
}

/// A product as the library describes it.
struct Descriptors {
    blas: Arc<Blas>,
    matmul: lt::cublasLtMatmulDesc_t,
    /// Of A, B and D.
    layouts: [lt::cublasLtMatrixLayout_t; 3],
}

// SAFETY: the descriptors are only read once they are made.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn new(blas: &Arc<Blas>, matmul: &Matmul, vector: Option<u64>) -> Result<Descriptors, LibraryError> {
        let f = &blas.functions;
        // From here on, dropping it destroys what was made.
        let mut this = Descriptors { blas: blas.clone(), matmul: null_mut(), layouts: [null_mut(); 3] };
        let compute = match matmul.tf32 && matmul.dtype == DType::F32 {
            true => lt::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => lt::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        // SAFETY: the pointer is to a field.
        cublas("describing a product", unsafe {
            (f.cublasLtMatmulDescCreate)(&mut this.matmul, compute, lt::cudaDataType::CUDA_R_32F)
        })?;
        let operation = |transposed| match transposed {
            true => cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_T as u32,
            false => cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_N as u32,
        };
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, operation(matmul.a_transposed))?;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, operation(matmul.b_transposed))?;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, number(matmul.epilogue) as u32)?;
        if let Some(vector) = vector {
            this.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector)?;
            this.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(matmul.d_type) as u32)?;
        }
        let types = [matmul.dtype, matmul.dtype, matmul.d_type];
        for ((layout, dtype), [rows, columns]) in this.layouts.iter_mut().zip(types).zip(matmul.layouts()) {
            // SAFETY: the pointer is to a field.
            cublas("describing a matrix", unsafe {
                let dtype = data_type(dtype);
                (f.cublasLtMatrixLayoutCreate)(layout, dtype, rows as u64, columns as u64, rows as i64)
            })?;
        }
        Ok(this)
    }

    /// Sets an attribute whose type is `T`.
    fn set<T: Copy>(&self, attribute: Attribute, value: T) -> Result<(), LibraryError> {
        // SAFETY: the descriptor lives; the value is as long as it says.
        cublas("describing a product", unsafe {
            let set = self.blas.functions.cublasLtMatmulDescSetAttribute;
            set(self.matmul, attribute, (&raw const value).cast(), size_of::<T>())
        })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let f = &self.blas.functions;
        // SAFETY: those that are not null were made in `new`; enqueued work does not refer to them.
        unsafe {
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                (f.cublasLtMatrixLayoutDestroy)(layout);
            }
            if !self.matmul.is_null() {
                (f.cublasLtMatmulDescDestroy)(self.matmul);
            }
        }
    }
}

/// The constraints on an algorithm.
struct Preferences<'a> {
    blas: &'a Blas,
    raw: lt::cublasLtMatmulPreference_t,
}

impl<'a> Preferences<'a> {
    fn new(blas: &'a Blas) -> Result<Preferences<'a>, LibraryError> {
        let mut raw = null_mut();
        // SAFETY: the pointer is to a local.
        cublas("describing a choice", unsafe { (blas.functions.cublasLtMatmulPreferenceCreate)(&mut raw) })?;
        Ok(Preferences { blas, raw })
    }

    /// Sets an attribute whose type is `T`.
    fn set<T: Copy>(&self, attribute: Preference, value: T) -> Result<(), LibraryError> {
        // SAFETY: the descriptor lives; the value is as long as it says.
        cublas("describing a choice", unsafe {
            let set = self.blas.functions.cublasLtMatmulPreferenceSetAttribute;
            set(self.raw, attribute, (&raw const value).cast(), size_of::<T>())
        })
    }
}

impl Drop for Preferences<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe { (self.blas.functions.cublasLtMatmulPreferenceDestroy)(self.raw) };
    }
}

/// A product with its addresses.
struct MatmulCall {
    call: Descriptors,
    algorithm: Algorithm,
    places: Places,
}

impl fmt::Debug for MatmulCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatmulCall").field("places", &self.places).finish_non_exhaustive()
    }
}

impl LibraryCall for MatmulCall {
    unsafe fn enqueue(&self, stream: &Stream) -> anyhow::Result<()> {
        let (blas, [a, b, d], places) = (&self.call.blas, self.call.layouts, &self.places);
        let (one, zero) = (1.0f32, 0.0f32);
        let workspace = if self.algorithm.workspace > 0 { places.workspace as *mut c_void } else { null_mut() };
        // SAFETY: the factors are read before the call returns; the caller's word for the rest. C is D: nothing of it is
        // read, for its factor is zero.
        cublas("multiplying matrices", unsafe {
            (blas.functions.cublasLtMatmul)(
                blas.handle,
                self.call.matmul,
                (&raw const one).cast(),
                places.a as *const c_void,
                a,
                places.b as *const c_void,
                b,
                (&raw const zero).cast(),
                places.d as *const c_void,
                d,
                places.d as *mut c_void,
                d,
                &self.algorithm.algo,
                workspace,
                self.algorithm.workspace,
                stream.raw.cast(),
            )
        })?;
        Ok(())
    }
}

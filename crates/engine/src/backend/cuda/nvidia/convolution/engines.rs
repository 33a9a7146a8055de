//! Which of cuDNN's engines may compute a convolution, and execution plans of them.
//!
//! The library's heuristics give configurations of engines, by their estimate the fastest first. The notes of an engine give
//! its effects on numbers, and its needs. A configuration is known by its tag, in the form that NVIDIA's own tools
//! write: `eng34_k2=19_k3=0` is engine 34 with its knobs 2 and 3 set so.

use super::super::status::LibraryError;
use super::descriptor::{Api, Descriptor};
use super::graph::{OperationGraph, Places};
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::ready::LibraryCall;
use crate::backend::gpu::launch::Convolution;
use crate::backend::gpu::target::Form;
use crate::graph::DType;
use cudarc::cudnn::sys as dnn;
use dnn::cudnnBackendAttributeName_t as Name;
use dnn::cudnnBackendAttributeType_t as Type;
use dnn::cudnnBackendBehaviorNote_t as Behavior;
use dnn::cudnnBackendDescriptorType_t as Kind;
use dnn::cudnnBackendHeurMode_t as Heuristics;
use dnn::cudnnBackendNumericalNote_t as Note;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The heuristics that are asked, in this order: the usual ones, the slower and better ones, and what works for everything.
const MODES: [Heuristics; 3] =
    [Heuristics::CUDNN_HEUR_MODE_A, Heuristics::CUDNN_HEUR_MODE_B, Heuristics::CUDNN_HEUR_MODE_FALLBACK];

/// Most configurations that one of the heuristics is asked for. They have some tens.
const MOST_CONFIGURATIONS: usize = 256;

/// Most notes of an engine and most knobs of a configuration: today's library has ten and fifty.
const MOST_NOTES: usize = 64;
const MOST_KNOBS: usize = 128;

/// A configuration of an engine that may compute a convolution.
pub struct Candidate {
    /// Its name.
    pub tag: String,
    /// How the library is asked.
    form: Form,
    config: Arc<Descriptor>,
    graph: Arc<OperationGraph>,
}

/// Why a candidate is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The library says so.
    Library(LibraryError),
    /// It wants so many bytes of workspace.
    Workspace(i64),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Library(e) => write!(f, "{}", e.brief()),
            Refused::Workspace(bytes) => write!(f, "it wants {bytes} bytes of workspace"),
        }
    }
}

impl From<LibraryError> for Refused {
    fn from(e: LibraryError) -> Refused {
        Refused::Library(e)
    }
}

/// What may not be noted of an engine that computes `c`.
fn is_barred(c: &Convolution, note: u32) -> bool {
    let any = |notes: &[Note]| notes.iter().any(|n| *n as u32 == note);
    // Other bits every time; sums in 16 bits; transforms that err more than sums of products do.
    let always = [
        Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
        Note::CUDNN_NUMERICAL_NOTE_FFT,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
    ];
    // Winograd's small tiles err by little in 32 bits, as our own do on a CPU, and the check finds those that do not. In 16
    // bits what is transformed is rounded.
    let winograd = [Note::CUDNN_NUMERICAL_NOTE_WINOGRAD, Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4];
    if any(&winograd) {
        return c.dtype != DType::F32;
    }
    let harmless = [
        Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
        Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
        Note::CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP,
    ];
    let rounds = any(&[Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS]);
    let tensor_core = any(&[Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE]);
    let barred = match (c.dtype, c.tf32) {
        // Tensor cores know 32-bit operands as TF32 alone.
        (DType::F32, false) => rounds || tensor_core,
        // To TF32 is allowed. Rounding to 16 bits is found by the check, whose numbers are too large for them.
        (DType::F32, true) => false,
        _ => rounds,
    };
    // A note of a newer library that is not known here may mean anything.
    barred || any(&always) || !any(&harmless)
}

/// Whether the engine needs what there is not: operands in another order, or a compiler.
fn needs_more(api: &Api, behavior: u32) -> bool {
    let reorders = [
        Behavior::CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER,
        Behavior::CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER,
    ];
    let compiles = behavior == Behavior::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as u32;
    reorders.iter().any(|b| *b as u32 == behavior) || compiles && !api.compiles
}

/// The configuration's tag, if its engine may be used.
fn allowed(api: &Api, c: &Convolution, config: &Descriptor) -> Result<Option<String>, LibraryError> {
    let (engines, _) =
        config.get_descriptors(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
    let Some(engine) = engines.first() else { return Ok(None) };
    let notes =
        engine.get_numbers::<MOST_NOTES>(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE)?;
    let behavior =
        engine.get_numbers::<MOST_NOTES>(Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Type::CUDNN_TYPE_BEHAVIOR_NOTE)?;
    let (Some(notes), Some(behavior)) = (notes, behavior) else { return Ok(None) };
    if notes.iter().any(|n| is_barred(c, *n)) || behavior.iter().any(|b| needs_more(api, *b)) {
        return Ok(None);
    }
    let mut tag = format!("eng{}", engine.get_int(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?);
    let kind = Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
    let (knobs, count) = config.get_descriptors(Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kind, MOST_KNOBS)?;
    if count > knobs.len() {
        return Ok(None);
    }
    for knob in &knobs {
        let which = knob.get_number(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE)?;
        tag += &format!("_k{which}={}", knob.get_int(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)?);
    }
    Ok(Some(tag))
}

/// What one of the library's heuristics offers.
fn offered(api: &Arc<Api>, graph: &OperationGraph, mode: Heuristics) -> Result<Vec<Descriptor>, LibraryError> {
    let heuristics = api.descriptor(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    heuristics.descriptors(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph.graph])?;
    heuristics.number(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, mode as u32)?;
    heuristics.finalize()?;
    let count = heuristics.count(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS)?.min(MOST_CONFIGURATIONS);
    let kind = Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    Ok(heuristics.get_descriptors(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, count)?.0)
}

/// Configurations that may compute `c` in a form, the best first as the library thinks; none if it does not take it. Each of
/// the heuristics is asked when those before it are used up.
pub fn candidates<'a>(api: &'a Arc<Api>, c: &'a Convolution, form: Form) -> impl Iterator<Item = Candidate> + 'a {
    let graph = OperationGraph::new(api, c, form).map(Arc::new).ok();
    let mut seen = HashSet::new();
    graph.into_iter().flat_map(move |graph| MODES.map(|mode| (graph.clone(), mode))).flat_map(move |(graph, mode)| {
        let mut found = Vec::new();
        for config in offered(api, &graph, mode).unwrap_or_default() {
            if let Ok(Some(tag)) = allowed(api, c, &config)
                && seen.insert(tag.clone())
            {
                found.push(Candidate { tag, form, config: Arc::new(config), graph: graph.clone() });
            }
        }
        found
    })
}

impl Candidate {
    /// The plan of it, made by a thread that alone uses the handle of number `maker`. It may take the library a while: some
    /// engines compile their kernels now.
    ///
    /// # Errors
    /// The library does not support it after all, or it wants too much workspace.
    pub fn plan(&self, api: &Arc<Api>, c: &Convolution, maker: usize) -> Result<Plan, Refused> {
        let plan = api.descriptor(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.handle(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, maker)?;
        plan.descriptors(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&self.config])?;
        plan.finalize()?;
        let workspace = plan.get_int(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        let Some(workspace) = usize::try_from(workspace).ok().filter(|bytes| *bytes <= c.most_workspace()) else {
            return Err(Refused::Workspace(workspace));
        };
        let Candidate { tag, form, config, graph } = self;
        let (config, graph, tag) = (config.clone(), graph.clone(), tag.clone());
        Ok(Plan { plan, maker, _config: config, graph, api: api.clone(), tag, form: *form, workspace })
    }
}

/// An execution plan: an engine, its settings and its kernels.
#[derive(Debug)]
pub struct Plan {
    // In this order they are destroyed: what a descriptor refers to outlives it.
    plan: Descriptor,
    _config: Arc<Descriptor>,
    graph: Arc<OperationGraph>,
    api: Arc<Api>,
    /// The number of the handle that it was made with, and runs with.
    maker: usize,
    /// Its name.
    pub tag: String,
    /// How the library was asked.
    pub form: Form,
    /// Bytes of workspace.
    pub workspace: usize,
}

/// A plan with its addresses.
#[derive(Debug)]
pub struct Call {
    pack: Descriptor,
    /// A captured step goes on launching the plan's kernels, so the owner of the step keeps the plan.
    plan: Arc<Plan>,
}

impl Call {
    /// # Errors
    /// The library refuses the addresses.
    pub fn new(plan: &Arc<Plan>, places: &Places) -> Result<Call, LibraryError> {
        let workspace = if plan.workspace > 0 { places.workspace } else { 0 };
        let pack = plan.graph.pack(&plan.api, places, workspace)?;
        Ok(Call { pack, plan: plan.clone() })
    }
}

impl LibraryCall for Call {
    unsafe fn enqueue(&self, stream: &Stream) -> anyhow::Result<()> {
        // SAFETY: the caller's word.
        unsafe { self.plan.api.execute((&self.plan.plan, self.plan.maker), &self.pack, stream)? };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_barred_by_what_they_note_of_numbers() {
        let conv = |dtype, tf32| Convolution { dtype, tf32, ..Convolution::example() };
        let (strict, tf32, half) = (conv(DType::F32, false), conv(DType::F32, true), conv(DType::BF16, false));
        let barred = |note: Note| [&strict, &tf32, &half].map(|c| is_barred(c, note as u32));
        assert_eq!(barred(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE), [true, false, false]);
        assert_eq!(barred(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS), [true, false, true]);
        assert_eq!(barred(Note::CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP), [false; 3]);
        for note in [Note::CUDNN_NUMERICAL_NOTE_WINOGRAD, Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4] {
            assert_eq!(barred(note), [false, false, true], "{note:?}");
        }
        for note in [
            Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
            Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
            Note::CUDNN_NUMERICAL_NOTE_FFT,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
            Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
        ] {
            assert_eq!(barred(note), [true; 3], "{note:?}");
        }
        assert!(is_barred(&half, 77), "an unknown note");
    }
}

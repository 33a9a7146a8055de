//! What a language model takes to write, before it is trained.

use super::{CHUNK, going_on};
use crate::backend::Backend;
use crate::config::Experiment;
use crate::data::text::{Samples, TextCodec};
use crate::data::{DataSpec, Footprint, Lengths};
use crate::graph::VarKind;
use crate::model::{BatchShape, keeps_states};
use crate::passes::PassOptions;
use crate::train::setup::memory::{MemoryPlan, Needs};
use crate::train::setup::programs::{self, Sizes};
use anyhow::Result;

/// The memory of writing one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Bytes that are kept from token to token.
    pub bytes: usize,
    /// Tokens whose keys and values these are; `None`: they are states of recurrent layers, however long the text is.
    pub tokens: Option<usize>,
    /// Bytes in all, as `runner generate` takes them.
    pub total: usize,
}

/// What going on with one text takes; `None`: the model goes on with no texts, or computes every token from the whole text before it.
///
/// # Errors
/// The device failed.
pub fn kept(experiment: &Experiment, sample: &DataSpec, backend: &dyn Backend) -> Result<Option<Kept>> {
    let context = match TextCodec::of(sample)?.map(|codec| codec.samples) {
        Some(Samples::Windows { context, .. }) => context,
        Some(Samples::Prompted { lengths, .. }) => lengths.last().copied().unwrap_or(1),
        _ => return Ok(None),
    };
    let spec = going_on(sample, context, 1, false);
    let chunk = CHUNK.min(context);
    let of = |length| BatchShape { samples: 1, lengths: Lengths::first(length) };
    let generate = if chunk > 1 { vec![of(chunk), of(1)] } else { vec![of(1)] };
    let sizes = Sizes { generate, ..Sizes::default() };
    let Ok(programs) = programs::build(experiment, &spec, &sizes, backend, &PassOptions::default()) else {
        return Ok(None);
    };
    let variables = &programs.plan.variables;
    let bytes = variables.iter().filter(|(_, var)| var.kind == VarKind::Kept).map(|(_, var)| var.bytes_here()).sum();
    let tokens = (!keeps_states(variables)).then_some(context);
    let needs = Needs::of_prediction(1, Footprint::default());
    let total = MemoryPlan::new(&programs.plan, backend, &needs)?.summary.total;
    Ok(Some(Kept { bytes, tokens, total }))
}

//! Launches of attention.

use super::Context;
use crate::backend::cuda::launch::Lowered;
use crate::graph::op::{Attention, AttentionGrad};

/// One launch.
pub fn attention(_cx: &Context, _op: &Attention) -> Lowered {
    todo!()
}

/// Two launches.
pub fn grad(_cx: &Context, _op: &AttentionGrad) -> Lowered {
    todo!()
}

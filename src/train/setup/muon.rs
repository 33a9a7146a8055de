//! Which parameters Muon updates.

use super::patterns::no_match;
use crate::config::Diagnostic;
use crate::config::language::sections::Muon as Options;
use crate::graph::op::as_matrix;
use crate::graph::{VarId, Variables};
use crate::passes::muon::Muon;

/// What Muon updates, and what AdamW does although it has rows and columns, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Number of parameters of Muon's, tensors and elements.
    pub muon: [usize; 2],
    /// Names of those that AdamW updates.
    pub adamw: Vec<String>,
}

/// The engine's rule with its parameters, among those of `names` that have rows and columns.
///
/// # Errors
/// A pattern that fits none of these.
pub fn muon(options: &Options, vars: &Variables, names: &[(VarId, String)]) -> Result<(Muon, Split), Vec<Diagnostic>> {
    let matrices: Vec<_> = names.iter().filter(|(id, _)| is_matrix(vars, *id)).cloned().collect();
    let patterns = options.adamw.as_ref().and_then(|adamw| adamw.patterns.as_ref());
    let unfit: Vec<Diagnostic> = patterns
        .into_iter()
        .flatten()
        .filter(|pattern| !matrices.iter().any(|(_, name)| pattern.matches(name)))
        .map(|pattern| no_match(pattern, &matrices, "adamw.match"))
        .collect();
    if !unfit.is_empty() {
        return Err(unfit);
    }
    let last = matrices.last().map(|(id, _)| vars[*id].origin.as_str());
    let left = |(id, name): &(VarId, String)| match patterns {
        Some(patterns) => patterns.iter().any(|pattern| pattern.matches(name)),
        None => name.ends_with("relative_position_bias_table") || Some(vars[*id].origin.as_str()) == last,
    };
    let (adamw, own): (Vec<_>, Vec<_>) = matrices.into_iter().partition(left);
    let parameters: Vec<VarId> = own.iter().map(|(id, _)| *id).collect();
    let elements = parameters.iter().map(|id| vars[*id].shape.len()).sum();
    let split = Split { muon: [own.len(), elements], adamw: adamw.into_iter().map(|(_, name)| name).collect() };
    let rule = Muon {
        momentum: options.momentum,
        nesterov: options.nesterov,
        coefficients: options.ns_coefficients.map(|c| c as f32),
        steps: options.ns_steps,
        eps: options.eps as f32,
        length: options.adjust_lr_fn.describe(),
        parameters,
    };
    Ok((rule, split))
}

/// True if it has more than one row, and more than one column. Embeddings of positions, class tokens and scales of channels have
/// not.
fn is_matrix(vars: &Variables, id: VarId) -> bool {
    as_matrix(&vars[id].shape).iter().all(|side| *side > 1)
}

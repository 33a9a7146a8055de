//! What is trained of a model with adapters.

use super::patterns::{no_match, similar};
use crate::config::Diagnostic;
use crate::config::language::pattern::Pattern;
use crate::config::language::sections::Lora;
use crate::graph::{VarId, Variables};
use std::collections::BTreeSet;

/// Freezes all but adapters and what `modules_to_save` names; reports patterns that name nothing.
pub fn alone(lora: &Lora, names: &[(VarId, String)], vars: &mut Variables) -> Vec<Diagnostic> {
    let saved = |name: &str| lora.modules_to_save.iter().any(|pattern| pattern.matches(name));
    for (id, _) in names.iter().filter(|(_, name)| !Lora::has(name) && !saved(name)) {
        vars.set_trainable(*id, false);
    }
    let nothing = lora.modules_to_save.iter().filter(|pattern| !names.iter().any(|(_, name)| pattern.matches(name)));
    let mut errors: Vec<Diagnostic> = nothing.map(|pattern| no_match(pattern, names, "modules_to_save")).collect();
    let adapted: Vec<&str> = names.iter().filter_map(|(_, name)| name.strip_suffix(Lora::A)).collect();
    let found = |target: &Pattern| adapted.iter().any(|layer| Lora::names(target, layer.trim_end_matches('.')));
    for target in lora.targets.iter().filter(|target| !found(target)) {
        let layers = names.iter().filter_map(|(_, name)| name.strip_suffix(".weight"));
        let ends: BTreeSet<&str> = layers.filter(|layer| !Lora::has(&format!("{layer}.weight"))).map(last).collect();
        let error = Diagnostic::error(format!("`{}` in `targets` of `lora` names no `linear` layer", target.text))
            .at(target.span, "names none");
        let known = || ends.iter().take(8).map(|end| format!("`{end}`")).collect::<Vec<_>>().join(", ");
        errors.push(match similar(&target.text, ends.iter().copied()) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error.help(format!("layers with weights are called {}", known())),
        });
    }
    errors
}

/// The last part of a layer's path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

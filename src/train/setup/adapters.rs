//! What is trained of a model with adapters.

use super::patterns::{no_match, similar};
use crate::config::Diagnostic;
use crate::config::experiment::Model;
use crate::config::language::layers::Layer;
use crate::config::language::pattern::Pattern;
use crate::config::language::sections::Lora;
use crate::config::{LayerKind, LayerNode};
use crate::graph::{VarId, Variables};

/// Most names of layers in a message.
const MOST_SHOWN: usize = 12;

/// Freezes all but adapters and what `modules_to_save` names; reports patterns that name nothing.
pub fn alone(model: &Model, lora: &Lora, names: &[(VarId, String)], vars: &mut Variables) -> Vec<Diagnostic> {
    let saved = |name: &str| lora.modules_to_save.iter().any(|pattern| pattern.matches(name));
    for (id, _) in names.iter().filter(|(_, name)| !Lora::has(name) && !saved(name)) {
        vars.set_trainable(*id, false);
    }
    let nothing = lora.modules_to_save.iter().filter(|pattern| !names.iter().any(|(_, name)| pattern.matches(name)));
    let mut errors: Vec<Diagnostic> = nothing.map(|pattern| no_match(pattern, names, "modules_to_save")).collect();
    let adapted: Vec<&str> = names.iter().filter_map(|(_, name)| name.strip_suffix(Lora::A)).collect();
    let found = |target: &Pattern| adapted.iter().any(|layer| Lora::names(target, layer.trim_end_matches('.')));
    let nodes = all_layers(&model.layers);
    errors.extend(lora.targets.iter().filter(|target| !found(target)).map(|target| no_adapter(target, &nodes)));
    errors
}

/// The error for a pattern of `targets` that names no layer with an adapter.
fn no_adapter(target: &Pattern, nodes: &[&LayerNode]) -> Diagnostic {
    let able =
        nodes.iter().filter(|node| matches!(&node.kind, LayerKind::Layer(Layer::Linear(l)) if l.tied().is_none()));
    // In the order of the model, each end of a name once.
    let mut ends: Vec<&str> = Vec::new();
    for end in able.map(|node| last(&node.path)) {
        if !ends.contains(&end) {
            ends.push(end);
        }
    }
    ends.sort_by_key(|end| !end.contains("proj"));
    let more = if ends.len() > MOST_SHOWN { ", …" } else { "" };
    let shown = ends.iter().take(MOST_SHOWN).map(|end| format!("`{end}`")).collect::<Vec<_>>().join(", ");
    let can = match ends.len() {
        0 => "only `linear` layers can have an adapter, and the model has none".to_owned(),
        _ => format!("`linear` layers can have an adapter: {shown}{more}"),
    };
    let text = &target.text;
    let named = nodes.iter().find(|node| Lora::names(target, &node.path));
    let error = match named {
        Some(node) => Diagnostic::error(format!(
            "`{text}` in `targets` of `lora` names no `linear` layer: `{}` is of type `{}`",
            node.path,
            node.kind_name()
        )),
        None => Diagnostic::error(format!("`{text}` in `targets` of `lora` names no `linear` layer")),
    };
    let error = error.at(target.span, if named.is_some() { "cannot have an adapter" } else { "names none" });
    match similar(text, ends.iter().copied()).filter(|_| named.is_none()) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error.help(can),
    }
}

/// All of these layers, and those inside of them.
pub fn all_layers<'a>(layers: &'a [LayerNode]) -> Vec<&'a LayerNode> {
    let with_inside = |node: &'a LayerNode| {
        let inside = node.kind.children().into_iter().flat_map(all_layers);
        std::iter::once(node).chain(inside).collect::<Vec<_>>()
    };
    layers.iter().flat_map(with_inside).collect()
}

/// The last part of a layer's path.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

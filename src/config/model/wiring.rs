//! What connects layers by name: `from`, and the names of parameters.

use std::collections::HashMap;

use crate::config::diagnostics::{Diagnostic, Span};
use crate::config::experiment::{LayerKind, LayerNode};
use crate::config::layers::Layer;
use crate::config::part::{shorten, with_suggestion};
use crate::config::sink::Sink;

/// Replaces the names in `from` by the paths that they mean, and reports names that mean nothing, names of layers that
/// come later, and layers whose parameters would have the same names.
///
/// A name is looked for among the siblings, then among the siblings of the group around, and so on outwards; it may be
/// a path itself.
pub(super) fn connect(nodes: &mut [LayerNode], sink: &Sink) {
    let mut wiring = Wiring { all: HashMap::new(), done: HashMap::new(), parameters: HashMap::new(), sink };
    wiring.collect(nodes);
    wiring.walk(nodes, "");
}

struct Wiring<'a> {
    /// Every path, and the layer that has it.
    all: HashMap<String, Span>,
    /// The paths of layers whose output is there by now, and how many layers have each.
    done: HashMap<String, usize>,
    /// The paths of layers with parameters.
    parameters: HashMap<String, Span>,
    sink: &'a Sink,
}

impl Wiring<'_> {
    fn collect(&mut self, nodes: &[LayerNode]) {
        for node in nodes {
            if !node.name.is_empty() {
                self.all.insert(node.path.clone(), node.span);
            }
            for children in children(&node.kind) {
                self.collect(children);
            }
        }
    }

    fn walk(&mut self, nodes: &mut [LayerNode], parent: &str) {
        for node in nodes {
            self.visit(node, parent);
        }
    }

    fn visit(&mut self, node: &mut LayerNode, parent: &str) {
        for (name, span) in node.from.iter_mut().flatten() {
            if let Some(path) = self.resolve(name, *span, parent) {
                *name = path;
            }
        }
        let path = node.path.clone();
        match &mut node.kind {
            LayerKind::Layer(layer) => {
                if has_state(layer)
                    && let Some(other) = self.parameters.insert(path.clone(), node.span)
                {
                    self.sink.push(
                        Diagnostic::error(format!("two layers are called `{}`", shorten(&path)))
                            .at(node.span, "its parameters would have the same names")
                            .context(other, "the other one")
                            .help("give one of them, or the `residual` or `branches` around it, a `name`"),
                    );
                }
            }
            LayerKind::Group(body) | LayerKind::Gate(body) => self.walk(body, &path),
            LayerKind::Residual { body, projection, .. } => {
                self.walk(body, &path);
                if let Some(projection) = projection {
                    self.visit(projection, &path);
                }
            }
            LayerKind::Branches { branches, .. } => self.walk(branches, &path),
        }
        if !node.name.is_empty() {
            *self.done.entry(path).or_default() += 1;
        }
    }

    /// The path that a name means, seen from inside of `parent`.
    fn resolve(&self, name: &str, span: Span, parent: &str) -> Option<String> {
        let mut scope = Some(parent);
        let mut later = None;
        while let Some(around) = scope {
            let path = if around.is_empty() { name.to_owned() } else { format!("{around}.{name}") };
            match self.done.get(&path) {
                Some(1) => return Some(path),
                Some(_) => {
                    self.sink.push(
                        Diagnostic::error(format!("`{}` could be more than one layer", shorten(name)))
                            .at(span, format!("several are called `{}`", shorten(&path))),
                    );
                    return None;
                }
                None => later = later.or(self.all.get(&path)),
            }
            scope = (!around.is_empty()).then(|| around.rfind('.').map_or("", |dot| &around[..dot]));
        }
        self.sink.push(match later {
            Some(&place) => Diagnostic::error(format!("`{}` has no output yet", shorten(name)))
                .at(span, "may only name an earlier layer")
                .context(place, "comes later, or is not complete"),
            None => {
                let mut known: Vec<&str> =
                    self.done.keys().map(|path| path.rsplit('.').next().unwrap_or(path)).collect();
                known.sort_unstable();
                known.dedup();
                let error = Diagnostic::error(format!("there is no layer `{}`", shorten(name)));
                with_suggestion(error, span, "no earlier layer has this name", name, &known)
            }
        });
        None
    }
}

/// Whether a layer has anything that is saved under its name.
fn has_state(layer: &Layer) -> bool {
    match layer {
        Layer::Linear(_) | Layer::Conv2d(_) => true,
        Layer::BatchNorm1d(norm) => norm.affine || norm.track_running_stats,
        Layer::BatchNorm2d(norm) => norm.affine || norm.track_running_stats,
        Layer::GroupNorm(norm) => norm.affine,
        Layer::LayerNorm(norm) => norm.elementwise_affine,
        _ => false,
    }
}

fn children(kind: &LayerKind) -> Vec<&[LayerNode]> {
    match kind {
        LayerKind::Layer(_) => Vec::new(),
        LayerKind::Group(body) | LayerKind::Gate(body) => vec![body],
        LayerKind::Residual { body, projection, .. } => {
            let projection = projection.as_deref().map(std::slice::from_ref);
            std::iter::once(body.as_slice()).chain(projection).collect()
        }
        LayerKind::Branches { branches, .. } => vec![branches],
    }
}

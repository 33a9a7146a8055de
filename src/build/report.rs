//! How mistakes are told: at the layer that cannot take its input, with the layers that the input comes from.

use super::{Builder, Tensor};
use crate::config::{Diagnostic, LayerKind, LayerNode, Span};

impl Builder<'_> {
    /// Reports that `node` cannot take `from`. Says nothing if that may only be so because of an earlier mistake.
    pub(super) fn refuse(&mut self, node: &LayerNode, message: &str, label: &str, from: &[Tensor], help: &str) {
        self.refuse_at(node, node.span, message, label, from, help);
    }

    /// [`Builder::refuse`] with the caret at `span`, an argument of the layer.
    pub(super) fn refuse_at(
        &mut self,
        node: &LayerNode,
        span: Span,
        message: &str,
        label: &str,
        from: &[Tensor],
        help: &str,
    ) {
        if from.iter().any(|t| self.guesses.contains(&t.value)) {
            return;
        }
        let uses = uses(&self.experiment.model.layers, node.span);
        let label = if uses > 1 { format!("{label} (in `{}`)", node.path) } else { label.to_string() };
        let mut error = Diagnostic::error(message).at(span, label);
        if span != node.span {
            error = error.context(node.span, "of this layer");
        }
        for t in from {
            let shape = self.shape(*t).to_pytorch();
            let (place, text) = match t.made_by {
                Some(row) => (Some(self.rows[row].span), format!("puts out {shape}")),
                None => (self.data_span(), format!("the samples come as {shape}")),
            };
            let told =
                |e: &Diagnostic, span| e.labels.iter().any(|l| l.span == span && (!l.primary || span == node.span));
            if let Some(place) = place.filter(|p| !told(&error, *p)) {
                error = error.context(place, text);
            }
        }
        self.report(if help.is_empty() { error } else { error.help(help) });
    }

    /// Adds an error, unless there is one at that place already: a block that is used many times has its mistake once.
    pub(super) fn report(&mut self, error: Diagnostic) {
        if !self.errors.iter().any(|e| e.span().is_some() && e.span() == error.span()) {
            self.errors.push(error);
        }
    }

    /// What in `[data]` tells how samples look.
    pub(super) fn data_span(&self) -> Option<Span> {
        self.experiment.span_of("data.shape").or_else(|| self.experiment.nearest_span("data.source"))
    }
}

/// How many layers come from one place of the text, by blocks and repeats.
fn uses(layers: &[LayerNode], span: Span) -> usize {
    let inside = |kind: &LayerKind| match kind {
        LayerKind::Layer(_) => 0,
        LayerKind::Group(list) | LayerKind::Gate(list) | LayerKind::Branches { branches: list, .. } => uses(list, span),
        LayerKind::Residual { body, projection, .. } => {
            uses(body, span) + projection.as_deref().map_or(0, |p| uses(std::slice::from_ref(p), span))
        }
    };
    layers.iter().map(|l| usize::from(l.span == span) + inside(&l.kind)).sum()
}

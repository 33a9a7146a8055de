//! Errors of the model: at the layer that cannot take its input, with the layers that the input comes from.

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
            let shape = self.dims(*t);
            let (place, text) = match t.made_by {
                Some(row) => (Some(self.rows[row].span), format!("puts out {shape}")),
                None => (self.data_span(), format!("the samples come as {shape}")),
            };
            let is_shown =
                |e: &Diagnostic, span| e.labels.iter().any(|l| l.span == span && (!l.primary || span == node.span));
            if let Some(place) = place.filter(|p| !is_shown(&error, *p)) {
                error = error.context(place, text);
            }
        }
        self.report(if help.is_empty() { error } else { error.help(help) });
    }

    /// Adds an error, unless there is one at that place already: a block that is used many times has its mistake once.
    pub(super) fn report(&mut self, mut error: Diagnostic) {
        for (key, place) in self.set_elsewhere(&error) {
            error = error.context(place, format!("sets `{key}` of that layer"));
        }
        if !self.errors.iter().any(|e| e.span().is_some() && e.span() == error.span()) {
            self.errors.push(error);
        }
    }

    /// Arguments of the layers that an error points at whose values stand in another text than the layer: in `--set`
    /// options, without which the layer reads as if nothing were wrong with it.
    fn set_elsewhere(&self, error: &Diagnostic) -> Vec<(String, Span)> {
        let nodes = error.labels.iter().filter_map(|label| layer_at(&self.experiment.model.layers, label.span));
        let fields = nodes.flat_map(|node| node.fields.iter().map(move |(key, span)| (node.span.source, key, *span)));
        fields
            .filter(|(source, _, span)| span.source != *source && error.labels.iter().all(|l| l.span != *span))
            .map(|(_, key, span)| (key.clone(), span))
            .collect()
    }

    /// The place in `[data]` that decides the shape of samples.
    pub(super) fn data_span(&self) -> Option<Span> {
        self.experiment.span_of("data.shape").or_else(|| self.experiment.nearest_span("data.source"))
    }
}

/// The layers and containers directly inside of one.
fn inside(kind: &LayerKind) -> Vec<&LayerNode> {
    match kind {
        LayerKind::Layer(_) => Vec::new(),
        LayerKind::Group(list) | LayerKind::Gate(list) | LayerKind::Branches { branches: list, .. } => {
            list.iter().collect()
        }
        LayerKind::Residual { body, projection, .. } => body.iter().chain(projection.as_deref()).collect(),
    }
}

/// How many layers come from one place of the text, by blocks and repeats.
fn uses<'a>(layers: impl IntoIterator<Item = &'a LayerNode>, span: Span) -> usize {
    layers.into_iter().map(|l| usize::from(l.span == span) + uses(inside(&l.kind), span)).sum()
}

/// The first layer or container that stands at a place of the text.
fn layer_at<'a>(layers: impl IntoIterator<Item = &'a LayerNode>, span: Span) -> Option<&'a LayerNode> {
    layers.into_iter().find_map(|l| if l.span == span { Some(l) } else { layer_at(inside(&l.kind), span) })
}

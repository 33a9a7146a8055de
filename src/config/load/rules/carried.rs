//! What `carry_state` must agree on with the rest: the state of a sample goes on in the sample at the same place of the next batch.

use crate::config::experiment::{Experiment, LayerKind, LayerNode};
use crate::config::language::layers::Layer;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::origins::Reporter;

/// The key.
const KEY: &str = "data.carry_state";

/// Reports what does not go with states that are carried on.
pub(super) fn check(experiment: &Experiment, reporter: &Reporter) {
    if !experiment.data.source.carries_state() {
        return;
    }
    let loading = &experiment.data.loading;
    let others = [
        ("data.limit", loading.limit.is_some(), "leaves out pieces of the text"),
        ("data.limit_val", loading.limit_val.is_some(), "leaves out pieces of the text"),
        ("data.batch_size", experiment.data.auto_batch_size, "not known before"),
        ("distributed.shards", experiment.shards() > 1, "divides a batch"),
    ];
    for (key, given, why) in others {
        if given {
            let name = key.rsplit('.').next().unwrap_or(key);
            let error = Diagnostic::error(format!("`carry_state` does not go with `{name}`"))
                .help("leave one of the two out: a batch goes on where the one before it ended, at the same place of each sample");
            reporter.at_keys(error, KEY, "goes on from batch to batch", key, why);
        }
    }
    let mut found = Vec::new();
    directions(&experiment.model.layers, &mut found);
    if found.is_empty() {
        let error = Diagnostic::error("`carry_state` is for recurrent layers, and the model has none")
            .help("`lstm`, `gru` and `rnn` have states; leave it out for other models");
        reporter.at_keys(error, KEY, "there is no state", "model", "the model");
    }
    for node in found.into_iter().filter(|(_, both)| *both).map(|(node, _)| node) {
        let at = node.fields.get("bidirectional").copied().unwrap_or(node.span);
        let error =
            Diagnostic::error(format!("`carry_state` does not go with `bidirectional` of `{}`", node.kind_name()))
                .help("from the end of a text to its start there is no batch before; leave one of the two out");
        let error = error.context(at, "goes both ways");
        reporter.at_key(error, KEY, "goes on from batch to batch");
    }
}

/// The recurrent layers, each with whether it goes in both directions.
fn directions<'a>(layers: &'a [LayerNode], found: &mut Vec<(&'a LayerNode, bool)>) {
    for node in layers {
        if let LayerKind::Layer(layer) = &node.kind {
            let both = match layer {
                Layer::Lstm(l) => Some(l.bidirectional),
                Layer::Gru(l) => Some(l.bidirectional),
                Layer::Rnn(l) => Some(l.bidirectional),
                _ => None,
            };
            found.extend(both.map(|both| (node, both)));
        }
        node.kind.children().into_iter().for_each(|layers| directions(layers, found));
    }
}

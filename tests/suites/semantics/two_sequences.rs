//! Attention of one sequence to another: what does not fit, whose lengths count, and the model file that has it.

use super::errors::{images, rendered};
use runner::config;
use runner::data::{BatchShape, Classes, DataSpec, Field, FieldKind, Lengths, TARGETS};
use runner::graph::op::Attention;
use runner::graph::{DType, Op, VarKind, Variables};
use runner::model::{self, Mode};
use std::collections::BTreeMap;

/// Two sequences of the pixels of images, `[3, 1024]` each: `x` as they are, and `m` of 50 features.
fn two(layer: &str) -> String {
    let before = "  { name = \"x\", type = \"flatten\", start_dim = 2 },\n  { name = \"m\", type = \"linear\", out_features = 50 },\n";
    images(&format!("{before}  {layer},\n  \"flatten\",\n  {{ type = \"linear\", out_features = 10 }},"))
}

#[test]
fn layers_that_do_not_fit_two_sequences_are_errors() {
    let of_one = r#"{ type = "multihead_attention", from = ["x", "x"], num_heads = 4, is_causal = true, rope_theta = 100.0, sliding_window = 3, alibi = true }"#;
    let found = rendered(&two(of_one));
    for key in ["is_causal", "rope_theta", "sliding_window", "alibi"] {
        let message = format!("`{key}` is of the positions of one sequence, and `multihead_attention` takes two here");
        assert!(found.contains(&message), "{found}");
    }
    assert_eq!(found.matches("has no meaning between two sequences").count(), 4, "{found}");
    for (layer, message) in [
        (
            r#"{ type = "multihead_attention", from = ["x", "m"], num_heads = 4 }"#,
            "`multihead_attention` takes a second sequence of as many features as the first has, 1024, not 50",
        ),
        (
            r#"{ type = "scaled_dot_product_attention", from = ["x", "m"], num_heads = 4 }"#,
            "cannot split 1024 numbers into queries of 4 heads, and 50 into keys and values of 4 heads of their width",
        ),
        (
            r#"{ type = "scaled_dot_product_attention", from = ["m", "m"], num_heads = 5, num_kv_heads = 1, is_causal = true }"#,
            "`is_causal` is of the positions of one sequence",
        ),
        (
            r#"{ name = "v", type = "flatten" }, { type = "multihead_attention", from = ["x", "v"], num_heads = 4 }"#,
            "`multihead_attention` takes sequences, [N, L, E], but its input is vectors of shape [64, 150]",
        ),
    ] {
        let found = rendered(&two(layer));
        assert!(found.contains(message), "{found}");
    }
    let three = two(r#"{ type = "multihead_attention", from = ["x", "m", "x"], num_heads = 4 }"#);
    let refused = config::load_str("three.toml", &three, &[]).err().unwrap().to_string();
    assert!(refused.contains("layer `multihead_attention` takes one input or two"), "{refused}");
    let window = two(r#"{ type = "multihead_attention", num_heads = 4, sliding_window = 0 }"#);
    let refused = config::load_str("window.toml", &window, &[]).err().unwrap().to_string();
    assert!(refused.contains("`sliding_window`"), "{refused}");
    // What fits.
    let fits = r#"{ type = "scaled_dot_product_attention", from = ["m", "m2"], num_heads = 5, num_kv_heads = 1 }"#;
    let layers = format!("{{ name = \"m2\", type = \"linear\", out_features = 20 }}, {fits}");
    assert!(rendered(&two(&layers)).contains("nothing is wrong"));
}

/// Texts `inputs` with their lengths, and `answers`, whose lengths are of their own and come with no numbers.
fn texts() -> DataSpec {
    let tokens = || FieldKind::Tokens(Classes::of(11));
    let text = |name: &str, length: usize, number: usize| Field {
        kind: tokens(),
        ..Field::numbers(name, DType::I32, [length]).of_any_length(0, number)
    };
    let lengths = Field { kind: FieldKind::Length, ..Field::numbers("lengths", DType::I32, []) };
    let target = Field::target(TARGETS, tokens(), [9]).of_any_length(0, 1);
    DataSpec::new(vec![text("inputs", 12, 0), lengths, text("answers", 9, 1), target])
}

/// The encoder-decoder, for batches of these lengths.
fn encoder_decoder(lengths: [u32; 2]) -> (Vec<Attention>, BTreeMap<String, String>) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/transformer.toml");
    let text = format!(
        "[data]\nsource = 'synthetic'\nshape = [9]\nclasses = 11\n[model]\nuse = {path:?}\ninputs = ['inputs', 'answers']\n\
         with = {{ vocabulary = 11, width = 12, heads = 3, layers = 2, hidden = 20, dropout = 0.0, positions = 12 }}\n\
         [loss]\ntype = 'cross_entropy'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
    );
    let loaded = config::load_str("texts.toml", &text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    let data = texts().taking(&["inputs".into(), "answers".into()]).unwrap();
    let batch = BatchShape { samples: 4, lengths: Lengths(lengths.map(Some)) };
    let mut variables = Variables::new();
    let forward = model::forward(&loaded.experiment, &data, &mut variables, batch, Mode::Train);
    let forward = forward.unwrap_or_else(|errors| panic!("{errors:?}"));
    let ops = forward.graph.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(op) => Some(op.clone()),
        _ => None,
    });
    let parameters = variables.iter().filter(|(_, variable)| variable.kind == VarKind::Parameter);
    let shapes = parameters.map(|(_, variable)| (variable.name.clone(), variable.shape.to_string())).collect();
    (ops.collect(), shapes)
}

/// Of two texts that are of one length by chance, the encoder's positions and the keys of the decoder's memory have lengths, and the
/// decoder's own positions have none.
#[test]
fn lengths_are_those_of_the_keys() {
    for lengths in [[12, 5], [7, 7], [5, 9]] {
        let (ops, _) = encoder_decoder(lengths);
        let found: Vec<(bool, bool, bool)> = ops.iter().map(|op| (op.between, op.causal, op.lengths)).collect();
        let [encoder, own, memory] = [(false, false, true), (false, true, false), (true, false, true)];
        assert_eq!(found, [encoder, encoder, own, memory, own, memory], "{lengths:?}");
    }
}

/// `nn.Transformer(12, 3, 2, 2, 20).state_dict()`.
#[test]
fn names_are_those_of_pytorchs_transformer() {
    let (_, mut found) = encoder_decoder([12, 9]);
    let mut take = |name: String, shape: &str| assert_eq!(found.remove(&name).as_deref(), Some(shape), "{name}");
    let of_layers = [("encoder", 2), ("decoder", 3)].into_iter().flat_map(|(side, norms)| {
        (0..2).flat_map(move |layer| (1..=norms).map(move |i| format!("{side}.layers.{layer}.norm{i}")))
    });
    for name in of_layers.chain(["encoder.norm".into(), "decoder.norm".into()]) {
        take(format!("transformer.{name}.weight"), "[12]");
        take(format!("transformer.{name}.bias"), "[12]");
    }
    for (side, attentions) in [("encoder", &["self_attn"][..]), ("decoder", &["self_attn", "multihead_attn"])] {
        for layer in 0..2 {
            let at = format!("transformer.{side}.layers.{layer}");
            for name in attentions {
                take(format!("{at}.{name}.in_proj_weight"), "[36, 12]");
                take(format!("{at}.{name}.in_proj_bias"), "[36]");
                take(format!("{at}.{name}.out_proj.weight"), "[12, 12]");
                take(format!("{at}.{name}.out_proj.bias"), "[12]");
            }
            take(format!("{at}.linear1.weight"), "[20, 12]");
            take(format!("{at}.linear1.bias"), "[20]");
            take(format!("{at}.linear2.weight"), "[12, 20]");
            take(format!("{at}.linear2.bias"), "[12]");
        }
    }
    let rest = ["generator.bias", "generator.weight", "src_tok_emb.embedding.weight", "tgt_tok_emb.embedding.weight"];
    assert!(found.keys().eq(rest), "{found:?}");
}

/// A layer that stands for several: the error is at the option that is wrong, not within.
#[test]
fn widths_of_a_transformers_layers() {
    let of = |layers: &str| {
        let end = "  \"flatten\",\n  { type = \"linear\", out_features = 10 },";
        rendered(&images(&format!("  {{ type = \"flatten\", end_dim = 2 }},\n{layers}\n{end}")))
    };
    let all = [
        of("  { type = \"transformer_encoder_layer\", d_model = 64, nhead = 4, dim_feedforward = 8, repeat = 2 },"),
        of("  { name = \"memory\", type = \"linear\", out_features = 12 },
  { name = \"x\", type = \"linear\", out_features = 8 },
  { type = \"transformer_decoder_layer\", from = [\"x\", \"memory\"], d_model = 8, nhead = 4, dim_feedforward = 8 },"),
    ];
    insta::assert_snapshot!(all.join("\n==========\n"));
}

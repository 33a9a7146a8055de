//! Recurrent layers: language models and classifiers of texts.

use super::support::{Place, assert_same_runs, real_data, repository};
use super::text::reviews;

/// A language model of a text of which every character determines the next one.
fn language_model(layer: &str) -> Place {
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 5\n[data]\nsource = \"text\"\npath = \"input.txt\"\ncontext = 16\nbatch_size = 8\nvalidation_split = 0.2\n[model]\n{layer}\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nsteps = 120\neval_every_steps = 60\n"
    ));
    place.write("input.txt", "abcdefghijklmnopqrstuvwxyz.\n".repeat(60));
    place
}

/// A model of one layer of that kind.
fn layers(layer: &str) -> String {
    format!(
        "layers = [\n  {{ name = \"wte\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 }},\n  {{ name = \"states\", {layer} }},\n  \
         {{ name = \"head\", type = \"linear\", out_features = \"$vocabulary\" }},\n]"
    )
}

const LSTM: &str = "use = \"lstm\"\nwith = { width = 16, hidden = 24, dropout = 0.1 }";

fn classifier(layer: &str) -> Place {
    let model = if layer.is_empty() {
        "use = \"lstm_classifier\"\nwith = { width = 16, hidden = 12 }".to_owned()
    } else {
        layers(layer)
            .replace("{ name = \"head\"", "{ type = \"sequence_pool\", mode = \"last\" },\n  { name = \"head\"")
    };
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 2\n[data]\nsource = \"text_classes\"\npath = \"reviews.csv\"\ntext = \"review\"\nbatch_size = 16\nvalidation_split = 0.25\n\
         max_length = 24\nbuckets = [8, 24]\n[model]\n{}\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 8\n",
        model.replace("out_features = \"$vocabulary\"", "out_features = \"$classes\"")
    ));
    place.write("reviews.csv", reviews(120));
    place
}

#[test]
fn an_lstm_learns_a_text_and_writes_it() {
    let place = language_model(LSTM);
    let checked = place.ok("check c.toml").out;
    for part in ["lstm", "[8, 16, 24]"] {
        assert!(checked.contains(part), "{part}: {checked}");
    }
    place.ok("train c.toml --out r");
    let loss = place.metrics("r").pop().unwrap()["val_loss"].as_f64().unwrap();
    assert!(loss < 0.7, "{loss}");
    let written = place.ok("generate r --prompt abc --max-tokens 12 --temperature 0");
    assert_eq!(written.out, "abcdefghijklmno\n");
    assert!(!written.err.contains("computed from the whole text"), "{}", written.err);
    // Longer than a sample.
    let written = place.ok("generate r --prompt abc --max-tokens 40 --temperature 0");
    assert!("abcdefghijklmnopqrstuvwxyz.\n".repeat(3).starts_with(written.out.trim_end()), "{}", written.out);
    let tensors = place.checkpoint("r/last.safetensors").tensors;
    let wanted = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l1", "bias_hh_l1"];
    for name in wanted {
        assert!(tensors.keys().any(|key| key.ends_with(&format!("lstm.{name}"))), "{name}: {:?}", tensors.keys());
    }
}

/// Stopped at any step, and with another number of threads.
#[test]
fn recurrent_layers_go_on_bit_for_bit() {
    for model in [
        LSTM.to_owned(),
        layers("type = \"gru\", hidden_size = 20, num_layers = 2, dropout = 0.2, bidirectional = true"),
        layers("type = \"rnn\", hidden_size = 33, nonlinearity = \"relu\", bias = false"),
    ] {
        let place = language_model(&model);
        place.ok("train c.toml --out whole --set train.steps=40 --set train.eval_every_steps=10 --threads 2");
        place.ok(
            "train c.toml --out part --set train.steps=40 --set train.eval_every_steps=10 --set train.max_steps=23",
        );
        place.ok("train --resume part --set train.max_steps=40 --set data.workers=0 --threads 1");
        assert_same_runs((&place, "whole"), (&place, "part"));
    }
}

#[test]
fn recurrent_layers_classify_texts() {
    for layer in ["", "type = \"gru\", hidden_size = 16", "type = \"rnn\", hidden_size = 16, bidirectional = true"] {
        let place = classifier(layer);
        place.ok("train c.toml --out r");
        let last = place.metrics("r").into_iter().rev().find(|line| line["val_accuracy"].is_number()).unwrap();
        assert!(last["val_accuracy"].as_f64().unwrap() > 0.95, "{layer}: {last}");
        // A batch of texts of other lengths, and the text alone.
        place.write(
            "all.txt",
            "how lovely\nhow dull it is and that is all there is to say of it\ndull\nlovely indeed\n",
        );
        place.write("one.txt", "how lovely\n");
        let answers =
            |file: &str, more: &str| place.ok(&format!("predict r {file} --json {more}")).json()[0]["top"].clone();
        let one = answers("one.txt", "");
        assert_eq!(answers("all.txt", ""), one, "{layer}");
        assert_eq!(answers("one.txt", "--set data.buckets=[24]"), one, "{layer}");
    }
}

#[test]
fn a_recurrent_classifier_goes_on_bit_for_bit() {
    let place = classifier("");
    place.ok("train c.toml --out whole --set train.epochs=3");
    place.ok("train c.toml --out part --set train.epochs=3 --set train.max_steps=7");
    place.ok("train --resume part --set data.workers=3 --set train.max_steps=1000 --threads 1");
    assert_same_runs((&place, "whole"), (&place, "part"));
}

#[test]
fn mistakes_in_recurrent_layers_have_places() {
    let refused = |layer: &str, parts: &[&str]| {
        let message = language_model(&layers(layer)).fails("check c.toml", 2);
        for part in parts {
            assert!(message.contains(part), "{layer}: {part} is not in {message}");
        }
    };
    refused("type = \"lstm\"", &["hidden_size", "hidden_size = 256"]);
    refused("type = \"lstm\", hidden_size = 0", &["`hidden_size` in layer `lstm` is out of range"]);
    refused(
        "type = \"rnn\", hidden_size = 4, nonlinearity = \"gelu\"",
        &["wrong value for `nonlinearity` in layer `rnn`"],
    );
    refused("type = \"gru\", hidden_size = 4, dropout = 1.0", &["`dropout` in layer `gru` is out of range"]);
    refused("type = \"lstm\", hidden_size = 4, input_size = 16, batch_first = true", &["inferred", "always first"]);
    let images = Place::with(
        "[data]\nsource = \"digits\"\n[model]\nlayers = [{ type = \"lstm\", hidden_size = 4 }, \"flatten\", { type = \"linear\", out_features = 10 }]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    let message = images.fails("check c.toml", 2);
    assert!(message.contains("`lstm` takes sequences, [N, L, E], but its input has the shape"), "{message}");
}

/// The configuration that comes with the program, on the text that it names; in `RUNNER_TEST_DATA`, if that is set.
#[test]
fn shakespeare_is_learnt_by_an_lstm() {
    let Some(data) = real_data() else { return };
    let place = Place::new();
    let (config, text) = (repository("configs/shakespeare_lstm.toml"), data.join("tinyshakespeare/input.txt"));
    let sets = format!("--set data.path={} --set device=cpu", text.display());
    let checked = place.ok(&format!("check {} {sets} --json", config.display())).json();
    assert_eq!(checked["warnings"].as_array().map(Vec::len), Some(0), "{checked}");
    place.ok(&format!(
        "train {} {sets} --out r --set train.steps=80 --set train.eval_every_steps=80 --set schedule.warmup_steps=5 --set data.batch_size=8 --set data.limit_val=50",
        config.display()
    ));
    let loss = place.metrics("r").pop().unwrap()["val_loss"].as_f64().unwrap();
    // 4.17 is that of characters drawn evenly, 3.3 that of characters as often as they occur.
    assert!(loss < 2.9, "{loss}");
}

#[test]
fn dropout_between_layers_needs_two() {
    for kind in ["lstm", "gru", "rnn"] {
        let of =
            |more: &str| language_model(&layers(&format!("type = \"{kind}\", hidden_size = 8, dropout = 0.5{more}")));
        let done = of("").ok("check c.toml");
        let said = done.err;
        assert!(said.contains("`dropout` in") && said.contains("is between layers, and there is one"), "{said}");
        // What is warned of is there all the same.
        assert!(done.out.contains(&format!("states  {kind}")), "{}", done.out);
        let said = of(", num_layers = 2").ok("check c.toml").err;
        assert!(!said.contains("has no effect"), "{said}");
    }
}

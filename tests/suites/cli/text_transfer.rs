//! Models of texts that begin with the weights of a language model of one's own.

use super::support::Place;

const SECTIONS: &str =
    "[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adamw\"\nlr = 0.01\n[train]\nepochs = 3\n";

fn config(data: &str, model: &str, end: &str) -> String {
    format!(
        "device = \"cpu\"\n[data]\n{data}\nbatch_size = 8\nvalidation_split = 0.2\n[model]\n{model}\nlayers = [\n  \
         {{ name = \"wte\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 }},\n  \
         {{ name = \"rnn\", type = \"gru\", hidden_size = 16 }},\n  {end}\n]\n{SECTIONS}"
    )
}

/// The classifier has the tokenizer of the language model and classes of its own, and the layers that both have begin as they were trained.
#[test]
fn a_classifier_begins_with_a_language_model() {
    let place = Place::new();
    let words = ["lake", "stone", "horse", "moon", "bee"];
    let line = |i: usize| format!("{} {} {}", words[i % 5], words[i * i % 5], words[(i / 5) % 5]);
    place.write("text.txt", (0..200).map(|i| line(i) + "\n").collect::<String>());
    let rows = (0..60).map(|i| format!("{},{}\n", line(i), ["wet", "dry"][usize::from(i % 5 > 0)]));
    place.write("rows.csv", format!("text,label\n{}", rows.collect::<String>()));
    let head = "{ name = \"head\", type = \"linear\", out_features = \"$vocabulary\" },";
    let text = "source = \"text\"\npath = \"text.txt\"\ncontext = 12";
    place.write("lm.toml", config(text, "", head));
    place.ok("train lm.toml --out lm --quiet");
    let weights = "weights = \"lm/last.safetensors\"\nweights_strict = false";
    let classes = "{ type = \"sequence_pool\", mode = \"last\" }, { name = \"out\", type = \"linear\", out_features = \"$classes\" },";
    // What the configuration says of the tokenizer is that of the weights.
    let table = "source = \"text_classes\"\npath = \"rows.csv\"\ntokenizer = \"characters\"\nmax_length = 24";
    place.write("c.toml", config(table, weights, classes));
    let trained = place.ok("train c.toml --out c --set optimizer.lr=1e-30 --set train.max_steps=1");
    assert!(trained.err.contains("weights: text becomes tokens as it did for"), "{trained:?}");
    let [before, after] = ["lm", "c"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")).tensors);
    assert_eq!(before["wte.weight"].data, after["wte.weight"].data);
    assert_eq!(after["out.weight"].shape, [2, 16]);
    // A model that answers needs a token that ends answers, which the weights have to know.
    let pairs = "source = \"text_pairs\"\npath = \"rows.csv\"\ntext = \"text\"\ntarget = \"label\"\ntokenizer = \"characters\"\nmax_length = 24";
    place.write("p.toml", config(pairs, "weights = \"lm/last.safetensors\"", head));
    let error = place.fails("train p.toml --out p", 2);
    assert!(error.contains("the weights know 14 tokens, and none of them ends answers: `end_token`"), "{error}");
    place.ok("train c.toml --out d --quiet");
    place.write("new.txt", "lake moon bee\nstone horse moon\n");
    let said = place.ok("predict d new.txt --json").json();
    let labels: Vec<&str> =
        said.as_array().unwrap().iter().map(|one| one["top"][0]["label"].as_str().unwrap()).collect();
    assert!(labels.len() == 2 && labels.iter().all(|label| ["wet", "dry"].contains(label)), "{said}");
}

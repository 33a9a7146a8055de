//! Bags of words: `embedding_bag`, held to sums that are made here.

use super::support::Place;
use super::text::{classifier, reviews};
use runner::checkpoint::Tensor;

/// Of one length of batches, of the other, and one that is cut to 24 bytes.
const TEXTS: [&str; 3] = ["lovely", "a film lovely indeed", "the story of a man dull and that is all"];

/// The numbers of a tensor.
fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.data.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

#[test]
fn a_bag_is_the_mean_the_sum_or_the_maximum_of_its_vectors() {
    let layers = "{ name = \"embedding\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 },\n  \
                  { type = \"sequence_pool\", mode = \"mean\" },";
    let place = Place::new();
    place.write("reviews.csv", reviews(60));
    place.write("new.csv", format!("review\n{}\n", TEXTS.join("\n")));
    for mode in ["mean", "sum", "max"] {
        let bag = format!(
            "{{ name = \"embedding\", type = \"embedding_bag\", num_embeddings = \"$vocabulary\", embedding_dim = 16, mode = \"{mode}\" }},"
        );
        let text = classifier("tokenizer = \"bytes\"");
        assert!(text.contains(layers), "{text}");
        place.write("bag.toml", text.replace(layers, &bag));
        place.write("two.toml", text.replace("mode = \"mean\"", &format!("mode = \"{mode}\"")));
        for name in ["bag", "two"] {
            place.ok(&format!("train {name}.toml --out {name}-{mode} --set train.epochs=2"));
        }
        // It is both layers in one, to the bit.
        let [one, two] =
            ["bag", "two"].map(|name| place.checkpoint(&format!("{name}-{mode}/last.safetensors")).tensors);
        assert_eq!(one["embedding.weight"], two["embedding.weight"], "{mode}");
        let (table, head) = (floats(&one["embedding.weight"]), floats(&one["head.weight"]));
        let bias = floats(&one["head.bias"]);
        let rows = place.ok(&format!("predict bag-{mode} new.csv --json")).json();
        for (row, text) in rows.as_array().unwrap().iter().zip(TEXTS) {
            let tokens = text.bytes().map(usize::from).take(24);
            let vectors: Vec<&[f64]> = tokens.map(|token| &table[token * 16..][..16]).collect();
            let of = |k: usize| -> f64 {
                let numbers = vectors.iter().map(|vector| vector[k]);
                match mode {
                    "max" => numbers.fold(f64::NEG_INFINITY, f64::max),
                    "mean" => numbers.sum::<f64>() / vectors.len() as f64,
                    _ => numbers.sum(),
                }
            };
            let logit = |class: usize| bias[class] + (0..16).map(|k| of(k) * head[class * 16 + k]).sum::<f64>();
            let p = 1.0 / (1.0 + (logit(1) - logit(0)).exp());
            let entry = row["top"].as_array().unwrap().iter().find(|one| one["class"] == 0).unwrap();
            assert!((entry["probability"].as_f64().unwrap() - p).abs() < 1e-5, "{mode}: {row}, {p}");
        }
    }
}

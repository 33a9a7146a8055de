//! What the architectures of the program are for, and a configuration for one of them without data.

use super::Made;
use super::parameters::{Parameters, Values};
use super::writing::{Writing, quoted};
use crate::api::failure::Failure;
use crate::config::language::pretrained::Pretrained;
use crate::config::load::models::MODELS;
use crate::config::text::spelling::list;

/// What an architecture takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Images of one size alone, or of any (from 64 pixels a side on), for which that size is usual; it predicts classes.
    Images {
        /// The size.
        side: usize,
        /// No other.
        only: bool,
    },
    /// Images, which it puts out again.
    ImagesToImages,
    /// Photos; it predicts a class for each pixel.
    Masks,
    /// The columns of a table.
    Columns,
    /// Rows of numbers, also those of a table.
    Rows,
    /// A text, which it goes on with.
    Text,
    /// Texts with a class each.
    Texts,
    /// Sentences whose words have a tag each.
    Tags,
    /// Texts with an answer each.
    Answers,
    /// Windows of the rows of a table.
    Series,
}

/// What the architecture of that name takes.
pub fn takes(name: &str) -> Takes {
    match name {
        "autoencoder" => Takes::ImagesToImages,
        "unet" => Takes::Masks,
        "tabm" | "tabular" | "dlrm" | "ft_transformer" => Takes::Columns,
        "linear" | "tabular_mlp" | "tabular_resnet" => Takes::Rows,
        "gpt" | "gpt2" | "llama" | "lstm" => Takes::Text,
        "text_classifier" | "lstm_classifier" | "bert" | "distilbert" => Takes::Texts,
        "lstm_tagger" => Takes::Tags,
        "lstm_forecaster" => Takes::Series,
        "gru_seq2seq" | "transformer" => Takes::Answers,
        "lenet5" | "mlp_mixer" | "resnet9" | "resnet18_cifar" | "vit_small_32" => {
            Takes::Images { side: 32, only: true }
        }
        "vit_b_16" => Takes::Images { side: 224, only: true },
        _ => Takes::Images { side: 224, only: false },
    }
}

/// Refuses an architecture that is for something else, with those that are for it.
///
/// # Errors
/// It is.
pub fn expect(model: Option<&'static str>, fits: impl Fn(Takes) -> bool, what: &str) -> Result<(), Failure> {
    let Some(model) = model.filter(|model| !fits(takes(model))) else { return Ok(()) };
    let of_kind: Vec<&str> = MODELS.iter().map(|(name, _)| *name).filter(|name| fits(takes(name))).collect();
    Err(Failure::Usage(format!("`{model}` is not for {what}\nhelp: for {what} there are {}", list(of_kind, "and"))))
}

/// What to write for weights to start from, as comments: of an architecture for large photos.
pub fn weights(out: &mut Writing, name: &str) {
    if !matches!(takes(name), Takes::Images { side: 224, .. }) {
        return;
    }
    let named = format!("torchvision/{name}");
    let (value, remark) = match Pretrained::parse(&named) {
        Some(Ok(_)) => (named, "start from torchvision's weights, which `runner train` fetches"),
        _ => (format!("{name}.pth"), "start from weights: the state dict in a file"),
    };
    out.maybe("weights", &quoted(&value), remark);
    out.maybe("weights_strict", "false", "all but the last layer, if the classes are others");
}

/// A configuration for an architecture, with samples that are made up.
///
/// # Errors
/// It needs data of the user's.
pub fn alone(name: &str, file: &str) -> Result<Made, Failure> {
    let needs = |what: &str, help: &str| {
        Err(Failure::Usage(format!("`{name}` learns from {what}, and there is none\nhelp: {help}")))
    };
    let (data, with, loss, task): (&[[&str; 3]], Values, &str, &str) = match takes(name) {
        Takes::Columns => {
            return needs(
                "the columns of a table",
                &format!("name one: `runner init data.csv --target COLUMN --model {name}`"),
            );
        }
        Takes::Series => {
            return needs(
                "the series of a table",
                &format!("name one: `runner init data.csv --target COLUMN --model {name}`"),
            );
        }
        Takes::Text => return needs("a text", &format!("name one: `runner init input.txt --model {name}`")),
        Takes::Texts => {
            return needs(
                "a table of texts with a class each",
                &format!("name one: `runner init reviews.csv --target label --model {name}`"),
            );
        }
        Takes::Tags => {
            return needs(
                "sentences whose words have a tag each",
                "`source = \"text_tags\"` reads them: docs/text.md has an example",
            );
        }
        Takes::Answers => {
            return needs(
                "texts with an answer each",
                &format!("name a table of both: `runner init pairs.csv --target answer --model {name}`"),
            );
        }
        Takes::Masks => {
            return needs(
                "photos with masks",
                "`source = \"image_list\"` with `label_kind = \"mask\"` reads them: \"Masks\" in docs/config/photos.md has an example",
            );
        }
        Takes::Rows => (
            &[
                ["shape", "[8]", "numbers of a row"],
                ["targets", "1", "numbers to learn"],
                ["samples", "2000", ""],
                ["val_samples", "500", ""],
            ],
            &[("num_classes", "1")],
            "mse",
            "source = \"csv\" reads a table: `runner init data.csv --target COLUMN --model NAME` writes this section for yours",
        ),
        Takes::ImagesToImages => (
            &[],
            &[("channels", "1"), ("code", "4")],
            "mse",
            "the bundled digits; source = \"mnist\" downloads larger ones",
        ),
        Takes::Images { side, .. } => {
            let data: &[[&str; 3]] = match (name, side) {
                ("lenet5", _) => &[
                    ["shape", "[1, 32, 32]", "channels, height, width"],
                    ["classes", "10", ""],
                    ["samples", "512", ""],
                    ["val_samples", "128", ""],
                ],
                (_, 32) => &[
                    ["shape", "[3, 32, 32]", "channels, height, width"],
                    ["classes", "10", ""],
                    ["samples", "512", ""],
                    ["val_samples", "128", ""],
                ],
                _ => &[
                    ["shape", "[3, 224, 224]", "channels, height, width"],
                    ["classes", "10", ""],
                    ["samples", "64", ""],
                    ["val_samples", "32", ""],
                ],
            };
            (
                data,
                &[],
                "cross_entropy",
                "source = \"image_folder\" reads photos: `runner init photos/ --model NAME` writes this section for yours",
            )
        }
    };
    let images = matches!(takes(name), Takes::ImagesToImages);
    let mut out = Writing::default();
    out.comment(&format!("{name}, on samples that stand in for yours: written by `runner init`, to try it with."));
    out.comment(&format!(
        "`runner models --show {name}` prints its layers. `runner check {file}` shows their shapes and the memory."
    ));
    out.key("seed", "1", "");
    out.section("data");
    out.comment(&task.replace("NAME", name));
    out.key(
        "source",
        if images { "\"digits\"" } else { "\"synthetic\"" },
        if images { "" } else { "random, with something to learn in them" },
    );
    for [key, value, remark] in data {
        out.key(key, value, remark);
    }
    let batch = match takes(name) {
        Takes::Images { side: 224, .. } => "8",
        _ => "32",
    };
    out.key("batch_size", batch, "larger is quicker, as far as the memory goes");
    out.section("model");
    out.key("use", &format!("\"{name}\""), "puts out as many numbers as there are classes, or targets");
    Parameters::of(name).write(&mut out, with, "");
    weights(&mut out, name);
    out.section("loss").key("type", &format!("\"{loss}\""), "");
    if images {
        out.key("target", "\"inputs\"", "it learns to put out what it is given");
    }
    out.section("optimizer").key("type", "\"adamw\"", "").key(
        "lr",
        "1e-3",
        "the first thing to change: `runner lr-find` looks for one",
    );
    out.section("train").key("epochs", "2", "");
    Ok(Made { text: out.text(), what: format!("{name} on samples that stand in for yours") })
}

#[cfg(test)]
mod tests {
    use super::super::draft;
    use super::*;
    use crate::train::setup::input;

    /// A new architecture is put where it belongs, or refused with what it needs.
    #[test]
    fn every_architecture_has_a_configuration_or_says_what_it_needs() {
        let mut refused = Vec::new();
        for (name, _) in MODELS {
            match alone(name, "x.toml") {
                Ok(made) => {
                    let experiment = draft(&made.text).unwrap();
                    let spec = input::describe(&experiment).unwrap();
                    assert!(spec.train.is_some_and(|n| n > 0), "{name}: {spec:?}");
                }
                Err(error) => {
                    assert!(error.to_string().contains("help: "), "{error}");
                    refused.push(*name);
                }
            }
        }
        assert_eq!(
            refused,
            [
                "bert",
                "distilbert",
                "dlrm",
                "ft_transformer",
                "gpt",
                "gpt2",
                "gru_seq2seq",
                "llama",
                "lstm",
                "lstm_classifier",
                "lstm_forecaster",
                "lstm_tagger",
                "tabm",
                "tabular",
                "text_classifier",
                "transformer",
                "unet"
            ]
        );
    }
}

//! The architectures of `models/`, which are a part of the program: `use = "resnet18"` works in any folder.

use crate::config::text::diagnostics::SourceId;
use crate::config::text::parse::parse;
use crate::config::text::tree::Node;

macro_rules! models {
    ($($name:literal),* $(,)?) => {
        /// The names of all architectures, and the texts of their files.
        pub const MODELS: &[(&str, &str)] = &[
            $(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/models/", $name, ".toml")))),*
        ];
    };
}

models! {
    "alexnet",
    "autoencoder",
    "bert",
    "convnext_tiny",
    "densenet121",
    "distilbert",
    "dlrm",
    "efficientnet_b0",
    "ft_transformer",
    "googlenet",
    "gpt",
    "gpt2",
    "gru_seq2seq",
    "lenet5",
    "linear",
    "llama",
    "lstm",
    "lstm_classifier",
    "lstm_forecaster",
    "lstm_tagger",
    "mlp_mixer",
    "mnasnet1_0",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet101",
    "resnet18",
    "resnet18_cifar",
    "resnet34",
    "resnet50",
    "resnet9",
    "resnext50_32x4d",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "swin_t",
    "tabm",
    "tabular",
    "tabular_mlp",
    "tabular_resnet",
    "text_classifier",
    "transformer",
    "unet",
    "vgg11",
    "vgg11_bn",
    "vgg16",
    "vit_b_16",
    "vit_small_32",
    "wide_resnet50_2",
}

/// The file that `use` means where there is none of that name: `resnet18`, `resnet18.toml` or `models/resnet18.toml`.
pub fn built_in(written: &str) -> Option<(&'static str, &'static str)> {
    let name = written.strip_prefix("models/").or_else(|| written.strip_prefix("../models/")).unwrap_or(written);
    let name = name.strip_suffix(".toml").unwrap_or(name);
    MODELS.iter().find(|(known, _)| *known == name).copied()
}

/// The parameters that `with` may set of the architecture of that name, in the order of its file.
pub fn parameters(name: &str) -> Vec<String> {
    let Some((_, text)) = built_in(name) else { return Vec::new() };
    let (file, _) = parse(SourceId(0), text);
    let params = file.get("params").and_then(Node::as_table);
    params.map_or_else(Vec::new, |params| params.entries.iter().map(|entry| entry.key.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_the_folder_are_there() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
        let mut files: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort_unstable();
        assert!(
            files.iter().map(|file| file.trim_end_matches(".toml")).eq(MODELS.iter().map(|(name, _)| *name)),
            "{files:?}"
        );
        assert_eq!(built_in("models/gpt.toml").map(|(name, _)| name), Some("gpt"));
        assert_eq!(built_in("gpt.toml"), built_in("gpt"));
        assert_eq!(built_in("models/own/gpt.toml"), None);
        assert_eq!(built_in("gpt3"), None);
        assert!(
            ["num_classes", "width", "depth"]
                .iter()
                .all(|name| parameters("tabular_mlp").iter().any(|own| own == name))
        );
        assert!(MODELS.iter().all(|(name, _)| !parameters(name).is_empty()));
    }
}

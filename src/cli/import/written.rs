//! The text of the configuration of a model of Hugging Face's.

use super::architecture::{Architecture, Task, are_unnamed};
use crate::api::failure::Failure;
use crate::checkpoint;
use crate::cli::init::Place;
use crate::config::value_as_toml;
use crate::terminal::thousands;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::Path;

/// Tokens of a sample where the model would take more: what a machine of some gigabytes trains.
const MOST_CONTEXT: u64 = 1024;
/// Tokens of a text that is classified where the model would take more.
const MOST_OF_A_TEXT: u64 = 256;
/// What names of tensors begin with where a model was saved without the class that has a head.
const BARE: [&str; 7] = ["embeddings.", "encoder.", "pooler.", "transformer.", "embed_tokens.", "layers.", "norm."];

/// What a configuration names besides the model's layers.
pub(super) struct Files<'a> {
    pub tokenizer: &'a Path,
    pub weights: &'a Path,
    /// That of a template for conversations.
    pub chat: Option<&'a Path>,
    /// The token that ends texts.
    pub end: Option<&'a str>,
    /// Where the configuration is to be.
    pub place: &'a Place,
}

/// The text of a configuration: the architecture with its numbers, and sections to go on training with.
pub(super) fn configuration(
    architecture: &Architecture,
    name: &str,
    &Files { tokenizer, weights, chat, end, place }: &Files,
) -> Result<String, Failure> {
    let tensors = checkpoint::names(weights).map_err(anyhow::Error::from)?;
    expect_head(architecture, &tensors, weights)?;
    // A path from the root on was meant as such; another one holds from the folder of the configuration on.
    let quoted = |path: &Path| -> Result<String, Failure> {
        let text = match path.is_absolute() {
            true => path.to_str().with_context(|| format!("`{}` is not UTF-8", path.display()))?.to_owned(),
            false => place.written(path)?,
        };
        Ok(value_as_toml(&text.into()))
    };
    let (name, tokenizer) = (name.replace(char::is_control, " "), quoted(tokenizer)?);
    let model = model(architecture, &tensors, &quoted(weights)?);
    Ok(match &architecture.task {
        Task::Language => {
            let context = match architecture.positions {
                more if more > MOST_CONTEXT => {
                    format!(
                        "{MOST_CONTEXT}                      # the model knows {} positions, which take more memory",
                        thousands(more)
                    )
                }
                positions => positions.to_string(),
            };
            let chat = match chat {
                Some(settings) => format!("chat_template = {}\n", quoted(settings)?),
                None => String::new(),
            };
            let end = match end {
                Some(end) => format!(
                    "end_token = {}                # what ends a text, as the model learned it\n",
                    value_as_toml(&end.into())
                ),
                None => String::new(),
            };
            format!(
                "# {name}, from files of Hugging Face's: to write text with `runner generate`, or to train on with a text of your own.\n\n\
                 [data]\nsource = \"text\"\npath = \"input.txt\"                  # your own text\ntokenizer = {tokenizer}\n{chat}{end}context = {context}\n\
                 batch_size = 4\nvalidation_split = 0.1\n\n{model}\n[loss]\ntype = \"cross_entropy\"\n\n[optimizer]\ntype = \"adamw\"\nlr = 5e-5\n\n\
                 [train]\nepochs = 1\nclip_grad_norm = 1.0\n"
            )
        }
        Task::Classes(names) | Task::Tags { names, .. } => {
            let length = architecture.positions.min(MOST_OF_A_TEXT);
            let (what, source) = match architecture.task {
                Task::Tags { .. } => (
                    "a tagger of words, to train on sentences of your own",
                    "source = \"text_tags\"\npath = \"train.conll\"                # your own sentences: a word and its tag a line\n",
                ),
                _ => (
                    "a classifier of texts, to train on a table of your own",
                    "source = \"text_classes\"\npath = \"texts.csv\"                  # your own table\ntext = \"text\"                       # its column of texts\n\
                     target = \"label\"                    # and that of their classes\n",
                ),
            };
            let has_classifier = tensors.iter().any(|name| name.starts_with("classifier."));
            let classes = names.as_ref().map_or_else(String::new, |names| {
                let what = match are_unnamed(names) {
                    false => "what the outputs mean",
                    // Without them no answer would have a name. A classifier that begins anew takes those of the table.
                    true if has_classifier => {
                        "the file has no other names; with a table of your own, write its classes, or leave this out"
                    }
                    true => return String::new(),
                };
                format!("classes = {}          # {what}\n", value_as_toml(&names.clone().into()))
            });
            format!(
                "# {name}, from files of Hugging Face's: {what}.\n\n[data]\n{source}{classes}tokenizer = {tokenizer}\nmax_length = {length}\nbatch_size = 16\n\
                 validation_split = 0.2\n\n{model}\n[loss]\ntype = \"cross_entropy\"\n\n[optimizer]\ntype = \"adamw\"\nlr = 3e-5\nweight_decay = 0.01\n\
                 no_decay = [\"norm\", \"bias\"]\n\n[schedule]\ntype = \"linear\"\nstart_factor = 1.0\nend_factor = 0.0\nby = \"step\"\n\n\
                 [train]\nepochs = 3\nclip_grad_norm = 1.0\n"
            )
        }
    })
}

/// Refuses weights without the matrix of the outputs where that is not the embedding's.
fn expect_head(architecture: &Architecture, tensors: &[String], weights: &Path) -> Result<()> {
    let own = architecture.params.iter().any(|(name, value)| *name == "tie" && value == "");
    ensure!(
        !own || tensors.iter().any(|name| name.ends_with("lm_head.weight")),
        "`{}` has no `lm_head.weight`, and `tie_word_embeddings` is false: it is a model without its outputs, which cannot go on with a text",
        weights.display()
    );
    Ok(())
}

/// The sections of the model, from its file: with the numbers of its parameters, and how the names of its `tensors` become those of the file.
fn model(architecture: &Architecture, tensors: &[String], weights: &str) -> String {
    let Architecture { template, params, prefix, task, attention, windows, .. } = architecture;
    let starts = |with: &str| tensors.iter().any(|name| name.starts_with(with));
    let has_prefix = template.contains(&format!("name = \"{}\"", prefix.trim_end_matches('.')));
    let rename: Vec<(String, String)> = match has_prefix {
        false if starts(prefix) => vec![(prefix.to_string(), String::new())],
        false => Vec::new(),
        true => {
            // An encoder alone has names without its own; in older files norms have names of TensorFlow's. Of these rules the first that
            // fits a name counts.
            let parts = BARE.into_iter().filter(|part| starts(part));
            let parts: Vec<(&str, String)> = parts.map(|part| (part, format!("{prefix}{part}"))).collect();
            let ends = [("", ""), (".gamma", ".weight"), (".beta", ".bias")];
            let bare = |name: &String| parts.iter().any(|(part, _)| name.starts_with(part));
            let fits = |part: &str, old: &str| {
                let mut names = tensors.iter().filter(|name| !part.is_empty() || !bare(name));
                names.any(|name| name.starts_with(part) && name.ends_with(old))
            };
            let mut rules = Vec::new();
            for (part, whole) in parts.iter().map(|(part, whole)| (*part, whole.as_str())).chain([("", "")]) {
                for (old, new) in ends.iter().rev().filter(|(old, _)| !(old.is_empty() && part.is_empty())) {
                    if fits(part, old) {
                        let star = if old.is_empty() { "" } else { "*" };
                        rules.push((format!("{part}{star}{old}"), format!("{whole}{star}{new}")));
                    }
                }
            }
            rules
        }
    };
    let lenient = match task {
        Task::Language => tensors
            .iter()
            .any(|name| is_no_weight(name))
            .then_some("the file has masks besides, which attention makes itself"),
        Task::Tags { own: false, .. } => {
            Some("the classifier begins anew, and layers that tags do not need are left out")
        }
        Task::Classes(_) | Task::Tags { .. } if !starts("classifier.") => {
            Some("the file has no classifier: that begins anew")
        }
        Task::Tags { .. } => tensors
            .iter()
            .any(|name| ["pooler.", "pre_classifier.", "position_ids"].iter().any(|part| name.contains(part)))
            .then_some("the file has layers besides that tags do not need"),
        Task::Classes(_) => tensors
            .iter()
            .any(|name| name.ends_with("position_ids"))
            .then_some("the file has numbers of positions besides"),
    };
    // A parameter is no table and cannot be left out, so these are written where they belong.
    let theta = "rope_theta = \"$rope_theta\"";
    let mut more: String = attention.iter().map(|(key, value)| format!(", {key} = {}", value_as_toml(value))).collect();
    let block = "{ name = \"layers\", block = \"layer\", repeat = \"$layers\" }";
    let mut layers = block.to_owned();
    if let Some(widest) = windows.iter().max() {
        more += ", sliding_window = \"$window\"";
        let layer = |window: &u64| match window == widest {
            true => "\n      { block = \"layer\" },".to_owned(),
            false => format!("\n      {{ block = \"layer\", with = {{ window = {window} }} }},"),
        };
        layers = format!("{{ name = \"layers\", layers = [{}\n    ] }}", windows.iter().map(layer).collect::<String>());
    }
    let completed = |line: &str| line.replace(theta, &format!("{theta}{more}")).replace(block, &layers);
    let classifier = starts("classifier.") && !matches!(task, Task::Tags { own: false, .. });
    let of_words = matches!(task, Task::Tags { .. });
    let mut within = false;
    let mut model = String::new();
    let mut section = "";
    for line in template.lines().skip_while(|line| !line.starts_with('[')) {
        if line.starts_with('[') {
            section = line;
        }
        // Of an encoder's positions all are looked at, and not the first one alone.
        let pooler = line.contains("name = \"pooler\"");
        let pooled = ["sequence_pool", "pre_classifier", "\"relu\","]
            .iter()
            .any(|part| line.trim_start().starts_with("{") && line.contains(part) || line.trim() == *part);
        if of_words && (within || pooler || pooled) {
            within = (within || pooler) && line != "    ] },";
            continue;
        }
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        // Where each layer is written down, their number is not asked for.
        if section == "[params]" && key == "layers" && !windows.is_empty() {
            continue;
        }
        let _ = match params.iter().find(|(name, _)| section == "[params]" && *name == key) {
            Some(("num_classes", _)) if !classifier => {
                writeln!(model, "num_classes = \"$classes\"              # what the data says")
            }
            Some((_, value)) => writeln!(model, "{key} = {}", value_as_toml(value)),
            None => writeln!(model, "{}", completed(line)),
        };
        if let (true, Some(widest)) = (line == "[blocks.layer]", windows.iter().max()) {
            let _ = writeln!(model, "params = {{ window = {widest} }}             # as far as a layer sees");
        }
        if line == "[model]" {
            let _ = writeln!(model, "weights = {weights}");
            if !rename.is_empty() {
                let rules: Vec<String> =
                    rename.iter().map(|(from, to)| format!("{{ from = \"{from}\", to = \"{to}\" }}")).collect();
                let _ = writeln!(model, "weights_rename = [{}]", rules.join(", "));
            }
            if let Some(why) = lenient {
                let _ = writeln!(model, "weights_strict = false             # {why}");
            }
        }
    }
    model
}

/// Whether a tensor of a language model is a mask or a table of angles, which older files have among the weights.
fn is_no_weight(name: &str) -> bool {
    [".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq"].iter().any(|end| name.ends_with(end))
}

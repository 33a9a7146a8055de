//! `runner import`: from a folder of Hugging Face's to a configuration.

mod architecture;

use super::args::ImportArgs;
use super::init::Place;
use super::print_json;
use crate::api::failure::Failure;
use crate::api::pretrained;
use crate::api::what::{expect_apart, expect_new, expect_no_input, output};
use crate::checkpoint;
use crate::config::language::pretrained::{Origin, Pretrained, Unknown};
use crate::config::value_as_toml;
use crate::data::text::{BESIDE, Chat, Tokenizer};
use crate::files;
use crate::terminal::{say, thousands};
use anyhow::{Context, Result, anyhow, ensure};
use architecture::{Architecture, Task, architecture};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const SETTINGS: &str = "tokenizer_config.json";

/// Largest `config.json`, in bytes.
const MAX_CONFIG: u64 = 1 << 20;
/// Tokens of a sample where the model would take more: what a machine of some gigabytes trains.
const MOST_CONTEXT: u64 = 1024;
/// Tokens of a text that is classified where the model would take more.
const MOST_OF_A_TEXT: u64 = 256;

/// What names of tensors begin with where a model was saved without the class that has a head.
const BARE: [&str; 7] = ["embeddings.", "encoder.", "pooler.", "transformer.", "embed_tokens.", "layers.", "norm."];

/// Writes a configuration for a model of a folder.
pub(super) fn run(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let (folder, name) = &match args.folder.to_str().and_then(Pretrained::parse) {
        Some(named) => {
            fetched(&named.map_err(|Unknown { what, help }| Failure::Usage(format!("{what}\nhelp: {help}")))?)?
        }
        None => {
            let name =
                args.folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
            let name = name.with_context(|| format!("there is no folder `{}`", args.folder.display()))?;
            (args.folder.clone(), name)
        }
    };
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.toml")));
    let mut files = [CONFIG, TOKENIZER, WEIGHTS].map(|file| folder.join(file));
    // Those of a large model are in several files, with an index of them.
    let index = folder.join(INDEX);
    if !files::is_there(&files[2]) && files::is_there(&index) {
        files[2] = index;
    }
    let [config, tokenizer, weights] = &files;
    if let Some(missing) = files.iter().find(|file| !files::is_there(file)) {
        return Err(
            anyhow!("`{}` is not there: it is one of the three files that are needed", missing.display()).into()
        );
    }
    let out = output(&path)?;
    expect_new(&out, args.force)?;
    expect_apart(&out, args.output.json)?;
    let parts = if checkpoint::is_index(weights) {
        checkpoint::files_of(weights).map_err(anyhow::Error::from)?
    } else {
        Vec::new()
    };
    expect_no_input(&out, files.iter().chain(&parts).map(PathBuf::as_path))?;
    let text = files::read(config, MAX_CONFIG).map_err(anyhow::Error::from)?;
    let keys: Value = serde_json::from_slice(&text).with_context(|| format!("`{}` is no JSON", config.display()))?;
    let architecture = architecture(&keys, args.tags).with_context(|| format!("`{}`", config.display()))?;
    expect_tokens(&architecture, [tokenizer, config])?;
    let (settings, template) = (folder.join(SETTINGS), folder.join(BESIDE));
    let chat = match Chat::is_in(&settings) {
        true => Some(settings.as_path()),
        false => files::is_there(&template).then_some(template.as_path()),
    };
    let place = Place::of(&out);
    let written = configuration(&architecture, name, [tokenizer, weights], chat, &place)?;
    out.put(written.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))?;
    let shown = path.display();
    if args.output.json {
        print_json(&json!({ "written": path }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if out.is_stream() {
        return Ok(ExitCode::SUCCESS);
    }
    say(&match architecture.task {
        Task::Language => format!(
            "wrote `{shown}`: `runner generate {shown} --prompt TEXT` goes on with a text; with a text of your own as `path` in `[data]`, \
             `runner train {shown}` trains on"
        ),
        Task::Classes(_) => format!(
            "wrote `{shown}`: with a table of your own as `path` in `[data]`, `runner train {shown}` trains the classifier on it"
        ),
        Task::Tags { .. } => format!(
            "wrote `{shown}`: with sentences of your own as `path` in `[data]`, `runner train {shown}` trains on their tags"
        ),
    });
    Ok(ExitCode::SUCCESS)
}

/// Refuses a tokenizer with more tokens than the model has embeddings. Fewer are usual: models have some to spare.
fn expect_tokens(architecture: &Architecture, [tokenizer, config]: [&Path; 2]) -> Result<()> {
    let tokens = Tokenizer::read(tokenizer)?.vocabulary();
    let known = architecture.params.iter().find(|(name, _)| *name == "vocabulary");
    let known = known.and_then(|(_, value)| value.as_u64()).unwrap_or(u64::MAX);
    ensure!(
        tokens as u64 <= known,
        "`{}` has {tokens} tokens, and `vocab_size` of `{}` is {known}\n\
         help: take the `tokenizer.json` of the same model, without tokens that were added to it later",
        tokenizer.display(),
        config.display()
    );
    Ok(())
}

/// Fetches the files of a model of the hub. Their folder, and the model's name.
fn fetched(named: &Pretrained) -> Result<(PathBuf, String), Failure> {
    let words: Vec<&str> = named.folder.split('/').collect();
    let (Origin::Hub, [_, name, _, _]) = (named.origin, &words[..]) else {
        return Err(Failure::Usage(format!(
            "`{}` is no model of Hugging Face's hub\nhelp: give a folder, or `hf:OWNER/MODEL`",
            named.name
        )));
    };
    // The small ones first: what they say may be wrong already.
    pretrained::fetch(&named.beside(CONFIG))?;
    for file in [TOKENIZER, SETTINGS, BESIDE] {
        pretrained::optional(&named.beside(file))?;
    }
    let weights = match pretrained::optional(named)? {
        Some(weights) => weights,
        // Those of a large model are in several files, with an index of them.
        None => match pretrained::optional(&named.beside(INDEX))? {
            Some(index) => {
                for part in checkpoint::files_of(&index).map_err(anyhow::Error::from)? {
                    let name = part.file_name().unwrap_or_default().to_string_lossy();
                    pretrained::fetch(&named.beside(&name))?;
                }
                index
            }
            None => pretrained::fetch(named)?,
        },
    };
    let folder = weights.parent().map(Path::to_path_buf).unwrap_or_default();
    Ok((folder, (*name).to_owned()))
}

/// The text of a configuration: the architecture with its numbers, and sections to go on training with.
fn configuration(
    architecture: &Architecture,
    name: &str,
    [tokenizer, weights]: [&Path; 2],
    chat: Option<&Path>,
    place: &Place,
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
            format!(
                "# {name}, from files of Hugging Face's: to write text with `runner generate`, or to train on with a text of your own.\n\n\
                 [data]\nsource = \"text\"\npath = \"input.txt\"                  # your own text\ntokenizer = {tokenizer}\n{chat}context = {context}\n\
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
            let classes = names.as_ref().map_or_else(String::new, |names| {
                format!("classes = {}          # what the outputs mean\n", value_as_toml(&names.clone().into()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused() {
        let refused =
            |text: &str| format!("{:#}", architecture(&serde_json::from_str(text).unwrap(), false).err().unwrap());
        assert!(refused("{}").contains("`model_type` is not there"));
        assert!(refused(r#"{"model_type":"deberta"}"#).contains("`model_type` is `deberta`, and gpt2, llama"));
        assert!(refused(r#"{"model_type":"gpt2"}"#).contains("`n_embd` is not there"));
        let gpt2 = r#"{"model_type":"gpt2","n_embd":8,"n_positions":4,"n_head":2,"n_layer":1,"vocab_size":9"#;
        assert!(
            refused(&format!("{gpt2},\"activation_function\":\"relu\"}}")).contains("`activation_function` is `relu`")
        );
        assert!(refused(&format!("{gpt2},\"n_inner\":9}}")).contains("`n_inner`"));
        for (key, value) in
            [("scale_attn_weights", false), ("scale_attn_by_inverse_layer_idx", true), ("add_cross_attention", true)]
        {
            assert!(refused(&format!("{gpt2},\"{key}\":{value}}}")).contains(&format!("`{key}` is {value}")));
        }
        let llama = r#"{"model_type":"llama","hidden_size":8,"num_attention_heads":2,"vocab_size":9,"num_hidden_layers":1,"intermediate_size":8,"max_position_embeddings":8,"rope_scaling":"#;
        assert!(refused(&format!(r#"{llama}{{"rope_type":"yarn"}}}}"#)).contains("`rope_scaling` has the type `yarn`"));
        assert!(refused(&format!(r#"{llama}{{"type":"linear"}}}}"#)).contains("`rope_scaling` has no `factor`"));
        assert!(refused(r#"{"model_type":"llama","attention_bias":true}"#).contains("`attention_bias` is true"));
        for (key, from) in [("n_embd", 8), ("n_positions", 4), ("n_head", 2), ("n_layer", 1), ("vocab_size", 9)] {
            let zero = format!("{gpt2}}}").replace(&format!("\"{key}\":{from}"), &format!("\"{key}\":0"));
            assert!(refused(&zero).contains(&format!("`{key}` is 0")), "{zero}");
        }
        assert!(
            refused(&format!("{gpt2}}}").replace("_head\":2", "_head\":3")).contains("does not divide `n_embd`, 8")
        );
        let llama = llama.replace(",\"rope_scaling\":", ",\"num_key_value_heads\":");
        assert!(refused(&format!("{llama}0}}")).contains("`num_key_value_heads` is 0"));
        assert!(refused(&format!("{llama}3}}")).contains("does not divide `num_attention_heads`, 2"));
        let bert = r#"{"model_type":"distilbert","dim":8,"n_heads":2,"vocab_size":9,"n_layers":1,"hidden_dim":8,"max_position_embeddings":8,"#;
        let learns = |more: &str| refused(&format!("{bert}{more}}}"));
        assert!(learns(r#""problem_type":"regression""#).contains("`problem_type` is `regression`"));
        let labels = r#""problem_type":"multi_label_classification","id2label":{"0":"A","1":"B"}"#;
        assert!(learns(labels).contains("`problem_type` is `multi_label_classification`"));
        assert!(learns(r#""id2label":{"0":"LABEL_0"}"#).contains("`id2label` has 1 label:"));
        let tags = serde_json::from_str(&format!(r#"{bert}"id2label":{{"0":"LABEL_0"}}}}"#)).unwrap();
        assert!(architecture(&tags, true).is_ok(), "tags have a classifier of their own");
        let found = architecture(&serde_json::from_str(&format!("{gpt2}}}")).unwrap(), false).unwrap();
        assert_eq!((found.positions, found.params[2].clone()), (4, ("width", 8.into())));
    }
}

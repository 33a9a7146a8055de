//! `runner import`: from a folder of Hugging Face's to a configuration.

mod architecture;
mod ends;
mod written;

use super::args::ImportArgs;
use super::init::Place;
use super::print_json;
use crate::api::failure::Failure;
use crate::api::pretrained;
use crate::api::what::{expect_apart, expect_new, expect_no_input, output};
use crate::checkpoint;
use crate::config::language::pretrained::{Origin, Pretrained, Unknown};
use crate::data::text::{BESIDE, Chat, Tokenizer};
use crate::files;
use crate::terminal::say;
use anyhow::{Context, Result, anyhow, ensure};
use architecture::{Architecture, Task, architecture};
use ends::end_token;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use written::{Files, configuration};

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const SETTINGS: &str = "tokenizer_config.json";
const GENERATION: &str = "generation_config.json";

/// Largest `config.json`, in bytes.
const MAX_CONFIG: u64 = 1 << 20;

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
    expect_apart(&out, "--out", args.output.json)?;
    let parts = if checkpoint::is_index(weights) {
        checkpoint::files_of(weights).map_err(anyhow::Error::from)?
    } else {
        Vec::new()
    };
    let [settings, template, generation] = [SETTINGS, BESIDE, GENERATION].map(|file| folder.join(file));
    let inputs = files.iter().chain(&parts).chain([&settings, &template, &generation]);
    expect_no_input(&out, inputs.map(PathBuf::as_path))?;
    let keys = read(config)?;
    let architecture = architecture(&keys, args.tags).with_context(|| format!("`{}`", config.display()))?;
    let known = expect_tokens(&architecture, [tokenizer, config])?;
    let chat = match Chat::is_in(&settings) {
        true => Some(settings.as_path()),
        false => files::is_there(&template).then_some(template.as_path()),
    };
    let end = match files::is_there(&generation) {
        true => Some(read(&generation)?),
        false => None,
    };
    let configs: Vec<&Value> = end.iter().chain([&keys]).collect();
    let read_chat = chat.map(Chat::read).transpose()?;
    let end = end_token(&configs, &known, read_chat.as_ref()).with_context(|| format!("`{}`", folder.display()))?;
    let place = Place::of(&out);
    let files = Files { tokenizer, weights, chat, end: end.as_deref(), place: &place };
    let written = configuration(&architecture, name, &files)?;
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

/// Reads a file of keys.
fn read(path: &Path) -> Result<Value> {
    let text = files::read(path, MAX_CONFIG)?;
    serde_json::from_slice(&text).with_context(|| format!("`{}` is no JSON", path.display()))
}

/// The tokenizer. Refused is one with more tokens than the model has embeddings. Fewer are usual: models have some to spare.
fn expect_tokens(architecture: &Architecture, [tokenizer, config]: [&Path; 2]) -> Result<Tokenizer> {
    let read = Tokenizer::read(tokenizer)?;
    let tokens = read.vocabulary();
    let known = architecture.params.iter().find(|(name, _)| *name == "vocabulary");
    let known = known.and_then(|(_, value)| value.as_u64()).unwrap_or(u64::MAX);
    ensure!(
        tokens as u64 <= known,
        "`{}` has {tokens} tokens, and `vocab_size` of `{}` is {known}\n\
         help: take the `tokenizer.json` of the same model, without tokens that were added to it later",
        tokenizer.display(),
        config.display()
    );
    Ok(read)
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
    // The small ones first: they may have an error already.
    pretrained::fetch(&named.beside(CONFIG))?;
    for file in [TOKENIZER, SETTINGS, BESIDE, GENERATION] {
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
        let two = |more: &str| {
            let class = r#""architectures":["DistilBertForSequenceClassification"]"#;
            let keys = serde_json::from_str(&format!("{bert}{class}{more}}}")).unwrap();
            match architecture(&keys, false).unwrap().task {
                Task::Classes(names) => names,
                _ => None,
            }
        };
        for labels in ["", r#","id2label":{"0":"LABEL_0","1":"LABEL_1"}"#] {
            assert_eq!(two(labels).unwrap(), ["LABEL_0", "LABEL_1"]);
        }
        let tags = serde_json::from_str(&format!(r#"{bert}"id2label":{{"0":"LABEL_0"}}}}"#)).unwrap();
        assert!(architecture(&tags, true).is_ok(), "tags have a classifier of their own");
        let found = architecture(&serde_json::from_str(&format!("{gpt2}}}")).unwrap(), false).unwrap();
        assert_eq!((found.positions, found.params[2].clone()), (4, ("width", 8.into())));
    }
}

//! `runner import`: from a folder of Hugging Face's to a configuration.

use super::args::ImportArgs;
use super::print_json;
use crate::api::failure::Failure;
use crate::api::what::{expect_no_input, output};
use crate::checkpoint;
use crate::config::value_as_toml;
use crate::data::text::Chat;
use crate::files;
use crate::terminal::say;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Largest `config.json`, in bytes.
const MAX_CONFIG: u64 = 1 << 20;
/// Tokens of a sample where the model would take more: what a machine of some gigabytes trains.
const MOST_CONTEXT: u64 = 1024;

/// An architecture, as a model file of this program has it.
struct Architecture {
    /// The file's text.
    template: &'static str,
    /// Parameters of the file with their values.
    params: Vec<(&'static str, Value)>,
    /// How many positions the model knows.
    positions: u64,
    /// What stands before names of its tensors that the file does not have.
    prefix: &'static str,
}

/// Writes a configuration for a model of a folder.
pub(super) fn run(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let folder = &args.folder;
    let name = folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let name = name.with_context(|| format!("there is no folder `{}`", folder.display()))?;
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.toml")));
    let files = ["config.json", "tokenizer.json", "model.safetensors"].map(|file| folder.join(file));
    let [config, tokenizer, weights] = &files;
    if !files::is_there(weights) && files::is_there(&folder.join("model.safetensors.index.json")) {
        return Err(anyhow!(
            "`{}` has its weights in several files, and `[model] weights` takes one: write them into one with \
             `model.save_pretrained(folder, max_shard_size=\"100GB\")`",
            folder.display()
        )
        .into());
    }
    if let Some(missing) = files.iter().find(|file| !files::is_there(file)) {
        return Err(
            anyhow!("`{}` is not there: it is one of the three files that are needed", missing.display()).into()
        );
    }
    let out = output(&path)?;
    expect_no_input(&out, files.iter().map(PathBuf::as_path))?;
    let text = files::read(config, MAX_CONFIG).map_err(anyhow::Error::from)?;
    let keys: Value = serde_json::from_slice(&text).with_context(|| format!("`{}` is no JSON", config.display()))?;
    let architecture = architecture(&keys).with_context(|| format!("`{}`", config.display()))?;
    let settings = folder.join("tokenizer_config.json");
    let chat = Chat::is_in(&settings).then_some(settings.as_path());
    let written = configuration(&architecture, &name, [tokenizer, weights], chat)?;
    out.put(written.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))?;
    let shown = path.display();
    if args.output.json {
        print_json(&json!({ "written": path }))?;
    } else {
        say(&format!(
            "wrote `{shown}`: `runner generate {shown} --prompt TEXT` goes on with a text; with a text of your own as `path` in `[data]`, \
             `runner train {shown}` trains on"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The architecture that a `config.json` describes.
fn architecture(keys: &Value) -> Result<Architecture> {
    let whole = |key: &str| keys.get(key).and_then(Value::as_u64);
    let number = |key: &str| whole(key).with_context(|| format!("`{key}` is not there, or no whole number"));
    let fraction = |key: &str, other: f64| keys.get(key).and_then(Value::as_f64).unwrap_or(other);
    let truth = |key: &str| keys.get(key).and_then(Value::as_bool) == Some(true);
    let word = |key: &str| keys.get(key).and_then(Value::as_str);
    let expect = |key: &str, known: &[&str]| match word(key) {
        Some(found) if !known.contains(&found) => {
            bail!("`{key}` is `{found}`, and {} is known here", known.join(" or "))
        }
        _ => Ok(()),
    };
    match word("model_type") {
        Some("gpt2") => {
            expect("activation_function", &["gelu_new", "gelu_pytorch_tanh"])?;
            let (width, positions) = (number("n_embd")?, number("n_positions")?);
            ensure!(whole("n_inner").is_none_or(|inner| inner == 4 * width), "`n_inner` is not four times `n_embd`");
            let eps = fraction("layer_norm_epsilon", 1e-5);
            ensure!((eps - 1e-5).abs() < 1e-12, "`layer_norm_epsilon` is {eps}, and 0.00001 is known here");
            let params = vec![
                ("vocabulary", number("vocab_size")?.into()),
                ("context", positions.into()),
                ("width", width.into()),
                ("heads", number("n_head")?.into()),
                ("layers", number("n_layer")?.into()),
            ];
            let template = include_str!("../../models/gpt2.toml");
            Ok(Architecture { template, params, positions, prefix: "transformer." })
        }
        Some(kind @ ("llama" | "mistral" | "qwen2")) => {
            expect("hidden_act", &["silu"])?;
            let scaled = keys.get("rope_scaling").is_some_and(|scaling| !scaling.is_null());
            ensure!(!scaled, "`rope_scaling` is set, and rotary positions are not scaled here");
            for (key, what) in [
                ("use_sliding_window", "attention within a window"),
                ("mlp_bias", "a bias of the layers behind attention"),
                ("attention_bias", "a bias behind attention"),
            ] {
                ensure!(!truth(key), "`{key}` is true, and {what} is not known here");
            }
            let window = whole("sliding_window").filter(|_| kind == "mistral");
            ensure!(window.is_none(), "`sliding_window` is set, and attention within a window is not known here");
            let (width, heads) = (number("hidden_size")?, number("num_attention_heads")?);
            ensure!(heads > 0 && width.is_multiple_of(heads), "`num_attention_heads` does not divide `hidden_size`");
            let theta = keys.get("rope_theta").or_else(|| keys.pointer("/rope_parameters/rope_theta"));
            let tie = if truth("tie_word_embeddings") { "model.embed_tokens.weight" } else { "" };
            let params = vec![
                ("vocabulary", number("vocab_size")?.into()),
                ("width", width.into()),
                ("heads", heads.into()),
                ("kv_heads", whole("num_key_value_heads").unwrap_or(heads).into()),
                ("head_width", whole("head_dim").unwrap_or(width / heads).into()),
                ("layers", number("num_hidden_layers")?.into()),
                ("hidden", number("intermediate_size")?.into()),
                ("rope_theta", theta.and_then(Value::as_f64).unwrap_or(10_000.0).into()),
                ("eps", fraction("rms_norm_eps", 1e-6).into()),
                ("qkv_bias", (kind == "qwen2").into()),
                ("tie", tie.into()),
            ];
            let (template, positions) = (include_str!("../../models/llama.toml"), number("max_position_embeddings")?);
            Ok(Architecture { template, params, positions, prefix: "" })
        }
        Some(other) => bail!("`model_type` is `{other}`, and gpt2, llama, mistral and qwen2 are known here"),
        None => bail!("`model_type` is not there"),
    }
}

/// The text of a configuration: the architecture with its numbers, and sections to go on training with.
fn configuration(
    architecture: &Architecture,
    name: &str,
    [tokenizer, weights]: [&Path; 2],
    chat: Option<&Path>,
) -> Result<String> {
    let names = checkpoint::names(weights)?;
    let Architecture { template, params, positions, prefix } = architecture;
    let quoted = |path: &Path| -> Result<String> {
        let text = path.to_str().with_context(|| format!("`{}` is not UTF-8", path.display()))?;
        Ok(value_as_toml(&text.into()))
    };
    let mut model = String::new();
    let mut section = "";
    for line in template.lines().skip_while(|line| !line.starts_with('[')) {
        if line.starts_with('[') {
            section = line;
        }
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        let _ = match params.iter().find(|(name, _)| section == "[params]" && *name == key) {
            Some((_, value)) => writeln!(model, "{key} = {}", value_as_toml(value)),
            None => writeln!(model, "{line}"),
        };
        if line == "[model]" {
            let _ = writeln!(model, "weights = {}", quoted(weights)?);
            if !prefix.is_empty() && names.iter().any(|name| name.starts_with(prefix)) {
                let _ = writeln!(model, "weights_rename = [{{ from = \"{prefix}\", to = \"\" }}]");
            }
            if names.iter().any(|name| is_no_weight(name)) {
                let _ = writeln!(
                    model,
                    "weights_strict = false             # the file has masks besides, which attention makes itself"
                );
            }
        }
    }
    let (name, tokenizer) = (name.replace(char::is_control, " "), quoted(tokenizer)?);
    let chat = match chat {
        Some(settings) => format!("chat_template = {}\n", quoted(settings)?),
        None => String::new(),
    };
    let context = positions.min(&MOST_CONTEXT);
    Ok(format!(
        "# {name}, from files of Hugging Face's: to write text with `runner generate`, or to train on with a text of your own.\n\n\
         [data]\nsource = \"text\"\npath = \"input.txt\"                  # your own text\ntokenizer = {tokenizer}\n{chat}context = {context}\n\
         batch_size = 4\nvalidation_split = 0.1\n\n{model}\n[loss]\ntype = \"cross_entropy\"\n\n[optimizer]\ntype = \"adamw\"\nlr = 5e-5\n\n\
         [train]\nepochs = 1\nclip_grad_norm = 1.0\n"
    ))
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
        let refused = |text: &str| format!("{:#}", architecture(&serde_json::from_str(text).unwrap()).err().unwrap());
        assert!(refused("{}").contains("`model_type` is not there"));
        assert!(refused(r#"{"model_type":"bert"}"#).contains("`model_type` is `bert`, and gpt2, llama"));
        assert!(refused(r#"{"model_type":"gpt2"}"#).contains("`n_embd` is not there"));
        let gpt2 = r#"{"model_type":"gpt2","n_embd":8,"n_positions":4,"n_head":2,"n_layer":1,"vocab_size":9"#;
        assert!(
            refused(&format!("{gpt2},\"activation_function\":\"relu\"}}")).contains("`activation_function` is `relu`")
        );
        assert!(refused(&format!("{gpt2},\"n_inner\":9}}")).contains("`n_inner`"));
        assert!(refused(r#"{"model_type":"llama","rope_scaling":{"factor":2}}"#).contains("`rope_scaling` is set"));
        assert!(refused(r#"{"model_type":"llama","attention_bias":true}"#).contains("`attention_bias` is true"));
        assert!(refused(r#"{"model_type":"mistral","sliding_window":9}"#).contains("`sliding_window` is set"));
        let found = architecture(&serde_json::from_str(&format!("{gpt2}}}")).unwrap()).unwrap();
        assert_eq!((found.positions, found.params[2].clone()), (4, ("width", 8.into())));
    }
}

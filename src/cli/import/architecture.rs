//! The architectures of Hugging Face's that are known: which model file has one, and which numbers of a `config.json` are its parameters.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Keys that may be left out, by what they have.
const WORDS: [&str; 6] =
    ["model_type", "hidden_act", "activation", "activation_function", "position_embedding_type", "problem_type"];
const TRUTHS: [&str; 9] = [
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "use_sliding_window",
    "is_decoder",
    "sinusoidal_pos_embds",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "add_cross_attention",
];
const WHOLE: [&str; 2] = ["n_inner", "sliding_window"];
const COUNTS: [&str; 3] = ["head_dim", "num_key_value_heads", "type_vocab_size"];
/// Numbers of heads, and the widths that they share.
const HEADS: [[&str; 2]; 4] = [
    ["n_head", "n_embd"],
    ["n_heads", "dim"],
    ["num_attention_heads", "hidden_size"],
    ["num_key_value_heads", "num_attention_heads"],
];
const NUMBERS: [&str; 10] = [
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "rope_theta",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
];

/// What a model is for.
pub enum Task {
    /// It tells the next token of a text.
    Language,
    /// It tells the class of a text: the names of the classes, if they have names.
    Classes(Option<Vec<String>>),
    /// It tells the tag of each word.
    Tags {
        /// The names of the tags, if they have names.
        names: Option<Vec<String>>,
        /// Whether the file's classifier is for them, if it has one.
        own: bool,
    },
}

impl Task {
    /// That of an encoder of texts: tags, if they are `asked` for or the `config.json` is of a model that has them.
    fn of_encoder(keys: &Value, asked: bool) -> Result<Task> {
        let names = names(keys);
        let architectures = keys.get("architectures").and_then(Value::as_array).into_iter().flatten();
        let own = architectures.filter_map(Value::as_str).any(|name| name.ends_with("ForTokenClassification"));
        if own || asked {
            return Ok(Task::Tags { names: names.filter(|_| own), own });
        }
        // Their losses and answers are others than those of classes, which exclude each other.
        let learns = match (keys.get("problem_type").and_then(Value::as_str), labels(keys)) {
            (Some(kind @ ("multi_label_classification" | "regression")), _) => format!("`problem_type` is `{kind}`"),
            (_, Some(count @ (0 | 1))) => format!("`id2label` has {count} label{}", if count == 1 { "" } else { "s" }),
            _ => return Ok(Task::Classes(names)),
        };
        bail!("{learns}: an imported classifier tells which one of several classes a text has, and nothing else")
    }

    /// How many classes there are.
    fn classes(&self, keys: &Value) -> Value {
        match self {
            Task::Tags { own: false, .. } => "$classes".into(),
            _ => classes(keys),
        }
    }
}

/// An architecture, as a model file of this program has it.
pub struct Architecture {
    /// What it is for.
    pub task: Task,
    /// The file's text.
    pub template: &'static str,
    /// Parameters of the file with their values.
    pub params: Vec<(&'static str, Value)>,
    /// How many positions the model knows.
    pub positions: u64,
    /// What stands before names of its tensors that the file does not have.
    pub prefix: &'static str,
    /// Options of attention that the file has no parameters for.
    pub attention: Vec<(&'static str, Value)>,
}

/// The architecture that a `config.json` describes; `tags`: it is to learn tags of words.
pub fn architecture(keys: &Value, tags: bool) -> Result<Architecture> {
    let whole = |key: &str| keys.get(key).and_then(Value::as_u64);
    let number = |key: &str| match whole(key) {
        Some(0) => bail!("`{key}` is 0, and a whole number from 1 up is expected"),
        number => number.with_context(|| format!("`{key}` is not there, or no whole number")),
    };
    let fraction = |key: &str, other: f64| keys.get(key).and_then(Value::as_f64).unwrap_or(other);
    let truth = |key: &str| keys.get(key).and_then(Value::as_bool) == Some(true);
    let word = |key: &str| keys.get(key).and_then(Value::as_str);
    let expect = |key: &str, known: &[&str]| match word(key) {
        Some(found) if !known.contains(&found) => {
            bail!("`{key}` is `{found}`, and {} is known here", known.join(" or "))
        }
        _ => Ok(()),
    };
    // A value of another type would be taken for one that is not there.
    let typed = |names: &[&str], is: fn(&Value) -> bool, what: &str| {
        let wrong =
            names.iter().find_map(|name| Some((name, keys.get(name).filter(|value| !value.is_null() && !is(value))?)));
        match wrong {
            Some((name, value)) => bail!("`{name}` is {value}, and {what} is expected"),
            None => Ok(()),
        }
    };
    typed(&WORDS, Value::is_string, "a text")?;
    typed(&TRUTHS, Value::is_boolean, "true or false")?;
    typed(&WHOLE, Value::is_u64, "a whole number")?;
    typed(&COUNTS, |value| value.as_u64().is_some_and(|count| count > 0), "a whole number from 1 up")?;
    typed(&NUMBERS, |value| value.as_f64().is_some_and(|number| number >= 0.0), "a number from 0 up")?;
    typed(&["id2label"], Value::is_object, "an object with the name of each class")?;
    for [heads, width] in HEADS {
        if let (Some(count), Some(of)) = (whole(heads), whole(width)) {
            ensure!(
                count == 0 || of.is_multiple_of(count),
                "`{heads}` is {count}, which does not divide `{width}`, {of}"
            );
        }
    }
    let encoder = matches!(word("model_type"), Some("bert" | "distilbert"));
    ensure!(
        encoder || !tags || word("model_type").is_none(),
        "`model_type` is no encoder: `--tags` is for bert and distilbert"
    );
    match word("model_type") {
        Some("gpt2") => {
            expect("activation_function", &["gelu_new", "gelu_pytorch_tanh"])?;
            let (width, positions) = (number("n_embd")?, number("n_positions")?);
            ensure!(whole("n_inner").is_none_or(|inner| inner == 4 * width), "`n_inner` is not four times `n_embd`");
            ensure!(
                keys.get("scale_attn_weights").and_then(Value::as_bool) != Some(false),
                "`scale_attn_weights` is false, and attention scales its scores here"
            );
            for (key, what) in [
                ("scale_attn_by_inverse_layer_idx", "scores that are divided by the number of the layer are"),
                ("add_cross_attention", "attention to a second sequence is"),
            ] {
                ensure!(!truth(key), "`{key}` is true, and {what} not known here");
            }
            let eps = fraction("layer_norm_epsilon", 1e-5);
            ensure!((eps - 1e-5).abs() < 1e-12, "`layer_norm_epsilon` is {eps}, and 0.00001 is known here");
            let params = vec![
                ("vocabulary", number("vocab_size")?.into()),
                ("context", positions.into()),
                ("width", width.into()),
                ("heads", number("n_head")?.into()),
                ("layers", number("n_layer")?.into()),
            ];
            let template = include_str!("../../../models/gpt2.toml");
            let attention = Vec::new();
            Ok(Architecture { task: Task::Language, template, params, positions, prefix: "transformer.", attention })
        }
        Some(kind @ ("llama" | "mistral" | "qwen2")) => {
            expect("hidden_act", &["silu"])?;
            for (key, what) in [
                ("use_sliding_window", "a window of some layers alone"),
                ("mlp_bias", "a bias of the layers behind attention"),
                ("attention_bias", "a bias behind attention"),
            ] {
                ensure!(!truth(key), "`{key}` is true, and {what} is not known here");
            }
            // The others have it, too, and do not look at it.
            let window = whole("sliding_window").filter(|_| kind == "mistral");
            ensure!(window != Some(0), "`sliding_window` is 0, and a position sees itself at least");
            let (width, heads) = (number("hidden_size")?, number("num_attention_heads")?);
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
            let (template, positions) =
                (include_str!("../../../models/llama.toml"), number("max_position_embeddings")?);
            let scaling = rope_scaling(keys)?.map(|scaling| ("rope_scaling", scaling));
            let attention = scaling.into_iter().chain(window.map(|window| ("sliding_window", window.into()))).collect();
            Ok(Architecture { task: Task::Language, template, params, positions, prefix: "", attention })
        }
        Some("bert") => {
            expect("hidden_act", &["gelu"])?;
            expect("position_embedding_type", &["absolute"])?;
            ensure!(!truth("is_decoder"), "`is_decoder` is true, and BERT is a classifier here");
            let positions = number("max_position_embeddings")?;
            let dropout = fraction("hidden_dropout_prob", 0.1);
            let task = Task::of_encoder(keys, tags)?;
            let params = vec![
                ("vocabulary", number("vocab_size")?.into()),
                ("num_classes", task.classes(keys)),
                ("positions", positions.into()),
                ("types", whole("type_vocab_size").unwrap_or(2).into()),
                ("width", number("hidden_size")?.into()),
                ("heads", number("num_attention_heads")?.into()),
                ("layers", number("num_hidden_layers")?.into()),
                ("hidden", number("intermediate_size")?.into()),
                ("eps", fraction("layer_norm_eps", 1e-12).into()),
                ("dropout", dropout.into()),
                ("attention_dropout", fraction("attention_probs_dropout_prob", 0.1).into()),
                ("classifier_dropout", fraction("classifier_dropout", dropout).into()),
            ];
            let template = include_str!("../../../models/bert.toml");
            Ok(Architecture { task, template, params, positions, prefix: "bert.", attention: Vec::new() })
        }
        Some("distilbert") => {
            expect("activation", &["gelu"])?;
            ensure!(!truth("sinusoidal_pos_embds"), "`sinusoidal_pos_embds` is true, and positions are learned here");
            let positions = number("max_position_embeddings")?;
            let task = Task::of_encoder(keys, tags)?;
            let dropout = fraction("dropout", 0.1);
            let before_classes = match task {
                Task::Tags { .. } => dropout,
                _ => fraction("seq_classif_dropout", 0.2),
            };
            let params = vec![
                ("vocabulary", number("vocab_size")?.into()),
                ("num_classes", task.classes(keys)),
                ("positions", positions.into()),
                ("width", number("dim")?.into()),
                ("heads", number("n_heads")?.into()),
                ("layers", number("n_layers")?.into()),
                ("hidden", number("hidden_dim")?.into()),
                ("dropout", dropout.into()),
                ("attention_dropout", fraction("attention_dropout", 0.1).into()),
                ("classifier_dropout", before_classes.into()),
            ];
            let template = include_str!("../../../models/distilbert.toml");
            Ok(Architecture { task, template, params, positions, prefix: "distilbert.", attention: Vec::new() })
        }
        Some(other) => {
            bail!("`model_type` is `{other}`, and gpt2, llama, mistral, qwen2, bert and distilbert are known here")
        }
        None => bail!("`model_type` is not there"),
    }
}

/// How rotary positions are scaled: `rope_scaling` or, as newer versions of transformers write it, `rope_parameters`.
fn rope_scaling(keys: &Value) -> Result<Option<Value>> {
    let there = |key| Some((key, keys.get(key).filter(|scaling| !scaling.is_null())?));
    let Some((key, scaling)) = ["rope_scaling", "rope_parameters"].into_iter().find_map(there) else {
        return Ok(None);
    };
    let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str).unwrap_or("default");
    let needed: &[&str] = match kind {
        "default" => return Ok(None),
        "linear" => &["factor"],
        "llama3" => &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
        other => bail!("`{key}` has the type `{other}`, and default, linear and llama3 are known here"),
    };
    let mut found = json!({ "rope_type": kind });
    for name in needed {
        let number = scaling.get(name).filter(|number| number.as_f64().is_some_and(|number| number > 0.0));
        found[*name] = number.with_context(|| format!("`{key}` has no `{name}` above 0"))?.clone();
    }
    Ok(Some(found))
}

/// The names of the classes, in the order of their numbers, where a `config.json` has others than `LABEL_0`, `LABEL_1` and so on.
fn names(keys: &Value) -> Option<Vec<String>> {
    let labels = keys.get("id2label")?.as_object()?;
    let names: Option<Vec<String>> =
        (0..labels.len()).map(|number| Some(labels.get(&number.to_string())?.as_str()?.to_owned())).collect();
    names.filter(|names| names.iter().enumerate().any(|(number, name)| *name != format!("LABEL_{number}")))
}

/// How many classes there are: as many as have names, else what the data says. transformers writes no number, as two is its default.
fn classes(keys: &Value) -> Value {
    labels(keys).map_or_else(|| "$classes".into(), Value::from)
}

/// How many classes have names.
fn labels(keys: &Value) -> Option<usize> {
    keys.get("id2label").and_then(Value::as_object).map(|labels| labels.len())
}

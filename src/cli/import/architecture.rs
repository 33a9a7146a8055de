//! The architectures of Hugging Face's that are known: which model file has one, and which numbers of a `config.json` are its parameters.

mod attention;

use anyhow::{Context, Result, bail, ensure};
use attention::{rope_scaling, rope_theta, windows};
use serde_json::Value;

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
const WHOLE: [&str; 3] = ["n_inner", "sliding_window", "max_window_layers"];
const COUNTS: [&str; 3] = ["head_dim", "num_key_value_heads", "type_vocab_size"];
/// Numbers of heads, and the widths that they share.
const HEADS: [[&str; 2]; 4] = [
    ["n_head", "n_embd"],
    ["n_heads", "dim"],
    ["num_attention_heads", "hidden_size"],
    ["num_key_value_heads", "num_attention_heads"],
];
const NUMBERS: [&str; 12] = [
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
];

/// What a model is for.
pub enum Task {
    /// It predicts the next token of a text.
    Language,
    /// It predicts the class of a text: the names of the classes, if they have names.
    Classes(Option<Vec<String>>),
    /// It predicts the tag of each word.
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
        let own = classes_of(keys).any(|name| name.ends_with("ForTokenClassification"));
        if own || asked {
            return Ok(Task::Tags { names: names.filter(|_| own), own });
        }
        // Their losses and answers are others than those of classes, which exclude each other.
        let learns = match (keys.get("problem_type").and_then(Value::as_str), labels(keys)) {
            (Some(kind @ ("multi_label_classification" | "regression")), _) => format!("`problem_type` is `{kind}`"),
            (_, Some(count @ (0 | 1))) => format!("`id2label` has {count} label{}", if count == 1 { "" } else { "s" }),
            _ => return Ok(Task::Classes(names)),
        };
        bail!("{learns}: an imported classifier finds one of several classes for a text, and nothing else")
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
    /// What a class of transformers with a head has before the names of the model's tensors, and its base class has not.
    pub prefix: &'static str,
    /// Options of attention that the file has no parameters for.
    pub attention: Vec<(&'static str, Value)>,
    /// How far each layer sees, if not all see as far.
    pub windows: Vec<u64>,
}

impl Architecture {
    fn new(
        task: Task,
        template: &'static str,
        params: Vec<(&'static str, Value)>,
        positions: u64,
        prefix: &'static str,
    ) -> Self {
        Architecture { task, template, params, positions, prefix, attention: Vec::new(), windows: Vec::new() }
    }
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
    if let Some(kind) = word("model_type") {
        expect_class(kind, keys)?;
    }
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
            let dropout = fraction("resid_pdrop", 0.1);
            let mut params = vec![
                ("vocabulary", number("vocab_size")?.into()),
                ("context", positions.into()),
                ("width", width.into()),
                ("heads", number("n_head")?.into()),
                ("layers", number("n_layer")?.into()),
                ("dropout", dropout.into()),
            ];
            // In the file these are `dropout`, which one word then changes.
            let others = [("embedding_dropout", "embd_pdrop"), ("attention_dropout", "attn_pdrop")];
            let others = others.map(|(name, key)| (name, fraction(key, 0.1)));
            params.extend(others.into_iter().filter(|(_, p)| *p != dropout).map(|(name, p)| (name, p.into())));
            if keys.get("tie_word_embeddings").and_then(Value::as_bool) == Some(false) {
                params.push(("tie", "".into()));
            }
            let template = include_str!("../../../models/gpt2.toml");
            Ok(Architecture::new(Task::Language, template, params, positions, "transformer."))
        }
        Some(kind @ ("llama" | "mistral" | "qwen2")) => {
            expect("hidden_act", &["silu"])?;
            for (key, what) in
                [("mlp_bias", "a bias of the layers after attention"), ("attention_bias", "a bias after attention")]
            {
                ensure!(!truth(key), "`{key}` is true, and {what} is not known here");
            }
            let (width, heads) = (number("hidden_size")?, number("num_attention_heads")?);
            let layers = number("num_hidden_layers")?;
            let tie = if truth("tie_word_embeddings") { "model.embed_tokens.weight" } else { "" };
            let params = vec![
                ("vocabulary", number("vocab_size")?.into()),
                ("width", width.into()),
                ("heads", heads.into()),
                ("kv_heads", whole("num_key_value_heads").unwrap_or(heads).into()),
                ("head_width", whole("head_dim").unwrap_or(width / heads).into()),
                ("layers", layers.into()),
                ("hidden", number("intermediate_size")?.into()),
                ("rope_theta", rope_theta(keys)?.into()),
                ("eps", fraction("rms_norm_eps", 1e-6).into()),
                ("qkv_bias", (kind == "qwen2").into()),
                ("tie", tie.into()),
            ];
            let (template, positions) =
                (include_str!("../../../models/llama.toml"), number("max_position_embeddings")?);
            let mut found = Architecture::new(Task::Language, template, params, positions, "model.");
            found.attention.extend(rope_scaling(keys)?.map(|scaling| ("rope_scaling", scaling)));
            let dropout = fraction("attention_dropout", 0.0);
            found.attention.extend((dropout > 0.0).then(|| ("dropout", dropout.into())));
            let windows = windows(kind, keys, layers)?;
            if windows.iter().all(|window| *window == windows[0]) {
                found.attention.extend(windows[0].map(|window| ("sliding_window", window.into())));
            } else {
                found.windows = windows.into_iter().map(|window| window.unwrap_or(positions)).collect();
            }
            Ok(found)
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
            Ok(Architecture::new(task, template, params, positions, "bert."))
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
            Ok(Architecture::new(task, template, params, positions, "distilbert."))
        }
        Some(other) => {
            bail!("`model_type` is `{other}`, and gpt2, llama, mistral, qwen2, bert and distilbert are known here")
        }
        None => bail!("`model_type` is not there"),
    }
}

/// The classes of transformers that a `config.json` names.
fn classes_of(keys: &Value) -> impl Iterator<Item = &str> {
    keys.get("architectures").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Refuses models whose class has a head that is not known here: classifiers that are no encoders, and encoders that choose among texts.
fn expect_class(kind: &str, keys: &Value) -> Result<()> {
    let encoder = matches!(kind, "bert" | "distilbert");
    let is_known = |name: &&str| match kind {
        "bert" | "distilbert" => !name.ends_with("ForMultipleChoice"),
        "gpt2" | "llama" | "mistral" | "qwen2" => {
            ["ForCausalLM", "LMHeadModel"].iter().any(|end| name.ends_with(end))
                || name.strip_suffix("Model").is_some_and(|name| name.to_lowercase() == kind)
        }
        _ => true,
    };
    match classes_of(keys).find(|name| !is_known(name)) {
        Some(name) if encoder => bail!("`architectures` has `{name}`, and choices among texts are not known here"),
        Some(name) => {
            bail!("`architectures` has `{name}`, and of `{kind}` only models that go on with a text are known here")
        }
        None => Ok(()),
    }
}

/// The names of the classes, in the order of their numbers. transformers leaves out those of two that have no names of their own.
fn names(keys: &Value) -> Option<Vec<String>> {
    let Some(labels) = keys.get("id2label").filter(|labels| !labels.is_null()) else {
        let has_classes =
            |name: &str| ["ForSequenceClassification", "ForTokenClassification"].iter().any(|end| name.ends_with(end));
        return classes_of(keys).any(has_classes).then(|| (0..2).map(unnamed).collect());
    };
    let labels = labels.as_object()?;
    (0..labels.len()).map(|number| Some(labels.get(&number.to_string())?.as_str()?.to_owned())).collect()
}

/// What transformers calls a class without a name.
fn unnamed(number: usize) -> String {
    format!("LABEL_{number}")
}

/// Whether the classes have no names of their own.
pub fn are_unnamed(names: &[String]) -> bool {
    names.iter().enumerate().all(|(number, name)| *name == unnamed(number))
}

/// How many classes there are: as many as have names, else what the data says. transformers writes no number, as two is its default.
fn classes(keys: &Value) -> Value {
    labels(keys).map_or_else(|| "$classes".into(), Value::from)
}

/// How many classes have names.
fn labels(keys: &Value) -> Option<usize> {
    keys.get("id2label").and_then(Value::as_object).map(|labels| labels.len())
}

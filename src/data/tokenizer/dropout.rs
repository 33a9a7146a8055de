//! The dropout of byte pairs that a `tokenizer.json` may ask for: pairs that are left apart by chance, with other tokens each time.

use super::super::field::DataSpec;
use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

/// Switches it off: the same text has the same tokens always.
pub(super) fn switch_off(tokenizer: &mut Tokenizer) {
    if let ModelWrapper::BPE(model) = tokenizer.get_model()
        && model.dropout.is_some()
    {
        let mut model = model.clone();
        model.dropout = None;
        tokenizer.with_model(model);
    }
}

/// What there is to say of the tokenizer of a data set, if it asks for dropout.
pub fn dropout_in_words(spec: &DataSpec) -> Option<String> {
    let fitted = spec.fitted.as_deref()?;
    let written = fitted.get("tokenizer").or_else(|| fitted.get("tokens")?.get("tokenizer"))?;
    // A file of many megabytes, which seldom has the word.
    let text = written.get("json")?.as_str().filter(|text| text.contains("\"dropout\""))?;
    let json: Value = serde_json::from_str(text).ok()?;
    let dropout = json.get("model")?.get("dropout")?.as_f64().filter(|dropout| *dropout > 0.0)?;
    Some(format!(
        "the `dropout` of {dropout} in the tokenizer is left out: the same text has the same tokens always, in training, too"
    ))
}

//! What a model that writes has learnt of texts, and what the command line says of them.

use crate::api::failure::{Failure, refused};
use crate::api::model::Model;
use crate::api::reading::given_chat;

use crate::data::DataSpec;
use crate::data::text::{Samples, TextCodec, Tokenizer};
use crate::train::setup::input::text_without_reading;

/// What a model that writes is trained on: its samples, how text becomes tokens, and how many of these it looks back or, of one that answers texts, writes; `None`: it writes
/// nothing.
///
/// # Errors
/// A file that the configuration names cannot be read.
pub fn language_of(model: &Model) -> Result<Option<(DataSpec, TextCodec, usize)>, Failure> {
    let sample = model.sample()?;
    let Some(mut codec) = TextCodec::of(&sample)? else { return Ok(None) };
    if codec.tokenizer.is_none() {
        codec.tokenizer = given_tokenizer(model, codec.vocabulary)?;
    }
    if let Some(chat) = given_chat(&model.loaded).map_err(|error| refused(&model.loaded, error))? {
        codec.chat = Some(chat);
    }
    Ok(match codec.samples {
        Samples::Windows { context, .. } => Some((sample, codec, context)),
        Samples::Answered { ref lengths, .. } => {
            let longest = lengths.last().map_or(1, |[_, answer]| *answer);
            Some((sample, codec, longest))
        }
        Samples::Prompted { ref lengths, .. } => {
            let longest = lengths.last().copied().unwrap_or(1);
            Some((sample, codec, longest))
        }
        Samples::Labelled { .. } | Samples::Tagged { .. } => None,
    })
}

/// The tokenizer that the configuration names for a model which was trained on tokens without one.
fn given_tokenizer(model: &Model, vocabulary: usize) -> Result<Option<Tokenizer>, Failure> {
    let named = text_without_reading(&model.loaded.experiment).map_err(|error| refused(&model.loaded, error))?;
    let named = named.map(|spec| TextCodec::of(&spec)).transpose()?.flatten().and_then(|codec| codec.tokenizer);
    match named.as_ref().map(Tokenizer::vocabulary).filter(|own| *own > vocabulary) {
        Some(own) => Err(Failure::Usage(format!(
            "the model was trained on {vocabulary} tokens, and the tokenizer has {own}\nhelp: name the one that its tokens were made with"
        ))),
        None => Ok(named),
    }
}

//! A configuration for a text: a language model.

use super::architecture::{Takes, expect};
use super::parameters::{Parameters, Values};
use super::writing::{Writing, quoted};
use super::{Made, Wanted, draft, named, run_name};
use crate::api::failure::Failure;
use crate::data::text::TextCodec;
use crate::terminal::thousands;
use crate::train::setup::input;
use std::path::Path;

/// Text beyond which parts of words are better tokens than characters, in bytes.
const LARGE: u64 = 8 << 20;
/// Characters that a text must have: of fewer there is no part to validate on.
const LEAST: usize = 200;

/// A configuration for a model that goes on with a text.
pub fn configuration(wanted: &Wanted) -> Result<Made, Failure> {
    expect(wanted.model, |takes| takes == Takes::Text, "a text")?;
    let large = bytes(wanted.source, 0) > LARGE;
    let path = wanted.source.to_str().map(quoted).unwrap_or_default();
    // Of a large text it is not found out what its parts of words are: that takes a while, and training does it.
    let looked_at = if large { "bytes" } else { "characters" };
    let experiment = draft(&format!(
        "[data]\nsource = \"text\"\npath = {path}\ntokenizer = \"{looked_at}\"\ncontext = 1\n[model]\nuse = \"gpt\"\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"adamw\"\n[train]\nsteps = 1\n"
    ))?;
    let samples = input::load(&experiment, &mut |_| ()).map_err(|error| Failure::Usage(format!("{error:#}")))?;
    // A sample of one token has the next one for its target, so one token is in none.
    let tokens = samples.train.len() + 1;
    let shown = wanted.source.display();
    if tokens < LEAST {
        return Err(Failure::Usage(format!(
            "`{shown}` has {tokens} {looked_at}, and a model of text learns nothing from fewer than {LEAST}\nhelp: name a longer text, or a folder of texts"
        )));
    }
    let vocabulary = TextCodec::of(&samples.spec).map_err(Failure::Other)?.map_or(0, |codec| codec.vocabulary);
    let file = &wanted.file;
    // A tenth of the tokens must have some samples.
    let context = [64, 32, 16, 8].into_iter().find(|context| tokens >= 40 * context).unwrap_or(4);
    let model = wanted.model.unwrap_or("gpt");
    let mut out = Writing::default();
    let source = wanted
        .source
        .file_name()
        .map(|name| named(&name.to_string_lossy()))
        .unwrap_or_else(|| "this folder".to_owned());
    out.comment(&format!("A language model of {source}, small enough for a laptop: written by `runner init`."));
    let different = if large { String::new() } else { format!(", of which {} differ", thousands(vocabulary as u64)) };
    out.comment(&format!("Found: {} {looked_at}{different}.", thousands(tokens as u64)));
    let parameters = Parameters::of(model);
    out.comment("What to change: the size of the model and `context`, the number of steps.");
    if parameters.has_attention() {
        let large = parameters.set(&[
            ("width", "384"),
            ("heads", "6"),
            ("kv_heads", "6"),
            ("head_width", "64"),
            ("layers", "6"),
            ("hidden", "1024"),
            ("dropout", "0.2"),
        ]);
        out.comment("On a GPU nanoGPT takes context = 256, batch_size = 64,");
        out.comment(&format!("{} and 5000 steps.", large.join(", ")));
    }
    out.comment(&format!(
        "`runner generate runs/{} --prompt TEXT` goes on with a text, once it is trained.",
        run_name(file)
    ));
    out.gap().key("seed", "1", "");
    out.section("data");
    out.key("source", "\"text\"", "");
    out.key("path", &quoted(&wanted.written), "from the folder of this file");
    if large {
        out.key("tokenizer", "\"bpe\"", "parts of words; \"characters\", \"bytes\", or a tokenizer.json");
        out.key("vocab_size", "4096", "how many there are");
    } else {
        out.key(
            "tokenizer",
            "\"characters\"",
            "\"bytes\"; \"bpe\", parts of words, for texts of megabytes; or a tokenizer.json",
        );
    }
    out.key("context", &context.to_string(), "tokens that the model looks back");
    out.key("batch_size", "12", "").key("eval_batch_size", "64", "");
    out.key("validation_split", "0.1", "the end of the text, which is held out");
    out.section("model");
    out.key("use", &format!("\"{model}\""), &format!("`runner models --show {model}`"));
    parameters.write(&mut out, sizes(&parameters), "");
    out.section("loss").key("type", "\"cross_entropy\"", "");
    out.section("optimizer").key("type", "\"adamw\"", "");
    out.key("lr", "1e-3", "the first thing to change: `runner lr-find` looks for one");
    out.key("betas", "[0.9, 0.99]", "").key("weight_decay", "0.1", "").key("no_decay", "[\"norm\"]", "");
    out.section("schedule").key("type", "\"cosine\"", "").key("warmup_steps", "100", "").key("min_lr", "1e-4", "");
    out.section("train").key("steps", "2000", "").key("clip_grad_norm", "1.0", "").key("eval_every_steps", "500", "");
    let what = format!("a language model of {} {looked_at}", thousands(tokens as u64));
    Ok(Made { text: out.text(), what })
}

/// The sizes of a small model. `vocabulary` and `context` are what the data says.
fn sizes(parameters: &Parameters) -> Values {
    match parameters.has_attention() {
        true => &[
            ("width", "128"),
            ("heads", "4"),
            ("kv_heads", "4"),
            ("head_width", "32"),
            ("layers", "4"),
            ("hidden", "344"),
            ("bias", "false"),
        ],
        false => &[("width", "128"), ("hidden", "256"), ("layers", "2")],
    }
}

/// Bytes of a file, or of the files in a folder.
fn bytes(path: &Path, depth: usize) -> u64 {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) if depth < 8 => std::fs::read_dir(path)
            .map_or(0, |entries| entries.filter_map(Result::ok).map(|entry| bytes(&entry.path(), depth + 1)).sum()),
        _ => 0,
    }
}

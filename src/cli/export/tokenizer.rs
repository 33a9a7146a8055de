//! The tokenizer of a model of texts, which files of weights do not have.

use crate::api::failure::Failure;
use crate::api::model::load_any_model;
use crate::api::what::{expect_no_input, expect_no_run_file};
use crate::checkpoint;
use crate::cli::args::ExportArgs;
use crate::cli::{print_beside, print_json};
use crate::data::DataSpec;
use crate::data::text::{TextCodec, Tokenizer};
use crate::files::output::Output;
use crate::terminal::thousands;
use crate::train::files::state::Extra;
use crate::train::files::weights::tokenizer_of;
use anyhow::{Context, Result};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// That of samples, if they are texts.
pub(super) fn of(data: &DataSpec) -> Result<Option<Tokenizer>> {
    Ok(TextCodec::of(data)?.and_then(|codec| codec.tokenizer))
}

/// That of a training, if a file is a checkpoint of one on texts.
pub(super) fn of_checkpoint(path: &Path) -> Option<Tokenizer> {
    tokenizer_of(&Extra::of(&checkpoint::peek(path).ok()?)?.fitted()?)
}

/// What is to be said where weights are written without it. Bytes need no file.
pub(super) fn note(tokenizer: &Tokenizer, args: &ExportArgs) -> Option<String> {
    let how = match tokenizer {
        Tokenizer::Bytes => return None,
        Tokenizer::Json(_) => format!(": `runner export {} tokenizer.json` writes it", args.checkpoint.display()),
        Tokenizer::Characters(_) | Tokenizer::Words(_) => {
            format!(", and there is no file for it alone: `{}` has it", args.checkpoint.display())
        }
    };
    Some(format!("note: the tokenizer ({}) is not in `{}`{how}", tokenizer.in_words(), args.out.display()))
}

/// Writes it as a `tokenizer.json`.
pub(super) fn run(args: &ExportArgs, to: &Output) -> Result<ExitCode, Failure> {
    let model = load_any_model(&args.checkpoint, &args.set)?;
    expect_no_input(to, model.files().iter().map(|path| path.as_path()))?;
    expect_no_run_file(to)?;
    let shown = args.checkpoint.display();
    let Some(tokenizer) = of(&model.sample()?)? else {
        return Err(Failure::Usage(format!(
            "`{shown}` has no tokenizer\nhelp: .safetensors or .pth (PyTorch) is written with the weights, .onnx with the whole model"
        )));
    };
    let Some(json) = tokenizer.json() else {
        return Err(Failure::Usage(format!(
            "the tokenizer of `{shown}` ({}) has no `tokenizer.json`\nhelp: the checkpoint has it, and `runner generate` and `runner serve` need nothing else",
            tokenizer.in_words()
        )));
    };
    to.put(json.as_bytes()).with_context(|| format!("cannot write `{}`", to.path().display()))?;
    let count = tokenizer.vocabulary();
    if args.output.json {
        print_json(&json!({ "vocab_size": count, "file": args.out.to_string_lossy() }))?;
    } else {
        let text = format!("wrote a tokenizer of {} tokens to `{}`", thousands(count as u64), args.out.display());
        print_beside(Some(to), &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `runner export`.

use super::args::ExportArgs;
use super::failure::Failure;
use crate::checkpoint;
use crate::terminal::say;
use serde_json::json;
use std::process::ExitCode;

/// Writes the weights of a checkpoint, without the state of its training.
pub(super) fn run(args: &ExportArgs) -> Result<ExitCode, Failure> {
    if args.out.extension().is_none_or(|e| e != "safetensors") {
        return Err(Failure::Usage(format!("cannot write `{}`: the format is .safetensors", args.out.display())));
    }
    let same = match (args.checkpoint.canonicalize(), args.out.canonicalize()) {
        (Ok(from), Ok(to)) => from == to,
        _ => false,
    };
    if same {
        return Err(Failure::Usage(format!(
            "`{}` is the file to read: writing the weights alone over it would lose the rest\nhelp: give another name to write to",
            args.out.display()
        )));
    }
    let mut loaded = checkpoint::load_tensors(&args.checkpoint).map_err(anyhow::Error::new)?;
    if let Some(note) = checkpoint::unwrap_all_names(&mut loaded.tensors) {
        say(&note);
    }
    let tensors: Vec<_> = loaded
        .tensors
        .iter()
        .filter(|(name, _)| !checkpoint::is_optimizer_state(name))
        .map(|(name, t)| t.view(name))
        .collect();
    checkpoint::write_weights(&args.out, &tensors).map_err(anyhow::Error::new)?;
    let elements: usize = tensors.iter().map(|t| t.bytes.len() / t.dtype.bytes()).sum();
    if args.output.json {
        super::print_json(
            &json!({ "file": args.out.to_string_lossy(), "tensors": tensors.len(), "elements": elements }),
        )?;
    } else {
        let n = super::thousands(elements as u64);
        super::print(&format!("wrote {} tensors with {n} elements to `{}`", tensors.len(), args.out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

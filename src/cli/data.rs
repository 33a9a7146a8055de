//! `runner data fetch`.

use super::args::OutputArgs;
use crate::api::failure::Failure;
use crate::api::progress::Progress;
use crate::config::nearest;
use crate::data::fetch::{self, Known};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Downloads a data set.
pub(super) fn fetch(
    source: &str,
    root: Option<&Path>,
    mirrors: &[String],
    output: OutputArgs,
) -> Result<ExitCode, Failure> {
    let Some(set) = Known::by_name(source) else {
        let names: Vec<&str> = Known::ALL.iter().map(|k| k.name()).collect();
        let help = match nearest(source, names.iter().copied()) {
            Some(near) => format!("\nhelp: did you mean `{near}`?"),
            None => String::new(),
        };
        return Err(Failure::Usage(format!(
            "`{source}` cannot be downloaded; choose one of {}{help}",
            names.join(", ")
        )));
    };
    let root = root.map_or_else(|| PathBuf::from(default_root(set)), Path::to_path_buf);
    let mut progress = Progress::default();
    fetch::download(set, &root, mirrors, &mut |e| progress.show(e))?;
    if output.json {
        super::print_json(
            &serde_json::json!({ "source": set.name(), "root": root.to_string_lossy(), "files": progress.files }),
        )?;
    } else {
        super::print(&format!("{} is in `{}`", set.name(), root.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn default_root(set: Known) -> &'static str {
    match set {
        Known::Mnist => "data/mnist",
        Known::FashionMnist => "data/fashion-mnist",
        Known::Cifar10 => "data/cifar-10",
        Known::Cifar100 => "data/cifar-100",
    }
}

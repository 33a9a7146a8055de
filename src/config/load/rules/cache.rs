//! What is said of a cache, and the data that it is of.

use crate::config::declare::tagged::Tagged;
use crate::config::experiment::Experiment;
use crate::config::language::sections::{Cache, Source};
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::lints::Lint;
use crate::config::text::origins::Reporter;

/// Photos are kept, and tables lie somewhere; what says how is of no use without.
pub(super) fn check(experiment: &Experiment, reporter: &Reporter) {
    let (data, loading) = (&experiment.data, &experiment.data.loading);
    let table = data.source.table().is_some();
    if loading.cache != Cache::None && !data.source.has_photos() && !table {
        let error = Diagnostic::error(format!(
            "`cache` keeps photos and the rows of tables, and `{}` has neither",
            data.source.type_name()
        ))
        .help("leave it out: these samples are in memory already");
        reporter.at_keys(error, "data.cache", "nothing to keep", "data.source", "no photos, no table");
    }
    if let (Source::ImageFolder(photos), Some(folder)) = (&data.source, &loading.cache_dir)
        && loading.cache == Cache::Disk
        && folder.starts_with(&photos.root)
    {
        let error = Diagnostic::error("the folder of the cache is inside that of the photos, whose folders are parts and classes")
            .help("let `cache_dir` name a folder elsewhere, or leave it out: photos are then kept in the folder of caches of this user");
        reporter.at_keys(error, "data.cache_dir", "inside `root`", "data.root", "the photos");
    }
    let size = (loading.cache == Cache::None).then_some("there is no `cache`");
    let size = if table { Some("a table has no part that is left out") } else { size };
    // Without `cache` a table that is too large for memory goes to the folder.
    let unused = if table { loading.cache == Cache::Memory } else { loading.cache != Cache::Disk };
    let folder = unused.then_some("`cache` is not \"disk\"");
    let given = [loading.cache_size.is_some(), loading.cache_dir.is_some()];
    for ((key, why), given) in [("cache_size", size), ("cache_dir", folder)].into_iter().zip(given) {
        if let Some(why) = why.filter(|_| given) {
            let warning = Diagnostic::warning(Lint::NoEffect, format!("`{key}` in `[data]` has no effect"));
            reporter.at_key(warning, &format!("data.{key}"), why);
        }
    }
}

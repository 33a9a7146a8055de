//! What `check` says of photos, what is kept of them once they are decoded and what decoding takes, and of tables that do not lie in memory.

use super::human_bytes;
use crate::config::Experiment;
use crate::config::language::sections::Cache;
use crate::data::{Footprint, Source, Taken};
use crate::train::setup::input;
use crate::train::setup::photos::{KeptPart, PhotoPlan};
use serde_json::{Value, json};

/// From so many bytes on, the memory for decoding is shown.
const MUCH: usize = 256 << 20;

/// Lines after the table of memory; none without photos.
pub fn as_text(experiment: &Experiment, photos: &PhotoPlan) -> String {
    let loading = &experiment.data.loading;
    let mut out = String::new();
    if photos.decoding >= MUCH {
        out.push_str(&format!(
            "\ndecoding: {}, as each of {} workers may be at the largest of the photos whose headers were looked at, in training \
             and in evaluation; smaller photos or fewer `workers` take less\n",
            human_bytes(photos.decoding),
            loading.workers.max(1)
        ));
    }
    let place = match loading.cache {
        _ if !experiment.data.source.has_photos() => return out,
        Cache::None => return out,
        Cache::Memory => "in memory",
        Cache::Disk => "on a disk",
    };
    out.push_str(&format!("\ncache {place}, of at most {}\n", size(loading.cache_size())));
    for part in &photos.kept {
        out.push_str(&format!("  {}: {}\n", part.name, what(part)));
    }
    let all: Option<usize> = photos.kept.iter().map(|part| part.taken.map(|taken| taken.all)).sum();
    if all.is_some_and(|all| all as u64 > loading.cache_size()) {
        out.push_str("  that is more than `cache_size`: what there is no room for is decoded in every epoch\n");
    }
    out
}

/// What is kept of a part of the photos, and what it takes.
fn what(part: &KeptPart) -> String {
    let after: Vec<String> = part.after.iter().map(|name| format!("`{name}`")).collect();
    let what = match (&after[..], part.random) {
        ([], Some(first)) => format!("whole photos, as the first transform, `{first}`, is random"),
        ([], None) => "whole photos".to_owned(),
        (after, _) => format!("photos after {}", after.join(", ")),
    };
    let takes = |Taken { each, all, most }: Taken| {
        let about = if most == Some(all) { "" } else { "about " };
        format!(": {about}{} each, {about}{} in all", human_bytes(each), human_bytes(all))
    };
    format!("{what}{}", part.taken.map_or(String::new(), takes))
}

fn size(bytes: u64) -> String {
    human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// The same as JSON; `None` without a cache.
pub fn as_json(experiment: &Experiment, photos: &PhotoPlan) -> Option<Value> {
    let loading = &experiment.data.loading;
    if loading.cache == Cache::None || !experiment.data.source.has_photos() {
        return None;
    }
    let part = |part: &KeptPart| {
        let taken = part.taken.map(|taken| json!({ "each": taken.each, "all": taken.all, "most": taken.most }));
        json!({ "part": part.name, "after": part.after, "bytes": taken })
    };
    let parts: Vec<Value> = photos.kept.iter().map(part).collect();
    Some(json!({ "cache": loading.cache, "limit": loading.cache_size(), "kept": parts }))
}

/// The folder of the file in which a table lies, if it lies in one.
fn folder(experiment: &Experiment, data: &Footprint) -> Option<String> {
    let (Source::Table(options), _) = input::source(experiment) else { return None };
    (data.filed + data.filing > 0).then(|| options.room.place().unwrap_or_default().display().to_string())
}

/// A line for a table that lies in a file.
pub fn filed_as_text(experiment: &Experiment, data: &Footprint) -> String {
    let Some(folder) = folder(experiment, data) else { return String::new() };
    let [samples, cells] = [data.filed, data.filing].map(human_bytes);
    format!(
        "\nthe table lies on a disk: its samples take {samples} in `{}`, and its cells another {cells} while it is read\n",
        crate::terminal::visible(&folder)
    )
}

/// The same as JSON; `None` for samples in memory.
pub fn filed_as_json(experiment: &Experiment, data: &Footprint) -> Option<Value> {
    let folder = folder(experiment, data)?;
    Some(json!({ "samples": data.filed, "reading": data.filing, "folder": folder }))
}

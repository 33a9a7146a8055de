//! Checkpoints that were changed by someone who knows the checksum.

use super::config::{MOST_LAYERS, layers, plan};
use super::scratch::with_file;
use super::weights;
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::checkpoint::{self, Checkpoint};
use runner::config::text::diagnostics::SourceKind;
use runner::config::{self, Experiment};
use runner::data::{Loader, LoaderOptions, Position};
use runner::passes::PassOptions;
use runner::train::files::state::{Extra, restore};
use runner::train::setup::input;
use runner::train::setup::programs::{self, Sizes};
use runner::train::setup::schedule::Schedule;
use runner::train::setup::session::Session;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;

/// What stands before the checksum's digits.
const MARK: &str = "\\\"checksum\\\":\\\"";
/// Larger plans take time and find nothing.
const MOST_BYTES: usize = 8 << 20;

/// Four parts with a zero byte between them: the run's state (JSON), its configuration (TOML), the header's entries of tensors
/// (JSON without the braces), the tensors' bytes. The checksum is put in, and what can be read is used as `eval` and
/// `train --resume` do.
pub fn checkpoint(data: &[u8]) -> bool {
    let Some(file) = signed(data) else { return false };
    with_file(&file, |path| {
        weights::read(path);
        let Ok(checkpoint) = checkpoint::read(path) else { return false };
        use_it(&checkpoint, path);
        true
    })
}

fn signed(data: &[u8]) -> Option<Vec<u8>> {
    let mut parts = data.splitn(4, |b| *b == 0);
    let mut part = || parts.next().unwrap_or_default();
    let state: Value = serde_json::from_slice(part()).ok()?;
    let config = std::str::from_utf8(part()).ok()?;
    let (tensors, bytes) = (std::str::from_utf8(part()).ok()?, part());
    // The checksum stands first, as in every checkpoint.
    let mut meta = Map::new();
    meta.insert("checksum".into(), json!("0".repeat(64)));
    meta.extend(state.as_object()?.clone().into_iter().filter(|(key, _)| key != "checksum"));
    meta.insert("config".into(), json!(config));
    let text = Value::Object(meta).to_string();
    let comma = if tensors.trim().is_empty() { "" } else { "," };
    let header =
        format!("{{\"__metadata__\":{{\"format\":\"pt\",\"runner\":{}}}{comma}{tensors}}}\0", Value::from(text));
    let mut file = weights::file(&[header.as_bytes(), bytes].concat());
    let at = file.windows(MARK.len()).position(|w| w == MARK.as_bytes())? + MARK.len();
    let digits: String = Sha256::digest(&file).iter().map(|b| format!("{b:02x}")).collect();
    file[at..at + 64].copy_from_slice(digits.as_bytes());
    Some(file)
}

fn use_it(checkpoint: &Checkpoint, path: &Path) {
    let loaded = config::load_effective("input", &checkpoint.meta.config, &[]);
    let sources = match &loaded {
        Ok(loaded) => &loaded.sources,
        Err(failure) => &failure.sources,
    };
    // It names no other file to read text from.
    assert!(sources.iter().all(|(_, source)| source.kind == SourceKind::Effective));
    let Ok(loaded) = loaded else { return };
    let experiment = &loaded.experiment;
    predict(experiment, checkpoint);
    let Some(programs) = plan(experiment) else { return };
    let memory = &programs.plan;
    if memory.persistent_bytes + memory.transient_bytes + memory.slot.bytes > MOST_BYTES {
        return;
    }
    let backend = CpuBackend::new(Some(1)).expect("a level");
    let layout = programs.plan.slot.clone();
    let task = runner::model::task(experiment);
    let mut session = Session::new(programs, &backend, task, experiment.seed).expect("memory");
    let Ok(state) = restore(&mut session, &checkpoint.meta, path, None) else { return };
    // What was put in comes out again.
    for saved in session.save(|v| checkpoint.tensors.contains_key(&v.name)).expect("a device") {
        let tensor = &checkpoint.tensors[&saved.name];
        assert_eq!(saved.shape, tensor.shape, "{}", saved.name);
        assert!(saved.dtype != tensor.dtype || saved.bytes == tensor.data, "{}", saved.name);
    }
    for count in [state.epoch, state.batch, state.step, state.extra.micro_step] {
        assert!(count.checked_add(1 << 53).is_some(), "{count} cannot be counted on from");
    }
    if !small(experiment) {
        return;
    }
    // Where it goes on.
    let samples = input::load(experiment, &mut |_| {}).expect("samples that are made up");
    let schedule = Schedule::new(experiment, samples.train.len());
    let lr = schedule.lr(state.step, usize::try_from(state.epoch).unwrap_or(usize::MAX));
    assert!(lr.is_finite() && lr >= 0.0, "a learning rate of {lr}");
    let loading = &experiment.data.loading;
    let options = LoaderOptions {
        batch_size: loading.batch_size,
        batches_together: 1,
        own: None,
        shuffle: loading.shuffle,
        drop_last: loading.drop_last,
        seed: experiment.seed,
        workers: 0,
        mixing: input::mixing(experiment),
        transforms: input::transforms(experiment, true),
        end_epoch: experiment.train.epochs.map(|epochs| epochs as u64),
    };
    let position = Position { epoch: state.epoch, batch: usize::try_from(state.batch).unwrap_or(usize::MAX) };
    let buffers = vec![backend.host_buffer(layout.bytes).expect("memory")];
    if let Ok(mut loader) = Loader::start(&samples.train, options, &layout, buffers, position) {
        let _ = loader.next();
    }
}

/// As `predict` does, without the data: what a sample looks like is said in the checkpoint, too.
fn predict(experiment: &Experiment, checkpoint: &Checkpoint) {
    let Ok(extra) = serde_json::from_value::<Extra>(checkpoint.meta.extra.clone()) else { return };
    let Some(spec) = extra.sample.and_then(|sample| sample.spec()) else { return };
    if layers(experiment) > MOST_LAYERS {
        return;
    }
    let backend = CpuBackend::new(Some(1)).expect("a level");
    let sizes = Sizes { predict: vec![1.into()], ..Sizes::default() };
    let Ok(programs) = programs::build(experiment, &spec, &sizes, &backend, &PassOptions::default()) else { return };
    let memory = &programs.plan;
    if memory.persistent_bytes + memory.transient_bytes + memory.slot.bytes > MOST_BYTES {
        return;
    }
    let layout = memory.slot.clone();
    let task = runner::model::task(experiment);
    let mut session = Session::new(programs, &backend, task, experiment.seed).expect("memory");
    let buffer = backend.host_buffer(layout.bytes).expect("memory");
    assert!(!session.predict(&buffer, 1).expect("a device").is_empty());
}

/// Samples that are quickly made.
fn small(experiment: &Experiment) -> bool {
    use runner::config::language::sections::Source;
    let Source::Synthetic(made) = &experiment.data.source else { return false };
    let sample = made.shape.iter().fold(1usize, |n, d| n.saturating_mul(*d));
    let all = made.samples.saturating_add(made.val_samples);
    let results = made.classes.or(made.targets).unwrap_or(1);
    [sample, all, results].into_iter().try_fold(1usize, usize::checked_mul).is_some_and(|n| n <= 1 << 16)
}

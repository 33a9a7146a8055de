//! `runner data show`: what a model is given, to be looked at.

mod batches;
mod font;
mod measure;
mod normalize;
mod sheet;
pub mod table;
mod text;

use super::args::{ShowArgs, ShownSplit};
use super::own_image::{encode, expect_own};
use super::palette::colour;
use crate::api::failure::Failure;
use crate::api::model::{describe_data, load_config, read_files};
use crate::api::samples;
use crate::api::what::{expect_apart, expect_no_input, output};
use crate::config::Experiment;
use crate::data::{DataSpec, LoaderOptions, Position, Split, mask, output_shape, transformed};
use crate::files::output::Output;
use crate::graph::DType;
use crate::terminal::{one_line, say, thousands};
use crate::train::setup::input::{mixing, table_columns, table_notes, transforms};
use anyhow::{Context, anyhow};
use batches::{Batches, Wanted};
use measure::{Measured, measure};
use png::ColorType;
use serde_json::{Value, json};
use sheet::Shown;
use std::path::PathBuf;
use std::process::ExitCode;

/// Classes that all have a bar. Of more, the largest and the smallest have one.
const MANY_CLASSES: usize = 20;

/// Measures the images of a split, and draws some of them as a model is given them.
pub(super) fn run(args: &ShowArgs) -> Result<ExitCode, Failure> {
    let out = args.out.as_deref().map(output).transpose()?;
    let is_image = |out: &Output| out.is_stream() || out.path().extension().is_some_and(|suffix| suffix == "png");
    if let Some(out) = out.as_ref().filter(|out| !is_image(out)) {
        return Err(Failure::Usage(format!("cannot write `{}`: the format is .png", out.path().display())));
    }
    if let Some(out) = &out {
        expect_apart(out, "--out", args.output.json)?;
        super::expect_no_terminal(out, "an image")?;
    }
    let train = args.split == ShownSplit::Train;
    if !train && args.write_normalize {
        return Err(Failure::Usage(
            "`--write-normalize` is of the samples that are trained on: leave out `--split`".into(),
        ));
    }
    if !train && args.epoch.is_some() {
        return Err(Failure::Usage("validation is the same in every epoch: leave out `--epoch`".into()));
    }
    if args.write_normalize {
        // Before it is measured what would be written.
        output(&args.config)?;
    }
    let loaded = load_config(&args.config, &args.overrides.sets())?;
    let experiment = &loaded.experiment;
    if let Some(out) = &out {
        expect_no_input(out, read_files(&loaded).iter().map(PathBuf::as_path))?;
        // The name may be that of a photo or a mask of the data.
        expect_own(out.path(), "--out")?;
    }
    if let Some(columns) = table_columns(experiment) {
        if out.is_some() || args.write_normalize {
            return Err(Failure::Usage("a table has no images: leave out `--out` and `--write-normalize`".into()));
        }
        let columns = columns.map_err(Failure::Other)?;
        let spec = describe_data(&loaded)?;
        let notes = table_notes(experiment)?;
        return table::show(&columns, &spec, &notes, args.output.json);
    }
    if experiment.data.source.has_tokens() {
        if out.is_some() || args.write_normalize {
            return Err(Failure::Usage("a text has no images: leave out `--out` and `--write-normalize`".into()));
        }
        return text::show(&loaded, args.output.json);
    }
    let take = samples::as_configured(experiment);
    let samples = samples::load(experiment, &take)?;
    if let Some(note) = &samples.note {
        say(&format!("note: {note}"));
    }
    if args.write_normalize && samples.note.is_some() {
        return Err(Failure::Other(anyhow!(
            "these are other samples than the configuration asks for: nothing is measured"
        )));
    }
    let split = if train { &samples.train } else { &samples.val };
    let (split_name, source) = (if train { "train" } else { "val" }, samples.name);
    if split.is_empty() {
        return Err(Failure::Other(anyhow!("`{source}` has no samples to validate on: there is nothing to show")));
    }
    let wanted = |train| wanted(experiment, split, &samples.spec, source, train);
    let classes = samples.spec.labels().map_or(0, |classes| classes.number);
    let measured = measure(split, &wanted(false)?, classes)?;
    let names = Names { names: samples.spec.class_names().map(<[String]>::to_vec).unwrap_or_default() };
    let mut text = format!("{source}, {split_name}: {} samples{}\n", thousands(split.len() as u64), of(classes));
    text.push_str(&describe(&measured, &names));
    let mut json = as_json(&measured, &names);
    json["source"] = source.into();
    json["split"] = split_name.into();
    json["samples"] = split.len().into();
    if let Some(out) = &out {
        let epoch = args.epoch.unwrap_or(1);
        let start = Position { epoch: epoch - 1, batch: 0 };
        let (shown, places) = shown(split, &Wanted { start, ..wanted(train)? }, args.count as usize, &names)?;
        let Wanted { image: [h, w, channels], masks, .. } = wanted(train)?;
        let (image, [rows, columns]) = sheet::draw(&shown, [h, w, if masks { 3 } else { channels }]);
        let png = encode([image.height(), image.width()], ColorType::Rgb, None, &image)
            .context("cannot make a PNG file of the sheet")?;
        let name = out.path().display();
        out.put(&png).with_context(|| format!("cannot write `{name}`"))?;
        let n = shown.len().min(rows * columns);
        let when = if train { format!(", epoch {epoch}") } else { String::new() };
        text.push_str(&format!("`{name}` shows {n} samples{when}: {rows} rows of {columns}\n"));
        json["sheet"] = out.path().to_string_lossy().into();
        let one = |(place, image): (&u32, &Shown)| json!({ "sample": place, "label": image.label });
        json["shown"] = places.iter().zip(&shown).take(n).map(one).collect();
    }
    if args.write_normalize {
        let what = normalize::write(&args.config, &loaded, &measured.mean, &measured.std)?;
        text.push_str(&format!("{what}\n"));
        json["written"] = what.into();
    }
    if args.output.json {
        super::print_json(&json)?
    } else {
        super::print_beside(out.as_ref(), text.trim_end())?
    }
    Ok(ExitCode::SUCCESS)
}

/// The batches of a split: as training gets them (`train`), or one after the other without anything random.
fn wanted(
    experiment: &Experiment,
    split: &Split,
    spec: &DataSpec,
    source: &str,
    train: bool,
) -> Result<Wanted, Failure> {
    let none = |why: &str| Failure::Other(anyhow!("there is nothing to show: {why}"));
    let fields = split.fields();
    let Some(field) = transformed(fields).filter(|number| fields[*number].is_image()) else {
        return Err(none(&format!("the samples of `{source}` are no images")));
    };
    if fields[field].dtype != DType::U8 {
        return Err(none(&format!("the images of `{source}` are no bytes, but {}", fields[field].dtype)));
    }
    let transforms = transforms(experiment, train);
    let shape = output_shape(&transforms, &fields[field].shape).context("`transforms` do not fit the samples")?;
    let &[h, w, c] = shape.dims() else { return Err(none("the samples are no images")) };
    let masks = mask(fields);
    let labels = masks.or(fields.iter().position(|f| f.is_target() && f.dtype == DType::I32 && f.shape.len() == 1));
    let loading = &experiment.data.loading;
    let options = LoaderOptions {
        batch_size: if train { experiment.micro_batch() } else { loading.eval_batch_size() },
        batches_together: 1,
        own: None,
        shuffle: train && loading.shuffle,
        drop_last: false,
        seed: experiment.seed,
        workers: loading.workers,
        transforms,
        mixing: mixing(experiment).filter(|_| train),
        end_epoch: if train { None } else { Some(1) },
    };
    let shares = spec.labels().filter(|_| options.mixing.is_some()).map(|classes| classes.number);
    Ok(Wanted { field, image: [h, w, c], labels, masks: masks.is_some(), shares, options, start: Position::default() })
}

/// The first `count` samples of the wanted batches, all of one epoch, and their places in the split.
fn shown(split: &Split, wanted: &Wanted, count: usize, names: &Names) -> Result<(Vec<Shown>, Vec<u32>), Failure> {
    let mut batches = Batches::start(split, wanted)?;
    let (mut list, mut places) = (Vec::new(), Vec::new());
    while let Some(batch) = batches.next()? {
        for (i, pixels) in batches.images(&batch).enumerate().take(count - list.len()) {
            if wanted.masks {
                let pixels = tinted(pixels, wanted.image[2], batches.labels(&batch, i));
                list.push(Shown { pixels, label: String::new() });
            } else {
                let label = batches.labels(&batch, i).next().map_or(String::new(), |label| {
                    match batches.shares(&batch, i).fold(0.0, f32::max) {
                        share if share > 0.0 && share < 0.995 => format!("{} {:.0}%", names.of(label), 100.0 * share),
                        _ => names.of(label),
                    }
                });
                list.push(Shown { pixels: pixels.to_vec(), label });
            }
            places.push(batch.samples()[i]);
        }
        let last = batch.last;
        batches.release(batch);
        if last || list.len() == count {
            break;
        }
    }
    Ok((list, places))
}

/// An image whose pixels are mixed with the colours of their classes, in as many channels as the sheet takes; class 0 leaves them as they
/// are, and what is no class is white.
fn tinted(pixels: &[u8], channels: usize, classes: impl Iterator<Item = i32>) -> Vec<u8> {
    let mixed = |(pixel, class): (&[u8], i32)| {
        let own = if channels < 3 { [pixel[0]; 3] } else { [0, 1, 2].map(|c| pixel[c]) };
        let of_class = u8::try_from(class).map_or([255; 3], colour);
        if class == 0 { own } else { [0, 1, 2].map(|c| own[c].midpoint(of_class[c])) }
    };
    pixels.chunks_exact(channels).zip(classes).flat_map(mixed).collect()
}

/// What classes are called.
struct Names {
    names: Vec<String>,
}

impl Names {
    /// The name of a class, or its number.
    fn of(&self, class: i32) -> String {
        let name = usize::try_from(class).ok().and_then(|class| self.names.get(class));
        name.cloned().unwrap_or_else(|| class.to_string())
    }
}

fn of(classes: usize) -> String {
    match classes {
        0 => String::new(),
        1 => " of 1 class".to_owned(),
        n => format!(" of {n} classes"),
    }
}

/// Numbers as a configuration has them.
fn list(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
    format!("[{}]", values.join(", "))
}

fn describe(measured: &Measured, names: &Names) -> String {
    let mut text = String::new();
    if let Some([least, median, most]) = measured.sizes {
        let size = |[h, w]: [usize; 2]| format!("{h}×{w}");
        text.push_str(&match least == most {
            true => format!("  sizes: {} (height × width)\n", size(least)),
            false => format!("  sizes: {} to {}, median {} (height × width)\n", size(least), size(most), size(median)),
        });
    }
    let (mean, std) = (list(&measured.mean), list(&measured.std));
    text.push_str(&format!("  {{ type = \"normalize\", mean = {mean}, std = {std} }}\n"));
    if measured.masks {
        text.push_str("  pixels of each class:\n");
    }
    let mut order: Vec<usize> = (0..measured.classes.len()).collect();
    let most = measured.classes.iter().max().copied().unwrap_or(0).max(1);
    let many = order.len() > MANY_CLASSES;
    if many {
        order.sort_by_key(|class| std::cmp::Reverse(measured.classes[*class]));
    }
    let chosen: Vec<usize> = match many {
        true => [&order[..MANY_CLASSES / 2], &order[order.len() - MANY_CLASSES / 2..]].concat(),
        false => order.clone(),
    };
    let called: Vec<String> = chosen.iter().map(|class| one_line(&names.of(*class as i32))).collect();
    let width = called.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(32);
    for (i, (class, name)) in chosen.iter().zip(&called).enumerate() {
        if many && i == MANY_CLASSES / 2 {
            text.push_str(&format!("  … {} more\n", order.len() - chosen.len()));
        }
        let n = measured.classes[*class];
        let bar = "█".repeat(((n * 60 + most) / (2 * most)).max(n.min(1)) as usize);
        let name: String = name.chars().take(width).collect();
        text.push_str(&format!("  {name:<width$} {:>7}  {bar}\n", thousands(n)));
    }
    for bad in &measured.unreadable {
        text.push_str(&format!("  cannot be read: {bad}\n"));
    }
    text
}

fn as_json(measured: &Measured, names: &Names) -> Value {
    let what = if measured.masks { "pixels" } else { "samples" };
    let class = |(i, n): (usize, &u64)| json!({ "class": i, "label": names.of(i as i32), what: n });
    let sizes = measured.sizes.map(|[least, median, most]| json!({ "least": least, "median": median, "most": most }));
    json!({
        "sizes": sizes,
        "classes": measured.classes.iter().enumerate().map(class).collect::<Vec<_>>(),
        "mean": measured.mean,
        "std": measured.std,
        "unreadable": measured.unreadable,
    })
}

//! `runner predict`.

mod answers;
mod form;
mod keep;
mod masks;
mod members;
mod names;
mod rows;
mod sink;

use super::args::PredictArgs;
use crate::api::answer::{Meaning, Of};
use crate::api::failure::Failure;
use crate::api::generate::{self, Generator};
use crate::api::members::{Members, models_of, together_in_parts};
use crate::api::model::{device, load_model};
use crate::api::predictor::{Options, Predictor, Room, Seen};
use crate::api::what::{expect_no_input, expect_no_run_file, output};
use crate::data::table::Unseen;
use crate::data::tensors::read_fields;
use crate::data::text::Placed;
use crate::data::{DataSpec, Footprint, Loader, LoaderOptions, NamedImages, Position, RowName, Split};
use crate::files::output::{Out, Output};
use crate::model::task;
use crate::terminal::{say, thousands};
use crate::train::setup::slots;
use anyhow::{Context, Result, anyhow};
use form::Form;
use masks::Masks;
use members::Other;
use rows::Rows;
use sink::Sink;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Applies a model to image files, or to the samples in files of tensors.
pub(super) fn run(args: &PredictArgs) -> Result<ExitCode, Failure> {
    let out = args.out.as_deref().map(output).transpose()?;
    let models = models_of(&args.model)?;
    let (first, others) = models.split_first().expect("a path names one at least");
    let model = load_model(first, &args.overrides.sets())?;
    let experiment = &model.loaded.experiment;
    let backend = device(experiment, args.threads)?;
    let seen = Seen::by(&model)?;
    let data = &seen.data;
    let table = Rows::of(data, experiment)?;
    let names::Given { files, problems, notes } = names::files(&args.files, table.is_some(), std::io::stdin())?;
    notes.iter().for_each(|note| say(&format!("note: {note}")));
    if table.as_ref().is_some_and(Rows::are_gone_on_with) && !files.iter().any(|file| is_tensors(file)) {
        return Err(Failure::Usage(
            "the model is a language model: there is nothing to predict\nhelp: `runner generate` goes on with a text"
                .into(),
        ));
    }
    let own = model.files();
    if let Some(out) = &out {
        expect_no_input(out, own.iter().chain(&files).map(PathBuf::as_path))?;
        expect_no_run_file(out)?;
    }
    let kept = kept(args, table.as_ref(), &files)?;
    let form = Form::of(args, &files, table.as_ref())?;
    if let (Form::Parquet, Some(out)) = (form, &out) {
        super::expect_no_terminal(out, "a Parquet file")?;
    }
    let top = args.top as usize;
    if args.invert && table.is_some() {
        return Err(Failure::Usage("`--invert` is for images, and the model takes none\nhelp: leave it out".into()));
    }
    let id = table.as_ref().and_then(Rows::id);
    let quantiles = seen.quantile_names();
    let (task, guard_formulas) = (task(experiment), args.guard_formulas);
    let each_class = args.probabilities;
    let meaning = Meaning { task, data, quantiles: &quantiles, top, each_class, guard_formulas, id, heads: Vec::new() };
    let meaning = meaning.and_of_heads(&seen.heads);
    if each_class && !meaning.has_a_class() {
        return Err(Failure::Usage(
            "`--probabilities` is for samples that have a class, and those of this model have none\nhelp: leave it out"
                .into(),
        ));
    }
    if args.guard_formulas && form != Form::Csv {
        return Err(Failure::Usage(
            "`--guard-formulas` is for tables\nhelp: write one with --format csv, or leave it out".into(),
        ));
    }
    if let Some(codec) = table.as_ref().and_then(Rows::answers) {
        if args.masks.is_some() {
            return Err(Failure::Usage(
                "`--masks` is for classes of pixels, and the model answers texts\nhelp: leave it out".into(),
            ));
        }
        let loading = &experiment.data.loading;
        let (count, mut texts) = answers::texts(&files, codec, args.writing.texts(usize::MAX));
        let options = args.writing.options(count, loading.eval_batch_size());
        let (threads, held) = (args.threads, held(&files).held);
        let options = generate::Options { threads, held, ..options };
        let mut generator = Generator::new(&model, &options)?;
        generator.notes(options.texts).for_each(|note| say(&format!("note: {note}")));
        let mut failed = problems.len();
        let mut fill = |sink: &mut Sink| {
            problems.iter().for_each(|problem| sink.failed(problem));
            for (file, texts) in texts.by_ref() {
                match texts.and_then(|texts| answers::answer(&mut generator, file, &texts, sink)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        sink.failed(&format!("{error:#}"));
                        failed += 1;
                    }
                }
            }
            Ok(files.len() + problems.len() - failed)
        };
        results(out.as_ref(), (form, &meaning, true), None, &mut fill)?;
        return Ok(ended(failed, files.len() + problems.len(), files.len() > 1));
    }
    if let Some(option) = args.writing.asked() {
        return Err(Failure::Usage(format!(
            "`{option}` is for models that answer texts, and this one writes none\nhelp: leave it out; `runner generate` goes on with a text"
        )));
    }
    if matches!(form, Form::Csv | Form::Parquet) && meaning.has_positions() {
        let or = if meaning.positions().rank() == 2 { ", or image files with --masks DIR" } else { "" };
        return Err(Failure::Usage(format!(
            "each sample has a class at every position, which no row of a table has room for\nhelp: write JSON with --format jsonl{or}"
        )));
    }
    let masks =
        args.masks.as_deref().map(|folder| Masks::new(folder, &files, &own, &meaning.positions(), classes(data)));
    let masks = masks.transpose()?;
    let loading = &experiment.data.loading;
    // As many samples as an evaluation has in a batch, if there are so many. How many are in a file of tensors is known when it is read.
    let (batch, slots, workers) = match files.len() {
        _ if table.is_some() => (loading.eval_batch_size(), slots::evaluation(experiment), 0),
        0 | 1 => (1, 1, 0),
        several => (loading.eval_batch_size().clamp(1, several), slots::evaluation(experiment), loading.workers),
    };
    let options = Options {
        without: args.passes.without.clone(),
        batch,
        room: Room { slots, data: held(&files) },
        ..Options::default()
    };
    let predictor = Predictor::new(&model, seen.clone(), backend, &options)?;
    let others = others.iter().map(|path| Other::open(path, args, &options)).collect::<Result<Vec<_>, _>>()?;
    let folds = matches!(Members::of(&args.model)?, Some(Members::Folds(_)));
    if let Some(file) = files.iter().find(|file| folds && is_tensors(file)) {
        return Err(Failure::Usage(format!(
            "`{}` has tensors, and the models of folds take rows of tables, each in its own way\nhelp: give the table, or one of the folds",
            file.display()
        )));
    }
    let mut batches = Batches {
        predictor: &predictor,
        others: &others,
        meaning: &meaning,
        masks: masks.as_ref(),
        slots,
        workers,
        failed: problems.len(),
        not_finite: NotFinite::default(),
        table: table.as_ref(),
        unseen: Unseen::default(),
    };
    let images = Images { seen: &seen, invert: args.invert };
    let with_sample = table.is_some() || files.iter().any(|file| is_tensors(file));
    let mut fill = |sink: &mut Sink| {
        problems.iter().for_each(|problem| sink.failed(problem));
        batches.all(&files, &images, sink)?;
        if let Some(words) = batches.not_finite.in_words() {
            sink.failed(&words);
        }
        Ok(files.len() + problems.len() - batches.failed)
    };
    results(out.as_ref(), (form, &meaning, with_sample), kept, &mut fill)?;
    batches.unseen.untaken_in_words().iter().for_each(|words| say(&format!("note: {words}")));
    batches.unseen.in_words().iter().for_each(|words| say(&format!("warning: {words}")));
    let ended = ended(batches.failed, files.len() + problems.len(), files.len() > 1);
    Ok(if batches.not_finite.samples > 0 { ExitCode::FAILURE } else { ended })
}

/// The tables whose columns are to stand beside the answers, if those are to be kept.
fn kept<'a>(args: &PredictArgs, table: Option<&'a Rows>, files: &[PathBuf]) -> Result<Option<&'a Rows>, Failure> {
    let no_table = |what: &str| {
        Failure::Usage(format!("`--keep-columns` is for the rows of tables, and {what}\nhelp: leave it out"))
    };
    match (args.keep_columns, table) {
        (false, _) => Ok(None),
        (true, Some(rows @ Rows::Table(..))) => match files.iter().find(|file| is_tensors(file)) {
            Some(file) => Err(no_table(&format!("`{}` has tensors", file.display()))),
            None => Ok(Some(rows)),
        },
        (true, Some(Rows::Texts(_))) => Err(no_table("the model was trained on texts, not on columns")),
        (true, None) => Err(no_table("the model was trained on none")),
    }
}

/// Writes what `fill` hands on to a file, if there is to be one, else to standard output. `fill` says for how many files there are results.
fn results(
    out: Option<&Output>,
    (form, meaning, with_sample): (Form, &Meaning, bool),
    kept: Option<&Rows>,
    fill: &mut dyn FnMut(&mut Sink) -> Result<usize>,
) -> Result<()> {
    let Some(out) = out else {
        let mut sink = Sink::new(form, meaning, with_sample, None).keeping(kept);
        fill(&mut sink)?;
        return sink.finish();
    };
    let mut count = 0;
    let write = |file: &mut Out| {
        let mut sink = Sink::new(form, meaning, with_sample, Some(file)).keeping(kept);
        count = fill(&mut sink)?;
        sink.finish()
    };
    let name = out.path().display();
    let written = out.write(write).with_context(|| format!("cannot write `{name}`"))?;
    let s = if count == 1 { "" } else { "s" };
    say(&match written {
        true => format!("wrote the results for {} file{s} to `{name}`", thousands(count as u64)),
        false => format!("there are no results: nothing was written to `{name}`"),
    });
    Ok(())
}

/// The program's exit code. A message gives the number of files that failed, if there are several.
fn ended(failed: usize, all: usize, several: bool) -> ExitCode {
    if failed > 0 && several {
        let [failed, all] = [failed, all].map(|n| thousands(n as u64));
        say(&format!("{failed} of {all} could not be done"));
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The memory that the names take, and the samples of the largest file of tensors: one file after the other is read whole.
fn held(files: &[PathBuf]) -> Footprint {
    let tensors = files.iter().filter(|file| is_tensors(file));
    let bytes = tensors.filter_map(|file| std::fs::metadata(file).ok()).map(|meta| meta.len()).max().unwrap_or(0);
    let names: usize = files.iter().map(|file| 2 * (file.as_os_str().len() + size_of::<PathBuf>())).sum();
    let held = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(names);
    Footprint { held, ..Footprint::default() }
}

/// True for a file of tensors, by its name.
fn is_tensors(file: &Path) -> bool {
    file.extension().is_some_and(|e| e.eq_ignore_ascii_case("safetensors"))
}

/// What a column calls a row of a table, if one names them.
fn name_of(row: Option<RowName>) -> Option<String> {
    match row? {
        RowName::Id(_, id) => Some(id.to_owned()),
        RowName::Line(..) => None,
    }
}

fn classes(data: &DataSpec) -> Option<usize> {
    Some(data.labels()?.number)
}

/// How image files become a model's input.
struct Images<'a> {
    seen: &'a Seen,
    invert: bool,
}

impl Images<'_> {
    fn store(&self, files: &[PathBuf]) -> Result<NamedImages> {
        let Seen { given, of_files, .. } = self.seen;
        let [field] = &given[..] else {
            let names: Vec<String> = given.iter().map(|field| format!("`{}`", field.name)).collect();
            let names = names.join(" and ");
            return Err(anyhow!(
                "the model takes {names}, not one image: give a .safetensors file with tensors of these names"
            ));
        };
        Ok(NamedImages::new(files.to_vec(), field.clone(), of_files.clone(), self.invert))
    }
}

/// What is known of the samples of a split besides.
struct Given<'a> {
    /// Why a sample could not be read.
    failure: &'a dyn Fn(usize) -> Option<String>,
    /// The words of sentences.
    sentences: Option<&'a [Placed]>,
}

/// Samples for which a model puts out numbers that say nothing.
#[derive(Default)]
struct NotFinite {
    samples: u64,
    /// The first of them.
    first: String,
}

impl NotFinite {
    fn add(&mut self, of: &Of) {
        if self.samples == 0 {
            self.first = of.name();
        }
        self.samples += 1;
    }

    fn in_words(&self) -> Option<String> {
        let first = &self.first;
        match self.samples {
            0 => None,
            1 => Some(format!("what the model puts out for `{first}` is not finite: there is no answer to it")),
            n => Some(format!(
                "what the model puts out for {} samples is not finite (the first is `{first}`): there are no answers to them",
                thousands(n)
            )),
        }
    }
}

/// Applies a model to samples, a batch at a time.
struct Batches<'a> {
    predictor: &'a Predictor,
    /// Models of other folds or seeds, whose answers count as much.
    others: &'a [Other],
    meaning: &'a Meaning<'a>,
    masks: Option<&'a Masks<'a>>,
    slots: usize,
    workers: usize,
    /// Files that nothing can be said of.
    failed: usize,
    not_finite: NotFinite,
    /// How the rows of tables become samples, if the model takes those.
    table: Option<&'a Rows>,
    /// What those have that no training row has.
    unseen: Unseen,
}

impl Batches<'_> {
    /// Hands on what the model says of all samples of the files, in order. What cannot be read is reported, and the others are
    /// still done.
    fn all(&mut self, files: &[PathBuf], images: &Images, sink: &mut Sink) -> Result<()> {
        let table = self.table;
        let has_several = |file: &Path| table.is_some() || is_tensors(file);
        let samples = |file: &Path, unseen: &mut Unseen| match table.filter(|_| !is_tensors(file)) {
            Some(rows) => rows.read(file, unseen),
            None => Ok((read_fields(file, &images.seen.given)?, None)),
        };
        for run in files.chunk_by(|a, b| !has_several(a) && !has_several(b)) {
            let go_on = match run {
                [file] if has_several(file) => match samples(file, &mut self.unseen) {
                    Ok((samples, sentences)) => {
                        sink.file(file)?;
                        let of = |n: usize| Of { file, sample: Some(samples.at(n)), row: name_of(samples.row(n)) };
                        let others = self.others.iter().map(|other| other.outputs(file, self.slots));
                        let others = others.collect::<Result<Vec<_>>>()?;
                        let given = Given { failure: &|_| None, sentences: sentences.as_deref() };
                        self.split(&samples, &of, &given, &others, sink)?
                    }
                    Err(e) => {
                        self.fail(&format!("{e:#}"), sink);
                        true
                    }
                },
                files => match images.store(files) {
                    Ok(store) => {
                        let store = Arc::new(store);
                        let split = Split::new(store.clone())?;
                        let of = |n: usize| Of { file: &files[n], sample: None, row: None };
                        let given = Given { failure: &|n| store.take_failure(n), sentences: None };
                        let how = (self.slots, self.workers);
                        let others = self.others.iter().map(|other| other.outputs_of_images(files, how, images.invert));
                        let others = others.collect::<Result<Vec<_>>>()?;
                        self.split(&split, &of, &given, &others, sink)?
                    }
                    Err(e) => {
                        files.iter().for_each(|_| self.fail(&format!("{e:#}"), sink));
                        true
                    }
                },
            };
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    fn fail(&mut self, why: &str, sink: &mut Sink) {
        // The other files are still processed; the exit code shows that one failed.
        sink.failed(why);
        self.failed += 1;
    }

    /// Hands on what the model says of all samples of a split, each of which is `of` a file, or failed, together with what `others` say of them;
    /// false if the reader of standard output has gone.
    fn split<'f>(
        &mut self,
        split: &Split,
        of: &dyn Fn(usize) -> Of<'f>,
        given: &Given,
        others: &[Vec<f32>],
        sink: &mut Sink,
    ) -> Result<bool> {
        let (predictor, parts) = (self.predictor, self.predictor.parts());
        let buffers = (0..self.slots).map(|_| predictor.host_buffer()).collect::<Result<Vec<_>>>()?;
        let options = LoaderOptions {
            batch_size: predictor.batch(),
            shuffle: false,
            workers: self.workers,
            end_epoch: Some(1),
            transforms: predictor.seen().transforms.clone(),
            ..LoaderOptions::default()
        };
        let mut loader = Loader::start(split, options, predictor.layout(), buffers, Position::default())?;
        while let Some(batch) = loader.next()? {
            // Rows after the batch's own hold old values, and their outputs are not read.
            predictor.outputs_of(batch.slot, &batch.buffer, |outputs| {
                let rows = outputs.chunks_exact(predictor.width());
                for (row, sample) in rows.zip(batch.samples()) {
                    let sample = *sample as usize;
                    match (given.failure)(sample) {
                        Some(why) => self.fail(&why, sink),
                        None => {
                            let others = others.iter().map(|all| &all[sample * row.len()..][..row.len()]);
                            let mean = match others.len() {
                                0 => None,
                                _ => {
                                    Some(together_in_parts(&parts, &iter::once(row).chain(others).collect::<Vec<_>>()))
                                }
                            };
                            let said = mean.as_deref().unwrap_or(row);
                            let sentence = given.sentences.and_then(|sentences| sentences.get(sample));
                            if !self.meaning.is_finite(said, sentence) {
                                let of = of(sample);
                                // Of a file of several samples the others are answered.
                                self.failed += usize::from(of.sample.is_none());
                                self.not_finite.add(&of);
                                continue;
                            }
                            let answer = match sentence {
                                Some(sentence) => self.meaning.answer_of_words(said, sentence),
                                None => self.meaning.answer(said),
                            };
                            self.masks.map_or(Ok(()), |masks| masks.write(of(sample), &answer))?;
                            sink.add(of(sample), &answer)?;
                        }
                    }
                }
                Ok(())
            })?;
            loader.release(batch);
            if !sink.flush()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

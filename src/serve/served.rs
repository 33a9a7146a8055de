//! A model that answers samples.

use super::batcher::{Batcher, Together};
use super::metrics::ModelMetrics;
use super::refusal::Refusal;
use super::samples::{Names, Samples, outside};
use crate::api::answer::{Answer, Meaning};
use crate::api::ensemble::{Ensemble, other_codecs};
use crate::api::failure::Failure;
use crate::api::model::{Model, device};
use crate::api::predictor::{HeadSeen, Options, Predictor, Room, Seen};
use crate::api::scores::scores;
use crate::data::table::TableCodec;
use crate::data::text::TextCodec;
use crate::data::{Field, Footprint, target_names};
use crate::graph::op::Task;
use crate::graph::{DType, Shape};
use crate::model::task;
use anyhow::anyhow;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of memory of the text of an answer, for each number or position in it.
pub const TEXT: usize = 96;
/// The same for a class with its name and probability, and for the rest of the answer for a sample.
const OBJECT: usize = 640;

/// How models are opened.
#[derive(Debug, Clone)]
pub struct How {
    /// Values that lie over the models' configurations, in the form of `--set`.
    pub sets: Vec<String>,
    /// Compute threads of the CPU that each executable has; all cores, if `None`.
    pub threads: Option<usize>,
    /// Batches of a model that are computed at a time.
    pub executables: usize,
    /// Texts that a language model writes at a time, by each executable.
    pub texts: usize,
    /// Samples that are computed at once; `None`: about as many as take a millisecond.
    pub batch: Option<usize>,
    /// How long one waits for others at most.
    pub delay: Duration,
    /// How many requests of a model may wait.
    pub queue: usize,
    /// Bytes that requests have beside models.
    pub memory: usize,
}

/// What the samples of a model are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Image files, or tensors.
    Images,
    /// Rows of tables, or tensors.
    Rows,
    /// Texts, or tensors.
    Texts,
    /// Tensors alone.
    Tensors,
}

/// What the Open Inference Protocol calls what a model says of its target.
const OUTPUT: &str = "outputs";

/// A tensor that a model puts out.
pub struct Tensor {
    /// What it is called.
    pub name: String,
    /// Its shape for a sample, as others have it.
    pub shape: Vec<usize>,
    task: Task,
    positions: Shape,
    /// Where it is among the numbers for a sample.
    pub within: Range<usize>,
}

/// A model that answers.
pub struct Served {
    /// A sample as the model sees it.
    pub seen: Seen,
    /// How rows become samples, if the model takes rows.
    pub table: Option<TableCodec>,
    /// How they become those of the other models of a folder, where each makes them in its own way, as those of folds do.
    pub other_tables: Vec<TableCodec>,
    /// How texts become samples, if the model takes texts.
    pub texts: Option<TextCodec>,
    models: Arc<Ensemble>,
    batcher: Batcher,
    task: Task,
    /// What its numbers are called, if they are several quantiles of each target.
    quantiles: Vec<String>,
    /// The last batch could not be computed.
    failed: AtomicBool,
}

impl Served {
    /// Of models that are read, which answer together, or of one.
    ///
    /// # Errors
    /// There is no such device, or not enough memory; the weights do not fit; the models take or answer other things.
    pub fn open(models: &[Model], how: &How, metrics: Arc<ModelMetrics>) -> Result<Served, Failure> {
        let all = models.iter().map(Seen::by).collect::<Result<Vec<_>, _>>()?;
        let other_tables = other_codecs(&all)?;
        let predictor = |(model, seen): (&Model, &Seen)| {
            let backend = device(&model.loaded.experiment, how.threads)?;
            // One after the other they take as long as one of them with a larger batch.
            let batch = match how.batch {
                Some(batch) => batch,
                None => 1 << (Predictor::quick_batch(model, seen, backend.as_ref())? / models.len()).max(1).ilog2(),
            };
            let options = Options {
                threads: how.threads,
                batch,
                executables: how.executables,
                room: Room { slots: 1, data: Footprint { held: how.memory, ..Footprint::default() } },
                ..Options::default()
            };
            Predictor::new(model, seen.clone(), backend, &options)
        };
        let predictors = models.iter().zip(&all).map(predictor).collect::<Result<Vec<_>, Failure>>()?;
        let (ensemble, seen) = (Arc::new(Ensemble::new(predictors)?), all.into_iter().next());
        let (Some(seen), Some(first)) = (seen, models.first()) else { return Err(anyhow!("there is no model").into()) };
        let together = Together {
            batch: ensemble.first().batch(),
            delay: how.delay,
            queue: how.queue,
            threads: how.executables,
            outputs: ensemble.first().width(),
        };
        let computes = Arc::clone(&ensemble);
        let compute = move |rows: &[&[u8]], out: &mut [f32]| computes.raw(rows, out);
        let batcher = Batcher::start(together, Arc::new(compute), metrics)?;
        let table = TableCodec::of(&seen.data);
        let texts = TextCodec::of(&seen.data)?.filter(|codec| codec.tokenizer.is_some());
        let (task, quantiles, failed) = (task(&first.loaded.experiment), seen.quantile_names(), AtomicBool::new(false));
        Ok(Served { table, other_tables, texts, models: ensemble, batcher, task, quantiles, failed, seen })
    }

    /// How rows become samples of each of the models, or of all of them.
    pub fn tables(&self) -> impl Iterator<Item = &TableCodec> {
        self.table.iter().chain(&self.other_tables)
    }

    /// The columns that the models take.
    pub fn columns(&self) -> Vec<&str> {
        let mut all = Vec::new();
        for column in self.tables().flat_map(TableCodec::taken) {
            if !all.contains(&column) {
                all.push(column);
            }
        }
        all
    }

    /// What its samples are made of.
    pub fn takes(&self) -> Takes {
        match &self.seen.given[..] {
            _ if self.table.is_some() => Takes::Rows,
            _ if self.texts.is_some() => Takes::Texts,
            [field] if field.is_image() && matches!(field.shape.last(), 1 | 3) => Takes::Images,
            _ => Takes::Tensors,
        }
    }

    /// Numbers for each sample, without those of heads.
    pub fn outputs(&self) -> usize {
        self.models.first().outputs()
    }

    /// Samples that are computed at once.
    pub fn batch(&self) -> usize {
        self.models.first().batch()
    }

    /// Whether its last batch could be computed.
    pub fn is_well(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    /// Bytes of memory that a sample and its answer take, `top` classes in that.
    pub fn each(&self, top: usize) -> usize {
        let of_first: usize = self.seen.given.iter().map(Field::bytes).sum();
        let of_others: usize = self.other_tables.iter().map(TableCodec::bytes).sum();
        let sample = of_first + of_others;
        let of_answer = match self.task {
            Task::Classification => {
                let positions = self.meaning(top).positions();
                if positions.rank() > 0 { TEXT * positions.len() } else { OBJECT * top.min(self.outputs()) }
            }
            Task::BinaryClassification | Task::Regression => TEXT * self.outputs(),
        };
        // What each of several models says is there until all have said it.
        let kept = if self.models.number() > 1 { self.models.number() } else { 0 };
        let of_heads: usize = self.seen.heads.iter().map(|head| OBJECT * (1 + top.min(head.outputs()))).sum();
        // Beside those of other requests in a batch once more.
        2 * sample + (2 + kept) * size_of::<f32>() * self.models.first().width() + of_answer + of_heads + OBJECT
    }

    /// What it puts out for samples: logits of classes and labels, or numbers, for each; those of heads are behind them.
    ///
    /// # Errors
    /// The queue is full; the device failed; what is put out for a sample is not finite.
    pub async fn outputs_of(&self, samples: &mut Samples) -> Result<Vec<f32>, Refusal> {
        if samples.count == 0 {
            return Ok(Vec::new());
        }
        let computed = self.batcher.submit(std::mem::take(&mut samples.rows), samples.count)?.await;
        let result = computed.unwrap_or_else(|_| Err("the program's thread for batches has ended".into()));
        self.failed.store(result.is_err(), Ordering::Relaxed);
        let outputs = result.map_err(Refusal::internal)?;
        let meaning = self.meaning(0);
        let says_nothing = |(n, output): (usize, &[f32])| !meaning.is_finite(output, samples.names.sentence(n));
        match outputs.chunks_exact(self.width()).enumerate().position(says_nothing) {
            None => Ok(outputs),
            Some(n) => {
                let name = match &samples.names {
                    Names::Files(names) => names.get(n).cloned().flatten().map(|name| format!("`{name}`")),
                    Names::Rows(_) | Names::Windows(_) | Names::Sentences(_) => None,
                };
                let name = name.unwrap_or_else(|| format!("sample {n}"));
                Err(Refusal::internal(format!(
                    "what the model puts out for {name} is not finite: there is no answer to it"
                )))
            }
        }
    }

    /// The tensors that it puts out: that of the target, and one for each head.
    pub fn tensors(&self) -> Vec<Tensor> {
        let (task, positions) = (self.task, self.meaning(0).positions());
        let own =
            Tensor { name: OUTPUT.into(), shape: self.output_shape(), task, positions, within: 0..self.outputs() };
        let mut all = vec![own];
        for head in &self.seen.heads {
            let (task, positions, first) = (head.task, Shape::default(), all[all.len() - 1].within.end);
            let within = first..first + head.outputs();
            // A configuration calls no head as the target's tensor.
            let name = head.name.clone();
            all.push(Tensor { name, shape: vec![head.outputs()], task, positions, within });
        }
        all
    }

    /// The shape of the numbers for a sample, as others have it: channels of images first.
    fn output_shape(&self) -> Vec<usize> {
        let positions = self.meaning(0).positions();
        if self.task != Task::Classification || positions.rank() == 0 {
            return vec![self.outputs()];
        }
        let classes = self.outputs() / positions.len();
        let places = positions.dims().iter().copied();
        match positions.rank() {
            2 => std::iter::once(classes).chain(places).collect(),
            _ => places.chain([classes]).collect(),
        }
    }

    /// Numbers for each sample, with those of heads.
    pub fn width(&self) -> usize {
        self.models.first().width().max(1)
    }

    /// One of its tensors, of all samples: probabilities of what was put out as logits; numbers stay as they are.
    pub fn scores(&self, tensor: &Tensor, outputs: &[f32]) -> Vec<f32> {
        let each = tensor.within.len().max(1);
        let mut all = vec![0.0; outputs.len() / self.width() * each];
        for (raw, into) in outputs.chunks_exact(self.width()).zip(all.chunks_exact_mut(each)) {
            scores(tensor.task, &tensor.positions, &raw[tensor.within.clone()], into);
        }
        all
    }

    /// What outputs mean, with `top` classes in an answer.
    pub fn meaning(&self, top: usize) -> Meaning<'_> {
        let id = self.table.as_ref().and_then(|table| table.row_id()).map(str::to_owned);
        let (task, data, quantiles, guard_formulas) = (self.task, &self.seen.data, &self.quantiles, false);
        let meaning = Meaning { task, data, quantiles, top, each_class: false, guard_formulas, id, heads: Vec::new() };
        meaning.and_of_heads(&self.seen.heads)
    }

    /// Its answer, an object for each sample.
    pub fn answers(&self, samples: &Samples, outputs: &[f32], top: usize) -> Vec<Value> {
        let meaning = self.meaning(top);
        let of = |(n, output): (usize, &[f32])| {
            let mut result = samples.names.of(n);
            if let (Some(column), Some(id)) = (&meaning.id, samples.names.row(n)) {
                result[column] = id.into();
            }
            let answer: Answer = match samples.names.sentence(n) {
                Some(sentence) => meaning.answer_of_words(output, sentence),
                None => meaning.answer(output),
            };
            meaning.write_json(&answer, &mut result);
            result
        };
        outputs.chunks_exact(self.width()).enumerate().map(of).collect()
    }

    /// What it is, for people and for the page.
    pub fn described(&self, name: &str) -> Value {
        let takes = match self.takes() {
            Takes::Images => "images",
            Takes::Rows => "rows",
            Takes::Texts => "texts",
            Takes::Tensors => "tensors",
        };
        let inputs = self
            .seen
            .given
            .iter()
            .map(|field| json!({ "name": field.name, "datatype": datatype(field.dtype), "shape": outside(field) }));
        let mut model = json!({
            "name": name,
            "task": task_name(self.task),
            "takes": takes,
            "inputs": inputs.collect::<Vec<_>>(),
            "classes": self.seen.data.class_names(),
            "batch": self.batch(),
        });
        if self.models.number() > 1 {
            model["members"] = self.models.number().into();
        }
        if !self.seen.heads.is_empty() {
            let head = |head: &HeadSeen| json!({ "name": head.name, "task": task_name(head.task), "classes": head.data.class_names() });
            model["heads"] = self.seen.heads.iter().map(head).collect();
        }
        if let Some(table) = &self.table {
            model["columns"] = self.columns().into();
            model["header"] = table.format.header.into();
        }
        // A name for each number of an answer.
        let targets = if self.quantiles.is_empty() { target_names(&self.seen.data) } else { self.quantiles.clone() };
        if !targets.is_empty() {
            model["targets"] = targets.into();
        }
        model
    }
}

/// What a model was trained for, in a word.
fn task_name(task: Task) -> &'static str {
    match task {
        Task::Classification => "classification",
        Task::BinaryClassification => "labels",
        Task::Regression => "regression",
    }
}

/// What the Open Inference Protocol calls a type of elements.
pub fn datatype(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "UINT8",
        DType::I32 => "INT32",
        DType::F32 => "FP32",
        DType::BF16 => "BF16",
        DType::F16 => "FP16",
        DType::F64 => "FP64",
        DType::U32 => "UINT32",
        DType::I64 => "INT64",
    }
}

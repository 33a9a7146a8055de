//! What a model learns, its main target and those of its heads, and what it puts out for them.

use crate::data::{Batch, Standard};
use crate::graph::Shape;
use crate::graph::op::Loss;
use crate::train::setup::class_report::ClassReport;
use crate::train::setup::programs::{Kind, Programs};
use crate::train::setup::session::Session;
use anyhow::Result;

/// A target that is learnt.
pub struct Learnt<'a> {
    /// The head that learns it; `None`: it is the main one.
    pub head: Option<&'a str>,
    /// What it is learnt by.
    pub loss: &'a Loss,
    /// What its loss is multiplied by in the sum that training makes smaller.
    pub weight: f64,
    /// What its numbers are standardised by for the loss.
    pub standard: Option<&'a Standard>,
    /// The quantiles of each of its numbers, if there are several.
    pub quantiles: &'a [f64],
    /// The names of its classes or labels, if it has some.
    pub names: &'a [String],
    /// What its numbers are called, if they have names.
    pub columns: &'a [String],
}

impl Learnt<'_> {
    /// All that a model learns: its main target, then those of heads.
    pub fn all(programs: &Programs) -> Vec<Learnt<'_>> {
        let mut fields = programs.learnt();
        let first = fields.next();
        let main = Learnt {
            head: None,
            loss: &programs.loss,
            weight: 1.0,
            standard: first.and_then(|field| field.standard.as_ref()).filter(|_| !programs.learns_inputs),
            quantiles: &programs.quantiles,
            names: &programs.class_names,
            columns: first.map_or(&[], |field| &field.columns),
        };
        let heads = programs.heads.iter().zip(fields).map(|(head, field)| Learnt {
            head: Some(&head.name),
            loss: &head.loss,
            weight: head.weight,
            standard: field.standard.as_ref(),
            quantiles: &[],
            names: field.label_names().unwrap_or_default(),
            columns: &field.columns,
        });
        std::iter::once(main).chain(heads).collect()
    }
}

/// The figures of each class of a head.
pub struct OfHead {
    /// What the head is called.
    pub head: String,
    /// The names of its classes, if they have some.
    pub names: Option<Vec<String>>,
    /// What was counted.
    pub report: ClassReport,
}

impl OfHead {
    /// Those of the heads that learn classes, as they were counted since figures were reset.
    ///
    /// # Errors
    /// The device failed.
    pub fn all(session: &mut Session) -> Result<Vec<OfHead>> {
        let reports = session.class_reports_of_heads()?;
        let programs = &session.programs;
        let of = |(number, report): (usize, ClassReport)| OfHead {
            head: programs.heads[number].name.clone(),
            names: programs.learnt().nth(number + 1).and_then(|field| field.label_names()).map(<[String]>::to_vec),
            report,
        };
        Ok(reports.into_iter().map(of).collect())
    }
}

/// What the model has put out for a batch that was evaluated.
pub struct Outputs {
    /// The shape of what it says of the main target.
    pub shape: Shape,
    /// The bytes of that, then those of heads, all samples one after the other.
    each: Vec<Vec<u8>>,
    samples: usize,
}

impl Outputs {
    /// Those of the last batch of a session.
    ///
    /// # Errors
    /// The device failed.
    pub fn of(session: &mut Session, batch: &Batch) -> Result<Outputs> {
        let mut main = Vec::new();
        let shape = session.outputs(Kind::Eval, batch.shape, &mut main)?;
        let mut each = vec![main];
        for head in 0..session.programs.heads.len() {
            let mut own = Vec::new();
            session.head_outputs(Kind::Eval, head, batch.shape, &mut own)?;
            each.push(own);
        }
        Ok(Outputs { shape, each, samples: batch.shape.samples })
    }

    /// How many numbers of a sample each target has.
    pub fn widths(&self) -> Vec<usize> {
        self.each.iter().map(|bytes| bytes.len() / size_of::<f32>() / self.samples).collect()
    }

    /// All numbers of a sample of the batch.
    pub fn sample(&self, number: usize) -> Vec<f32> {
        let of = |bytes| of_sample(bytes, self.samples, number).iter().map(|bytes| f32::from_ne_bytes(*bytes));
        self.each.iter().flat_map(|bytes| of(bytes)).collect()
    }
}

/// What a sample of a batch should have, of each target: numbers, or the numbers of classes, which are whole.
pub fn targets<'b>(programs: &Programs, batch: &'b Batch, number: usize) -> Vec<&'b [[u8; 4]]> {
    let all = (0..=programs.heads.len()).map(|nth| programs.targets_of(nth, &batch.buffer, batch.shape));
    all.map(|bytes| of_sample(bytes, batch.shape.samples, number)).collect()
}

fn of_sample(bytes: &[u8], samples: usize, number: usize) -> &[[u8; 4]] {
    let words = bytes.as_chunks::<4>().0;
    let each = words.len() / samples;
    &words[number * each..][..each]
}

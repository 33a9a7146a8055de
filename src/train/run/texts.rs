//! Texts that a language model goes on with whenever the run evaluates: what it has learnt so far.

use super::Run;
use crate::backend::{Backend, HostBuffer};
use crate::config::Experiment;
use crate::data::text::{TextCodec, Tokenizer, prompt};
use crate::data::{DataSpec, LENGTHS};
use crate::model::{Sampler, Sampling};
use crate::plan::SlotLayout;
use crate::terminal::one_line;
use crate::train::files::metrics_file::sample_line;
use crate::train::setup::programs::Kind;
use crate::train::setup::session::{Session, put_numbers};
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// Characters of a text that the terminal shows.
const SHOWN: usize = 200;

/// What writes them, with the model as it is.
pub struct Texts {
    tokenizer: Tokenizer,
    /// The prompts, as they are written and in tokens.
    prompts: Vec<(String, Vec<u32>)>,
    /// The tokens that end a text.
    ends: Vec<u32>,
    /// Tokens that may be drawn, and logits that there are of each position.
    vocabulary: usize,
    outputs: usize,
    /// Tokens of a sample: the model sees no more of a text.
    context: usize,
    /// The field with their number, if samples are of several lengths.
    lengths: Option<u32>,
    tokens: usize,
    sampling: Sampling,
    layout: SlotLayout,
    buffer: HostBuffer,
}

/// A text that was written.
pub(super) struct Written {
    prompt: String,
    text: String,
}

impl Texts {
    /// Of a run that is to write some.
    ///
    /// # Errors
    /// A prompt has a character that has no token; the data has no tokenizer; there is no memory for a batch.
    pub fn new(
        experiment: &Experiment,
        spec: &DataSpec,
        session: &Session,
        backend: &dyn Backend,
    ) -> Result<Option<Texts>> {
        if !experiment.writes_samples() {
            return Ok(None);
        }
        let codec = TextCodec::of(spec)?.context("`sample_prompts` are for a language model")?;
        let (around, ends) = (codec.prompts_and_end(), codec.ends());
        let begin = codec.begin;
        let tokenizer = codec.tokenizer.context("`sample_prompts` needs a tokenizer, and the data has none")?;
        let of = |(number, text): (usize, &String)| {
            let called = format!("`sample_prompts`, text {}", number + 1);
            let tokens = match &around {
                Some((prompts, end)) => prompts.tokens((&tokenizer, *end), text, &called)?,
                None => prompt(&tokenizer, [&begin, &ends], text, &called)?,
            };
            Ok((text.clone(), tokens))
        };
        let prompts = experiment.log.sample_prompts.iter().enumerate().map(of).collect::<Result<_>>()?;
        let plan = &session.programs.plan;
        let predicted = session.programs.find(Kind::Predict, 1).map(|program| &plan.programs[program]);
        let outputs = predicted.and_then(|program| Some(program.graph.shape(program.prediction?).last()));
        let outputs = outputs.context("the program predicts nothing")?;
        let field = |name: &str| spec.fields.iter().position(|field| field.name == name).map(|number| number as u32);
        let (layout, log) = (plan.slot.clone(), &experiment.log);
        Ok(Some(Texts {
            prompts,
            ends,
            vocabulary: outputs.min(codec.vocabulary.max(tokenizer.vocabulary())),
            outputs,
            context: spec.inputs().next().map_or(1, |(_, field)| field.shape.len()),
            lengths: field(LENGTHS),
            tokens: log.sample_tokens,
            sampling: Sampling {
                temperature: log.sample_temperature as f32,
                top_k: log.sample_top_k,
                seed: experiment.seed,
                ..Sampling::default()
            },
            buffer: backend.host_buffer(layout.bytes)?,
            layout,
            tokenizer,
        }))
    }

    /// Goes on with the text `number`; `None`, if it is to stop.
    fn write(&mut self, number: usize, session: &mut Session, stop: impl Fn() -> bool) -> Result<Option<String>> {
        let mut tokens = self.prompts[number].1.clone();
        let (known, mut bytes) = (tokens.len(), Vec::new());
        let mut sampler = Sampler::new(self.sampling.clone(), self.vocabulary);
        while tokens.len() < known + self.tokens {
            if stop() {
                return Ok(None);
            }
            let seen = &tokens[tokens.len().saturating_sub(self.context)..];
            let mut all = vec![0; self.context];
            all[..seen.len()].copy_from_slice(seen);
            let fields = [Some((0, all)), self.lengths.map(|field| (field, vec![seen.len() as u32]))];
            for (field, numbers) in fields.into_iter().flatten() {
                put_numbers(&self.layout, &mut self.buffer, field, &numbers);
            }
            session.run_again(Kind::Predict, 1.into(), &self.buffer, &mut bytes)?;
            let logits = &bytes.as_chunks().0[(seen.len() - 1) * self.outputs..][..self.vocabulary];
            let logits: Vec<f32> = logits.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
            let place = (number as u64, (tokens.len() - known) as u64);
            // The logits are not finite. The loss reports broken weights.
            let Some(next) = sampler.next(&logits, seen, place) else { break };
            if self.ends.contains(&next) {
                break;
            }
            tokens.push(next);
        }
        self.tokenizer.decode(&tokens[known..]).map(Some)
    }
}

impl Run<'_> {
    /// Has the model go on with the texts that the configuration gives; `None`, if the run was interrupted meanwhile. The leader alone writes.
    pub(super) fn texts(&mut self, interrupt: &AtomicBool) -> Result<Option<Vec<Written>>> {
        // Other ranks would not know that it stops.
        let alone = self.ranks() == 1;
        let mut all = Vec::new();
        let Some(texts) = &mut self.texts else { return Ok(Some(all)) };
        for number in 0..texts.prompts.len() {
            let stop = || alone && interrupt.load(Ordering::Relaxed);
            let Some(text) = texts.write(number, &mut self.session, stop)? else { return Ok(None) };
            all.push(Written { prompt: texts.prompts[number].0.clone(), text });
        }
        Ok(Some(all))
    }

    /// Shows what was written and writes it down.
    pub(super) fn write_texts(&mut self, texts: &[Written]) -> Result<()> {
        let (epoch, step) = (self.state.epoch as usize + 1, self.state.step);
        for (number, Written { prompt, text }) in texts.iter().enumerate() {
            let line = sample_line(epoch, step, prompt, text);
            self.metrics.write(&line)?;
            self.reporter.record(&line);
            let whole = one_line(&format!("{prompt}{text}"));
            let mut shown: String = whole.chars().take(SHOWN).collect();
            if shown.len() < whole.len() {
                shown.push('…');
            }
            self.reporter.info(&format!("step {step}, a text: {shown}"));
            if let Some(events) = self.metrics.events() {
                events.text(step, &format!("samples/{}", number + 1), &format!("{prompt}{text}"))?;
            }
        }
        Ok(())
    }
}

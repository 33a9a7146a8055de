//! What a run is to several ranks: which batches each has, and what they agree on.
//!
//! All ranks have the same state and make the same decisions, from the same numbers. The first one, the leader, writes files and speaks.

use super::Run;
use super::not_finite::Explained;
use super::pending::Update;
use super::rank_message::RankMessage;
use crate::data::{Loader, LoaderOptions, Own, Unreadable};
use crate::train::setup::session::StepInputs;
use anyhow::{Context, Result, anyhow};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

impl Run<'_> {
    /// Whether this rank writes files and speaks.
    pub fn is_leader(&self) -> bool {
        self.backend.team().is_none_or(|team| team.rank() == 0)
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.backend.team().map_or(1, |team| team.ranks())
    }

    /// Whether losses that are late must be looked at by all ranks in the same place, so that all see in the same update that one is not finite.
    pub(super) fn settles_together(&self) -> bool {
        self.backend.is_asynchronous() && self.ranks() > 1
    }

    /// The batches of this rank, if there are others.
    pub(super) fn own_batches(&self) -> Option<Own> {
        let (shards, team) = (self.session.programs.shards?, self.backend.team()?);
        Some(Own { range: shards.of(team.rank()), of: shards.count })
    }

    /// Of a step of `group` batches or shards, those of this rank.
    pub(super) fn own_of(&self, group: u64) -> Range<u64> {
        let all = Own { range: 0..self.experiment.micro_batches(), of: self.experiment.micro_batches() };
        let Range { start, end } = self.own_batches().unwrap_or(all).range;
        (start as u64).min(group)..(end as u64).min(group)
    }

    /// Whether any rank was asked to stop. After an update all ranks have exchanged that already.
    pub(super) fn is_interrupted(&mut self, interrupt: &AtomicBool) -> Result<bool> {
        if let Some(stopped) = self.any_stopped.take() {
            return Ok(stopped);
        }
        let stopped = interrupt.load(Ordering::Relaxed);
        let Some(team) = self.backend.team() else { return Ok(stopped) };
        let messages = RankMessage { stopped, ..RankMessage::default() }.exchange(team.as_ref())?;
        Ok(messages.iter().any(|message| message.stopped))
    }

    /// The error for the loss of a step, which is not finite although that of each shard of this rank is.
    pub(super) fn not_finite_in_all(&self, step: u64, loss: f32) -> anyhow::Error {
        // The rank whose shard it is looks for the reason now, and then reports it instead of coming here.
        match self.backend.team().map(|team| team.gather(&[])) {
            Some(Err(error)) => error,
            _ => anyhow!("the loss is {loss} at step {step}, over all shards: that of each by itself is finite"),
        }
    }

    /// Runs all shards that this rank has of `update` again, operation by operation, as all ranks do at this place: where the first of them stops
    /// being finite. The rank that finds it sends it to the others, which wait for its sums.
    pub(super) fn explain_together(&mut self, update: &Update) -> Result<Explained> {
        let layout = self.session.programs.plan.slot.clone();
        let [group, shards] = update.shards;
        let first = self.own_of(group).start;
        let mut buffer = self.backend.host_buffer(layout.bytes)?;
        if shards == 0 {
            self.session.set_shard(first as usize, group as usize);
            return self.session.explain_not_finite(&mut buffer, 0, update.inputs).map(Explained::Model);
        }
        let options = LoaderOptions { workers: 1, ..self.loader_options() };
        let mut loader = Loader::start(&self.samples.train, options, &layout, vec![buffer], update.start)?;
        let mut data = None;
        for k in 0..shards {
            let mut batch = loader.next()?.context("a batch is no longer there")?;
            let inputs = StepInputs { micro_step: update.inputs.micro_step + k, ..update.inputs };
            self.session.set_shard((first + k) as usize, group as usize);
            self.session.train(batch.slot, &mut batch.buffer, batch.shape, inputs)?;
            data = data.or_else(|| self.in_the_data(&batch));
            if k + 1 == shards {
                // All ranks run it, whatever one of them has found before.
                let found = self.session.explain_not_finite(&mut batch.buffer, batch.shape, inputs)?;
                return Ok(data.map_or(Explained::Model(found), Explained::Data));
            }
            loader.release(batch);
        }
        Err(anyhow!("a step without shards"))
    }

    /// The update of a step of which this rank has no shard.
    pub(super) fn update_without_shards(&mut self, present: u64, inputs: StepInputs) -> Result<()> {
        let mut buffer = match self.empty.take() {
            Some(buffer) => buffer,
            None => self.backend.host_buffer(self.session.programs.plan.slot.bytes)?,
        };
        let first = self.own_batches().map_or(0, |own| own.range.start);
        self.session.set_shard(first, present as usize);
        self.session.wait_slot(0)?;
        self.session.update(0, &mut buffer, inputs)?;
        self.session.wait_slot(0)?;
        self.empty = Some(buffer);
        Ok(())
    }

    /// Sends all ranks the samples that a step could not read, and whether this rank was asked to stop meanwhile.
    pub(super) fn exchange_messages(&mut self, unreadable: Vec<Unreadable>, interrupt: &AtomicBool) -> Result<()> {
        let Some(team) = self.backend.team() else { return self.note_unreadable(&unreadable) };
        let own = RankMessage { stopped: interrupt.load(Ordering::Relaxed), unreadable, ..RankMessage::default() };
        let messages = own.exchange(team.as_ref())?;
        self.any_stopped = Some(messages.iter().any(|message| message.stopped));
        messages.iter().try_for_each(|message| self.note_unreadable(&message.unreadable))
    }
}

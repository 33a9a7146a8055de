//! The part of an evaluation that a rank has: which batches, and what all ranks send each other at its end.

use super::rank_message::RankMessage;
use super::unusable::Unusable;
use crate::backend::{Backend, HostBuffer};
use crate::collective::Collective;
use crate::data::{Own, Unread, Unreadable};
use crate::shards::Shards;
use crate::train::setup::scores::Scores;
use crate::train::setup::session::Session;
use crate::train::setup::shards::batches_of;
use anyhow::{Context, Result};
use std::ops::Range;
use std::sync::Arc;

/// The shards of an evaluation that a rank has. Without shards, the whole of it.
pub struct Parts {
    shards: Option<Shards>,
    /// Of this rank, those that are not done yet.
    left: Range<usize>,
    batches: usize,
    /// For the programs that end a shard.
    buffer: Option<HostBuffer>,
    team: Option<Arc<dyn Collective>>,
    /// The message for the other ranks.
    message: RankMessage,
    /// What the model has put out for the batches of this rank, and what was to be learnt of them.
    outputs: [Vec<u8>; 2],
    /// Likewise, of each batch its samples and the bytes of its outputs and targets.
    sizes: Vec<u8>,
}

impl Parts {
    /// Of an evaluation of so many batches.
    pub fn new(session: &Session, backend: &dyn Backend, batches: usize) -> Result<Parts> {
        let shards = session.programs.shards;
        let team = backend.team().cloned();
        let rank = team.as_ref().map_or(0, |team| team.rank());
        let left = shards.map_or(0..0, |shards| shards.of(rank));
        let bytes = session.programs.plan.slot.bytes;
        let buffer = shards.map(|_| backend.host_buffer(bytes)).transpose()?;
        Ok(Parts {
            shards,
            left,
            batches,
            buffer,
            team,
            message: RankMessage::default(),
            outputs: Default::default(),
            sizes: Vec::new(),
        })
    }

    /// The batches of this rank, if others have the rest.
    pub fn own(&self) -> Option<Own> {
        let shards = self.shards.filter(|_| self.team.is_some())?;
        let first = |shard| batches_of(shard, shards, self.batches).start;
        let range = first(self.left.start)..first(self.left.end);
        Some(Own { range, of: self.batches })
    }

    /// Ends the shards before the one that a batch belongs to.
    pub fn begin(&mut self, session: &mut Session, batch: usize) -> Result<()> {
        self.end_until(session, |shards, shard, batches| batches_of(shard, shards, batches).end <= batch)
    }

    fn end_until(&mut self, session: &mut Session, ends: impl Fn(Shards, usize, usize) -> bool) -> Result<()> {
        let (Some(shards), Some(buffer)) = (self.shards, &mut self.buffer) else { return Ok(()) };
        while !self.left.is_empty() && ends(shards, self.left.start, self.batches) {
            session.end_shard(buffer, self.left.start)?;
            self.left.start += 1;
        }
        Ok(())
    }

    /// Takes in samples that could not be read: at once, or when all ranks have sent theirs.
    pub fn met(&mut self, met: &[Unreadable], unread: &mut Unread, samples: usize) -> Result<()> {
        match self.team {
            None => note(unread, met, samples),
            Some(_) => {
                self.message.unreadable.extend_from_slice(met);
                Ok(())
            }
        }
    }

    /// Takes in what the model has put out for a batch of so many samples, likewise.
    pub fn take(&mut self, scores: &mut Scores, outputs: &[u8], targets: &[u8], samples: usize) {
        match self.team {
            None => scores.add(outputs, targets, samples),
            Some(_) => {
                let sizes = [samples, outputs.len(), targets.len()];
                self.sizes.extend(sizes.into_iter().flat_map(|size| (size as u64).to_ne_bytes()));
                self.outputs[0].extend_from_slice(outputs);
                self.outputs[1].extend_from_slice(targets);
            }
        }
    }

    /// Ends the evaluation, on all ranks: sums, outputs and unreadable samples are those of all. `false` if one of them was stopped before.
    /// `unusable` says why this rank cannot evaluate.
    ///
    /// # Errors
    /// A rank has failed; [`Unusable`], on all ranks, if one of them cannot evaluate, or too many samples cannot be read.
    pub fn end(
        &mut self,
        session: &mut Session,
        stopped: bool,
        mut unusable: Option<String>,
        mut scores: Option<&mut Scores>,
        (unread, samples): (&mut Unread, usize),
    ) -> Result<bool> {
        let mut stopped = stopped;
        if let Some(team) = &self.team {
            self.message.stopped = stopped;
            self.message.unusable = unusable.take();
            for of_rank in self.message.exchange(team.as_ref())? {
                stopped |= of_rank.stopped;
                unusable = unusable.or(of_rank.unusable);
                note(unread, &of_rank.unreadable, samples)?;
            }
        }
        if let Some(why) = unusable {
            return Err(Unusable(why).into());
        }
        if let (Some(team), Some(scores)) = (&self.team, &mut scores) {
            let [outputs, targets] = [team.gather(&self.outputs[0])?, team.gather(&self.outputs[1])?];
            let sizes = team.gather(&self.sizes)?;
            for ((outputs, targets), sizes) in outputs.iter().zip(&targets).zip(&sizes) {
                add_batches(scores, outputs, targets, sizes)?;
            }
        }
        if stopped {
            return Ok(false);
        }
        self.end_until(session, |_, _, _| true)?;
        if let Some(buffer) = &mut self.buffer {
            session.end_shards(buffer)?;
        }
        Ok(true)
    }
}

fn note(unread: &mut Unread, met: &[Unreadable], samples: usize) -> Result<()> {
    unread.note(met, samples).map(|_| ()).map_err(|error| Unusable(error.to_string()).into())
}

/// Takes in the batches of a rank, one after the other, of these sizes.
fn add_batches(scores: &mut Scores, mut outputs: &[u8], mut targets: &[u8], sizes: &[u8]) -> Result<()> {
    for size in sizes.as_chunks::<8>().0.as_chunks::<3>().0 {
        let [samples, of_outputs, of_targets] = size.map(|number| u64::from_ne_bytes(number) as usize);
        let split = outputs.split_at_checked(of_outputs).zip(targets.split_at_checked(of_targets));
        let ((batch, rest), (learnt, others)) = split.context("what another rank has put out cannot be read")?;
        scores.add(batch, learnt, samples);
        (outputs, targets) = (rest, others);
    }
    Ok(())
}

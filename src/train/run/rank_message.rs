//! What ranks send each other besides sums: that one was asked to stop, and samples that it could not read.

use crate::collective::Collective;
use crate::data::Unreadable;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The message of a rank to all others at a point that all of them come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankMessage {
    /// It was asked to stop.
    pub stopped: bool,
    /// Samples that it could not read since its last message.
    pub unreadable: Vec<Unreadable>,
    /// Why it cannot evaluate.
    pub unusable: Option<String>,
}

impl RankMessage {
    /// The messages of all ranks, in their order.
    ///
    /// # Errors
    /// A rank has failed.
    pub fn exchange(&self, team: &dyn Collective) -> Result<Vec<RankMessage>> {
        // As a rule there are no unreadable samples.
        let bytes = match self.unreadable.is_empty() && self.unusable.is_none() {
            true => vec![u8::from(self.stopped)],
            false => serde_json::to_vec(self).context("the message to the other ranks")?,
        };
        let read = |of_rank: Vec<u8>| match of_rank.as_slice() {
            [stopped] => Ok(RankMessage { stopped: *stopped != 0, ..RankMessage::default() }),
            text => serde_json::from_slice(text).context("the message of another rank cannot be read"),
        };
        team.gather(&bytes)?.into_iter().map(read).collect()
    }
}

//! How a rank leaves: `mpirun` ends all ranks when one has ended, so each waits until all have said what they have to say.

use super::parcel::BYE;
use super::thread::Carrier;
use std::time::{Duration, Instant};

/// Where a rank has failed, others have so long to say what they have to say. The first one, which says most, has as long
/// as a rank may be silent.
const FAREWELL: Duration = Duration::from_secs(2);

/// Between the end of the first one and that of the others, where a rank has failed.
const AFTER_THE_FIRST: Duration = Duration::from_millis(300);

impl Carrier {
    /// Announces that this rank leaves, and waits for the others to leave. Whether all have, after a good end.
    pub fn say_goodbye(&mut self) -> bool {
        let began = Instant::now();
        let others: Vec<usize> = self.shared.inbox.others().collect();
        self.turn();
        others.iter().for_each(|to| self.say(*to, BYE, &[]));
        loop {
            self.turn();
            let state = self.shared.inbox.lock();
            let (gone, failed) = (state.gone.clone(), state.failed.is_some() || self.failed || self.broken);
            drop(state);
            let (silent, missing): (Vec<usize>, Vec<usize>) =
                others.iter().filter(|rank| !gone[**rank]).partition(|rank| self.silence_of(**rank) > self.silence);
            let under_way = !self.words.is_empty() || self.peers.iter().any(|peer| !peer.sent.is_empty());
            if failed || !silent.is_empty() {
                let limit = if missing.contains(&0) { self.silence.max(FAREWELL) } else { FAREWELL };
                if self.broken || missing.is_empty() || began.elapsed() > limit {
                    // The first one ends first: its exit code becomes that of `mpirun`.
                    if self.library.rank > 0 && gone[0] {
                        std::thread::sleep(AFTER_THE_FIRST);
                    }
                    return false;
                }
            } else if missing.is_empty() && !under_way {
                return true;
            }
            self.rest();
        }
    }
}

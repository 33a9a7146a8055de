//! What a run says of its batches: of photos that are kept, and of the time that was waited for batches.

use super::Run;
use crate::config::language::sections::Cache;
use crate::terminal::duration;
use crate::train::setup::photos::in_words;
use std::time::{Duration, Instant};

/// Less than this share of an epoch, and less than this time, is not worth a word.
const SHARE: f64 = 0.2;
const SECONDS: f64 = 10.0;

/// The time that was waited for batches in this epoch, and what has been said.
#[derive(Debug, Default)]
pub struct Waiting {
    waited: Duration,
    epochs: u64,
    warned: bool,
}

impl Waiting {
    /// Takes the time that it takes to get a batch.
    pub(super) fn time<T>(&mut self, get: impl FnOnce() -> T) -> T {
        let asked = Instant::now();
        let result = get();
        self.waited += asked.elapsed();
        result
    }

    /// What was waited in an epoch of so many seconds, which is over, if it is worth a word; once.
    fn worth_a_word(&mut self, seconds: f64) -> Option<f64> {
        let waited = std::mem::take(&mut self.waited).as_secs_f64();
        let much = waited >= SECONDS && waited >= SHARE * seconds && !self.warned;
        self.warned |= much;
        much.then_some(waited)
    }
}

impl Run<'_> {
    /// Reports on the batches of an epoch at its end. Its training took so many seconds.
    pub(super) fn report_loading(&mut self, seconds: f64) {
        self.waiting.epochs += 1;
        if let Some(cache) = &self.samples.cache {
            if let Some(trouble) = cache.trouble() {
                self.reporter.warn(&trouble);
            }
            if self.waiting.epochs == 1 {
                self.reporter.info(&in_words(cache));
            }
        }
        let loading = &self.experiment.data.loading;
        // In the first epoch photos are decoded in any case.
        let filling = self.waiting.epochs == 1 && loading.cache != Cache::None;
        if let Some(waited) = self.waiting.worth_a_word(if filling { f64::INFINITY } else { seconds }) {
            let photos = self.experiment.data.source.has_photos() && loading.cache == Cache::None;
            let keep = "`cache = \"memory\"` in `[data]` keeps photos once they are decoded";
            let more = format!("more `workers` than {} may help, if there are processors for them", loading.workers);
            let advice = if photos { format!("{keep}; {more}") } else { more };
            self.reporter.info(&format!(
                "of {} in this epoch, {} were waited for batches: {advice}",
                duration(seconds),
                duration(waited)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_reported_once() {
        let mut waiting = Waiting::default();
        let mut epoch = |waited: u64, seconds: f64| {
            waiting.waited += Duration::from_secs(waited);
            waiting.worth_a_word(seconds)
        };
        assert_eq!(epoch(9, 10.0), None, "it is short");
        assert_eq!(epoch(18, 100.0), None, "it is a small part");
        assert_eq!([epoch(18, 20.0), epoch(18, 20.0)], [Some(18.0), None]);
    }
}

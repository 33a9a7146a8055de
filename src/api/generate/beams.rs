//! Beam search: the most probable text, found by going on with several at a time. Scores, penalty and end are those of transformers' `generate(num_beams = …)`.

use super::{Finish, Generator, How, Request};
use anyhow::{Context, Result, ensure};
use std::cmp::Ordering;

/// How texts are looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beams {
    /// Texts that are gone on with at a time.
    pub count: usize,
    /// The score of a text is its log-probability, divided by its number of tokens to the power of this.
    pub length_penalty: f64,
    /// The search ends when as many texts have ended as there are beams; else when none that goes on has a better score than the worst of these.
    pub early_stopping: bool,
}

/// A text that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// What was generated, without the token that ends it.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Its log-probability, divided as the penalty says.
    pub score: f64,
}

/// A text that is gone on with, from its first token on, and its log-probability.
#[derive(Debug, Clone)]
struct Beam {
    tokens: Vec<u32>,
    score: f64,
}

/// The search for one text.
struct Search<'a> {
    how: Beams,
    /// Tokens that it has before anything is generated.
    known: usize,
    most: usize,
    repetition_penalty: f64,
    ends: &'a [u32],
    stops: &'a dyn Fn(&[u32]) -> Result<bool>,
    running: Vec<Beam>,
    /// The best first.
    found: Vec<Found>,
    done: bool,
}

impl Search<'_> {
    /// The tokens of all rows: those that there is no text for have the first one's.
    fn rows(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.how.count).map(|row| self.running.get(row).unwrap_or(&self.running[0]).tokens.as_slice())
    }

    /// What follows, as (log-probability, row, token), of the `most` best the best first.
    fn following(&self, logits: &[Vec<f32>], most: usize) -> Result<Vec<(f64, usize, u32)>> {
        let order = |a: &(f64, usize, u32), b: &(f64, usize, u32)| {
            b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then((a.1, a.2).cmp(&(b.1, b.2)))
        };
        let mut all = Vec::new();
        for (row, (beam, logits)) in self.running.iter().zip(logits).enumerate() {
            let numbers = !logits.iter().any(|logit| logit.is_nan() || *logit == f32::INFINITY);
            ensure!(numbers, "the model's outputs are no numbers: its weights are broken");
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exponential = |logit: &f32| f64::from(*logit - largest).exp();
            let total = f64::from(largest) + logits.iter().map(exponential).sum::<f64>().ln();
            let mut own: Vec<_> = logits.iter().map(|logit| f64::from(*logit) - total).collect();
            if self.repetition_penalty != 1.0 {
                let mut seen: Vec<usize> = beam.tokens.iter().map(|token| *token as usize).collect();
                seen.sort_unstable();
                seen.dedup();
                seen.retain(|token| *token < own.len());
                // No logarithm of a probability is positive.
                seen.into_iter().for_each(|token| own[token] *= self.repetition_penalty);
            }
            let own = own.into_iter().zip(0..).filter(|(of, _)| of.is_finite());
            all.extend(own.map(|(of, token)| (beam.score + of, row, token)));
        }
        if most < all.len() {
            all.select_nth_unstable_by(most, order);
            all.truncate(most);
        }
        all.sort_unstable_by(order);
        Ok(all)
    }

    /// Takes the logits after all texts; for each row the one that its text comes from.
    fn step(&mut self, logits: &[Vec<f32>]) -> Result<Vec<usize>> {
        let Beams { count, length_penalty, early_stopping } = self.how;
        if self.done {
            return Ok((0..count).collect());
        }
        let generated = self.running[0].tokens.len() + 1 - self.known;
        let divided = |score: f64| score / (generated as f64).powf(length_penalty);
        // So many that there are enough to go on with where the best of them end.
        let candidates = self.following(logits, (1 + self.ends.len()).max(2) * count)?;
        ensure!(!candidates.is_empty(), "the model says that no token can follow: its weights are broken");
        let (mut next, mut parents) = (Vec::new(), Vec::new());
        for (rank, (score, row, token)) in candidates.into_iter().enumerate() {
            let before = &self.running[row].tokens;
            let tokens: Vec<u32> = before.iter().copied().chain([token]).collect();
            let finish = match () {
                () if self.ends.contains(&token) => Some(Finish::End),
                () if (self.stops)(&tokens[self.known..])? => Some(Finish::Stop),
                () if generated >= self.most => Some(Finish::Length),
                () => None,
            };
            match finish {
                // One that ends is found if it is among the best, and left out else.
                Some(finish) if rank < count => {
                    let end = tokens.len() - usize::from(finish == Finish::End);
                    self.found.push(Found { tokens: tokens[self.known..end].to_vec(), finish, score: divided(score) });
                }
                Some(_) => {}
                None if next.len() < count => {
                    next.push(Beam { tokens, score });
                    parents.push(row);
                }
                None => {}
            }
        }
        self.found.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        self.found.truncate(count);
        let full = self.found.len() == count;
        let worst = self.found.last().map_or(f64::NEG_INFINITY, |found| found.score);
        let better = |best: &Beam| !full || divided(best.score) > worst;
        self.done = full && early_stopping || !next.first().is_some_and(better);
        if self.done {
            return Ok((0..count).collect());
        }
        self.running = next;
        parents.resize(count, parents[0]);
        Ok(parents)
    }
}

impl Generator {
    /// The most probable texts after a prompt, or answers to it, the best first; `None`, if `goes_on` says so before they are found.
    ///
    /// # Errors
    /// The device failed; the model's outputs are no numbers; the prompt has no tokens, or some that the model does not have.
    pub fn search(&mut self, request: &Request, goes_on: &dyn Fn() -> bool) -> Result<Option<Vec<Found>>> {
        self.expect_tokens(&request.prompt)?;
        let stop = &request.stop;
        let tokenizer = self.tokenizer.clone();
        let stops = move |tokens: &[u32]| -> Result<bool> {
            if stop.is_empty() {
                return Ok(false);
            }
            let text = tokenizer.decode(tokens)?;
            Ok(stop.iter().any(|stop| text.contains(stop.as_str())))
        };
        let penalty = f64::from(request.sampling.repetition_penalty);
        let found = self.search_all(&[&request.prompt], request.max_tokens, penalty, &stops, goes_on)?;
        Ok(found.and_then(|mut all| all.pop()))
    }

    /// The same of several texts that are answered, as many as there is room for, or of one prompt.
    pub(super) fn search_all(
        &mut self,
        prompts: &[&[u32]],
        max_tokens: usize,
        repetition_penalty: f64,
        stops: &dyn Fn(&[u32]) -> Result<bool>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Vec<Found>>>> {
        let how = self.beams.context("the model was not opened for beam search")?;
        let (ends, answers) = (self.ends.clone(), self.has_answers());
        let most = if answers { max_tokens.min(self.capacity) } else { max_tokens };
        let begin = |prompt: &&[u32]| {
            let tokens = match &self.how {
                How::Answers(own) => vec![own.start],
                How::Anew | How::Cached { .. } => prompt.to_vec(),
            };
            let (known, running) = (tokens.len(), vec![Beam { tokens, score: 0.0 }]);
            let (ends, found) = (ends.as_slice(), Vec::new());
            Search { how, known, most, repetition_penalty, ends, stops, running, found, done: most == 0 }
        };
        let mut searches: Vec<Search> = prompts.iter().map(begin).collect();
        if answers {
            let repeated = prompts.iter().flat_map(|prompt| std::iter::repeat_n(*prompt, how.count));
            self.read(&repeated.collect::<Vec<_>>())?;
        }
        // Of a prompt that is too long its end is seen, and of a text that has become too long its second half.
        let longest = if answers { 0 } else { searches.iter().map(|search| search.known).max().unwrap_or(0) };
        let (mut first, mut filled) = (longest.saturating_sub(self.capacity), 0);
        while searches.iter().any(|search| !search.done) {
            if !goes_on() {
                return Ok(None);
            }
            let rows: Vec<&[u32]> = searches.iter().flat_map(Search::rows).collect();
            let length = rows.iter().map(|row| row.len()).max().unwrap_or(0);
            if !answers && length - first > self.capacity {
                first = length - self.capacity.div_ceil(2);
                filled = 0;
            }
            let logits = match answers {
                true => self.next(&rows)?,
                false => {
                    let seen: Vec<&[u32]> = rows.iter().map(|row| &row[first..]).collect();
                    match self.logits(&seen, &mut filled, 0)? {
                        Some(logits) => logits,
                        None => continue,
                    }
                }
            };
            let mut parents = Vec::with_capacity(rows.len());
            for (search, logits) in searches.iter_mut().zip(logits.chunks(how.count)) {
                let at = parents.len();
                parents.extend(search.step(logits)?.into_iter().map(|row| (at + row) as u32));
            }
            self.come_from(&parents);
        }
        Ok(Some(searches.into_iter().map(|search| search.found).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best texts of a model that knows the last token alone: `next[last]` has the probabilities of what follows. Token 0 ends texts.
    fn found(how: Beams, next: &[[f32; 3]; 3], most: usize) -> Vec<Found> {
        let never = |_: &[u32]| Ok(false);
        let running = vec![Beam { tokens: vec![1], score: 0.0 }];
        let (repetition_penalty, ends, found) = (1.0, &[0][..], Vec::new());
        let mut search =
            Search { how, known: 1, most, repetition_penalty, ends, stops: &never, running, found, done: false };
        while !search.done {
            let row = |tokens: &[u32]| next[*tokens.last().unwrap() as usize].map(f32::ln).to_vec();
            let logits: Vec<Vec<f32>> = search.rows().map(row).collect();
            let parents = search.step(&logits).unwrap();
            assert_eq!(parents.len(), how.count);
        }
        search.found
    }

    fn how(count: usize) -> Beams {
        Beams { count, length_penalty: 1.0, early_stopping: false }
    }

    /// All texts of at most `most` tokens with their probabilities, counted one by one.
    fn all(next: &[[f32; 3]; 3], most: usize) -> Vec<(Vec<u32>, f64)> {
        let (mut open, mut whole) = (vec![(vec![1u32], 1.0f64)], Vec::new());
        while let Some((tokens, share)) = open.pop() {
            if tokens.len() > most {
                whole.push((tokens[1..].to_vec(), share));
                continue;
            }
            for (token, of) in (0..).zip(next[*tokens.last().unwrap() as usize]) {
                let share = share * f64::from(of);
                match token {
                    0 => whole.push((tokens[1..].to_vec(), share)),
                    _ => open.push(([tokens.clone(), vec![token]].concat(), share)),
                }
            }
        }
        whole
    }

    /// The most probable token leads to an improbable text.
    const NEXT: [[f32; 3]; 3] = [[1.0, 0.0, 0.0], [0.1, 0.5, 0.4], [0.9, 0.05, 0.05]];

    #[test]
    fn the_best_text_is_found_that_the_best_token_does_not_lead_to() {
        let scored = |(tokens, share): &(Vec<u32>, f64), most: usize| {
            // A text that ended has the token that ends it, too.
            let length = tokens.len() + usize::from(tokens.len() < most);
            share.ln() / length as f64
        };
        let texts = all(&NEXT, 3);
        let best = texts.iter().map(|text| scored(text, 3)).fold(f64::NEG_INFINITY, f64::max);
        let beams = found(how(3), &NEXT, 3);
        assert!((beams[0].score - best).abs() < 1e-6, "{beams:?}, not {best}");
        assert_eq!((beams[0].tokens.as_slice(), beams[0].finish), (&[2][..], Finish::End));
        assert!(beams.windows(2).all(|pair| pair[0].score >= pair[1].score), "{beams:?}");
        // One beam takes the most probable token each time.
        assert_eq!(found(how(1), &NEXT, 3)[0].tokens, [1, 1, 1]);
    }

    #[test]
    fn a_penalty_prefers_short_or_long_texts() {
        let length = |length_penalty: f64| found(Beams { length_penalty, ..how(3) }, &NEXT, 6)[0].tokens.len();
        // Six tokens, with the one that ends it.
        assert_eq!((length(0.0), length(5.0)), (1, 5));
    }

    #[test]
    fn early_stopping_ends_with_as_many_texts_as_beams() {
        // A text that goes on is better than one that ends, and one that ends is the second best each time.
        let next = [[1.0, 0.0, 0.0], [0.3, 0.6, 0.1], [0.3, 0.6, 0.1]];
        let of = |early_stopping| found(Beams { early_stopping, ..how(2) }, &next, 8);
        let longest = |found: &[Found]| found.iter().map(|found| found.tokens.len()).max();
        assert_eq!((longest(&of(true)), longest(&of(false))), (Some(1), Some(8)));
    }

    #[test]
    fn a_model_that_puts_out_no_numbers_is_an_error() {
        let never = |_: &[u32]| Ok(false);
        let running = vec![Beam { tokens: vec![1], score: 0.0 }];
        let mut search = Search {
            how: how(1),
            known: 1,
            most: 2,
            repetition_penalty: 1.0,
            ends: &[],
            stops: &never,
            running,
            found: Vec::new(),
            done: false,
        };
        let message = search.step(&[vec![0.0, f32::NAN]]).unwrap_err().to_string();
        assert!(message.contains("no numbers"), "{message}");
        assert!(search.step(&[vec![f32::NEG_INFINITY; 2]]).is_err());
    }
}

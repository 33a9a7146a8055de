//! Which token comes next: a draw by the model's probabilities, of those that are not left out.

use crate::random::{Purpose, Stream};
use std::cmp::Ordering;

/// How tokens are drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// What logits are divided by; 0: the most probable token is taken.
    pub temperature: f32,
    /// Of how many of the most probable tokens one is drawn; `None`: of all.
    pub top_k: Option<usize>,
    /// The most probable tokens are taken until their probabilities come to this (Holtzman et al. 2020); 1: all.
    pub top_p: f32,
    /// Tokens are left out whose probability is less than this part of that of the most probable one (Nguyen et al. 2024); 0: none.
    pub min_p: f32,
    /// What positive logits of tokens that are there already are divided by, and negative ones multiplied with (Keskar et al. 2019); 1: nothing changes.
    pub repetition_penalty: f32,
    /// Keys all draws.
    pub seed: u64,
}

impl Default for Sampling {
    /// By the probabilities of the model as they are.
    fn default() -> Self {
        Sampling { temperature: 1.0, top_k: None, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

/// Draws tokens; keeps memory from one to the next.
pub struct Sampler {
    how: Sampling,
    /// Tokens with their logits, then their shares.
    candidates: Vec<(u32, f32)>,
    seen: Vec<bool>,
}

impl Sampler {
    /// For tokens of a vocabulary of that size.
    pub fn new(how: Sampling, vocabulary: usize) -> Self {
        Sampler { how, candidates: Vec::with_capacity(vocabulary), seen: vec![false; vocabulary] }
    }

    /// The token number `number` of text number `text`, which follows `before`; `None`, if the logits are no numbers.
    pub fn next(&mut self, logits: &[f32], before: &[u32], (text, number): (u64, u64)) -> Option<u32> {
        let Sampling { temperature, top_k, top_p, min_p, repetition_penalty, seed } = self.how;
        self.candidates.clear();
        self.candidates.extend(logits.iter().enumerate().map(|(token, logit)| (token as u32, *logit)));
        if repetition_penalty != 1.0 {
            for token in before {
                let token = *token as usize;
                if let (Some(seen @ false), Some((_, logit))) =
                    (self.seen.get_mut(token), self.candidates.get_mut(token))
                {
                    *logit = if *logit > 0.0 { *logit / repetition_penalty } else { *logit * repetition_penalty };
                    *seen = true;
                }
            }
            before.iter().for_each(|token| self.seen[*token as usize] = false);
        }
        if self.candidates.iter().any(|(_, logit)| logit.is_nan()) {
            return None;
        }
        // The lower number first, where two are alike: the order is that of no sort.
        let order =
            |a: &(u32, f32), b: &(u32, f32)| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0));
        if temperature == 0.0 {
            return self.candidates.iter().min_by(|a, b| order(a, b)).map(|(token, _)| *token);
        }
        if let Some(k) = top_k.filter(|k| *k < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(k, order);
            self.candidates.truncate(k);
        }
        let sorted = top_p < 1.0 || min_p > 0.0 || top_k.is_some();
        if sorted {
            self.candidates.sort_unstable_by(order);
        }
        let largest = self.candidates.iter().map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max);
        if largest == f32::NEG_INFINITY {
            return None;
        }
        let mut total = 0.0f64;
        for (_, logit) in &mut self.candidates {
            *logit = ((*logit - largest) / temperature).exp();
            total += f64::from(*logit);
        }
        if top_p < 1.0 {
            let (mut sum, mut keep) = (0.0f64, 0);
            // The token that passes the bound is kept, too: there is always one.
            while keep < self.candidates.len() && sum < f64::from(top_p) * total {
                sum += f64::from(self.candidates[keep].1);
                keep += 1;
            }
            self.candidates.truncate(keep.max(1));
            total = sum;
        }
        if min_p > 0.0 {
            // That of the most probable one is 1.
            let keep = self.candidates.iter().take_while(|(_, share)| *share >= min_p).count();
            self.candidates.truncate(keep.max(1));
            total = self.candidates.iter().map(|(_, share)| f64::from(*share)).sum();
        }
        let at = Stream::new(seed, Purpose::Generate, text, number).uniform() * total;
        let mut sum = 0.0;
        for (token, share) in &self.candidates {
            sum += f64::from(*share);
            if at < sum {
                return Some(*token);
            }
        }
        self.candidates.last().map(|(token, _)| *token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(how: Sampling, logits: &[f32], before: &[u32]) -> Vec<f64> {
        let mut sampler = Sampler::new(how, logits.len());
        let mut counts = vec![0.0; logits.len()];
        let draws = 20_000;
        for number in 0..draws {
            counts[sampler.next(logits, before, (0, number)).unwrap() as usize] += 1.0 / draws as f64;
        }
        counts
    }

    fn assert_near(found: &[f64], wanted: &[f64]) {
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 0.015), "{found:?}, not {wanted:?}");
        assert!(found.iter().zip(wanted).all(|(a, b)| *b > 0.0 || *a == 0.0), "{found:?}: {wanted:?} has zeros");
    }

    /// Probabilities 0.5, 0.25, 0.15 and 0.1.
    fn logits() -> Vec<f32> {
        [0.15f32, 0.5, 0.1, 0.25].map(f32::ln).to_vec()
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = logits();
        assert_near(&shares(Sampling::default(), &logits, &[]), &[0.15, 0.5, 0.1, 0.25]);
        let cold = Sampling { temperature: 0.5, ..Sampling::default() };
        let squares = [0.0225, 0.25, 0.01, 0.0625].map(|s| s / 0.345);
        assert_near(&shares(cold, &logits, &[]), &squares);
    }

    #[test]
    fn improbable_tokens_are_left_out() {
        let logits = logits();
        let two = [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0];
        assert_near(&shares(Sampling { top_k: Some(2), ..Sampling::default() }, &logits, &[]), &two);
        assert_near(&shares(Sampling { top_k: Some(9), ..Sampling::default() }, &logits, &[]), &[0.15, 0.5, 0.1, 0.25]);
        // 0.5 is not yet 0.6, and 0.75 is.
        assert_near(&shares(Sampling { top_p: 0.6, ..Sampling::default() }, &logits, &[]), &two);
        assert_near(&shares(Sampling { top_p: 0.01, ..Sampling::default() }, &logits, &[]), &[0.0, 1.0, 0.0, 0.0]);
        assert_near(&shares(Sampling { min_p: 0.4, ..Sampling::default() }, &logits, &[]), &two);
    }

    #[test]
    fn the_best_token_is_the_first_of_the_best() {
        let mut sampler = Sampler::new(Sampling { temperature: 0.0, ..Sampling::default() }, 4);
        assert_eq!(sampler.next(&[0.0, 3.0, 3.0, -1.0], &[], (0, 0)), Some(1));
        assert_eq!(sampler.next(&[0.0, f32::NAN, 3.0, -1.0], &[], (0, 0)), None);
        assert_eq!(sampler.next(&[f32::NEG_INFINITY; 4], &[], (0, 0)), Some(0));
    }

    #[test]
    fn generated_tokens_are_less_probable_with_a_penalty() {
        let how = Sampling { temperature: 0.0, repetition_penalty: 2.0, ..Sampling::default() };
        let mut sampler = Sampler::new(how, 3);
        assert_eq!(sampler.next(&[3.0, 2.0, -1.0], &[0, 0], (0, 0)), Some(1), "1.5 is less than 2");
        assert_eq!(sampler.next(&[-1.0, -1.5, -9.0], &[0], (0, 0)), Some(1), "-2 is less than -1.5");
        assert_eq!(sampler.next(&[3.0, 2.0, -1.0], &[], (0, 0)), Some(0), "nothing is kept from call to call");
    }
}

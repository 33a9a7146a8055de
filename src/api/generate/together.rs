//! Several texts that are written at a time: those that add a token do so in one run, which reads the weights once.

use super::{Finish, Generator, How, NOWHERE, Request, Step, Text};
use crate::data::Lengths;
use crate::model::BatchShape;
use crate::train::setup::kind::Kind;
use anyhow::Result;
use std::ops::ControlFlow;

/// Why a text ended, and the tokens that were generated.
pub type End = (Finish, Vec<u32>);
/// Takes the number of a text, the piece of it that has become certain, and its end. It returns whether more is wanted.
pub type Take<'a> = dyn FnMut(usize, &str, Option<End>) -> ControlFlow<()> + 'a;

impl Generator {
    /// Writes texts, as many at a time as get their tokens in one run. `take` is called for each text after each run. When it wants no more, it is called once more for each
    /// text that is being written, with its end, and no other text is begun.
    ///
    /// A model looks back at `context` tokens at most. When these are full, the first half of them is forgotten.
    ///
    /// # Errors
    /// The device failed; the model's outputs are no numbers; a prompt has no tokens, or some that the model does not have.
    pub fn write(&mut self, requests: impl IntoIterator<Item = Request>, take: &mut Take<'_>) -> Result<()> {
        let mut requests = requests.into_iter().enumerate();
        let mut places: Vec<usize> = (0..if self.has_program() { self.texts } else { 1 }).collect();
        let mut active: Vec<(usize, Text)> = Vec::new();
        loop {
            while let Some(place) = places.pop() {
                let Some((number, request)) = requests.next() else { break };
                active.push((number, self.begin(request, place)?));
            }
            if active.is_empty() {
                return Ok(());
            }
            let steps = self.steps(&mut active.iter_mut().map(|(_, text)| text).collect::<Vec<_>>())?;
            let (mut left, mut goes_on) = (Vec::new(), true);
            for ((number, text), step) in active.into_iter().zip(steps) {
                let Step { piece, finish } = step?;
                let place = text.turn;
                let wanted = match finish {
                    Some(finish) => {
                        places.push(place);
                        take(number, &piece, Some((finish, text.into_tokens())))
                    }
                    None => {
                        left.push((number, text));
                        take(number, &piece, None)
                    }
                };
                goes_on &= wanted.is_continue();
            }
            if !goes_on {
                for (number, text) in left {
                    let _ = take(number, "", Some((Finish::Cancelled, text.into_tokens())));
                }
                return Ok(());
            }
            active = left;
        }
    }

    /// Gives each text a turn, as [`Generator::step`] does. Texts that add a token to what is kept of them do so together, always by one program of as many rows as
    /// there may be texts: so no token depends on how many others are written.
    ///
    /// # Errors
    /// The device failed. Steps are errors where the outputs for a text are no numbers.
    pub fn steps(&mut self, texts: &mut [&mut Text]) -> Result<Vec<Result<Step>>> {
        let mut steps: Vec<Result<Step>> = Vec::new();
        let mut together = Vec::new();
        for (at, text) in texts.iter_mut().enumerate() {
            let ended = self.prepare(text)?;
            steps.push(match ended {
                Some(ended) => Ok(ended),
                None if self.adds_one(text) => {
                    together.push(at);
                    Ok(Step::default())
                }
                None => self.step(text),
            });
        }
        if together.is_empty() {
            return Ok(steps);
        }
        // Rows of texts that have no turn begin at the first position, and nothing is kept of them.
        let (mut tokens, mut positions) = (vec![0; self.texts], vec![0; self.texts]);
        let mut starts = vec![NOWHERE; self.texts];
        for &at in &together {
            let Text { turn, filled, .. } = *texts[at];
            tokens[turn] = texts[at].tokens[texts[at].first + filled];
            positions[turn] = filled as u32;
            starts[turn] = filled as u32;
        }
        let fields = [&tokens, &positions, &positions, &starts];
        (0..).zip(fields).for_each(|(field, numbers)| self.put(field, numbers));
        let shape = BatchShape { samples: self.texts, lengths: Lengths::first(1) };
        let logits = self.run(Kind::Generate, shape, (1, 0))?;
        for at in together {
            let text = &mut *texts[at];
            text.filled += 1;
            steps[at] = self.add(text, &logits[text.turn]);
        }
        Ok(steps)
    }

    /// Whether all of a text is kept but its last token, and that goes with those of others.
    fn adds_one(&self, text: &Text) -> bool {
        self.has_program() && text.tokens.len() - text.first == text.filled + 1
    }

    /// Whether one run adds a token to several texts; else they have it in turn.
    fn has_program(&self) -> bool {
        self.texts > 1 && matches!(self.how, How::Cached { whole: false, .. })
    }
}

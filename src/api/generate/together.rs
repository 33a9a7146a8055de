//! Several texts that are written at a time: those that add a token do so in one run, which reads the weights once.

use super::{Generator, How, NOWHERE, Step, Text};
use crate::data::Lengths;
use crate::model::BatchShape;
use crate::train::setup::kind::Kind;
use anyhow::Result;

impl Generator {
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
        let has_program = self.texts > 1 && matches!(self.how, How::Cached { whole: false, .. });
        has_program && text.tokens.len() - text.first == text.filled + 1
    }
}

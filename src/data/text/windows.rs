//! Samples of a long row of tokens: windows of one length, in which every token is predicted from those before it.

use super::super::field::{Field, FieldKind, INPUTS, LENGTHS, TARGETS};
use super::super::store::{Rows, Store, Unreadable};
use super::tokens::{Tokens, put_tokens};
use crate::data::Classes;
use crate::graph::DType;
use crate::terminal::counted;
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::Arc;

/// Windows of a part of a row of tokens.
pub struct Windows {
    tokens: Arc<Tokens>,
    /// The part.
    range: Range<usize>,
    /// Tokens that a sample has.
    context: usize,
    vocabulary: usize,
    order: Order,
    fields: Vec<Field>,
}

/// Where windows begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each where the one before it ends. What is left at the end is left out.
    Windows {
        /// Up to a window's length later, as the draws for the sample say.
        moved: bool,
    },
    /// The part is cut into so many streams of one length, and windows are the first one of each of them, the second one of each, and so on: in batches of so many, a
    /// sample goes on where that at the same place of the batch before ended. As `batchify` in PyTorch's `word_language_model`.
    Streams(usize),
}

/// The fields of samples: `context` tokens, and of each the one after it.
pub fn fields(context: usize, vocabulary: usize) -> Vec<Field> {
    let kind = || FieldKind::Tokens(Classes::at_least(vocabulary));
    let input = Field { kind: kind(), ..Field::numbers(INPUTS, DType::I32, [context]) };
    vec![input, Field::target(TARGETS, kind(), [context])]
}

/// The same where batches have lengths: tokens, how many of them are the sample's, and of each the one after it, where that is a target.
pub fn fields_of_lengths(lengths: &[usize], vocabulary: usize) -> Vec<Field> {
    let longest = lengths.last().copied().unwrap_or(1);
    let kind = || FieldKind::Tokens(Classes::at_least(vocabulary));
    let tokens = Field::numbers(INPUTS, DType::I32, [longest]).of_any_length(0, 0);
    vec![
        Field { kind: kind(), ..tokens },
        Field { kind: FieldKind::Length, ..Field::numbers(LENGTHS, DType::I32, []) },
        Field::target(TARGETS, kind(), [longest]).of_any_length(0, 0),
    ]
}

impl Windows {
    /// Those of `range`.
    ///
    /// # Errors
    /// There are not enough tokens for one.
    pub fn new(
        tokens: &Arc<Tokens>,
        range: Range<usize>,
        context: usize,
        vocabulary: usize,
        order: Order,
    ) -> Result<Windows> {
        ensure!(
            range.len() > context,
            "{} {} too few for a sample of {context} and the one after it: make `context` smaller, or the text longer",
            counted(range.len(), "token"),
            if range.len() == 1 { "is" } else { "are" }
        );
        if let Order::Streams(streams) = order {
            ensure!(
                range.len() / streams.max(1) > context,
                "{} tokens are too few for `carry_state` with {streams} streams, one for each sample of a batch, of a sample of {context} and the one after it: \
                 make `context` or the batch smaller, or the text longer",
                range.len()
            );
        }
        Ok(Windows {
            tokens: Arc::clone(tokens),
            range,
            context,
            vocabulary,
            order,
            fields: fields(context, vocabulary),
        })
    }

    /// Where a window begins.
    fn start(&self, sample: usize, rows: &mut Rows) -> usize {
        let usual = match self.order {
            Order::Windows { .. } => self.range.start + sample * self.context,
            Order::Streams(streams) => {
                let (stream, piece) = (sample % streams, sample / streams);
                self.range.start + stream * (self.range.len() / streams) + piece * self.context
            }
        };
        if self.order != (Order::Windows { moved: true }) {
            return usual;
        }
        // The last windows cannot go as far as the others.
        let room = (self.range.end - self.context - usual).min(self.context);
        usual + rows.draws().below(room as u32) as usize
    }
}

impl Store for Windows {
    fn len(&self) -> usize {
        match self.order {
            Order::Windows { .. } => (self.range.len() - 1) / self.context,
            Order::Streams(streams) => (self.range.len() / streams - 1) / self.context * streams,
        }
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let start = self.start(sample, rows);
        let mut reader = self.tokens.reader(start + self.context + 1);
        for (field, first) in [(0, start), (1, start + 1)] {
            put_tokens(&mut reader, rows, (field, 0), first..first + self.context, self.vocabulary)?;
        }
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        // All windows are of the same tokens.
        if sample == 0 && field == 0 {
            take(format!("{:?} of ", self.range).as_bytes());
            self.tokens.identify(take);
        }
    }

    fn skips_unreadable(&self) -> bool {
        false
    }

    fn held_bytes(&self) -> usize {
        self.tokens.held_bytes()
    }
}

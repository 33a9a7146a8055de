//! Samples of a long row of tokens that do not go on from one document to the next: each has tokens of one document, and batches have samples of about one length.

use super::super::field::{Field, Lengths};
use super::super::store::{Rows, Store, Unreadable};
use super::super::tokenizer::{Tokenizer, UNKNOWN_TOKEN};
use super::options::{ApartOptions, End, TextOptions};
use super::prompts::ENDS;
use super::tokens::{Tokens, put_tokens};
use super::windows::fields_of_lengths;
use anyhow::{Context, Result, bail, ensure};
use std::ops::Range;
use std::sync::Arc;

/// The token that ends documents: the one that is named, or where they are kept apart the first of those that usually do which the tokenizer has.
///
/// # Errors
/// The vocabulary does not have it.
pub fn end(options: &TextOptions, tokenizer: Option<&Tokenizer>, vocabulary: usize) -> Result<Option<u32>> {
    let token = |name: &str| tokenizer.and_then(|tokenizer| tokenizer.token(name));
    let end = match &options.end {
        None => return Ok(options.apart.as_ref().and_then(|_| ENDS.into_iter().find_map(token))),
        Some(End::Name(name)) => {
            token(name).with_context(|| format!("the tokenizer has no token `{name}`, which `end_token` names"))?
        }
        Some(End::Number(number)) => *number,
    };
    ensure!(
        (end as usize) < vocabulary,
        "`end_token` is {end}, and the vocabulary has {vocabulary} tokens, 0 .. {}",
        vocabulary - 1
    );
    Ok(Some(end))
}

/// Where documents of a row of tokens end.
#[derive(Debug, Clone, Copy)]
pub enum Ends<'a> {
    /// With a token. The next one begins with it, unless documents are `begun` by tokens of their own: the model learns to write it after a document, and to
    /// begin one after it.
    Token { end: u32, begun: bool },
    /// After so many tokens each, ascending.
    Places(&'a [usize]),
}

/// The documents of a row of tokens: of each, which tokens the model is given. It learns the one after each.
///
/// # Errors
/// A file cannot be read.
pub fn documents(tokens: &Tokens, ends: Ends) -> Result<Vec<Range<usize>>> {
    let (mut found, mut start) = (Vec::new(), 0);
    // Of a document that has no token but its end there is nothing to learn.
    let mut add = |given: Range<usize>, least: usize| {
        if given.len() >= least {
            found.push(given);
        }
    };
    match ends {
        Ends::Token { end, begun } => {
            let mut least = 1;
            tokens.each_place_of(end, &mut |place| {
                add(start..place, least);
                (start, least) = if begun { (place + 1, 1) } else { (place, 2) };
            })?;
            add(start..tokens.len().saturating_sub(1), 1);
        }
        Ends::Places(places) => {
            for &place in places {
                add(start..place.saturating_sub(1), 1);
                start = place;
            }
        }
    }
    Ok(found)
}

/// Takes the documents that begin after the first `cut` tokens out of all, but at least one of them, and not all.
///
/// # Errors
/// There is only one.
pub fn hold_out(documents: &mut Vec<Range<usize>>, cut: usize) -> Result<Vec<Range<usize>>> {
    ensure!(
        documents.len() > 1,
        "`validation_split` holds out whole documents where `packed` is false, and there is only one: name a text to validate on with `val_path`"
    );
    let first = documents.partition_point(|document| document.start < cut);
    Ok(documents.split_off(first.clamp(1, documents.len() - 1)))
}

/// Parts of documents as samples.
pub struct Apart {
    tokens: Arc<Tokens>,
    /// Where each part begins.
    starts: Vec<u64>,
    /// How many tokens of each the model is given.
    sizes: Vec<u32>,
    vocabulary: usize,
    ignore_index: i32,
    lengths: Vec<Lengths>,
    fields: Vec<Field>,
}

impl Apart {
    /// Bytes of memory that so many parts take.
    pub fn bytes_of(parts: usize) -> usize {
        parts * (size_of::<u64>() + size_of::<u32>())
    }

    /// Those of `documents`, each cut into parts of at most `context` tokens, the last of `options.lengths`.
    ///
    /// # Errors
    /// There are none.
    pub fn new(
        tokens: &Arc<Tokens>,
        documents: &[Range<usize>],
        vocabulary: usize,
        options: &ApartOptions,
    ) -> Result<Apart> {
        let context = options.lengths.last().copied().unwrap_or(1);
        let parts = documents.iter().map(|document| document.len().div_ceil(context)).sum();
        let (mut starts, mut sizes) = (Vec::with_capacity(parts), Vec::with_capacity(parts));
        for document in documents {
            for start in document.clone().step_by(context) {
                starts.push(start as u64);
                sizes.push(context.min(document.end - start) as u32);
            }
        }
        if starts.is_empty() {
            bail!("there are no documents of two tokens");
        }
        Ok(Apart {
            tokens: Arc::clone(tokens),
            starts,
            sizes,
            vocabulary,
            ignore_index: options.ignore_index,
            lengths: Lengths::firsts(&options.lengths),
            fields: fields_of_lengths(&options.lengths, vocabulary),
        })
    }
}

impl Store for Apart {
    fn len(&self) -> usize {
        self.starts.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn lengths(&self) -> &[Lengths] {
        &self.lengths
    }

    fn length_of(&self, sample: usize) -> usize {
        Lengths::place(&self.lengths, [self.sizes[sample] as usize, 0])
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let (start, size) = (self.starts[sample] as usize, self.sizes[sample] as usize);
        let mut reader = self.tokens.reader(start + size + 1);
        put_tokens(&mut reader, rows, (0, UNKNOWN_TOKEN as i32), start..start + size, self.vocabulary)?;
        rows.put(1, &(size as i32).to_ne_bytes());
        put_tokens(&mut reader, rows, (2, self.ignore_index), start + 1..start + size + 1, self.vocabulary)
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        // All parts are of the same tokens.
        if sample == 0 && field == 0 {
            self.tokens.identify(take);
        }
        if field == 0 {
            take(&self.starts[sample].to_le_bytes());
            take(&self.sizes[sample].to_le_bytes());
        }
    }

    fn skips_unreadable(&self) -> bool {
        false
    }

    fn held_bytes(&self) -> usize {
        self.tokens.held_bytes() + Apart::bytes_of(self.starts.len())
    }
}

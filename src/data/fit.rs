//! Whether numbers that come from outside are such as a model can look up.

use super::field::{Field, FieldKind};
use anyhow::{Result, ensure};

/// Holds tokens against the number of tokens that there are, and lengths against the longest sample. `rows` are the bytes of any number of samples for each
/// field.
///
/// # Errors
/// A token is none of the vocabulary, or a length is not from 1 to the longest.
pub fn check_tokens(fields: &[Field], rows: &[&[u8]]) -> Result<()> {
    let longest = fields.iter().find(|field| matches!(field.kind, FieldKind::Tokens(_)));
    let longest = longest.and_then(|field| field.shape.dims().first().copied());
    for (field, row) in fields.iter().zip(rows) {
        let (allowed, what) = match &field.kind {
            FieldKind::Tokens(tokens) => (0..=tokens.number as i64 - 1, "tokens are"),
            FieldKind::Length => (1..=longest.unwrap_or(usize::MAX >> 1) as i64, "lengths are"),
            FieldKind::PairStart => (1..=longest.unwrap_or(usize::MAX >> 1) as i64, "beginnings of second texts are"),
            _ => continue,
        };
        let mut numbers = row.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().expect("4 bytes")));
        if let Some(number) = numbers.find(|number| !allowed.contains(&i64::from(*number))) {
            ensure!(
                false,
                "`{}` has {number}, and its {what} from {} to {}",
                field.name,
                allowed.start(),
                allowed.end()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Classes;
    use super::*;
    use crate::graph::DType;

    #[test]
    fn tokens_and_lengths_are_ones_that_there_are() {
        let tokens = Field {
            kind: FieldKind::Tokens(Classes::at_least(5)),
            ..Field::numbers("inputs", DType::I32, [3]).of_any_length(0, 0)
        };
        let lengths = Field { kind: FieldKind::Length, ..Field::numbers("lengths", DType::I32, []) };
        let numbers = Field::numbers("other", DType::F32, []);
        let check = |row: [i32; 3], length: i32| {
            let (row, length) = (row.map(i32::to_ne_bytes).concat(), length.to_ne_bytes());
            let rows = [&row[..], &length, &[255; 4]];
            check_tokens(&[tokens.clone(), lengths.clone(), numbers.clone()], &rows).map_err(|e| e.to_string())
        };
        assert_eq!(check([0, 4, 2], 1), Ok(()));
        assert_eq!(check([0, 4, 2], 3), Ok(()));
        assert_eq!(check([0, 5, 2], 3), Err("`inputs` has 5, and its tokens are from 0 to 4".to_owned()));
        assert_eq!(check([0, 4, -1], 3), Err("`inputs` has -1, and its tokens are from 0 to 4".to_owned()));
        assert_eq!(check([0, 4, 2], 0), Err("`lengths` has 0, and its lengths are from 1 to 3".to_owned()));
        assert_eq!(check([0, 4, 2], 4), Err("`lengths` has 4, and its lengths are from 1 to 3".to_owned()));
    }
}

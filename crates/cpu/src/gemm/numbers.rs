//! Which operands of a product lie rounded in memory.

use super::tile::EpilogueOperands;
pub use crate::run::numbers::{Address, Numbers, NumbersMut};

/// Which operands of a product are rounded in memory, and whether its result is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounded {
    /// The operand that has rows.
    pub source: bool,
    /// The operand that is added to the result.
    pub summand: bool,
    /// The result.
    pub result: bool,
}

impl Rounded {
    /// What these operands are.
    pub fn of(source: &Numbers, operands: &EpilogueOperands, result: &NumbersMut) -> Rounded {
        Rounded {
            source: matches!(source, Numbers::Rounded(_)),
            summand: operands.rounded_residual.is_some(),
            result: matches!(result, NumbersMut::Rounded(_)),
        }
    }

    /// True if any is.
    pub fn any(self) -> bool {
        self != Rounded::default()
    }
}

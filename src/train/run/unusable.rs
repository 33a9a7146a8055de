//! The end of an evaluation whose samples cannot be read.

use std::fmt;

/// Samples of an evaluation that cannot be read, and why that ends it. All ranks have the same one, and the state of the run is sound.
#[derive(Debug)]
pub struct Unusable(pub String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

//! The sections of a configuration other than the model: `[data]`, `[loss]`, `[optimizer]`, …

mod data;
mod loss;
mod optimizer;
mod schedule;
mod training;

pub use data::*;
pub use loss::*;
pub use optimizer::*;
pub use schedule::*;
pub use training::*;

//! The configuration language: from TOML text to a typed [`Experiment`], with every value's place kept.
//!
//! Nothing here knows graphs, data or devices. What can only be judged with the model at hand (shapes, the names that
//! `freeze` and `match` mean) is checked by others, with the spans that the experiment carries and the diagnostics
//! of this module.

pub mod diagnostics;
pub mod experiment;
pub mod layers;
pub mod sections;
pub mod tagged;
pub mod values;

pub use diagnostics::{Diagnostic, Severity, SourceId, Sources, Span};
pub use experiment::{Experiment, LayerKind, LayerNode};

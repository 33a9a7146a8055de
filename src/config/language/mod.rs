//! What the language has: sections, layers, their options and the types of those.

pub mod devices;
pub mod keys;
mod known_weights;
pub mod layers;
pub mod lists;
pub mod pattern;
pub mod pretrained;
pub mod sections;
pub mod values;
mod written;

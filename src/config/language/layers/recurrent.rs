//! Recurrent layers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::values;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::lints::Lint;

/// Most layers one on top of the other.
const MAX_LAYERS: usize = 1000;

options! {
    /// Long short-term memory (Hochreiter and Schmidhuber 1997): `[N, L, E]` becomes `[N, L, hidden_size]`, the state at each position. Where texts differ in
    /// length, states after the end of a text are 0. `torch.nn.LSTM` with `batch_first=True`, its first result.
    pub struct Lstm {
        /// Numbers of a state.
        #[option(range = 1..=MAX_SIZE, example = "256")]
        pub hidden_size: usize,
        /// Layers one on top of the other.
        #[option(default = 1, range = 1..=MAX_LAYERS)]
        pub num_layers: usize,
        /// Learn biases, two for each gate as PyTorch has them.
        #[option(default = true)]
        pub bias: bool,
        /// Probability with which a number of a state is set to zero in training, on its way from one layer to the next.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
        /// A second one goes from the end of each text to its beginning. Both states lie side by side: `[N, L, 2 · hidden_size]`.
        #[option(default = false)]
        pub bidirectional: bool,
    }

    /// Gated recurrent units (Cho et al. 2014), otherwise as `lstm`. `torch.nn.GRU` with `batch_first=True`, its first result.
    pub struct Gru {
        /// Numbers of a state.
        #[option(range = 1..=MAX_SIZE, example = "256")]
        pub hidden_size: usize,
        /// Layers one on top of the other.
        #[option(default = 1, range = 1..=MAX_LAYERS)]
        pub num_layers: usize,
        /// Learn biases, two for each gate as PyTorch has them.
        #[option(default = true)]
        pub bias: bool,
        /// As of `lstm`.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
        /// As of `lstm`.
        #[option(default = false)]
        pub bidirectional: bool,
    }

    /// A state made of the one before and the input by one function (Elman 1990), otherwise as `lstm`. `torch.nn.RNN` with `batch_first=True`, its
    /// first result.
    pub struct Rnn {
        /// Numbers of a state.
        #[option(range = 1..=MAX_SIZE, example = "256")]
        pub hidden_size: usize,
        /// Layers one on top of the other.
        #[option(default = 1, range = 1..=MAX_LAYERS)]
        pub num_layers: usize,
        /// The function.
        #[option(default = RnnNonlinearity::Tanh)]
        pub nonlinearity: RnnNonlinearity,
        /// Learn biases, two as PyTorch has them.
        #[option(default = true)]
        pub bias: bool,
        /// As of `lstm`.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
        /// As of `lstm`.
        #[option(default = false)]
        pub bidirectional: bool,
    }
}

impl Check for Lstm {
    fn check(&self, part: &Part) {
        between_layers(self.dropout, self.num_layers, part);
    }
}

impl Check for Gru {
    fn check(&self, part: &Part) {
        between_layers(self.dropout, self.num_layers, part);
    }
}

impl Check for Rnn {
    fn check(&self, part: &Part) {
        between_layers(self.dropout, self.num_layers, part);
    }
}

/// Warns of a `dropout` where there is nothing that it could be between, as PyTorch does.
fn between_layers(dropout: f64, num_layers: usize, part: &Part) {
    if dropout > 0.0 && num_layers == 1 {
        let warning = Diagnostic::warning(Lint::NoEffect, format!("`dropout` in {} has no effect", part.what))
            .at(part.span_of("dropout"), "is between layers, and there is one")
            .help("set `num_layers`, or put a layer `dropout` after this one");
        part.sink.push(warning);
    }
}

values!(RnnNonlinearity);

/// What becomes of a sum in a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RnnNonlinearity {
    /// Its hyperbolic tangent.
    Tanh,
    /// 0 if it is negative.
    Relu,
}

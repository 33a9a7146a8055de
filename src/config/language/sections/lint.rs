//! `[lint]`: which warnings not to give.

use crate::config::declare::options::{Check, options};
use crate::config::declare::value::values;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::lints::Lint;

values!(Lint);

options! {
    /// The `[lint]` section.
    pub struct Lints {
        /// Warnings that are not given, by name.
        #[option(default = Vec::new(), resume = Harmless)]
        pub allow: Vec<Lint>,
    }
}

impl Check for Lints {}

impl Lints {
    /// The diagnostics to report: all but warnings that are allowed.
    pub fn without_allowed(&self, diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
        diagnostics.into_iter().filter(|d| d.lint.is_none_or(|lint| !self.allow.contains(&lint))).collect()
    }
}

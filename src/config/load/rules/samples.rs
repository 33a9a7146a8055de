//! What samples of text must agree on with the data.

use super::Rules;
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections::Source;
use crate::config::text::diagnostics::Diagnostic;

impl Rules<'_> {
    /// Texts are written by a language model, which needs a tokenizer for that.
    pub(super) fn samples_of_text(&self) {
        const KEY: &str = "log.sample_prompts";
        if !self.experiment.writes_samples() {
            return;
        }
        let source = &self.experiment.data.source;
        let (error, why) = match source {
            Source::Text(_) | Source::TextPairs(_) => return,
            Source::Tokens(tokens) if tokens.tokenizer.is_some() => return,
            Source::Tokens(_) => {
                let error = Diagnostic::error("`sample_prompts` needs a tokenizer, and the data has none");
                (error.help("name the one that the tokens were made with: `tokenizer` in `[data]`"), "tokens alone")
            }
            _ => {
                let error = Diagnostic::error(format!(
                    "`sample_prompts` are texts that a language model goes on with, and `{}` trains none",
                    source.type_name()
                ));
                let help = "leave it out: language models learn from `text`, `tokens` or `text_pairs`";
                (error.help(help), "no text to go on with")
            }
        };
        self.reporter.at_keys(error, KEY, "asks for texts", "data.source", why);
    }
}

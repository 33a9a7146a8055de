//! What is asked of language models, and must agree with the data: texts that they write, and figures of bytes.

use super::Rules;
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections::Source;
use crate::config::text::diagnostics::Diagnostic;
use crate::graph::op::Figure;

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

    /// The bytes of tokens are known where a tokenizer makes text of them.
    pub(super) fn bits_per_byte(&self) {
        let source = &self.experiment.data.source;
        if source.knows_bytes() {
            return;
        }
        let (why, help) = match source {
            Source::Tokens(_) => {
                ("no tokenizer", "name the one that the tokens were made with: `tokenizer` in `[data]`")
            }
            _ => ("no such text", "leave it out: it is measured of `text`, and of `tokens` with a `tokenizer`"),
        };
        let asked = self.experiment.metrics.figures.iter().enumerate();
        let asked = asked.map(|(i, figure)| (format!("metrics.figures.{i}"), figure.figure()));
        let watched = self.watched().map(|(key, metric)| (key.to_owned(), metric.figure()));
        for (key, _) in asked.chain(watched).filter(|(_, figure)| *figure == Figure::BitsPerByte) {
            let error = Diagnostic::error("how many bytes of text a token stands for is not known").help(help);
            self.reporter.at_keys(error, &key, "is the loss of a byte", "data.source", why);
        }
    }
}

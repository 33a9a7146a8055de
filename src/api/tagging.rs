//! Words with their tags, and the spans that those make: as text and as JSON.

use crate::data::DataSpec;
use crate::data::text::{Placed, Spans};
use crate::terminal::one_line;
use serde_json::{Value, json};

/// The words of a sentence with what a model says of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedWords {
    words: Vec<String>,
    /// `None`: the word has no token, or was cut off.
    tags: Vec<Option<String>>,
    /// `None`: the tags are of no scheme that makes spans.
    spans: Option<Vec<WordSpan>>,
}

/// Words that belong together, from `start` to before `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WordSpan {
    label: String,
    start: usize,
    end: usize,
}

impl TaggedWords {
    /// Those of a sentence, for each position of which there is a class.
    pub fn new(sentence: &Placed, classes: &[usize], data: &DataSpec) -> TaggedWords {
        let of_words: Vec<Option<usize>> =
            sentence.at.iter().map(|at| at.and_then(|at| classes.get(at)).copied()).collect();
        let names = data.class_names().unwrap_or_default();
        let name = |class: usize| names.get(class).cloned().unwrap_or_else(|| class.to_string());
        let spans = Spans::of_target(data).map(|spans| {
            // Words without a tag are left out, as in the figures.
            let (places, known): (Vec<usize>, Vec<usize>) =
                of_words.iter().enumerate().filter_map(|(word, class)| Some((word, (*class)?))).unzip();
            let found = spans.found(&known).into_iter().map(|span| WordSpan {
                label: spans.kind(span.kind).to_owned(),
                start: places[span.start],
                end: places[span.end - 1] + 1,
            });
            found.collect()
        });
        let tags = of_words.into_iter().map(|class| class.map(name)).collect();
        TaggedWords { words: sentence.words.clone(), tags, spans }
    }

    fn text(&self, span: &WordSpan) -> String {
        self.words[span.start..span.end].join(" ")
    }

    /// A line for each word, then one for each span.
    pub fn lines(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|word| one_line(word)).collect();
        let width = words.iter().map(|word| word.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (word, tag) in words.iter().zip(&self.tags) {
            let room = " ".repeat(width - word.chars().count());
            text.push_str(&format!("  {word}{room}  {}\n", one_line(tag.as_deref().unwrap_or("(cut off)"))));
        }
        for span in self.spans.iter().flatten() {
            text.push_str(&format!("  {}: {}\n", one_line(&span.label), one_line(&self.text(span))));
        }
        text
    }

    /// The spans or, where tags make none, all words.
    pub fn line(&self) -> String {
        let all: Vec<String> = match &self.spans {
            Some(spans) => {
                spans.iter().map(|span| format!("{}: {}", one_line(&span.label), one_line(&self.text(span)))).collect()
            }
            None => {
                let words = self.words.iter().zip(&self.tags);
                let tagged =
                    words.filter_map(|(word, tag)| Some(format!("{} {}", one_line(word), one_line(tag.as_deref()?))));
                tagged.collect()
            }
        };
        if all.is_empty() { "no spans".to_owned() } else { all.join(", ") }
    }

    /// Adds them to a JSON object.
    pub fn write_json(&self, result: &mut Value) {
        result["words"] = json!(self.words);
        result["tags"] = json!(self.tags);
        if let Some(spans) = &self.spans {
            let one = |span: &WordSpan| json!({ "label": span.label, "start": span.start, "end": span.end, "text": self.text(span) });
            result["spans"] = spans.iter().map(one).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Classes, Field, FieldKind};
    use crate::graph::DType;

    #[test]
    fn words_have_their_tags_and_spans() {
        let spec = |tags: &[&str]| {
            let tags = Classes::named(tags.iter().map(|tag| (*tag).to_owned()).collect());
            let tokens = Field::numbers("inputs", DType::I32, [6]);
            DataSpec::new(vec![tokens, Field::target("targets", FieldKind::Category(tags), [6])])
        };
        let words = ["New", "", "York", "is", "big"].map(str::to_owned).to_vec();
        let sentence = Placed { words, at: vec![Some(1), None, Some(2), Some(4), None] };
        let tagged = TaggedWords::new(&sentence, &[0, 1, 2, 2, 0, 1], &spec(&["O", "B-LOC", "I-LOC"]));
        let mut json = json!({});
        tagged.write_json(&mut json);
        assert_eq!(json["tags"], json!(["B-LOC", null, "I-LOC", "O", null]));
        assert_eq!(json["spans"], json!([{ "label": "LOC", "start": 0, "end": 3, "text": "New  York" }]));
        assert_eq!(tagged.lines().lines().count(), 6);
        let tagged = TaggedWords::new(&sentence, &[0, 1, 1, 1, 0, 1], &spec(&["NOUN", "VERB"]));
        assert_eq!(tagged.line(), "New VERB, York VERB, is NOUN");
        assert!(tagged.spans.is_none());
    }
}

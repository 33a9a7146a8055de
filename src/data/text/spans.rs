//! Spans of tagged words: `B-PER I-PER` is one of the kind `PER`. By the schemes IOB2, IOBES and BILOU, strictly: a span that does not begin or does not end as its
//! scheme says is none. This is what seqeval does with `mode = "strict"`.

use super::super::field::DataSpec;
use std::collections::HashMap;

/// What a tag says of its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Outside,
    Begin,
    Inside,
    End,
    Single,
}

/// Tags that make spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans {
    /// Of each tag, what it says, and of which kind of spans.
    tags: Vec<(Part, usize)>,
    kinds: Vec<String>,
    /// Whether spans end with a tag of their own.
    closed: bool,
}

/// Words from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Its first word.
    pub start: usize,
    /// The word after its last.
    pub end: usize,
    /// Its kind, by number.
    pub kind: usize,
}

impl Spans {
    /// Those of the target of samples, if that is a tag for each word.
    pub fn of_target(data: &DataSpec) -> Option<Spans> {
        let (_, target) = data.target()?;
        Spans::of(data.class_names()?).filter(|_| target.shape.rank() == 1)
    }

    /// Those that tags of these names make; `None`: the names are of no scheme.
    pub fn of(names: &[String]) -> Option<Spans> {
        let mut spans = Spans { tags: Vec::with_capacity(names.len()), kinds: Vec::new(), closed: false };
        let (mut ends, mut lasts) = (false, false);
        let mut numbers = HashMap::new();
        for name in names {
            let mut letters = name.chars();
            let (first, rest) = (letters.next()?, letters.as_str());
            let part = match first {
                'O' if rest.is_empty() => {
                    spans.tags.push((Part::Outside, 0));
                    continue;
                }
                'B' => Part::Begin,
                'I' => Part::Inside,
                'E' | 'L' => Part::End,
                'S' | 'U' => Part::Single,
                _ => return None,
            };
            ends |= matches!(first, 'E' | 'S');
            lasts |= matches!(first, 'L' | 'U');
            let kind = match rest.strip_prefix('-') {
                Some(kind) if !kind.is_empty() => kind,
                None if rest.is_empty() => "_",
                _ => return None,
            };
            let number = *numbers.entry(kind).or_insert(spans.kinds.len());
            if number == spans.kinds.len() {
                spans.kinds.push(kind.to_owned());
            }
            spans.tags.push((part, number));
        }
        spans.closed = ends || lasts;
        let begins = spans.tags.iter().any(|(part, _)| matches!(part, Part::Begin | Part::Single));
        // The letters of two schemes are of none.
        (begins && !(ends && lasts)).then_some(spans)
    }

    /// What a kind is called.
    pub fn kind(&self, kind: usize) -> &str {
        self.kinds.get(kind).map_or("", String::as_str)
    }

    /// The spans of a row of words with these tags, ascending.
    pub fn found(&self, tags: &[usize]) -> Vec<Span> {
        let at =
            |word: usize| tags.get(word).and_then(|tag| self.tags.get(*tag)).copied().unwrap_or((Part::Outside, 0));
        let goes_on = |word: usize| {
            let ((before, kind), (part, own)) = (at(word - 1), at(word));
            let open = matches!(before, Part::Begin | Part::Inside);
            open && matches!(part, Part::Inside | Part::End) && kind == own
        };
        let (mut found, mut start) = (Vec::new(), 0);
        while start < tags.len() {
            let (part, kind) = at(start);
            if !matches!(part, Part::Begin | Part::Single) {
                start += 1;
                continue;
            }
            let mut end = start + 1;
            while end < tags.len() && goes_on(end) {
                end += 1;
            }
            if !self.closed || matches!(at(end - 1).0, Part::End | Part::Single) {
                found.push(Span { start, end, kind });
            }
            start = end;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn tags_of_a_scheme_make_spans() {
        assert!(Spans::of(&names(&["O", "B-PER", "I-PER"])).is_some());
        assert!(Spans::of(&names(&["B", "I", "O"])).is_some());
        assert!(Spans::of(&names(&["O", "S-PER"])).is_some());
        for none in [
            &["NOUN", "VERB"][..],
            &["O"],
            &["O", "I-PER"],
            &[],
            &["O", "B-"],
            &["O", "B_PER"],
            &["O", "S-X", "U-X"],
            &["O", ""],
        ] {
            assert_eq!(Spans::of(&names(none)), None, "{none:?}");
        }
        let spans = Spans::of(&names(&["O", "B-PER", "I-PER", "B-LOC"])).unwrap();
        let found = spans.found(&[1, 2, 3, 0, 2, 1, 9]);
        let named: Vec<_> = found.iter().map(|span| (spans.kind(span.kind), span.start, span.end)).collect();
        // A tag that there is not is none of a span.
        assert_eq!(named, [("PER", 0, 2), ("LOC", 2, 3), ("PER", 5, 6)]);
    }

    /// Of `scripts/golden/spans.py`.
    #[derive(Deserialize)]
    struct Case {
        tags: Vec<String>,
        sequences: Vec<Vec<usize>>,
        entities: Vec<Vec<(String, usize, usize)>>,
    }

    #[test]
    fn spans_are_those_of_seqeval() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/spans.json"));
        #[derive(Deserialize)]
        struct All {
            schemes: Vec<Case>,
        }
        let all: All = serde_json::from_str(text).unwrap();
        let mut compared = 0;
        for Case { tags, sequences, entities } in &all.schemes {
            let spans = Spans::of(tags).unwrap();
            for (sequence, entities) in sequences.iter().zip(entities) {
                let found = spans.found(sequence);
                let named: Vec<_> =
                    found.iter().map(|span| (spans.kind(span.kind).to_owned(), span.start, span.end)).collect();
                assert_eq!(&named, entities, "{tags:?}: {sequence:?}");
                compared += entities.len();
            }
        }
        assert!(all.schemes.len() == 4 && compared > 200, "{compared}");
    }
}

//! Labels that are read as one class each, and look like something else: several classes in one text, or numbers to be learnt.

use super::labels::shown;
use std::collections::HashSet;
use std::path::Path;

/// What usually stands between several classes, and what may, the more usual first.
const SEPARATORS: [&str; 3] = ["|", ";", ","];

/// Labels that have several classes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parted<'a> {
    /// What stands between them.
    pub separator: &'static str,
    /// The first label that has it.
    pub label: &'a str,
}

/// Whether labels have several classes each: they have something between their parts, and there are fewer different parts than labels.
pub fn parted(labels: &[String]) -> Option<Parted<'_>> {
    SEPARATORS.iter().find_map(|separator| {
        let label = labels.iter().find(|label| label.contains(separator))?;
        let mut parts = HashSet::new();
        for part in labels.iter().flat_map(|label| label.split(separator)).map(str::trim) {
            parts.insert(part);
        }
        let are = parts.len() < labels.len() && !parts.contains("");
        are.then_some(Parted { separator, label })
    })
}

/// The note about labels that each are a class of their own, and do not look like it.
pub fn other_than_classes(list: &Path, labels: &[String]) -> Option<String> {
    let place = list.display();
    if let Some(Parted { separator, label }) = parted(labels) {
        let with = if separator == "|" { String::new() } else { format!(" with `label_separator = \"{separator}\"`") };
        return Some(format!(
            "`{place}`: a label such as `{}` is a class of its own; if it names several classes, say `label_kind = \"classes\"`{with}, with \
             the loss `bce_with_logits`",
            shown(label)
        ));
    }
    let values: Option<Vec<f64>> =
        labels.iter().map(|label| label.parse().ok().filter(|value: &f64| value.is_finite())).collect();
    let fraction = values?.iter().position(|value| value.fract() != 0.0)?;
    Some(format!(
        "`{place}`: each of the {} different numbers is a class of its own, as `{}`; to learn the numbers, say `label_kind = \"number\"`, \
         with the loss `mse`",
        labels.len(),
        shown(&labels[fraction])
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels that are read as one class each, and may be meant otherwise.
    #[test]
    fn labels_that_do_not_look_like_classes_are_noted() {
        let note = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            other_than_classes(Path::new("a.csv"), &labels)
        };
        for (labels, parts) in [
            (
                ["a", "b", "a|b", "b|a"],
                ["a label such as `a|b` is a class of its own", "`label_kind = \"classes\"`, with"],
            ),
            (["a", "b", "a, b", "b, a"], ["a label such as `a, b`", "with `label_separator = \",\"`"]),
            (
                ["0.1", "1", "2.5", "3"],
                ["each of the 4 different numbers is a class", "as `0.1`; to learn the numbers"],
            ),
        ] {
            let note = note(&labels).unwrap();
            assert!(parts.iter().all(|part| note.contains(part)), "{parts:?}: {note}");
        }
        for labels in [&["a", "b", "c"][..], &["1", "2", "3"], &["x, y", "v, w"], &["a|", "b", "a"], &["1", "nan"], &[]]
        {
            assert_eq!(note(labels), None, "{labels:?}");
        }
    }
}

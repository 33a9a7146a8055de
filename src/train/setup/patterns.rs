//! Patterns of names that fit nothing.

use crate::config::Diagnostic;
use crate::config::language::pattern::Pattern;
use crate::graph::VarId;

/// The error for a pattern that fits no parameter's name.
pub fn no_match(pattern: &Pattern, names: &[(VarId, String)], key: &str) -> Diagnostic {
    let error =
        Diagnostic::error(format!("`{}` in `{key}` fits no parameter", pattern.text)).at(pattern.span, "fits nothing");
    // What could have been meant: a name, or all names that begin with the same layers.
    let groups = names.iter().flat_map(|(_, n)| n.match_indices('.').map(|(dot, _)| format!("{}.*", &n[..dot])));
    let all: Vec<String> = names.iter().map(|(_, n)| n.clone()).chain(groups).collect();
    if let Some(name) = similar(&pattern.text, all.iter().map(String::as_str)) {
        return error.help(format!("did you mean `{name}`?"));
    }
    let first: Vec<&str> = names.iter().take(4).map(|(_, n)| n.as_str()).collect();
    error.help(match names.len() {
        0 => "the model has no parameters".to_string(),
        1..=4 => format!("the parameters are called {}", first.join(", ")),
        _ => format!("parameters are called {}, …", first.join(", ")),
    })
}

/// The name that is most like `text`, if one is like it.
pub fn similar<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| (strsim::jaro_winkler(text, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
    best.filter(|(score, _)| *score > 0.8).map(|(_, name)| name)
}

//! `$classes` and `$vocabulary`: the numbers of classes and of tokens of the data, which a model can name. The configuration does not know data: it is
//! read once to find out whether it asks, and once more with the answer.

use super::expr::{CONTEXT, COUNTED, OF_HEAD, heads_named, names_parameter};
use super::{Failure, Loaded};
use crate::config::declare::tagged::Tagged;
use crate::config::experiment::Experiment;
use crate::config::language::sections::LONGEST_PAIR;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::tree::{Node, Table, Value};
use crate::graph::op::TargetKind;

/// The parameters of a file in `use` that are the number of classes where `with` does not set them.
pub const NUM_CLASSES: [&str; 2] = ["num_classes", "vocabulary"];
/// What stands for the number until it is known: no result depends on it.
const UNTIL_KNOWN: usize = 1000;

/// What is counted in the data; `None`: it has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Classes, or names of labels, or numbers that are learnt of a table.
    pub classes: Option<usize>,
    /// Tokens of its text.
    pub vocabulary: Option<usize>,
    /// Classes of the targets of heads that have some, with the names of those.
    pub heads: Vec<(String, usize)>,
}

impl Counts {
    /// What the parameter of that name is.
    fn get(&self, name: &str) -> Option<usize> {
        match name.strip_prefix(OF_HEAD) {
            Some(head) => self.of_head(head),
            None if name == COUNTED[1] => self.vocabulary,
            None => self.classes,
        }
    }

    fn of_head(&self, head: &str) -> Option<usize> {
        self.heads.iter().find(|(name, _)| name == head).map(|(_, number)| *number)
    }
}

/// What is known of what is counted in the data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Classes {
    /// Nothing, and there is no way to find out: who asks for it is refused.
    #[default]
    Unknown,
    /// It is found out once it is clear that it is asked for.
    Later,
    /// This.
    Known(Counts),
}

impl Classes {
    /// The value of the parameter of that name, if it has one.
    pub fn value(&self, name: &str) -> Option<usize> {
        match self {
            Classes::Unknown => None,
            Classes::Later => Some(UNTIL_KNOWN),
            Classes::Known(counts) => counts.get(name),
        }
    }

    /// The classes of a head, if it has some.
    pub fn of_head(&self, head: &str) -> Option<usize> {
        match self {
            Classes::Unknown => None,
            Classes::Later => Some(UNTIL_KNOWN),
            Classes::Known(counts) => counts.of_head(head),
        }
    }
}

/// Who asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A model that was written with parameters of these names, at these places: one at least.
    Written(Vec<(Span, String)>),
    /// A file in `use`, whose `num_classes` or `vocabulary` nothing sets. They have a default.
    Unset,
}

/// The places in the model where parameters are what is counted in the data, and the names of those: the first place of each.
pub fn written(root: &Table) -> Vec<(Span, String)> {
    fn within(node: &Node, found: &mut dyn FnMut(&str, Span)) {
        match &node.value {
            Value::String(text) => found(text, node.span),
            Value::Array(items) => items.iter().for_each(|item| within(item, found)),
            Value::Table(table) => table.entries.iter().for_each(|entry| within(&entry.node, found)),
            _ => {}
        }
    }
    let model = || ["params", "blocks", "model"].iter().filter_map(|key| root.get(key));
    let mut all: Vec<(Span, String)> = Vec::new();
    for name in COUNTED {
        let own = root.get("params").and_then(Node::as_table).and_then(|params| params.get(name));
        let mut take = |text: &str, span| {
            if names_parameter(text, name) && all.iter().all(|(_, known)| known != name) {
                all.push((span, name.to_owned()));
            }
        };
        // A parameter of that name hides it, unless it is what that is made of.
        match own {
            Some(node) => within(node, &mut take),
            None => model().for_each(|node| within(node, &mut take)),
        }
    }
    let heads = heads(root);
    let mut take = |text: &str, span| {
        for head in heads_named(text, &heads).map(|head| format!("{OF_HEAD}{head}")) {
            if all.iter().all(|(_, known)| *known != head) {
                all.push((span, head));
            }
        }
    };
    model().for_each(|node| within(node, &mut take));
    all
}

/// The names of the heads of a configuration, as far as they are written.
pub fn heads(root: &Table) -> Vec<String> {
    let tables = root.get("heads").and_then(Node::as_array).into_iter().flatten().filter_map(Node::as_table);
    let name = |head: &Table| head.get("name").or_else(|| head.get("target"))?.as_str().map(str::to_owned);
    tables.filter_map(name).collect()
}

/// The tokens of a sample of text, if the configuration says how many: those of prompts with their answers, too.
pub fn context(root: &Table) -> Option<Node> {
    let data = root.get("data")?.as_table()?;
    let source = data.get("source")?;
    let pairs = source.as_str() == Some("text_pairs");
    let node = match data.get(if pairs { "max_length" } else { CONTEXT }) {
        None if pairs => Node { value: Value::Integer(LONGEST_PAIR as i64), span: source.span },
        node => node?.clone(),
    };
    matches!(node.value, Value::Integer(_)).then_some(node)
}

/// What is counted in the data of an experiment.
pub type Ask<'a> = &'a dyn Fn(&Experiment) -> Result<Counts, Diagnostic>;

/// What the configuration itself says.
///
/// # Errors
/// It says nothing.
pub fn of_configuration(experiment: &Experiment) -> Result<Counts, Diagnostic> {
    let (source, unknown) = (&experiment.data.source, || Diagnostic::error("the data is not looked at here"));
    let number = source.named_classes().map(Some).ok_or_else(unknown)?;
    let outputs = number.map(|number| experiment.loss.outputs(number));
    Ok(Counts { classes: outputs, vocabulary: number.filter(|_| source.is_text()), heads: Vec::new() })
}

/// Reads a configuration that may ask what is counted in the data: `read` with what is known of it.
///
/// # Errors
/// Those of `read`; it is asked for and cannot be known.
pub fn with_classes(read: &dyn Fn(Classes) -> Result<Loaded, Failure>, ask: Ask) -> Result<Loaded, Failure> {
    let loaded = read(Classes::Later);
    let (experiment, asked, sources, reported) = match &loaded {
        Ok(Loaded { experiment, classes: Some(asked), sources, .. }) => (experiment, asked, sources, &[][..]),
        Err(Failure { sources, diagnostics, rest: Some(rest) }) if let Some(asked) = &rest.classes => {
            (&rest.experiment, asked, sources, &diagnostics[..])
        }
        _ => return loaded,
    };
    let refuse = |error: Diagnostic| {
        let diagnostics = reported.iter().cloned().chain([error]).collect();
        Failure { sources: sources.clone(), diagnostics, rest: None }
    };
    let is_reported = |span: &Span| reported.iter().any(|one| one.span() == Some(*span));
    let written: Vec<&(Span, String)> = match asked {
        Asked::Written(all) => all.iter().filter(|(span, _)| !is_reported(span)).collect(),
        Asked::Unset => Vec::new(),
    };
    // Whether a head has classes is known without the data.
    if let Some(error) = written.iter().find_map(|(span, name)| no_classes(experiment, *span, name)) {
        return Err(refuse(error));
    }
    match (ask(experiment), written.first()) {
        (Ok(counts), _) => match written.iter().find(|(_, name)| counts.get(name).is_none()) {
            Some(place) => Err(refuse(not_known(experiment, place, not_there(experiment, &place.1)))),
            None if counts == Counts::default() => read(Classes::Unknown),
            None => read(Classes::Known(counts)),
        },
        // The code that reads the data reports its faults.
        (Err(_), None) => read(Classes::Unknown),
        (Err(why), Some(place)) => Err(refuse(not_known(experiment, place, why))),
    }
}

/// Why there is no such number.
fn not_there(experiment: &Experiment, name: &str) -> Diagnostic {
    Diagnostic::error(match name == COUNTED[1] {
        true if experiment.data.source.table().is_some() => {
            "no column of the table becomes tokens that the model takes"
        }
        true => "the data is no text: it has no tokens",
        false => "the targets of the data are numbers, not classes",
    })
}

/// What is wrong where a number is asked for that is not known; `why` says what is wrong with the data.
fn not_known(experiment: &Experiment, (span, name): &(Span, String), why: Diagnostic) -> Diagnostic {
    // A fault of the data has its place, and nothing to do with who asks how many classes there are.
    if !why.labels.is_empty() {
        return why;
    }
    let source = &experiment.data.source;
    let is_tokens = name == COUNTED[1];
    let what = if is_tokens { "tokens" } else { "classes" };
    let mut error = Diagnostic::error(format!("the number of {what} is not known, and `${name}` asks for it"));
    error = error.at(*span, "what the data says").note(why.message).missing(why.missing);
    error.help(match is_tokens {
        true if source.table().is_some() => {
            "give a column `type = \"tokens\"` in `[data.columns]`, one that no other key of `[data]` takes, and name it in `inputs` of `[model]`"
                .to_owned()
        }
        false if name == COUNTED[0] => {
            "name the classes with `classes` in `[data]` if the data is elsewhere, or write a number in the place of `$classes`".to_owned()
        }
        _ => format!("write a number in the place of `${name}`"),
    })
}

/// What is wrong where the number of classes of a head is asked for that learns a number.
fn no_classes(experiment: &Experiment, span: Span, name: &str) -> Option<Diagnostic> {
    let head = name.strip_prefix(OF_HEAD)?;
    let at = experiment.heads.iter().position(|own| own.name() == head)?;
    let loss = &experiment.heads[at].loss.0;
    if loss.describe().targets() == TargetKind::Classes {
        return None;
    }
    let error = Diagnostic::error(format!("the head `{head}` has no classes, and `${name}` asks for their number"));
    let error = error.at(span, "there is no such number");
    let error = match experiment.nearest_span(&format!("heads.{at}.loss")) {
        Some(loss) => error.context(loss, "a loss of numbers"),
        None => error,
    };
    Some(error.help(format!("write 1: with the loss `{}` its layer puts out one number", loss.type_name())))
}

//! `$classes` and `$vocabulary`: the numbers of classes and of tokens of the data, which a model can name. The configuration does not know data: it is
//! read once to find out whether it asks, and once more with the answer.

use super::expr::{CONTEXT, COUNTED, names_parameter};
use super::{Failure, Loaded};
use crate::config::experiment::Experiment;
use crate::config::language::sections::LONGEST_PAIR;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::tree::{Node, Table, Value};

/// The parameters of a file in `use` that are the number of classes where `with` does not set them.
pub const NUM_CLASSES: [&str; 2] = ["num_classes", "vocabulary"];
/// What stands for the number until it is known: no result depends on it.
const UNTIL_KNOWN: usize = 1000;

/// What is counted in the data; `None`: it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Classes, or names of labels, or numbers that are learnt of a table.
    pub classes: Option<usize>,
    /// Tokens of its text.
    pub vocabulary: Option<usize>,
}

impl Counts {
    /// What the parameter of that name is.
    fn get(self, name: &str) -> Option<usize> {
        if name == COUNTED[1] { self.vocabulary } else { self.classes }
    }
}

/// What is known of what is counted in the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    pub fn value(self, name: &str) -> Option<usize> {
        match self {
            Classes::Unknown => None,
            Classes::Later => Some(UNTIL_KNOWN),
            Classes::Known(counts) => counts.get(name),
        }
    }
}

/// Who asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A model that was written with the parameter of this name, at this place.
    Written(Span, &'static str),
    /// A file in `use`, whose `num_classes` or `vocabulary` nothing sets. They have a default.
    Unset,
}

/// The first place in the model where a parameter is what is counted in the data, and its name.
pub fn written(root: &Table) -> Option<(Span, &'static str)> {
    fn within(node: &Node, name: &str) -> Option<Span> {
        match &node.value {
            Value::String(text) => names_parameter(text, name).then_some(node.span),
            Value::Array(items) => items.iter().find_map(|item| within(item, name)),
            Value::Table(table) => table.entries.iter().find_map(|entry| within(&entry.node, name)),
            _ => None,
        }
    }
    COUNTED.iter().find_map(|name| {
        let own = root.get("params").and_then(Node::as_table).and_then(|params| params.get(name));
        // A parameter of that name hides it, unless it is what that is made of.
        let found = match own {
            Some(node) => within(node, name),
            None => ["params", "blocks", "model"].iter().find_map(|key| within(root.get(key)?, name)),
        };
        found.map(|span| (span, *name))
    })
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
    Ok(Counts { classes: outputs, vocabulary: number.filter(|_| source.is_text()) })
}

/// Reads a configuration that may ask what is counted in the data: `read` with what is known of it.
///
/// # Errors
/// Those of `read`; it is asked for and cannot be known.
pub fn with_classes(read: &dyn Fn(Classes) -> Result<Loaded, Failure>, ask: Ask) -> Result<Loaded, Failure> {
    let loaded = read(Classes::Later)?;
    let Some(asked) = loaded.classes else { return Ok(loaded) };
    // What is wrong with a table or a text has nothing to do with how many classes there are.
    let plain = loaded.experiment.data.source.is_counted_by_reading();
    let is_table = loaded.experiment.data.source.table().is_some();
    let refuse = |(span, name): (Span, &str), why: Diagnostic| {
        if plain && !why.labels.is_empty() {
            return Failure { sources: loaded.sources.clone(), diagnostics: vec![why] };
        }
        let what = if name == COUNTED[1] { "tokens" } else { "classes" };
        let mut error = Diagnostic::error(format!("the number of {what} is not known, and `${name}` asks for it"));
        error = error.at(span, "what the data says").note(why.message);
        if let Some(place) = why.labels.first() {
            error = error.context(place.span, place.text.clone());
        }
        let help = match name == COUNTED[1] {
            true if is_table => {
                "give a column `type = \"tokens\"` in `[data.columns]`, one that no other key of `[data]` takes, and name it in `inputs` of `[model]`"
            }
            true => "write a number in the place of `$vocabulary`",
            false => {
                "name the classes with `classes` in `[data]` if the data is elsewhere, or write a number in the place of `$classes`"
            }
        };
        let diagnostics = vec![error.help(help)];
        Failure { sources: loaded.sources.clone(), diagnostics }
    };
    match (ask(&loaded.experiment), asked) {
        (Ok(counts), Asked::Written(span, name)) if counts.get(name).is_none() => {
            let why = match name == COUNTED[1] {
                true if is_table => "no column of the table becomes tokens that the model takes",
                true => "the data is no text: it has no tokens",
                false => "the targets of the data are numbers, not classes",
            };
            Err(refuse((span, name), Diagnostic::error(why)))
        }
        (Ok(counts), _) if counts == Counts::default() => read(Classes::Unknown),
        (Ok(counts), _) => read(Classes::Known(counts)),
        // The code that reads the data reports its faults.
        (Err(_), Asked::Unset) => read(Classes::Unknown),
        (Err(why), Asked::Written(span, name)) => Err(refuse((span, name), why)),
    }
}

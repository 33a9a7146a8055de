//! `$classes`: the number of classes of the data, which a model can name. The configuration does not know data: it is read once to find
//! out whether it asks, and once more with the answer.

use super::expr::{CLASSES, CONTEXT, names_parameter};
use super::{Failure, Loaded};
use crate::config::experiment::Experiment;
use crate::config::language::sections::Source;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::tree::{Node, Table, Value};

/// The parameters of a file in `use` that are the number of classes where `with` does not set them.
pub const NUM_CLASSES: [&str; 2] = ["num_classes", "vocabulary"];
/// What stands for the number until it is known: no result depends on it.
const UNTIL_KNOWN: usize = 1000;

/// What is known of the number of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Classes {
    /// Nothing, and there is no way to find out: who asks for it is refused.
    #[default]
    Unknown,
    /// It is found out once it is clear that it is asked for.
    Later,
    /// This.
    Known(usize),
}

impl Classes {
    /// The value of `$classes`, if it has one.
    pub fn value(self) -> Option<usize> {
        match self {
            Classes::Unknown => None,
            Classes::Later => Some(UNTIL_KNOWN),
            Classes::Known(number) => Some(number),
        }
    }
}

/// Who asks for the number of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A model that was written with `$classes`, at this place.
    Written(Span),
    /// A file in `use`, whose `num_classes` nothing sets. It has a default.
    Unset,
}

/// The first place in the model where `$classes` is the number of classes of the data.
pub fn written(root: &Table) -> Option<Span> {
    fn within(node: &Node, name: &str) -> Option<Span> {
        match &node.value {
            Value::String(text) => names_parameter(text, name).then_some(node.span),
            Value::Array(items) => items.iter().find_map(|item| within(item, name)),
            Value::Table(table) => table.entries.iter().find_map(|entry| within(&entry.node, name)),
            _ => None,
        }
    }
    CLASSES.iter().find_map(|name| {
        let own = root.get("params").and_then(Node::as_table).and_then(|params| params.get(name));
        // A parameter of that name hides it, unless it is what that is made of.
        match own {
            Some(node) => within(node, name),
            None => ["params", "blocks", "model"].iter().find_map(|key| within(root.get(key)?, name)),
        }
    })
}

/// The tokens of a sample of text, if the configuration says how many.
pub fn context(root: &Table) -> Option<&Node> {
    let node = root.get("data")?.as_table()?.get(CONTEXT)?;
    matches!(node.value, Value::Integer(_)).then_some(node)
}

/// How many classes the data of an experiment has; `None`: it has no classes.
pub type Ask<'a> = &'a dyn Fn(&Experiment) -> Result<Option<usize>, Diagnostic>;

/// The number that the configuration itself says.
///
/// # Errors
/// It says none.
pub fn of_configuration(experiment: &Experiment) -> Result<Option<usize>, Diagnostic> {
    let number = experiment.data.source.named_classes();
    number.map(Some).ok_or_else(|| Diagnostic::error("the data is not looked at here"))
}

/// Reads a configuration that may ask for the number of classes: `read` with what is known of it.
///
/// # Errors
/// Those of `read`; the number is asked for and cannot be known.
pub fn with_classes(read: &dyn Fn(Classes) -> Result<Loaded, Failure>, ask: Ask) -> Result<Loaded, Failure> {
    let loaded = read(Classes::Later)?;
    let Some(asked) = loaded.classes else { return Ok(loaded) };
    let table = matches!(loaded.experiment.data.source, Source::Csv(_));
    let refuse = |span: Span, why: Diagnostic| {
        // What is wrong with a table has nothing to do with how many classes there are.
        if table {
            return Failure { sources: loaded.sources.clone(), diagnostics: vec![why] };
        }
        let mut error = Diagnostic::error("the number of classes is not known, and `$classes` asks for it");
        error = error.at(span, "what the data says").note(why.message);
        if let Some(place) = why.labels.first() {
            error = error.context(place.span, place.text.clone());
        }
        let help = "name the classes with `classes` in `[data]` if the data is elsewhere, or write a number in the place of `$classes`";
        let diagnostics = vec![error.help(help)];
        Failure { sources: loaded.sources.clone(), diagnostics }
    };
    match (ask(&loaded.experiment), asked) {
        (Ok(Some(number)), _) => read(Classes::Known(number)),
        // What is wrong with the data is told by whoever reads it.
        (Ok(None) | Err(_), Asked::Unset) => read(Classes::Unknown),
        (Err(why), Asked::Written(span)) => Err(refuse(span, why)),
        (Ok(None), Asked::Written(span)) => {
            Err(refuse(span, Diagnostic::error("the targets of the data are numbers, not classes")))
        }
    }
}

//! The figures that can be watched: those of a model, and those of its heads.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::metrics::Metric;
use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, deserialize};
use crate::config::text::tree::Node;
use crate::config::text::words::nearest;
use crate::graph::op::{Figure, Task};

const VALIDATION: &str = "val_";
const TRAINING: &str = "train_";

/// A figure of an epoch that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Monitor {
    /// One of the model: of its main target, or the sum of all losses.
    Model(Metric),
    /// One of a head.
    Head(OfHead),
}

/// A figure of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfHead {
    written: String,
    /// What the head is called. Empty: the name is that of no figure, which the rules report, as they know the heads.
    pub head: String,
    /// What is measured.
    pub figure: Figure,
}

/// The figures of heads.
fn figures() -> impl Iterator<Item = Figure> {
    let of =
        |figure: &Figure| [Task::Classification, Task::Regression].iter().any(|task| task.figures().contains(figure));
    Figure::ALL.into_iter().filter(of)
}

impl Monitor {
    /// The figure of that name in `metrics.jsonl`, if there can be one.
    pub fn named(name: &str) -> Option<Monitor> {
        if let Some(metric) = Metric::ALL.iter().find(|metric| metric.name() == name) {
            return Some(Monitor::Model(*metric));
        }
        // Of training the loss alone is watched, as of a model.
        let of = |figure: Figure| {
            let prefix = if figure == Figure::Loss { [VALIDATION, TRAINING].as_slice() } else { &[VALIDATION] };
            let rest = prefix.iter().find_map(|prefix| name.strip_prefix(prefix))?;
            let head = rest.strip_suffix(figure.name())?.strip_suffix('_').filter(|head| !head.is_empty())?;
            Some(Monitor::Head(OfHead { written: name.to_owned(), head: head.to_owned(), figure }))
        };
        figures().find_map(of)
    }

    /// Its name, in configurations and in `metrics.jsonl`.
    pub fn name(&self) -> &str {
        match self {
            Monitor::Model(metric) => metric.name(),
            Monitor::Head(of) => &of.written,
        }
    }

    /// What is measured.
    pub fn figure(&self) -> Figure {
        match self {
            Monitor::Model(metric) => metric.figure(),
            Monitor::Head(of) => of.figure,
        }
    }

    /// The figure, if it is one of the model.
    pub fn of_model(&self) -> Option<Metric> {
        match self {
            Monitor::Model(metric) => Some(*metric),
            Monitor::Head(_) => None,
        }
    }

    /// Whether it is measured on the validation samples; else on those of training.
    pub fn of_validation(&self) -> bool {
        self.name().starts_with(VALIDATION)
    }

    /// Whether more is better.
    pub fn higher_is_better(&self) -> bool {
        self.figure().higher_is_better()
    }
}

impl From<Metric> for Monitor {
    fn from(metric: Metric) -> Self {
        Monitor::Model(metric)
    }
}

impl Serialize for Monitor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Value for Monitor {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let name = node.as_str().unwrap_or_default();
        if let Some(monitor) = Monitor::named(name) {
            return Some(monitor);
        }
        // It may be a figure of a head. The heads are known once the whole configuration is read.
        let ends = |figure: Figure| name.strip_suffix(figure.name()).is_some_and(|rest| rest.ends_with('_'));
        let prefix = [VALIDATION, TRAINING].iter().any(|prefix| name.starts_with(prefix));
        let far = || nearest(name, Metric::ALL.iter().map(|metric| metric.name())).is_none();
        if figures().any(ends) || prefix && far() {
            let of = OfHead { written: name.to_owned(), head: String::new(), figure: Figure::Loss };
            return Some(Monitor::Head(of));
        }
        deserialize::<Metric>(part, key, node).map(Monitor::Model)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        let of_validation = figures().map(Figure::name).collect::<Vec<_>>().join("|");
        let loss = Figure::Loss.name();
        let pattern = format!("^({VALIDATION}.+_({of_validation})|{TRAINING}.+_{loss})$");
        let of_head = json_schema!({ "type": "string", "title": "val_HEAD_FIGURE", "pattern": pattern });
        json_schema!({ "anyOf": [generator.subschema_for::<Metric>(), of_head] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_heads_are_distinguished_from_those_of_the_model() {
        let of = |name: &str| match Monitor::named(name) {
            Some(Monitor::Head(of)) => Some((of.head, of.figure)),
            _ => None,
        };
        assert_eq!(of("val_sold_accuracy"), Some(("sold".to_owned(), Figure::Accuracy)));
        assert_eq!(of("train_a_log_loss"), Some(("a_log".to_owned(), Figure::Loss)));
        assert_eq!(of("val_größe_rmse"), Some(("größe".to_owned(), Figure::Rmse)));
        for none in
            ["val_loss", "val_balanced_accuracy", "val__loss", "train_sold_accuracy", "sold_loss", "val_sold_auroc"]
        {
            assert_eq!(of(none), None, "{none}");
        }
        for metric in Metric::ALL {
            let monitor = Monitor::named(metric.name()).unwrap();
            assert_eq!(monitor, Monitor::from(*metric));
            assert_eq!((monitor.of_validation(), monitor.figure()), (metric.of_validation(), metric.figure()));
        }
    }
}

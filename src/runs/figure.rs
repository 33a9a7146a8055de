//! What is known of figures by their names in `metrics.jsonl`.

use crate::graph::op::Figure;

/// The figure that is called so: `val_accuracy`, `accuracy`.
fn figure(name: &str) -> Option<&'static Figure> {
    let name = ["val_", "train_"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    Figure::ALL.iter().find(|known| known.name() == name)
}

/// Whether more is better of it.
pub fn higher_is_better(name: &str) -> bool {
    figure(name).is_some_and(|figure| figure.higher_is_better())
}

/// Whether it is a share of one.
pub fn is_share(name: &str) -> bool {
    figure(name).is_some_and(|figure| figure.is_share())
}

//! What is known of figures by their names in `metrics.jsonl`.

use crate::graph::op::Figure;

/// The figure that is called so: `val_accuracy`, `accuracy`, or of a head `val_sold_accuracy`.
fn figure(name: &str) -> Option<&'static Figure> {
    let name = ["val_", "train_"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let of_head = |known: &&Figure| name.strip_suffix(known.name()).is_some_and(|head| head.ends_with('_'));
    let exact = Figure::ALL.iter().find(|known| known.name() == name);
    exact.or_else(|| Figure::ALL.iter().filter(of_head).max_by_key(|known| known.name().len()))
}

/// Whether more is better of it.
pub fn higher_is_better(name: &str) -> bool {
    figure(name).is_some_and(|figure| figure.higher_is_better())
}

/// Whether it is a share of one.
pub fn is_share(name: &str) -> bool {
    figure(name).is_some_and(|figure| figure.is_share())
}

/// The loss that is measured with it: `val_loss` of `val_accuracy`, `val_sold_loss` of `val_sold_accuracy`.
pub fn loss_beside(name: &str) -> Option<String> {
    Some(format!("{}{}", name.strip_suffix(figure(name)?.name())?, Figure::Loss.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_heads_are_what_their_names_end_with() {
        let all = ["val_accuracy", "sold_accuracy", "train_sold_loss", "val_price_rmse", "val_top5_accuracy"];
        assert_eq!(all.map(higher_is_better), [true, true, false, false, true]);
        assert_eq!(all.map(is_share), [true, true, false, false, true]);
        let losses = ["val_accuracy", "val_sold_accuracy", "train_loss", "samples_per_s"].map(loss_beside);
        let wanted = [Some("val_loss"), Some("val_sold_loss"), Some("train_loss"), None];
        assert_eq!(losses, wanted.map(|name| name.map(str::to_owned)));
        assert!(figure("samples_per_s").is_none() && figure("xloss").is_none());
    }
}

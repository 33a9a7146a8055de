//! Texts of all kinds on several ranks.

use super::support::{Place, assert_same_runs};
use super::{prompted, text, text_to_text};

#[test]
fn two_ranks_come_to_what_one_does() {
    let classifier = Place::with(&text::classifier(""));
    classifier.write("reviews.csv", text::reviews(60));
    for (place, length) in [
        (text::place(), "--set train.steps=6 --set train.eval_every_steps=3"),
        (classifier, "--set train.epochs=1"),
        (text_to_text::place(), "--set train.epochs=1 --set data.limit=48"),
        (prompted::place(), "--set train.epochs=2 --set data.limit=80"),
    ] {
        let sets = format!("--set distributed.shards=2 {length}");
        place.ok(&format!("train c.toml --out one {sets}"));
        place.ok(&format!("launch --ranks 2 -- train c.toml --out two {sets}"));
        assert_same_runs((&place, "one"), (&place, "two"));
    }
}

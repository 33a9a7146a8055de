//! Figures of a model on a file that its training has not seen.

use super::ranked::config;
use super::support::Place;
use serde_json::Value;

/// As many lines as are wanted, of words in an order of their own, each with a label after it if it is to have one.
fn lines(count: usize, seed: usize, label: bool) -> String {
    let words = ["lake", "stone", "horse", "moon", "bee", "apple", "river"];
    let line = |i: usize| {
        let of = |k: usize| words[(i * seed + k * k * (i + seed)) % 7];
        let label = if label { [",p", ",n"][i % 2] } else { "" };
        format!("{} {} {} {}{label}\n", of(1), of(2), of(3), of(4))
    };
    (0..count).map(line).collect()
}

/// The file that was trained on need not be there, and what holds samples out is left out.
#[test]
fn a_model_is_evaluated_on_another_file() {
    let place = Place::new();
    let rows = |count: usize, seed: usize| -> String {
        (0..count).map(|i| format!("{},{},{}\n", i * seed % 13, i % 5, (i * seed) % 13 + i % 5)).collect()
    };
    place.write("text.txt", lines(100, 3, false));
    place.write("other.txt", lines(20, 5, false));
    // A row without a target is left out, with one note.
    place.write("table.csv", format!("a,b,y\n{}", rows(60, 3)));
    place.write("other.csv", format!("a,b,y\n{}1,2,\n", rows(20, 5)));
    place.write("sorted.csv", format!("text,label\n{}", lines(60, 3, true)));
    place.write("more.csv", format!("text,label\n{}lake,\n", lines(20, 5, true)));
    for (file, target, other) in [
        ("text.txt", "", "other.txt"),
        ("table.csv", "--target y", "other.csv"),
        ("sorted.csv", "--target label", "more.csv"),
    ] {
        place.ok(&format!("init {file} {target} --out c.toml --force"));
        place.ok(&format!("train c.toml --out run-{file} --quiet --set train.max_steps=3"));
        let sets = format!("--unset data.validation_split --set data.val_path={other}");
        let wanted = place.ok(&format!("eval run-{file} {sets} --json")).json();
        std::fs::remove_file(place.path(file)).unwrap();
        let found = place.ok(&format!("eval run-{file} --data {other} --json"));
        let notes: Vec<&str> = found.err.lines().filter(|line| line.starts_with("note: ")).collect();
        assert!(notes.len() == 1 && !found.err.contains("warning"), "{}", found.err);
        let found = found.json();
        let [found, wanted] =
            [found, wanted].map(|evaluation: Value| (evaluation["samples"].clone(), evaluation["metrics"].clone()));
        assert_eq!(found, wanted, "{file}");
        assert!(found.0.as_u64().is_some_and(|samples| samples > 0), "{found:?}");
    }
    // What is learnt is no column that the model takes.
    place.write("without.csv", "a,b,z\n1,2,3\n");
    let error = place.fails("eval run-table.csv --data without.csv", 2);
    assert!(error.contains("`without.csv`: `target` names a column `y`, which the table does not have"), "{error}");
}

#[test]
fn a_file_is_for_sources_that_read_one() {
    let place = Place::with(&config("epochs = 1", ""));
    place.ok("train c.toml --out r --quiet --set train.max_steps=1");
    place.write("x.csv", "a\n");
    let error = place.fails("eval r --data x.csv", 2);
    assert!(error.contains("`--data` names a file, and `source = \"digits\"` reads none"), "{error}");
    let error = place.fails("eval r --data x.csv --split train", 2);
    assert!(error.contains("cannot be used with"), "{error}");
}

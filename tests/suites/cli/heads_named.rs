//! Heads by their names: the numbers of their classes in a model, and their figures where one is watched.

use super::heads::{HEADS, place};
use super::support::Place;

/// A configuration in which words are replaced.
fn changed(place: &Place, changes: &[(&str, &str)]) {
    let text = changes.iter().fold(place.read("c.toml"), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    place.write("w.toml", text);
}

#[test]
fn a_model_takes_the_numbers_of_classes_of_its_heads() {
    let place = place(HEADS, "");
    place.ok("train c.toml --quiet --out written --set train.epochs=1");
    let asks = ("out_features = 3", "out_features = \"$classes.sold\"");
    changed(&place, &[asks]);
    place.ok("train w.toml --quiet --out asked --set train.epochs=1");
    let model = |run: &str| std::fs::read(place.path(run).join("last.safetensors")).unwrap().len();
    assert_eq!(model("written"), model("asked"));
    // In expressions, parameters and blocks, beside that of the main target.
    changed(
        &place,
        &[
            (
                "[model]",
                "[params]\nends = \"2 * $classes.sold - 3\"\n[blocks.head]\nlayers = [{ type = \"linear\", out_features = \"$classes.sold * 1\" }]\n[model]",
            ),
            ("out_features = 24", "out_features = \"$ends\""),
            ("{ name = \"sold\", type = \"linear\", out_features = 3 }", "{ name = \"sold\", block = \"head\" }"),
            (
                "{ name = \"price\", type = \"linear\", out_features = 1",
                "{ name = \"price\", type = \"linear\", out_features = \"$classes\"",
            ),
        ],
    );
    let stdout = place.ok("check w.toml").out;
    let width =
        |layer: &str| stdout.lines().any(|line| line.split_whitespace().take(4).eq([layer, "linear", "[32,", "3]"]));
    assert!(["body.0", "sold.0"].into_iter().all(width), "{stdout}");
    // A name may have a `-`, as a difference has: the longest that there is counts.
    let named = [("target = \"sold\"\n", "name = \"so-ld\"\noutput = \"sold\"\ntarget = \"sold\"\n")];
    let minus = ("out_features = 3", "out_features = \"$classes.so-ld-0\"");
    changed(&place, &[named[0], minus]);
    place.ok("check w.toml");
    // A run that goes on has the number that it began with.
    changed(&place, &[asks]);
    place.ok("train w.toml --quiet --out r --set train.epochs=1");
    place.write("t.csv", place.read("t.csv") + &"100,3,A,12000,never,1\n".repeat(40));
    assert!(place.ok("check w.toml").out.contains("[32, 4]"));
    place.ok("predict r t.csv --format csv");
}

#[test]
fn missing_classes_of_heads_are_errors_with_their_place() {
    let place = place(HEADS, "");
    let refused = |changes: &[(&str, &str)], parts: &[&str]| {
        changed(&place, changes);
        let message = place.fails("check w.toml", 2);
        parts.iter().for_each(|part| assert!(message.contains(part), "{part}: {message}"));
    };
    let asks = |name: &'static str| [("out_features = 3", name)];
    refused(
        &asks("out_features = \"$classes.solde\""),
        &[
            "there is no head `solde`, whose classes are asked for",
            "did you mean `sold`?",
            "the heads are `sold` and `kids`",
            "1 error",
        ],
    );
    refused(&asks("out_features = \"$classes.\""), &["the name of a head must follow `$classes.`"]);
    refused(
        &asks("out_features = \"$classes.kids\""),
        &[
            "the head `kids` has no classes, and `$classes.kids` asks for their number",
            "a loss of numbers",
            "write 1: with the loss `bce_with_logits`",
        ],
    );
    refused(
        &[("out_features = 3", "out_features = \"$classes.sold\""), ("\"cross_entropy\"", "\"mse\"")],
        &["the head `sold` has no classes"],
    );
    refused(
        &[("out_features = 3", "out_features = \"$classes.sold + 1\"")],
        &["puts out [32, 4], and there are 3 classes of `sold`"],
    );
    changed(
        &place,
        &[("out_features = 3", "out_features = \"$classes.sold\""), ("path = \"t.csv\"", "path = \"u.csv\"")],
    );
    assert!(place.fails("check w.toml", 1).contains("u.csv"));
    refused(
        &[(HEADS, ""), ("out_features = 3", "out_features = \"$classes.sold\"")],
        &["there is no head `sold`", "the configuration has no `[[heads]]`"],
    );
}

/// The best checkpoint, early stopping and the learning rate follow the figures of heads.
#[test]
fn figures_of_heads_are_watched() {
    let more = "early_stopping = { monitor = \"val_sold_accuracy\", patience = 2, min_delta = 1.0 }\n\
                [checkpoint]\nmonitor = \"val_kids_loss\"\n[schedule]\ntype = \"plateau\"\nmonitor = \"train_sold_loss\"\npatience = 0\nthreshold = 0.9\n";
    let place = place(HEADS, more);
    let done = place.ok("train c.toml --out r");
    let all = done.out.clone() + &done.err;
    for part in ["best val_kids_loss", "`train_sold_loss` no longer improves"] {
        assert!(all.contains(part), "{part}: {done:?}");
    }
    // No accuracy is better by a whole than that before.
    let lines = place.metrics("r");
    let epochs: Vec<_> = lines.iter().filter(|line| line["kind"] == "epoch").collect();
    assert_eq!(epochs.len(), 3, "{done:?}");
    let kids: Vec<f64> = epochs.iter().map(|line| line["val_kids_loss"].as_f64().unwrap()).collect();
    let best = kids.iter().copied().fold(f64::INFINITY, f64::min);
    let runs = place.ok("runs . --json").json();
    assert_eq!(
        (&runs[0]["best"]["figure"], runs[0]["best"]["value"].as_f64()),
        (&"val_kids_loss".into(), Some(best)),
        "{runs}"
    );
    let chosen = place.ok("eval r --json").json();
    assert!(
        (chosen["metrics"]["kids_loss"].as_f64().unwrap() - best).abs() < 1e-6
            && chosen["chosen"]["monitor"] == "val_kids_loss",
        "{chosen}"
    );
    place.ok("verify r");
}

#[test]
fn a_sweep_compares_trials_by_a_head() {
    let place = place(HEADS, "");
    let done = place.ok(
        "sweep c.toml --sweep optimizer.lr=0.001,0.02 --monitor val_sold_loss --set train.epochs=2 --out s --quiet --json",
    );
    assert_eq!(done.json()["monitor"], "val_sold_loss");
    let runs = place.ok("runs s --json").json();
    let watched: Vec<&serde_json::Value> = runs.as_array().unwrap().iter().map(|run| &run["monitor"]).collect();
    assert_eq!(watched, ["val_sold_loss"; 2]);
}

#[test]
fn the_error_of_an_unknown_figure_names_those_that_there_are() {
    let place = place(HEADS, "[checkpoint]\nmonitor = \"val_sold_loss\"\n");
    let all = "there are `val_loss`, `val_mae`, `val_rmse`, `val_r2`, `val_mape`, `val_sold_loss`, `val_sold_accuracy`, `val_kids_loss`, `val_kids_accuracy` and `train_loss`";
    let refused = |name: &str, parts: &[&str]| {
        let message = place.fails(&format!("check c.toml --set checkpoint.monitor={name}"), 2);
        parts.iter().for_each(|part| assert!(message.contains(part), "{part}: {message}"));
    };
    refused("val_slod_loss", &["there is no figure `val_slod_loss`", "did you mean `val_sold_loss`?", all]);
    refused("val_sold_rmse", &["there is no `val_sold_rmse` with the loss `cross_entropy`", "the loss of `sold`", all]);
    refused("val_accuracy", &["there is no `val_accuracy` with the loss `mse`", all]);
    refused("sold_accuracy", &["there is no figure `sold_accuracy`", "did you mean `val_sold_accuracy`?", all]);
    refused("train_sold_accuracy", &["there is no figure `train_sold_accuracy`", all]);
    refused("val_kids_quality", &["there is no figure `val_kids_quality`", all]);
    let without = place.read("c.toml").replace(HEADS, "");
    place.write("n.toml", without);
    let message = place.fails("check n.toml", 2);
    for part in [
        "there is no figure `val_sold_loss`",
        "there are no `[[heads]]`",
        "there are `val_loss`, `val_mae`, `val_rmse`, `val_r2`, `val_mape` and `train_loss`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

//! All mistakes of a file are reported at once, each where it is. A mistake that only follows from another one is not reported.

use super::support::{Place, plain};

/// The lines and columns of all errors of a configuration, in their order.
fn places(place: &Place, config: &str, more: &str) -> Vec<String> {
    place.write("w.toml", config);
    let message = place.fails(&format!("check w.toml {more}"), 2);
    let places: Vec<String> =
        message.lines().filter_map(|line| Some(line.trim().strip_prefix("--> ")?.to_owned())).collect();
    let errors = message.lines().filter(|line| line.starts_with("error")).count();
    assert_eq!(errors, places.len(), "{message}");
    let own = |place: String| place.strip_prefix("w.toml:").map_or(place.clone(), str::to_owned);
    places.into_iter().map(own).collect()
}

/// A configuration of the bundled digits with these layers and more keys of its sections.
fn with(model: &str, data: &str, optimizer: &str, train: &str) -> String {
    format!(
        "[data]\nsource = \"digits\"\n{data}\n[model]\n{model}\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\n{optimizer}\n[train]\n{train}\n"
    )
}

const LAYERS: &str = "layers = [\"flatten\", { name = \"a\", type = \"linear\", out_features = 10 }]";

#[test]
fn a_file_that_is_not_there_hides_nothing() {
    let place = Place::new();
    let model = "use = \"resnet19\"\nwith = { num_classes = 10 }\nfreeze = \"x\"";
    let config = with(model, "batch_size = 32\nbatsh = 1", "type = \"sgd\"\nlr = -0.1", "epochs = 1\nx = 1");
    assert_eq!(places(&place, &config, ""), ["4:1", "6:7", "8:10", "13:6", "16:1"]);
    // What the base may have is not missed, and what it may define is not unknown.
    let config = "extends = \"nowhere.toml\"\n[data]\nbatsh = 1\n[model]\n\
                  layers = [{ type = \"linear\", out_features = \"$width\" }, { block = \"b\" }, { type = \"linnear\" }]\n\
                  [optimizer]\nlr = -0.1\n[schedule]\nwarmup_steps = -1\n";
    assert_eq!(places(&place, config, ""), ["1:11", "3:1", "5:83", "7:6", "9:16"]);
}

#[test]
fn shapes_hide_no_patterns_and_keys_hide_no_shapes() {
    let place = Place::new();
    let optimizer = "type = \"sgd\"\nlr = 0.1\ngroups = [{ match = [\"nothing.*\"], lr = 0.1 }, { match = [\"wrong.*\"], lr = 0.1 }]";
    let layers = "layers = [\n\"flatten\",\n{ name = \"a\", type = \"linear\", out_features = 8 },\n\
                  { name = \"wrong\", type = \"conv2d\", out_channels = 8, kernel_size = 3 },\n\"flatten\",\n\
                  { name = \"b\", type = \"linear\", out_features = 10 },\n]\nfreeze = [\"c\"]";
    // The layer that does not fit has no parameters yet. That its pattern fits none is not reported.
    let config = with(layers, "batch_size = 32", optimizer, "epochs = 1");
    assert_eq!(places(&place, &config, ""), ["8:26", "12:11", "18:22"]);
    let config = with(layers, "batch_size = 32\nx = 1", optimizer, "epochs = 1\ny = 1");
    assert_eq!(places(&place, &config, ""), ["4:1", "9:26", "13:11", "19:22", "22:1"]);
    // A misspelt key has its value all the same: the layers after it are judged by it.
    let layers = "layers = [{ type = \"conv2d\", out_chanels = 8, kernel_size = 3 },\n{ type = \"linear\", out_features = 3 },\n\
                  \"flatten\", { type = \"linear\", out_features = 11 }]";
    let config = with(layers, "batch_siz = 32", "type = \"sgd\"\nlr = 0.1", "epochs = 1");
    assert_eq!(places(&place, &config, ""), ["3:1", "5:30", "6:10", "7:21"]);
    // Of a layer that is not known nothing follows, also not for those that take its output. How many numbers the last layer puts out is known.
    let layers = "layers = [{ name = \"p\", type = \"poool\" },\n{ type = \"linear\", out_features = 3 },\n\
                  { name = \"s\", type = \"add\", from = [\"p\", \"p\"] },\n\"flatten\", { type = \"linear\", out_features = 11 }]";
    let config = with(layers, "batch_size = 32", "type = \"sgd\"\nlr = 0.1", "epochs = 1");
    assert_eq!(places(&place, &config, ""), ["5:32", "8:21"]);
}

#[test]
fn an_unknown_type_hides_no_other_keys() {
    let place = Place::new();
    let optimizer =
        "type = \"sgdd\"\nlr = \"fast\"\nmomemtum = 0.9\nbetas = [0.9, 2]\ngroups = [{ match = [\"x.*\"], lr = 0.1 }]";
    let config = with(LAYERS, "batch_size = 32", optimizer, "epochs = 0\nx = 1");
    assert_eq!(places(&place, &config, ""), ["9:8", "10:6", "11:1", "12:15", "13:22", "15:10", "16:1"]);
    let config = with(LAYERS, "batch_size = 0\nx = 1", "tpe = \"sgd\"\nlr = 0.1\ny = 1", "epochs = 1")
        .replace("\"digits\"", "\"digit\"");
    assert_eq!(places(&place, &config, ""), ["2:10", "3:14", "4:1", "10:1", "12:1"]);
}

/// A table of prices, and a configuration that learns them.
fn prices(place: &Place, data: &str) -> String {
    let rows: String = (0..40).map(|i| format!("{i},{},{},{}\n", i % 7, i % 5, i * 3)).collect();
    place.write("t.csv", format!("id,rooms,town,price\n{rows}"));
    format!(
        "[data]\nsource = \"csv\"\npath = \"t.csv\"\nbatch_size = 8\n{data}\n[model]\nlayers = [{{ type = \"linear\", out_features = 1 }}]\n\
         [loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n"
    )
}

#[test]
fn missing_columns_are_errors_where_they_are_named() {
    let place = Place::new();
    let config = prices(&place, "target = \"prise\"");
    assert_eq!(places(&place, &config, ""), ["5:10"]);
    assert!(place.fails("check w.toml", 2).contains("did you mean `price`?"));
    let config = prices(&place, "target = \"price\"\ndrop = [\n\"id\",\n\"x*\"]");
    assert_eq!(places(&place, &config, ""), ["8:1"]);
    let config = prices(&place, "target = \"price\"\ncolumns = { rooms = \"number\", twon = \"category\" }");
    assert_eq!(places(&place, &config, ""), ["6:31"]);
    let config = prices(&place, "target = \"price\"\n[data.columns.price]\ntype = \"number\"");
    assert_eq!(places(&place, &config, ""), ["6:15"]);
    assert_eq!(places(&place, &prices(&place, ""), "--set data.target=prise"), ["--set data.target=prise:1:13"]);
    // All of them at once.
    let config = prices(&place, "target = [\"price\", \"rom\"]\nid = \"idd\"\ndrop = [\"id\"]\nsample_weight = \"w\"");
    place.write("w.toml", &config);
    let message = place.fails("check w.toml", 2);
    assert!(message.contains("the table does not have the columns `rom`, `idd`, `w`"), "{message}");
    for (line, label) in [("5 |", "no such column"), ("6 |", "did you mean `id`?"), ("8 |", "no such column")] {
        let (_, after) = message.split_once(&format!("\n{line}")).unwrap_or_else(|| panic!("{line}: {message}"));
        assert!(after.lines().nth(1).unwrap_or_default().contains(label), "{line} {label}: {message}");
    }
}

#[test]
fn unclosed_brackets_and_strings_are_errors_where_they_begin() {
    let place = Place::new();
    let good = plain();
    let broken = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}: {good}");
        good.replacen(from, to, 1)
    };
    let line = |text: &str, part: &str| text[..text.find(part).unwrap()].matches('\n').count() + 1;
    let list = broken("out_features = 10 }]", "out_features = 10 }");
    assert_eq!(places(&place, &list, ""), [format!("{}:10", line(&list, "layers = ["))]);
    assert!(place.fails("check w.toml", 2).contains("this `[` is not closed"));
    let string = broken("\"digits\"", "\"digits");
    assert_eq!(places(&place, &string, ""), [format!("{}:10", line(&string, "\"digits"))]);
}

#[test]
fn a_fold_needs_folds() {
    let place = Place::new();
    let config = prices(&place, "target = \"price\"");
    place.write("w.toml", config);
    let message = place.fails("train w.toml --out never --set data.fold=2", 2);
    assert!(
        message.contains("`fold` in `[data]` needs `folds`") && message.contains("--set data.folds=5"),
        "{message}"
    );
    assert!(!place.path("never").exists());
}

#[test]
fn warnings_of_decisions_on_the_test_set_come_once_for_lines_of_the_user() {
    let warnings = |text: &str| text.matches("the test set makes decisions").count();
    let place = Place::with(&plain());
    // Every run has its `best`: it alone is reported at the end.
    for command in ["train c.toml --out a", "train c.toml --out b --set train.seeds=2"] {
        let done = place.ok(command);
        assert_eq!(warnings(&done.err), 0, "{command}: {}", done.err);
    }
    assert_eq!(warnings(&place.ok("train --resume a --set train.epochs=3").err), 0);
    // The configuration of a run has what is usual written out, which is no choice either.
    assert!(place.read("a/config.toml").contains("monitor = "));
    assert_eq!(warnings(&place.ok("train a/config.toml --out again").err), 0);
    // The warning comes at the beginning: for the user's own file, once for all seeds, and not again when the run goes on.
    place.write("w.toml", plain() + "[checkpoint]\nmonitor = \"val_loss\"\n");
    for command in ["check w.toml", "train w.toml --out c", "train w.toml --out d --set train.seeds=2"] {
        let done = place.ok(command);
        assert_eq!(warnings(&done.err), 1, "{command}: {}", done.err);
        assert!(done.err.contains("--> w.toml:"), "{command}: {}", done.err);
    }
    for command in ["train --resume c --set train.epochs=3", "train --resume d"] {
        let done = place.ok(command);
        assert_eq!(warnings(&done.err), 0, "{command}: {}", done.err);
    }
}

//! The table of models in docs/models.md, made from the files of `models/`: their first comment, their parameters, and what
//! `runner check` says of them.

use std::collections::BTreeMap;
use std::path::Path;

use runner::config;
use runner::graph::{Shape, Variables};
use runner::model::{self, Mode};
use runner::train::setup::input::describe;
use serde_json::Value;
use toml::Table;

use crate::options::hold_fresh;

/// Title and paper of a file: its first comment is `TITLE (PAPER, URL): …`.
fn head(text: &str) -> (String, String) {
    let line = text.lines().nth(1).and_then(|line| line.strip_prefix("# ")).expect("a comment below the schema");
    let (title, rest) = line.split_once(" (").expect("a paper in parentheses");
    let (paper, _) = rest.split_once(')').expect("its end");
    let paper = match paper.split_once(", https://") {
        Some((paper, url)) => format!("[{paper}](https://{url})"),
        None => paper.to_owned(),
    };
    (title.to_owned(), paper)
}

/// Parameters and multiply-adds for one image, as `runner check` counts them.
fn counted(path: &Path, shape: &[usize], classes: Option<i64>) -> (usize, u64) {
    let learns_classes_of_texts = classes.is_some();
    // What has no classes learns its input.
    let learns_classes = classes.is_some() || matches!(shape, [context] if *context != FEATURES);
    let loss = match shape {
        [_, _] => "'mse'",
        _ if learns_classes => "'cross_entropy'",
        _ => "'mse'\ntarget = 'inputs'",
    };
    let classes = classes.unwrap_or(2);
    let folder = tempfile::tempdir().unwrap();
    let data = match shape {
        // So many tokens.
        [context] if *context != FEATURES => {
            let (file, text) = (folder.path().join("input.txt"), "a word and another\n".repeat(context / 8 + 2));
            std::fs::write(&file, text).unwrap();
            match learns_classes_of_texts {
                // Of two sequences each has so many.
                false if WRITERS.iter().any(|name| path.ends_with(name)) => {
                    std::fs::write(&file, "text,answer\na,b\n").unwrap();
                    format!("source = 'text_to_text'\npath = {file:?}\nmax_length = {context}")
                }
                false => format!("source = 'text'\npath = {file:?}\ntokenizer = 'bytes'\ncontext = {context}"),
                true => {
                    if path.ends_with("lstm_tagger.toml") {
                        let tags = (0..classes).map(|number| format!("word T{number}\n")).collect::<String>();
                        std::fs::write(&file, tags).unwrap();
                    } else {
                        std::fs::write(&file, "label,text\na,one\nb,two\n").unwrap();
                    }
                    let source = if path.ends_with("lstm_tagger.toml") { "text_tags" } else { "text_classes" };
                    format!("source = '{source}'\npath = {file:?}\nmax_length = {context}")
                }
            }
        }
        [rows, columns] => {
            let file = folder.path().join("series.csv");
            let cells =
                |row: usize| (0..*columns).map(move |column| row * (column + 3) % 101).map(|cell| cell.to_string());
            let names = (0..*columns).map(|column| format!("x{column}"));
            let lines = std::iter::once(names.collect::<Vec<_>>()).chain((0..100).map(|row| cells(row).collect()));
            std::fs::write(&file, lines.map(|line| line.join(",") + "\n").collect::<String>()).unwrap();
            format!("source = 'csv'\npath = {file:?}\ntarget = 'x0'\nwindow = {rows}\nhorizon = {classes}")
        }
        [_] => {
            let file = folder.path().join("table.csv");
            let mut text: String = (0..FEATURES).map(|column| format!("x{column},")).collect();
            text += "y\n";
            for row in 0..100 {
                (0..FEATURES).for_each(|column| text += &format!("{},", (row * (column + 3)) % 101));
                text += &format!("class {}\n", row as i64 % classes);
            }
            std::fs::write(&file, text).unwrap();
            format!("source = 'csv'\npath = {file:?}\ntarget = 'y'")
        }
        _ => format!("source = 'synthetic'\nshape = {shape:?}\nclasses = {classes}"),
    };
    let text = format!(
        "[data]\n{data}\n[model]\nuse = {path:?}\n\
         [loss]\ntype = {loss}\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
    );
    let loaded = config::load_str("table.toml", &text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    let mut data = describe(&loaded.experiment).unwrap_or_else(|e| panic!("{e:?}"));
    if path.ends_with("unet.toml") {
        // A class for each pixel.
        let targets = data.fields.iter_mut().filter(|field| field.is_target());
        targets.for_each(|field| field.shape = Shape::from(&shape[1..]));
    }
    let forward = model::forward(&loaded.experiment, &data, &mut Variables::new(), 1, Mode::Eval);
    let rows = forward.unwrap_or_else(|e| panic!("{}: {e:?}", path.display())).rows;
    (rows.iter().map(|row| row.params).sum(), rows.iter().map(|row| row.flops).sum::<u64>() / 2)
}

/// The models that answer texts.
const WRITERS: [&str; 2] = ["gru_seq2seq.toml", "transformer.toml"];

/// Numbers in a row of the table that the model for tables is counted for.
const FEATURES: usize = 16;

/// Rows of a window that the model for series is counted for.
const WINDOW: usize = 28;

/// Tokens that models of text are counted for.
const TOKENS: usize = 128;

/// A number with three digits that count, in millions.
fn millions(n: u64) -> String {
    let n = n as f64 / 1e6;
    let digits = (2 - n.log10().floor() as i32).clamp(0, 2);
    format!("{n:.*}", digits as usize)
}

#[test]
fn the_readme_says_how_many_models_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let count = std::fs::read_dir(root.join("models")).unwrap().count();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for words in
        [format!("the {count} [architectures](docs/models.md)"), format!("[{count} in `models/`](docs/models.md)")]
    {
        assert!(readme.contains(&words), "{words}");
    }
}

#[test]
fn the_table_of_models_is_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let mut rows = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let (title, paper) = head(&text);
        let params = toml::from_str::<Table>(&text).unwrap().remove("params").expect("a model has parameters");
        // Their order in the file.
        let lines = text.lines().skip_while(|line| *line != "[params]").skip(1).take_while(|line| !line.is_empty());
        let with: Vec<String> = lines.map(|line| format!("`{line}`")).collect();
        assert_eq!(with.len(), params.as_table().unwrap().len(), "{file}: a parameter a line");
        // Those that begin with ten classes, or have none, are for small images.
        let classes = params.get("num_classes").map(|classes| classes.as_integer().expect("a number of classes"));
        let side = if classes.is_none_or(|classes| classes == 10) { 32 } else { 224 };
        let (shape, samples) = match file {
            "dlrm.toml"
            | "linear.toml"
            | "tabm.toml"
            | "tabular.toml"
            | "tabular_mlp.toml"
            | "tabular_resnet.toml"
            | "ft_transformer.toml" => (vec![FEATURES], format!("rows of {FEATURES} numbers")),
            "lstm_forecaster.toml" => {
                (vec![WINDOW, FEATURES], format!("windows of {WINDOW} rows of {FEATURES} numbers"))
            }
            _ if WRITERS.contains(&file) => (vec![TOKENS], format!("{TOKENS} tokens, and {TOKENS} of the answer")),
            _ if params.get("vocabulary").is_some() => (vec![TOKENS], format!("{TOKENS} tokens")),
            _ => (vec![3, side, side], format!("{side}×{side}")),
        };
        let (parameters, macs) = counted(&path, &shape, classes);
        let numbers = format!("{} | {} | {samples}", millions(parameters as u64), millions(macs));
        let row = format!("| {title} | `{file}` | {numbers} | {} | {paper} |\n", with.join(", "));
        let kind = if shape == [TOKENS] { usize::MAX } else { side };
        rows.insert((kind, title), row);
    }
    let rows: String = rows.into_values().collect();
    let head = "| model | file | parameters, millions | multiply-adds, millions | for images of | `with` | paper |\n| --- | --- | --- | --- | --- | --- | --- |\n";
    let tables = [("models".to_owned(), head.to_owned() + &rows), ("measured models".to_owned(), measured())];
    hold_fresh(&["docs/models.md".into()], &BTreeMap::from(tables));
}

/// The table of what has been measured of each model, from the files of `benches/figures`.
fn measured() -> String {
    let read = |name: &str| -> BTreeMap<String, Value> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/figures").join(name);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let (models, errors) = (read("models.json"), read("errors.json"));
    let error =
        |name: &str, kind: &str| errors[name][kind].as_f64().map_or(String::new(), |error| format!("{error:.0e}"));
    let time = |value: &Value| match value.as_f64() {
        Some(ms) if ms < 10.0 => format!("{ms:.2}"),
        Some(ms) if ms < 100.0 => format!("{ms:.1}"),
        Some(ms) => format!("{ms:.0}"),
        None => String::new(),
    };
    let cells = |model: &Value, kind: &str| {
        let row = &model[kind];
        let ratio = row["ratio"].as_f64().map_or(String::new(), |ratio| format!("**{ratio:.2}**"));
        format!("{} | {} | {ratio}", time(&row["runner_ms"]), time(&row["best_ms"]))
    };
    let evaluated = [("evaluation_1", "one image"), ("evaluation_16", "16 images")];
    let evaluated: Vec<_> =
        evaluated.into_iter().filter(|(kind, _)| models.values().any(|model| model.get(kind).is_some())).collect();
    let mut rows = String::new();
    for (name, model) in &models {
        let [batch, side] = ["batch", "side"].map(|key| model["training"][key].as_u64().unwrap_or(0));
        rows += &format!(
            "| `{name}` | {} | {} | {batch} × {side}×{side} | {} |{}\n",
            error(name, "outputs"),
            error(name, "gradients"),
            cells(model, "training"),
            evaluated.iter().map(|(kind, _)| format!(" {} |", cells(model, kind))).collect::<String>(),
        );
    }
    let more: String = evaluated.iter().map(|(_, name)| format!(" {name}, ms | best of others | ratio |")).collect();
    let rule = " --- | --- | --- |".repeat(evaluated.len());
    format!(
        "| model | error of outputs | error of gradients | batch | training step, ms | PyTorch's best | ratio |{more}\n\
         | --- | --- | --- | --- | --- | --- | --- |{rule}\n{rows}"
    )
}

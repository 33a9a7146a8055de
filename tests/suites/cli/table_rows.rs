//! Rows of tables: how they are packed and written, what they are called in results, and what a model says of rows that are new to it.

use super::support::{Place, assert_same_runs};
use std::fmt::Write;
use std::fs;
use std::io::Write as _;

/// Rooms, a town and a price that comes of both; `id` and `line` beside them.
fn homes(rows: usize) -> Vec<[String; 4]> {
    let row = |i: usize| {
        let (rooms, town) = (1 + i * 7 % 9, ["sea", "hill", "dale"][i * 5 % 3]);
        let price = 10.0 * rooms as f64 + if town == "sea" { 5.0 } else { 0.0 };
        [format!("h{i}"), rooms.to_string(), town.to_owned(), price.to_string()]
    };
    (0..rows).map(row).collect()
}

fn csv(rows: &[[String; 4]]) -> String {
    let lines: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    format!("id,rooms,town,price\n{}\n", lines.join("\n"))
}

fn config(path: &str, more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"{path}\"\nbatch_size = 16\nvalidation_split = 0.25\n{more}\n[model]\n\
         layers = [{{ type = \"linear\", out_features = 8 }}, \"relu\", {{ type = \"linear\", out_features = \"$classes\" }}]\n[loss]\n\
         type = \"mse\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 2\n"
    )
}

fn place(more: &str) -> Place {
    let place = Place::with(&config("homes.csv", &format!("target = \"price\"\n{more}")));
    place.write("homes.csv", csv(&homes(80)));
    place
}

/// The same rows train the same model, however they are written.
#[test]
fn objects_and_packed_files_are_the_same_rows() {
    let place = place("id = \"id\"");
    place.ok("train c.toml --quiet --out csv");
    let text = place.read("homes.csv");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    place.write("homes.csv.gz", gzip.finish().unwrap());
    let mut objects = String::new();
    for [id, rooms, town, price] in homes(80) {
        let _ = writeln!(objects, "{{\"id\":\"{id}\",\"rooms\":{rooms},\"town\":\"{town}\",\"price\":{price}}}");
    }
    place.write("homes.jsonl", &objects);
    let zstandard = ruzstd::encoding::compress_to_vec(objects.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    place.write("homes.jsonl.zst", zstandard);
    let figures = place.ok("eval csv --json").json();
    for name in ["homes.csv.gz", "homes.jsonl", "homes.jsonl.zst"] {
        let evaluated = place.ok(&format!("eval csv --json --set data.path={name}")).json();
        assert_eq!(evaluated["metrics"], figures["metrics"], "{name}");
        let stdout = place.ok(&format!("predict csv {name} --format csv")).out.replace(name, "homes.csv");
        assert_eq!(stdout, place.ok("predict csv homes.csv --format csv").out, "{name}");
    }
    place.ok("train c.toml --quiet --out jsonl --set data.path=homes.jsonl");
    let [a, b] = ["csv", "jsonl"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
    assert_eq!(a.tensors, b.tensors);
    // A broken object has its place.
    place.write("homes.jsonl", objects.replacen("\"rooms\":8", "\"rooms\":,", 1));
    let error = place.fails("check c.toml --set data.path=homes.jsonl", 2);
    assert!(error.contains("line 2, column ") && error.contains("no JSON object"), "{error}");
}

/// What was fitted in training is a part of the checkpoint; the file, and how it is written, are not.
#[test]
fn another_encoding_is_refused_for_a_checkpoint() {
    let place = place("id = \"id\"");
    place.ok("train c.toml --quiet --out r");
    for set in
        ["data.target=rooms", "data.columns.town=ignore", "data.drop=[\"town\"]", "data.standardize_target=false"]
    {
        let key = &set[..set[5..].find(['.', '=']).unwrap() + 5];
        for command in ["eval r", "predict r homes.csv"] {
            let error = place.fails(&format!("{command} --set {set}"), 2);
            let expected = format!("`{key}` cannot be another one than in training");
            assert!(error.contains(&expected) && error.contains("train a model anew"), "{command} {set}: {error}");
            let others = "`id`, `separator`, `quote`, `encoding`, `decimal` and `header` may be others";
            assert_eq!(error.contains(others), key != "data.target", "{error}");
        }
    }
    place.write("other.csv", place.read("homes.csv").replace(',', ":"));
    place.ok("eval r --set data.path=other.csv --set data.separator=:");
    let stdout = place.ok("predict r other.csv --format csv --set data.separator=: --set data.id=town").out;
    assert!(stdout.starts_with("file,sample,town,value\n") && stdout.contains(",sea,"), "{stdout}");
    let error = place.fails("eval r --set data.id=nobody", 2);
    assert!(error.contains("`id` names a column `nobody`"), "{error}");
}

/// A model cannot know what a text means that it has never seen.
#[test]
fn new_categories_are_warned_of_once() {
    let place = place("");
    place.ok("train c.toml --quiet --out r");
    place.write("a.csv", "rooms,town,id\n1,moon,a\n2,sea,b\n3,moon,c\n");
    place.write("b.csv", "rooms,town,id\n1,mars,a\n2,,b\n");
    let stderr = place.ok("predict r a.csv b.csv --format csv").err;
    assert_eq!(stderr.matches("warning").count(), 2, "{stderr}");
    let missing = "the column `town` is missing in 1 row and in no training row, and the model takes it for none of the categories";
    assert!(stderr.contains(missing), "{stderr}");
    assert!(
        stderr.contains("the column `town` has in 3 rows what no training row has")
            && stderr.contains("`mars` and `moon`"),
        "{stderr}"
    );
    assert!(!place.ok("predict r homes.csv").err.contains("no training row"));
    place.write("homes.csv", csv(&homes(80)).replace("dale", "vale"));
    let stderr = place.ok("eval r").err;
    assert!(stderr.contains("what no training row has") && stderr.contains("`vale`"), "{stderr}");
}

/// A row has the name that a column gives it, or its line; and no two columns of a result have one name.
#[test]
fn rows_of_results_have_names() {
    let place = place("id = \"id\"");
    let heads = |run: &str| {
        place.ok(&format!("eval {run} --predictions p.csv"));
        place.ok(&format!("eval {run} --predictions p.jsonl"));
        let table = place.read("p.csv");
        let object: serde_json::Value = serde_json::from_str(place.read("p.jsonl").lines().next().unwrap()).unwrap();
        (table.lines().map(str::to_owned).collect::<Vec<String>>(), object)
    };
    place.ok("train c.toml --quiet --out named");
    let (table, object) = heads("named");
    assert_eq!(table[0], "sample,id,target,prediction,loss");
    assert!(table[1].starts_with("0,h") && object["id"].as_str().unwrap().starts_with('h'), "{table:?}");
    // Without a column that names them, rows have their lines: an editor goes there.
    place.write("c.toml", config("homes.csv", "target = \"price\"\ndrop = [\"id\"]"));
    place.ok("train c.toml --quiet --out lines");
    let (table, object) = heads("lines");
    assert_eq!(table[0], "sample,line,target,prediction,loss");
    let (line, target) = (table[1].split(',').nth(1).unwrap(), table[1].split(',').nth(2).unwrap());
    let text = place.read("homes.csv");
    assert!(
        text.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap().ends_with(&format!(",{target}")),
        "{table:?}"
    );
    assert_eq!(object["line"].to_string(), line);
    // A column that is called like one of the result.
    place.write("homes.csv", text.replacen("id,", "sample,", 1));
    place.write("c.toml", config("homes.csv", "target = \"price\"\nid = \"sample\""));
    place.ok("train c.toml --quiet --out r");
    let (table, object) = heads("r");
    assert_eq!(table[0], "sample,id_sample,target,prediction,loss");
    assert!(object["sample"].is_number() && object["id_sample"].is_string(), "{object}");
    let stdout = place.ok("predict r homes.csv --format csv").out;
    assert!(stdout.starts_with("file,sample,id_sample,value\n"), "{stdout}");
    let object = &place.ok("predict r homes.csv --json").json()[0];
    assert!(object["sample"].is_number() && object["id_sample"] == "h0", "{object}");
}

#[test]
fn what_is_for_images_is_refused() {
    let place = place("");
    place.ok("train c.toml --quiet --out r");
    place.write("empty.csv", "id,rooms,town\n");
    place.write("large.csv", "id,rooms,town\na,1e400,sea\n");
    place.write("homes.parquet.gz", "PAR1");
    fs::create_dir(place.path("folder")).unwrap();
    for (file, part) in [
        ("empty.csv", "`empty.csv` has no rows below the line that names its columns"),
        ("large.csv", "has `1e400`, and a number of at most 3.4e38, the largest in single precision, is expected"),
        ("homes.parquet.gz", "`homes.parquet.gz` is packed, and Parquet files are packed inside: unpack it"),
        ("folder", "`folder` is a folder, and the model takes files of rows: name them, as in `folder/*`"),
    ] {
        let error = place.fails(&format!("predict r {file}"), 1);
        assert!(error.contains(part), "{file}: {error}");
    }
    for command in ["predict r homes.csv --invert", "serve r --port 0 --invert"] {
        let error = place.fails(command, 2);
        assert!(error.contains("`--invert` is for images, and the model takes none"), "{error}");
    }
    place.write("homes.json", "{\"rooms\": 3, \"town\": \"sea\"}\n");
    let error = place.fails("predict r homes.json", 1);
    assert!(
        error.contains("`homes.json` would be read as CSV, and looks like JSON") && error.contains(".jsonl"),
        "{error}"
    );
    let error = place.fails("serve c.toml --port 0", 2);
    assert!(error.contains("`c.toml` names no weights, and a model without them has learnt nothing"), "{error}");
    for help in ["--help", "predict --help"] {
        assert!(place.ok(help).out.contains("tables"), "{help}");
    }
}

/// Several targets have figures of their own: their units differ.
#[test]
fn each_target_has_its_figures() {
    let place = place("");
    let text = place.read("homes.csv");
    let twice: String = text
        .lines()
        .map(|line| {
            let price = line.rsplit(',').next().unwrap();
            let tax = price.parse::<f64>().map_or("tax".to_owned(), |price| (price / 1000.0).to_string());
            format!("{line},{tax}\n")
        })
        .collect();
    place.write("homes.csv", twice);
    place.write("c.toml", config("homes.csv", "target = [\"price\", \"tax\"]"));
    place.ok("train c.toml --quiet --out r");
    let json = place.ok("eval r --json").json();
    let each = json["per_target"].as_array().unwrap();
    let of = |at: usize, figure: &str| each[at][figure].as_f64().unwrap();
    assert_eq!((each[0]["target"].as_str(), each[1]["target"].as_str(), each.len()), (Some("price"), Some("tax"), 2));
    // Those of all are over both, and the larger unit decides. Their terms are of single precision.
    let all = |figure: &str| json["metrics"][figure].as_f64().unwrap();
    let mean = |a: f64, b: f64| f64::midpoint(a, b);
    assert!((all("mae") / mean(of(0, "mae"), of(1, "mae")) - 1.0).abs() < 1e-6, "{json}");
    let squares = mean(of(0, "rmse").powi(2), of(1, "rmse").powi(2));
    assert!((all("rmse").powi(2) / squares - 1.0).abs() < 1e-6, "{json}");
    assert!(of(0, "rmse") > 100.0 * of(1, "rmse"), "{json}");
    let stdout = place.ok("eval r").out;
    assert!(stdout.contains("whatever their units") && stdout.contains("\ntax "), "{stdout}");
    // Predictions agree with the figures.
    place.ok("eval r --predictions p.csv");
    let rows = place.read("p.csv");
    let errors = rows.lines().skip(1).map(|row| {
        let cells: Vec<f64> = row.split(',').map(|cell| cell.parse().unwrap()).collect();
        (cells[3] - cells[5]).abs()
    });
    let errors: Vec<f64> = errors.collect();
    assert!((errors.iter().sum::<f64>() / errors.len() as f64 / of(1, "mae") - 1.0).abs() < 1e-4, "{json}");
    // One target has no table of its own.
    place.write("c.toml", config("homes.csv", "target = \"price\""));
    place.ok("train c.toml --quiet --out one");
    assert!(place.ok("eval one --json").json()["per_target"].is_null());
}

/// Zeros before a number say that it is no quantity.
#[test]
fn codes_are_categories() {
    let place = Place::new();
    let rows: String = (0..60).map(|i| format!("{},{}\n", ["00062", "10115", "04109"][i % 3], i % 3 * 10)).collect();
    place.write("homes.csv", format!("zip,price\n{rows}"));
    place.write("c.toml", config("homes.csv", "target = \"price\""));
    let shown = place.ok("data show c.toml --json").json();
    let zip = &shown["columns"][0];
    assert_eq!((&zip["cells"], &zip["features"]), (&"code".into(), &3.into()), "{zip}");
    let stderr = place.ok("train c.toml --out r").err;
    assert!(stderr.contains("`zip` is taken for a category"), "{stderr}");
    // Who says so has numbers.
    let shown = place.ok("data show c.toml --json --set data.columns.zip=number").json();
    assert_eq!(shown["columns"][0]["features"], 1);
    // A pattern is for numbers that look like that.
    let shown = place.ok("data show c.toml --json --set data.columns={\"*\"=\"number\"}").json();
    assert_eq!(shown["columns"][0]["features"], 3);
}

/// The list of runs shows the figure that each is watched by.
#[test]
fn runs_of_regressions_show_their_figure() {
    let place = place("");
    place.ok("train c.toml --quiet --out runs/a");
    place.ok("train c.toml --quiet --out runs/b --set checkpoint.monitor=val_rmse");
    let stdout = place.ok("runs").out;
    let rmse = place.metrics("runs/b").iter().rev().find_map(|line| line["val_rmse"].as_f64()).unwrap();
    assert!(stdout.lines().next().unwrap().contains("val_rmse") && !stdout.contains(" - "), "{stdout}");
    let start = rmse.to_string();
    assert!(stdout.contains(&start[..4]), "{stdout}: {rmse}");
    // Beside those of classes each has its name.
    place.write("classes.toml", config("homes.csv", "target = \"town\"").replace("\"mse\"", "\"cross_entropy\""));
    place.ok("train classes.toml --quiet --out runs/c");
    let stdout = place.ok("runs").out;
    for part in ["figure", "val_rmse ", "val_accuracy "] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

/// A run that is interrupted while its table is read says so, with the exit code that an interruption has.
#[cfg(target_os = "linux")]
#[test]
fn an_interruption_before_the_first_step() {
    let place = place("");
    let mut text = String::from("id,rooms,town,price\n");
    for i in 0..400_000 {
        let _ = writeln!(text, "h{i},{},sea,{i}", i % 11);
    }
    place.write("homes.csv", text);
    let mut running = place.start("train c.toml --quiet --out r");
    // The thread that watches for interruptions is there once they are caught.
    let tasks = format!("/proc/{}/task", running.id());
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let catches = || fs::read_dir(&tasks).into_iter().flatten().flatten().any(|task| name(task).trim() == "ctrl-c");
    assert!(running.until(catches));
    running.signal(libc::SIGINT);
    let (_, done) = running.wait();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("interrupted before the first step"), "{done:?}");
    assert!(!place.path("r").exists());
}

/// Losses of quantiles and of means of positive numbers learn what they are for.
#[test]
fn counts_and_quantiles_are_learnt() {
    let place = Place::new();
    // Counts with the means 1, 2 and 6, by kind.
    let counts = |i: usize| [[0, 1, 2, 1], [1, 2, 3, 2], [4, 6, 8, 6]][i % 3][i / 3 % 4];
    let rows: String = (0..240).map(|i| format!("{},{}\n", ["a", "b", "c"][i % 3], counts(i))).collect();
    place.write("homes.csv", format!("kind,price\n{rows}"));
    place.write("new.csv", "kind\na\nb\nc\n");
    let base = config("homes.csv", "target = \"price\"")
        .replace("epochs = 2", "epochs = 60")
        .replace("\"$classes\" }]", "1 }, \"softplus\"]");
    let learnt = |name: &str, loss: &str| -> Vec<f64> {
        let end = if name == "quantile" { base.replace(", \"softplus\"]", "]") } else { base.clone() };
        place.write("c.toml", end.replace("type = \"mse\"", loss));
        place.ok(&format!("train c.toml --quiet --out {name}"));
        let answers = place.ok(&format!("predict {name} new.csv --json")).json();
        answers.as_array().unwrap().iter().map(|row| row["values"][0].as_f64().unwrap()).collect()
    };
    for (name, loss) in [("poisson", "type = \"poisson_nll\""), ("tweedie", "type = \"tweedie\"\npower = 1.2")] {
        let means = learnt(name, loss);
        for (mean, expected) in means.iter().zip([1.0, 2.0, 6.0]) {
            assert!((mean - expected).abs() < 0.5, "{name}: {means:?}");
        }
    }
    let high = learnt("quantile", "type = \"quantile\"\nquantile = 0.9");
    assert!(high[0] > 1.5 && high[1] > 2.5 && high[2] > 7.0, "{high:?}");
    // Numbers that such a distribution does not have, and some that are no answers of yes or no.
    for (loss, part) in [("gamma_nll", "`0`"), ("bce_with_logits", "`4`"), ("poisson_nll", "`-1`")] {
        if loss == "poisson_nll" {
            place.write("homes.csv", format!("kind,price\n{rows}a,-1\n"));
        }
        place.write("c.toml", base.replace("\"mse\"", &format!("\"{loss}\"")));
        let error = place.fails("train c.toml --quiet --out x", 2);
        assert!(error.contains(part) && error.contains(loss), "{error}");
    }
    // Without an end that is above 0 the loss may be no number.
    place.write("homes.csv", format!("kind,price\n{rows}"));
    place.write("c.toml", base.replace("\"mse\"", "\"poisson_nll\"").replace(", \"softplus\"]", "]"));
    let stderr = place.ok("check c.toml").err;
    assert!(stderr.contains("mean_not_positive"), "{stderr}");
    let model =
        "--set model.layers=[{type='linear',out_features=1},{type='relu'},{type='linear',out_features=1,bias=false}]";
    let error = place.fails(&format!("train c.toml --quiet --out y {model} --set optimizer.lr=3"), 1);
    assert!(error.contains("`poisson_nll` takes means above 0, which a `softplus`"), "{error}");
}

/// The models for tables learn a mean above 0, too.
#[test]
fn models_for_tables_learn_counts() {
    let place = Place::new();
    let rows: String = (0..120).map(|i| format!("{},{},{}\n", ["a", "b"][i % 2], i % 7, i % 3)).collect();
    place.write("visits.csv", format!("kind,age,visits\n{rows}"));
    place.write("new.csv", "kind,age\na,1\nb,5\n");
    for model in ["linear", "tabular_mlp", "tabular_resnet", "tabular", "tabm", "ft_transformer", "dlrm"] {
        let text = format!(
            "seed = 1\n[data]\nsource = \"csv\"\npath = \"visits.csv\"\ntarget = \"visits\"\nvalidation_split = 0.2\nbatch_size = 24\n\
             [model]\nuse = \"{model}\"\nwith = {{ output_activation = \"softplus\" }}\n[loss]\ntype = \"poisson_nll\"\n\
             [optimizer]\ntype = \"adamw\"\nlr = 1e-3\n[train]\nepochs = 1\n"
        );
        place.write("c.toml", text);
        let stderr = place.ok("check c.toml").err;
        assert!(!stderr.contains("mean_not_positive"), "{model}: {stderr}");
        if ["linear", "tabular"].contains(&model) {
            place.ok(&format!("train c.toml --quiet --out {model}"));
            let answers = place.ok(&format!("predict {model} new.csv --json")).json();
            let means: Vec<f64> =
                answers.as_array().unwrap().iter().map(|row| row["values"][0].as_f64().unwrap()).collect();
            assert!(means.iter().all(|mean| (0.0..9.0).contains(mean)), "{model}: {means:?}");
        }
    }
    let stderr = place.ok("check c.toml --set model.with.output_activation=identity").err;
    assert!(stderr.contains("mean_not_positive") && stderr.contains("output_activation = \"softplus\""), "{stderr}");
}

/// Runs and threads give the same bits with these losses, too.
#[test]
fn losses_of_means_do_not_depend_on_threads() {
    let place = place("");
    let text = config("homes.csv", "target = \"price\"").replace("\"$classes\" }]", "1 }, \"softplus\"]");
    place.write("c.toml", text.replace("\"mse\"", "\"gamma_nll\""));
    place.ok("train c.toml --quiet --out a --threads 1");
    place.ok("train c.toml --quiet --out b --threads 2");
    assert_same_runs((&place, "a"), (&place, "b"));
}

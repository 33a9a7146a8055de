//! Folds: a training for each part of a table that is held out in turn.

use super::support::{Place, assert_same_runs};
use super::tables::houses;
use serde_json::Value;
use std::fs;

fn config(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"houses.csv\"\nid = \"id\"\nbatch_size = 32\nfolds = 3\n{more}\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 16 }}, \"relu\", {{ type = \"linear\", out_features = \"$classes\" }}]\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 6\n"
    )
}

fn place(more: &str) -> Place {
    let place = Place::with(&config(more));
    place.write("houses.csv", houses(90));
    place
}

const PRICE: &str = "target = \"price\"\n[loss]\ntype = \"mse\"";
const TOWN: &str = "target = \"town\"\ncolumns = { price = \"ignore\" }\n[loss]\ntype = \"cross_entropy\"";

/// A number of each row of predictions.
fn numbers(place: &Place, words: &str, of: &dyn Fn(&serde_json::Value) -> f64) -> Vec<f64> {
    let done = place.ok(&format!("predict {words} new.csv --format jsonl"));
    done.out.lines().map(|line| of(&serde_json::from_str(line).unwrap())).collect()
}

/// The folder of folds is gone when the first of them finds a mistake, and the file of the user is not.
#[test]
fn a_mistake_in_the_data_is_an_error_of_the_file_that_is_there() {
    let place = place(PRICE);
    // Whose model asks nothing of the data.
    place.write("c.toml", config(PRICE).replace("\"$classes\"", "1"));
    place.write("houses.csv", houses(90) + "x90,1,2,sea,dear\n");
    let error = place.fails("train c.toml --out r --set train.epochs=1", 2);
    assert!(error.contains("c.toml:5:8") && !error.contains("config.toml"), "{error}");
    assert!(!place.path("r").exists());
}

/// Notes on the table come once for all folds.
#[test]
fn notes_come_once_for_all_folds() {
    let place = place(PRICE);
    place.write("houses.csv", houses(90).lines().map(|line| format!("{line},same\n")).collect::<String>());
    let once = |command: &str| {
        let stderr = place.ok(command).err;
        assert_eq!(stderr.matches("columns that are left out: `same`").count(), 1, "{command}: {stderr}");
    };
    once("train c.toml --out r --set train.epochs=1");
    once("train c.toml --quiet --out one --set data.fold=1 --set train.epochs=1");
}

#[test]
fn predictions_are_the_mean_of_all_folds() {
    let place = place(PRICE);
    let done = place.ok("train c.toml --out r");
    for part in ["fold 3 of 3", "val_rmse", "mean", "deviation", "`runner predict` takes that folder"] {
        assert!(done.out.contains(part) || done.err.contains(part), "{part}: {done:?}");
    }
    place.write("new.csv", "rooms,age,town,id\n9,0,sea,x1\n1,40,hill,x2\n5,,town,x3\n");
    let price = |row: &serde_json::Value| row["values"][0].as_f64().unwrap();
    let all = numbers(&place, "r", &price);
    let each: Vec<Vec<f64>> = (1..=3).map(|fold| numbers(&place, &format!("r/fold-{fold}"), &price)).collect();
    for (at, mean) in all.iter().enumerate() {
        let expected = each.iter().map(|one| one[at]).sum::<f64>() / 3.0;
        assert!((mean - expected).abs() < 1e-3 * expected.abs().max(1.0), "{mean} and {expected}");
    }
    assert!(each[0] != each[1] && each[1] != each[2], "each fold has rows of its own");
    // A fold by itself is the same run.
    place.ok("train c.toml --quiet --out second --set data.fold=2");
    assert_same_runs((&place, "second"), (&place, "r/fold-2"));
    assert!(place.fails("predict r/fold-4 new.csv", 1).contains("fold-4"));
    assert!(place.fails("export r m.onnx", 2).contains("fold-1"));
    assert!(place.fails("eval r --split train", 2).contains("fold-1"));
    // All rows, each by the fold that has not seen it.
    let figures = place.ok("eval r --json").json();
    assert_eq!((&figures["samples"], &figures["folds"]), (&90.into(), &3.into()));
    let squares: f64 = (1..=3)
        .map(|fold| place.ok(&format!("eval r/fold-{fold} --json")).json()["metrics"]["rmse"].as_f64().unwrap().powi(2))
        .sum();
    let rmse = figures["metrics"]["rmse"].as_f64().unwrap();
    assert!((rmse - (squares / 3.0).sqrt()).abs() < 1e-3 * rmse, "{figures}");
    // Other rows by all together.
    place.write("more.csv", "rooms,age,town,id,price\n9,0,sea,x1,950\n1,40,hill,x2,96\n5,,town,x3,500\n");
    let figures = place.ok("eval r --json --set data.val_path=more.csv").json();
    let errors: f64 = all.iter().zip([950.0, 96.0, 500.0]).map(|(mean, price)| (mean - price).abs()).sum();
    let mae = figures["metrics"]["mae"].as_f64().unwrap();
    assert!((mae - errors / 3.0).abs() < 1e-3 * mae, "{figures}");
}

#[test]
fn probabilities_are_the_mean_of_all_folds() {
    let place = place(TOWN);
    let stdout = place.ok("train c.toml --out r --json").out;
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (report, of_folds) = lines.split_last().unwrap();
    assert_eq!(report["kind"], "folds");
    // Each line says of which fold it is, and those of the files have no need to.
    let mut folds: Vec<u64> = of_folds.iter().map(|line| line["fold"].as_u64().unwrap()).collect();
    folds.dedup();
    assert_eq!(folds, [1, 2, 3]);
    assert!(of_folds.iter().all(|line| line["kind"].is_string()), "{stdout}");
    assert!(place.metrics("r/fold-2").iter().all(|line| line["fold"].is_null()));
    let accuracy = &report["figures"]["val_accuracy"];
    assert_eq!(accuracy["folds"].as_array().unwrap().len(), 3, "{report}");
    assert!(accuracy["mean"].is_number() && accuracy["deviation"].is_number(), "{report}");
    place.write("new.csv", "rooms,age,id\n9,0,x1\n1,40,x2\n");
    let first = |row: &serde_json::Value| {
        let text = row.to_string();
        let top = row["top"].as_array().unwrap_or_else(|| panic!("{text}"));
        top.iter().find(|class| class["label"] == "sea").unwrap()["probability"].as_f64().unwrap()
    };
    let figures = place.ok("eval r --json").json();
    let [mean, found] = [&accuracy["mean"], &figures["metrics"]["accuracy"]].map(|value| value.as_f64().unwrap());
    assert!((mean - found).abs() < 1e-6, "folds of one size: {figures}");
    let all = numbers(&place, "r --top 3", &first);
    let each: Vec<Vec<f64>> = (1..=3).map(|f| numbers(&place, &format!("r/fold-{f} --top 3"), &first)).collect();
    for (at, mean) in all.iter().enumerate() {
        let expected = each.iter().map(|one| one[at]).sum::<f64>() / 3.0;
        assert!((mean - expected).abs() < 1e-5, "{mean} and {expected}");
    }
}

#[test]
fn folds_that_were_cut_off_go_on() {
    let place = place(PRICE);
    place.ok("train c.toml --quiet --out whole");
    // The second fold has begun, and the third has not.
    place.ok("train c.toml --quiet --out parts");
    fs::remove_dir_all(place.path("parts/fold-3")).unwrap();
    fs::remove_dir_all(place.path("parts/fold-2")).unwrap();
    place.ok("train parts/config.toml --quiet --out parts/fold-2 --set data.fold=2 --pause-after 2");
    // Nothing of the file is looked at any more.
    place.write("c.toml", "");
    place.ok("train --quiet --resume parts --threads 1");
    for fold in ["fold-1", "fold-2", "fold-3"] {
        assert_same_runs((&place, &format!("whole/{fold}")), (&place, &format!("parts/{fold}")));
    }
    assert!(place.fails("predict whole/nothing houses.csv", 1).contains("whole/nothing"));
}

/// A class that one fold alone has is an error before any fold is trained; so is a fold that is not there where all are asked.
#[test]
fn a_class_in_one_fold_alone_is_refused() {
    let place = place(TOWN);
    place.write("houses.csv", houses(90).replacen(",sea,", ",cave,", 1));
    let said = place.fails("train c.toml --quiet --out r", 2);
    assert!(said.contains("without the rows of fold") && said.contains("the class `cave` of `town`"), "{said}");
    assert!(!place.path("r/fold-1/last.safetensors").exists(), "nothing is trained before");
    place.write("houses.csv", houses(90));
    place.ok("train c.toml --quiet --out r");
    fs::rename(place.path("r/fold-3"), place.path("aside")).unwrap();
    let said = place.fails("predict r houses.csv", 2);
    assert!(said.contains("3 folds") && said.contains("fold-3") && said.contains("train --resume r"), "{said}");
}

/// Of epochs with one accuracy the best is that with the least loss, also in the table of all folds.
#[test]
fn the_table_has_the_figures_of_the_best_checkpoints() {
    let place = place(TOWN);
    let rows: String = (0..60).map(|i| format!("h{i},{i},{},{},1\n", i * i % 7, ["sea", "hill"][i % 2])).collect();
    place.write("houses.csv", format!("id,rooms,age,town,price\n{rows}"));
    let figures = place.ok("train c.toml --out r --json --set train.epochs=8 --set optimizer.lr=1e-5");
    let report: Value = serde_json::from_str(figures.out.lines().last().unwrap()).unwrap();
    let mut tied = 0;
    for fold in 1..=3 {
        let best = place.ok(&format!("eval r/fold-{fold} --json")).json()["metrics"].clone();
        for (name, own) in [("val_loss", "loss"), ("val_accuracy", "accuracy")] {
            let found = report["figures"][name]["folds"][fold - 1].as_f64().unwrap();
            assert!((found - best[own].as_f64().unwrap()).abs() < 1e-6, "{name} of fold {fold}: {found}, {best}");
        }
        let accuracies =
            place.metrics(&format!("r/fold-{fold}")).into_iter().filter_map(|line| line["val_accuracy"].as_f64());
        tied += accuracies.filter(|value| Some(*value) == best["accuracy"].as_f64()).count() - 1;
    }
    assert!(tied > 3, "no epochs have the accuracy of the best");
}

/// Folds that new ones replace are never taken for theirs, also where the process was killed.
#[test]
fn folds_that_are_replaced_do_not_mix_with_new_ones() {
    let place = place(PRICE);
    place.ok("train c.toml --quiet --out r --set data.folds=4 --set train.epochs=1");
    let before = place.ok("eval r --json").out;
    let mut running = place.start("train c.toml --quiet --out r --force --set train.epochs=100000");
    assert!(running.until(|| place.path("r/.old/fold-1").exists() && place.path("r/fold-1/last.safetensors").exists()));
    running.signal(libc::SIGKILL);
    running.wait();
    let said = place.fails("eval r", 2);
    assert!(said.contains("is to have 3 folds") && said.contains("fold-2"), "{said}");
    assert!(place.path("r/.old/fold-4").exists());
    // Killed before a fold had begun, or before there was anything of the new ones: the old ones are there again, where new ones cannot begin.
    let good = place.read("houses.csv");
    for gone in [&["fold-1"][..], &["fold-1", "fold-2", "fold-3", "fold-4", "folds.json", "config.toml"]] {
        for name in gone {
            let (path, old) = (place.path(&format!("r/{name}")), place.path(&format!("r/.old/{name}")));
            if old.exists() && path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else if !old.exists() {
                fs::create_dir_all(place.path("r/.old")).unwrap();
                fs::rename(path, old).unwrap();
            }
        }
        place.write("houses.csv", "id,rooms,age,town,price\nh1,1,1,sea\n");
        place.fails("train c.toml --quiet --out r --force", 2);
        place.write("houses.csv", &good);
        assert_eq!((place.ok("eval r --json").out, place.path("r/.old").exists()), (before.clone(), false));
    }
    place.ok("train c.toml --quiet --out r --force --set train.epochs=1");
    assert_eq!(place.ok("eval r --json").json()["folds"], 3);
    assert!(!place.path("r/.old").exists() && !place.path("r/fold-4").exists());
}

/// What was there before stays, and nothing else: the next try needs no `--force`.
#[test]
fn folds_that_are_refused_leave_nothing() {
    let place = place(TOWN);
    // The number of classes is written, so that the data is first read by a fold.
    let four = config(TOWN).replace("\"$classes\"", "4");
    place.write("c.toml", &four);
    let refused = |options: &str| {
        place.write("houses.csv", houses(90).replacen(",sea,", ",cave,", 1));
        let said = place.fails(&format!("train c.toml --quiet {options}"), 2);
        assert!(said.contains("without the rows of fold") && said.contains("`cave`"), "{said}");
    };
    refused("--out a/b/r");
    refused("");
    for name in ["a", "runs"] {
        assert!(!place.path(name).exists(), "{name}");
    }
    fs::create_dir_all(place.path("a/b")).unwrap();
    place.write("a/b/note.txt", "mine");
    refused("--out a/b");
    let names = |folder: &str| {
        let mut all: Vec<_> =
            fs::read_dir(place.path(folder)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        all.sort();
        all
    };
    assert_eq!(names("a/b"), ["note.txt"]);
    // Another try takes the same folder.
    place.write("houses.csv", houses(90));
    place.write("c.toml", config(TOWN));
    place.ok("train c.toml --quiet --out a/b");
    // Trainings that new ones were to replace are whole.
    let before = (names("a/b"), place.read("a/b/folds.json"), place.read("a/b/config.toml"));
    let figures = place.ok("eval a/b --json").out;
    place.write("c.toml", four.replace("folds = 3", "folds = 4"));
    refused("--out a/b --force");
    assert_eq!((names("a/b"), place.read("a/b/folds.json"), place.read("a/b/config.toml")), before);
    place.write("houses.csv", houses(90));
    assert_eq!(place.ok("eval a/b --json").out, figures);
    // A fold that has begun can be gone on with, also where it ended with an error.
    place.write("c.toml", config(PRICE));
    place.fails("train c.toml --quiet --out c --set optimizer.lr=1e30 --set optimizer.type=sgd", 1);
    assert!(place.path("c/folds.json").exists() && place.path("c/fold-1/config.toml").exists());
}

/// Each by itself, with its folder.
#[test]
fn all_folds_are_verified() {
    let place = place(PRICE);
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let stdout = place.ok("verify r").out;
    for fold in 1..=3 {
        assert!(stdout.contains(&format!("the files of `r/fold-{fold}` agree")), "{stdout}");
    }
    let json = place.ok("verify r --json").json();
    assert_eq!((&json["agrees"], json["runs"].as_array().unwrap().len()), (&true.into(), 3));
    // One of them is damaged.
    let whole = fs::read(place.path("r/fold-2/last.safetensors")).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    place.write("r/fold-2/last.safetensors", damaged);
    let done = place.run("verify r");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.out.contains("wrong: `last.safetensors`") && done.out.contains("in `r/fold-2`"), "{done:?}");
    assert!(done.out.contains("the files of `r/fold-3` agree"), "{done:?}");
    let json = place.run("verify r --json").json();
    let agrees: Vec<_> = json["runs"].as_array().unwrap().iter().map(|run| run["agrees"].clone()).collect();
    assert_eq!((&json["agrees"], agrees), (&false.into(), vec![true.into(), false.into(), true.into()]));
    place.write("r/fold-2/last.safetensors", whole);
    // The last may be still to come, and one before it may not.
    fs::rename(place.path("r/fold-3"), place.path("third")).unwrap();
    let stdout = place.ok("verify r").out;
    assert!(stdout.contains("note: `r/fold-3` has not begun: `runner train --resume r`"), "{stdout}");
    fs::rename(place.path("third"), place.path("r/fold-3")).unwrap();
    fs::rename(place.path("r/fold-1"), place.path("first")).unwrap();
    let done = place.run("verify r");
    assert!(done.code == Some(1) && done.out.contains("wrong: `r/fold-1`: is not there"), "{done:?}");
}

#[test]
fn folds_say_what_they_need() {
    let place = place(PRICE);
    let wrong = |more: &str| {
        place.write("w.toml", config(&format!("{more}\n{PRICE}")));
        place.fails("train w.toml --out w", 2)
    };
    assert!(wrong("validation_split = 0.2").contains("given twice"));
    assert!(wrong("split_column = \"town\"").contains("`split_column` says itself"));
    assert!(wrong("fold = 4").contains("must be at most 3, as many as there are `folds`"));
    let sweep = "[sweep]\nmethod = \"grid\"\nparameters = { \"optimizer.lr\" = [1e-3, 1e-2] }\n";
    place.write("w.toml", config(PRICE) + sweep);
    assert!(place.fails("sweep w.toml", 2).contains("is one training"));
    place.ok("sweep w.toml --quiet --set data.fold=1 --set train.epochs=1");
    // A parameter may choose the fold, and not ask for several.
    place.ok("sweep w.toml --quiet --out w1 --set train.epochs=1 --sweep data.fold=1,2,3");
    assert_eq!(fs::read_dir(place.path("w1/trials")).unwrap().count(), 6);
    for several in ["--sweep data.folds=2,3", "--set data.validation_split=0.2 --sweep train.seeds=2,3"] {
        let said = place.fails(&format!("sweep w.toml --quiet --out w2 --unset data.folds {several}"), 2);
        assert!(said.contains("a trial of a sweep is one training"), "{said}");
    }
    place.write("w.toml", config(PRICE).replace("folds = 3", "folds = 100"));
    assert!(place.fails("train w.toml --out w2", 2).contains("90 rows, and 100 folds"));
    place.ok("train c.toml --quiet --out r");
    assert!(place.fails("train c.toml --out r", 2).contains("already holds folds"));
    place.ok("train c.toml --quiet --out r --force --set train.epochs=2");
    assert_eq!(place.metrics("r/fold-3").iter().filter(|line| line["kind"] == "epoch").count(), 2);
    place.write("new.safetensors", "no tensors");
    assert!(place.fails("predict r new.safetensors", 2).contains("rows of tables"));
    // A run in the place of folds is that run.
    place.ok("train c.toml --quiet --out r --force --set data.fold=1");
    assert_eq!(place.ok("eval r --json").json()["samples"], 30);
    assert!(place.fails("train c.toml --out r --force", 2).contains("folds do not take its place"));
}

/// What is said of each row by the fold that has not seen it, and of other rows by all together.
#[test]
fn predictions_of_all_rows_are_out_of_fold() {
    let place = place(PRICE);
    place.ok("train c.toml --quiet --out r");
    place.ok("eval r --predictions all.csv");
    let text = place.read("all.csv");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["sample", "fold", "id", "target", "prediction", "loss"]);
    assert_eq!(rows.len(), 91);
    let mut seen = [0; 3];
    for (at, row) in rows[1..].iter().enumerate() {
        // In the order of the table.
        assert_eq!((row[0], row[2]), (&*at.to_string(), &*format!("h{at}")));
        seen[row[1].parse::<usize>().unwrap() - 1] += 1;
    }
    assert_eq!(seen, [30, 30, 30]);
    place.ok("eval r/fold-2 --predictions second.csv");
    for line in place.read("second.csv").lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let all = rows.iter().find(|row| row[2] == cells[1]).unwrap();
        assert_eq!((all[1], &all[3..]), ("2", &cells[2..]), "{line}");
    }
    place.ok("eval r --predictions all.jsonl");
    let lines = place.read("all.jsonl");
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["id"], first["fold"].to_string().as_str()), (&"h0".into(), rows[1][1]));
    // Of other rows there is no fold.
    place.write("new.csv", houses(12));
    place.ok("eval r --set data.val_path=new.csv --predictions new-all.csv");
    let predicted = numbers(&place, "r", &|row| row["values"][0].as_f64().unwrap());
    let text = place.read("new-all.csv");
    assert!(text.starts_with("sample,id,target,prediction,loss\n"), "{text}");
    for (line, expected) in text.lines().skip(1).zip(&predicted) {
        let said: f64 = line.split(',').nth(3).unwrap().parse().unwrap();
        assert!((said - expected).abs() < 1e-5 * expected.abs().max(1.0), "{line} and {expected}");
    }
    assert_eq!(predicted.len(), 12);
}

/// Each fold has the same part of the rows of each value of a column, whatever is learnt.
#[test]
fn folds_have_the_same_part_of_each_region() {
    let place = place(&format!("stratify_column = \"region\"\n{PRICE}"));
    let rows: Vec<String> = houses(90).lines().map(str::to_owned).collect();
    let region = |i: usize| if i.is_multiple_of(15) { "rare" } else { "usual" };
    let table: String = rows[1..].iter().enumerate().map(|(i, row)| format!("{row},{}\n", region(i))).collect();
    place.write("houses.csv", format!("{},region\n{table}", rows[0]));
    place.ok("train c.toml --quiet --out r");
    place.ok("eval r --predictions said.csv");
    let said = place.read("said.csv");
    let (head, lines) = said.split_once('\n').unwrap();
    let column = |name: &str| head.split(',').position(|known| known == name).unwrap();
    let mut rare = [0; 3];
    for line in lines.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        let house: usize = cells[column("id")].strip_prefix('h').unwrap().parse().unwrap();
        rare[cells[column("fold")].parse::<usize>().unwrap() - 1] += usize::from(region(house) == "rare");
    }
    assert_eq!(rare, [2, 2, 2]);
    let held = "--unset data.folds --set data.validation_split=0.5";
    place.ok(&format!("train c.toml --quiet --out half {held}"));
    place.ok("eval half --predictions half.csv");
    assert_eq!(place.read("half.csv").lines().skip(1).count(), 45);
    let message = place.fails("check c.toml --set data.stratify_column=regio", 2);
    assert!(message.contains("`regio`"), "{message}");
    let both = place.read("c.toml").replace("stratify_column", "group_column = \"town\"\nstratify_column");
    place.write("both.toml", both);
    let message = place.fails("check both.toml", 2);
    assert!(message.contains("groups are held out whole"), "{message}");
}

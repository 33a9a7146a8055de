//! Rows of a table that cannot be read: errors, or left out with `on_error = "skip"`.

use super::support::Place;
use std::fmt::Write;

fn config(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"t.csv\"\nbatch_size = 16\ntarget = \"y\"\nid = \"id\"\n{more}\n[model]\n\
         layers = [{{ type = \"linear\", out_features = \"$classes\" }}]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\n\
         lr = 0.02\n[train]\nepochs = 3\n"
    )
}

/// Eighty rows; `bad` has other lines in the place of some.
fn rows(bad: &[(usize, &str)]) -> String {
    let mut text = "id,a,town,w,y,part\n".to_owned();
    for i in 0..80 {
        match bad.iter().find(|(line, _)| *line == i + 2) {
            Some((_, row)) => _ = writeln!(text, "{row}"),
            None => {
                let (a, town, part) =
                    (i * 7 % 13, ["sea", "hill"][i * 5 % 2], ["train", "val"][usize::from(i % 5 == 4)]);
                let _ = writeln!(text, "r{i},{a},{town},{},{},{part}", 1 + i % 3, a + i % 4);
            }
        }
    }
    text
}

/// Another number of cells; a cell, a target and a weight that are no numbers or none that can be.
const BAD: [(usize, &str); 4] =
    [(5, "r3,1,sea"), (13, "r11,oops,sea,1,3,train"), (21, "r19,1,hill,1,much,val"), (30, "r28,2,hill,-1,3,train")];

fn without(bad: &[(usize, &str)]) -> String {
    let lines: Vec<String> = rows(&[]).lines().map(str::to_owned).collect();
    let left = (1..).zip(lines).filter(|(line, _)| bad.iter().all(|(bad, _)| bad != line));
    left.map(|(_, line)| line + "\n").collect()
}

/// What is trained is what a table without those rows trains, and figures are those of one.
#[test]
fn rows_that_cannot_be_read_are_left_out() {
    for (name, division) in
        [("drawn", "validation_split = 0.25\ndrop = [\"part\"]"), ("named", "split_column = \"part\"")]
    {
        let place = Place::with(&config(&format!("sample_weight = \"w\"\n{division}")));
        place.write("t.csv", rows(&BAD));
        let error = place.fails("check c.toml", 2);
        assert!(error.contains("line 5 has 3 cells, and the table has 6 columns: a cell that contains"), "{error}");
        let stderr = place.ok("train c.toml --quiet --out r --set data.on_error=skip").err;
        let words = "note: `t.csv`: 4 of 80 rows cannot be read and are left out: `t.csv`, line 5 has 3 cells, and the table has 6 columns; \
                     `t.csv`, line 13: the column `a` has `oops`, and a number is expected; \
                     `t.csv`, line 21: the column `y` has `much`, and a number is expected; \
                     the row whose `id` is `r28`: the column `w` has `-1`, and a weight is a number of at least 0";
        assert!(stderr.contains(words), "{stderr}");
        let notes = place.ok("check c.toml --json --set data.on_error=skip").json()["notes"].clone();
        assert!(words.ends_with(notes[0].as_str().unwrap()), "{notes}");
        let skipped = place.ok("eval r --json").json();
        place.write("t.csv", without(&BAD));
        let stderr = place.ok("train c.toml --quiet --out clean").err;
        assert!(!stderr.contains("cannot be read"), "{stderr}");
        let [a, b] = ["r", "clean"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
        assert_eq!(a.tensors, b.tensors, "{name}");
        assert_eq!(skipped["metrics"], place.ok("eval clean --json").json()["metrics"], "{name}");
        // A run that goes on leaves the same rows out.
        place.write("t.csv", rows(&BAD));
        place.ok("train c.toml --quiet --out parts --set data.on_error=skip --set train.epochs=1");
        place.ok("train c.toml --quiet --out parts --resume --set data.on_error=skip --set train.epochs=3");
        assert_eq!(place.checkpoint("parts/last.safetensors").tensors, a.tensors, "{name}");
    }
}

/// A row without a prediction leaves the numbers and names of the others as they are, in each form.
#[test]
fn predictions_stand_by_their_rows() {
    let place = Place::with(&config("drop = [\"part\", \"w\"]\non_error = \"skip\""));
    place.write("t.csv", rows(&[]));
    place.ok("train c.toml --quiet --out r");
    let new = |bad: &str| format!("id,a,town\nx0,1,sea\n{bad}x2,3,hill\nx3,12,sea\n");
    place.write("new.csv", new(""));
    let clean = place.ok("predict r new.csv --json").json();
    for (file, bad) in [("ragged.csv", "x1,2\n"), ("cells.csv", "x1,oops,sea\n")] {
        place.write(file, new(bad));
        let done = place.ok(&format!("predict r {file} --json"));
        assert!(done.err.contains("1 of 4 rows cannot be read and have no prediction: "), "{}", done.err);
        let answers = done.json();
        let [samples, ids] = ["sample", "id"]
            .map(|key| answers.as_array().unwrap().iter().map(|row| row[key].clone()).collect::<Vec<_>>());
        assert_eq!((samples, ids), (vec![0.into(), 2.into(), 3.into()], vec!["x0".into(), "x2".into(), "x3".into()]));
        for (at, row) in clean.as_array().unwrap().iter().enumerate() {
            assert_eq!(answers[at]["values"], row["values"], "{answers}");
            assert_eq!(answers[at]["value"], row["value"], "{answers}");
        }
        let csv = place.ok(&format!("predict r {file} --format csv")).out;
        let begins: Vec<String> = csv.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect();
        let of = |rest: &str| format!("{file},{rest}");
        assert_eq!(begins, ["file,sample,id".to_owned(), of("0,x0"), of("2,x2"), of("3,x3")]);
        place.ok(&format!("predict r {file} --out {file}.parquet"));
        let text = place.ok(&format!("predict r {file}")).out;
        assert!(text.contains("x2") && !text.contains("x1"), "{text}");
        let error = place.fails(&format!("predict r {file} --set data.on_error=fail"), 1);
        assert!(error.contains("line 3"), "{error}");
        // Parquet has the same columns as CSV, as a table that a model of `sample` reads.
        let shown = place.ok(&format!(
            "data show c.toml --json --unset data.drop --set data.path={file}.parquet --set data.target=sample --unset data.on_error"
        ));
        let json = shown.json();
        let sample = json["columns"].as_array().unwrap().iter().find(|column| column["name"] == "sample").unwrap();
        assert_eq!((&sample["range"], &sample["distinct"]), (&serde_json::json!([0.0, 3.0]), &3.into()), "{json}");
    }
    let done = place.given("predict r - --format csv", "id,a,town\nx0,1,sea\nx1,oops,sea\nx2,3,hill\n");
    assert!(done.out.contains("-,2,x2,") && done.err.contains("`-`, line 3: the column `a` has `oops`"), "{done:?}");
}

/// Of many such rows nothing is left out, and what makes all that follows doubtful stays an error.
#[test]
fn what_is_no_single_mistake_is_an_error() {
    let place = Place::with(&config("drop = [\"part\", \"w\"]\non_error = \"skip\""));
    let five = [&BAD[..3], &[(40, "r38"), (41, "r39,1,1,1,1,1,1")]].concat();
    place.write("t.csv", rows(&five));
    let error = place.fails("check c.toml", 2);
    assert!(
        error.contains("5 of 80 rows cannot be read, more than the 4 that are left out: `t.csv`, line 5"),
        "{error}"
    );
    place.write("t.csv", rows(&[(9, "r7,\"1,sea,1,3,train")]));
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("line 9, column 4: a quote opens here"), "{error}");
    // A column that is asked for as what it is not.
    place.write("t.csv", rows(&[]));
    let error = place.fails("check c.toml --set data.columns.town=number", 2);
    assert!(error.contains("80 of 80 rows cannot be read"), "{error}");
}

/// A class that `classes` does not name, a number that the loss is not for, an object within an object.
#[test]
fn targets_that_cannot_be_are_left_out() {
    let place = Place::with(&config("drop = [\"part\", \"w\"]\non_error = \"skip\"\nvalidation_split = 0.25"));
    place.write("t.csv", rows(&[(7, "r5,1,hall,1,3,train")]));
    let set = "--set data.target=town --set data.classes=['hill','sea'] --set loss.type=cross_entropy";
    let notes = place.ok(&format!("check c.toml --json {set}")).json()["notes"].clone();
    assert!(
        notes[0].as_str().unwrap().contains("`r5`: the target `town` has `hall`, which is none of `hill` and `sea`"),
        "{notes}"
    );
    place.ok(&format!("train c.toml --quiet --out r {set}"));
    place.write("t.csv", rows(&[(9, "r7,1,moon,1,3,train")]));
    let stderr = place.ok("eval r").err;
    assert!(stderr.contains("has `moon`, which is none of"), "{stderr}");
    assert!(place.fails("eval r --set data.on_error=fail", 2).contains("`moon`"));

    place.write("t.csv", rows(&[(9, "r7,1,sea,1,-3,train")]));
    let model = "--set loss.type=poisson_nll --set model.layers=[{type='linear',out_features=1},'softplus']";
    let notes = place.ok(&format!("check c.toml --json {model}")).json()["notes"].clone();
    assert!(notes[0].as_str().unwrap().contains("the target `y` has `-3`, and the loss `poisson_nll`"), "{notes}");

    let object = |i: usize| {
        format!(
            "{{\"id\":\"r{i}\",\"a\":{},\"y\":{}}}\n",
            if i == 4 { "[1]".into() } else { (i % 7).to_string() },
            i % 5
        )
    };
    place.write("t.jsonl", (0..30).map(object).collect::<String>());
    let notes = place.ok("check c.toml --json --unset data.drop --set data.path=t.jsonl").json()["notes"].clone();
    assert_eq!(
        notes,
        serde_json::json!([
            "`t.jsonl`: 1 of 30 rows cannot be read and are left out: `t.jsonl`, line 5: `a` is a list or an object"
        ])
    );
}

/// What stands in for a loss that cannot be read is not held against the data: it would be a mistake that the file does not have.
#[test]
fn a_wrong_loss_is_one_mistake() {
    let place = Place::new();
    place.write("t.csv", "id,a,y\n1,1,0.5\n2,2,0.25\n3,3,1\n4,4,0\n");
    let text = config("validation_split = 0.25").replace("\"$classes\"", "1");
    for (section, part) in [
        ("[loss]\ntype = \"bce\"", "unknown type `bce` in `[loss]`"),
        ("[loss]\ntype = \"mse\"\nweights = 3", "unknown key `weights` in `[loss]`"),
    ] {
        place.write("c.toml", text.replace("[loss]\ntype = \"mse\"", section));
        let message = place.fails("check c.toml", 2);
        assert!(message.contains(part) && message.contains("1 error in the configuration"), "{message}");
    }
    place.write("c.toml", format!("loss = \"mse\"\n{}", text.replace("[loss]\ntype = \"mse\"", "")));
    let message = place.fails("check c.toml", 2);
    assert!(message.contains("write `loss.type = \"mse\"`") && message.contains("1 error"), "{message}");
}

/// A table that is answered without the column that names its rows, or with names in other letters, and a text among several targets.
#[test]
fn a_name_that_is_not_there_and_a_target_of_texts_have_their_remedies() {
    let place = Place::with(
        "[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nid = \"row\"\nvalidation_split = 0.25\nbatch_size = 8\n[model]\nuse = \"linear\"\n\
         [loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\n",
    );
    let rows: String = (0..40).map(|i| format!("{i},{},{},{}\n", i * 7 % 11, i * 3 % 17, ["a", "b"][i % 2])).collect();
    place.write("t.csv", format!("row,x,y,kind\n{rows}"));
    place.ok("train c.toml --quiet --out r");
    place.write("new.csv", "x,kind\n1,a\n");
    let said = place.ok("predict r new.csv --format csv").err;
    assert!(said.contains("`new.csv` has no column `row`, which would name its rows"), "{said}");
    assert!(!place.ok("predict r t.csv --format csv").err.contains("name its rows"));
    for (header, renamed) in
        [("X,kind", "`X` to `x`"), (" KIND,X ", "`X` to `x`, `KIND` to `kind`"), ("x,X,Kind", "`Kind` to `kind`")]
    {
        place.write("new.csv", format!("{header}\n{}\n", &"1,2,3"[..2 * header.matches(',').count() + 1]));
        let said = place.fails("predict r new.csv --format csv", 1);
        assert!(said.contains(&format!("If they are the same, rename {renamed}")), "{said}");
    }
    for (cells, remedy) in [("1,a,", true), ("1,a,b", false)] {
        place.write("new.csv", format!("x,kind\n{cells}\n"));
        let said = place.fails("predict r new.csv --format csv", 1);
        assert!(said.contains("line 2 has 3 cells"), "{said}");
        assert_eq!(said.contains("if each row ends with a comma, remove that"), remedy, "{said}");
    }
    let said = place.fails("check c.toml --set data.target=['y','kind']", 2);
    assert!(said.contains("`kind` has text cells: learn that by a `[[heads]]` of its own"), "{said}");
}

//! Rows of tables that weigh differently in the loss.

use super::support::Place;

/// A price of rooms, a class of the price, and what a row weighs.
fn table(rows: impl IntoIterator<Item = usize>, weight: impl Fn(usize) -> f64) -> String {
    let row = |i: usize| {
        let (rooms, size) = (1 + i * 7 % 9, 20 + i * 13 % 50);
        let price = 0.5 * rooms as f64 + 0.01 * size as f64 + (i % 4) as f64 * 0.25;
        format!("{rooms},{size},{price},{},{}\n", ["low", "high"][usize::from(price > 3.0)], weight(i))
    };
    rows.into_iter().map(row).fold("rooms,size,price,class,weight\n".to_owned(), |all, row| all + &row)
}

/// All rows in one batch; numbers as they are, so that nothing is fitted on them.
fn config(target: &str, out: usize, loss: &str) -> String {
    let other = if target == "price" { "class" } else { "price" };
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"t.csv\"\nval_path = \"val.csv\"\nbatch_size = 256\n\
         target = \"{target}\"\ndrop = [\"{other}\"]\nsample_weight = \"weight\"\nstandardize_target = false\n\
         columns = {{ \"*\" = {{ type = \"number\", scaling = \"none\" }} }}\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 4 }}, \"tanh\", {{ type = \"linear\", out_features = {out} }}]\n\
         [loss]\ntype = \"{loss}\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 4\n"
    )
}

fn weight(row: usize) -> f64 {
    [1.0, 2.0, 0.0, 3.0][row % 4]
}

fn place(target: &str, out: usize, loss: &str) -> Place {
    let place = Place::with(&config(target, out, loss));
    place.write("t.csv", table(0..40, weight));
    place.write("val.csv", table(40..57, weight));
    place
}

/// The numbers of a run's last weights.
fn weights(place: &Place, run: &str) -> Vec<f32> {
    let checkpoint = place.checkpoint(&format!("{run}/last.safetensors"));
    let parameters = checkpoint.tensors.iter().filter(|(name, _)| name.starts_with(char::is_numeric));
    let numbers =
        parameters.flat_map(|(_, tensor)| tensor.data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
    numbers.collect()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    assert!(!a.is_empty() && a.len() == b.len());
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + a.abs()))
}

/// The loss of a run on its rows to validate on, and its accuracy or its mean absolute error.
fn figures(place: &Place, command: &str) -> [f64; 2] {
    let metrics = place.ok(&format!("eval {command} --json")).json()["metrics"].clone();
    let other = ["accuracy", "mae"].iter().find_map(|name| metrics[name].as_f64());
    [metrics["loss"].as_f64().unwrap(), other.unwrap()]
}

/// A row that weighs 3 is as three rows, and one that weighs 0 is as none.
#[test]
fn weights_are_as_rows_that_are_repeated() {
    for (target, out, loss) in [("price", 1, "mse"), ("price", 1, "huber"), ("class", 2, "cross_entropy")] {
        let place = place(target, out, loss);
        place.ok("train c.toml --quiet --out weighted");
        let repeated = |rows: std::ops::Range<usize>| rows.flat_map(|i| std::iter::repeat_n(i, weight(i) as usize));
        place.write("t.csv", table(repeated(0..40), |_| 1.0));
        place.write("val.csv", table(repeated(40..57), |_| 1.0));
        let drop = format!("[\"weight\",\"{}\"]", if target == "price" { "class" } else { "price" });
        place.ok(&format!("train c.toml --quiet --out repeated --unset data.sample_weight --set data.drop={drop}"));
        let [a, b] = ["weighted", "repeated"].map(|run| weights(&place, run));
        assert!(close(&a, &b), "{loss}");
        let [a, b] = ["weighted", "repeated"].map(|run| place.metrics(run)[1]["val_loss"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-5 * b, "{loss}: {a} {b}");
    }
}

/// The loss is the weighted mean, and other figures count every row alike. `predict` does without weights.
#[test]
fn the_loss_is_weighted_and_other_figures_are_not() {
    for (target, out, loss) in [("price", 1, "mse"), ("class", 2, "cross_entropy")] {
        let place = place(target, out, loss);
        place.ok("train c.toml --quiet --out r");
        let [all, figure] = figures(&place, "r");
        let one_each = |part: usize| {
            place.write("part.csv", table((40..57).filter(|i| i % 4 == part), |_| 1.0));
            figures(&place, "r --set data.val_path=part.csv")
        };
        let parts = [0, 1, 2, 3].map(|part| (one_each(part), weight(part), (40..57).filter(|i| i % 4 == part).count()));
        let mean = parts.iter().map(|(f, w, n)| f[0] * w * *n as f64).sum::<f64>()
            / parts.iter().map(|(_, w, n)| w * *n as f64).sum::<f64>();
        assert!((mean - all).abs() < 1e-5 * mean, "{loss}: {mean} {all}");
        let mean = parts.iter().map(|(f, _, n)| f[1] * *n as f64).sum::<f64>() / 17.0;
        assert!((mean - figure).abs() < 1e-5 * mean, "{loss}: {mean} {figure}");
        // Batches that weigh differently have that part in the loss.
        let [small, _] = figures(&place, "r --set data.eval_batch_size=5");
        assert!((small - all).abs() < 1e-5 * all, "{loss}: {small} {all}");
        let rows = table(0..3, |_| 1.0).replace(",weight", "");
        let rows: Vec<&str> = rows.lines().map(|line| line.strip_suffix(",1").unwrap_or(line)).collect();
        place.write("new.csv", rows.join("\n"));
        assert_eq!(place.ok("predict r new.csv --format csv").out.lines().count(), 4);
    }
}

/// Parts of a batch, and shards of it, enter with what they weigh.
#[test]
fn accumulated_and_sharded_batches_are_the_same_batch() {
    let place = place("price", 1, "mse");
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out parts --set data.batch_size=20 --set train.accumulate=2");
    place.ok("train c.toml --quiet --out shards --set data.batch_size=40 --set distributed.shards=4");
    let whole = weights(&place, "whole");
    for run in ["parts", "shards"] {
        assert!(close(&whole, &weights(&place, run)), "{run}");
    }
    // Stopped between, and gone on with: the same bits.
    place.ok("train c.toml --quiet --out some --set train.epochs=2");
    place.ok("train --resume some --quiet --set train.epochs=4");
    assert_eq!(whole, weights(&place, "some"));
}

#[test]
fn what_is_no_weight_is_refused_with_its_place() {
    let place = place("price", 1, "mse");
    let good = place.read("t.csv");
    let broken = |line: usize, weight: &str| {
        let lines = good.lines().enumerate().map(|(at, text)| match at + 1 == line {
            true => format!("{},{weight}\n", &text[..text.rfind(',').unwrap()]),
            false => format!("{text}\n"),
        });
        place.write("t.csv", lines.collect::<String>());
    };
    for (weight, expected) in [
        ("-0.5", "line 7: the column `weight` has `-0.5`, and a weight is a number of at least 0"),
        ("", "line 7: the column `weight` has nothing, and a weight is a number of at least 0"),
        ("1e300", "line 7: the column `weight` has `1e300`"),
    ] {
        broken(7, weight);
        let error = place.fails("check c.toml", 2);
        assert!(error.contains(expected), "{error}");
    }
    place.write("t.csv", table(0..40, |_| 0.0));
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("every weight in the column `weight` is 0"), "{error}");
    place.write("t.csv", &good);
    for (set, expected) in [
        ("data.sample_weight=wieght", "`sample_weight` names a column `wieght`"),
        ("data.sample_weight=price", "is the target"),
        ("data.drop=[\"weight\"]", "names the weight of samples"),
    ] {
        let error = place.fails(&format!("check c.toml --set {set}"), 2);
        assert!(error.contains(expected), "{error}");
    }
    // A table that is evaluated has weights, or the configuration does without.
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let plain = place.read("val.csv").replace("weight", "other");
    place.write("val.csv", plain);
    let error = place.fails("eval r", 2);
    assert!(error.contains("`weight`") && error.contains("val.csv"), "{error}");
    place.ok("eval r --unset data.sample_weight");
}

/// Folds and seeds weigh as one model does: their losses by the weights, all other figures each row alike.
#[test]
fn several_models_weigh_as_one_does() {
    for (target, out, loss, [unweighted, plain]) in
        [("price", 1, "mse", ["loss", "mae"]), ("class", 2, "cross_entropy", ["log_loss", "accuracy"])]
    {
        let place = place(target, out, loss);
        let config = place.read("c.toml").replace("standardize_target = false\n", "");
        place.write("c.toml", config.replace("val_path = \"val.csv\"", "folds = 3"));
        place.write("s.toml", config);
        let more = "--set optimizer.type=adam --set optimizer.lr=0.05 --set train.epochs=10";
        place.ok(&format!("train c.toml --quiet --out f {more}"));
        place.ok(&format!("train s.toml --quiet --out s {more} --set train.seeds=2"));
        for model in ["f", "s"] {
            let figures = place.ok(&format!("eval {model} --json --predictions rows.jsonl")).json()["metrics"].clone();
            let rows: Vec<serde_json::Value> =
                place.read("rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let first = if model == "f" { 0 } else { 40 };
            let weight = |row: &serde_json::Value| weight(first + row["line"].as_u64().unwrap() as usize - 2);
            let mean = |of: &dyn Fn(&serde_json::Value) -> f64, weight: &dyn Fn(&serde_json::Value) -> f64| {
                rows.iter().map(|row| of(row) * weight(row)).sum::<f64>() / rows.iter().map(weight).sum::<f64>()
            };
            let lost = |row: &serde_json::Value| row["loss"].as_f64().unwrap();
            let other = |row: &serde_json::Value| match plain {
                "mae" => (row["target"][0].as_f64().unwrap() - row["prediction"][0].as_f64().unwrap()).abs(),
                _ => f64::from(row["target"] == row["prediction"]),
            };
            let near = |name: &str, wanted: f64| {
                let found = figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {figures}"));
                assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted), "{model}, {name}: {found} and {wanted}");
            };
            let expected = mean(&lost, &weight);
            assert!((expected - mean(&lost, &|_| 1.0)).abs() > 1e-3 * expected, "{model}: weights make a difference");
            near("loss", expected);
            near(plain, mean(&other, &|_| 1.0));
            if target == "class" {
                near("log_loss", mean(&lost, &|_| 1.0));
            }
            if model == "s" {
                continue;
            }
            // Each fold by itself, as it was measured on the device.
            let (mut sum, mut weights) = (0.0, 0.0);
            for fold in 1..=3 {
                let [loss, _] = self::figures(&place, &format!("f/fold-{fold}"));
                let own: f64 = rows.iter().filter(|row| row["fold"] == fold).map(weight).sum();
                (sum, weights) = (sum + own * loss, weights + own);
            }
            near("loss", sum / weights);
            // Without weights all rows count alike.
            let figures = place.ok("eval f --json --unset data.sample_weight").json()["metrics"].clone();
            let (found, wanted) = (figures[unweighted].as_f64().unwrap(), mean(&lost, &|_| 1.0));
            assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted), "{found} and {wanted}");
        }
    }
}

/// The likelihood of classes counts all rows alike, whatever else the loss has.
#[test]
fn the_log_loss_does_not_weigh() {
    let place = place("class", 2, "cross_entropy");
    place.ok("train c.toml --quiet --out r");
    let figures = |set: &str| {
        let asked = "--set metrics.figures=[\"log_loss\",\"perplexity\"]";
        let metrics = place.ok(&format!("eval r --json {asked} {set}")).json()["metrics"].clone();
        ["loss", "log_loss", "perplexity"].map(|name| metrics[name].as_f64().unwrap())
    };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-5 * (1.0 + a);
    let [loss, log_loss, perplexity] = figures("");
    let [plain, alike, _] = figures("--unset data.sample_weight");
    assert!(near(plain, alike) && !near(loss, plain), "{loss} {plain} {alike}");
    assert!(near(log_loss, plain) && near(perplexity, plain.exp()), "{log_loss} {perplexity} {plain}");
    let [_, smoothed, _] = figures("--set loss.label_smoothing=0.1");
    assert!(near(log_loss, smoothed), "{log_loss} {smoothed}");
}

/// A column that says what rows weigh may also be a category that the model takes, which it stays.
#[test]
fn a_category_that_weighs_stays_a_category() {
    let place = place("price", 1, "mse");
    let config = place.read("c.toml").replace("sample_weight = \"weight\"\n", "");
    let columns = "columns = { rooms = \"category\", ";
    place.write("c.toml", config.replace("columns = { ", columns).replace("[\"class\"]", "[\"class\", \"weight\"]"));
    place.ok("train c.toml --quiet --out r");
    let rows = |set: &str| -> Vec<serde_json::Value> {
        place.ok(&format!("eval r --predictions rows.jsonl {set}"));
        place.read("rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (plain, weighted) = (rows(""), rows("--set data.sample_weight=rooms"));
    assert_eq!(plain, weighted);
    let rooms: Vec<f64> =
        place.read("val.csv").lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    let sum: f64 = plain.iter().zip(&rooms).map(|(row, weight)| row["loss"].as_f64().unwrap() * weight).sum();
    let [loss, _] = figures(&place, "r --set data.sample_weight=rooms");
    assert!((loss - sum / rooms.iter().sum::<f64>()).abs() < 1e-5 * (1.0 + loss), "{loss}");
}

/// What a column becomes is shown.
#[test]
fn data_show_says_what_weighs() {
    let place = place("price", 1, "mse");
    let stdout = place.ok("data show c.toml").out;
    let line = stdout.lines().find(|line| line.trim_start().starts_with("weight")).unwrap_or_default().to_owned();
    assert!(line.contains("what the row weighs"), "{stdout}");
}

//! `runner init`: from data to a configuration that trains as it stands.

use super::photos::photo;
use super::support::Place;
use super::tables::houses;
use std::fs;

/// The written configuration is valid as it stands, in any folder, and trains for an epoch; what it says of its figures.
fn trains(place: &Place, file: &str, sets: &str) -> serde_json::Value {
    let check = place.ok(&format!("check {file} --device cpu"));
    assert!(!check.err.contains("warning"), "{}", check.err);
    place.ok(&format!("train {file} --device cpu --quiet --out r {sets}"));
    let last = place.metrics("r").pop().unwrap();
    assert!(last["val_loss"].as_f64().unwrap().is_finite(), "{last}");
    let verified = place.ok("verify r");
    assert!(verified.out.contains("agree"), "{}", verified.out);
    last
}

#[test]
fn a_table_of_numbers_becomes_a_regression() {
    let place = Place::new();
    place.write("houses.csv", houses(200));
    let stderr = place.ok("init houses.csv --target price").err;
    assert!(stderr.contains("wrote `houses.toml`") && stderr.contains("learns the number `price`"), "{stderr}");
    let text = place.read("houses.toml");
    for part in [
        "# Found: 160 rows to train on, 40 to validate on; 5 columns, of which 6 numbers are made:",
        "path = \"houses.csv\"",
        "target = \"price\"",
        "id = \"id\"",
        "type = \"mse\"",
        "a category (3 numbers)",
        "# columns = { rooms = \"category\" }",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let last = trains(&place, "houses.toml", "--set train.epochs=30 --set train.early_stopping.patience=100");
    assert!(last["val_rmse"].as_f64().unwrap() < 250.0, "{last}");
    let answers = place.ok("predict r houses.csv --format csv").out;
    assert!(answers.starts_with("file,sample,id,value\n") && answers.lines().count() == 201, "{answers}");

    // What is there stays, unless it is asked for.
    let error = place.fails("init houses.csv --target town", 2);
    assert!(error.contains("`houses.toml` is there already") && error.contains("--force"), "{error}");
    assert_eq!(place.read("houses.toml"), text);
    let stderr = place.ok("init houses.csv --target town --force").err;
    assert!(stderr.contains("warning: `rooms` says the target exactly"), "{stderr}");
    let text = place.read("houses.toml");
    assert!(text.contains("which of 3 classes `town` is") && text.contains("Classes: hill, sea, town."), "{text}");
    assert!(text.contains("type = \"cross_entropy\""), "{text}");
    fs::remove_dir_all(place.path("r")).unwrap();
    assert!(text.contains("\n# drop = [\"rooms\"]"), "{text}");
    place.write("houses.toml", text.replace("\n# drop =", "\ndrop ="));
    trains(&place, "houses.toml", "--set train.epochs=2");
}

#[test]
fn mistakes_about_a_table_say_what_there_is() {
    let place = Place::new();
    place.write("houses.csv", houses(60));
    let error = place.fails("init houses.csv", 2);
    assert!(error.contains("--target COLUMN") && error.contains("`id`, `rooms`, `age`, `town`, `price`"), "{error}");
    let error = place.fails("init houses.csv --target prise", 2);
    assert!(
        error.contains("`prise`") && error.contains("did you mean `price`?") && error.contains("`rooms`"),
        "{error}"
    );
    let error = place.fails("init house.csv --target price", 1);
    assert!(
        error.contains("no file and no folder `house.csv`") && error.contains("did you mean `houses.csv`?"),
        "{error}"
    );
    let error = place.fails("init houses.csv --target price --model resnet18", 2);
    assert!(error.contains("`resnet18` is not for a table") && error.contains("tabular"), "{error}");
    place.write("same.csv", "x,y\n1,2\n3,2\n4,2\n");
    assert!(place.fails("init same.csv --target y", 2).contains("nothing to learn"));
    let error = place.fails("init houses.csv --target price --out houses.csv --force", 2);
    assert!(error.contains("this command reads that file"), "{error}");
    let json = place.run("init houses.csv --json");
    assert!(json.json()["errors"][0]["message"].as_str().unwrap().contains("--target COLUMN"), "{json:?}");
    let files: Vec<_> = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "nothing was written: {files:?}");
}

/// Dates in another form are dates, and no names of rows.
#[test]
fn dates_have_their_format() {
    let place = Place::new();
    let rows: String =
        (0..80).map(|i| format!("{:02}.{:02}.20{:02},{}\n", i % 28 + 1, i % 12 + 1, i % 20, i % 9)).collect();
    place.write("t.csv", format!("sold,y\n{rows}"));
    place.ok("init t.csv --target y");
    let text = place.read("t.toml");
    for part in ["columns = { sold = { ", "format = \"%d.%m.%Y\"", "a date"] {
        assert!(text.contains(part) && !text.contains("id = \"sold\""), "{part}:\n{text}");
    }
    trains(&place, "t.toml", "--set train.epochs=1");
}

/// A target with decimal commas, in a file that is no UTF-8.
#[test]
fn a_table_of_an_old_spreadsheet_is_read() {
    let place = Place::new();
    let rows: String =
        (0..80).map(|i| format!("{};Straße {};1.{:03},59\n", i % 7, i % 5, 100 + i * 37 % 800)).collect();
    let text = format!("räume;straße;preis\n{rows}");
    place.write("alt.csv", text.chars().map(|c| c as u8).collect::<Vec<u8>>());
    let stderr = place.ok("init alt.csv --target preis").err;
    assert!(stderr.contains("learns the number `preis`"), "{stderr}");
    let text = place.read("alt.toml");
    for part in ["decimal = \"comma\"", "encoding = \"windows-1252\"", "straße  text"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    trains(&place, "alt.toml", "--set train.epochs=1");
}

/// Decimal commas, a column that says which part a row is of, numbers that are names, and names that would be no TOML.
#[test]
fn what_a_table_says_of_itself_is_taken_over() {
    let place = Place::new();
    let row = |i: usize| {
        let part = ["train", "train", "train", "val"][i % 4];
        format!("{},5;{};{part};{};2026-01-{:02}\n", i * 3 % 17, i % 3, 1 + i * 7 % 5, 1 + i % 28)
    };
    let rows: String = (0..120).map(row).collect();
    place.write("data sets/größe.csv", format!("a \"b\" = 1;kind;part;klasse_id;day\n{rows}"));
    place.run_in("data sets", "init größe.csv --target kind --classes");
    let text = place.read("data sets/größe.toml");
    for part in [
        "decimal = \"comma\"",
        "split_column = \"part\"",
        "classes = true",
        "Classes: 0, 1, 2.",
        "90 rows to train on, 30 to validate on",
        "# time_column = \"day\"",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    fs::rename(place.path("data sets"), place.path("elsewhere")).unwrap();
    let done = place.run_in("elsewhere", "train größe.toml --device cpu --quiet --out r --set train.epochs=1");
    assert_eq!(done.code, Some(0), "{done:?}");
    // Without it the same numbers are learnt as numbers, and the file says how to change that.
    place.run_in("elsewhere", "init größe.csv --target kind --out n.toml");
    let text = place.read("elsewhere/n.toml");
    assert!(text.contains("type = \"mse\"") && text.contains("# classes = true"), "{text}");
}

#[test]
fn texts_of_a_table_are_read_as_texts() {
    let place = Place::new();
    let words = ["good", "bad", "film", "plot", "actor", "lovely", "dull"];
    let row = |i: usize| {
        let of = |k: usize| words[(i * 5 + k * k) % 7];
        format!(
            "{i},{} the {} of number {i} {},{}\n",
            of(1),
            of(2),
            of(3),
            if i.is_multiple_of(2) { "pos" } else { "neg" }
        )
    };
    place.write("reviews.csv", format!("id,review,label\n{}", (0..80).map(row).collect::<String>()));
    place.ok("init reviews.csv --target label");
    let text = place.read("reviews.toml");
    for part in [
        "source = \"text_classes\"",
        "text = \"review\"",
        "64 texts to train on, 16 to validate on, of 2 classes: neg, pos.",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    trains(&place, "reviews.toml", "--set train.epochs=2");
}

/// Three words are a text where most rows have others, and one word is an answer where hardly any comes twice.
#[test]
fn short_texts_and_answers_are_no_categories() {
    let place = Place::new();
    let words = ["lake", "stone", "horse", "moon", "bee", "apple", "river"];
    let row = |i: usize| format!("{} {} {}\n", words[i % 7], words[i / 7 % 7], words[i / 3 % 7]);
    let labels = ["pos", "neg"];
    let rows: String = (0..60).map(|i| row(i).replace('\n', &format!(",{}\n", labels[i % 2]))).collect();
    place.write("short.csv", format!("review,label\n{rows}"));
    place.ok("init short.csv --target label");
    assert!(place.read("short.toml").contains("source = \"text_classes\""), "{}", place.read("short.toml"));
    // The same few texts again and again are categories.
    let rows: String = (0..60).map(|i| format!("good {},{}\n", words[i % 4], labels[i % 2])).collect();
    place.write("few.csv", format!("review,label\n{rows}"));
    place.ok("init few.csv --target label");
    assert!(place.read("few.toml").contains("source = \"csv\""), "{}", place.read("few.toml"));
    place.write("qa.csv", "text,answer\nWhat do bees make?,Honey\nWho wrote Hamlet?,Shakespeare\nWhat is two plus two?,Four\nWhich sea is it?,The Baltic\n");
    place.ok("init qa.csv --target answer");
    assert!(place.read("qa.toml").contains("source = \"text_to_text\""), "{}", place.read("qa.toml"));
    // Numbers are learnt as such, and classes as classes, however few rows there are.
    place.write("n.csv", "text,length\nWhat do bees make?,18\nWho wrote Hamlet?,17\nWhat is two plus two?,21.5\nWhich sea is it?,16\nWhere?,6\n");
    place.ok("init n.csv --target length");
    assert!(!place.read("n.toml").contains("text_to_text"), "{}", place.read("n.toml"));
    place.write("c.csv", "text,kind\nWhat do bees make?,b\nWho wrote Hamlet?,h\nWhat is two plus two?,b\nWhich sea is it?,h\nWhere is it?,h\n");
    place.ok("init c.csv --target kind");
    assert!(place.read("c.toml").contains("source = \"text_classes\""), "{}", place.read("c.toml"));
}

/// A text of its own in nearly every row is an answer where another column has texts, and a class nowhere.
#[test]
fn a_target_of_texts_is_no_class() {
    let place = Place::new();
    let words = ["lake", "stone", "horse", "moon", "bee", "apple", "river"];
    let sentence = |i: usize| format!("the {} and the {} {i}", words[i % 7], words[i * 3 % 5]);
    let rows: String =
        (0..60).map(|i| format!("{i},{},what about {}?,{}\n", words[i % 3], sentence(i), sentence(i + 100))).collect();
    place.write("pairs.csv", format!("id,topic,question,answer\n{rows}"));
    let stderr = place.ok("init pairs.csv --target answer").err;
    assert!(stderr.contains("note: the model answers one column, and does not read `id`, `topic`"), "{stderr}");
    let text = place.read("pairs.toml");
    for part in ["source = \"text_to_text\"", "text = \"question\"", "does not read `id`, `topic`; `text` says"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    trains(&place, "pairs.toml", "--set train.epochs=1");
    // Who asks for classes has classes.
    place.ok("init pairs.csv --target answer --classes --force");
    assert!(!place.read("pairs.toml").contains("text_to_text"));
    // Of several texts the one before the answer.
    let rows: String =
        (0..60).map(|i| format!("{},{},{}\n", sentence(i), sentence(2 * i), sentence(i + 100))).collect();
    place.write("three.csv", format!("context,question,answer\n{rows}"));
    place.ok("init three.csv --target answer");
    assert!(place.read("three.toml").contains("text = \"question\""));
    // There is nothing that it could answer.
    let rows: String = (0..60).map(|i| format!("{},{},{}\n", i % 9, i * 7 % 11, sentence(i))).collect();
    place.write("numbers.csv", format!("a,b,address\n{rows}"));
    let message = place.fails("init numbers.csv --target address", 2);
    assert!(message.contains("`address` has 60 different texts in 60 rows, which are no classes"), "{message}");
    assert!(message.contains("--classes") && !place.path("numbers.toml").exists(), "{message}");
    // Numbers that a text is to be answered with.
    let rows: String = (0..60).map(|i| format!("how long is {}?,{}\n", sentence(i), i * 37 % 61)).collect();
    place.write("long.csv", format!("question,answer\n{rows}"));
    let message = place.fails("init long.csv --target answer", 2);
    assert!(message.contains("`answer` has more than 20 different numbers, which are no classes"), "{message}");
    for way in ["question = \"tokens\"", "--model gru_seq2seq", "--classes"] {
        assert!(message.contains(way), "{way}: {message}");
    }
    place.ok("init long.csv --target answer --model gru_seq2seq");
    assert!(place.read("long.toml").contains("text_to_text"));
}

#[test]
fn a_folder_of_photos_becomes_a_classifier() {
    let place = Place::new();
    for number in 0..40 {
        let (kind, class) = if number % 4 == 0 { (0, "red") } else { (1, "blue") };
        photo(&place, &format!("photos/{class}/{number}.png"), kind, number);
    }
    fs::create_dir(place.path("configs")).unwrap();
    place.ok("init photos/ --out configs/colours.toml");
    let text = place.read("configs/colours.toml");
    for part in [
        "which of 2 classes a photo is of",
        "32 photos to train on, 8 to validate on, drawn from the same folders",
        "root = \"../photos\"",
        "validation_split = 0.2",
        "use = \"resnet18_cifar\"",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(
        text.contains("  red                       10") && text.contains("  blue                      30"),
        "{text}"
    );
    trains(&place, "configs/colours.toml", "--set train.epochs=2 --set data.limit=8 --set data.limit_val=4");
    // Parts in folders of their own; another architecture.
    for number in 0..8 {
        for part in ["train", "val"] {
            photo(
                &place,
                &format!("parts/{part}/{}/{number}.png", ["red", "blue"][number as usize % 2]),
                (number % 2) as u8,
                number,
            );
        }
    }
    place.ok("init parts --model lenet5");
    let text = place.read("parts.toml");
    assert!(text.contains("8 photos to train on, 8 to validate on.") && !text.contains("validation_split"), "{text}");
    assert!(text.contains("use = \"lenet5\"") && text.contains("size = 32"), "{text}");
    fs::remove_dir_all(place.path("r")).unwrap();
    trains(&place, "parts.toml", "--set train.epochs=2");
    // A list in the folder.
    let rows: String =
        (0..8).map(|i| format!("{}/{i}.png,{},train\n", ["red", "blue"][i % 2], ["r", "b"][i % 2])).collect();
    let more = "../val/red/0.png,r,val\n../val/blue/1.png,b,val\n";
    place.write("parts/train/metadata.csv", format!("file_name,label,split\n{rows}{more}"));
    place.ok("init parts/train --out list.toml");
    let text = place.read("list.toml");
    assert!(
        text.contains("source = \"image_list\"") && text.contains("8 photos to train on, 2 to validate on."),
        "{text}"
    );
    place.ok("check list.toml --device cpu");
    let error = place.fails("init photos --model unet --out x.toml", 2);
    assert!(error.contains("`unet` is not for photos with a class each"), "{error}");
}

/// Numbers with fractions, or others in nearly every line, are no classes, as in tables.
#[test]
fn a_list_of_photos_with_numbers_becomes_a_regression() {
    let place = Place::new();
    let list = |label: &dyn Fn(usize) -> String, split: bool| {
        let part = |i: usize| if i % 5 == 4 { "val" } else { "train" };
        let row = |i| format!("{i}.png,{}{}\n", label(i), if split { format!(",{}", part(i)) } else { String::new() });
        let head = if split { "file_name,label,split\n" } else { "file_name,label\n" };
        place.write("l/metadata.csv", format!("{head}{}", (0..25).map(row).collect::<String>()));
        place.ok("init l --force");
        place.read("l.toml")
    };
    (0..25).for_each(|i| photo(&place, &format!("l/{i}.png"), 1, i));
    let text = list(&|i| format!("{}.5", i % 3), true);
    for part in [
        "# It learns the number of a photo, from those in l:",
        "# Found: 20 photos to train on, 5 to validate on.",
        "label_kind = \"number\"                        # 3 different numbers;",
        "with = { num_classes = 1 }",
        "type = \"mse\"",
        "monitor = \"val_loss\"",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    trains(&place, "l.toml", "--set train.epochs=2");
    // A number of its own for each photo, also of those to validate on.
    for split in [false, true] {
        let text = list(&|i| (i * 7).to_string(), split);
        assert!(text.contains("# 25 different whole numbers;") && text.contains("type = \"mse\""), "{text}");
    }
    let text = list(&|i| (i % 4).to_string(), true);
    assert!(
        text.contains("which of 4 classes") && text.contains("cross_entropy") && !text.contains("number"),
        "{text}"
    );
}

/// A model of one class learns nothing: the folders of the classes may lie deeper, as in an archive that was unpacked.
#[test]
fn a_folder_around_the_classes_is_an_error_that_names_theirs() {
    let place = Place::new();
    for number in 0..8 {
        photo(&place, &format!("up/down/{}/{number}.png", ["red", "blue"][number as usize % 2]), 1, number);
        photo(&place, &format!("parts/in/train/{}/{number}.png", ["red", "blue"][number as usize % 2]), 1, number);
        photo(&place, &format!("listed/in/photos/{number}.png"), 1, number);
        photo(&place, &format!("alone/red/{number}.png"), 1, number);
    }
    place.write("listed/in/metadata.csv", "file_name,label\nphotos/0.png,a\n");
    for (source, only, help) in [
        ("up", "down", "`runner init up/down`"),
        ("parts", "in", "`runner init parts/in/train`"),
        ("listed", "in", "`runner init listed/in`"),
        ("alone", "red", "`alone/CLASS/*.jpg`"),
    ] {
        let error = place.fails(&format!("init {source}"), 2);
        assert!(error.contains(&format!("are all in one folder, `{only}`")) && error.contains(help), "{error}");
    }
    place.ok("init up/down");
    assert!(place.read("down.toml").contains("which of 2 classes"));
}

#[test]
fn a_text_becomes_a_language_model() {
    let place = Place::new();
    place.write("input.txt", "abcdefghijklmnopqrstuvwxyz.\n".repeat(30));
    place.ok("init input.txt");
    let text = place.read("input.toml");
    assert!(text.contains("# Found: 840 characters, of which 28 differ.") && text.contains("context = 16"), "{text}");
    let steps = "--set train.steps=4 --set train.eval_every_steps=4 --set model.with.layers=1";
    trains(&place, "input.toml", steps);
    assert!(place.ok("generate r --prompt abc --max-tokens 5 --device cpu").out.starts_with("abc"));
    for model in ["gpt2", "llama"] {
        place.ok(&format!("init input.txt --model {model} --force"));
        fs::remove_dir_all(place.path("r")).unwrap();
        trains(&place, "input.toml", steps);
    }
    // A folder of texts.
    place.write("books/a.txt", "to be or not to be, that is the question. ".repeat(20));
    place.write("books/b.md", "all the world is a stage. ".repeat(20));
    place.ok("init books");
    assert!(place.read("books.toml").contains("path = \"books\""));
    place.ok("check books.toml --device cpu");
    place.write("short.txt", "too short");
    assert!(place.fails("init short.txt", 2).contains("has 9 characters"));
    place.write("latin.txt", [&b"gr\xfc\xdfe ".repeat(100)[..], b"\n"].concat());
    assert!(place.fails("init latin.txt", 2).contains("no text"));
}

#[test]
fn an_architecture_is_tried_on_samples_that_are_made_up() {
    let place = Place::new();
    place.ok("init --model lenet5");
    trains(&place, "lenet5.toml", "--set train.epochs=1");
    assert!(place.fails("init --model tabm", 2).contains("runner init data.csv --target COLUMN --model tabm"));
    place.ok("init --model models/tabular_mlp.toml --out t.toml");
    fs::remove_dir_all(place.path("r")).unwrap();
    trains(&place, "t.toml", "--set train.epochs=1");
    place.ok("init --model resnet18");
    let check = place.ok("check resnet18.toml --device cpu").out;
    assert!(check.contains("[8, 1000]") || check.contains("[8, 10]"), "{check}");
    assert!(place.fails("init --model resnet81", 2).contains("did you mean `resnet18`?"));
    assert!(place.fails("init --model gpt", 2).contains("runner init input.txt --model gpt"));
    assert!(place.fails("init", 2).contains("SOURCE"));
}

/// Through a stream comes the configuration, and nothing else.
#[cfg(unix)]
#[test]
fn a_dash_is_standard_output() {
    let place = Place::new();
    place.write("houses.csv", houses(60));
    place.ok("init houses.csv --target price");
    let written = place.read("houses.toml");
    for out in ["-", "/dev/stdout"] {
        let done = place.ok(&format!("init houses.csv --target price --out {out}"));
        assert_eq!((done.out.as_str(), done.err.as_str()), (written.as_str(), ""), "{out}");
        // Into a file of the shell's, which is there already.
        let file = fs::File::create(place.path("shell.toml")).unwrap();
        let mut command = place.command(&format!("init houses.csv --target price --out {out}"));
        assert!(command.stdout(file).status().unwrap().success(), "{out}");
        assert_eq!(place.read("shell.toml"), written, "{out}");
        let done = place.run(&format!("init houses.csv --target price --out {out} --json"));
        let error = done.json()["errors"][0]["message"].as_str().unwrap().to_owned();
        assert!(done.code == Some(2) && error.contains("both write to standard output"), "{error}");
    }
    assert!(!place.path("-").exists());
    place.ok("init houses.csv --target price --out ./-");
    assert_eq!(place.read("-"), written.replace("runs/houses/1", "runs/-/1"));
}

#[test]
fn files_that_are_no_source_are_errors() {
    let place = Place::new();
    let refused = |name: &str, part: &str| {
        let error = place.fails(&format!("init {name}"), 2);
        assert!(error.contains(part), "{name}: {error}");
    };
    photo(&place, "one.png", 0, 1);
    place.write("weights.safetensors", b"\x10\0\0\0\0\0\0\0{\"a\":");
    place.write("data.zip", b"PK\x03\x04\0\0");
    place.write("table.xlsx", b"PK\x03\x04\0\0");
    place.write("table.feather", b"ARROW1\0\0");
    place.write("empty.csv", b"");
    place.write("c.toml", "seed = 1\n");
    refused("one.png", "is an image");
    refused("weights.safetensors", "is a file of tensors");
    refused("data.zip", "is a zip archive");
    refused("table.xlsx", "is a spreadsheet");
    refused("table.feather", "save it as Parquet");
    refused("empty.csv", "is empty");
    refused("c.toml", "is a configuration already");
    place.write("mixed/a.csv", "x,y\n1,2\n");
    place.write("mixed/b.csv", "x,y\n1,2\n");
    place.write("mixed/inner/c.bin", "1");
    refused("mixed", "it holds 2 `.csv` files, 1 `.bin` file and 1 folder");
    refused("mixed", "runner init mixed/a.csv --target COLUMN");
    fs::create_dir(place.path("nothing")).unwrap();
    refused("nothing", "`nothing` is empty");
    photo(&place, "flat/1.png", 0, 1);
    refused("flat", "there are no folders in `flat`");
    let error = place.fails("init flat --target x", 2);
    assert!(error.contains("`flat` is no table"), "{error}");
}

/// Remarks stand beside what is long, too.
#[test]
fn a_long_name_of_a_column_is_taken() {
    let place = Place::new();
    let rows: String =
        (0..40).map(|i: usize| format!("{i},{}\n", if i.is_multiple_of(2) { "p" } else { "q" })).collect();
    place.write("l.csv", format!("{},y\n{rows}", "a".repeat(70_000)));
    place.ok("init l.csv --target y");
    place.ok("check l.toml --device cpu");
}

//! `runner init` with every architecture of the program: what it writes passes `runner check`, or it says what the architecture is for.

use super::photos::photo;
use super::support::{Done, Place};
use std::fmt::Write;

/// All architectures, as the program lists them.
fn models(place: &Place) -> Vec<String> {
    let all = place.ok("models --json").json();
    all["models"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// A table of numbers and classes, no column of which follows from another.
fn houses(rows: usize) -> String {
    (0..rows).fold("id,rooms,age,town,price\n".to_owned(), |mut text, i| {
        let (rooms, age, town) = (1 + i * 7 % 8, i * 13 % 50, ["sea", "hill", "town"][i * 5 % 3]);
        let price = 100 * rooms + if town == "sea" { 50 } else { 0 } - age;
        let _ = writeln!(text, "h{i},{rooms},{age},{town},{price}");
        text
    })
}

/// A table of texts with classes.
fn reviews() -> String {
    let words = ["good", "bad", "film", "plot", "actor", "lovely", "dull"];
    (0..60).fold("review,label\n".to_owned(), |mut text, i: usize| {
        let of = |k: usize| words[(i * 5 + k * k) % 7];
        let class = if i.is_multiple_of(2) { "pos" } else { "neg" };
        let _ = writeln!(text, "{} the {} of number {i} {},{class}", of(1), of(2), of(3));
        text
    })
}

/// A table of texts with answers.
fn pairs() -> String {
    (0..60).fold("question,answer\n".to_owned(), |mut text, i: usize| {
        let _ = writeln!(text, "what is the number {i} now,it is {i} and a number of {}", i * 7 % 50);
        text
    })
}

/// `check` takes the file as it stands, and has nothing to say against it.
fn passes(place: &Place, file: &str) -> Done {
    let mut command = place.command(&format!("check {file} --device cpu"));
    let done = Done::of(command.env("XDG_CACHE_HOME", place.path("caches")).output().unwrap());
    assert!(done.code == Some(0) && !done.err.contains("warning"), "{file}: {done:?}\n{}", place.read(file));
    done
}

/// Tries a source with all architectures, those which are not for it must be refused in these words. The others.
fn taken(place: &Place, source: &str, refused: &str) -> Vec<String> {
    let fits = |model: &String| {
        let done = place.run(&format!("init {source} --model {model} --out {model}.toml --force"));
        if done.code == Some(0) {
            assert!(place.read(&format!("{model}.toml")).contains(&format!("use = \"{model}\"")), "{source}: {model}");
            passes(place, &format!("{model}.toml"));
            return true;
        }
        let why = format!("`{model}` is not for {refused}");
        assert!(done.code == Some(2) && done.err.contains(&why), "{source} {model}: {done:?}");
        false
    };
    models(place).into_iter().filter(fits).collect()
}

#[test]
fn for_photos() {
    let place = Place::new();
    for number in 0..40 {
        let (kind, class) = if number % 4 == 0 { (0, "red") } else { (1, "blue") };
        photo(&place, &format!("photos/{class}/{number}.png"), kind, number);
    }
    let taken = taken(&place, "photos", "photos with a class each");
    assert!(taken.len() > 25 && !taken.contains(&"unet".to_owned()), "{taken:?}");
    // The weights that the file proposes have a name, where there are some of that name; they need not be here.
    let named = |model: &&String| place.read(&format!("{model}.toml")).contains("# weights = \"torchvision/");
    let named: Vec<&String> = taken.iter().filter(named).collect();
    assert!(named.len() > 20, "{named:?} of {taken:?}");
    for model in named {
        let file = format!("{model}.toml");
        let text = place.read(&file);
        assert!(text.contains(&format!("# weights = \"torchvision/{model}\"")), "{text}");
        place.write(&file, text.replace("# weights", "weights"));
        assert!(passes(&place, &file).err.contains("is not here yet"), "{model}");
    }
    assert!(place.read("googlenet.toml").contains("# weights = \"googlenet.pth\""));
}

#[test]
fn for_tables() {
    let place = Place::new();
    place.write("houses.csv", houses(200));
    // Enough rows for a large net.
    place.write("large.csv", houses(3000));
    for source in ["houses.csv --target price", "houses.csv --target town", "large.csv --target price"] {
        let taken = taken(&place, source, "a table");
        for model in ["tabular", "tabm", "dlrm", "ft_transformer", "tabular_resnet", "tabular_mlp", "linear"] {
            assert!(taken.iter().any(|name| name == model), "{source}: {taken:?}");
        }
    }
    assert!(place.read("ft_transformer.toml").contains("FT-Transformer"));
}

#[test]
fn for_texts() {
    let place = Place::new();
    place.write("input.txt", "abcdefghijklmnopqrstuvwxyz.\n".repeat(30));
    place.write("reviews.csv", reviews());
    place.write("pairs.csv", pairs());
    let taken = |source: &str, refused: &str| taken(&place, source, refused).join(" ");
    assert_eq!(taken("input.txt", "a text"), "gpt gpt2 llama lstm");
    let classifiers = taken("reviews.csv --target label", "texts with a class each");
    // A class is a text, too, which may be written.
    assert_eq!(classifiers, "bert distilbert gru_seq2seq lstm_classifier text_classifier transformer");
    let wanted = "init pairs.csv --target answer --force --model";
    for model in ["gru_seq2seq", "transformer"] {
        place.ok(&format!("{wanted} {model}"));
        assert!(place.read("pairs.toml").contains(&format!("use = \"{model}\"")));
        passes(&place, "pairs.toml");
    }
}

/// Without a source: on samples that are made up, or with the advice which source to name, which must hold.
#[test]
fn for_nothing() {
    let place = Place::new();
    place.write("data.csv", houses(200));
    place.write("input.txt", "abcdefghijklmnopqrstuvwxyz.\n".repeat(30));
    place.write("reviews.csv", reviews());
    place.write("pairs.csv", pairs());
    let mut elsewhere = Vec::new();
    for model in models(&place) {
        let done = place.run(&format!("init --model {model} --out x.toml --force"));
        if done.code != Some(0) {
            assert!(done.code == Some(2) && done.err.contains("and there is none\nhelp: "), "{model}: {done:?}");
            let Some((_, advice)) = done.err.split_once("`runner init ") else {
                elsewhere.push(model);
                continue;
            };
            let advice = advice.split('`').next().unwrap().replace("COLUMN", "price");
            place.ok(&format!("init {advice} --out x.toml --force"));
        }
        assert!(place.read("x.toml").contains(&format!("use = \"{model}\"")), "{}", place.read("x.toml"));
        passes(&place, "x.toml");
    }
    assert_eq!(elsewhere, ["lstm_tagger", "unet"]);
}

/// Sentences that are left out are named, and a table of texts alone is for a language model.
#[test]
fn texts_that_nothing_is_learnt_from_are_named() {
    let place = Place::new();
    let row =
        |i: usize| format!("the film number {i} is {},{},{}\n", ["good", "bad"][i % 2], ["yes", "no"][i % 2], i % 7);
    place.write("r.csv", "review,label,weight\n".to_owned() + &(0..120).map(row).collect::<String>());
    let said = place.ok("init r.csv --target label").err;
    assert!(
        said.contains("note: the model does not take `review`") && said.contains("{ review = \"text\" }"),
        "{said}"
    );
    let text = place.read("r.toml");
    assert!(text.contains("# columns = { review = \"text\" }"), "{text}");
    place.write("r.toml", text.replace("# columns", "columns"));
    assert!(place.ok("check r.toml").out.contains("a text, its words hashed"));
    place.write("docs.jsonl", "{\"text\":\"a b c\"}\n{\"text\":\"d e f\"}\n");
    for target in ["", " --target text"] {
        let said = place.fails(&format!("init docs.jsonl{target}"), 2);
        for part in ["has one column, `text`", "`source = \"text\"` with `column = \"text\"`"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

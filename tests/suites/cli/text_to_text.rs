//! Texts with an answer each: two sequences a sample, and a model that writes.

use super::support::{Done, Place, assert_same_runs, untimed};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Words with their letters in the other order, and some of them twice as long.
pub fn rows(count: usize) -> String {
    let mut text = String::from("word,turned\n");
    let letters = ['a', 'b', 'c', 'd', 'e'];
    for i in 0..count {
        let word: String = (0..2 + i % 3).map(|at| letters[(i * 7 + at * (1 + i % 4)) % 5]).collect();
        let _ = writeln!(text, "{word},{}", word.chars().rev().collect::<String>());
    }
    text
}

/// A GRU that reads the text and one that writes the answer.
pub fn config(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"text_to_text\"\npath = \"words.csv\"\ntext = \"word\"\ntarget = \"turned\"\nbatch_size = 16\n\
         validation_split = 0.2\nmax_length = 4\nmax_target_length = 5\nbuckets = [3, 4]\ntarget_buckets = [4, 5]\n{more}\n[model]\ninputs = [\"inputs\", \"answers\"]\n\
         layers = [\n  {{ name = \"text\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 24, from = \"inputs\" }},\n  \
         {{ name = \"encoder\", type = \"gru\", hidden_size = 32, bidirectional = true }},\n  {{ type = \"sequence_pool\", mode = \"max\" }},\n  \
         {{ name = \"summary\", type = \"linear\", out_features = 24 }},\n  {{ name = \"beside\", type = \"unflatten\", dim = 1, unflattened_size = [1, 24] }},\n  \
         {{ name = \"answer\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 24, from = \"answers\" }},\n  \
         {{ type = \"add\", from = [\"answer\", \"beside\"] }},\n  {{ name = \"decoder\", type = \"gru\", hidden_size = 48 }},\n  \
         {{ name = \"head\", type = \"linear\", out_features = \"$vocabulary\" }},\n]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n\
         [train]\nepochs = 30\n[metrics]\nfigures = [\"exact_match\"]\n"
    )
}

pub fn place() -> Place {
    let place = Place::with(&config(""));
    place.write("words.csv", rows(240));
    place
}

#[test]
fn a_model_learns_to_answer_and_writes() {
    let place = place();
    let checked = place.ok("check c.toml").out;
    assert!(checked.contains("[16, 5, 7]"), "{checked}");
    let shown = place.ok("data show c.toml").out;
    for part in ["a vocabulary of 7: 5 characters", "in batches of 3 and 4, 4 and 5 tokens", " → "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    place.ok("train c.toml --out r");
    let last = place.metrics("r").into_iter().rev().find(|line| line["val_loss"].is_number()).unwrap();
    let [exact, perplexity, accuracy] =
        ["val_exact_match", "val_perplexity", "val_accuracy"].map(|name| last[name].as_f64().unwrap());
    assert!(exact > 0.9 && perplexity < 1.2 && accuracy >= exact, "{last}");
    // What is written, the most probable token each time, is right as often as the figure says.
    let evaluated = place.ok("eval r --json --predictions p.csv").json();
    let exact = evaluated["metrics"]["exact_match"].as_f64().unwrap();
    let mut table = csv::Reader::from_path(place.path("p.csv")).unwrap();
    assert_eq!(table.headers().unwrap(), &["sample", "line", "target", "prediction"][..]);
    let rows: Vec<csv::StringRecord> = table.records().collect::<Result<_, _>>().unwrap();
    let right = rows.iter().filter(|row| row[2] == row[3]).count();
    assert_eq!(rows.len(), 48);
    assert!((right as f64 / 48.0 - exact).abs() < 1e-9, "{right} of 48, {exact}");
    place.ok("eval r --predictions p.jsonl");
    let first: Value = serde_json::from_str(place.read("p.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!((&first["target"], &first["prediction"]), (&rows[0][2].into(), &rows[0][3].into()));
    // What the model was trained on is not needed any more.
    fs::remove_file(place.path("words.csv")).unwrap();
    let written = place.ok("generate r --prompt abc");
    assert_eq!(written.out, "cba\n", "{}", written.err);
    let json = place.ok("generate r --prompt de --json").json();
    assert_eq!((&json["text"], &json["finish"], &json["prompt"]), (&"ed".into(), &"end".into(), &"de".into()));
    let short = place.ok("generate r --prompt abcd --max-tokens 2 --json").json();
    assert_eq!((&short["text"], &short["finish"]), (&"dc".into(), &"length".into()));
    place.write("prompt.txt", "abc\n");
    assert_eq!(place.ok("generate r --prompt-file prompt.txt").out, "cba\n");
    assert_eq!(place.given("generate r --prompt-file -", "de\n").out, "ed\n");
    assert_eq!(place.given("generate r --prompts -", "abc\nde\n").out, "cba\n---------------\ned\n");
    // Files: of a table the column, of any other file the lines.
    place.write("new.csv", "other,word\n1,abc\n2,de\n");
    place.write("new.txt", "abc\nde\n");
    let answers = |done: &Done| {
        let rows = done.json();
        rows.as_array().unwrap().iter().map(|row| row["answer"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for texts in ["", "--texts 1", "--texts 5"] {
        assert_eq!(answers(&place.ok(&format!("predict r new.csv --json {texts}"))), ["cba", "ed"]);
    }
    assert_eq!(answers(&place.given("predict r - --json", "abc\nde\n")), ["cba", "ed"]);
    assert_eq!(place.ok("predict r new.txt").out, "new.txt, sample 0\n  cba\nnew.txt, sample 1\n  ed\n");
    place.ok("predict r new.csv new.txt --out answers.csv");
    let message = place.fails("predict r new.csv --keep-columns", 2);
    assert!(
        message.contains("is for the rows of tables, and the model was trained on texts, not on columns"),
        "{message}"
    );
    assert_eq!(
        place.read("answers.csv"),
        "file,sample,answer\nnew.csv,0,cba\nnew.csv,1,ed\nnew.txt,0,cba\nnew.txt,1,ed\n"
    );
}

/// The programs of a few lengths, and batches of any number, write what the whole model says.
#[test]
fn answers_are_those_of_the_whole_model() {
    let place = place();
    // Barely trained: it answers each text, and is often wrong.
    place.ok("train c.toml --out r --set train.epochs=3 --set data.workers=0");
    let written = |more: &str| {
        place.ok(&format!("eval r --split train --json --predictions p.jsonl {more}"));
        place.read("p.jsonl")
    };
    let one = written("");
    assert_eq!(written("--set data.eval_batch_size=7"), one);
    assert_eq!(written("--set data.eval_batch_size=1 --threads 1"), one);
    for line in one.lines().take(20) {
        let row: Value = serde_json::from_str(line).unwrap();
        let text: String = row["target"].as_str().unwrap().chars().rev().collect();
        let alone = place.ok(&format!("generate r --prompt {text} --json")).json();
        assert_eq!(alone["text"], row["prediction"], "{text}");
    }
    let drawn = |more: &str| {
        untimed(&place.ok(&format!("generate r --prompt abcd --temperature 2 --json {more}")).out).remove(0)
    };
    assert_eq!(drawn("--seed 4"), drawn("--seed 4 --threads 1"));
    assert!((0..20).any(|seed| drawn(&format!("--seed {seed}"))["tokens"] != drawn("--seed 4")["tokens"]));
}

/// An encoder and a decoder with attention: of the answer so far keys and values are kept.
#[test]
fn answers_are_the_same_with_a_cache_and_without() {
    let layers = config("").find("layers = [").unwrap();
    let end = config("").find("[loss]").unwrap();
    let text = config("");
    let own = "use = \"transformer\"\nwith = { width = 16, heads = 2, layers = 2, hidden = 32, dropout = 0.0, positions = 8 }\n";
    let place = Place::with(&format!("{}{own}{}", &text[..layers], &text[end..]));
    place.write("words.csv", rows(240));
    place.ok("train c.toml --out r --set train.epochs=2");
    let both = |more: &str| {
        let cached = place.ok(&format!("generate r --json {more}"));
        assert!(!cached.err.contains("computed from the whole answer"), "{}", cached.err);
        let anew = place.ok(&format!("generate r --json --without-cache {more}"));
        assert_eq!(cached.json()["tokens"], anew.json()["tokens"], "{more}");
        cached.json()["tokens"].clone()
    };
    let mut different = std::collections::HashSet::new();
    for prompt in ["a", "bc", "abcd", "edc", "dd"] {
        different.insert(both(&format!("--prompt {prompt}")).to_string());
        different.insert(both(&format!("--prompt {prompt} --temperature 1.5 --seed 3")).to_string());
    }
    assert!(different.len() > 4, "{different:?}");
    // Several at once, which end at different lengths.
    place.ok("eval r --predictions p.jsonl --set data.eval_batch_size=32");
    for line in place.read("p.jsonl").lines().take(8) {
        let row: Value = serde_json::from_str(line).unwrap();
        let text: String = row["target"].as_str().unwrap().chars().rev().collect();
        let alone = place.ok(&format!("generate r --prompt {text} --json --without-cache")).json();
        assert_eq!(alone["text"], row["prediction"], "{text}");
    }
    // A recurrent decoder keeps its state.
    let place = self::place();
    place.ok("train c.toml --out r --set train.epochs=3");
    for prompt in ["abc", "de", "eda"] {
        for how in ["", "--temperature 1.5 --seed 3", "--beams 3"] {
            let [kept, anew] = ["", "--without-cache"].map(|cache| {
                let done = place.ok(&format!("generate r --json --prompt {prompt} {how} {cache}"));
                assert!(!done.err.contains("computed from the whole answer"), "{}", done.err);
                done.json()["tokens"].clone()
            });
            assert_eq!(kept, anew, "{prompt} {how}");
        }
    }
    // One that sees its whole answer at once keeps nothing, and says so.
    let text = config("").replace(
        "{ name = \"head\"",
        "{ name = \"turned\", type = \"permute\", dims = [0, 2, 1] }, { name = \"back\", type = \"permute\", dims = [0, 2, 1] }, { name = \"head\"",
    );
    place.write("d.toml", text);
    place.ok("train d.toml --out s --set train.epochs=1");
    let stderr = place.ok("generate s --prompt abc").err;
    assert!(
        stderr.contains("sees all positions at once") && stderr.contains("computed from the whole answer"),
        "{stderr}"
    );
}

#[test]
fn texts_and_answers_go_on_bit_for_bit_with_any_tokenizer() {
    let place = place();
    for tokenizer in ["characters", "bytes", "words", "bpe"] {
        let size = if tokenizer == "bpe" { "vocab_size = 260\n" } else { "" };
        place.write("d.toml", config(&format!("tokenizer = \"{tokenizer}\"\n{size}")));
        place.ok(&format!("train d.toml --out whole-{tokenizer} --set train.epochs=3"));
        place.ok(&format!("train d.toml --out part-{tokenizer} --set train.epochs=3 --set train.max_steps=17"));
        place.ok(&format!(
            "train --resume part-{tokenizer} --set data.workers=3 --set train.max_steps=1000 --threads 1"
        ));
        assert_same_runs((&place, &format!("whole-{tokenizer}")), (&place, &format!("part-{tokenizer}")));
        place.ok(&format!("generate whole-{tokenizer} --prompt abc"));
    }
}

/// A sample has the same figures whatever lengths its batch has been filled up to, also where both are one. The model is as it starts: its rate is next to nothing.
#[test]
fn what_fills_a_batch_of_answers_does_not_count() {
    let place = place();
    // What is added to the answer's positions comes from the text, and has its lengths no more.
    place.write("turned.toml", config("").replace("[\"answer\", \"beside\"]", "[\"beside\", \"answer\"]"));
    let loss = |name: &str, lengths: [usize; 2], buckets: &str, targets: &str| {
        let [text, answer] = lengths;
        let sets = format!(
            "--set data.max_length={text} --set data.max_target_length={answer} --set data.buckets={buckets} --set data.target_buckets={targets}"
        );
        let file = if name.starts_with("turned") { "turned" } else { "c" };
        place.ok(&format!("train {file}.toml --out {name} --set train.epochs=1 --set optimizer.lr=1e-30 {sets}"));
        let last = place.metrics(name).into_iter().rev().find(|line| line["val_loss"].is_number()).unwrap();
        ["val_loss", "val_exact_match", "val_accuracy"].map(|figure| last[figure].as_f64().unwrap())
    };
    let usual = loss("a", [4, 5], "[4]", "[5]");
    for (name, lengths, buckets, targets) in [
        ("b", [4, 5], "[3,4]", "[4,5]"),
        ("c", [4, 5], "[2,3,4]", "[3,5,5]"),
        ("d", [9, 9], "[9]", "[9]"),
        ("e", [5, 5], "[3,5]", "[5,5]"),
        ("turned-d", [9, 9], "[9]", "[9]"),
    ] {
        let figures = loss(name, lengths, buckets, targets);
        assert!(figures.iter().zip(usual).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {figures:?}, {usual:?}");
    }
}

#[test]
fn mistakes_in_texts_with_answers_are_errors() {
    let place = place();
    let refusal = |sets: &str| place.fails(&format!("check c.toml {sets}"), 2);
    let has = |sets: &str, parts: &[&str]| {
        let message = refusal(sets);
        parts.iter().for_each(|part| assert!(message.contains(part), "{sets}: {part} is not in {message}"));
    };
    has("--set data.text=words", &["has no column `words`; its columns are `word`, `turned`"]);
    has("--set data.target=word", &["is the text"]);
    has("--set data.end_token='</s>'", &["`end_token`", "names a token of a `tokenizer.json`"]);
    has("--set data.target_buckets=[5]", &["must be as many as `buckets`"]);
    has("--set data.target_buckets=[5,4]", &["must be ascending"]);
    has("--set data.target_buckets=[3,4]", &["must end with `max_target_length`"]);
    has("--unset data.buckets", &["goes with `buckets`"]);
    has("--unset model.inputs", &["takes two fields, `inputs` and `answers`"]);
    has("--set loss.type=mse", &["does not fit the targets of `text_to_text`"]);
    place.write("empty.csv", "word,turned\na,\n,b\n");
    has("--set data.path=empty.csv", &["has no row with a text and an answer"]);
    place.ok("train c.toml --out r --set train.epochs=1");
    place.write("other.csv", "other\nabc\n");
    assert!(place.fails("generate r --prompt xyz", 1).contains("the prompt, column 1: the character 'x'"));
    assert!(place.fails("predict r other.csv --masks m", 2).contains("`--masks` is for classes of pixels"));
    assert!(place.fails("generate r", 2).contains("the model answers texts, and there is none"));
    assert!(place.fails("predict r other.csv", 1).contains("`other.csv` has no column `word`"));
    place.write("unknown.txt", "abc\nxyz\n");
    assert!(place.fails("predict r unknown.txt", 1).contains("`unknown.txt`, sample 1, column 1"));
    place.write("val.csv", "word,turned\nabc,cbz\n");
    let sets = "--set data.val_path=val.csv --unset data.validation_split";
    let why = place.fails(&format!("train c.toml --out s {sets}"), 2);
    assert!(why.contains("`val.csv`, row at line 2, the answer, column 3: the character 'z'"), "{why}");
}

/// `runner init` writes a configuration for a table of two columns that trains as it stands.
#[test]
fn init_writes_a_configuration_for_answers() {
    let place = Place::new();
    let mut table = String::from("question,reply\n");
    for i in 0..40 {
        let _ = writeln!(table, "how many letters has number {i},it has {} letters and {i} more", i % 7);
    }
    place.write("talk.csv", table);
    let stderr = place.ok("init talk.csv --target reply").err;
    assert!(stderr.contains("it answers `question` with `reply`"), "{stderr}");
    let written = place.read("talk.toml");
    for part in
        ["source = \"text_to_text\"", "use = \"gru_seq2seq\"", "36 texts with answers to train on, 4 to validate on"]
    {
        assert!(written.contains(part), "{part}: {written}");
    }
    place.ok("train talk.toml --device cpu --out r --set train.epochs=1 --set data.max_length=40 --set data.max_target_length=40");
    // Classes are no answers.
    let reviews: String = (0..40)
        .map(|i| format!("film {i} was {} and long,{}\n", ["lovely", "dull"][i % 2], ["good", "bad"][i % 2]))
        .collect();
    place.write("reviews.csv", format!("text,label\n{reviews}"));
    place.ok("init reviews.csv --target label");
    assert!(place.read("reviews.toml").contains("source = \"text_classes\""));
}

//! Beam search: held to transformers, and to a search that computes every answer from its first token on.

use super::support::{Done, Place, repository};
use serde_json::Value;
use std::fs;

/// A place with the files of a model, and what is found with it.
fn place(name: &str, files: &[&str]) -> (Place, Vec<Value>) {
    let place = Place::new();
    let from = repository("tests/golden/beams").join(name);
    fs::create_dir(place.path(name)).unwrap();
    for file in files {
        fs::copy(from.join(file), place.path(&format!("{name}/{file}"))).unwrap();
    }
    let golden: Value = serde_json::from_slice(&fs::read(from.join("golden.json")).unwrap()).unwrap();
    (place, golden.as_array().unwrap().clone())
}

fn gpt2() -> (Place, Vec<Value>) {
    let (place, golden) = place("gpt2", &["config.json", "model.safetensors", "tokenizer.json"]);
    place.ok("import gpt2");
    (place, golden)
}

/// The encoder-decoder, on a table of words of five letters.
fn pairs() -> (Place, Vec<Value>) {
    let (place, golden) = place("pairs", &["model.safetensors"]);
    place.write(
        "c.toml",
        "device = \"cpu\"\n[data]\nsource = \"text_to_text\"\npath = \"words.csv\"\ntext = \"word\"\ntarget = \"turned\"\nbatch_size = 4\nvalidation_split = 0.2\n\
         max_length = 5\nmax_target_length = 6\nbuckets = [5]\ntarget_buckets = [6]\n\
         [model]\nuse = \"transformer\"\nwith = { width = 12, heads = 2, layers = 2, hidden = 20, dropout = 0.0, positions = 8 }\n\
         weights = \"pairs/model.safetensors\"\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = 1\n",
    );
    place.write("words.csv", format!("word,turned\n{}", "abcde,edcba\n".repeat(10)));
    (place, golden)
}

/// What a case asks for, as arguments.
fn asked(case: &Value) -> String {
    let early = if case["early_stopping"] == true { "--early-stopping" } else { "" };
    format!("--beams {0} --samples {0} --length-penalty {1} {early}", case["beams"], case["length_penalty"])
}

/// What is written to a prompt, a JSON object for each text.
fn written(place: &Place, model: &str, more: &str, prompt: &str) -> Vec<Value> {
    let mut command = place.command(&format!("generate {model} --json --device cpu {more} --prompt"));
    let done = Done::of(command.arg(prompt).output().unwrap());
    assert!(!done.err.contains("is computed from the whole"), "{}", done.err);
    done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether two scores are the same but for rounding.
fn near(found: &Value, wanted: &Value) -> bool {
    (found.as_f64().unwrap() - wanted.as_f64().unwrap()).abs() < 1e-4
}

#[test]
fn beams_are_those_of_transformers() {
    let (place, golden) = gpt2();
    for case in &golden {
        let more = format!("{} --max-tokens {}", asked(case), case["max_tokens"]);
        let more = format!("{more} --repetition-penalty {}", case["repetition_penalty"]);
        let found = written(&place, "gpt2.toml", &more, case["prompt"].as_str().unwrap());
        let wanted = case["found"].as_array().unwrap();
        assert_eq!(found.len(), wanted.len(), "{case}");
        for (found, wanted) in found.iter().zip(wanted) {
            assert_eq!([&found["tokens"], &found["finish"]], [&wanted["tokens"], &wanted["finish"]], "{case}");
            assert!(wanted["score"].is_null() || near(&found["score"], &wanted["score"]), "{found}, {case}");
        }
        let anew = written(&place, "gpt2.toml", &format!("{more} --without-cache"), case["prompt"].as_str().unwrap());
        for (found, anew) in found.iter().zip(&anew) {
            assert_eq!(found["tokens"], anew["tokens"], "{case}");
            assert!(near(&found["score"], &anew["score"]), "{found}, {anew}");
        }
    }
}

#[test]
fn beams_are_those_of_a_search_that_keeps_nothing() {
    let (place, golden) = pairs();
    for case in &golden {
        let text = case["text"].as_str().unwrap();
        let wanted = case["found"].as_array().unwrap();
        for cache in ["", "--without-cache"] {
            let found = written(&place, "c.toml", &format!("{} {cache}", asked(case)), text);
            assert_eq!(found.len(), wanted.len(), "{case}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert_eq!([&found["text"], &found["finish"]], [&wanted["text"], &wanted["finish"]], "{case}");
                assert!(near(&found["score"], &wanted["score"]), "{found}, {case}");
            }
        }
    }
    // Files: several texts at once, each with beams of its own.
    let of = |text: &str| {
        let is = |case: &&Value| case["text"] == text && case["beams"] == 4 && case["early_stopping"] == true;
        golden.iter().find(is).unwrap()["found"][0]["text"].clone()
    };
    let texts = ["abc", "de", "e", "aabbc", "dcab"];
    place.write("new.txt", texts.join("\n"));
    for batch in [1, 3, 8] {
        let sets = format!("--set data.eval_batch_size={batch} --device cpu");
        let more = "--beams 4 --length-penalty 2 --early-stopping --json";
        let rows = place.ok(&format!("predict c.toml new.txt {more} {sets}")).json();
        let answers: Vec<Value> = rows.as_array().unwrap().iter().map(|row| row["answer"].clone()).collect();
        assert_eq!(answers, texts.map(of), "{batch}");
    }
    // Beside those of the table.
    let table: String = texts.iter().map(|text| format!("{text},abcde\n")).collect();
    place.write("val.csv", format!("word,turned\n{table}"));
    let sets = "--set data.val_path=val.csv --unset data.validation_split --device cpu";
    place.ok(&format!(
        "eval c.toml --predictions p.csv --beams 4 --length-penalty 2 --early-stopping --set data.eval_batch_size=3 {sets}"
    ));
    let mut rows = csv::Reader::from_path(place.path("p.csv")).unwrap();
    let found: Vec<String> = rows.records().map(|row| row.unwrap()[3].to_owned()).collect();
    assert_eq!(found, texts.map(|text| of(text).as_str().unwrap().to_owned()));
}

#[test]
fn beams_go_on_behind_the_context_and_end_where_a_text_says_so() {
    let (place, _) = gpt2();
    // More than the 32 tokens that the model looks back, of which half are forgotten each time.
    let more = "--beams 3 --length-penalty 9 --max-tokens 70";
    let [long, anew] = ["", "--without-cache"].map(|cache| {
        let found = written(&place, "gpt2.toml", &format!("{more} {cache}"), "The sea");
        found[0]["tokens"].clone()
    });
    assert_eq!(long, anew);
    assert!(long.as_array().unwrap().len() > 40, "{long}");
    let whole = &written(&place, "gpt2.toml", "--beams 3 --max-tokens 12", "What the hills had")[0];
    let text = whole["text"].as_str().unwrap();
    let stop: String = text.chars().skip(3).take(1).collect();
    let mut command = place.command("generate gpt2.toml --json --device cpu --beams 3 --samples 3 --max-tokens 12");
    let done = Done::of(command.args(["--prompt", "What the hills had", "--stop", &stop]).output().unwrap());
    let found: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(found.iter().all(|found| !found["text"].as_str().unwrap().contains(&stop)), "{found:?}");
    assert!(found.iter().any(|found| found["finish"] == "stop"), "{found:?}");
    // For people: the prompt and what goes on with it, and a line between several.
    let written = place.ok("generate gpt2.toml --device cpu --prompt a --beams 2 --samples 2 --max-tokens 3").out;
    assert!(written.starts_with('a') && written.matches("---------------\n").count() == 1, "{written}");
}

#[test]
fn mistakes_in_beam_search_are_errors() {
    let (place, _) = gpt2();
    let refused = |args: &str, part: &str| {
        let message = place.fails(args, 2);
        assert!(message.contains(part), "{args}: {message}");
    };
    for with in ["--temperature 0.7", "--top-k 3", "--top-p 0.5", "--min-p 0.1", "--seed 3"] {
        let name = with.split(' ').next().unwrap();
        let message = place.fails(&format!("generate gpt2.toml --prompt a --beams 2 {with}"), 2);
        assert!(message.contains("cannot be used with") && message.contains(name), "{message}");
    }
    refused("generate gpt2.toml --beams 0", "1..=1024");
    refused("generate gpt2.toml --length-penalty 2", "--beams");
    refused("generate gpt2.toml --early-stopping", "--beams");
    refused("generate gpt2.toml --beams 2 --length-penalty much", "a number from -100 to 100");
    refused("generate gpt2.toml --prompt a --beams 2 --samples 3", "asks for more texts than the 2");
    refused("eval gpt2.toml --beams 2", "name a file for them with `--predictions`");
    let (pairs, _) = pairs();
    let classes = "[data]\nsource = \"digits\"\n[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n\
                   [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\nmax_steps = 1\n";
    pairs.write("d.toml", classes);
    pairs.ok("train d.toml --device cpu --out d");
    pairs.write("new.txt", "abc\n");
    let message = pairs.fails("predict d new.txt --beams 2", 2);
    assert!(message.contains("`--beams` is for models that answer texts"), "{message}");
    let message = pairs.fails("eval d --predictions p.csv --beams 2", 2);
    assert!(message.contains("`--beams` is for models that answer texts"), "{message}");
}

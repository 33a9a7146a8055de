//! Files that a configuration of a text names, and are not there or not right; and which tokenizer counts where several are named.

use super::support::{Place, plain, repository, untimed};
use super::text::{classifier, counting, language_model, place, reviews};
use std::fs;

/// A training of two steps.
const BRIEF: &str = "--quiet --set train.steps=2 --set train.eval_every_steps=2";

/// The command fails with this exit code, points into the line that begins with `key`, and says these parts.
fn refused(place: &Place, (command, code): (&str, i32), key: &str, parts: &[&str]) {
    let message = place.fails(command, code);
    let lines: Vec<&str> = message.lines().collect();
    let pointed = lines.windows(2).any(|pair| pair[0].contains(&format!("| {key}")) && pair[1].contains('^'));
    assert!(pointed, "{command}: {key} is not pointed at: {message}");
    for part in parts {
        assert!(message.contains(part), "{command}: {part} is not in {message}");
    }
}

#[test]
fn a_tokenizer_or_a_template_that_is_wrong_is_pointed_at() {
    let place = place();
    place.write("lacks.json", "{\"a\": 1}");
    place.write("knows.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"mine\": 1}");
    place.write("broken.json", "{\"model\": ");
    place.write("list.json", "[1]");
    place.write("latin.json", b"{\"model\": \"\xe9\"}");
    for (file, part) in [
        ("none.json", "cannot read `none.json`"),
        ("lacks.json", "`lacks.json` is no tokenizer that can be read: it has no `model`"),
        ("knows.json", "it has `mine`, which no `tokenizer.json` has"),
        ("broken.json", "it is no JSON: EOF"),
        ("list.json", "it is JSON, and no object"),
        ("latin.json", "`latin.json` is not UTF-8"),
    ] {
        let (line, code) = (format!("tokenizer = \"{file}\""), if file == "none.json" { 1 } else { 2 });
        place.write("d.toml", language_model(&line));
        for command in ["check d.toml", "train d.toml --out r", "data show d.toml"] {
            refused(&place, (command, code), &line, &[part, "the data is described here"]);
        }
    }
    place.write("chat.jinja", "{% for");
    place.write("settings.json", "{}");
    for (file, part) in [
        ("none.jinja", "cannot read `none.jinja`"),
        ("chat.jinja", "the chat template"),
        ("settings.json", "`settings.json` has no `chat_template`"),
        ("{{ messages }}", "is the path of a file, and this is a template: put it into a file"),
        ("{% for m in messages %}x{% endfor %}", "is the path of a file, and this is a template"),
    ] {
        let (line, code) = (format!("chat_template = \"{file}\""), if file == "none.jinja" { 1 } else { 2 });
        place.write("d.toml", language_model(&line));
        refused(&place, ("check d.toml", code), &line, &[part]);
    }
}

#[test]
fn a_model_with_a_vocabulary_of_its_own_has_its_tokenizer_pointed_at() {
    let (place, _) = super::imported::imported("language_models", "gpt2");
    place.ok("import gpt2");
    fs::remove_file(place.path("gpt2/tokenizer.json")).unwrap();
    refused(&place, ("generate gpt2.toml --prompt a --device cpu", 1), "tokenizer = ", &["cannot read"]);
}

#[test]
fn files_that_are_not_there_are_pointed_at() {
    let text = place();
    let tokens = Place::with(
        &language_model("vocab_size = 256")
            .replace("source = \"text\"\npath = \"input.txt\"", "source = \"tokens\"\npath = \"none.bin\""),
    );
    for command in ["train c.toml --out r", "lr-find c.toml", "data show c.toml"] {
        refused(
            &tokens,
            (command, 1),
            "path = \"none.bin\"",
            &["`none.bin` is not there", "the data is described here"],
        );
    }
    tokens.ok("check c.toml");
    let bytes = |file: &str| tokens.write(file, counting(60).bytes().flat_map(|b| [b, 0]).collect::<Vec<u8>>());
    bytes("none.bin");
    for (place, name) in [(&text, "none.txt"), (&tokens, "other.bin")] {
        let line = format!("val_path = \"{name}\"");
        place.write("d.toml", place.read("c.toml").replace("validation_split = 0.2", &line));
        refused(place, ("train d.toml --out r", 1), &line, &[&format!("`{name}`"), "the data is described here"]);
    }
}

#[test]
fn the_tokenizer_of_a_checkpoint_counts() {
    let place = place();
    fs::copy(repository("tests/golden/language_models/gpt2/tokenizer.json"), place.path("gpt2.json")).unwrap();
    place.ok(&format!("train c.toml --out r {BRIEF}"));
    for command in ["eval r", "generate r --prompt a --max-tokens 2"] {
        for other in ["bytes", "words", "gpt2.json", "none.json"] {
            let message = place.fails(&format!("{command} --set data.tokenizer={other}"), 2);
            for part in ["`data.tokenizer` cannot be another one than in training", "(28 characters)"] {
                assert!(message.contains(part), "{command}, {other}: {message}");
            }
        }
        place.ok(&format!("{command} --set data.tokenizer=characters"));
    }
    // The same one in another place.
    place.ok(&format!("train c.toml --out s --set data.tokenizer=gpt2.json {BRIEF}"));
    fs::rename(place.path("gpt2.json"), place.path("moved.json")).unwrap();
    place.ok("eval s --set data.tokenizer=moved.json");
    place.ok("eval s");
    // A configuration that names another one than its weights have is trained by that of the weights, and says so.
    let sets = "--set model.weights=r/best.safetensors --set data.tokenizer=words";
    let stderr = place.ok(&format!("train c.toml --out t {BRIEF} {sets}")).err;
    let words = "weights: text becomes tokens as it did for `r/best.safetensors`, by its tokenizer (28 characters); `tokenizer = \"words\"` of the configuration is not used";
    assert!(stderr.contains(words), "{stderr}");
    let stderr = place.ok("check c.toml --set model.weights=r/best.safetensors").err;
    assert!(!stderr.contains("is not used"), "{stderr}");
}

/// A model has a place for each token of its training.
#[test]
fn the_number_of_tokens_of_a_checkpoint_counts() {
    let place = place();
    place.ok(&format!("train c.toml --out r {BRIEF} --set data.tokenizer=bpe --set data.vocab_size=262"));
    for command in ["eval r", "generate r --prompt a --max-tokens 2", "export r model.onnx"] {
        let message = place.fails(&format!("{command} --set data.vocab_size=300"), 2);
        for part in ["`data.vocab_size` cannot be another one than in training", "the checkpoint has 262"] {
            assert!(message.contains(part), "{command}: {message}");
        }
    }
    place.ok("generate r --prompt a --max-tokens 2 --set data.vocab_size=262");
}

/// Files of weights do not have the tokenizer, which has a file of its own, if it can.
#[test]
fn a_tokenizer_is_exported_by_itself() {
    let place = place();
    place.ok(&format!("train c.toml --out r {BRIEF} --set data.tokenizer=bpe --set data.vocab_size=270"));
    for file in ["w.safetensors", "w.pth"] {
        let note = format!(
            "note: the tokenizer (a vocabulary of 270) is not in `{file}`: `runner export r tokenizer.json` writes it"
        );
        let done = place.ok(&format!("export r {file}"));
        assert_eq!(done.err.matches(&note).count(), 1, "{file}: {}", done.err);
    }
    let stderr = place.ok("export r w.onnx").err;
    assert!(!stderr.contains("is not in") && stderr.contains("`input` has the numbers of tokens"), "{stderr}");
    let message = place.fails("export r w.onnx --preprocess", 2);
    assert!(message.contains("a text becomes tokens, which no operator of ONNX makes of it"), "{message}");
    let done = place.ok("export r tokenizer.json");
    assert_eq!((&*done.out, &*done.err), ("wrote a tokenizer of 270 tokens to `tokenizer.json`\n", ""));
    assert_eq!(place.ok("export r tokenizer.json --json").json()["vocab_size"], 270);
    // With both files the model is what it was.
    place.write("d.toml", place.read("c.toml").replace("context = 16", "context = 16\ntokenizer = \"tokenizer.json\""));
    let sets = "--set model.weights=w.safetensors";
    let loss = |what: &str| place.ok(&format!("eval {what} --json")).json()["metrics"]["loss"].clone();
    assert_eq!(loss(&format!("d.toml {sets}")), loss("r"));
    let done = place.ok(&format!("export d.toml v.safetensors {sets}"));
    assert!(done.err.contains("is not in `v.safetensors`: `runner export d.toml tokenizer.json`"), "{}", done.err);
    let message = place.fails("export r t.json --softmax", 2);
    assert!(message.contains("`t.json` has its tokenizer alone"), "{message}");
    // Others have no such file, or there is none.
    place.ok(&format!("train c.toml --out s {BRIEF}"));
    let done = place.ok("export s w.safetensors");
    assert!(done.err.contains("the tokenizer (28 characters) is not in `w.safetensors`"), "{}", done.err);
    let message = place.fails("export s t.json", 2);
    assert!(message.contains("the tokenizer of `s` (28 characters) has no `tokenizer.json`"), "{message}");
    place.ok(&format!("train c.toml --out b {BRIEF} --set data.tokenizer=bytes"));
    assert_eq!(place.ok("export b w.safetensors").err, "");
    let digits = Place::with(&plain());
    digits.ok("train c.toml --out r --quiet --set train.max_steps=1");
    assert_eq!(digits.ok("export r w.safetensors").err, "");
    assert!(digits.fails("export r t.json", 2).contains("`r` has no tokenizer"));
    assert!(!digits.path("t.json").exists());
}

/// A model of tokens whose texts are not known may be given a tokenizer.
#[test]
fn tokens_without_a_tokenizer_may_be_given_one() {
    let config = language_model("vocab_size = 256")
        .replace("source = \"text\"\npath = \"input.txt\"", "source = \"tokens\"\npath = \"train.bin\"");
    let place = Place::with(&config);
    place.write("train.bin", counting(60).bytes().flat_map(|byte| [byte, 0]).collect::<Vec<u8>>());
    place.ok(&format!("train c.toml --out r {BRIEF}"));
    assert!(place.fails("generate r", 2).contains("the checkpoint has no tokenizer"));
    place.ok("eval r --set data.tokenizer=bytes");
    assert!(place.ok("generate r --set data.tokenizer=bytes --prompt ab --max-tokens 3").out.starts_with("ab"));
    fs::copy(repository("tests/golden/language_models/gpt2/tokenizer.json"), place.path("gpt2.json")).unwrap();
    let message = place.fails("generate r --set data.tokenizer=gpt2.json --prompt ab", 2);
    assert!(message.contains("the model was trained on 256 tokens, and the tokenizer has"), "{message}");
    assert!(place.fails("generate r --set data.tokenizer=none.json", 1).contains("cannot read `none.json`"));
}

#[test]
fn weights_of_another_vocabulary_are_named_as_such() {
    let place = place();
    place.ok(&format!("train c.toml --out r {BRIEF}"));
    place.ok("export r w.safetensors");
    // One matrix for both, and one for each.
    let tied = place.read("c.toml");
    place.write("tied.toml", tied.replace("context = 16", "context = 16\ntokenizer = \"bytes\""));
    let own = tied.replace("tie = \"wte.weight\", ", "");
    place.write("own.toml", &own);
    place.ok(&format!("train own.toml --out o {BRIEF}"));
    place.ok("export o o.safetensors");
    place.write("own.toml", own.replace("context = 16", "context = 16\ntokenizer = \"bytes\""));
    for (config, weights, names) in
        [("tied.toml", "w", "`wte.weight` differs"), ("own.toml", "o", "`wte.weight` and `head.weight` differ")]
    {
        let message = place.fails(&format!("check {config} --set model.weights={weights}.safetensors"), 2);
        for part in
            [names, "a vocabulary of 28 tokens instead of 256", "take the tokenizer that the weights were trained with"]
        {
            assert!(message.contains(part), "{config}: {part} is not in {message}");
        }
        assert!(!message.contains("number of classes"), "{message}");
    }
}

/// A mark of the order of bytes at the front of a file is no part of a prompt, as it is none of data.
#[test]
fn a_mark_at_the_front_of_prompts_is_left_out() {
    let place = place();
    place.ok(&format!("train c.toml --out r {BRIEF}"));
    for (plain, marked, option) in
        [("pq", "\u{feff}pq", "--prompt-file"), ("ab\ncd\n", "\u{feff}ab\ncd\n", "--prompts")]
    {
        place.write("plain.txt", plain);
        place.write("marked.txt", marked);
        let said = |file: &str| untimed(&place.ok(&format!("generate r {option} {file} --max-tokens 4 --json")).out);
        assert_eq!(said("plain.txt"), said("marked.txt"), "{option}");
        let more = format!("generate r {option} - --max-tokens 4 --json");
        assert_eq!(untimed(&place.given(&more, marked).out), said("plain.txt"), "{option}");
    }
    // Nor of lines that get a class.
    place.write("c.toml", classifier(""));
    place.write("reviews.csv", reviews(60));
    place.ok("train c.toml --out classes --quiet --set train.epochs=1");
    let probabilities = |text: &str| {
        place.write("lines.txt", text);
        place.ok("predict classes lines.txt --json").json()[0]["top"].clone()
    };
    let plain = probabilities("lovely film\n");
    assert!(plain.is_array(), "{plain}");
    assert_eq!(probabilities("\u{feff}lovely film\n"), plain);
}

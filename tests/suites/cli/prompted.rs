//! Texts with answers for a model that goes on with prompts: the loss is over answers alone, and what is written is what was learnt.

use super::support::{Done, Place, assert_same_runs, repository};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;

/// Words, and of each the last letter as a capital and the first.
fn rows(count: usize) -> String {
    let letters = ['a', 'b', 'c', 'd', 'e'];
    (0..count).fold(String::new(), |mut text, i| {
        let word: String = (0..2 + i % 3).map(|at| letters[(i * 7 + at * (1 + i % 4)) % 5]).collect();
        let (first, last) = (&word[..1], word[word.len() - 1..].to_uppercase());
        let _ = writeln!(text, "{}", json!({ "word": word, "turned": format!("{last}{first}") }));
        text
    })
}

fn config() -> String {
    "device = \"cpu\"\nseed = 3\n[data]\nsource = \"text_pairs\"\npath = \"words.jsonl\"\ntext = \"word\"\ntarget = \"turned\"\n\
     template = \"turn {text}: \"\nbatch_size = 16\nvalidation_split = 0.2\nmax_length = 16\nbuckets = [12, 16]\n[model]\nuse = \"models/gpt.toml\"\n\
     with = { width = 32, heads = 4, layers = 2 }\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adamw\"\nlr = 0.003\n[train]\nepochs = 60\n"
        .to_owned()
}

pub fn place() -> Place {
    let place = Place::with(&config());
    place.write("words.jsonl", rows(240));
    place
}

fn answers(done: &Done) -> Vec<String> {
    done.json().as_array().unwrap().iter().map(|row| row["answer"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_model_learns_to_go_on_with_a_prompt() {
    let place = place();
    let checked = place.ok("check c.toml").out;
    assert!(checked.contains("[16, 16, 17]"), "{checked}");
    let shown = place.ok("data show c.toml").out;
    for part in ["prompts with an answer each, in batches of 12, 16 tokens", "  turn ", ":  → "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    place.ok("train c.toml --out r");
    let last = place.metrics("r").into_iter().rev().find(|line| line["val_loss"].is_number()).unwrap();
    let [perplexity, accuracy] = ["val_perplexity", "val_accuracy"].map(|name| last[name].as_f64().unwrap());
    assert!(perplexity < 1.1 && accuracy > 0.98, "{last}");
    let evaluated = place.ok("eval r --json --predictions p.jsonl").json();
    assert_eq!(evaluated["metrics"]["accuracy"], last["val_accuracy"]);
    let rows: Vec<Value> = place.read("p.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 48);
    assert!(rows.iter().filter(|row| row["target"] == row["prediction"]).count() > 45, "{rows:?}");
    // What the model was trained on is not needed any more, and the template is a part of it.
    fs::remove_file(place.path("words.jsonl")).unwrap();
    assert_eq!(place.ok("generate r --prompt abc").out, "Ca\n");
    for more in ["--without-cache", "--beams 2"] {
        assert_eq!(place.ok(&format!("generate r --prompt abc {more}")).out, "Ca\n", "{more}");
    }
    let json = place.ok("generate r --prompt de --json").json();
    assert_eq!((&json["text"], &json["finish"], &json["prompt"]), (&"Ed".into(), &"end".into(), &"de".into()));
    // The same by hand: the prompt stands before what goes on with it.
    let raw = place.command("generate r --raw --temperature 0 --prompt").arg("turn abc: ").output().unwrap();
    assert_eq!(Done::of(raw).out, "turn abc: Ca\n");
    place.write("new.csv", "other,word\n1,abc\n2,de\n");
    assert_eq!(answers(&place.ok("predict r new.csv --json")), ["Ca", "Ed"]);
    assert_eq!(answers(&place.ok("predict r new.csv --json --beams 2")), ["Ca", "Ed"]);
    assert_eq!(answers(&place.given("predict r - --json", "abc\nde\n")), ["Ca", "Ed"]);
}

/// Answers of several lengths, some longer than the model looks back, of several files: with however many others they are written, they are those of their texts alone.
#[test]
fn answers_at_a_time_are_those_one_after_the_other() {
    let place = place();
    // A word is turned as a whole, so that answers differ in length.
    let turned = |(letters, at): ([char; 5], usize)| {
        let word: String = (0..1 + at % 4).map(|i| letters[(at * 7 + i * (1 + at % 4)) % 5]).collect();
        let back: String = word.to_uppercase().chars().rev().collect();
        format!("{}\n", json!({ "word": word, "turned": back }))
    };
    place.write("words.jsonl", (0..240).map(|at| turned((['a', 'b', 'c', 'd', 'e'], at))).collect::<String>());
    place.write("new.csv", "word\nabc\nde\nedcba\na\nabcdeabcdeabcdeabcde\nbb\ncc\nad\nce\neeee\nba\n");
    place.write("more.csv", "word\nac\nbd\n");
    place.write("wrong.csv", "other\nac\n");
    let gpt = config().replace("epochs = 60", "epochs = 20");
    let lstm = "[model]\nlayers = [{ type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 }, \
                { type = \"lstm\", hidden_size = 16 }, { type = \"linear\", out_features = \"$vocabulary\" }]\n[loss]";
    let (before, rest) = gpt.split_once("[model]").unwrap();
    let states = format!("{before}{lstm}{}", rest.split_once("[loss]").unwrap().1);
    for (name, text) in
        [("attention", gpt.clone()), ("bf16", format!("precision = \"bf16\"\n{gpt}")), ("states", states)]
    {
        place.write("d.toml", text);
        place.ok(&format!("train d.toml --out {name}"));
        let one = answers(&place.ok(&format!("predict {name} new.csv --json --texts 1")));
        let lengths: Vec<usize> = one.iter().map(String::len).collect();
        assert!(one.len() == 11 && lengths.iter().any(|length| *length != lengths[0]), "{name}: {one:?}");
        for more in ["", "--texts 2", "--texts 8 --threads 1"] {
            assert_eq!(answers(&place.ok(&format!("predict {name} new.csv --json {more}"))), one, "{name} {more}");
        }
        for (word, answer) in ["abc", "abcdeabcdeabcdeabcde", "ba"].iter().zip([&one[0], &one[4], &one[10]]) {
            let alone = answers(&place.given(&format!("predict {name} - --json"), word));
            assert_eq!(alone, std::slice::from_ref(answer), "{name} {word}");
        }
        // A file that cannot be read does not end the others, whether it is read before the model is opened or later.
        let more = answers(&place.ok(&format!("predict {name} more.csv --json --texts 1")));
        let all = [one.clone(), more.clone(), one.clone()].concat();
        for texts in ["", "--texts 200"] {
            let done = place
                .run(&format!("predict {name} new.csv wrong.csv more.csv wrong.csv new.csv --format jsonl {texts}"));
            let rows = done.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let answers: Vec<(String, String)> = rows
                .map(|row| [&row["file"], &row["answer"]].map(|text| text.as_str().unwrap().to_owned()).into())
                .collect();
            assert_eq!(answers.iter().map(|(_, answer)| answer.clone()).collect::<Vec<_>>(), all, "{name}");
            assert_eq!(answers[11].0, "more.csv");
            assert_eq!(
                (done.code, done.err.matches("`wrong.csv` has no column `word`").count()),
                (Some(1), 2),
                "{}",
                done.err
            );
        }
        let predicted = |more: &str| {
            place.ok(&format!("eval {name} --predictions p.csv {more}"));
            place.read("p.csv")
        };
        let one = predicted("--texts 1");
        assert_eq!(one.lines().count(), 49);
        for more in ["", "--texts 3", "--set data.eval_batch_size=5", "--texts 100 --set data.eval_batch_size=1"] {
            assert_eq!(predicted(more), one, "{name} {more}");
        }
    }
    let has = |command: &str, part: &str| {
        let message = place.fails(command, 2);
        assert!(message.contains(part), "{command}: {message}");
    };
    has("predict attention new.csv --texts 0", "0 is not in 1..=256");
    has("predict attention new.csv --texts 2 --beams 2", "cannot be used with");
    has("eval attention --texts 2", "`--texts` is for answers that are written");
}

/// Small models of transformers: the losses of some steps of training, and the answers, with a template and with one for conversations.
#[test]
fn losses_over_answers_are_those_of_transformers() {
    let from = repository("tests/golden/prompted");
    let golden: Value = serde_json::from_slice(&fs::read(from.join("golden.json")).unwrap()).unwrap();
    for (name, all) in golden["models"].as_object().unwrap() {
        let place = Place::new();
        fs::create_dir(place.path(name)).unwrap();
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            let path = format!("{name}/{file}");
            fs::copy(repository("tests/golden/language_models").join(&path), place.path(&path)).unwrap();
        }
        for file in ["pairs.jsonl", "settings.json"] {
            fs::copy(from.join(file), place.path(file)).unwrap();
        }
        place.ok(&format!("import {name}"));
        // Their `config.json` has the number of another tokenizer.
        let imported = place.read(&format!("{name}.toml"));
        let kept = imported.lines().filter(|line| !line.starts_with("end_token")).map(|line| format!("{line}\n"));
        place.write(&format!("{name}.toml"), kept.collect::<String>());
        for (kind, wanted) in all.as_object().unwrap() {
            let around = match kind.as_str() {
                "chat" => format!("chat_template = \"settings.json\"\nsystem = {}\n", golden["system"]),
                _ => format!("template = {}\nend_token = {}\n", golden["template"], golden["end_token"]),
            };
            let longest = &wanted["longest"];
            place.write(
                "c.toml",
                format!(
                    "extends = \"{name}.toml\"\ndevice = \"cpu\"\n[data]\nsource = \"text_pairs\"\npath = \"pairs.jsonl\"\nval_path = \"pairs.jsonl\"\n\
                     {around}max_length = {longest}\nbuckets = [{longest}]\n[optimizer]\ntype = \"adamw\"\nlr = {}\nweight_decay = 0.0\n[train]\nepochs = 4\n",
                    golden["lr"]
                ),
            );
            let dropout = if name == "gpt2" { "--set params.dropout=0.0" } else { "" };
            let sets = &format!("--unset data.validation_split --unset train.clip_grad_norm {dropout}");
            let close = |own: &Value, wanted: &Value, within: f64| {
                let [own, wanted] = [own, wanted].map(|loss| loss.as_f64().unwrap());
                assert!((own - wanted).abs() < within, "{name}, {kind}: {own}, {wanted}");
            };
            let losses = wanted["losses"].as_array().unwrap();
            // Rows of other lengths in batches of their own have the same loss, too.
            for more in ["", "--set data.buckets=[16,48] --set data.max_length=48"] {
                if !(more.contains("48") && name == "gpt2") {
                    let figures = place.ok(&format!("eval c.toml {sets} {more} --json")).json();
                    close(&figures["metrics"]["loss"], &losses[0], 1e-5);
                }
            }
            let written = place.ok(&format!("predict c.toml pairs.jsonl --json {sets}"));
            let tokenizer = tokenizers::Tokenizer::from_file(place.path(&format!("{name}/tokenizer.json"))).unwrap();
            let text = |tokens: &Value| {
                let tokens: Vec<u32> = serde_json::from_value(tokens.clone()).unwrap();
                tokenizer.decode(&tokens, false).unwrap()
            };
            for (own, wanted) in answers(&written).iter().zip(wanted["answers"].as_array().unwrap()) {
                // Those that a sample has room for: here a text goes on with its second half.
                let wanted = text(wanted);
                assert!(own.starts_with(wanted.trim_end_matches('\u{FFFD}')), "{name}, {kind}: {own:?}, {wanted:?}");
            }
            place.ok(&format!("train c.toml --out {kind} {sets} --set data.batch_size=3"));
            let epochs: Vec<Value> = place.metrics(kind).into_iter().filter(|row| row["kind"] == "epoch").collect();
            assert_eq!(epochs.len(), losses.len());
            for (row, wanted) in epochs.iter().zip(losses) {
                close(&row["train_loss"], wanted, 1e-4);
            }
        }
    }
}

#[test]
fn pairs_go_on_bit_for_bit_with_any_tokenizer() {
    let place = place();
    for tokenizer in ["characters", "bytes", "bpe"] {
        let sets = match tokenizer {
            "bpe" => "--set data.tokenizer=bpe --set data.vocab_size=260".to_owned(),
            other => format!("--set data.tokenizer={other}"),
        };
        let long = "--set data.max_length=24 --set data.buckets=[16,24] --set train.epochs=3";
        place.ok(&format!("train c.toml --out whole-{tokenizer} {sets} {long}"));
        place.ok(&format!("train c.toml --out part-{tokenizer} {sets} {long} --set train.max_steps=17"));
        place.ok(&format!(
            "train --resume part-{tokenizer} --set data.workers=3 --set train.max_steps=1000 --threads 1"
        ));
        assert_same_runs((&place, &format!("whole-{tokenizer}")), (&place, &format!("part-{tokenizer}")));
        place.ok(&format!("generate whole-{tokenizer} --prompt abc --max-tokens 4"));
    }
}

/// What fills a batch does not count, and neither does the prompt.
#[test]
fn what_fills_a_batch_of_pairs_does_not_count() {
    let place = place();
    let figures = |name: &str, sets: &str| {
        place.ok(&format!(
            "train c.toml --out {name} --set train.epochs=1 --set optimizer.lr=1e-30 --set model.with.context=40 {sets}"
        ));
        let last = place.metrics(name).into_iter().rev().find(|line| line["val_loss"].is_number()).unwrap();
        ["val_loss", "val_accuracy"].map(|figure| last[figure].as_f64().unwrap())
    };
    let usual = figures("a", "");
    for (name, sets) in [
        ("b", "--set data.buckets=[16]"),
        ("c", "--set data.max_length=40 --set data.buckets=[12,14,40]"),
        ("d", "--set data.eval_batch_size=1"),
    ] {
        let other = figures(name, sets);
        assert!(other.iter().zip(usual).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {other:?}, {usual:?}");
    }
}

#[test]
fn mistakes_in_pairs_are_errors() {
    let place = place();
    let has = |sets: &str, part: &str| {
        let message = place.fails(&format!("check c.toml {sets}"), 2);
        assert!(message.contains(part), "{sets}: {part} is not in {message}");
    };
    has("--set data.text=words", "has no column `words`; its columns are");
    has("--set data.target=word", "is the text");
    has("--set data.template=turn", "must have `{text}` once");
    has("--set data.template={text}{text}", "must have `{text}` once");
    place.write("both.toml", config().replace("template = ", "chat_template = \"t.jinja\"\ntemplate = "));
    assert!(place.fails("check both.toml", 2).contains("one of them says what stands around a text"));
    has("--set data.system=short", "goes with `chat_template`");
    has("--set data.end_token='</s>'", "names a token of a `tokenizer.json`");
    has("--set data.buckets=[8,12]", "must end with `max_length`");
    has("--set loss.type=mse", "does not fit the targets of `text_pairs`");
    has("--set loss.ignore_index=3", "`ignore_index` of the loss is 3, which is a token, too");
    has("--set model.with.vocabulary=9", "embedding");
    has("--set model.with.context=9", "position");
    place.write("empty.csv", "word,turned\na,\n,b\n");
    has("--set data.path=empty.csv", "has no row with a text and an answer");
    fs::write(place.path("latin.csv"), b"word,turned\nab,ba\n\xe9,e\n").unwrap();
    has("--set data.path=latin.csv", "UTF-8");
    let said = "{% for m in messages %}{{ m.content }}{% endfor %}";
    place.write("t.jinja", format!("{{% if add_generation_prompt %}}Q{{% else %}}A{{% endif %}}{said}"));
    has("--unset data.template --set data.chat_template=t.jinja", "write `template` in its place");
    place.write("val.csv", "word,turned\nabc,cbz\n");
    place.write("asked.jinja", "{{ messages[0].content }}");
    for (file, part) in [
        (
            "val.csv",
            "`val.csv` is no template for conversations: what it makes of a text and its answer has neither of them",
        ),
        (
            "asked.jinja",
            "`asked.jinja` is no template for conversations: what it makes of a text and its answer has no answer",
        ),
    ] {
        has(&format!("--unset data.template --set data.chat_template={file}"), part);
    }
    let sets = "--set data.val_path=val.csv --unset data.validation_split";
    let why = place.fails(&format!("train c.toml --out s {sets}"), 2);
    assert!(why.contains("`val.csv`, row at line 2, the answer, column 3: the character 'z'"), "{why}");
    place.ok("train c.toml --out r --set train.epochs=1");
    assert!(place.fails("generate r", 2).contains("the model answers texts, and there is none"));
    // A place in what the user has written, without the template. The length of pairs is not that of a text.
    let message = place.fails("generate r --prompt abz", 1);
    assert!(message.contains("the prompt, column 3: the character 'z'"), "{message}");
    let message = place.ok("generate r --max-tokens 1 --prompt abcdeabcdeabcdeabcde").err;
    assert!(message.contains("the model looks back 16") && !message.contains("data.context"), "{message}");
    // A checkpoint goes on as it was trained.
    for (sets, key) in
        [("template='>{text}'", "template"), ("chat_template=t.jinja --unset data.template", "chat_template")]
    {
        let message = place.fails(&format!("generate r --prompt ab --set data.{sets}"), 2);
        assert!(message.contains(&format!("`data.{key}` cannot be another one than in training")), "{message}");
    }
    place.write("text.txt", "abcdef".repeat(40));
    place.ok("train c.toml --out t --set train.epochs=1 --set data.source=text --unset data.buckets --set data.path=text.txt --set data.context=16");
    assert!(place.fails("generate t --raw --prompt a", 2).contains("it was not trained on `text_pairs`"));
}

//! Text: from a file to a language model that writes, and from sentences with a class each to a classifier.

use super::support::{Done, Place, assert_same_runs, real_data, repository, untimed};
use std::fmt::Write;
use std::fs;

/// A text of which every character determines the next one.
pub fn counting(times: usize) -> String {
    "abcdefghijklmnopqrstuvwxyz.\n".repeat(times)
}

pub fn language_model(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 5\n[data]\nsource = \"text\"\npath = \"input.txt\"\ncontext = 16\nbatch_size = 8\nvalidation_split = 0.2\n{more}\n\
         [blocks.layer]\nlayers = [\n  {{ type = \"residual\", layers = [{{ name = \"ln_1\", type = \"layer_norm\" }}, \
         {{ name = \"attn\", type = \"multihead_attention\", num_heads = 2, is_causal = true }}] }},\n  \
         {{ type = \"residual\", layers = [{{ name = \"ln_2\", type = \"layer_norm\" }}, {{ name = \"fc\", type = \"linear\", out_features = 32 }}, \"gelu\", \
         {{ name = \"proj\", type = \"linear\", out_features = 16 }}] }},\n]\n\
         [model]\nlayers = [\n  {{ name = \"wte\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 }},\n  \
         {{ name = \"wpe\", type = \"position_embedding\", max_length = \"$context\" }},\n  {{ name = \"h\", block = \"layer\", repeat = 2 }},\n  \
         {{ name = \"head\", type = \"linear\", out_features = \"$vocabulary\", tie = \"wte.weight\", bias = false }},\n]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nsteps = 150\neval_every_steps = 50\n"
    )
}

pub fn place() -> Place {
    let place = Place::with(&language_model(""));
    place.write("input.txt", counting(60));
    place
}

/// The configuration that comes with the program.
#[test]
fn opinions_that_come_with_the_program_are_learnt() {
    let place = Place::new();
    let config = repository("configs/opinions_lstm.toml");
    let trained = place.ok(&format!("train {} --out r --device cpu", config.display()));
    assert!(!trained.err.contains("warning"), "{}", trained.err);
    let accuracy = place.metrics("r").pop().unwrap()["val_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.97, "{accuracy}");
    place.write("new.txt", "the soup was not good at all .\nthe soup was not bad at all .\n");
    let said = place.ok("predict r new.txt").out;
    let first = said.lines().skip(1).step_by(3);
    let classes: Vec<&str> = first.filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(classes, ["bad", "good"], "{said}");
}

#[test]
fn own_text_becomes_generated_text_in_two_commands() {
    let place = place();
    let checked = place.ok("check c.toml");
    for part in ["wte", "embedding", "[8, 16, 28]", "position_embedding"] {
        assert!(checked.out.contains(part), "{part}: {}", checked.out);
    }
    let shown = place.ok("data show c.toml").out;
    for part in
        ["a vocabulary of 28: 28 characters", "samples of 16 tokens: 83 to train on, 20 to validate on", "sample 2"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let first = shown.split("sample 0\n  ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    assert!(!first.is_empty() && counting(2).contains(first), "{shown}");
    let trained = place.ok("train c.toml --out r");
    assert!(trained.err.contains("1680 bytes of text are 1680 tokens (28 characters)"), "{}", trained.err);
    let last = place.metrics("r").pop().unwrap();
    let [loss, perplexity, bits] =
        ["val_loss", "val_perplexity", "val_bits_per_byte"].map(|name| last[name].as_f64().unwrap());
    assert!(loss < 0.7 && (perplexity - loss.exp()).abs() < 1e-9 * perplexity, "{last}");
    // A character is a byte here.
    assert!((bits - loss / 2f64.ln()).abs() < 1e-9 * bits, "{last}");
    assert!(trained.out.lines().any(|line| line.contains(" ppl ") && line.contains(" bpb ")), "{}", trained.out);
    let evaluated = place.ok("eval r").out;
    assert!(evaluated.contains("perplexity ") && evaluated.contains("bits_per_byte "), "{evaluated}");
    assert!(place.ok("eval r --json").json()["metrics"]["bits_per_byte"].is_number());
    let names = place.read("r/metrics.csv").lines().next().unwrap().to_owned();
    assert!(names.contains("val_perplexity,val_bits_per_byte"), "{names}");
    // What the model was trained on is not needed any more: its tokenizer is in the checkpoint.
    fs::remove_file(place.path("input.txt")).unwrap();
    let written = place.ok("generate r --prompt abc --max-tokens 12 --temperature 0");
    assert_eq!(written.out, "abcdefghijklmno\n");
    assert!(written.err.contains("12 tokens"), "{}", written.err);
    assert!(!written.err.contains("left out"), "{}", written.err);
    let written = place.ok("generate r --prompt abcdefghijklmnopqrst --max-tokens 2 --temperature 0");
    let cut = "the prompt has 20 tokens, and the model looks back 16: the first 4 are left out";
    assert!(written.err.contains(cut) && written.out == "abcdefghijklmnopqrstuv\n", "{written:?}");
    let written = place.ok("generate r --prompt abcdefghijklmnopq --max-tokens 1 --temperature 0");
    assert!(written.err.contains("looks back 16: the first one is left out (a model"), "{}", written.err);
    // Longer than the model can look back.
    let written = place.ok("generate r --prompt abc --max-tokens 60 --temperature 0");
    assert!(counting(4).starts_with(written.out.trim_end()) && written.out.len() > 60, "{}", written.out);
    let error = place.fails("generate r --prompt xy --stop=", 2);
    assert!(error.contains("`--stop` has no text"), "{error}");
    let json = place.ok("generate r --prompt xy --max-tokens 50 --temperature 0 --stop ef --json").json();
    assert_eq!((&json["text"], &json["finish"]), (&"z.\nabcd".into(), &"stop".into()));
    // The error of a number that single precision does not hold names the bound.
    for option in ["--temperature", "--repetition-penalty"] {
        let said = place.fails(&format!("generate r --prompt a {option} 1e308"), 2);
        assert!(said.contains("to 3.4e38"), "{said}");
    }
    place.write("prompt.txt", "pq");
    let read = place.ok("generate r --prompt-file prompt.txt --max-tokens 3 --temperature 0");
    assert_eq!(read.out, "pqrst\n");
    let mut command = place.command("generate r --prompt-file - --max-tokens 3 --temperature 0");
    let piped = Done::of(command.stdin(fs::File::open(place.path("prompt.txt")).unwrap()).output().unwrap());
    assert_eq!(piped.out, "pqrst\n");
}

/// What a text takes that is written: two layers of 16 keys and as many values at 16 positions; of recurrent layers states.
#[test]
fn what_is_kept_of_a_text_is_counted() {
    let place = place();
    let kept = &place.ok("check c.toml --json").json()["memory"]["generate"];
    assert_eq!((&kept["kept"], &kept["tokens"]), (&(2 * 2 * 16 * 16 * 4).into(), &16.into()));
    assert!(kept["total"].as_u64() > kept["kept"].as_u64());
    let stdout = place.ok("check c.toml").out;
    assert!(stdout.contains("for a text, of which 4.0 KiB are keys and values of 16 tokens"), "{stdout}");
    let layers = "[model]\nlayers = [{ type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 8 }, { type = \"lstm\", hidden_size = 8 }, \
                  { type = \"linear\", out_features = \"$vocabulary\" }]\n";
    let config = place.read("c.toml");
    let (begin, end) = (config.find("[blocks.layer]").unwrap(), config.find("[loss]").unwrap());
    place.write("lstm.toml", format!("{}{layers}{}", &config[..begin], &config[end..]));
    assert!(place.ok("check lstm.toml").out.contains("are the layers' states"));
    let digits = Place::with(&super::support::plain());
    assert!(digits.ok("check c.toml --json").json()["memory"]["generate"].is_null());
}

/// Weights mean nothing for tokens that stand for other texts.
#[test]
fn weights_for_other_tokens_are_refused() {
    let place = place();
    let json = fs::read_to_string(repository("tests/golden/language_models/gpt2/tokenizer.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&json).unwrap();
    place.write("a.json", &json);
    let vocabulary = &mut tokenizer["model"]["vocab"];
    let [a, b] = ["a", "b"].map(|name| vocabulary[name].clone());
    vocabulary["a"] = b;
    vocabulary["b"] = a.clone();
    place.write("b.json", tokenizer.to_string());
    place.ok(
        "train c.toml --out r --quiet --set train.steps=2 --set train.eval_every_steps=2 --set data.tokenizer=a.json",
    );
    let weights = "--set model.weights=r/best.safetensors --set data.tokenizer";
    place.ok(&format!("check c.toml {weights}=a.json"));
    let message = place.fails(&format!("check c.toml {weights}=b.json"), 2);
    assert!(message.contains("the weights in `r/best.safetensors` are for other tokens"), "{message}");
    let what = format!("token {a} is \"a\" for the weights and \"b\" for the data, and another one differs");
    assert!(message.contains(&what), "{message}");
    let stderr = place
        .ok(&format!(
            "train c.toml --out s --quiet --set train.max_steps=1 {weights}=b.json --set model.weights_strict=false"
        ))
        .err;
    assert!(stderr.contains("weights: they are for other tokens"), "{stderr}");
}

#[test]
fn texts_are_drawn_by_the_seed() {
    let place = place();
    place.ok("train c.toml --out r --set train.steps=20 --set train.eval_every_steps=20");
    let text = |more: &str| {
        let done = place.ok(&format!("generate r --prompt a --max-tokens 40 --temperature 1.3 --json {more}"));
        assert!(done.json()["tokens_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{done:?}");
        untimed(&done.out).remove(0)
    };
    let one = text("--seed 1");
    assert_eq!(text("--seed 1"), one);
    assert_ne!(text("--seed 2")["tokens"], one["tokens"]);
    // The cache changes nothing but the time that it takes.
    assert_eq!(text("--seed 1 --without-cache"), one);
    assert_eq!(text("--seed 1 --threads 1"), one);
    let two = place.ok("generate r --prompt a --max-tokens 5 --samples 2 --seed 1");
    assert_eq!(two.out.matches("---------------").count(), 1, "{}", two.out);
    let three =
        place.ok("generate r --max-tokens 3 --top-k 1 --top-p 0.5 --min-p 0.1 --repetition-penalty 1.2 --json").json();
    assert_eq!(three["tokens"].as_array().unwrap().len(), 3);
}

#[test]
fn prompts_and_options_that_do_not_fit_are_errors() {
    let place = place();
    place.ok("train c.toml --out r --set train.steps=2 --set train.eval_every_steps=2");
    let message = place.fails("generate r --prompt ABC", 1);
    assert!(message.contains("the prompt, column 1: the character 'A' (U+0041)"), "{}", message);
    for (argument, part) in [
        ("--temperature=-1", "expected a number from 0"),
        ("--top-p 2", "expected a number from 0 to 1"),
        ("--max-tokens 0", "0"),
        ("--repetition-penalty 0", "expected a number above 0"),
        ("--prompt a --prompt-file b", "cannot be used with"),
    ] {
        let message = place.fails(&format!("generate r {argument}"), 2);
        assert!(message.contains(part), "{argument}: {}", message);
    }
    assert!(place.fails("predict r input.txt", 2).contains("`runner generate`"));
    let other = Place::with(
        "[data]\nsource = \"digits\"\n[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    other.ok("train c.toml --out r --device cpu");
    assert!(other.fails("generate r", 2).contains("the model is no language model"));
}

#[test]
fn a_language_model_goes_on_bit_for_bit() {
    let place = place();
    place.ok("train c.toml --out whole --set train.steps=60 --set train.eval_every_steps=15");
    place.ok("train c.toml --out part --set train.steps=60 --set train.eval_every_steps=15 --set train.max_steps=37");
    place.ok("train --resume part --set train.max_steps=60 --set data.workers=0 --threads 1");
    assert_same_runs((&place, "whole"), (&place, "part"));
}

#[test]
fn mistakes_in_a_language_model_have_places() {
    let place = place();
    let refused = |from: &str, to: &str, parts: &[&str]| {
        place.write("d.toml", language_model("").replace(from, to));
        let missing = ["nothing.txt", "no*.txt", "none.json"].iter().any(|file| to.contains(file));
        let message = place.fails("check d.toml", if missing { 1 } else { 2 });
        for part in parts {
            assert!(message.contains(part), "{to}: {part} is not in {message}");
        }
    };
    refused(
        "\"$vocabulary\", embedding_dim",
        "20, embedding_dim",
        &["has vectors for 20 tokens, and the data has 28", "at least 28"],
    );
    refused(
        "tie = \"wte.weight\"",
        "tie = \"wta.weight\"",
        &["no parameter `wta.weight` before this layer", "wte.weight"],
    );
    refused(
        "tie = \"wte.weight\"",
        "tie = \"wpe.weight\"",
        &["`wpe.weight` is of shape [16, 16], and this layer needs [28, 16]"],
    );
    refused("max_length = \"$context\"", "max_length = 9", &["has 9 positions, but its input has 16"]);
    refused("input.txt", "nothing.txt", &["cannot read `nothing.txt`", "No such file"]);
    refused("input.txt", "no*.txt", &["no file is called like `no*.txt`"]);
    refused("context = 16", "context = 5000", &["1344 tokens are too few for a sample of 5000"]);
    refused(
        "context = 16",
        "context = 16\nvocab_size = 300",
        &["vocab_size", "this one says itself how many tokens it has"],
    );
    refused("context = 16", "context = 16\ntokenizer = \"letters\"", &["\"characters\"", "tokenizer.json"]);
    refused("context = 16", "context = 16\ntokenizer = \"none.json\"", &["none.json"]);
    refused(
        "validation_split = 0.2",
        "validation_split = 0.2\nval_path = \"input.txt\"",
        &["the samples to validate on are given twice"],
    );
    // Numbers are no tokens.
    place.write(
        "e.toml",
        language_model("")
            .replace("source = \"text\"\npath = \"input.txt\"\ncontext = 16", "source = \"digits\"")
            .replace("\"$context\"", "16")
            .replace("\"$vocabulary\"", "28"),
    );
    assert!(place.fails("check e.toml", 2).contains("`embedding` takes tokens"));
    place.write(
        "f.toml",
        fs::read_to_string(place.path("e.toml"))
            .unwrap()
            .replace("num_embeddings = \"28\"", "num_embeddings = \"$vocabulary\""),
    );
    place.write(
        "f.toml",
        language_model("")
            .replace("source = \"text\"\npath = \"input.txt\"\ncontext = 16", "source = \"digits\"")
            .replace("\"$context\"", "16"),
    );
    assert!(place.fails("check f.toml", 2).contains("the data is no text: it has no tokens"));
}

#[test]
fn a_language_model_reads_token_files() {
    let place = Place::with(
        &language_model("")
            .replace(
                "source = \"text\"\npath = \"input.txt\"",
                "source = \"tokens\"\npath = \"train.bin\"\nval_path = \"val.bin\"\ntokenizer = \"bytes\"",
            )
            .replace("validation_split = 0.2\n", ""),
    );
    let tokens = |text: &str| text.bytes().flat_map(|byte| u16::from(byte).to_le_bytes()).collect::<Vec<u8>>();
    place.write("train.bin", tokens(&counting(40)));
    place.write("val.bin", tokens(&counting(9)));
    place.ok("train c.toml --out r");
    let written = place.ok("generate r --prompt defg --max-tokens 8 --temperature 0");
    assert_eq!(written.out, "defghijklmno\n");
    // Without a tokenizer there is no text.
    place.write(
        "d.toml",
        fs::read_to_string(place.path("c.toml")).unwrap().replace("tokenizer = \"bytes\"", "vocab_size = 256"),
    );
    place.ok("train d.toml --out s --set train.steps=2 --set train.eval_every_steps=2");
    assert!(place.fails("generate s", 2).contains("the checkpoint has no tokenizer"));
    let last = place.metrics("s").pop().unwrap();
    assert!(last["val_perplexity"].is_number() && last.get("val_bits_per_byte").is_none(), "{last}");
    // Braces in a path need no quotes within it.
    place.write("more.bin", tokens(&counting(20)));
    place.ok("check c.toml --set data.path={train,more}.bin");
    place.write("bad.bin", [1, 2, 3]);
    assert!(place.fails("check c.toml --set data.path=bad.bin", 2).contains("an odd number"));
}

/// Sentences that are good or bad by one of their words.
pub fn reviews(rows: usize) -> String {
    let mut text = String::from("label,review\n");
    for i in 0..rows {
        let (label, word) = if i * 7 % 3 == 0 { ("good", "lovely") } else { ("bad", "dull") };
        let filler = ["a film", "the story of a man", "well , what can one say of it , it is long and"][i % 3];
        let _ = writeln!(
            text,
            "{label},\"{filler} {word} {}\"",
            ["", "indeed", "and that is all that there is to say"][i * 5 % 3]
        );
    }
    text
}

pub fn classifier(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 2\n[data]\nsource = \"text_classes\"\npath = \"reviews.csv\"\ntext = \"review\"\nbatch_size = 16\nvalidation_split = 0.25\n\
         max_length = 24\nbuckets = [8, 24]\n{more}\n[model]\nlayers = [\n  {{ name = \"embedding\", type = \"embedding\", num_embeddings = \"$vocabulary\", \
         embedding_dim = 16 }},\n  {{ type = \"sequence_pool\", mode = \"mean\" }},\n  {{ name = \"head\", type = \"linear\", out_features = \"$classes\" }},\n]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.05\n[train]\nepochs = 6\n"
    )
}

#[test]
fn own_sentences_become_a_classifier_in_two_commands() {
    let place = Place::with(&classifier(""));
    place.write("reviews.csv", reviews(120));
    for mode in ["mean", "max", "last", "first"] {
        place.write("d.toml", classifier("").replace("\"mean\"", &format!("\"{mode}\"")));
        place.ok(&format!("train d.toml --out {mode} --set train.epochs=2"));
    }
    let shown = place.ok("data show c.toml --json").json();
    assert!(shown["samples"][0].as_str().unwrap().contains("film lovely"), "{shown}");
    place.ok("train c.toml --out r");
    let last = place.metrics("r").into_iter().rev().find(|line| line["val_accuracy"].is_number()).unwrap();
    assert_eq!(last["val_accuracy"], 1.0, "{last}");
    assert_eq!(place.ok("eval r --json --predictions rows.csv").json()["metrics"]["accuracy"], 1.0);
    // The first row of the file is its line 2, after the names of the columns.
    let rows = place.read("rows.csv");
    let mut lines: Vec<u32> = rows.lines().filter_map(|row| row.split(',').nth(1)?.parse().ok()).collect();
    lines.sort_unstable();
    lines.dedup();
    assert!(rows.starts_with("sample,line,") && lines.len() == 30, "{rows}");
    assert!(lines.iter().all(|line| (2..=121).contains(line)), "{rows}");
    let samples: Vec<u32> = rows.lines().filter_map(|row| row.split(',').next()?.parse().ok()).collect();
    assert!(samples.iter().copied().eq(0..30), "{rows}");
    fs::remove_file(place.path("reviews.csv")).unwrap();
    place.write("new.csv", "review,x\nthis is lovely,1\nthis is dull,2\nnothing that is known,3\n");
    place.write("lines.txt", "how lovely\nhow dull\n");
    let rows = place.ok("predict r new.csv --json").json();
    let labels: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["top"][0]["label"].as_str().unwrap()).collect();
    assert_eq!((labels.len(), &labels[..2]), (3, &["good", "bad"][..]));
    let lines = place.ok("predict r lines.txt --format csv").out;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    place.write("gaps.csv", "review\nthis is lovely\n\"\"\n");
    let done = place.ok("predict r gaps.csv --json");
    assert!(done.err.contains("note: `gaps.csv`: 1 of 2 texts is empty, and answered as any other"), "{}", done.err);
    assert_eq!(done.json().as_array().map(Vec::len), Some(2));
}

/// Positions that turn queries and keys, few heads of keys and values, sines: each with the cache and without.
#[test]
fn a_cache_changes_no_token() {
    let place = place();
    let gpt = language_model("");
    let attention = "{ name = \"attn\", type = \"multihead_attention\", num_heads = 2, is_causal = true }";
    let own = "{ name = \"qkv\", type = \"linear\", out_features = 32 }, { type = \"scaled_dot_product_attention\", num_heads = 2, num_kv_heads = 1, \
               is_causal = true, rope_theta = 100.0 }, { name = \"o\", type = \"linear\", out_features = 16 }";
    let learned = "kind = \"learned\", max_length = \"$context\"";
    let positions = "type = \"position_embedding\", max_length = \"$context\"";
    for (name, text) in [
        ("rope", gpt.replace("is_causal = true", "is_causal = true, rope_theta = 1000.0")),
        ("shared", gpt.replace(attention, own)),
        ("grouped", gpt.replace("is_causal = true", "is_causal = true, num_kv_heads = 1, rope_theta = 1000.0")),
        ("sines", gpt.replace("max_length = \"$context\"", "kind = \"sinusoidal\"")),
        ("own", gpt.replace("max_length = \"$context\"", "init_std = 0.1")),
        ("named", gpt.replace(positions, &format!("type = \"position_embedding\", {learned}"))),
        ("glu", gpt.replace("out_features = 32 }, \"gelu\"", "out_features = 64 }, \"glu\"")),
    ] {
        assert!(name == "named" || text != gpt, "{name}");
        place.write("d.toml", text);
        place.ok(&format!("train d.toml --out {name} --set train.steps=30 --set train.eval_every_steps=30"));
        let text = |more: &str| {
            let written = place.ok(&format!("generate {name} --prompt abcdef --max-tokens 40 --json {more}"));
            (untimed(&written.out), written.err)
        };
        let (cached, notes) = text("");
        assert!(!notes.contains("computed from the whole text"), "{name}: {notes}");
        assert_eq!(text("--without-cache").0, cached, "{name}");
    }
    // What sees all positions at once has no cache, and writes all the same.
    place.write("d.toml", gpt.replace("is_causal = true", "is_causal = false"));
    place.ok("train d.toml --out whole --set train.steps=2 --set train.eval_every_steps=2");
    let stderr = place.ok("generate whole --prompt abc --max-tokens 3").err;
    assert!(stderr.contains("`multihead_attention` sees all positions at once"), "{stderr}");
}

/// A text has the same figures whatever length its batch has been filled up to.
#[test]
fn what_fills_a_batch_does_not_count() {
    let place = Place::with(&classifier(""));
    place.write("reviews.csv", reviews(60));
    for mode in ["mean", "max", "last"] {
        let attention = "{ type = \"multihead_attention\", num_heads = 2 }, { type = \"sequence_pool\"";
        let text = classifier("").replace("{ type = \"sequence_pool\"", attention);
        place.write("d.toml", text.replace("\"mean\"", &format!("\"{mode}\"")));
        place.ok(&format!("train d.toml --out {mode} --set train.epochs=1"));
        let figures = |more: &str| {
            place.ok(&format!("eval {mode} --split train --json {more}")).json()["metrics"]["loss"].as_f64().unwrap()
        };
        let (buckets, one) = (figures(""), figures("--set data.buckets=[24]"));
        assert!((buckets - one).abs() < 1e-6, "{mode}: {buckets}, {one}");
    }
}

#[test]
fn a_classifier_goes_on_bit_for_bit() {
    let place = Place::with(&classifier(""));
    place.write("reviews.csv", reviews(100));
    place.ok("train c.toml --out whole");
    place.ok("train c.toml --out part --set train.max_steps=13");
    place.ok("train --resume part --set data.workers=3 --set train.max_steps=1000 --threads 1");
    assert_same_runs((&place, "whole"), (&place, "part"));
}

#[test]
fn mistakes_in_tables_of_texts_are_errors() {
    let place = Place::with(&classifier(""));
    place.write("reviews.csv", reviews(30));
    let message = |sets: &str| place.fails(&format!("check c.toml {sets}"), 2);
    assert!(message("--set data.text=words").contains("has no column `words`; its columns are `label`, `review`"));
    assert!(message("--set data.target=review").contains("is the text"));
    assert!(message("--set data.buckets=[24,8]").contains("must be ascending"));
    assert!(message("--set data.buckets=[8,16]").contains("must end with `max_length`"));
    assert!(place.fails("check c.toml --set data.path=none.csv", 1).contains("none.csv"));
    place.write("empty.csv", "label,review\n,\n");
    assert!(message("--set data.path=empty.csv").contains("has no row with a text and a class"));
}

/// The recipe that comes with the program, on the text that it names; in `RUNNER_TEST_DATA`, if that is set.
#[test]
fn shakespeare_is_learnt() {
    let Some(data) = real_data() else { return };
    let place = Place::new();
    let (config, text) = (repository("configs/shakespeare_char.toml"), data.join("tinyshakespeare/input.txt"));
    let sets = format!("--set data.path={} --set device=cpu", text.display());
    let checked = place.ok(&format!("check {} {sets} --json", config.display())).json();
    assert_eq!((&checked["parameters"], checked["warnings"].as_array().map(Vec::len)), (&804_096.into(), Some(0)));
    place.ok(&format!(
        "train {} {sets} --out r --set train.steps=70 --set train.eval_every_steps=70 --set data.limit_val=100",
        config.display()
    ));
    let loss = place.metrics("r").pop().unwrap()["val_loss"].as_f64().unwrap();
    // 4.17 is that of characters drawn evenly, 3.3 that of characters as often as they occur.
    assert!(loss < 2.75, "{loss}");
    let written = place.ok("generate r --prompt KING --max-tokens 50 --json").json();
    assert_eq!(written["tokens"].as_array().unwrap().len(), 50);
}

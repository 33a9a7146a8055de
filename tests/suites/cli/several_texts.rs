//! `runner generate` with several texts: to one prompt, to several, written one after the other or at a time.

use super::support::{Done, Place, untimed};
use super::text::{language_model, place};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

/// A place with a model that has hardly learnt anything, so that its draws differ.
fn barely_trained() -> Place {
    let place = place();
    place.ok("train c.toml --out r --set train.steps=20 --set train.eval_every_steps=20");
    place
}

fn objects(done: &Done) -> Vec<Value> {
    untimed(&done.out)
}

/// Attention, also in bf16, states, and no cache at all: the texts do not depend on how many are written at a time. Where a model is wide enough for products in bf16, several
/// rows are no reason to make more of them so.
#[test]
fn texts_at_a_time_are_those_one_after_the_other() {
    let place = place();
    let gpt = language_model("");
    let (attention, rest) = gpt.split_once("[blocks.layer]").unwrap();
    let (_, rest) = rest.split_once("[loss]").unwrap();
    let layers = "{ type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 }, { type = \"lstm\", hidden_size = 16 }, \
                  { type = \"linear\", out_features = \"$vocabulary\" }";
    let bf16 = format!("precision = \"bf16\"\n{gpt}");
    let wide = [
        ("out_features = 32", "out_features = 128"),
        ("out_features = 16", "out_features = 32"),
        ("embedding_dim = 16", "embedding_dim = 32"),
    ];
    let wide = wide.iter().fold(bf16.clone(), |text, (from, to)| text.replace(from, to));
    for (name, text) in [
        ("attention", gpt.clone()),
        ("bf16", bf16),
        ("wide", wide),
        ("states", format!("{attention}[model]\nlayers = [{layers}]\n[loss]{rest}")),
        ("anew", gpt.replace("is_causal = true", "is_causal = false")),
    ] {
        place.write("d.toml", text);
        place.ok(&format!("train d.toml --out {name} --set train.steps=20 --set train.eval_every_steps=20"));
        // Some are longer than what the model looks back, and some end early: others take their places.
        let written = |more: &str| {
            let asked = "--prompt abcd --prompt z --samples 5 --temperature 3 --seed 1";
            let length = if name == "wide" { "--max-tokens 300" } else { "--max-tokens 40 --stop q" };
            let bf16 = [("RUNNER_BF16", "plain".to_owned())];
            let (_, done) = place.start_with(&format!("generate {name} {asked} {length} {more}"), &bf16).wait();
            assert_eq!(done.code, Some(0), "{done:?}");
            done
        };
        let (one, in_json) = (written("--texts 1").out, objects(&written("--texts 1 --json")));
        assert!(in_json.len() == 10 && in_json[0]["text"] != in_json[1]["text"], "{name}: {in_json:?}");
        for texts in ["", "--texts 2", "--texts 8", "--texts 7 --threads 1"] {
            let done = written(texts);
            assert_eq!(done.out, one, "{name} {texts}");
            assert_eq!(objects(&written(&format!("{texts} --json"))), in_json, "{name} {texts}");
        }
        // Of whole samples, products of a wide model are large enough for bf16.
        if name != "wide" {
            assert_eq!(objects(&written("--without-cache --json")), in_json, "{name}");
        }
    }
}

#[test]
fn each_prompt_has_its_texts_in_order() {
    let place = barely_trained();
    let drawn = "--max-tokens 12 --temperature 3 --seed 3";
    let done = place.ok(&format!("generate r --prompt ab --prompt cde --samples 2 {drawn} --json"));
    let texts = objects(&done);
    let prompts: Vec<&str> = texts.iter().map(|text| text["prompt"].as_str().unwrap()).collect();
    assert_eq!(prompts, ["ab", "ab", "cde", "cde"]);
    assert_ne!(texts[0]["text"], texts[1]["text"], "each has draws of its own");
    // The first two are those that the first prompt has alone.
    assert_eq!(objects(&place.ok(&format!("generate r --prompt ab --samples 2 {drawn} --json"))), texts[..2]);
    let line = |text: &Value| {
        let whole = format!("{}{}", text["prompt"].as_str().unwrap(), text["text"].as_str().unwrap());
        if whole.ends_with('\n') { whole } else { whole + "\n" }
    };
    let plain = texts.iter().map(line).collect::<Vec<_>>().join("---------------\n");
    let done = place.ok(&format!("generate r --prompt ab --prompt cde --samples 2 {drawn}"));
    assert_eq!(done.out, plain);
    assert!(done.err.contains("48 tokens"), "{}", done.err);
    // From a file, and from standard input: a prompt on each line.
    let asked = format!("generate r --samples 2 {drawn}");
    for content in ["ab\ncde\n", "\nab\r\n\r\ncde"] {
        place.write("p.txt", content);
        assert_eq!(place.ok(&format!("{asked} --prompts p.txt")).out, plain);
        assert_eq!(place.given(&format!("{asked} --prompts -"), content).out, plain);
    }
    // `--prompt-file` has one, with its lines.
    place.write("p.txt", "\nab\n\ncde");
    let whole = objects(&place.ok(&format!("{asked} --prompt-file p.txt --json")));
    assert!(whole.len() == 2 && whole[0]["prompt"] == "\nab\n\ncde", "{whole:?}");
}

/// Without a prompt, and with `-` for one, it comes through standard input, with the end of its line as a file has it.
#[test]
fn a_prompt_comes_through_standard_input() {
    let place = barely_trained();
    let asked = "generate r --max-tokens 12 --temperature 3 --seed 3 --json";
    let wanted = objects(&place.ok(&format!("{asked} --prompt ab")));
    for more in ["", "--prompt -"] {
        assert_eq!(objects(&place.given(&format!("{asked} {more}"), "ab")), wanted, "{more}");
        let line = place.given(&format!("{asked} {more}"), "ab\n").json();
        assert_eq!(line["prompt"], "ab\n", "{more}");
    }
    let begun = objects(&place.ok(&format!("{asked} --prompt=")));
    assert_eq!(objects(&place.given(asked, "")), begun);
    assert_eq!(begun[0]["prompt"], "");
    let beams = place.given("generate r --max-tokens 12 --beams 2 --json", "ab").json();
    assert!(beams["prompt"] == "ab" && beams["tokens_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{beams}");
}

/// As with `head -c 3`: the reader has read enough.
#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_ends_the_text() {
    let place = barely_trained();
    let mut command = place.command("generate r --prompt ab --max-tokens 100000000");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 3]).unwrap();
    let done = Done::of(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
}

#[test]
fn beams_go_through_all_prompts() {
    let place = barely_trained();
    let found = |prompts: &str| {
        let found = objects(&place.ok(&format!("generate r {prompts} --beams 3 --samples 2 --max-tokens 40 --json")));
        found.into_iter().map(|one| (one["prompt"].clone(), one["tokens"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(found("--prompt ab --prompt cde"), [found("--prompt ab"), found("--prompt cde")].concat());
    let plain = place.ok("generate r --prompt ab --prompt cde --beams 3 --samples 2 --max-tokens 3").out;
    assert_eq!(plain.matches("---------------\n").count(), 3, "{plain}");
}

#[test]
fn wrong_prompts_are_errors() {
    let place = barely_trained();
    place.write("p.txt", "ab\n\ncDe\n");
    place.write("empty.txt", "\n\n");
    place.write("binary.txt", [b'a', 0xff]);
    for (arguments, part) in [
        ("--prompt a --prompt bC", "prompt 2, column 2: the character 'C'"),
        ("--prompts p.txt", "`p.txt`, prompt 3, column 2: the character 'D'"),
        ("--prompts p.txt --beams 2", "`p.txt`, prompt 3, column 2: the character 'D'"),
        ("--prompts empty.txt", "`empty.txt` has no prompts"),
        ("--prompts binary.txt", "`binary.txt` is not UTF-8"),
        ("--prompts none.txt", "none.txt"),
    ] {
        let done = place.run(&format!("generate r {arguments}"));
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{arguments}: {done:?}");
        assert!(done.err.contains(part), "{arguments}: {}", done.err);
    }
    for (arguments, part) in [
        ("--prompt a --prompts p.txt", "cannot be used with"),
        ("--prompt-file p.txt --prompts p.txt", "cannot be used with"),
        ("--texts 2 --beams 2", "cannot be used with"),
        ("--texts 2 --without-cache", "cannot be used with"),
        ("--texts 0", "0"),
    ] {
        let message = place.fails(&format!("generate r {arguments}"), 2);
        assert!(message.contains(part), "{arguments}: {message}");
    }
}

/// Ctrl-C: each text that was begun is there, as far as it was written.
#[test]
#[cfg(unix)]
fn ctrl_c_prints_what_is_there() {
    let place = barely_trained();
    let out = place.path("out.txt");
    let mut command = place.command("generate r --prompt ab --samples 9 --texts 3 --max-tokens 100000000");
    let mut child = command.stdout(File::create(&out).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    while fs::metadata(&out).unwrap().len() < 100 {
        assert_eq!(child.try_wait().unwrap(), None, "it ends before it has written anything");
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: `kill` takes plain numbers; the process is our child and not waited for yet, so the number is its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let written = fs::read_to_string(out).unwrap();
    let texts: Vec<&str> = written.split("---------------\n").collect();
    assert_eq!(texts.len(), 3, "three are written at a time");
    assert!(texts.iter().all(|text| text.starts_with("ab") && text.ends_with('\n') && text.len() > 50));
}

//! Models that answer texts.

use super::super::{prompted, text_to_text};
use super::Server;
use crate::support::{Place, repository};
use serde_json::json;

#[test]
fn texts_are_answered_as_predict_answers_them() {
    let place = text_to_text::place();
    place.ok("train c.toml --out r --quiet --set train.epochs=3");
    place.write("new.txt", "abc\nde\nabcd\n");
    let wanted = place.ok("predict r new.txt --json").json();
    let wanted: Vec<&str> = wanted.as_array().unwrap().iter().map(|row| row["answer"].as_str().unwrap()).collect();
    let server = Server::start(&place, "r --max-rows 3");
    let models = server.get("/models").json();
    assert_eq!((&models["models"][0]["task"], &models["models"][0]["takes"]), (&json!("answers"), &json!("text")));
    let by_lines = server.ask("POST", "/predict", "Content-Type: text/plain\r\n", b"abc\nde\nabcd\n");
    let by_json = server.json("/predict/r", r#"{"instances": ["abc", {"text": "de"}, "abcd"]}"#);
    for reply in [by_lines, by_json] {
        let all = reply.predictions();
        let answers: Vec<&str> = all.iter().map(|one| one["answer"].as_str().unwrap()).collect();
        assert_eq!((answers, &all[2]["sample"]), (wanted.clone(), &json!(2)));
    }
    let body = json!({ "model": "r", "prompt": "abc", "temperature": 0, "max_tokens": 9 });
    let reply = server.json("/v1/completions", &body.to_string());
    assert_eq!(reply.json()["choices"][0]["text"], wanted[0], "{reply:?}");
    // What is wrong is said.
    let refused = |body: &str, status: u16, part: &str| {
        let reply = server.json("/predict", body);
        assert_eq!(reply.status, status, "{body}: {reply:?}");
        assert!(reply.error().contains(part), "{body}: {}", reply.error());
    };
    refused(r#"{"instances": ["abc", "xyz"]}"#, 422, "text 1: the prompt, column 1: the character 'x'");
    refused(r#"{"instances": [1]}"#, 422, "expected a text, or {\"text\": ...}");
    refused("[]", 422, "an object as {\"instances\": [...]}");
    refused(r#"{"instances": ["a"], "instances": ["b"]}"#, 422, "`instances` is there twice");
    refused(r#"{"instances": "#, 400, "the body is no JSON");
    assert_eq!(server.ask("POST", "/predict", "Content-Type: image/png\r\n", b"abc").status, 415);
    refused(r#"{"instances": ["a", "b", "a", "b"]}"#, 413, "(--max-rows)");
}

/// A model of prompts puts texts into them, and goes on with tokens as they are.
#[test]
fn prompts_are_made_of_texts() {
    let place = prompted::place();
    place.ok("train c.toml --out r --quiet --set train.epochs=3");
    place.write("new.txt", "abc\nde\n");
    let wanted = place.ok("predict r new.txt --json").json();
    let wanted: Vec<&str> = wanted.as_array().unwrap().iter().map(|row| row["answer"].as_str().unwrap()).collect();
    let server = Server::start(&place, "r");
    let all = server.json("/predict", r#"{"instances": ["abc", "de"]}"#).predictions();
    assert_eq!(all.iter().map(|one| one["answer"].as_str().unwrap()).collect::<Vec<_>>(), wanted);
    let written = |prompt: serde_json::Value| {
        let body = json!({ "prompt": prompt, "temperature": 0, "max_tokens": 9 });
        server.json("/v1/completions", &body.to_string()).json()["choices"][0]["text"].clone()
    };
    assert_eq!(written(json!("abc")), wanted[0]);
    // The tokens of `turn abc: `: characters in their order.
    let letters: Vec<char> = " :ABCDEabcdenrtu".chars().collect();
    let token = |letter: char| letters.iter().position(|known| *known == letter).unwrap();
    assert_eq!(written("turn abc: ".chars().map(token).collect()), wanted[0]);
    let reply = server.json("/v1/chat/completions", r#"{"messages": [{"role": "user", "content": "abc"}]}"#);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("no_chat_template")));
}

/// With a template for conversations the prompt of a text is a conversation in which the user says it, with what `system` said in training.
#[test]
fn conversations_begin_as_in_training() {
    let place = Place::new();
    std::fs::create_dir(place.path("llama")).unwrap();
    let from = repository("tests/golden");
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let path = format!("llama/{file}");
        std::fs::copy(from.join("language_models").join(&path), place.path(&path)).unwrap();
    }
    for (file, to) in [("settings.json", "llama/tokenizer_config.json"), ("pairs.jsonl", "pairs.jsonl")] {
        std::fs::copy(from.join("prompted").join(file), place.path(to)).unwrap();
    }
    place.ok("import llama");
    // As the documentation has it: adapters on pairs, from what `import` has written.
    let sets = "--set data.source=text_pairs --set data.path=pairs.jsonl --set data.system=short --set data.max_length=64 --set data.validation_split=1 --set data.batch_size=1 \
                --set model.lora.rank=2 --set model.lora.alpha=4.0 --set model.lora.targets=['q_proj','v_proj'] --set optimizer.lr=0.01";
    place.ok(&format!("train llama.toml --device cpu --out r --quiet {sets}"));
    let own = place.ok("generate r --prompt sea --max-tokens 9 --json").json();
    let server = Server::start(&place, "r");
    let answer = |messages: serde_json::Value| {
        let body = json!({ "messages": messages, "temperature": 0, "max_tokens": 9 });
        let reply = server.json("/v1/chat/completions", &body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    let short = answer(json!([{ "role": "user", "content": "sea" }]));
    assert_eq!(short["choices"][0]["message"]["content"], own["text"]);
    // One that says it itself is not given it twice, and another one stays as it is.
    let tokens = |messages| answer(messages)["usage"]["prompt_tokens"].clone();
    let said = |content: &str| json!([{ "role": "system", "content": content }, { "role": "user", "content": "sea" }]);
    assert_eq!(tokens(said("short")), short["usage"]["prompt_tokens"]);
    assert_ne!(tokens(said("be very long")), short["usage"]["prompt_tokens"]);
}

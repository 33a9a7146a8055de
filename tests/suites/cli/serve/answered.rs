//! Models that answer texts.

use super::super::text_to_text;
use super::Server;
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
    refused(r#"{"instances": ["abc", "xyz"]}"#, 422, "text 1: the prompt, line 1, column 1: the character 'x'");
    refused(r#"{"instances": [1]}"#, 422, "expected a text, or {\"text\": ...}");
    refused(r#"{"instances": "#, 400, "the body is no JSON");
    assert_eq!(server.ask("POST", "/predict", "Content-Type: image/png\r\n", b"abc").status, 415);
    refused(r#"{"instances": ["a", "b", "a", "b"]}"#, 413, "(--max-rows)");
}

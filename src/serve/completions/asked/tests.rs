use super::*;

const LIMITS: Limits = Limits { body: 1 << 20, pixels: 1, rows: 3, tokens: 100 };

fn asked(body: &str) -> Result<Asked, Refusal> {
    let mut keys = Keys::read(body.as_bytes())?;
    keys.model()?;
    Asked::completions(keys, &LIMITS)
}

#[test]
fn missing_parameters_have_the_usual_values() {
    let found = asked("{}").unwrap();
    assert_eq!(found.given, Given::Prompts(vec![Prompt::Text(String::new())]));
    assert_eq!((found.max_tokens, found.echo, found.stream, found.usage), (Some(16), false, false, false));
    assert_eq!(Sampling { seed: 0, ..found.sampling }, Sampling::default());
    assert_ne!(asked("{}").unwrap().sampling.seed, asked("{}").unwrap().sampling.seed);
    let null = r#"{"model": null, "prompt": null, "seed": null, "stop": null, "logprobs": null, "max_tokens": null}"#;
    assert_eq!(asked(null).unwrap().max_tokens, Some(16));
}

#[test]
fn a_key_is_there_once() {
    let refused = asked(r#"{"prompt": "A", "n": 1, "prompt": "B"}"#).unwrap_err();
    assert_eq!((&refused.reason[..], refused.about.as_deref()), ("the key `prompt` is there twice", Some("prompt")));
    for (body, reason) in
        [("[1]", "the body is no object"), ("3", "the body is no object"), ("{", "the body is no JSON")]
    {
        assert!(asked(body).unwrap_err().reason.starts_with(reason), "{body}");
    }
}

#[test]
fn given_parameters_are_taken() {
    let found = asked(
        r#"{"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 0, "temperature": 0.5, "top_p": 1, "top_k": 3, "min_p": 0.25,
            "repetition_penalty": 1.5, "seed": -1, "stop": ["x", "\n"], "echo": true, "stream": true,
            "stream_options": {"include_usage": true}, "n": 1.0, "best_of": 1, "logit_bias": {}, "frequency_penalty": 0, "user": "me"}"#,
    );
    let sampling =
        Sampling { temperature: 0.5, top_k: Some(3), top_p: 1.0, min_p: 0.25, repetition_penalty: 1.5, seed: u64::MAX };
    let expected = Asked {
        given: Given::Prompts(vec![Prompt::Text("a".into()), Prompt::Tokens(vec![1, 2])]),
        n: 1,
        max_tokens: Some(0),
        sampling,
        stop: vec!["x".into(), "\n".into()],
        echo: true,
        stream: true,
        usage: true,
    };
    assert_eq!(found.unwrap(), expected);
    assert_eq!(asked(r#"{"n": 3, "best_of": 3}"#).unwrap().n, 3);
    let given = asked(r#"{"prompt": [3]}"#).unwrap().given;
    assert_eq!(given, Given::Prompts(vec![Prompt::Tokens(vec![3])]));
}

#[test]
fn conversations_are_taken() {
    let asked = |body: &str| Asked::chat(Keys::read(body.as_bytes())?, &LIMITS);
    let found = asked(
        r#"{"messages": [{"role": "system", "content": "a", "name": "x"}, {"role": "user", "content": [{"type": "text", "text": "b"},
            {"type": "text", "text": "c"}], "tool_calls": null}], "tool_choice": "auto", "response_format": {"type": "text"}, "logprobs": false}"#,
    );
    let found = found.unwrap();
    let said = [("system", "a"), ("user", "bc")];
    let mut said = said.map(|(role, content)| Message::new(role, content));
    said[0].name = Some("x".into());
    assert_eq!((found.given, found.max_tokens), (Given::Messages(said.to_vec()), None));
    let user = r#"{"role": "user", "content": "a"}"#;
    // Both keys say the most that may be written, so that the smaller one holds.
    for (both, expected) in [
        (r#""max_tokens": 5, "max_completion_tokens": 7"#, Some(5)),
        (r#""max_tokens": 7, "max_completion_tokens": 5"#, Some(5)),
        (r#""max_tokens": null, "max_completion_tokens": 7"#, Some(7)),
    ] {
        assert_eq!(asked(&format!("{{\"messages\": [{user}], {both}}}")).unwrap().max_tokens, expected, "{both}");
    }
    for (rest, key) in [
        (String::new(), "messages"),
        (r#""messages": []"#.into(), "messages"),
        (r#""messages": "a""#.into(), "messages"),
        (r#""messages": ["a"]"#.into(), "messages[0]"),
        (format!(r#""messages": [{user}, {{"content": "a"}}]"#), "messages[1].role"),
        (r#""messages": [{"role": "user"}]"#.into(), "messages[0].content"),
        (
            r#""messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]"#.into(),
            "messages[0].content",
        ),
        (r#""messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]"#.into(), "messages[0]"),
        (format!(r#""messages": [{user}], "tools": [{{}}]"#), "tools"),
        (format!(r#""messages": [{user}], "response_format": {{"type": "json_object"}}"#), "response_format"),
        (format!(r#""messages": [{user}], "logprobs": true"#), "logprobs"),
        (format!(r#""messages": [{user}], "echo": true"#), "echo"),
        (format!(r#""messages": [{user}], "max_completion_tokens": 101"#), "max_completion_tokens"),
    ] {
        let refused = asked(&format!("{{{rest}}}")).expect_err(&rest);
        assert_eq!(refused.about.as_deref(), Some(key), "{rest}: {}", refused.reason);
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_key() {
    for (body, key) in [
        (r#"{"model": 3}"#, "model"),
        (r#"{"prompt": 3}"#, "prompt"),
        (r#"{"prompt": []}"#, "prompt"),
        (r#"{"prompt": [[]]}"#, "prompt"),
        (r#"{"prompt": [1, "a"]}"#, "prompt"),
        (r#"{"prompt": [-1]}"#, "prompt"),
        (r#"{"prompt": ["a", {}]}"#, "prompt"),
        (r#"{"prompt": ["a", "b", "c", "d"]}"#, "prompt"),
        (r#"{"max_tokens": -1}"#, "max_tokens"),
        (r#"{"max_tokens": 101}"#, "max_tokens"),
        (r#"{"max_tokens": 1.5}"#, "max_tokens"),
        (r#"{"temperature": -0.1}"#, "temperature"),
        (r#"{"temperature": 1e300}"#, "temperature"),
        (r#"{"temperature": "hot"}"#, "temperature"),
        (r#"{"top_p": 1.1}"#, "top_p"),
        (r#"{"top_k": 0}"#, "top_k"),
        (r#"{"repetition_penalty": 0}"#, "repetition_penalty"),
        (r#"{"seed": 0.5}"#, "seed"),
        (r#"{"stop": ""}"#, "stop"),
        (r#"{"stop": [1]}"#, "stop"),
        (r#"{"stop": ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]}"#, "stop"),
        (r#"{"echo": 1}"#, "echo"),
        (r#"{"stream": "yes"}"#, "stream"),
        (r#"{"stream_options": {"include_usage": true}}"#, "stream_options"),
        (r#"{"stream": true, "stream_options": {"other": true}}"#, "stream_options"),
        (r#"{"stream": true, "stream_options": 1}"#, "stream_options"),
        (r#"{"n": 0}"#, "n"),
        (r#"{"n": 4}"#, "n"),
        (r#"{"n": 2, "prompt": ["a", "b"]}"#, "n"),
        (r#"{"n": 18446744073709551615, "prompt": ["a", "b"]}"#, "n"),
        (r#"{"best_of": 2}"#, "best_of"),
        (r#"{"n": 2, "best_of": 3}"#, "best_of"),
        (r#"{"logprobs": 0}"#, "logprobs"),
        (r#"{"suffix": "x"}"#, "suffix"),
        (r#"{"logit_bias": {"1": 2}}"#, "logit_bias"),
        (r#"{"presence_penalty": 0.5}"#, "presence_penalty"),
        (r#"{"messages": []}"#, "messages"),
        (r#"{"whatever": 1}"#, "whatever"),
    ] {
        let refused = asked(body).expect_err(body);
        assert_eq!(refused.about.as_deref(), Some(key), "{body}: {}", refused.reason);
    }
    for body in ["", "[]", "{", "3", "{\"prompt\": \"\\ud800\"}"] {
        assert!(asked(body).is_err(), "{body}");
    }
}

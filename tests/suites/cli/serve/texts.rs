//! Language models: OpenAI's interface.

use super::super::text;
use super::{Reply, Server, TRAIN, request, trained};
use crate::support::{LAYERS, Place, digits};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

pub const PATH: &str = "/v1/completions";

/// A place with a language model of 28 characters, in the folder `r`, which is not sure of anything.
pub fn written() -> Place {
    let place = text::place();
    place.ok("train c.toml --out r --quiet --set train.steps=20 --set train.eval_every_steps=20");
    place
}

/// A body that comes in chunks; what has arrived of it.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(end) = chunks.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        let piece = &chunks[end + 2..];
        if length == 0 || piece.len() < length + 2 {
            break;
        }
        all.extend(&piece[..length]);
        chunks = &piece[length + 2..];
    }
    all
}

/// The events of a stream, and whether it is whole.
pub fn events(reply: &Reply) -> (Vec<Value>, bool) {
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let text = String::from_utf8(joined(&reply.body)).unwrap();
    let lines = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    let is_whole = text.ends_with("\n\ndata: [DONE]\n\n");
    (lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).unwrap()).collect(), is_whole)
}

/// The text of a stream that is whole, and why it ended.
pub fn streamed(reply: &Reply) -> (String, String) {
    let (events, is_whole) = events(reply);
    assert!(is_whole, "{reply:?}");
    let text = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    (text, events.last().unwrap()["choices"][0]["finish_reason"].as_str().unwrap().to_owned())
}

impl Server {
    pub(super) fn write(&self, body: &Value) -> Reply {
        self.json(PATH, &body.to_string())
    }

    /// The only text of a good answer.
    pub(super) fn text(&self, body: &Value) -> String {
        let reply = self.write(body);
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        reply.json()["choices"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Begins a stream, and reads until its first piece is there.
    pub(super) fn begin(&self, body: &Value) -> (TcpStream, Vec<u8>) {
        let mut stream = self.connect();
        let bytes = request("POST", PATH, "Content-Type: application/json\r\n", body.to_string().as_bytes());
        stream.write_all(&bytes).unwrap();
        let mut read = Vec::new();
        while !read.windows(5).any(|five| five == b"data:") {
            let mut some = [0; 256];
            let count = stream.read(&mut some).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&read));
            read.extend(&some[..count]);
        }
        (stream, read)
    }

    pub(super) fn generated(&self) -> f64 {
        self.metric("runner_tokens_total{model=\"r\",kind=\"generated\"}")
    }
}

/// Reads the rest of a stream.
pub fn rest((mut stream, mut read): (TcpStream, Vec<u8>)) -> Reply {
    stream.read_to_end(&mut read).unwrap();
    Reply::of(&read)
}

/// A language model beside other models is meant where no model is named, and another model beside language models; `--name` names one that is alone.
#[test]
fn the_only_language_model_needs_no_name() {
    let place = written();
    place.write("d.toml", digits("", &format!("{LAYERS}\n{TRAIN}")));
    place.ok("train d.toml --quiet --out d");
    let asked = json!({ "prompt": "ab", "max_tokens": 3 });
    let server = Server::start(&place, "d r");
    assert_eq!(server.write(&asked).json()["model"], "r");
    let samples = server.json("/predict", "{}");
    assert!(samples.status == 422 && samples.error().contains("there is no `instances`"), "{samples:?}");
    let several = Server::start(&place, "d r other=d").json("/predict", "{}");
    assert_eq!(
        (several.status, several.error().as_str()),
        (404, "there are several models: POST /predict/NAME asks d or other")
    );
    let of_none = Server::start(&place, "d other=d").write(&asked);
    assert!(of_none.status == 400 && of_none.json()["error"]["param"] == "model", "{of_none:?}");
    let server = Server::start(&place, "r other=r");
    let samples = server.json("/predict", "{}");
    assert!(samples.status == 404 && samples.error().contains("POST /v1/completions has one go on"), "{samples:?}");
    let of_several = server.write(&asked);
    assert!(of_several.status == 400 && of_several.json()["error"]["param"] == "model", "{of_several:?}");
    let named = Server::start(&place, "r --name mine");
    assert_eq!(named.write(&asked).json()["model"], "mine");
    assert!(place.fails("serve r d --port 0 --name mine", 2).contains("NAME=MODEL"));
}

#[test]
fn texts_are_those_of_generate() {
    let place = written();
    let server = Server::start(&place, "r");
    let generated = place.ok("generate r --prompt ab --max-tokens 40 --temperature 1.3 --seed 7 --json").json();
    let asked = json!({ "model": "r", "prompt": "ab", "max_tokens": 40, "temperature": 1.3, "seed": 7 });
    let reply = server.write(&asked);
    let answer = reply.json();
    assert_eq!(reply.status, 200, "{answer}");
    let choice = json!({ "text": generated["text"], "index": 0, "logprobs": null, "finish_reason": "length" });
    assert_eq!(answer["choices"], json!([choice]));
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 2, "completion_tokens": 40, "total_tokens": 42 }));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("r")));
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-") && answer["created"].as_u64() > Some(1_700_000_000));
    let text = generated["text"].as_str().unwrap();
    // The same piece by piece.
    let with = |more: Value| {
        let mut asked = asked.clone();
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        asked
    };
    let reply = server.write(&with(json!({ "stream": true })));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert_eq!(streamed(&reply), (text.to_owned(), "length".to_owned()));
    let (all, _) = events(&reply);
    assert!(
        all.len() > 30 && all.iter().all(|event| event["object"] == "text_completion" && event.get("usage").is_none())
    );
    let reply =
        server.write(&with(json!({ "stream": true, "stream_options": { "include_usage": true }, "echo": true })));
    let (mut all, is_whole) = events(&reply);
    let last = all.pop().unwrap();
    assert!(is_whole && all.iter().all(|event| event["usage"].is_null() && event.get("usage").is_some()));
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(42)));
    assert_eq!(all[0]["choices"][0]["text"], "ab");
    // As it may be asked for besides.
    assert_eq!(server.text(&with(json!({ "echo": true }))), format!("ab{text}"));
    assert_eq!(
        server.text(&with(json!({ "prompt": [2, 3], "model": null }))),
        text,
        "a newline and a full stop come before a and b"
    );
    assert_eq!(server.text(&with(json!({ "max_completion_tokens": 3 }))), text.chars().take(3).collect::<String>());
    assert_eq!(server.text(&with(json!({ "max_tokens": 0 }))), "");
    let stop: String = text.chars().skip(20).take(2).collect();
    let reply = server.write(&with(json!({ "stop": [stop, "never"] }))).json();
    let choice = &reply["choices"][0];
    assert_eq!((choice["finish_reason"].as_str(), choice["text"].as_str()), (Some("stop"), text.split(&stop).next()));
    let several = server.write(&with(json!({ "prompt": ["ab", [2], "ab"] }))).json();
    let several = several["choices"].as_array().unwrap();
    assert_eq!(several.iter().map(|choice| choice["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(several[0]["text"], text);
    assert_ne!(several[2]["text"], text, "each has draws of its own");
    for more in ["--top-k 3", "--top-p 0.5", "--min-p 0.3", "--repetition-penalty 1.7"] {
        let (key, value) = more.trim_start_matches("--").split_once(' ').unwrap();
        let asked = with(json!({ key.replace('-', "_"): serde_json::from_str::<Value>(value).unwrap() }));
        let args = format!("generate r --prompt ab --max-tokens 40 --temperature 1.3 --seed 7 --json {more}");
        assert_eq!(server.text(&asked), place.ok(&args).json()["text"].as_str().unwrap(), "{more}");
    }
    let without = json!({ "prompt": "ab", "max_tokens": 40, "temperature": 1.3 });
    assert_ne!(server.text(&without), server.text(&without), "without a seed it is another text each time");
    // What it is.
    let listed = server.get("/v1/models").json();
    assert_eq!((&listed["object"], &listed["data"][0]["id"]), (&json!("list"), &json!("r")));
    assert_eq!(server.get("/v1/models/r").json(), listed["data"][0]);
    let model = &server.get("/models").json()["models"][0];
    assert_eq!((&model["takes"], &model["context"], &model["vocabulary"]), (&json!("text"), &json!(16), &json!(28)));
    assert_eq!(server.metric("runner_request_memory_bytes"), 0.0);
    assert!(server.log().contains("POST /v1/completions 200") && server.log().contains("3 samples of r"));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_text_is_written_to_its_end() {
    let place = written();
    let mut server = Server::start(&place, "r");
    let asked = json!({ "prompt": "a", "max_tokens": 2000, "stream": true, "seed": 3, "temperature": 1.5 });
    let alone = streamed(&server.write(&asked));
    let begun = server.begin(&asked);
    // Another model takes its place.
    place.ok("train c.toml --out r2 --quiet --set train.steps=10 --set train.eval_every_steps=10 --set seed=9");
    std::fs::rename(place.path("r2/best.safetensors"), place.path("r/best.safetensors")).unwrap();
    let loaded = server.ask("POST", "/v2/repository/models/r/load", "", b"");
    assert_eq!(loaded.status, 200, "{loaded:?}");
    let other = server.begin(&asked);
    assert_eq!(streamed(&rest(begun)), alone);
    // The server is asked to stop.
    server.signal(libc::SIGTERM);
    let other = streamed(&rest(other));
    assert!(other != alone && other.0.chars().count() == 2000);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn errors_have_the_form_of_openai() {
    let place = written();
    let digits = trained();
    let server = Server::start(&place, &format!("r other={}", digits.path("r").display()));
    let mut bodies = vec![
        ("{", 400, Value::Null),
        ("", 400, Value::Null),
        ("[]", 400, Value::Null),
        ("{\"model\": \"r\", \"prompt\": \"\u{1}\"}", 400, Value::Null),
        (r#"{"model": "nothing", "prompt": "a"}"#, 404, json!("model")),
        (r#"{"model": "other", "prompt": "a"}"#, 400, json!("model")),
        (r#"{"model": "r", "prompt": "ABC"}"#, 400, json!("prompt")),
        (r#"{"model": "r", "prompt": [28]}"#, 400, json!("prompt")),
        (r#"{"model": "r", "prompt": [4294967296]}"#, 400, json!("prompt")),
        (r#"{"model": "r", "max_tokens": 5000}"#, 413, json!("max_tokens")),
        (r#"{"model": "r", "max_tokens": "x"}"#, 400, json!("max_tokens")),
        (r#"{"model": "r", "temperature": -1}"#, 400, json!("temperature")),
        (r#"{"model": "r", "n": 0}"#, 400, json!("n")),
        (r#"{"model": "r", "n": 1025}"#, 413, json!("n")),
        (r#"{"model": "r", "best_of": 2}"#, 400, json!("best_of")),
        (r#"{"model": "r", "logprobs": 5}"#, 400, json!("logprobs")),
        (r#"{"model": "r", "messages": []}"#, 400, json!("messages")),
        (r#"{"model": "r", "stream": 1}"#, 400, json!("stream")),
    ];
    let deep = "[".repeat(100_000);
    bodies.push((&deep, 400, Value::Null));
    let many = format!("{{\"model\": \"r\", \"prompt\": [{}\"a\"]}}", "\"a\",".repeat(1024));
    bodies.push((&many, 413, json!("prompt")));
    for (body, status, param) in bodies {
        let refused = server.json(PATH, body);
        let error = refused.json()["error"].clone();
        let shown: String = body.chars().take(60).collect();
        assert_eq!((refused.status, &error["param"]), (status, &param), "{shown}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{shown}: {error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{shown}: {error}");
        assert!(error.as_object().unwrap().contains_key("code"), "{error}");
    }
    assert_eq!(server.json(PATH, r#"{"model": "nothing"}"#).json()["error"]["code"], "model_not_found");
    let plain = server.ask("POST", PATH, "Content-Type: text/plain\r\n", b"{}");
    assert_eq!((plain.status, &plain.json()["error"]["type"]), (415, &json!("invalid_request_error")));
    assert_eq!(server.get(PATH).status, 405);
    assert!(server.get("/v1/nothing").json()["error"]["message"].is_string());
    assert_eq!(server.get("/v1/models/nothing").status, 404);
    assert_eq!(server.get("/v1/models/other").status, 400);
    assert_eq!(server.get("/v1/models").json()["data"].as_array().unwrap().len(), 1);
    // The other ways to ask say where to go.
    for (path, body) in [("/predict/r", "{}"), ("/v2/models/r/infer", "{}")] {
        let refused = server.json(path, body);
        assert!(refused.status == 400 && refused.error().contains("POST /v1/completions"), "{refused:?}");
    }
    assert_eq!(
        server.get("/v2/models/r").json(),
        json!({ "name": "r", "platform": "runner", "inputs": [], "outputs": [] }),
        "it takes no tensors"
    );
    assert_eq!(server.get("/v2/models/r/ready").status, 200);
    assert_eq!(server.metric("runner_request_memory_bytes"), 0.0);
    assert_eq!(server.text(&json!({ "model": "r", "prompt": "a", "max_tokens": 3 })).chars().count(), 3);
    // Who may ask.
    place.write("keys", "0123456789abcdef0123\n");
    let server = Server::start(&place, "r --api-key-file keys");
    let refused = server.json(PATH, "{}");
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (401, &json!("invalid_api_key")));
    assert_eq!(server.get("/v1/models").status, 401);
    let headers = "Content-Type: application/json\r\nAuthorization: Bearer 0123456789abcdef0123\r\n";
    assert_eq!(server.ask("POST", PATH, headers, b"{}").status, 200);
}

/// Each text has a state, or keys and values, of its own, and its tokens are those that it has alone.
#[test]
fn texts_of_other_models_are_written_at_a_time() {
    let recurrent = |layer: &str| {
        format!(
            "layers = [\n  {{ name = \"wte\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 }},\n  \
             {{ name = \"states\", type = \"{layer}\", hidden_size = 20, num_layers = 2 }},\n  \
             {{ name = \"head\", type = \"linear\", out_features = \"$vocabulary\" }},\n]\n"
        )
    };
    let llama = "use = \"llama\"\nwith = { vocabulary = 28, width = 24, heads = 4, kv_heads = 2, head_width = 6, layers = 2, hidden = 40 }\n";
    for (layer, model) in [("lstm", recurrent("lstm")), ("gru", recurrent("gru")), ("llama", llama.to_owned())] {
        let place = text::place();
        let config = place.read("c.toml");
        let (begin, end) = (config.find("[blocks.layer]").unwrap(), config.find("[loss]").unwrap());
        place.write("c.toml", format!("{}[model]\n{model}{}", &config[..begin], &config[end..]));
        place.ok("train c.toml --out r --quiet --set train.steps=20 --set train.eval_every_steps=20");
        let server = Server::start(&place, "r --texts 3");
        let prompts = ["ab", "xyz.", "abcdefghi", "e"];
        std::thread::scope(|scope| {
            for (seed, prompt) in prompts.iter().enumerate() {
                let (server, place) = (&server, &place);
                scope.spawn(move || {
                    let asked =
                        json!({ "model": "r", "prompt": prompt, "max_tokens": 40, "temperature": 1.2, "seed": seed });
                    let mut command = place.command(&format!(
                        "generate r --max-tokens 40 --temperature 1.2 --seed {seed} --json --prompt"
                    ));
                    let alone = crate::support::Done::of(command.arg(prompt).output().unwrap()).json();
                    for _ in 0..3 {
                        assert_eq!(server.text(&asked), alone["text"].as_str().unwrap(), "{layer}: {prompt}");
                    }
                });
            }
        });
    }
}

/// Words leave out spaces, so that a prompt of spaces has no tokens.
#[test]
fn a_prompt_without_tokens_is_the_clients_mistake() {
    let place = text::place();
    place.ok(
        "train c.toml --out r --quiet --set data.tokenizer=words --set train.steps=2 --set train.eval_every_steps=2",
    );
    let server = Server::start(&place, "r");
    for prompt in [json!(" "), json!(["a", "  "])] {
        let refused = server.write(&json!({ "prompt": prompt, "model": "r" }));
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["param"]), (400, &json!("prompt")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("has no tokens"), "{error}");
    }
}

#[test]
fn conversations_are_answered_by_the_template() {
    let place = Place::new();
    let from = crate::support::repository("tests/golden/language_models");
    std::fs::create_dir(place.path("llama")).unwrap();
    for file in ["llama/config.json", "llama/model.safetensors", "llama/tokenizer.json", "text.txt"] {
        std::fs::copy(from.join(file), place.path(file)).unwrap();
    }
    let template = "{% for m in messages %}{{ m['role'].upper() }} {{ m.content }}. {% endfor %}{% if add_generation_prompt %}I{% endif %}";
    let settings = json!({ "chat_template": template, "eos_token": "none" });
    place.write("llama/tokenizer_config.json", settings.to_string());
    place.ok("import llama");
    let server = Server::start(&place, "llama.toml --device cpu");
    let path = "/v1/chat/completions";
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "sea" }] }]);
    let asked = json!({ "model": "llama", "messages": messages, "temperature": 0, "max_completion_tokens": 9 });
    let mut command = place.command("generate llama.toml --max-tokens 9 --temperature 0 --json --device cpu --prompt");
    let generated = crate::support::Done::of(command.arg("USER sea. I").output().unwrap()).json();
    let reply = server.json(path, &asked.to_string());
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let answer = reply.json();
    let message = json!({ "role": "assistant", "content": generated["text"], "refusal": null });
    assert_eq!((&answer["choices"][0]["message"], &answer["object"]), (&message, &json!("chat.completion")));
    assert_eq!(answer["usage"]["completion_tokens"], 9);
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let mut piecewise = asked.clone();
    piecewise["stream"] = json!(true);
    let (all, is_whole) = events(&server.json(path, &piecewise.to_string()));
    let delta = |event: &Value| event["choices"][0]["delta"].clone();
    assert!(is_whole && all.iter().all(|event| event["object"] == "chat.completion.chunk"));
    assert_eq!(delta(&all[0]), json!({ "role": "assistant", "content": "", "refusal": null }));
    let text: String = all.iter().filter_map(|event| Some(delta(event)["content"].as_str()?.to_owned())).collect();
    assert_eq!(text, generated["text"].as_str().unwrap());
    let last = all.last().unwrap();
    assert_eq!((delta(last), &last["choices"][0]["finish_reason"]), (json!({}), &json!("length")));
    // What the template refuses, what is too long, what is no message.
    for (body, param, code) in [
        (
            json!({ "messages": [{ "role": "user", "content": "sea ".repeat(3000) }] }),
            "messages",
            "context_length_exceeded",
        ),
        (json!({ "messages": [] }), "messages", ""),
        (json!({ "messages": [{ "role": 1, "content": "a" }] }), "messages[0].role", ""),
        (json!({ "messages": messages, "tools": [{}] }), "tools", "unsupported_parameter"),
    ] {
        let refused = server.json(path, &body.to_string());
        let error = &refused.json()["error"];
        assert_eq!((refused.status, error["param"].as_str()), (400, Some(param)), "{error}");
        assert_eq!(error["code"].as_str().unwrap_or_default(), code, "{error}");
    }
    assert_eq!(server.get("/models").json()["models"][0]["chat"], true);
    // As many tokens as there is room for, where the request does not say how many.
    let open = json!({ "messages": messages, "temperature": 0, "stop": [] });
    let usage = server.json(path, &open.to_string()).json()["usage"].clone();
    let context = server.get("/models").json()["models"][0]["context"].as_u64().unwrap();
    assert!(usage["total_tokens"].as_u64().unwrap() <= context, "{usage}");
    // Several answers, each with its own beginning and end.
    let two = json!({ "messages": messages, "n": 2, "max_tokens": 3, "stream": true });
    let (all, _) = events(&server.json(path, &two.to_string()));
    for index in 0..2 {
        let of: Vec<&Value> =
            all.iter().map(|event| &event["choices"][0]).filter(|one| one["index"] == index).collect();
        assert_eq!(of[0]["delta"]["role"], "assistant", "{all:?}");
        assert!(of.last().unwrap()["finish_reason"].is_string(), "{all:?}");
    }
    // The template travels in the checkpoint.
    place.ok("train llama.toml --device cpu --out r --set data.path=text.txt --set data.batch_size=2 --set train.max_steps=1 --set train.epochs=1");
    std::fs::remove_dir_all(place.path("llama")).unwrap();
    let server = Server::start(&place, "r --device cpu");
    let asked = json!({ "messages": messages, "max_tokens": 2 });
    let own = server.json(path, &asked.to_string());
    assert_eq!(own.status, 200);
    // Unless another one is named.
    let template = "{{ messages[0].content }}";
    place.write("other.jinja", template);
    let server = Server::start(&place, "r --device cpu --set data.chat_template=other.jinja");
    let other = server.json(path, &asked.to_string());
    let [own, other] = [own, other].map(|reply| reply.json()["usage"]["prompt_tokens"].as_u64().unwrap());
    assert!(other < own, "{other}, {own}");
    place.write("broken.jinja", "{% if %}");
    place.write("unknown.jinja", "{{ messages[0].content|rot13 }}");
    for (file, part) in
        [("none.jinja", "cannot read `none.jinja`"), ("broken.jinja", "`broken.jinja`"), ("unknown.jinja", "rot13")]
    {
        let code = if file == "none.jinja" { 1 } else { 2 };
        let message = place.fails(&format!("serve r --device cpu --set data.chat_template={file}"), code);
        assert!(message.contains(part), "{message}");
    }
    // Models without one say what to do.
    let place = written();
    place.write("other.jinja", template);
    let server = Server::start(&place, "r --set data.chat_template=other.jinja");
    assert_eq!(server.json(path, &asked.to_string()).status, 200);
    let server = Server::start(&place, "r");
    let refused = server.json(path, &asked.to_string());
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["code"]), (400, &json!("no_chat_template")));
    assert!(error["message"].as_str().unwrap().contains("POST /v1/completions"), "{error}");
}

/// A classifier of texts takes them as they are, and says what `predict` says.
#[test]
fn texts_are_classified() {
    let place = Place::with(&text::classifier(""));
    place.write("reviews.csv", text::reviews(120));
    place.ok("train c.toml --out r --quiet --set train.epochs=2");
    place.write("lines.txt", "how lovely\nhow dull\n\n");
    let predicted = place.ok("predict r lines.txt --json").json();
    let server = Server::start(&place, "r");
    let plain = |body: &[u8]| server.ask("POST", "/predict", "Content-Type: text/plain; charset=utf-8\r\n", body);
    let lines = plain(b"how lovely\nhow dull\n\n").predictions();
    let json = server.json("/predict", r#"{"instances": ["how lovely", "how dull", ""]}"#).predictions();
    assert_eq!(lines, json);
    let top = |all: &[Value]| all.iter().map(|one| one["top"].clone()).collect::<Vec<_>>();
    for (served, wanted) in top(&lines).iter().zip(top(predicted.as_array().unwrap())) {
        assert_eq!(served[0]["label"], wanted[0]["label"]);
        let [a, b] = [&served[0], &wanted[0]].map(|best| best["probability"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-5, "{served}, {wanted}");
    }
    assert_eq!(lines.len(), 3);
    assert_eq!(server.get("/models").json()["models"][0]["takes"], "texts");
    assert!(plain(b"").predictions().is_empty());
    for (refused, status) in [
        (plain(b"a\n\xff\n"), 400),
        (server.json("/predict", r#"{"instances": [1]}"#), 422),
        (server.json("/predict", r#"{"instances": ["a", ["b"]]}"#), 422),
        (server.ask("POST", "/predict", "Content-Type: text/csv\r\n", b"text\na\n"), 415),
        (plain(&b"a\n".repeat(1025)), 413),
    ] {
        assert_eq!(refused.status, status, "{refused:?}");
    }
    for instance in ["3", "true", "null", "{\"text\": 1}"] {
        let refused = server.json("/predict", &format!("{{\"instances\": [{instance}]}}"));
        assert!(refused.status == 422 && refused.error().contains("expected a text, ["), "{instance}: {refused:?}");
    }
    assert_eq!(server.metric("runner_request_memory_bytes"), 0.0);
}

//! Language models that are asked for several texts: whose turn it is, and who waits.

use super::texts::{PATH, events, rest, streamed, written};
use super::{Server, request};
use serde_json::{Value, json};
use std::io::Write;

#[test]
fn texts_are_written_in_turn() {
    let place = written();
    let server = Server::start(&place, "r --texts 3");
    let asked = |n: usize| {
        let prompt = &"abcdefghijklmnop"[n..n + 1 + 2 * n];
        json!({ "prompt": prompt, "max_tokens": 60 + n, "temperature": 1.1, "seed": n })
    };
    let alone: Vec<String> = (0..5).map(|n| server.text(&asked(n))).collect();
    std::thread::scope(|scope| {
        for (n, alone) in alone.iter().enumerate() {
            let (server, asked) = (&server, &asked);
            scope.spawn(move || (0..4).for_each(|_| assert_eq!(&server.text(&asked(n)), alone, "{n}")));
        }
    });
    // A short one does not wait for a long one.
    let long = json!({ "prompt": "a", "max_tokens": 4096, "stream": true, "seed": 1, "temperature": 2 });
    let (before, begun) = (server.generated(), server.begin(&long));
    assert_eq!(server.text(&asked(0)), alone[0]);
    assert!(server.generated() - before < 4096.0);
    assert_eq!(streamed(&rest(begun)).0.chars().count(), 4096);
    // With one at a time it does.
    let server = Server::start(&place, "r --texts 1 --queue 1");
    let begun = server.begin(&long);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.text(&asked(0)));
        server.until("it waits", || server.metric("runner_queue_requests{model=\"r\"}") == 1.0);
        let refused = server.write(&asked(1));
        let error = &refused.json()["error"];
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{refused:?}");
        assert_eq!((&error["type"], &error["code"]), (&json!("rate_limit_error"), &json!("rate_limit_exceeded")));
        assert_eq!(streamed(&rest(begun)).1, "length");
        assert_eq!(waiting.join().unwrap(), alone[0]);
    });
    // Not for any time, whichever way it is answered.
    let server = Server::start(&place, "r --texts 1 --answer-timeout 1 --max-tokens 1000000");
    let begun = server.begin(&json!({ "prompt": "a", "max_tokens": 1_000_000, "stream": true }));
    for stream in [true, false] {
        let refused = server.write(&json!({ "prompt": "a", "max_tokens": 5, "stream": stream }));
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{stream}: {refused:?}");
        assert!(message.contains("no answer within 1 s (--answer-timeout)"), "{stream}: {message}");
    }
    drop(begun);
    // What was sent away is not written when its turn comes.
    let before = server.metric("runner_tokens_total{model=\"r\",kind=\"prompt\"}");
    assert_eq!(server.text(&asked(0)), alone[0]);
    assert_eq!(server.metric("runner_tokens_total{model=\"r\",kind=\"prompt\"}") - before, 1.0);
}

#[test]
fn texts_of_a_request_are_written_at_a_time() {
    let place = written();
    let server = Server::start(&place, "r --texts 3");
    let choices = |asked: &Value| {
        let answer = server.write(asked).json();
        let choices = answer["choices"].as_array().unwrap().clone();
        choices.iter().enumerate().for_each(|(index, choice)| assert_eq!(choice["index"], index, "{answer}"));
        (
            choices.iter().map(|one| one["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            answer["usage"].clone(),
        )
    };
    let mut asked = json!({ "prompt": ["a", "bc"], "n": 2, "max_tokens": 300, "temperature": 1.5, "seed": 3 });
    let (texts, usage) = choices(&asked);
    assert_eq!(texts.len(), 4);
    assert!(texts[0] != texts[1] && texts[2] != texts[3], "each is drawn anew");
    assert_eq!(usage, json!({ "prompt_tokens": 3, "completion_tokens": 1200, "total_tokens": 1203 }));
    // As if each were asked for by itself.
    let four = json!({ "prompt": ["a", "a", "bc", "bc"], "max_tokens": 300, "temperature": 1.5, "seed": 3 });
    assert_eq!(choices(&four).0, texts);
    assert_eq!(server.text(&json!({ "prompt": "a", "max_tokens": 300, "temperature": 1.5, "seed": 3 })), texts[0]);
    // Their pieces come in turn.
    asked["stream"] = true.into();
    let (events, is_whole) = events(&server.write(&asked));
    assert!(is_whole);
    let first = |index: usize, end: bool| {
        let is = |event: &Value| {
            event["choices"][0]["index"] == index && event["choices"][0]["finish_reason"].is_string() == end
        };
        events.iter().position(is).unwrap()
    };
    let begin: Vec<usize> = (0..4).map(|index| first(index, false)).collect();
    assert!(begin[..3].iter().all(|begin| *begin < first(0, true)) && begin[3] > first(0, true), "{begin:?}");
    for (index, text) in texts.iter().enumerate() {
        let pieces = events.iter().filter(|event| event["choices"][0]["index"] == index);
        let pieces: String = pieces.map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(&pieces, text, "{index}");
    }
    // A request with many texts leaves others their turn.
    let server = Server::start(&place, "r --texts 1");
    let (before, many) = (server.generated(), json!({ "prompt": vec!["a"; 50], "max_tokens": 2000, "stream": true }));
    let begun = server.begin(&many);
    assert_eq!(server.text(&json!({ "prompt": "a", "max_tokens": 5 })).chars().count(), 5);
    assert!(server.generated() - before < 100_000.0, "it was answered before all of the others were written");
    drop(begun);
    server.until("its memory comes back", || server.metric("runner_request_memory_bytes") == 0.0);
}

#[test]
fn who_goes_away_wants_no_more() {
    let place = written();
    let server = Server::start(&place, "r --texts 1 --max-tokens 100000000");
    for stream in [true, false] {
        let before = server.generated();
        let asked = json!({ "prompt": "a", "max_tokens": 100_000_000, "stream": stream });
        // The memory for so many pieces is not there.
        assert_eq!(server.write(&asked).status, 413);
        let asked = json!({ "prompt": "a", "max_tokens": 1_500_000, "stream": stream });
        let gone = match stream {
            true => server.begin(&asked).0,
            false => {
                let mut connection = server.connect();
                let body = asked.to_string();
                let bytes = request("POST", PATH, "Content-Type: application/json\r\n", body.as_bytes());
                connection.write_all(&bytes).unwrap();
                server.until("it has begun", || server.generated() > before);
                connection
            }
        };
        drop(gone);
        server.until("its memory comes back", || server.metric("runner_request_memory_bytes") == 0.0);
        // The next one need not wait for it.
        assert_eq!(server.text(&json!({ "prompt": "a", "max_tokens": 5 })).chars().count(), 5);
        assert!(server.generated() - before < 1_500_000.0);
    }
}

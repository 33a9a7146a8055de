//! Limits: of bodies, images, samples, memory, time and connections; and who may ask.

use super::{PATIENCE, Reply, Server, drawing, instances, request, trained};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn what_is_too_large_is_refused() {
    let place = trained();
    let server = Server::start(&place, "r --max-body 1 --max-pixels 5000 --max-rows 3");
    let large = vec![b' '; (1 << 20) + 1];
    for refused in [
        server.image("/predict", &large),
        server.json("/predict", &String::from_utf8(large.clone()).unwrap()),
        server.ask("POST", "/v2/models/r/infer", "", &large),
    ] {
        assert_eq!((refused.status, refused.header("connection")), (413, Some("close")), "{refused:?}");
        assert!(refused.error().contains("more than 1048576 bytes (--max-body)"));
    }
    // Of an unknown length.
    let mut chunked =
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for _ in 0..40 {
        chunked.extend(b"8000\r\n");
        chunked.extend(vec![0; 0x8000]);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    assert_eq!(Reply::of(&server.raw(&chunked)).status, 413);
    // A client that asks before sending is refused at once, and sends nothing.
    let mut stream = server.connect();
    let head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(Reply::of(&answer).status, 413);

    let mut file = Vec::new();
    let image = image::GrayImage::new(101, 50);
    image.write_to(&mut std::io::Cursor::new(&mut file), image::ImageFormat::Png).unwrap();
    let refused = server.image("/predict", &file);
    assert!(refused.status == 413 && refused.error().contains("101×50 pixels, and at most 5000"), "{refused:?}");
    // The header of a small file that claims more: what the file has after it, and whether it could have so many, is not looked at.
    for side in [1000u32, 8000, 16_000, 20_000, 32_769, u32::MAX] {
        let mut bomb = file.clone();
        bomb[16..24].copy_from_slice(&[side.to_be_bytes(); 2].concat());
        let refused = server.image("/predict", &bomb);
        let part = format!("{side}×{side} pixels, and at most 5000 are read (--max-pixels)");
        assert!(refused.status == 413 && refused.error().contains(&part), "{refused:?}");
        let refused = server.files("/predict", &[("good.png", drawing(1).0), ("bomb.png", bomb)]);
        assert!(refused.status == 413 && refused.error().starts_with("`bomb.png`: the image has"), "{refused:?}");
    }

    let images: Vec<Vec<u8>> = (0..4).map(|i| drawing(i).1).collect();
    assert_eq!(server.json("/predict", &instances(&images[..3])).status, 200);
    let refused = server.json("/predict", &instances(&images));
    assert!(refused.status == 413 && refused.error().contains("than the 3 that a request may have"), "{refused:?}");
    let files: Vec<(&str, Vec<u8>)> = (0..4).map(|i| ("x", drawing(i).0)).collect();
    assert_eq!(server.files("/predict", &files).status, 413);
    assert_eq!(server.files("/predict", &files[..3]).status, 200);
    assert_eq!(server.metric("runner_request_memory_bytes"), 0.0);
}

#[test]
fn requests_share_their_memory() {
    let place = trained();
    let server = Server::start(&place, "r --max-memory 1 --max-body 2");
    // Text is ten times as much while it is read.
    let refused = server.json("/predict", &format!("{{\"instances\": []{}}}", " ".repeat(200 << 10)));
    assert!(refused.status == 413 && refused.error().contains("(--max-memory)"), "{refused:?}");
    // One that has nearly all of it and does not end.
    let mut holder = server.connect();
    let head =
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 1040000\r\n\r\n";
    holder.write_all(head.as_bytes()).unwrap();
    holder.write_all(&[0; 1000]).unwrap();
    server.until("a little is taken", || server.metric("runner_request_memory_bytes") > 0.0);
    // What is announced and does not come takes nothing from others.
    assert_eq!(server.image("/predict", &vec![0; 100 << 10]).status, 400);
    holder.write_all(&vec![0; 1_038_000]).unwrap();
    server.until("memory is taken", || server.metric("runner_request_memory_bytes") >= 1_000_000.0);
    let refused = server.image("/predict", &vec![0; 100 << 10]);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    drop(holder);
    server.until("memory comes back", || server.metric("runner_request_memory_bytes") == 0.0);
    assert_eq!(server.image("/predict", &drawing(1).0).status, 200);
}

/// Most memory that a process has had, in MiB.
#[cfg(target_os = "linux")]
fn most_memory(server: &Server) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// Sends each body four times at once to a server that has 96 MiB for all.
#[cfg(target_os = "linux")]
fn hold_to_their_memory(place: &crate::support::Place, models: &str, cases: &[(&str, &str, Vec<u8>)]) {
    const CHARGED: f64 = 96.0;
    // What the program itself needs for connections, threads and texts of errors.
    const BESIDE: f64 = 24.0;
    for (path, kind, body) in cases {
        let server = Server::start(place, &format!("{models} --max-memory 96 --log off"));
        let before = most_memory(&server);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let answer = server.ask("POST", path, &format!("Content-Type: {kind}\r\n"), body);
                    assert!(matches!(answer.status, 200 | 400 | 413 | 422 | 503), "{answer:?}");
                });
            }
        });
        let more = most_memory(&server) - before;
        let begin = body[..body.len().min(60)].escape_ascii().to_string();
        assert!(more < CHARGED + BESIDE, "{path} {begin}: {more} MiB");
        assert_eq!(server.metric("runner_request_memory_bytes"), 0.0);
    }
}

/// Three megabytes of one thing after the other.
#[cfg(target_os = "linux")]
fn list(open: &str, one: &str, close: &str) -> Vec<u8> {
    format!("{open}{}{close}", one.repeat((3 << 20) / one.len())).into_bytes()
}

#[cfg(target_os = "linux")]
#[test]
fn no_body_takes_more_memory_than_it_is_charged() {
    let place = super::super::tables::place(100);
    place.ok("train c.toml --quiet --out rows --set train.epochs=1");
    let images = trained();
    std::fs::copy(images.path("r/best.safetensors"), place.path("images.safetensors")).unwrap();
    let mut large = Vec::new();
    let image = image::RgbImage::from_fn(2400, 2000, |x, y| image::Rgb([x as u8, y as u8, (x ^ y) as u8]));
    image.write_to(&mut std::io::Cursor::new(&mut large), image::ImageFormat::Png).unwrap();
    let numbered: String = (0..1 << 18).map(|i| format!("\"{i}\":1,")).collect();
    let (json, infer) = ("application/json", "/v2/models/images/infer");
    let cases = [
        ("/predict/images", json, list("{\"instances\":[", "1,", "1]}")),
        ("/predict/images", json, list("{\"instances\":[[", "1,", "1]]}")),
        ("/predict/rows", json, list("{\"instances\":[[", "\"\",", "1]]}")),
        ("/predict/rows", json, list("{\"instances\":[", "[1,2,\"a\"],", "1]}")),
        ("/predict/rows", json, format!("{{\"instances\":[{{{numbered}\"a\":1}}]}}").into_bytes()),
        (
            infer,
            json,
            list(
                "{\"inputs\":[{\"name\":\"inputs\",\"shape\":[1,1,8,8],\"datatype\":\"UINT8\",\"data\":[",
                "1,",
                "1]}]}",
            ),
        ),
        (infer, json, list("{\"inputs\":[{\"name\":\"inputs\",\"shape\":[", "1,", "1],\"datatype\":\"UINT8\"}]}")),
        (infer, json, list("{\"inputs\":[],\"parameters\":{\"a\":[", "1,", "1]}}")),
        (infer, json, list("{\"inputs\":[", "{\"name\":\"a\",\"shape\":[],\"datatype\":\"b\"},", "1]}")),
        (infer, json, list("{\"inputs\":[],\"outputs\":[", "{\"name\":\"\"},", "1]}")),
        (infer, json, format!("{{\"inputs\":[],\"parameters\":{{{numbered}\"a\":1}}}}").into_bytes()),
        ("/predict/rows", "text/csv", list("", "a,", "b\n1,2\n")),
        ("/predict/rows", "text/csv", list("id,rooms,age,town\n", "a,1,2,b\n", "")),
        ("/predict/rows", "text/csv", list("id,rooms,age,town\n", ",", "\n")),
        (
            "/predict/images",
            "multipart/form-data; boundary=b",
            list("", "--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n\r\n", "--b--"),
        ),
        ("/predict/images", "image/png", large),
    ];
    hold_to_their_memory(&place, "rows images=images.safetensors", &cases);
}

#[cfg(target_os = "linux")]
#[test]
fn no_text_takes_more_memory_than_it_is_charged() {
    let place = super::super::text::place();
    place.ok("train c.toml --out lm --quiet --set train.steps=20 --set train.eval_every_steps=20 --set data.tokenizer=bpe --set data.vocab_size=270");
    let (tags, pairs) = (super::super::text_tags::place(), super::super::text_pairs::place());
    for (other, name) in [(&tags, "tags"), (&pairs, "pairs")] {
        other.ok("train c.toml --out r --quiet --set train.epochs=1");
        std::fs::copy(other.path("r/best.safetensors"), place.path(&format!("{name}.safetensors"))).unwrap();
    }
    let json = "application/json";
    let stops = format!(
        "{{\"model\":\"lm\",\"max_tokens\":0,\"stop\":[\"{}\"],\"prompt\":[{}\"a\"]}}",
        "x".repeat(1 << 20),
        "\"a\",".repeat(1000)
    );
    let cases = [
        ("/v1/completions", json, list("{\"model\":\"lm\",\"max_tokens\":0,\"prompt\":\"", "a", "\"}")),
        ("/v1/completions", json, stops.into_bytes()),
        ("/predict/tags", json, list("{\"instances\":[{\"tokens\":[", "\"\",", "\"\"]}]}")),
        ("/predict/tags", json, list("{\"instances\":[\"a\",[", "0,", "0]]}")),
        ("/predict/tags", "text/plain", list("", "a ", "")),
        ("/predict/pairs", "text/plain", list("", "\t", "")),
    ];
    hold_to_their_memory(&place, "lm tags=tags.safetensors pairs=pairs.safetensors", &cases);
}

#[test]
fn slow_clients_do_not_stay() {
    let place = trained();
    let server = Server::start(&place, "r --receive-timeout 1 --max-connections 4");
    let end = |bytes: &[u8]| {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    // Nothing, half a head, half a body: each ends by itself.
    assert!(end(b"").is_empty());
    let answer = end(b"POST /predict HTTP/1.1\r\nHost:");
    assert!(answer.is_empty() || Reply::of(&answer).status == 408);
    let answer = Reply::of(&end(
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 9\r\n\r\nab",
    ));
    assert!(answer.status == 408 && answer.error().contains("(--receive-timeout)"), "{answer:?}");
    // A byte now and then does not help.
    let mut stream = server.connect();
    stream
        .write_all(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 900\r\n\r\n",
        )
        .unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    let begun = std::time::Instant::now();
    let mut answer = Vec::new();
    while answer.is_empty() || stream.read_to_end(&mut answer).is_err() {
        assert!(begun.elapsed() < PATIENCE, "it stays");
        if answer.is_empty() && stream.write_all(b"a").is_err() {
            break;
        }
        let _ = stream.read_to_end(&mut answer);
    }
    assert!(answer.is_empty() || Reply::of(&answer).status == 408, "{:?}", answer.escape_ascii().to_string());
    // More answers than any buffer holds, and no client that takes them.
    let mut greedy = server.connect();
    greedy.set_nonblocking(true).unwrap();
    let asks = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2000);
    let _ = greedy.write(&asks);
    server.until("it is let go", || server.metric("runner_connections") == 1.0);
    // All places are taken by those who say nothing, until they have to go. Meanwhile another one waits.
    let idle: Vec<_> = (0..4).map(|_| server.connect()).collect();
    server.until("there is a place", || server.image("/predict", &drawing(1).0).status == 200);
    drop(idle);
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let place = trained();
    let server = Server::start(&place, "r --max-connections 2");
    // Each has been answered once, so that it has its place.
    let mut idle: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut idle {
        stream.write_all(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
    }
    for (path, body) in [("/predict", drawing(1).0), ("/v1/completions", b"{}".to_vec())] {
        let answer = server.ask("POST", path, "Content-Type: image/png\r\n", &body);
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
        assert_eq!(answer.header("connection"), Some("close"));
        let text = String::from_utf8_lossy(&answer.body);
        assert!(text.contains("(--max-connections)"), "{text}");
    }
    // Who watches the server is answered.
    assert_eq!(server.get("/v2/health/live").status, 200);
    assert_eq!(server.metric("runner_connections"), 2.0);
    drop(idle);
    server.until("there is a place", || server.image("/predict", &drawing(1).0).status == 200);
}

#[test]
fn a_queue_that_is_full_sends_away() {
    let place = trained();
    let server = Server::start(&place, "r --queue 1");
    let input = serde_json::json!({
        "name": "inputs", "shape": [1000, 1, 8, 8], "datatype": "UINT8", "parameters": { "binary_data_size": 64_000 }
    });
    let head = serde_json::json!({ "inputs": [input], "parameters": { "binary_data_output": true } }).to_string();
    let headers = format!("Inference-Header-Content-Length: {}\r\n", head.len());
    let body = [head.as_bytes(), &[7; 64_000]].concat();
    let expected = server.ask("POST", "/v2/models/r/infer", &headers, &body).body;
    let seen = AtomicBool::new(false);
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !seen.load(Ordering::Relaxed) {
                    assert!(begun.elapsed() < PATIENCE, "no client is sent away");
                    let answer = server.ask("POST", "/v2/models/r/infer", &headers, &body);
                    match answer.status {
                        200 => assert!(answer.body == expected),
                        429 => {
                            assert!(answer.error().contains("(--queue)"), "{answer:?}");
                            assert_eq!(answer.header("retry-after"), Some("1"));
                            seen.store(true, Ordering::Relaxed);
                        }
                        _ => panic!("{answer:?}"),
                    }
                }
            });
        }
    });
    assert!(server.metric("runner_requests_total{model=\"r\",route=\"/v2/models/{name}/infer\",code=\"429\"}") >= 1.0);
}

#[test]
fn who_has_no_key_is_sent_away() {
    let place = trained();
    place.write("keys", "first-key-0123456789\nsecond-key-0123456789\n");
    let server = Server::start(&place, "r --api-key-file keys");
    let (png, _) = drawing(1);
    let ask = |method: &str, path: &str, key: &str| {
        let headers = format!("Content-Type: image/png\r\n{key}");
        server.ask(method, path, &headers, if method == "POST" { &png } else { b"" })
    };
    let routes = [
        ("POST", "/predict"),
        ("POST", "/predict/r"),
        ("GET", "/models"),
        ("GET", "/metrics"),
        ("GET", "/v2"),
        ("GET", "/v2/models/r"),
        ("POST", "/v2/models/r/infer"),
        ("POST", "/v2/repository/models/r/load"),
        ("GET", "/nowhere"),
    ];
    for (method, path) in routes {
        for key in
            ["", "Authorization: Bearer first-key-012345678\r\n", "Authorization: Basic first-key-0123456789\r\n"]
        {
            let refused = ask(method, path, key);
            assert_eq!(
                (refused.status, refused.header("www-authenticate")),
                (401, Some("Bearer")),
                "{path} {key}: {refused:?}"
            );
            assert!(refused.error().contains("key"));
        }
        let let_in = ask(method, path, "Authorization: Bearer second-key-0123456789\r\n");
        assert_ne!(let_in.status, 401, "{path}");
    }
    for path in ["/", "/v2/health/live", "/v2/health/ready"] {
        assert_eq!(ask("GET", path, "").status, 200, "{path}");
    }
    let refused = Reply::of(&server.raw(&request(
        "POST",
        "/predict",
        "Content-Type: image/png\r\nAuthorization: Bearer first-key-0123456789\r\n",
        &png,
    )));
    assert_eq!(refused.status, 200);
    assert!(!server.log().contains("first-key"), "keys are not written down");
    drop(server);
    place.write("keys", "short");
    assert!(place.fails("serve r --api-key-file keys", 1).contains("key 1 is not 16 characters"));
    assert!(place.fails("serve r --api-key-file nowhere", 1).contains("nowhere"));
}

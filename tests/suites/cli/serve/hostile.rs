//! Requests that are broken, or mean harm: each is refused with its reason, and the server goes on.

use super::{Reply, Server, drawing, instances, request, trained};
use serde_json::json;
use std::io::{Read, Write};
use std::net::Shutdown;

#[test]
fn refusals_say_why() {
    let place = trained();
    place.write("r/secret.txt", "secret");
    let server = Server::start(&place, "r");
    let form = "Content-Type: multipart/form-data; boundary=b\r\n";
    let json = "Content-Type: application/json\r\n";
    let image = "Content-Type: image/png\r\n";
    let (png, _) = drawing(1);
    for (method, path, headers, body, status, part) in [
        ("POST", "/predict", "", &b"x"[..], 415, "there is no `Content-Type`, and the model takes an image"),
        ("POST", "/predict", "Content-Type: text/plain\r\n", b"x", 415, "the model takes an image"),
        ("POST", "/predict", "Content-Type: text/csv\r\n", b"a,b\n1,2\n", 415, "the model takes an image"),
        ("POST", "/predict", image, b"", 400, "cannot read the image: it is empty"),
        ("POST", "/predict", image, b"GIF89a", 400, "cut off"),
        ("POST", "/predict", image, &png[..40], 400, "cannot read the image"),
        ("POST", "/predict", image, &png[..png.len() / 2], 400, "cannot read the image"),
        ("POST", "/predict", json, b"", 400, "the body is no JSON"),
        ("POST", "/predict", json, b"\xff\xfe", 400, "the body is no JSON"),
        ("POST", "/predict", json, b"{\"instances\": [1e999]}", 400, "the body is no JSON"),
        ("POST", "/predict", json, b"{\"instances\": []} x", 400, "the body is no JSON"),
        ("POST", "/predict", json, b"{\"instances\": [NaN]}", 400, "the body is no JSON"),
        ("POST", "/predict", json, b"{\"instances\": [[[\"a\"]]]}", 422, "invalid type: string"),
        ("POST", "/predict", "Content-Type: multipart/form-data\r\n", b"x", 400, "the form"),
        ("POST", "/predict", form, b"", 400, "the form"),
        ("POST", "/predict", form, b"--b--\r\n", 400, "there is no file in the body"),
        (
            "POST",
            "/predict",
            form,
            b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"../../x.png\"\r\n\r\nnone\r\n--b--\r\n",
            400,
            "`../../x.png`: cannot read the image: it is no image",
        ),
        ("POST", "/predict", form, b"--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nnone", 400, "the form"),
        ("POST", "/predict", "Content-Encoding: gzip\r\nContent-Type: image/png\r\n", &png, 415, "not packed"),
        ("POST", "/predict?top=x", image, &png, 400, "what follows the `?`"),
        ("POST", "/predict?top=-1", image, &png, 400, "`top` is a whole number from 1"),
        ("POST", "/predict?top=0", image, &png, 400, "`top=0`, is not understood: `top` is a whole number from 1"),
        ("POST", "/predict?top=1&top=2", image, &png, 400, "`top=1&top=2`, is not understood"),
        ("POST", "/predict?invert=yes", image, &png, 400, "`invert` is true or false"),
        ("POST", "/predict?all=1", image, &png, 400, "what follows the `?`"),
        ("POST", "/predict/..", image, &png, 404, "no model of this name"),
        ("POST", "/predict/%2e%2e%2fr%2fsecret.txt", image, &png, 404, "no model of this name"),
        ("POST", "/predict/r%00", image, &png, 404, "no model of this name"),
        ("POST", "/predict/%ff", image, &png, 400, "is no text"),
        ("GET", "/../r/secret.txt", "", b"", 404, "nothing at this address"),
        ("GET", "/r/secret.txt", "", b"", 404, "nothing at this address"),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", "", b"", 404, "nothing at this address"),
        ("GET", "//etc/passwd", "", b"", 404, "nothing at this address"),
        ("PUT", "/predict", image, &png, 405, "PUT is not for this address"),
        ("DELETE", "/", "", b"", 405, "DELETE is not for this address"),
        ("POST", "/metrics", "", b"", 405, "POST is not for this address"),
        (
            "POST",
            "/predict",
            "Content-Type: image/png\r\nSec-Fetch-Site: cross-site\r\n",
            &png,
            403,
            "pages of other sites",
        ),
        ("POST", "/v2/repository/models/x/load", "", b"", 404, "no model of this name"),
        (
            "POST",
            "/v2/repository/models/r/load",
            "",
            b"{\"parameters\": {\"config\": \"x\"}}",
            400,
            "without parameters",
        ),
        ("POST", "/v2/repository/models/r/load", "", b"nonsense", 400, "the body is no JSON"),
    ] {
        let answer = server.ask(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {path} {headers}: {answer:?}");
        assert!(answer.error().contains(part), "{method} {path} {headers}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    // As many lists within one another as there can be.
    let deep = format!("{{\"instances\": [{}", "[".repeat(1 << 20));
    assert_eq!(server.json("/predict", &deep).status, 422);
    assert_eq!(server.ask("POST", "/v2/models/r/infer", "", "[".repeat(1 << 20).as_bytes()).status, 422);
    assert_eq!(server.image("/predict", &png).status, 200);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A page of another site whose name leads to this machine: what its browser sends when it reads is no other than what a program sends, but for the name.
#[test]
fn a_name_of_another_site_that_leads_here_is_not_answered() {
    let place = trained();
    let ask = |server: &Server, method: &str, path: &str, headers: &str| {
        let (png, _) = drawing(1);
        let body = if method == "POST" { &png[..] } else { b"" };
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", png.len()) };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: image/png\r\n{headers}{length}\r\n"
        );
        Reply::of(&server.raw(&[head.as_bytes(), body].concat()))
    };
    let requests = [
        ("GET", "/"),
        ("GET", "/models"),
        ("GET", "/metrics"),
        ("GET", "/v1/models"),
        ("GET", "/v2/models/r"),
        ("GET", "/v2/health/ready"),
        ("GET", "/nowhere"),
        ("POST", "/predict"),
    ];
    let server = Server::start(&place, "r --allow-host demo.example");
    let browser = "Sec-Fetch-Site: same-origin\r\n";
    for (method, path) in requests {
        for more in ["", browser] {
            for host in
                ["evil.example", "evil.example:8000", "demo.example.evil.example", "localhost\r\nHost: evil.example"]
            {
                let refused = ask(&server, method, path, &format!("Host: {host}\r\n{more}"));
                let text = String::from_utf8_lossy(&refused.body);
                assert_eq!(refused.status, 403, "{method} {path} {host}: {refused:?}");
                assert!(text.contains("`localhost`") && text.contains("--allow-host NAME"), "{method} {path}: {text}");
            }
            for host in ["localhost", "127.0.0.1:80", "[::1]", "demo.example", "DEMO.example:8000"] {
                let answer = ask(&server, method, path, &format!("Host: {host}\r\n{more}"));
                assert_eq!(
                    answer.status,
                    if path == "/nowhere" { 404 } else { 200 },
                    "{method} {path} {host}: {answer:?}"
                );
            }
        }
        assert_ne!(ask(&server, method, path, "").status, 403, "some tools name no host");
        assert_eq!(ask(&server, method, path, browser).status, 403, "{method} {path}");
    }
    drop(server);
    // Where there are keys, or other machines ask, names say nothing.
    place.write("keys", "first-key-0123456789\n");
    let server = Server::start(&place, "r --api-key-file keys");
    let key = "Authorization: Bearer first-key-0123456789\r\n";
    assert_eq!(ask(&server, "GET", "/models", &format!("Host: box.example\r\n{key}")).status, 200);
    assert!(place.fails("serve r --api-key-file keys --allow-host box.example", 2).contains("--allow-host"));
    let server = Server::start(&place, "r --host 0.0.0.0");
    assert_eq!(ask(&server, "GET", "/models", "Host: box.example\r\n").status, 200);
}

#[test]
fn what_is_no_http_ends_its_connection_alone() {
    let place = trained();
    let server = Server::start(&place, "r");
    let (png, _) = drawing(1);
    let whole = request("POST", "/predict", "Content-Type: image/png\r\n", &png);
    for (bytes, status) in [
        (&b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nbroken\r\n\r\n", 400),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffffff\r\n", 400),
    ] {
        let answer = server.raw(bytes);
        let status_of = |answer: &[u8]| Reply::of(answer).status;
        assert!(answer.is_empty() || status_of(&answer) == status, "{:?}: {:?}", bytes.escape_ascii().to_string(), answer.escape_ascii().to_string());
    }
    let large = [b"GET / HTTP/1.1\r\nHost: localhost\r\n", &b"A: b\r\n".repeat(30_000)[..], b"\r\n"].concat();
    let answer = server.raw(&large);
    assert!(answer.is_empty() || Reply::of(&answer).status == 431, "{:?}", answer.escape_ascii().to_string());
    // Cut off at any place: in its head there is no answer, in its body a reason.
    let head = whole.len() - png.len();
    for at in [0, 1, 10, head - 1, head, head + 1, whole.len() - 1] {
        let mut stream = server.connect();
        stream.write_all(&whole[..at]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        match at < head {
            true => assert!(answer.is_empty() || Reply::of(&answer).status == 400, "{at}"),
            false => {
                let answer = Reply::of(&answer);
                assert_eq!((answer.status, answer.error().as_str()), (400, "the body is cut off, or broken"), "{at}");
            }
        }
    }
    // And gone without a word.
    for at in [head - 1, head + 1, whole.len()] {
        server.connect().write_all(&whole[..at]).unwrap();
    }
    assert_eq!(Reply::of(&server.raw(&whole)).status, 200);
    server.until("connections end", || server.metric("runner_connections") == 1.0);
    assert_eq!(server.metric("runner_request_memory_bytes"), 0.0);
    assert!(!server.log().contains("panicked"), "{}", server.log());
    assert_eq!(server.stop(), Some(0));
}

/// A number that follows from those before, for changes that are the same in every run.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 33) as usize
}

#[test]
fn changed_bodies_are_answered_or_refused() {
    let place = trained();
    let server = Server::start(&place, "r --max-rows 64 --max-memory 64");
    let (png, bytes) = drawing(3);
    let form =
        [&b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n"[..], &png, b"\r\n--b--\r\n"]
            .concat();
    let input = json!({ "inputs": [{ "name": "inputs", "shape": [1, 1, 8, 8], "datatype": "UINT8", "data": bytes }] });
    let seeds = [
        ("/predict", "Content-Type: image/png\r\n", png),
        ("/predict", "Content-Type: multipart/form-data; boundary=b\r\n", form),
        ("/predict", "Content-Type: application/json\r\n", instances(&[bytes]).into_bytes()),
        ("/v2/models/r/infer", "", input.to_string().into_bytes()),
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..400 {
        let (path, headers, seed) = &seeds[turn % seeds.len()];
        let mut body = seed.clone();
        for _ in 0..=next(&mut state) % 4 {
            let at = next(&mut state) % body.len();
            match next(&mut state) % 5 {
                0 => body[at] = next(&mut state) as u8,
                1 => body[at] ^= 1 << (next(&mut state) % 8),
                2 => body.truncate(at.max(1)),
                3 => _ = body.remove(at),
                _ => {
                    let piece = body[at..(at + 30).min(body.len())].to_vec();
                    body.splice(at..at, piece);
                }
            }
            if body.is_empty() {
                body.push(b'x');
            }
        }
        let answer = server.ask("POST", path, headers, &body);
        assert!(
            matches!(answer.status, 200 | 400 | 413 | 415 | 422),
            "{path}: {:?} {answer:?}",
            body.escape_ascii().to_string()
        );
        if answer.status != 200 {
            assert!(!answer.error().is_empty());
        }
        seen.insert(answer.status);
    }
    assert!(seen.len() > 2, "changes of several kinds: {seen:?}");
    assert!(!server.log().contains("panicked"), "{}", server.log());
    assert_eq!(server.metric("runner_request_memory_bytes"), 0.0);
}

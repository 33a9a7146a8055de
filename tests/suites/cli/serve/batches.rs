//! Requests that wait for others, and what is counted of all.

use super::{Server, drawing, request, trained};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends a request, whose answer is read later.
fn begin(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(bytes).unwrap();
    stream
}

/// A request of so many samples.
fn many(samples: usize) -> Vec<u8> {
    let size = samples * 64;
    let input = serde_json::json!({
        "name": "inputs", "shape": [samples, 1, 8, 8], "datatype": "UINT8", "parameters": { "binary_data_size": size }
    });
    let head = serde_json::json!({ "inputs": [input], "parameters": { "binary_data_output": true } }).to_string();
    let headers = format!("Inference-Header-Content-Length: {}\r\n", head.len());
    request("POST", "/v2/models/r/infer", &headers, &[head.as_bytes(), &vec![7; size]].concat())
}

/// Where requests come in crowds, those that are fewer than a batch wait for others, as long as `--max-delay-ms` says; here until the test ends.
#[test]
fn requests_in_a_crowd_wait_for_others() {
    let place = trained();
    let server = Server::start(&place, "r --max-batch 4 --max-delay-ms 60000 --log off");
    let one = request("POST", "/predict", "Content-Type: image/png\r\n", &drawing(1).0);
    let computed = || server.metric("runner_batch_requests_sum{model=\"r\"}");
    let waiting = || server.metric("runner_queue_requests{model=\"r\"}");
    let mut sent = Vec::new();
    // Until some of those that come while a large one is computed make a batch, and others are left.
    let mut left = 0.0;
    server.until("a crowd", || {
        sent.push(begin(&server, &many(1000)));
        (0..6).for_each(|_| sent.push(begin(&server, &one)));
        server.until("all are computed or wait", || computed() + waiting() == sent.len() as f64);
        left = waiting();
        // Those that are not made to wait are computed meanwhile.
        left > 0.0 && (0..30).all(|_| waiting() == left)
    });
    let batches = server.metric("runner_batch_requests_count{model=\"r\"}");
    (left as usize..4).for_each(|_| sent.push(begin(&server, &one)));
    server.until("they are a batch", || computed() == sent.len() as f64);
    assert_eq!(server.metric("runner_batch_requests_count{model=\"r\"}") - batches, 1.0);
    for mut stream in sent {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{:?}", answer.escape_ascii().to_string());
    }
}

#[test]
fn what_is_done_is_counted() {
    let place = trained();
    let server = Server::start(&place, "r other=r --max-batch 2");
    let of = |name: &str, labels: &str| server.metric(&format!("{name}{{{labels}}}"));
    for name in ["r", "other"] {
        assert_eq!(of("runner_model_ready", &format!("model=\"{name}\"")), 1.0);
        assert_eq!(of("runner_batch_duration_seconds_count", &format!("model=\"{name}\"")), 0.0);
    }
    for number in 0..3 {
        assert_eq!(server.image("/predict/r", &drawing(number).0).status, 200);
    }
    assert_eq!(server.image("/predict/r", b"nonsense").status, 400);
    let route = "model=\"r\",route=\"/predict/{name}\"";
    assert_eq!(of("runner_requests_total", &format!("{route},code=\"200\"")), 3.0);
    assert_eq!(of("runner_requests_total", &format!("{route},code=\"400\"")), 1.0);
    // Those that were refused took time, too.
    assert_eq!(of("runner_request_duration_seconds_count", route), 4.0);
    assert_eq!(of("runner_request_duration_seconds_bucket", &format!("{route},le=\"+Inf\"")), 4.0);
    assert!(of("runner_request_duration_seconds_sum", route) > 0.0);
    assert_eq!(of("runner_batch_duration_seconds_count", "model=\"r\""), 3.0);
    assert_eq!(of("runner_batch_duration_seconds_bucket", "model=\"r\",le=\"+Inf\""), 3.0);
    assert!(of("runner_batch_duration_seconds_sum", "model=\"r\"") > 0.0);
    assert_eq!(of("runner_batch_samples_sum", "model=\"r\""), 3.0);
    assert_eq!(of("runner_batch_duration_seconds_count", "model=\"other\""), 0.0);
}

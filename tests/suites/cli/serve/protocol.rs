//! The Open Inference Protocol.

use super::{Reply, Server, drawing, trained};
use runner::api::predictor::{Options, Predictor};
use runner::config::language::values::Device;
use serde_json::{Value, json};

const INFER: &str = "/v2/models/r/infer";

fn infer(server: &Server, body: &Value) -> Reply {
    server.ask("POST", INFER, "", body.to_string().as_bytes())
}

/// A request with tensors after its JSON.
fn with_bytes(server: &Server, head: &Value, bytes: &[u8], length: Option<&str>) -> Reply {
    let head = head.to_string();
    let length = length.map_or_else(|| head.len().to_string(), str::to_owned);
    let headers = format!("Inference-Header-Content-Length: {length}\r\nContent-Type: application/octet-stream\r\n");
    server.ask("POST", INFER, &headers, &[head.as_bytes(), bytes].concat())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

#[test]
fn tensors_are_answered_as_by_the_library() {
    let place = trained();
    let server = Server::start(&place, "r");
    let (all, samples) = ((0..5).flat_map(|i| drawing(i).1).collect::<Vec<u8>>(), 5);
    let batch = server.get("/models").json()["models"][0]["batch"].as_u64().unwrap() as usize;
    let options = Options { device: Some(Device::Cpu), batch, threads: Some(1), ..Options::default() };
    let mut expected = vec![0.0; 10 * samples];
    Predictor::open(&place.path("r"), &options).unwrap().predict(&[&all], &mut expected).unwrap();

    let input = json!({ "name": "inputs", "shape": [samples, 1, 8, 8], "datatype": "UINT8", "data": all });
    let answer = infer(&server, &json!({ "id": "seven", "inputs": [input] }));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    let whole = answer.json();
    assert_eq!((&whole["model_name"], &whole["id"]), (&json!("r"), &json!("seven")));
    let output = &whole["outputs"][0];
    assert_eq!(
        (&output["name"], &output["datatype"], &output["shape"]),
        (&json!("outputs"), &json!("FP32"), &json!([5, 10]))
    );
    let data: Vec<f32> = output["data"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect();
    assert_eq!(data, expected);
    // Nested lists are as good.
    let nested: Vec<Value> = all.chunks(64).map(|image| json!([image.chunks(8).collect::<Vec<_>>()])).collect();
    let input = json!({ "data": nested, "name": "inputs", "shape": [samples, 1, 8, 8], "datatype": "UINT8" });
    assert_eq!(infer(&server, &json!({ "inputs": [input] })).json()["outputs"], whole["outputs"]);

    let input = json!({ "name": "inputs", "shape": [samples, 1, 8, 8], "datatype": "UINT8", "parameters": { "binary_data_size": all.len() } });
    for (more, is_binary) in [
        (json!({}), false),
        (json!({ "outputs": [{ "name": "outputs", "parameters": { "binary_data": true } }] }), true),
        (json!({ "parameters": { "binary_data_output": true } }), true),
        (
            json!({ "parameters": { "binary_data_output": true }, "outputs": [{ "name": "outputs", "parameters": { "binary_data": false } }] }),
            false,
        ),
    ] {
        let mut head = json!({ "inputs": [input] });
        head.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = with_bytes(&server, &head, &all, None);
        assert_eq!(answer.status, 200, "{answer:?}");
        if is_binary {
            let json = answer.header("inference-header-content-length").unwrap().parse::<usize>().unwrap();
            let json_part: Value = serde_json::from_slice(&answer.body[..json]).unwrap();
            assert_eq!(json_part["outputs"][0]["parameters"]["binary_data_size"], 200);
            assert_eq!(floats(&answer.body[json..]), expected);
        } else {
            assert_eq!(answer.json()["outputs"], whole["outputs"]);
        }
    }
}

#[test]
fn the_server_and_its_models_are_described() {
    let place = trained();
    let server = Server::start(&place, "r second=r");
    assert_eq!(server.get("/v2").json()["name"], "runner");
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/r/ready", "/v2/models/second/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let model = server.get("/v2/models/second").json();
    assert_eq!(
        model,
        json!({
            "name": "second",
            "platform": "runner",
            "inputs": [{ "name": "inputs", "datatype": "UINT8", "shape": [-1, 1, 8, 8] }],
            "outputs": [{ "name": "outputs", "datatype": "FP32", "shape": [-1, 10] }],
        })
    );
    for path in ["/v2/models/third", "/v2/models/third/ready", "/v2/models", "/v2/models/r/versions", "/v3"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.error().is_empty());
    }
    let answer = server.get(INFER);
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert!(answer.error().contains("GET is not for this address"));
}

#[test]
fn tensors_that_do_not_fit_are_errors() {
    let place = trained();
    let server = Server::start(&place, "r");
    let input = |shape: Value, datatype: &str, data: Value| json!({ "name": "inputs", "shape": shape, "datatype": datatype, "data": data });
    let good = || input(json!([1, 1, 8, 8]), "UINT8", json!(vec![0; 64]));
    for (body, status, part) in [
        (json!({ "inputs": [] }), 422, "the model takes `inputs`, which is not there"),
        (
            json!({ "inputs": [input(json!([1, 8, 8]), "UINT8", json!(vec![0; 64]))] }),
            422,
            "has the shape [1, 8, 8], and the model takes [-1, 1, 8, 8]",
        ),
        (json!({ "inputs": [input(json!([]), "UINT8", json!(0))] }), 422, "has the shape []"),
        (
            json!({ "inputs": [input(json!([1, 1, 8, 8]), "FP32", json!(vec![0; 64]))] }),
            422,
            "of the datatype UINT8, not FP32",
        ),
        (
            json!({ "inputs": [input(json!([1, 1, 8, 8]), "UINT8", json!(vec![0; 63]))] }),
            422,
            "has 63 elements, and its shape asks for 64",
        ),
        (
            json!({ "inputs": [input(json!([1, 1, 8, 8]), "UINT8", json!(vec![300; 64]))] }),
            422,
            "whole numbers from 0 to 255",
        ),
        (json!({ "inputs": [input(json!([1, 1, 8, 8]), "UINT8", json!("abc"))] }), 422, "invalid type"),
        (json!({ "inputs": [input(json!([u64::MAX, 1, 8, 8]), "UINT8", json!([]))] }), 413, "(--max-rows)"),
        (json!({ "inputs": [input(json!([2000, 1, 8, 8]), "UINT8", json!([]))] }), 413, "(--max-rows)"),
        (json!({ "inputs": [good(), good()] }), 422, "`inputs` is there twice"),
        (
            json!({ "inputs": [good()], "outputs": [{ "name": "logits" }] }),
            422,
            "the model has no output `logits`: it has `outputs`",
        ),
        (
            json!({ "inputs": [good()], "outputs": [{ "name": "outputs", "parameters": { "classification": 2 } }] }),
            400,
            "`classification`",
        ),
        (json!({ "inputs": [good()], "parameters": { "priority": 1 } }), 400, "`priority`"),
        (json!({ "inputs": [good()], "more": 1 }), 422, "unknown field `more`"),
        (
            json!({ "inputs": [{ "name": "inputs", "shape": [1, 1, 8, 8], "datatype": "UINT8" }] }),
            422,
            "neither `data` nor",
        ),
        (
            json!({ "inputs": [{ "name": "inputs", "shape": [1, 1, 8, 8], "datatype": "UINT8", "parameters": { "shared_memory_region": "x" } }] }),
            400,
            "`shared_memory_region`",
        ),
        (
            json!({ "inputs": [{ "name": "x", "shape": [1], "datatype": "UINT8", "data": [1] }] }),
            422,
            "the model takes no `x`",
        ),
        (json!([]), 422, "expected an object as {\"inputs\": [...]}"),
        (json!([null, {}, [good()], []]), 422, "expected an object as {\"inputs\": [...]}"),
        (json!({ "inputs": [[]] }), 422, "expected a tensor as {\"name\": ..., \"shape\": [...]"),
        (json!({ "inputs": [good()], "outputs": ["outputs"] }), 422, "expected an output as {\"name\": ...}"),
        (json!({}), 422, "missing field `inputs`"),
        (
            json!({ "inputs": [input(json!([-1, 1, 8, 8]), "UINT8", json!(vec![0; 64]))] }),
            422,
            "integer `-1`, expected an element of `shape`, a whole number from 0",
        ),
        (json!({ "inputs": [input(json!([1.5]), "UINT8", json!([]))] }), 422, "`1.5`, expected an element of `shape`"),
    ] {
        let answer = infer(&server, &body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.error().contains(part), "{body}: {answer:?}");
    }
    let head = |size: usize| json!({ "inputs": [{ "name": "inputs", "shape": [1, 1, 8, 8], "datatype": "UINT8", "parameters": { "binary_data_size": size } }] });
    for (size, bytes, length, status, part) in [
        (63, 63, None, 422, "has 63 bytes, and its shape asks for 64"),
        (64, 60, None, 400, "has 64 bytes, and the body 60"),
        (64, 65, None, 400, "1 bytes are left after the tensors"),
        (64, 64, Some("99999"), 400, "and the body has"),
        (64, 64, Some("-1"), 400, "is no number"),
        (64, 64, Some("7"), 400, "the body is no JSON"),
        (64, 64, Some("0"), 400, "the body is no JSON"),
    ] {
        let answer = with_bytes(&server, &head(size), &vec![0; bytes], length);
        assert_eq!(answer.status, status, "{size} {bytes} {length:?}: {answer:?}");
        assert!(answer.error().contains(part), "{size} {bytes} {length:?}: {answer:?}");
    }
    let none = json!({ "inputs": [input(json!([0, 1, 8, 8]), "UINT8", json!([]))] });
    assert_eq!(infer(&server, &none).json()["outputs"][0]["shape"], json!([0, 10]));
}

//! Tables and texts in other encodings, and tables without a header.

use super::super::tables;
use super::*;
use serde_json::json;

/// Houses of a table in windows-1252, without a line that names the columns.
fn place() -> Place {
    let place = Place::with(
        &tables::config("target = \"5\"\nheader = false\nencoding = \"windows-1252\"")
            .replace("id = \"id\"", "id = \"1\""),
    );
    let rows = tables::houses(120).replace("sea", "s\u{fc}d");
    let bytes = rows.lines().skip(1).flat_map(|line| line.chars().map(|c| c as u8).chain([b'\n']));
    place.write("houses.csv", bytes.collect::<Vec<u8>>());
    place
}

#[test]
fn a_charset_is_looked_at() {
    let place = place();
    place.ok("train c.toml --quiet --out r --set train.epochs=3");
    let server = Server::start(&place, "r");
    let objects = json!({ "instances": [{ "2": 3, "3": 4, "4": "s\u{fc}d" }] }).to_string();
    let expected = server.json("/predict", &objects).predictions()[0]["values"].clone();
    let ask = |kind: &str, body: &[u8]| server.ask("POST", "/predict", &format!("Content-Type: {kind}\r\n"), body);
    for (kind, body) in [
        ("text/csv", &b"x,3,4,s\xfcd\n"[..]),
        ("text/csv; charset=ISO-8859-1", b"x,3,4,s\xfcd\n"),
        ("text/csv; charset=utf-8", "x,3,4,s\u{fc}d\n".as_bytes()),
        ("text/csv; Charset=\"UTF-8\"", "\u{feff}x,3,4,s\u{fc}d\n".as_bytes()),
    ] {
        let answers = ask(kind, body).predictions();
        assert_eq!((&answers[0]["values"], answers.len()), (&expected, 1), "{kind}");
    }
    let part = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.csv\"\r\nContent-Type: text/csv; charset=utf-8\r\n\r\nx,3,4,s\u{fc}d\n\r\n--b--\r\n";
    assert_eq!(ask("multipart/form-data; boundary=b", part.as_bytes()).predictions()[0]["values"], expected);
    // The message names what a client can change.
    let wrong = ask("text/csv; charset=utf-8", b"x,3,4,s\xfcd\n");
    assert_eq!(wrong.status, 422);
    for part in ["line 1: the byte 0xfc is not UTF-8", "`charset` in `Content-Type`"] {
        assert!(wrong.error().contains(part), "{part}: {}", wrong.error());
    }
    assert!(!wrong.error().contains("`encoding`"), "{}", wrong.error());
    let unknown = ask("text/csv; charset=klingon", b"x,3,4,a\n");
    assert!(unknown.status == 415 && unknown.error().contains("`klingon`"), "{unknown:?}");
    let other = ask("application/json; charset=latin1", objects.as_bytes());
    assert!(other.status == 415 && other.error().contains("JSON is UTF-8"), "{other:?}");
    assert_eq!(ask("application/json; charset=UTF-8", objects.as_bytes()).predictions()[0]["values"], expected);
}

/// The first line is a row, and `/models` and the page say so.
#[test]
fn a_model_without_a_header_takes_rows_alone() {
    let place = place();
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let server = Server::start(&place, "r");
    let model = server.get("/models").json()["models"][0].clone();
    assert_eq!((&model["header"], &model["columns"]), (&json!(false), &json!(["2", "3", "4"])));
    let answers =
        server.ask("POST", "/predict", "Content-Type: text/csv\r\n", b"x,3,4,hill\ny,1,,town\n").predictions();
    assert_eq!((answers.len(), &answers[1]["1"]), (2, &json!("y")));
}

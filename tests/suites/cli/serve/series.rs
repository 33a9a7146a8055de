//! Answers for series: a request has the last rows of one or of several.

use super::super::series::{forecasts, machines, place};
use super::Server;
use serde_json::{Value, json};

#[test]
fn a_server_answers_for_the_series_of_a_request() {
    let place = place("");
    place.ok("train c.toml --out r --quiet --set train.epochs=2");
    let wanted: Value = serde_json::from_str(&place.ok("predict r m.csv --json").out).unwrap();
    let server = Server::start(&place, "r");
    let table = machines(200);
    let last: Vec<&str> = table.lines().skip(1 + 2 * 186).collect();
    let row = |line: &&str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [hour, count] = [cells[0], cells[2]].map(|cell| cell.parse::<i64>().unwrap());
        json!({ "hour": hour, "machine": cells[1], "count": count })
    };
    let rows: Vec<Value> = last.iter().map(row).collect();
    let ask = |rows: &[Value]| server.json("/predict", &json!({ "instances": rows }).to_string());
    assert_eq!(forecasts(&json!(ask(&rows).predictions())), forecasts(&wanted));
    // An answer is that for the last row of a series, in the order of the rows of the request.
    let samples = ask(&rows).predictions().iter().map(|one| one["sample"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(samples, [26, 27]);
    // Lists of cells, in the order that the server says.
    let described = server.get("/models").json().to_string();
    assert!(described.contains("[\"count\",\"hour\",\"machine\"]"), "{described}");
    let cells = rows.iter().map(|row| json!([row["count"], row["hour"], row["machine"]])).collect::<Vec<_>>();
    assert_eq!(forecasts(&json!(ask(&cells).predictions())), forecasts(&wanted));
    let csv = format!("hour,machine,count\n{}\n", last.join("\n"));
    let answer = server.ask("POST", "/predict", "Content-Type: text/csv\r\n", csv.as_bytes());
    assert_eq!(forecasts(&json!(answer.predictions())), forecasts(&wanted));
    for (rows, part) in [
        (&rows[..20], "the model takes 14 rows of a series one after the other, and the longest of 2 series has 10"),
        (&[], "the model takes 14 rows of a series one after the other, and there are no rows"),
        (&[rows.clone(), rows.clone()].concat(), "have the same `hour` and the same `machine`"),
    ] {
        let answer = ask(rows);
        assert!(answer.status == 422 && answer.error().contains(part), "{part}: {answer:?}");
    }
}

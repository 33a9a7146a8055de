//! The process that leads the trials of a sweep. Those of the trials are runs, whose faults are looked at elsewhere.

use crate::faults::Fault;
use crate::library::library;
use crate::operation::Operation;
use crate::place::{Ended, Place};
use crate::sweep::Sweep;
use crate::train::CONFIG;
use serde_json::Value;
use std::fs;

const SWEEP: &str = "sweep c.toml --out sweep --threads 1 --json --quiet";

/// The table that was printed, without times.
fn table(ended: &Ended) -> Result<Value, String> {
    let mut table: Value = serde_json::from_str(&ended.out).map_err(|e| format!("no table: {e}: {ended:?}"))?;
    let trials = table["trials"].as_array_mut().ok_or("a table without trials")?;
    trials.iter_mut().for_each(|trial| _ = trial["seconds"].take());
    table["best"]["seconds"].take();
    Ok(table)
}

/// What was begun is gone on with by the same command, to the same table.
#[test]
fn a_sweep() {
    if library().is_none() {
        return;
    }
    let config = CONFIG.replace("epochs = 2", "epochs = 1");
    let section = "[sweep]\nmethod = \"grid\"\nparameters = { \"optimizer.lr\" = [0.1] }\n";
    let start = Place::with("c.toml", &format!("{config}{section}"));
    let expected = table(&start.copy().ok(SWEEP)).unwrap();
    assert_eq!(
        (expected["trials"].as_array().map(Vec::len), &expected["best"]["state"]),
        (Some(1), &"finished".into())
    );
    let whole = |place: &Place, ended: &Ended| {
        let table = table(ended)?;
        if table != expected {
            return Err(format!("{table} instead of {expected}"));
        }
        match fs::read(place.file("sweep/report.html")) {
            Ok(page) if page.ends_with(b"</html>\n") => Ok(()),
            _ => Err("there is no whole page".into()),
        }
    };
    Sweep {
        name: "sweep",
        start: &start,
        args: SWEEP,
        every: 211,
        steady: true,
        done: &whole,
        after: &|place, _, _| {
            let again = place.run(SWEEP);
            if again.code != Some(0) {
                return Err(format!("what is left is in the way: {again:?}"));
            }
            whole(place, &again).map_err(|e| format!("done again: {e}"))
        },
    }
    .run();
}

/// The page is not all that comes of a sweep: where a full disk has no room for it, the table is printed, and then what is missing.
#[test]
fn the_table_needs_no_room_on_the_disk() {
    if library().is_none() {
        return;
    }
    let config = CONFIG.replace("epochs = 2", "epochs = 1");
    let section = "[sweep]\nmethod = \"grid\"\nparameters = { \"optimizer.lr\" = [0.1] }\n";
    let start = Place::with("c.toml", &format!("{config}{section}"));
    let expected = table(&start.ok(SWEEP)).unwrap();
    // The trial is done: the same command makes the table and the page anew.
    let (_, operations) = start.copy().recorded(SWEEP, None, false);
    let of_page = |operation: &Operation| operation.known_as() == "report.html";
    let takes_room = |operation: &Operation| match operation.name.as_str() {
        "open" => operation.opens_to_write(),
        name => name == "write",
    };
    let numbers: Vec<usize> =
        (1..=operations.len()).filter(|n| of_page(&operations[n - 1]) && takes_room(&operations[n - 1])).collect();
    assert!(numbers.len() >= 2, "{operations:?}");
    for number in [numbers[0], numbers[numbers.len() - 1]] {
        let (ended, _) = start.copy().recorded(SWEEP, Some((number, Fault::Full)), false);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let mut table = table(&ended).unwrap();
        assert!(table["report"].take().is_null(), "{table}");
        let mut expected = expected.clone();
        expected["report"].take();
        assert_eq!(table, expected);
        assert!(ended.err.contains("report.html") && ended.err.contains("No space left on device"), "{ended:?}");
    }
}

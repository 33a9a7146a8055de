//! What the page shows, where there is a `node` that runs its script.

use super::super::support::{Place, repository};
use super::super::tables;
use super::Server;
use std::process::Command;

#[test]
fn rows_and_labels_have_their_names() {
    let place = Place::with(&tables::config("target = \"price\"").replace("id = \"id\"", "drop = [\"id\"]"));
    let (mut text, houses) = (String::new(), tables::houses(60));
    for (number, line) in houses.lines().enumerate() {
        let labels =
            if number == 0 { "garden,garage".to_owned() } else { format!("{},{}", number % 2, number % 3 / 2) };
        text += &format!("{line},{labels}\n");
    }
    place.write("houses.csv", text);
    let labels = "--set data.target=[\"garden\",\"garage\"] --set loss.type=bce_with_logits --set model.layers=[{type=\"linear\",out_features=2}]";
    let quantiles = "--set loss={type=\"quantile\",quantile=[0.1,0.9]} --set model.layers=[{type=\"linear\",out_features=2}] --set data.drop=[\"id\",\"garden\",\"garage\"]";
    for (run, more) in [("labels", labels), ("quantiles", quantiles)] {
        place.ok(&format!("train c.toml --quiet --out {run} --set train.epochs=1 {more}"));
    }
    let server = Server::start(&place, "labels quantiles");
    let Ok(found) = Command::new("node").arg("--version").output() else {
        return eprintln!("skipped: there is no node");
    };
    assert!(found.status.success());
    let page = repository("tests/suites/cli/serve/page.js");
    let address = format!("http://{}/", server.address);
    let shown = Command::new("node").arg(page).args([&address, "rooms,age,town,price\n3,4,sea,1\n"]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}{}", String::from_utf8_lossy(&shown.stderr));
    assert!(lines[0].starts_with("labels: row 1 | garden | ") && lines[0].contains(" | garage | "), "{text}");
    assert!(lines[1].starts_with("quantiles: row 1 | "), "{text}");
}

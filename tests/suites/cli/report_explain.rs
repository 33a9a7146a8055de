//! `runner report --explain`: pictures of which columns a model of a table depends on.

use super::report::tags;
use super::support::{Place, plain};
use super::tables::place;
use std::fmt::Write;
use std::fs;

/// The part of the page that has the pictures, and all tags of the page, each closed.
fn explained(place: &Place, page: &str) -> (String, Vec<String>) {
    let page = place.read(page);
    let tags = tags(&page);
    let part = page.split("<h3>Which columns the model depends on</h3>").nth(1).expect("it is explained");
    (part.split("<h3>").next().unwrap().to_owned(), tags)
}

/// The names beside the bars, from above.
fn names(part: &str) -> Vec<String> {
    let bars = part.split("</svg>").next().unwrap();
    let texts = bars.split("text-anchor=\"end\">").skip(1);
    texts.map(|text| text.split('<').next().unwrap().to_owned()).collect()
}

#[test]
fn numbers_have_bars_and_curves() {
    let place = place(300);
    place.ok("train c.toml --quiet --out r --set train.epochs=30");
    let printed = place.ok("report r --out r.html --explain --no-timing --no-evaluation --json").json();
    let own = place.ok("explain r --json").json();
    let report = &printed["runs"][0]["explanation"];
    for key in ["figure", "value", "accuracy", "columns"] {
        assert_eq!(report[key], own[key], "{key}: {printed}");
    }
    let (part, tags) = explained(&place, "r.html");
    assert!(part.starts_with("\n<p>val, 75 rows: rmse "), "{part}");
    assert_eq!(names(&part), ["rooms", "town", "age"], "{part}");
    let deviations = part.matches("class=\"deviation\"").count();
    assert_eq!((deviations, part.matches("class=\"curve\"").count()), (3, 2), "{part}");
    // A point for each value of rooms and towns, of ages those at some ranks, and where the age is missing.
    let values = |column: &str| {
        let of = own_values(&place, column);
        let picture = part.split(&format!("aria-label=\"What the model answers by {column}\"")).nth(1).unwrap();
        let picture = picture.split("</svg>").next().unwrap();
        assert_eq!(picture.matches("<circle").count(), of.len(), "{column}: {picture}");
        picture.to_owned()
    };
    assert!(values("age").contains("(missing)"), "{part}");
    assert!(values("town").contains(">hill</text>"), "{part}");
    values("rooms");
    assert!(part.contains("<summary>The same as a table</summary>") && !part.contains("accuracy less by"), "{part}");
    assert!(!part.contains("class=\"keys\"") && !part.contains("most important of"), "{part}");
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 3);
    // The same run, asked twice, has the same pictures, whatever the threads; without the word there are none.
    place.ok("report r --out again.html --explain --no-timing --no-evaluation --threads 1");
    assert_eq!(explained(&place, "again.html").0, part);
    place.ok("report r --out without.html --no-timing --no-evaluation");
    assert!(!place.read("without.html").contains("Which columns the model depends on"));
}

fn own_values(place: &Place, column: &str) -> Vec<serde_json::Value> {
    let explanation = place.ok(&format!("explain r --column {column} --json")).json();
    explanation["columns"][column].as_array().unwrap().clone()
}

#[test]
fn classes_have_a_colour_each_and_names_are_text() {
    let place = place(0);
    let long = "a column whose name goes on and on, as names of columns do";
    let bad = "<script>alert(1)</script>";
    let mut table = format!("\"{bad}\",\"{long}\",price,id,kind");
    table += &(0..30).map(|i| format!(",x{i}")).collect::<String>();
    for row in 0..240usize {
        let (kind, other) = (row * 7 % 9, row * 5 % 3);
        let _ = write!(table, "\n{kind},{other},{},h{row},<i>{}&", row * 13 % 50, kind / 3);
        table += &(0..30).map(|i| format!(",{}", (row * (i + 3) + i) % 17)).collect::<String>();
    }
    place.write("houses.csv", table + "\n");
    let config = place.read("c.toml").replace("target = \"price\"", "target = \"kind\"");
    let config = config.replace("out_features = 1", "out_features = 3").replace("\"mse\"", "\"cross_entropy\"");
    place.write("c.toml", config);
    place.ok("train c.toml --quiet --out r");
    place.ok("report r --out r.html --explain --no-timing");
    let (part, tags) = explained(&place, "r.html");
    assert!(part.contains("The 25 most important of 32 columns: by how much the log loss grows"), "{part}");
    assert!(part.contains("By the values of the 12 most important columns that have no texts"), "{part}");
    assert_eq!(names(&part).len(), 25, "{part}");
    assert_eq!(names(&part)[0], "&lt;script&gt;alert(1)&lt;/script&gt;", "{part}");
    assert_eq!(part.matches("<li><span class=\"key\"").count(), 3, "{part}");
    assert!(part.contains("&lt;i&gt;0&amp;") && part.contains("accuracy less by"), "{part}");
    assert!((0..3).all(|at| part.contains(&format!("stroke=\"var(--c{at})\""))), "{part}");
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("script")).count(), 3);
    assert!(!tags.iter().any(|tag| tag == "i"), "names are no tags");
    // Cut beside its bar, and whole in the table.
    assert!(part.contains(&format!("on a…<title>{long}</title>")) && part.contains(&format!(">{long}</th>")), "{part}");
}

#[test]
fn runs_that_cannot_be_explained_are_refused() {
    let images = Place::with(&plain());
    images.ok("train c.toml --quiet --out r --set train.epochs=1");
    let message = images.fails("report r --out r.html --explain", 2);
    assert!(
        message.contains("`--explain`") && message.contains("models of tables") && message.contains("`r`"),
        "{message}"
    );
    assert!(!images.path("r.html").exists());
    let place = place(60);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.ok("train c.toml --quiet --out all --set train.epochs=1 --unset data.validation_split");
    let message = place.fails("report all --out r.html --explain", 2);
    assert!(message.contains("no rows in the split `val`; a report draws"), "{message}");
    fs::remove_file(place.path("houses.csv")).unwrap();
    let message = place.fails("report r --out r.html --explain", 1);
    assert!(
        message.contains("houses.csv")
            && message.contains("columns are shuffled among rows")
            && message.contains("--set data.path=FILE"),
        "{message}"
    );
    assert!(!place.path("r.html").exists());
    // Without it the report says what it lacks, as before.
    place.ok("report r --out r.html --no-timing");
}

//! The committed JSON Schema.

use std::path::Path;

use runner::config::schema::schema;

/// With `UPDATE_SCHEMA=1` it is written instead.
#[test]
fn the_committed_schema_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema.json");
    let fresh = serde_json::to_string_pretty(&schema()).expect("a JSON value") + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(path.parent().expect("has a folder")).expect("can be made");
        std::fs::write(&path, &fresh).expect("can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == fresh, "docs/schema.json is out of date: run this test with UPDATE_SCHEMA=1");
}

#[test]
fn layers_are_described_with_defaults_and_choices() {
    let schema = schema();
    let tables = schema["$defs"]["Layer"]["anyOf"][2]["oneOf"].as_array().expect("a list of tables");
    let conv = tables.iter().find(|t| t["title"] == "conv2d").expect("conv2d is described");
    assert_eq!(conv["properties"]["bias"]["default"], true);
    assert!(conv["properties"]["stride"]["description"].as_str().is_some_and(|text| !text.is_empty()));
    let words = schema["$defs"]["Layer"]["anyOf"][0]["enum"].as_array().expect("a list of words");
    assert!(words.iter().any(|w| w == "relu") && words.iter().all(|w| w != "linear"));
    let metrics = schema["$defs"]["Metric"].to_string();
    assert!(metrics.contains("val_accuracy"), "{metrics}");
}

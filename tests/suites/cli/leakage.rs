//! What a training makes is the same to the last bit, whatever stands in the rows that are held out.

use super::support::Place;
use std::fmt::Write;

/// Rows of which every fourth is held out, and is as `odd` says.
fn table(odd: usize) -> String {
    let mut text = "x,kind,part,y\n".to_owned();
    for i in 0..120 {
        let held = i % 4 == 3;
        let part = if held { ["val", "test"][i / 4 % 2] } else { "train" };
        let (x, kind, y) = (i * 7 % 13, ["a", "b", "c"][i * 5 % 3], ["no", "no", "yes"][i * 11 % 3]);
        let _ = match (held, odd) {
            (true, 1) => writeln!(text, "{}e3,new {i},{part},yes", x + 1),
            (true, 2) => writeln!(text, ",,{part},{}", ["no", "yes"][i % 2]),
            // Without a target a row is not there at all.
            (true, 3) if i > 20 => writeln!(text, "{x},{kind},{part},"),
            _ => writeln!(text, "{x},{kind},{part},{y}"),
        };
    }
    text
}

#[test]
fn weights_of_classes_and_trained_parameters_come_of_the_training_rows_alone() {
    let place = Place::with(
        "device = \"cpu\"\nseed = 5\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nsplit_column = \"part\"\nbatch_size = 16\n\
         [model]\nuse = \"tabm\"\nwith = { members = 3, width = 8, bins = 5, embedding_dim = 3 }\n\
         [loss]\ntype = \"cross_entropy\"\nweight = \"balanced\"\n[optimizer]\ntype = \"adamw\"\nlr = 0.01\n[train]\nepochs = 2\n",
    );
    let runs = [0, 1, 2, 3].map(|odd| {
        place.write("t.csv", table(odd));
        place.ok(&format!("train c.toml --quiet --out r{odd}"));
        let checkpoint = place.checkpoint(&format!("r{odd}/last.safetensors"));
        let losses: Vec<String> =
            place.metrics(&format!("r{odd}")).iter().map(|line| line["val_loss"].to_string()).collect();
        (checkpoint.meta.config, checkpoint.tensors, checkpoint.meta.extra["sample"]["fitted"].clone(), losses)
    });
    let (config, tensors, fitted, losses) = &runs[0];
    // Of 90 rows 60 are of one class, which weighs 90 / (2 · 60).
    assert!(config.contains("weight = [0.75, 1.5]"), "{config}");
    assert!(fitted["columns"].is_array(), "{fitted}");
    for other in &runs[1..] {
        assert_eq!((config, tensors, fitted), (&other.0, &other.1, &other.2));
        assert_ne!(losses, &other.3, "what is held out is not the same");
    }
}

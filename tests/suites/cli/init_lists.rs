//! `runner init` of photos that a list names, and of folders in which one lies.

use super::photos::photo;
use super::support::Place;

/// Twenty photos in `l`, each with a label.
fn listed(place: &Place, name: &str, head: &str, line: &dyn Fn(u32) -> String) {
    (0..20).for_each(|i| photo(place, &format!("l/{i}.png"), (i % 2) as u8, i));
    place.write(name, format!("{head}{}", (0..20).map(|i| line(i) + "\n").collect::<String>()));
}

/// The written configuration is valid as it stands.
fn valid(place: &Place, file: &str) -> String {
    let check = place.ok(&format!("check {file} --device cpu"));
    assert!(!check.err.contains("warning") && !check.err.contains("note"), "{}", check.err);
    place.read(file)
}

/// It is, and trains.
fn trains(place: &Place, file: &str) -> String {
    place.ok(&format!(
        "train {file} --device cpu --quiet --out r --force --set train.max_steps=1 --set data.batch_size=4"
    ));
    valid(place, file)
}

const KINDS: [&str; 4] = ["red", "blue", "red|small", "blue|small"];

#[test]
fn labels_of_several_classes_are_several_classes() {
    let place = Place::new();
    for (separator, written) in [("|", None), (";", Some("label_separator = \";\""))] {
        let label = |i: u32| format!("{i}.png,{}", KINDS[i as usize % 4].replace('|', separator));
        listed(&place, "l/metadata.csv", "file_name,label\n", &label);
        let said = place.ok("init l --force").err;
        assert!(said.contains("it finds which of 3 classes a photo has, of which it may have several"), "{said}");
        let text = trains(&place, "l.toml");
        for part in ["label_kind = \"classes\"", "type = \"bce_with_logits\"", "monitor = \"val_loss\""] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert_eq!(text.contains("label_separator"), written.is_some());
        assert!(written.is_none_or(|written| text.contains(written)), "{text}");
        let answer = place.ok("predict r l/0.png --json").json();
        assert_eq!(answer[0]["probabilities"].as_array().map(Vec::len), Some(3), "{answer}");
        // A training in which each combination is a class says so.
        let one = "--set data.label_kind=class --set loss.type=cross_entropy --unset data.label_separator";
        let one = if written.is_some() { one } else { one.trim_end_matches(" --unset data.label_separator") };
        let said = place
            .ok(&format!(
                "train l.toml --device cpu --out s --force --set train.max_steps=1 --set data.batch_size=4 {one}"
            ))
            .err;
        let label = KINDS[3].replace('|', separator);
        assert!(said.contains(&format!("a label such as `{label}` is a class of its own")), "{said}");
        assert!(said.contains("say `label_kind = \"classes\"`"), "{said}");
    }
    std::fs::remove_file(place.path("l/metadata.csv")).unwrap();
    let json = |i: u32| {
        let all: Vec<String> = KINDS[i as usize % 4].split('|').map(|kind| format!("\"{kind}\"")).collect();
        format!("{{\"file_name\":\"{i}.png\",\"label\":[{}]}}", all.join(","))
    };
    listed(&place, "l/metadata.jsonl", "", &json);
    assert!(place.ok("init l --force").err.contains("which of 3 classes a photo has"));
    valid(&place, "l.toml");
}

/// Commas within names of classes do not stand between classes.
#[test]
fn names_with_commas_are_classes() {
    let place = Place::new();
    let label =
        |i: u32| format!("{i}.png,\"{}\"", ["tench, Tinca tinca", "goldfish, Carassius auratus"][i as usize % 2]);
    listed(&place, "l/metadata.csv", "file_name,label\n", &label);
    assert!(place.ok("init l").err.contains("which of 2 classes a photo is of"));
    trains(&place, "l.toml");
}

#[test]
fn a_list_is_found_by_its_name_and_its_columns() {
    let place = Place::new();
    listed(&place, "l/labels.csv", "filename,kind\n", &|i| format!("{i}.png,{}", KINDS[i as usize % 2]));
    // The photos alone are no classes; nor does this list say which column has the labels.
    let error = place.fails("init l", 2);
    assert!(error.contains("labels may stand in a list, `l/metadata.csv`, with the columns"), "{error}");
    assert!(place.ok("init l/labels.csv --target kind").err.contains("which of 2 classes a photo is of"));
    let text = trains(&place, "labels.toml");
    assert!(text.contains("path = \"l/labels.csv\"") && text.contains("label_column = \"kind\""), "{text}");
    listed(&place, "l/labels.csv", "filename,label\n", &|i| format!("{i}.png,{}", KINDS[i as usize % 2]));
    let error = place.fails("init l", 2);
    assert!(error.contains("help: a list of them is there: `runner init l/labels.csv`"), "{error}");
    place.ok("init l/labels.csv --force");
    valid(&place, "labels.toml");
    listed(&place, "l/metadata.csv", "file_name,kind\n", &|i| format!("{i}.png,{}", KINDS[i as usize % 2]));
    let error = place.fails("init l", 2);
    assert!(
        error.contains("its columns are `file_name`, `kind`") && error.contains("`--target COLUMN` names"),
        "{error}"
    );
    place.ok("init l --target kind");
    valid(&place, "l.toml");
}

/// Masks are neither labels nor classes: what their values are called is not known.
#[test]
fn masks_are_not_taken_for_classes() {
    let place = Place::new();
    listed(&place, "l/metadata.csv", "file_name,mask\n", &|i| format!("{i}.png,m{i}.png"));
    let error = place.fails("init l", 2);
    assert!(error.contains("the labels in `l/metadata.csv` are masks, in its column `mask`"), "{error}");
    assert!(error.contains("help: `runner docs mask_values`") && !error.contains("[data]"), "{error}");
    place.ok("docs mask_values");
    for i in 0..4 {
        photo(&place, &format!("d/images/{i}.png"), 0, i);
        photo(&place, &format!("d/masks/{i}.png"), 1, i);
    }
    let error = place.fails("init d", 2);
    assert!(
        error.contains("the folders in `d` are `images` and `masks`") && error.contains("`d/metadata.csv`"),
        "{error}"
    );
}

#[test]
fn too_few_photos_to_hold_some_out_are_an_error() {
    let place = Place::new();
    photo(&place, "few/red/1.png", 0, 1);
    photo(&place, "few/blue/2.png", 1, 2);
    let error = place.fails("init few", 2);
    assert!(
        error.contains("the validation split takes 0 of 2 training samples, which leaves none to validate on"),
        "{error}"
    );
}

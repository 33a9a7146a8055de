//! `[log] tensorboard`: what is in the event files, read by a small reader of our own; `scripts/tensorboard_check.py` does it with TensorBoard's.

use super::support::{Place, assert_same_runs, plain};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// A field of a message: numbers as they lie in the file.
#[derive(Debug, Clone)]
enum Field {
    Varint(u64),
    Fixed64(u64),
    Bytes(Vec<u8>),
    Fixed32(u32),
}

/// The fields of a message by their numbers, in their order.
struct Message(Vec<(u64, Field)>);

impl Message {
    fn read(bytes: &[u8]) -> Message {
        fn varint(rest: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let (first, others) = rest.split_first().expect("a number ends");
                *rest = others;
                value |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    break;
                }
            }
            value
        }
        let (mut rest, mut fields) = (bytes, Vec::new());
        while !rest.is_empty() {
            let key = varint(&mut rest);
            let mut take = |n: usize| {
                let (first, others) = rest.split_at(n);
                rest = others;
                first.to_vec()
            };
            let field = match key & 7 {
                0 => Field::Varint(varint(&mut rest)),
                1 => Field::Fixed64(u64::from_le_bytes(take(8).try_into().unwrap())),
                2 => {
                    let n = varint(&mut rest) as usize;
                    let (first, others) = rest.split_at(n);
                    rest = others;
                    Field::Bytes(first.to_vec())
                }
                5 => Field::Fixed32(u32::from_le_bytes(take(4).try_into().unwrap())),
                other => panic!("a field of kind {other}"),
            };
            fields.push((key >> 3, field));
        }
        Message(fields)
    }

    fn all(&self, number: u64) -> impl Iterator<Item = &Field> {
        self.0.iter().filter(move |(n, _)| *n == number).map(|(_, field)| field)
    }

    fn bytes(&self, number: u64) -> Vec<Vec<u8>> {
        self.all(number).map(|f| if let Field::Bytes(b) = f { b.clone() } else { panic!("{f:?}") }).collect()
    }

    fn text(&self, number: u64) -> String {
        String::from_utf8(self.bytes(number).concat()).unwrap()
    }

    fn int(&self, number: u64) -> u64 {
        self.all(number).map(|f| if let Field::Varint(n) = f { *n } else { panic!("{f:?}") }).next().unwrap_or(0)
    }

    fn double(&self, number: u64) -> f64 {
        let double = |f: &Field| if let Field::Fixed64(n) = f { f64::from_bits(*n) } else { panic!("{f:?}") };
        self.all(number).map(double).next().unwrap_or(0.0)
    }
}

/// Sides, numbers of a pixel, and the PNG file.
type Picture = ([u64; 3], Vec<u8>);

/// What the event files of a run have.
#[derive(Default)]
struct Events {
    /// By names and steps: how many numbers, their sum and that of their squares.
    histograms: BTreeMap<String, BTreeMap<u64, [f64; 3]>>,
    /// By names and steps.
    images: BTreeMap<String, BTreeMap<u64, Picture>>,
    texts: BTreeMap<String, BTreeMap<u64, String>>,
    scalars: BTreeMap<String, BTreeMap<u64, f32>>,
    graphs: Vec<Message>,
}

fn events(place: &Place, run: &str) -> Events {
    let mut found = Events::default();
    let mut files: Vec<_> =
        fs::read_dir(place.path(&format!("{run}/tensorboard"))).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files {
        let all = fs::read(&file).unwrap();
        let mut rest = &all[..];
        while !rest.is_empty() {
            let n = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let event = Message::read(&rest[12..12 + n]);
            rest = &rest[16 + n..];
            let step = event.int(2);
            found.graphs.extend(event.bytes(4).iter().map(|bytes| Message::read(bytes)));
            for value in event.bytes(5).iter().flat_map(|summary| Message::read(summary).bytes(1)) {
                found.take(step, &Message::read(&value));
            }
        }
    }
    found
}

impl Events {
    fn take(&mut self, step: u64, value: &Message) {
        let tag = value.text(1);
        for field in value.all(2) {
            let Field::Fixed32(bits) = field else { panic!("{field:?}") };
            self.scalars.entry(tag.clone()).or_default().insert(step, f32::from_bits(*bits));
        }
        for image in value.bytes(4).iter().map(|bytes| Message::read(bytes)) {
            let (numbers, png) = ([2, 1, 3].map(|n| image.int(n)), image.bytes(4).concat());
            self.images.entry(tag.clone()).or_default().insert(step, (numbers, png));
        }
        for of in value.bytes(5).iter().map(|bytes| Message::read(bytes)) {
            self.histograms.entry(tag.clone()).or_default().insert(step, [3, 4, 5].map(|n| of.double(n)));
        }
        for tensor in value.bytes(8).iter().map(|bytes| Message::read(bytes)) {
            self.texts.entry(tag.clone()).or_default().insert(step, tensor.text(8));
        }
    }

    fn of(&self, group: &str) -> Vec<&str> {
        let names = self.histograms.keys().filter_map(|tag| tag.strip_prefix(group)?.strip_prefix('/'));
        names.collect()
    }
}

#[test]
fn events_have_weights_gradients_mistakes_and_the_graph_and_change_nothing() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out without");
    place.ok("train c.toml --quiet --out r --set log.tensorboard=true");
    assert_same_runs((&place, "without"), (&place, "r"));
    let events = events(&place, "r");
    let names = ["1.bias", "1.weight", "2.bias", "2.weight", "5.bias", "5.weight"];
    assert_eq!((events.of("weights"), events.of("gradients")), (names.to_vec(), names.to_vec()));
    for (tag, of) in &events.histograms {
        assert_eq!(of.keys().collect::<Vec<_>>(), [&10, &20], "{tag}");
        assert!(of.values().all(|[n, _, squares]| *n >= 10.0 && *squares > 0.0), "{tag}: {of:?}");
    }
    assert_eq!(events.histograms["gradients/1.weight"][&10][0], 24.0 * 64.0);
    assert_eq!(events.scalars["val/loss"].len(), 2);
    // The worst mistakes are those of `eval`, in its order.
    place.ok("eval r/last.safetensors --predictions p.jsonl");
    let mut wrong: Vec<Value> = place.read("p.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    wrong.retain(|row: &Value| row["target"] != row["prediction"]);
    wrong.sort_by(|a, b| b["loss"].as_f64().unwrap().total_cmp(&a["loss"].as_f64().unwrap()));
    assert!(wrong.len() >= 2, "the test needs some");
    let shown = wrong.len().min(8);
    let table: Vec<Vec<String>> = events.texts["mistakes"][&20]
        .lines()
        .skip(2)
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    let cells: Vec<&[String]> = table.iter().map(|row| &row[1..5]).collect();
    let expected: Vec<Vec<String>> = wrong
        .iter()
        .take(shown)
        .enumerate()
        .map(|(i, row)| {
            let texts = [&row["sample"], &row["target"], &row["prediction"]].map(Value::to_string);
            [vec![(i + 1).to_string()], texts.to_vec()].concat()
        })
        .collect();
    assert_eq!(cells, expected);
    for number in 1..=shown {
        let ([width, height, channels], png) = &events.images[&format!("mistakes/{number}")][&20];
        let image = image::load_from_memory(png).unwrap();
        assert_eq!([*width, *height, *channels], [u64::from(image.width()), u64::from(image.height()), 1]);
    }
    assert!(!events.images.contains_key("mistakes/9"));
    // One graph, of nodes that name each other.
    assert_eq!(events.graphs.len(), 1);
    let nodes: Vec<Message> = events.graphs[0].bytes(1).iter().map(|node| Message::read(node)).collect();
    let names: Vec<String> = nodes.iter().map(|node| node.text(1)).collect();
    for name in [
        "inputs/inputs",
        "0.flatten",
        "1.linear/linear",
        "1.linear/weight",
        "5.linear/linear",
        "targets/targets",
        "loss",
    ] {
        assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
    }
    let inputs = nodes.iter().flat_map(|node| node.bytes(3)).map(|input| String::from_utf8(input).unwrap());
    assert!(inputs.into_iter().all(|input| names.contains(&input)), "{names:?}");
}

/// The gradients in the events are those of the next update of the run. A run that goes on writes no second graph.
#[test]
fn gradients_are_those_of_the_next_update() {
    let place = Place::with(&plain().replace("type = \"adam\"\nlr = 3e-3", "type = \"sgd\"\nlr = 0.25"));
    place.ok("train c.toml --quiet --out r --set train.epochs=1 --set log.tensorboard=true");
    let weights = |name: &str| -> Vec<f32> {
        let tensors = place.checkpoint("r/last.safetensors").tensors;
        tensors[name].data.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
    };
    let names = ["1.weight", "2.bias", "5.weight"];
    let before = names.map(weights);
    place.ok("train --resume r --quiet --set train.epochs=2 --set train.max_steps=11");
    let after = names.map(weights);
    let events = events(&place, "r");
    for (i, name) in names.into_iter().enumerate() {
        // One subtraction rounds each weight once.
        let of = before[i].iter().zip(&after[i]).map(|(a, b)| f64::from(a - b) / 0.25);
        let (squares, rounding) = (of.map(|g| g * g).sum::<f64>(), before[i].iter().fold(0f32, |m, w| m.max(w.abs())));
        let found = events.histograms[&format!("gradients/{name}")][&10][2];
        let off = (found.sqrt() - squares.sqrt()).abs();
        let most = f64::from(rounding * f32::EPSILON) / 0.25 * (before[i].len() as f64).sqrt();
        assert!(off <= most, "{name}: {} instead of {}, further off than {most}", found.sqrt(), squares.sqrt());
    }
    assert_eq!(events.graphs.len(), 1);
    assert_eq!(fs::read_dir(place.path("r/tensorboard")).unwrap().count(), 2);
}

/// Each rank evaluates a part of the samples. The mistakes are the worst of all.
#[test]
fn mistakes_are_those_of_all_ranks() {
    let place = Place::with(&format!("{}\n[distributed]\nshards = 4\n", plain()));
    let options = "--set log.tensorboard=true --set train.epochs=1 --set log.mistakes=5";
    place.ok(&format!("train c.toml --quiet --out one {options}"));
    let one = events(&place, "one");
    assert!(one.images.len() >= 4, "the test needs some");
    for ranks in [2, 4] {
        place.ok(&format!("launch --ranks {ranks} -- train c.toml --quiet --out r{ranks} {options}"));
        let several = events(&place, &format!("r{ranks}"));
        assert_eq!((&several.images, &several.texts["mistakes"]), (&one.images, &one.texts["mistakes"]), "{ranks}");
    }
}

#[test]
fn mistakes_are_left_out_where_there_are_none_or_no_pictures_of_them() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out none --set train.epochs=1 --set log.tensorboard=true --set log.mistakes=0");
    let none = events(&place, "none");
    assert!(none.images.is_empty() && !none.texts.contains_key("mistakes"));
    place.ok("train c.toml --quiet --out two --set train.epochs=1 --set log.tensorboard=true --set log.mistakes=2");
    assert_eq!(events(&place, "two").images.len(), 2);
    // Samples that are no images, and a loss of numbers.
    let classes = "--set data.source=synthetic --set data.shape=[6] --set data.classes=10 --set data.samples=64";
    let values = "--set data.source=synthetic --set data.shape=[6] --set data.targets=10 --set data.samples=64 --set loss.type=mse";
    for (run, data) in [("classes", classes), ("values", values)] {
        place.ok(&format!("train c.toml --quiet --out {run} --set train.epochs=1 --set log.tensorboard=true {data} --set data.val_samples=32"));
        let events = events(&place, run);
        assert!(events.images.is_empty() && events.graphs.len() == 1, "{run}");
        assert_eq!(events.of("gradients").len(), 6, "{run}");
    }
    assert!(place.fails("check c.toml --set log.mistakes=101", 2).contains("out of range"));
}

/// A step of nearly nothing but parameters gives up each gradient when it is used; to look at them takes memory for all, which `check` reports before.
#[test]
fn memory_for_gradients_is_reported() {
    let layers = "layers = [\"flatten\", { type = \"linear\", out_features = 512 }, { type = \"linear\", out_features = 512 }, { type = \"linear\", out_features = 10 }]";
    let (head, rest) = plain().split_once("layers = [").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let (_, rest) = rest.split_once("]\n").unwrap();
    let place = Place::with(&format!("{head}{layers}\n{rest}"));
    let gradients =
        |args: &str| place.ok(&format!("check c.toml --json {args}")).json()["memory"]["gradients"].as_u64();
    let parameters = 4 * (65 * 512 + 513 * 512 + 513 * 10);
    let small = "--set data.batch_size=4";
    let (without, with) =
        (gradients(small).unwrap(), gradients(&format!("{small} --set log.tensorboard=true")).unwrap());
    assert!(with >= parameters && without < with, "{without} and {with} for {parameters}");
}

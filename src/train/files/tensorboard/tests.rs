use super::*;
use serde_json::json;

/// What TensorBoard's own messages are as bytes: `scripts/golden/tensorboard_events.py`.
const GOLDEN: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tensorboard.tfevents"));

#[test]
fn events_are_those_of_tensorboard_to_the_byte() {
    let mut events = Events { out: Vec::new(), now: || 1_700_000_000.25 };
    events.begin(6).unwrap();
    events.write(0, vec![Value::text("config", "seed = 1\nname = \"ä\"\n")]).unwrap();
    let line =
        json!({ "kind": "epoch", "epoch": 1, "step": 7, "train_loss": 0.5, "val_loss": null, "samples_per_s": 1234 });
    let values = scalars(&line).into_iter().map(|(tag, value)| Value::scalar(&tag, value)).collect();
    events.write(7, values).unwrap();
    let mut histogram = Histogram::default();
    [-1.5, -0.25, 0.0, 0.0, 1e-3, 0.25, 0.26, 2.0, f32::NAN, f32::INFINITY].into_iter().for_each(|x| histogram.add(x));
    events.write(7, vec![Value::histogram("weights/fc.weight", &histogram)]).unwrap();
    events.write(8, vec![Value::histogram("weights/empty", &Histogram::default())]).unwrap();
    events.event(9, What::GraphDef(linear().encode_to_vec())).unwrap();
    let png = b"\x89PNG, but for its bytes";
    let image = Image { tag: "mistakes/1".into(), width: 3, height: 2, channels: 1, png };
    events.write(9, vec![Value::image(&image)]).unwrap();
    events.write(9, vec![Value::markdown("mistakes", "| a |\n| --- |\n| 1 |\n")]).unwrap();
    let config = toml::from_str(
        "seed = 1\n[optimizer]\ntype = \"adam\"\nlr = 0.25\nbetas = [0.5, 0.75]\namsgrad = true\n[model]\nlayers = [{ type = \"relu\" }]\n",
    );
    events.write(0, vec![Value::hparams(hparams::settings(&config.unwrap()), 1_700_000_000.25)]).unwrap();
    assert_eq!(events.out.len(), GOLDEN.len());
    assert!(events.out == GOLDEN, "{:?}", events.out.iter().zip(GOLDEN).position(|(a, b)| a != b));
}

/// A linear layer, for batches of two.
fn linear() -> GraphDef {
    let text = "[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 3\nsamples = 2\nbatch_size = 2\n[model]\nlayers = [{ name = \"fc\", \
                type = \"linear\", out_features = 3 }]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
    let loaded = crate::config::load_str("fc.toml", text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let data = crate::data::DataSpec::labelled(crate::graph::DType::F32, [4], 3);
    let mut vars = crate::graph::Variables::new();
    let forward = crate::model::forward(&loaded.experiment, &data, &mut vars, 2, crate::model::Mode::Train);
    let rows = forward.unwrap_or_else(|e| panic!("{e:?}")).rows;
    let node = |name: &str, shape: &[usize]| InputNode { name: name.into(), shape: shape.into() };
    let loss = LossNode { kind: "cross_entropy".into(), targets: vec![node("targets", &[2])] };
    graph_def(&rows, &vars, &[node("inputs", &[2, 4])], &loss)
}

#[test]
fn a_run_that_goes_on_has_another_file_behind_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("tensorboard");
    let far = format!("{NAME}9999999999.0000");
    assert!(EventFile::create(&folder, 0).unwrap().is_first());
    fs::write(folder.join(&far), "").unwrap();
    let second = EventFile::create(&folder, 5).unwrap();
    assert!(second.path.file_name().unwrap().to_str().unwrap() > far.as_str(), "{:?}", second.path);
    assert!(!second.is_first());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
}

#[test]
fn numbers_of_lines_have_groups() {
    let line = json!({ "kind": "step", "step": 3, "epoch": 1, "loss": 2.5, "lr": 0.1 });
    assert_eq!(scalars(&line), [("step/loss".to_string(), 2.5), ("step/lr".to_string(), 0.1)]);
    let line = json!({ "kind": "epoch", "val_top5_accuracy": 0.5, "memory_peak": 7, "unreadable": 1, "other": 2 });
    let tags: Vec<String> = scalars(&line).into_iter().map(|(tag, _)| tag).collect();
    assert_eq!(tags, ["val/top5_accuracy", "memory/peak", "data/unreadable"]);
    assert!(scalars(&json!({ "kind": "note", "note": "x" })).is_empty());
}

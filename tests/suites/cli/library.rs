//! The library's calls beside the commands that do the same.

use super::support::{LAYERS, Place, digits};
use runner::api::failure::Failure;
use runner::api::predictor::{Options, Predictor};
use runner::api::train::{Asked, Request, start};
use runner::checkpoint::Checkpoint;
use runner::config;
use runner::config::language::values::Device;
use runner::graph::op::Task;
use runner::terminal::Event;
use runner::train::run::Outcome;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

#[allow(dead_code, reason = "its `main` is for those who run it")]
#[path = "../../../examples/train_and_predict.rs"]
mod example;

const TRAIN: &str = "[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = 3\n";

fn config() -> String {
    digits("", &format!("{LAYERS}\n{TRAIN}"))
}

/// What is in a checkpoint but for how long it took.
fn state(path: &Path) -> Vec<(String, Vec<u8>)> {
    let Checkpoint { tensors, .. } = runner::checkpoint::read(path).unwrap();
    tensors.into_iter().map(|(name, tensor)| (name, tensor.data)).collect()
}

/// The records and the messages of a run.
type Heard = Arc<Mutex<(Vec<Value>, Vec<String>)>>;

/// A request whose events are kept: the lines of `metrics.jsonl`, and what was said.
fn heard(request: Request) -> (Request, Heard) {
    let events = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let into = events.clone();
    let request = request.with_listener(Arc::new(move |event| {
        let mut events = into.lock().unwrap();
        match event {
            Event::Record(line) => events.0.push(line.clone()),
            Event::Said(text) => events.1.push(text.to_owned()),
        }
    }));
    (request, events)
}

#[test]
fn a_run_is_that_of_the_command() {
    let place = Place::with(&config());
    place.ok("train c.toml --quiet --out command");
    let (mut request, events) = heard(Request::of_config(place.path("c.toml")));
    request.out = Some(place.path("library"));
    request.pause_after = Some(1);
    let paused = start(&request).unwrap();
    assert_eq!((paused.outcome, paused.epochs), (Some(Outcome::Paused), 1));
    assert_eq!(paused.folder, place.path("library"));
    let lines: Vec<Value> =
        place.read("library/metrics.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    {
        let events = events.lock().unwrap();
        assert_eq!(events.0, lines, "every line is sent as it is written");
        assert!(events.1.iter().any(|text| text.contains("training and")), "{:?}", events.1);
    }
    let done = start(&Request::resume(place.path("library"))).unwrap();
    assert_eq!((done.outcome, done.epochs), (Some(Outcome::Finished), 3));
    assert!(done.best.is_some_and(|best| best.value.is_finite()));
    for name in ["last.safetensors", "best.safetensors"] {
        let [by_command, by_library] = ["command", "library"].map(|run| state(&place.path(run).join(name)));
        assert!(by_command == by_library, "{name}");
    }
    let nothing = start(&Request::resume(place.path("library"))).unwrap();
    assert_eq!(nothing.outcome, None);
}

#[test]
fn a_run_is_stopped_by_a_flag() {
    let place = Place::with(&config());
    let loaded = config::load(&place.path("c.toml"), &[]).unwrap_or_else(|e| panic!("{e}"));
    let mut request = Request::new(Asked::Loaded(Box::new(loaded))).stopped_by(Arc::new(AtomicBool::new(true)));
    request.out = Some(place.path("r"));
    let stopped = start(&request).unwrap();
    assert_eq!((stopped.outcome, stopped.steps), (Some(Outcome::Interrupted), 0));
    let error = start(&request).unwrap_err();
    assert!(matches!(&error, Failure::Usage(text) if text.contains("already holds a run")), "{error}");
    request.replace = true;
    assert_eq!(start(&request).unwrap().outcome, Some(Outcome::Interrupted));
}

#[test]
fn mistakes_are_errors_with_their_place() {
    let place = Place::with(&config().replace("epochs = 3", "epohs = 3"));
    let error = start(&Request::of_config(place.path("c.toml"))).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Failure::Config { .. }) && text.contains("epohs") && text.contains("c.toml"), "{text}");
}

/// Probabilities of all ten classes by `predict`, as single precision, in the order of the files. `batch` samples are computed at once.
fn by_command(place: &Place, files: &str, batch: usize) -> Vec<Vec<f32>> {
    let all = place.ok(&format!("predict r {files} --top 10 --json --set data.eval_batch_size={batch}")).json();
    let of = |one: &Value| {
        let mut list = vec![0.0; 10];
        for top in one["top"].as_array().unwrap() {
            list[top["class"].as_u64().unwrap() as usize] = top["probability"].as_f64().unwrap() as f32;
        }
        list
    };
    all.as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_predictor_says_what_predict_says_on_any_thread() {
    let place = Place::with(&config());
    place.ok("train c.toml --quiet --out r");
    let image =
        |i: u8| image::GrayImage::from_fn(8, 8, |x, y| image::Luma([(x as u8 * 31) ^ (y as u8 * 17) ^ (i * 29)]));
    let names: Vec<String> = (0..7).map(|i| format!("{i}.png")).collect();
    (0..7).for_each(|i| image(i).save(place.path(&names[i as usize])).unwrap());
    let prepared: Vec<u8> = (0..7).flat_map(|i| image(i).into_raw()).collect();
    for (batch, executables) in [(1, 1), (3, 2), (7, 1)] {
        // Sums may be split otherwise in batches of other sizes.
        let expected = by_command(&place, &names.join(" "), batch);
        let options = Options { device: Some(Device::Cpu), batch, executables, threads: Some(1), ..Options::default() };
        let model = Predictor::open(&place.path("r"), &options).unwrap();
        assert_eq!((model.outputs(), model.task(), model.batch()), (10, Task::Classification, batch));
        assert_eq!((model.fields().len(), model.fields()[0].bytes()), (1, 64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut all = vec![0.0; 70];
                    model.predict(&[&prepared], &mut all).unwrap();
                    assert_eq!(all.chunks(10).collect::<Vec<_>>(), expected, "batches of {batch}");
                    let mut one = vec![0.0; 10];
                    for (name, expected) in names.iter().zip(&expected) {
                        model.predict_image(&std::fs::read(place.path(name)).unwrap(), &mut one).unwrap();
                        assert_eq!(one, *expected, "{name}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_predictor_refuses_what_are_no_samples() {
    let place = Place::with(&config());
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let model = Predictor::open(&place.path("r"), &Options::default()).unwrap();
    let mut out = [0.0; 10];
    for (rows, reason) in [
        (vec![&[0u8; 63][..]], "has 64 bytes for each sample"),
        (vec![], "a sample has 1 fields, and bytes of 0 are given"),
        (vec![&[0u8; 128][..]], "an answer for 2 samples has 20 numbers, and there is room for 10"),
    ] {
        let error = model.predict(&rows, &mut out).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let error = model.predict_image(b"no image", &mut out).unwrap_err();
    assert!(format!("{error:#}").starts_with("cannot read the image"), "{error:#}");
    model.predict(&[&[1; 64]], &mut out).expect("it answers all the same");
    let error = Predictor::open(&place.path("c.toml"), &Options::default()).err().expect("there are no weights");
    assert!(error.to_string().contains("names no weights"), "{error}");
}

#[test]
fn the_example_runs() {
    let place = Place::new();
    let probabilities = example::train_and_predict(place.path("r")).unwrap();
    // The same drawing as a file.
    let bar = image::GrayImage::from_fn(8, 8, |x, _| image::Luma([if (3..5).contains(&x) { 255 } else { 0 }]));
    bar.save(place.path("bar.png")).unwrap();
    assert_eq!(by_command(&place, "bar.png", 1), [probabilities]);
}

/// The error of a request for a run.
fn refused(request: &Request) -> String {
    start(request).map(|trained| panic!("{trained:?}")).unwrap_err().to_string()
}

const TABLE: &str = "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"d.csv\"\ntarget = \"y\"\n[model]\nlayers = [{ type = \"linear\", \
                     out_features = \"$classes\" }]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n";

#[test]
fn a_run_is_one_training() {
    let place = Place::with(TABLE);
    let rows: String = (0..40).map(|i| format!("{},{}\n", i % 7, ["a", "b"][i % 2])).collect();
    place.write("d.csv", format!("x,y\n{rows}"));
    let asked = |sets: &[&str], out: &str| {
        let mut request = Request::of_config(place.path("c.toml"));
        request.sets = sets.iter().map(|set| set.to_string()).collect();
        request.out = Some(place.path(out));
        request
    };
    for (set, key) in [("data.folds=4", "`data.folds`"), ("train.seeds=3", "`train.seeds`")] {
        let said =
            refused(&asked(&[set, "data.validation_split=0.2"][..if key.contains("seeds") { 2 } else { 1 }], "r"));
        assert!(said.contains("a run is one training") && said.contains(key), "{said}");
        assert!(!place.path("r").exists());
    }
    start(&asked(&["data.folds=4", "data.fold=2"], "fold")).unwrap();
    place.ok("train c.toml --quiet --out folds --set data.folds=4");
    let said = refused(&Request::resume(place.path("folds")));
    assert!(said.contains("holds 4 folds") && said.contains("fold-1"), "{said}");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let place = Place::with(&config());
    let asked = |change: &dyn Fn(&mut Request)| {
        let mut request = Request::of_config(place.path("c.toml"));
        request.out = Some(place.path("r"));
        change(&mut request);
        refused(&request)
    };
    for threads in [0, 100_000] {
        let said = asked(&|request| request.threads = Some(threads));
        assert!(said.contains(&format!("`threads` is {threads}")) && said.contains("1 to 1024"), "{said}");
        let options = Options { threads: Some(threads), ..Options::default() };
        let said = Predictor::open(&place.path("c.toml"), &options).err().unwrap().to_string();
        assert!(said.contains("1 to 1024"), "{said}");
    }
    let without = || vec!["nonsense".to_owned()];
    let said = asked(&|request| request.without = without());
    assert!(said.contains("no pass: `nonsense`") && said.contains("simplify"), "{said}");
    let options = Options { without: without(), ..Options::default() };
    let said = Predictor::open(&place.path("c.toml"), &options).err().unwrap().to_string();
    assert!(said.contains("no pass: `nonsense`"), "{said}");
    let said = asked(&|request| request.out = Some("".into()));
    assert!(said.contains("folder is empty"), "{said}");
    let loaded = config::load(&place.path("c.toml"), &[]).unwrap();
    let said = asked(&|request| {
        request.run = Asked::Loaded(Box::new(loaded.clone()));
        request.sets = vec!["train.epochs=1".into()];
    });
    assert!(said.contains("loaded already: `train.epochs=1`"), "{said}");
    assert!(!place.path("r").exists());
}

#[test]
fn a_listener_gets_the_line_of_a_failure() {
    let place = Place::with(&config());
    let (mut request, events) = heard(Request::of_config(place.path("c.toml")));
    request.out = Some(place.path("r"));
    request.sets = ["optimizer.type=sgd", "optimizer.lr=1e30", "log.every_steps=1"].map(String::from).to_vec();
    let said = refused(&request);
    let last = events.lock().unwrap().0.last().cloned().unwrap();
    assert_eq!(last["kind"], "failed", "{said}");
    assert_eq!(place.read("r/metrics.jsonl").lines().last(), Some(last.to_string().as_str()));
}

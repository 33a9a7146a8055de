//! Samples that are made when a batch asks for them, and batches of several shapes.

use image::RgbImage;
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::checkpoint;
use runner::config::{self, Loaded};
use runner::data::{
    Classes, DataSpec, Dataset, Field, FieldKind, INPUTS, Lengths, Loader, LoaderOptions, Position, Rows, Split, Store,
    TARGETS, Unreadable, Values, image_sample,
};
use runner::graph::{DType, VarKind};
use runner::model::BatchShape;
use runner::passes::PassOptions;
use runner::random::{Purpose, Stream};
use runner::train::files::folder::{Folder, Replaces, file};
use runner::train::files::metrics_file::MetricsFile;
use runner::train::files::state::{RunState, restore};
use runner::train::run::Run;
use runner::train::run::pending::Pending;
use runner::train::run::report::{Reporter, Verbosity};
use runner::train::run::waiting::Waiting;
use runner::train::setup::input::{Samples, describe};
use runner::train::setup::programs::{self, Sizes};
use runner::train::setup::schedule::Schedule;
use runner::train::setup::session::{Session, StepInputs};
use runner::train::setup::transfer::in_state_dict;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const TRAIN: usize = 24;
const VAL: usize = 20;

fn load(text: &str, sets: &[&str]) -> Loaded {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_string()).collect();
    config::load_str("test.toml", text, &sets).unwrap_or_else(|e| panic!("{e}"))
}

/// Image files that are decoded when a batch asks for them; what a file shows is in its name.
struct Photos {
    files: Vec<PathBuf>,
    fields: [Field; 2],
}

impl Photos {
    fn split(folder: &Path) -> Split {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let fields = [
            Field::image(INPUTS, DType::U8, [8, 8, 3]),
            Field::target(TARGETS, FieldKind::Category(Classes::of(3)), []),
        ];
        Split::new(Arc::new(Photos { files, fields })).unwrap()
    }
}

impl Store for Photos {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let file = &self.files[sample];
        let name = file.file_name().unwrap().to_str().unwrap();
        let bad = |e: anyhow::Error| Unreadable { name: name.into(), why: e.root_cause().to_string() };
        rows.put(0, &image_sample(file, &self.fields[0], false).map_err(bad)?);
        rows.put(1, &i32::from(name.ends_with("b.png")).to_ne_bytes());
        Ok(())
    }

    fn identify(&self, sample: usize, _: usize, take: &mut dyn FnMut(&[u8])) {
        take(self.files[sample].to_str().unwrap().as_bytes());
    }
}

/// The pixels of image number `number` of a set, and its class.
fn image(set: u64, number: usize) -> (Vec<u8>, i32) {
    let mut draws = Stream::new(set, Purpose::Synthetic, 0, number as u64);
    let class = draws.below(2) as i32;
    let bright = |at: usize| 60 + 90 * u32::from((at / 96).is_multiple_of(2) == (class == 0));
    ((0..192).map(|at| (bright(at) + draws.below(60)) as u8).collect(), class)
}

/// A folder of images; those in `bad` are damaged.
fn write(folder: &Path, set: u64, count: usize, bad: &[usize]) {
    std::fs::create_dir(folder).unwrap();
    for number in 0..count {
        let (pixels, class) = image(set, number);
        let path = folder.join(format!("{number:02}{}.png", if class == 0 { "a" } else { "b" }));
        RgbImage::from_raw(8, 8, pixels).unwrap().save(&path).unwrap();
        if bad.contains(&number) {
            std::fs::write(&path, b"\x89PNG\r\n\x1a\n and nothing more").unwrap();
        }
    }
}

/// The same in memory, the next image in the place of each that is damaged.
fn in_memory(set: u64, count: usize, bad: &[usize]) -> Split {
    let next = |n: usize| (n..).map(|n| n % count).find(|n| !bad.contains(n)).unwrap();
    let (pixels, labels): (Vec<_>, Vec<_>) = (0..count).map(|n| image(set, next(n))).unzip();
    Split::labelled(Values::Bytes(pixels.concat()), [8, 8, 3], labels).unwrap()
}

/// The same without those that are damaged.
fn without(set: u64, count: usize, bad: &[usize]) -> Split {
    let (pixels, labels): (Vec<_>, Vec<_>) = (0..count).filter(|n| !bad.contains(n)).map(|n| image(set, n)).unzip();
    Split::labelled(Values::Bytes(pixels.concat()), [8, 8, 3], labels).unwrap()
}

fn samples(train: Split, val: Split) -> Samples {
    let set = Dataset::new(DataSpec::labelled(DType::U8, [8, 8, 3], 2), train, val);
    let Dataset { spec, train, val, fingerprint, .. } = set;
    Samples {
        spec,
        train,
        test: val.clone(),
        test_is_val: true,
        val,
        note: None,
        notes: Vec::new(),
        fingerprint,
        name: "photos",
        cache: None,
    }
}

const PHOTOS: &str = r#"
seed = 3
[data]
source = "synthetic"
shape = [3, 8, 8]
classes = 2
batch_size = 5
workers = 2
train_transforms = [{ type = "random_crop", size = 8, padding = 1 }, "random_horizontal_flip"]
transforms = [{ type = "normalize", mean = [0.5], std = [0.2] }]
[model]
layers = [{ type = "conv2d", out_channels = 4, kernel_size = 3 }, "relu", "flatten", { type = "linear", out_features = 2 }]
[loss]
type = "cross_entropy"
[optimizer]
type = "adam"
lr = 0.01
[train]
epochs = 3
[log]
every_steps = 1
"#;

/// What a run leaves behind: the state dict, and the lines of the metrics without times.
type Left = (Vec<(String, Vec<u8>)>, Vec<Value>);

/// Trains with the loop in the folder `run`, from its checkpoint on if it has one.
fn train(samples: &Samples, sets: &[&str], run: &Path) -> anyhow::Result<Left> {
    let loaded = load(PHOTOS, sets);
    let experiment = &loaded.experiment;
    let backend = CpuBackend::new(Some(1)).unwrap();
    let sizes = Sizes::of_run(experiment, &samples.spec);
    let programs = programs::build(experiment, &samples.spec, &sizes, &backend, &PassOptions::default()).unwrap();
    let mut session = Session::new(programs, &backend, runner::model::task(experiment), experiment.seed).unwrap();
    let last = run.join(file::LAST);
    let (mut folder, state) = match last.exists() {
        true => (
            Folder::existing(Some(run), &experiment.name)?,
            restore(&mut session, &checkpoint::verify(&last)?, &last, None)?,
        ),
        false => (Folder::new(Some(run), &experiment.name, Replaces::Nothing)?, RunState::default()),
    };
    if !last.exists() {
        folder.claim(false)?;
    }
    let metrics = MetricsFile::open(&folder.file(file::METRICS), state.extra.metrics_bytes)?;
    let mut run = Run {
        experiment,
        config: &config::to_toml(&loaded),
        backend: &backend,
        samples,
        session,
        state,
        schedule: Schedule::new(experiment, samples.train.len()),
        folder,
        metrics,
        reporter: Reporter::new(Verbosity::Quiet),
        pending: Pending::default(),
        waiting: Waiting::default(),
        pause_after: None,
        evaluated: None,
        empty: None,
        texts: None,
        any_stopped: None,
    };
    run.run(&AtomicBool::new(false))?;
    let unreadable = run.unreadable_in_all();
    assert_eq!(
        unreadable.is_some(),
        !run.state.extra.unreadable.is_empty() || !run.state.extra.val_unreadable.is_empty()
    );
    let state = run.session.save(in_state_dict)?.into_iter().map(|saved| (saved.name, saved.bytes)).collect();
    let text = std::fs::read_to_string(run.folder.file(file::METRICS))?;
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        ["seconds", "samples_per_s"].iter().for_each(|key| _ = line.as_object_mut().unwrap().remove(*key));
        line
    });
    Ok((state, lines.collect()))
}

#[test]
fn images_decoded_by_the_loader_are_as_good_as_those_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("train"), 1, TRAIN, &[]);
    write(&dir.path().join("val"), 2, VAL, &[]);
    let photos = samples(Photos::split(&dir.path().join("train")), Photos::split(&dir.path().join("val")));
    assert_eq!(photos.footprint().held, 0);
    let known = samples(in_memory(1, TRAIN, &[]), in_memory(2, VAL, &[]));
    let expected = train(&known, &[], &dir.path().join("memory")).unwrap();
    for workers in ["data.workers=0", "data.workers=3"] {
        let run = dir.path().join(workers);
        assert!(train(&photos, &[workers], &run).unwrap() == expected, "{workers}");
    }
}

#[test]
fn a_run_goes_on_without_samples_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("train"), 1, TRAIN, &[TRAIN - 1]);
    write(&dir.path().join("val"), 2, VAL, &[4]);
    let photos = samples(Photos::split(&dir.path().join("train")), Photos::split(&dir.path().join("val")));
    let known = samples(in_memory(1, TRAIN, &[TRAIN - 1]), without(2, VAL, &[4]));
    let (state, mut lines) = train(&known, &[], &dir.path().join("memory")).unwrap();
    let whole = train(&photos, &[], &dir.path().join("whole")).unwrap();
    assert!(whole.0 == state, "the next sample is taken in the place of each that is trained on");
    // Each is named once, and counted in every epoch.
    let named: Vec<(usize, &Value)> =
        whole.1.iter().enumerate().filter(|(_, line)| line["kind"] == "unreadable").collect();
    let names: Vec<&str> = named.iter().map(|(_, line)| line["sample"].as_str().unwrap()).collect();
    assert!(names.len() == 2 && names[0].starts_with("23") && names[1].starts_with("04"), "{names:?}");
    for (at, line) in named {
        lines.insert(at, line.clone());
    }
    for line in lines.iter_mut().filter(|line| line["kind"] == "epoch") {
        (line["unreadable"], line["val_unreadable"]) = (1.into(), 1.into());
    }
    // Evaluations leave them out. Their batches are others, and their sums are rounded otherwise.
    let mut rounded = whole.1.clone();
    for (line, expected) in rounded.iter_mut().zip(&lines) {
        let [loss, other] = [&line["val_loss"], &expected["val_loss"]].map(Value::as_f64);
        if loss.zip(other).is_some_and(|(loss, other)| (loss - other).abs() < 1e-6 * other) {
            line["val_loss"] = expected["val_loss"].clone();
        }
    }
    assert_eq!(rounded, lines);

    // Stopped in the middle of an epoch, and gone on with by other numbers of threads.
    for (step, workers) in [("train.max_steps=3", "data.workers=0"), ("train.max_steps=7", "data.workers=4")] {
        let run = dir.path().join(workers);
        train(&photos, &[step], &run).unwrap();
        assert!(train(&photos, &[workers], &run).unwrap() == whole, "{step}");
    }

    // One more, and it is no accident.
    std::fs::remove_dir_all(dir.path().join("train")).unwrap();
    write(&dir.path().join("train"), 1, TRAIN, &[5, TRAIN - 1]);
    let photos = samples(Photos::split(&dir.path().join("train")), photos.val);
    for workers in ["data.workers=0", "data.workers=3"] {
        let error = train(&photos, &[workers], &dir.path().join(format!("bad {workers}"))).unwrap_err().to_string();
        assert!(error.contains("2 of 24 samples cannot be read, more than the 1"), "{error}");
        assert!(error.contains("`05") && error.contains("`23"), "{error}");
    }
}

const SEQUENCES: &str = r#"
seed = 5
[data]
source = "synthetic"
shape = [6]
targets = 1
batch_size = 3
[model]
layers = [
  { type = "linear", out_features = 8 },
  { name = "r", type = "residual", layers = ["layer_norm", { type = "multihead_attention", num_heads = 2 }] },
  "gelu",
  { type = "linear", out_features = 2 },
]
[loss]
type = "mse"
[optimizer]
type = "adam"
lr = 0.01
[train]
epochs = 1
"#;

/// Sequences of this length with something to learn at each position.
fn sequences(length: usize) -> (DataSpec, Split) {
    let fields = vec![
        Field::numbers("signal", DType::F32, [length, 6]).of_any_length(0, 0),
        Field::target(TARGETS, FieldKind::Number, [length, 2]).of_any_length(0, 0),
    ];
    let mut draws = Stream::new(9, Purpose::Synthetic, length as u64, 0);
    let mut values = |n: usize| Values::Floats((0..n).map(|_| draws.normal() as f32).collect());
    let list = vec![(fields[0].clone(), values(9 * length * 6)), (fields[1].clone(), values(9 * length * 2))];
    let spec = DataSpec { fields, ..DataSpec::valued(DType::F32, [6], [1]) };
    (spec, Split::in_memory(list, 9).unwrap())
}

/// A session with training programs for batches of three sequences of these lengths.
fn session(lengths: &[usize]) -> Session {
    let loaded = load(SEQUENCES, &[]);
    let longest = lengths.iter().max().unwrap();
    let train = lengths.iter().map(|l| BatchShape { samples: 3, lengths: Lengths::first(*l) }).collect();
    let backend = CpuBackend::new(Some(1)).unwrap();
    let (spec, sizes) = (sequences(*longest).0, Sizes { train, ..Sizes::default() });
    let programs = programs::build(&loaded.experiment, &spec, &sizes, &backend, &PassOptions::default()).unwrap();
    Session::new(programs, &backend, runner::model::task(&loaded.experiment), 5).unwrap()
}

/// Trains on the first batches of sequences of that length, and goes on with what is in `state`.
fn steps(session: &mut Session, length: usize, count: usize) -> Vec<u8> {
    let backend = CpuBackend::new(Some(1)).unwrap();
    let layout = session.programs.plan.slot.clone();
    let buffers = vec![backend.host_buffer(layout.bytes).unwrap()];
    let options = LoaderOptions { batch_size: 3, shuffle: false, workers: 1, ..LoaderOptions::default() };
    let mut loader = Loader::start(&sequences(length).1, options, &layout, buffers, Position::default()).unwrap();
    for _ in 0..count {
        let mut batch = loader.next().unwrap().unwrap();
        let inputs = StepInputs { lr: 0.01, lr_floor: 0.0, grad_scale: 1.0, seed: 5, micro_step: 0 };
        let shape = BatchShape { samples: batch.shape.samples, lengths: Lengths::first(length) };
        session.train(batch.slot, &mut batch.buffer, shape, inputs).unwrap();
        session.wait_slot(batch.slot).unwrap();
        loader.release(batch);
    }
    let mut losses = Vec::new();
    session.losses(true, &mut losses).unwrap();
    assert!(losses.len() == count && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    let saved = session.save(|v| matches!(v.kind, VarKind::Parameter | VarKind::Optimizer)).unwrap();
    saved.into_iter().flat_map(|s| s.bytes).collect()
}

/// Two programs over one set of parameters, each for sequences of its length.
#[test]
fn sequences_of_two_lengths_are_two_programs() {
    let mut both = session(&[16, 4]);
    let alone: Vec<Session> = vec![session(&[16]), session(&[4])];
    let plan = both.programs.plan.clone();
    let of = |f: fn(&runner::plan::Plan) -> usize| (f(&plan), alone.iter().map(|s| f(&s.programs.plan)).max().unwrap());
    let (slot, longest) = of(|p| p.slot.bytes);
    assert_eq!(slot, longest, "a slot is as large as the longest sequences need");
    let (transient, longest) = of(|p| p.transient_bytes);
    assert_eq!(transient, longest);
    assert_eq!(plan.variables.iter().count(), alone[0].programs.plan.variables.iter().count());
    // One after the other they come to what each comes to alone.
    let [mut long, mut short] = <[Session; 2]>::try_from(alone).ok().unwrap();
    let expected = steps(&mut short, 4, 2);
    assert!(steps(&mut both, 4, 2) == expected);
    let carried = short.save(|v| v.kind != VarKind::Metric).unwrap();
    let variables = long.programs.plan.variables.clone();
    for saved in &carried {
        long.restore(variables.find(&saved.name).unwrap(), &saved.bytes).unwrap();
    }
    assert!(steps(&mut both, 16, 2) == steps(&mut long, 16, 2));
    // A batch of a length that there is no program for is an error.
    let mut buffer = CpuBackend::new(Some(1)).unwrap().host_buffer(slot).unwrap();
    let inputs = StepInputs { lr: 0.01, lr_floor: 0.0, grad_scale: 1.0, seed: 5, micro_step: 0 };
    let other = BatchShape { samples: 3, lengths: Lengths::first(5) };
    let error = both.train(0, &mut buffer, other, inputs).unwrap_err().to_string();
    assert!(error.contains("no program for Train with a batch of 3 of length 5"), "{error}");
}

/// Transforms change the one input that is an image; where that could be another or none, it is an error.
#[test]
fn transforms_of_several_inputs() {
    let model = |inputs: &str| {
        PHOTOS
            .replace("[model]\nlayers = [", &format!("[model]\ninputs = {inputs}\nlayers = [\n"))
            .replace("{ type = \"conv2d\"", &format!("{{ type = \"concat\", from = {inputs} }},\n{{ type = \"conv2d\""))
    };
    let mistakes = |text: &str, fields: Vec<Field>| {
        let loaded = load(text, &[]);
        let spec = DataSpec { fields, ..describe(&loaded.experiment.clone()).unwrap_or_else(|_| labelled()) };
        let sizes = Sizes { train: vec![5.into()], ..Sizes::default() };
        let backend = CpuBackend::new(Some(1)).unwrap();
        match programs::build(&loaded.experiment, &spec, &sizes, &backend, &PassOptions::default()) {
            Ok(_) => String::new(),
            Err(errors) => config::text::diagnostics::render(&loaded.sources, &errors, false),
        }
    };
    let label = Field::target(TARGETS, FieldKind::Category(Classes::of(2)), []);
    let photo = |name: &str| Field::image(name, DType::U8, [8, 8, 3]);
    let text = model("[\"left\", \"right\"]");
    let error = mistakes(&text, vec![photo("left"), photo("right"), label.clone()]);
    assert!(error.contains("transforms change the one image that a model takes, and this one takes 2"), "{error}");
    assert!(error.contains("random_crop") && error.contains("inputs = "), "{error}");
    let numbers = Field::numbers("right", DType::F32, [4]);
    let error = mistakes(&text, vec![Field { name: "left".into(), ..numbers.clone() }, numbers.clone(), label.clone()]);
    assert!(error.contains("transforms change images, and the model takes none"), "{error}");
    // Of an image and a vector the image is meant.
    let flat = text.replace(
        "{ type = \"concat\", from = [\"left\", \"right\"] },",
        "{ name = \"f\", type = \"flatten\", from = \"left\" }, { type = \"concat\", from = [\"f\", \"right\"] },",
    );
    let flat = flat.replace("{ type = \"conv2d\", out_channels = 4, kernel_size = 3 }, ", "");
    assert_eq!(mistakes(&flat, vec![photo("left"), numbers, label]), "");
}

fn labelled() -> DataSpec {
    DataSpec::labelled(DType::U8, [8, 8, 3], 2)
}

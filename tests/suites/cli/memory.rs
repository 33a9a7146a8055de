//! The memory that `check` reports is that which is used. A run that needs more than there is ends before the first step.

use crate::support::{Done, Place};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// 2^20 bytes.
const MIB: u64 = 1 << 20;

/// Sections around `data` and `model` for a few steps with Adam, and a checkpoint at the end.
fn config(data: &str, layers: &str) -> String {
    format!(
        "device = \"cpu\"\n[data]\n{data}\n[model]\nlayers = [{layers}]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \
         \"adam\"\nlr = 1e-3\n[train]\nepochs = 1\nmax_steps = 6\n[log]\nevery_steps = 1\n"
    )
}

/// As many samples as MNIST, made up.
fn mnist_sized() -> String {
    config(
        "source = \"synthetic\"\nshape = [1, 28, 28]\nclasses = 10\nsamples = 60_000\nval_samples = 10_000\nbatch_size = 128\n\
         limit_val = 500",
        "{ type = \"conv2d\", out_channels = 8, kernel_size = 3 }, \"relu\", \"flatten\", { type = \"linear\", out_features = 10 }",
    )
}

/// Nearly all of it parameters and the optimizer's state: about 50 MiB each of parameters and of two moments.
fn state_heavy() -> String {
    let wide = "{ type = \"linear\", out_features = 2048 }, \"relu\"";
    config(
        "source = \"synthetic\"\nshape = [2048]\nclasses = 4\nsamples = 64\nval_samples = 8\nbatch_size = 4",
        &format!("{}, {{ type = \"linear\", out_features = 4 }}", [wide; 3].join(", ")),
    )
}

/// So many samples that lists of them take room, too.
fn many_samples() -> String {
    config(
        "source = \"synthetic\"\nshape = [4]\nclasses = 4\nsamples = 3_000_000\nbatch_size = 64\nvalidation_split = 0.1\nlimit_val = 500",
        "{ type = \"linear\", out_features = 4 }",
    )
}

/// The bytes of memory that `check` reports.
fn reported_memory(place: &Place) -> u64 {
    place.ok("check c.toml --json").json()["memory"]["total"].as_u64().unwrap()
}

/// Runs a command to its end; the most bytes of memory that it has had.
pub fn most_used(place: &Place, args: &str) -> u64 {
    let mut child = place.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) * 1024);
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    assert!(child.wait().unwrap().success(), "`runner {args}`");
    most
}

/// Runs a command that may have no more than so many bytes of memory of its own.
fn run_within(place: &Place, args: &str, bytes: u64) -> Done {
    let mut command = place.command(args);
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: between `fork` and `exec` nothing is called but `setrlimit`, which is safe to call there.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_DATA, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    Done::of(command.output().unwrap())
}

/// Files of CIFAR-10's size, black, which are read one after the other.
fn cifar_sized() -> String {
    config(
        "source = \"cifar10\"\nroot = \".\"\nverify = false\ndownload = false\nbatch_size = 128\nlimit_val = 500",
        "\"flatten\", { type = \"linear\", out_features = 10 }",
    )
}

fn black_cifar(place: &Place) {
    fs::create_dir(place.path("cifar-10-batches-bin")).unwrap();
    let train = (1..=5).map(|i| format!("data_batch_{i}.bin"));
    for name in train.chain(["test_batch.bin".into()]) {
        // It takes no place on the disk.
        fs::File::create(place.path("cifar-10-batches-bin").join(name)).unwrap().set_len(30_730_000).unwrap();
    }
}

/// `check` counts the text, the tokens, the order of an epoch, and what a `tokenizer.json` takes while it makes tokens of a piece of it.
#[cfg(target_os = "linux")]
#[test]
fn the_reported_memory_of_a_text_is_what_is_used() {
    let config = |tokenizer: &str| {
        config(
            &format!("source = \"text\"\npath = \"a.txt\"\ntokenizer = {tokenizer}\ncontext = 8\nbatch_size = 4"),
            "{ type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 4 }, { type = \"linear\", out_features = \"$vocabulary\" }",
        )
    };
    let one_piece = r#"{"version":"1.0","model":{"type":"WordLevel","vocab":{"a":0,"[UNK]":1},"unk_token":"[UNK]"},
        "pre_tokenizer":{"type":"Punctuation","behavior":"Isolated"}}"#;
    let (words, signs) = ("some words of a text, ".repeat(1 << 19), "名,".repeat(1 << 16));
    let whole = "\"characters\"\nvalidation_split = 0.1\nlimit_val = 64";
    for (name, tokenizer, text) in [
        ("words", "\"words\"\nvocab_size = 100\nlimit = 64", &words),
        ("characters", whole, &words),
        ("characters, of which few are taken", "\"characters\"\nlimit = 64", &words),
        ("bytes", "\"bytes\"", &words),
        ("no place to cut", "\"tokenizer.json\"\nlimit = 64", &signs),
    ] {
        let place = Place::with(&config(tokenizer));
        place.write("a.txt", text.as_bytes());
        place.write("tokenizer.json", one_piece.as_bytes());
        let reported = reported_memory(&place);
        let used = most_used(&place, "train c.toml --out r");
        eprintln!("{name}: {} KiB reported, {} KiB used", reported / 1024, used / 1024);
        assert!(reported as f64 >= 0.95 * used as f64, "{name}: {reported} bytes were reported, and {used} used");
        assert!(
            reported as f64 <= 1.3 * used as f64 + (32 * MIB) as f64,
            "{name}: {reported} bytes were reported, {used} used"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_reported_memory_is_what_is_used() {
    let cases = [
        ("as many samples as MNIST", mnist_sized()),
        ("files of CIFAR-10", cifar_sized()),
        ("much state", state_heavy()),
        ("many small samples", many_samples()),
    ];
    for (name, config) in cases {
        let place = Place::with(&config);
        black_cifar(&place);
        let reported = reported_memory(&place);
        let resume = "train c.toml --out r --resume --set train.max_steps=9";
        // What is resumed differs by the state that is read.
        let resumed = (config == state_heavy()).then_some(("resumed", resume));
        for (what, args) in [("trained", "train c.toml --out r")].into_iter().chain(resumed) {
            let used = most_used(&place, args);
            eprintln!("{name}, {what}: {} KiB reported, {} KiB used", reported / 1024, used / 1024);
            assert!(
                reported as f64 >= 0.95 * used as f64,
                "{name}, {what}: {reported} bytes were reported, and {used} used"
            );
            assert!(
                reported as f64 <= 1.3 * used as f64 + (32 * MIB) as f64,
                "{name}, {what}: {reported} bytes were reported, and no more than {used} used"
            );
        }
    }
}

/// The state is on its way to the file in pieces: there is no room for a copy of it.
#[cfg(target_os = "linux")]
#[test]
fn a_checkpoint_is_written_and_read_without_a_copy_of_the_state() {
    let place = Place::with(&state_heavy());
    let limit = reported_memory(&place) + 48 * MIB;
    let done = run_within(&place, "train c.toml --out r", limit);
    assert_eq!(done.code, Some(0), "{done:?}");
    let state: usize = place.checkpoint("r/last.safetensors").tensors.values().map(|t| t.data.len()).sum();
    assert!(state as u64 > 125 * MIB);
    let done = run_within(&place, "train c.toml --out r --resume --set train.max_steps=9", limit);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(place.checkpoint("r/last.safetensors").meta.step, 9);
    assert_eq!(run_within(&place, "eval r/last.safetensors", limit).code, Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn what_there_is_no_memory_for_is_refused_with_what_fits() {
    let place = Place::with(&mnist_sized());
    let limit = reported_memory(&place) + 256 * MIB;
    let large = "--set data.batch_size=30_000";
    let done = run_within(&place, &format!("train c.toml --out r {large}"), limit);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("not enough memory on cpu") && done.err.contains("`ulimit -d`"), "{done:?}");
    for class in ["parameters", "activations", "data", "saving", "process", "total", "available"] {
        assert!(done.err.lines().any(|l| l.trim_start().starts_with(class)), "no {class}: {done:?}");
    }
    assert!(!place.path("r").exists(), "nothing is written");

    // `check` reports the same, with everything else.
    let done = run_within(&place, &format!("check c.toml {large}"), limit);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.out.contains("peak at") && done.err.contains("not enough memory"), "{done:?}");
    let done = run_within(&place, &format!("check c.toml --json {large}"), limit);
    assert_eq!(done.code, Some(3), "{done:?}");
    let json = done.json();
    assert_eq!(json["memory"]["fits"], false);
    let help = json["errors"][0]["help"].as_str().unwrap();
    let batch: usize = help.rsplit("data.batch_size=").next().unwrap().parse().unwrap();
    assert!((128..30_000).contains(&batch), "{help}");

    // The batch that is named is one that can be trained with. The process is not always of the same size, to the page.
    let batch = batch * 19 / 20;
    let args = format!("train c.toml --out r --quiet --set train.max_steps=1 --set data.batch_size={batch}");
    let done = run_within(&place, &args, limit);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// `check` reports how much memory layers that are computed again save, and training then takes that much less.
#[cfg(target_os = "linux")]
#[test]
fn layers_that_are_computed_again_save_the_reported_memory() {
    let block = |n| {
        format!(
            r#"{{ name = "r{n}", type = "residual", layers = [{{ type = "linear", out_features = 256 }}, "gelu"] }}"#
        )
    };
    let deep = config(
        "source = \"synthetic\"\nshape = [256]\nclasses = 4\nsamples = 8192\nval_samples = 8\nbatch_size = 8192",
        &format!("{}, {{ type = \"linear\", out_features = 4 }}", (0..12).map(block).collect::<Vec<_>>().join(", ")),
    );
    let place = Place::with(&deep);
    let before = reported_memory(&place);
    assert!(place.ok("check c.toml --json").json().get("recompute").is_none());
    let again = "--set train.recompute=true";
    let json = place.ok(&format!("check c.toml --json {again}")).json();
    let after = json["memory"]["total"].as_u64().unwrap();
    let saved = json["recompute"]["saved"].as_u64().unwrap();
    assert!((before - after).abs_diff(saved) < MIB, "{before} - {after} and {saved}");
    assert!(saved > 60 * MIB, "{saved}");
    let flops = ["flops", "flops_without"].map(|key| json["recompute"][key].as_f64().unwrap());
    // At most all of the forward pass, which is a third of the step, once more.
    assert!(1.0 < flops[0] / flops[1] && flops[0] / flops[1] < 4.0 / 3.0, "{flops:?}");
    let text = place.ok(&format!("check c.toml {again}")).out;
    assert!(text.contains("`recompute` saves ") && text.contains(" % more FLOPs in a training step"), "{text}");
    let used =
        [format!("train c.toml --out r {again}"), "train c.toml --out s".to_string()].map(|a| most_used(&place, &a));
    assert!(used[0] + saved * 9 / 10 < used[1], "{used:?}, {saved} less");
    // The same run: it may be given up half-way, and taken up.
    assert_eq!(place.checkpoint("r/last.safetensors").tensors, place.checkpoint("s/last.safetensors").tensors);
    // Of one layer nothing is kept but what it was given.
    let one = "{ type = \"linear\", out_features = 4 }";
    let place = Place::with(&config("source = \"synthetic\"\nshape = [2048]\nclasses = 4\nsamples = 64", one));
    let text = place.ok(&format!("check c.toml {again}")).out;
    assert!(text.contains("`recompute` saves nothing here"), "{text}");
}

/// Batch normalisation takes no batch of one sample, which says nothing about larger ones.
#[cfg(target_os = "linux")]
#[test]
fn a_batch_that_fits_is_found_where_one_sample_is_none() {
    let place = Place::with(&mnist_sized().replace("\"flatten\",", "\"flatten\", \"batch_norm1d\","));
    assert_eq!(place.run("check c.toml --set data.batch_size=1").code, Some(2));
    let limit = reported_memory(&place) + 256 * MIB;
    let done = run_within(&place, "check c.toml --json --set data.batch_size=30_000", limit);
    assert_eq!(done.code, Some(3), "{done:?}");
    let json = done.json();
    let help = json["errors"][0]["help"].as_str().unwrap();
    let batch: usize = help.rsplit("data.batch_size=").next().unwrap().parse().unwrap_or_else(|_| panic!("{help}"));
    assert!((128..30_000).contains(&batch), "{help}");
}

/// A model whose parameters alone are too many is refused before its checkpoint is read.
#[cfg(target_os = "linux")]
#[test]
fn predictions_that_there_is_no_memory_for_are_refused() {
    let source =
        "source = \"synthetic\"\nshape = [1, 28, 28]\nclasses = 10\nsamples = 8\nval_samples = 2\nbatch_size = 4";
    let wide = "\"flatten\", { type = \"linear\", out_features = 20000 }, { type = \"linear\", out_features = 10 }";
    let place = Place::with(&config(source, wide));
    place.ok("train c.toml --out r --quiet --set train.max_steps=1");
    image::GrayImage::new(28, 28).save(place.path("x.png")).unwrap();
    place.ok("predict r/last.safetensors x.png");
    let done = run_within(&place, "predict r/last.safetensors x.png", 48 * MIB);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("not enough memory on cpu") && done.err.contains("`ulimit -d`"), "{done:?}");
}

/// Samples that do not fit are refused before they are made.
#[cfg(target_os = "linux")]
#[test]
fn data_that_there_is_no_memory_for_is_refused() {
    let place = Place::with(&mnist_sized());
    let args = "train c.toml --out r --set data.samples=6_000_000";
    let done = run_within(&place, args, 1024 * MIB);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("not even the smallest batch fits") && done.err.contains("data"), "{done:?}");
    let trained = "eval r/last.safetensors --split train";
    place.ok("train c.toml --out r --quiet --set train.max_steps=1");
    let done = run_within(&place, &format!("{trained} --set data.samples=6_000_000"), 1024 * MIB);
    assert_eq!(done.code, Some(3), "{done:?}");
}

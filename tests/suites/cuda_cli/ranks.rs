//! Several GPUs come to what one comes to, to the bit; and what is said where they cannot.

use super::support::{Done, LAYERS, Place, digits, repository};
use super::{emulator, ok_with, run_with};
use std::path::{Path, PathBuf};

/// The driver's folder and that of NCCL, as `LD_LIBRARY_PATH` names them.
fn folders() -> Option<PathBuf> {
    let driver = emulator::library_dir()?;
    let double = emulator::nvidia_library("libnccl.so")?;
    Some(std::env::join_paths([driver.as_path(), double.parent().unwrap()]).unwrap().into())
}

/// A machine with four GPUs. What is computed does not depend on libraries here.
const FOUR: [(&str, &str); 2] = [("EMULATED_DEVICES", "4"), ("RUNNER_CUDA_LIBRARIES", "0")];

fn ok(place: &Place, folders: &Path, args: &str) -> Done {
    ok_with(place, folders, args, &FOUR)
}

/// Fails unless two runs have the same state and figures. What a GPU has of the memory is another matter.
fn assert_same(place: &Place, a: &str, b: &str) {
    for file in ["last", "best"] {
        let [x, y] = [a, b].map(|run| place.checkpoint(&format!("{run}/{file}.safetensors")));
        assert_eq!((x.meta.step, &x.meta.best), (y.meta.step, &y.meta.best), "{file}: {a} and {b}");
        assert!(x.tensors.keys().eq(y.tensors.keys()));
        for (name, t) in &x.tensors {
            assert!(t.data == y.tensors[name].data, "{file}: `{name}` differs between {a} and {b}");
        }
    }
    let [x, y] = [a, b].map(|run| {
        let mut lines = place.metrics(run);
        let figures = lines.iter_mut().filter_map(|line| line.as_object_mut());
        figures.for_each(|line| line.retain(|name, _| !name.starts_with("memory_")));
        lines
    });
    assert_eq!(x, y, "{a} and {b}");
}

/// How a command fails that is to end with that code.
fn fails(place: &Place, folders: &Path, args: &str, code: i32, env: &[(&str, &str)]) -> String {
    let done = run_with(place, folders, args, &[&FOUR[..], env].concat());
    assert_eq!(done.code, Some(code), "`runner {args}`: {done:?}");
    done.err
}

/// Batch norm and dropout, gradients that are clipped, and a last batch that is smaller and of fewer shards.
fn net(train: &str) -> String {
    let layers = r#"[model]
layers = [
  { type = "conv2d", out_channels = 6, kernel_size = 3, padding = 1 }, "batch_norm2d", "relu",
  { type = "max_pool2d", kernel_size = 2 },
  "flatten", { type = "dropout", p = 0.2 }, { type = "linear", out_features = 24 }, "batch_norm1d", { type = "linear", out_features = 10 },
]"#;
    let sections = format!(
        "{layers}\n[optimizer]\ntype = \"adam\"\nlr = 3e-3\nema = {{ decay = 0.9 }}\n[train]\n{train}\nclip_grad_norm = 1.0\n\
         [metrics]\nfigures = [\"auroc\", \"macro_f1\"]\n[distributed]\nshards = 12\n[log]\nevery_steps = 1\n"
    );
    let data = "train_transforms = [{ type = \"random_crop\", size = 8, padding = 1 }]\neval_batch_size = 25";
    digits(data, &sections)
        .replace("device = \"cpu\"", "device = \"cuda\"")
        .replace("batch_size = 32", "batch_size = 24")
        .replace("limit = 320", "limit = 106")
        .replace("limit_val = 100", "limit_val = 50")
}

#[test]
fn convolutions_do_not_depend_on_the_number_of_gpus() {
    let Some(folders) = folders() else { return };
    let place = Place::with(&net("epochs = 2"));
    ok(&place, &folders, "train c.toml --quiet --out one");
    for (name, args) in [
        ("two", "launch --ranks 2 -- train c.toml"),
        ("three", "train c.toml --unset device --set devices=[1,3,0]"),
        ("four", "train c.toml --unset device --set devices=all"),
    ] {
        ok(&place, &folders, &format!("{args} --quiet --out {name}"));
        assert_same(&place, "one", name);
    }
}

#[test]
fn accumulation_does_not_depend_on_it() {
    let Some(folders) = folders() else { return };
    let place = Place::with(&net("epochs = 1\naccumulate = 2"));
    ok(&place, &folders, "train c.toml --quiet --out one");
    for (ranks, more) in [(2, " --set graph=false"), (4, "")] {
        ok(&place, &folders, &format!("launch --ranks {ranks} -- train c.toml --quiet --out r{ranks}{more}"));
        assert_same(&place, "one", &format!("r{ranks}"));
    }
    // The scale of the loss is the same for all.
    ok(&place, &folders, "train c.toml --quiet --out half --set precision=fp16");
    ok(&place, &folders, "launch --ranks 2 -- train c.toml --quiet --out halves --set precision=fp16");
    assert_same(&place, "half", "halves");
}

#[test]
fn statistics_over_all_shards_do_not_depend_on_it() {
    let Some(folders) = folders() else { return };
    let whole = net("epochs = 1").replace("shards = 12\n", "shards = 12\nsync_batch_norm = true\n");
    assert!(whole.contains("sync_batch_norm"), "{whole}");
    let place = Place::with(&whole);
    ok(&place, &folders, "train c.toml --quiet --out one");
    for ranks in [2, 4] {
        ok(&place, &folders, &format!("launch --ranks {ranks} -- train c.toml --quiet --out r{ranks}"));
        assert_same(&place, "one", &format!("r{ranks}"));
    }
}

#[test]
fn a_transformer_does_not_depend_on_it() {
    let Some(folders) = folders() else { return };
    let text = std::fs::read_to_string(repository("configs/digits_transformer.toml")).unwrap();
    let place = Place::with(&format!("{text}\n[distributed]\nshards = 12\n"));
    let sets = "--quiet --device cuda --set data.batch_size=24 --set train.steps=3 --set data.limit_val=50 --unset train.eval_every_steps";
    ok(&place, &folders, &format!("train c.toml {sets} --out one"));
    ok(&place, &folders, &format!("launch --ranks 3 -- train c.toml {sets} --out three"));
    assert_same(&place, "one", "three");
}

/// Rules that look at whole tensors, whose owners have them, and one whose state all ranks have.
#[test]
fn no_optimizer_depends_on_it() {
    let Some(folders) = folders() else { return };
    for rule in
        ["type = \"lamb\"\nlr = 0.01", "type = \"muon\"\nlr = 0.02", "type = \"adamw_schedule_free\"\nlr = 0.01"]
    {
        let whole =
            net("epochs = 1").replace("ema = { decay = 0.9 }\n", "").replace("type = \"adam\"\nlr = 3e-3", rule);
        assert!(whole.contains(rule), "{whole}");
        let place = Place::with(&whole);
        ok(&place, &folders, "train c.toml --quiet --out one");
        // Goes on with another number of GPUs.
        ok(&place, &folders, "launch --ranks 3 -- train c.toml --quiet --out r --set train.max_steps=3");
        ok(&place, &folders, "launch --ranks 2 -- train --resume r --quiet --set train.max_steps=1000");
        assert_same(&place, "one", "r");
    }
}

#[test]
fn processes_take_the_gpus_of_their_local_ranks() {
    let Some(folders) = folders() else { return };
    let place = Place::with(&net("epochs = 1"));
    ok(&place, &folders, "train c.toml --quiet --out one");
    let done = ok(&place, &folders, "launch --ranks 2 --processes -- train c.toml --out two");
    assert!(done.err.contains("as one of 2 GPUs"), "{done:?}");
    assert_same(&place, "one", "two");
    let err =
        fails(&place, &folders, "launch --ranks 3 --processes -- train c.toml", 1, &[("CUDA_VISIBLE_DEVICES", "2,3")]);
    assert!(err.contains("this is rank 2 of this machine, counted from 0, and there are 2, numbers 0 to 1"), "{err}");
}

/// Its GPU would have sent what that of the other waits for.
#[test]
fn a_process_that_is_killed_ends_the_other() {
    let Some(folders) = folders() else { return };
    let place = Place::with(&net("epochs = 2000"));
    let start = |rank: usize| {
        let meeting = place.path("meeting").display().to_string();
        let [rank, two] = [rank, 2].map(|n| n.to_string());
        let mut variables =
            vec![("RANK", rank.clone()), ("LOCAL_RANK", rank), ("WORLD_SIZE", two.clone()), ("LOCAL_WORLD_SIZE", two)];
        variables.extend([("RUNNER_RENDEZVOUS", meeting), ("LD_LIBRARY_PATH", folders.display().to_string())]);
        variables.extend(FOUR.map(|(name, value)| (name, value.to_owned())));
        place.start_with("train c.toml --out r", &variables)
    };
    let (mut first, second) = (start(0), start(1));
    assert!(first.until(|| place.path("r/last.safetensors").exists()));
    second.signal(libc::SIGKILL);
    let (_, done) = first.wait();
    assert!(done.code == Some(1) && done.err.contains("rank 1"), "{done:?}");
    second.wait();
}

/// As many shards as GPUs, where nothing else is said; the checkpoint says so, and one GPU goes on with it.
#[test]
fn gpus_alone_say_how_many_shards_there_are() {
    let Some(folders) = folders() else { return };
    let config = net("epochs = 2").replace("[distributed]\nshards = 12\n", "");
    let place = Place::with(&config.replace("device = \"cuda\"", "devices = \"all\""));
    let begun = ok(&place, &folders, "train c.toml --out r --set train.max_steps=3");
    assert!(begun.err.contains("as one of 4 GPUs"), "{begun:?}");
    let kept = place.read("r/config.toml");
    assert!(kept.contains("devices = \"all\"") && kept.contains("shards = 4"), "{kept}");
    ok(&place, &folders, "train c.toml --resume r --quiet --set train.max_steps=6");
    ok(&place, &folders, "train --resume r --quiet --device cuda --set train.max_steps=1000");
    ok(&place, &folders, "train c.toml --quiet --out one --device cuda --set distributed.shards=4");
    assert_same(&place, "one", "r");
}

#[test]
fn gpus_that_cannot_be_had_are_errors() {
    let Some(folders) = folders() else { return };
    let place = Place::with(&net("epochs = 1"));
    let fails = |args: &str, code: i32, env: &[(&str, &str)]| fails(&place, &folders, args, code, env);
    let several = "train c.toml --unset device --set devices=[0,1]";
    for (args, code, said) in [
        ("launch --ranks 6 -- train c.toml", 3, "6 ranks need a GPU each, and there are 4, numbers 0 to 3"),
        ("launch --ranks 2 -- train c.toml --device cuda:1", 2, "`device = \"cuda:1\"` names one GPU"),
        (
            "train c.toml --unset device --set devices=[0,4]",
            3,
            "`devices` names GPU 4, and there are 4, numbers 0 to 3",
        ),
        ("train c.toml --unset device --set devices=[0,0]", 2, "GPU 0 is named twice"),
        ("train c.toml --unset device --set devices=[]", 2, "no GPU is named"),
        ("train c.toml --unset device --set devices=some", 2, "neither \"all\" nor a list"),
        ("train c.toml --set devices=[0,1] --dry-run", 2, "a dry run is that of one rank"),
        ("launch --ranks 3 -- train c.toml --set devices=[0,1]", 2, "a rank for each of 2 GPUs, and 3 ranks"),
        (
            "train c.toml --set devices=all --unset distributed --set data.batch_size=30",
            2,
            "cannot be cut into 4 equal shards",
        ),
        (
            "train c.toml --set devices=all --set distributed.shards=3 --set data.batch_size=30",
            2,
            "4 ranks cannot share 3 shards",
        ),
        ("launch --ranks 2 --processes -- train c.toml --set devices=[0,1]", 2, "`--device cuda` instead"),
    ] {
        let err = fails(args, code, &[]);
        assert!(err.contains(said), "{args}: {err}");
    }
    let err = fails(several, 3, &[("FAKE_NCCL_VERSION", "21000")]);
    assert!(err.contains("several GPUs need NCCL") && err.contains("too old (2.10.0, and 2.18 is needed)"), "{err}");
    let err = fails(several, 1, &[("FAKE_NCCL", "init:1")]);
    assert!(err.contains("rank 1 has failed: NCCL failed while connecting the GPUs"), "{err}");
    let err = fails(several, 1, &[("FAKE_NCCL", "error:0:4")]);
    assert!(err.contains("NCCL failed while exchanging bytes"), "{err}");
    let err = fails(several, 3, &[("EMULATED_MEMORY", "100000")]);
    assert!(err.contains("not enough memory"), "{err}");
}

/// The second of two GPUs has a loss that is not finite; the first one reports it.
#[test]
fn a_loss_that_is_not_finite_on_one_gpu_ends_all() {
    use runner::checkpoint::{Tensor, write_weights};
    let Some(folders) = folders() else { return };
    let place = Place::with(
        "seed = 1\ndevices = [0, 1]\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 4\nshuffle = false\n\
         [model]\nlayers = [{ name = \"fc\", type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 20\n[distributed]\nshards = 4\n\
         [checkpoint]\nevery_steps = 1\nmonitor = \"train_loss\"\n",
    );
    let mut inputs: Vec<f32> = (0..36).map(|i| i as f32 * 0.01).collect();
    // Of sample 10, which is in shard 2 of step 3.
    inputs[31] = f32::NAN;
    let (x, y) = (Tensor::from_f32([12, 3], &inputs), Tensor::from_f32([12, 1], &[0.5; 12]));
    write_weights(&place.path("t.safetensors"), &[x.view("inputs"), y.view("targets")]).unwrap();
    for more in ["", " --unset checkpoint.every_steps"] {
        let err = fails(&place, &folders, &format!("train c.toml --force --out r{more}"), 1, &[]);
        assert!(err.contains("rank 1 has failed: the loss is NaN at step 3 (epoch 1, batch 3)"), "{err}");
        assert!(err.contains("training sample 10 (from 0) has NaN in `inputs`"), "{err}");
    }
}

#[test]
fn memory_is_reported_for_each_gpu() {
    let Some(folders) = folders() else { return };
    let place = Place::with(&digits(
        "",
        &format!("{LAYERS}\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = 1\n[distributed]\nshards = 4\n"),
    ));
    let memory = |args: &str| ok(&place, &folders, &format!("check c.toml --json {args}")).json()["memory"].clone();
    let (one, two) = (memory("--device cuda"), memory("--device cuda --ranks 2"));
    assert_eq!(one["parameters"], two["parameters"]);
    assert!(two["optimizer"].as_u64() < one["optimizer"].as_u64(), "{one} {two}");
    // In which order sums of all GPUs are added.
    assert!(two["tables"].as_u64() > one["tables"].as_u64(), "{one} {two}");
    assert_eq!(memory("--unset device --set devices=[2,3]")["optimizer"], two["optimizer"]);
    let err = fails(&place, &folders, "check c.toml --set devices=all --time", 2, &[]);
    assert!(err.contains("`--time` measures one rank that is alone"), "{err}");
    let text = ok(&place, &folders, "check c.toml --unset device --set devices=all").out;
    assert!(text.contains("cuda:0") && text.contains("of each of 4 ranks"), "{text}");
}

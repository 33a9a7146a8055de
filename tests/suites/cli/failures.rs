//! Exit codes, and outputs and folders that cannot be written.

use super::support::{Place, plain};
use std::fs::File;
use std::io::Read;
use std::process::Stdio;

#[test]
fn wrong_usage_and_configurations_exit_with_2() {
    let place = Place::with(&plain());
    for args in [
        "train",
        "train nowhere.toml",
        "train c.toml --set train.epochs",
        "train c.toml --set train.epochs=0",
        "train c.toml --set train.epoch=3",
        "train c.toml --device gpu",
        "train c.toml --resume --force",
        "train c.toml --threads many",
        "train c.toml --threads 0",
        "train c.toml --set data.drop_last=true --set data.batch_size=1000",
        "check c.toml --set data.validation_split=1500",
        "train c.toml --set data.validation_split=0.0001",
        "check c.toml --set model.layers=[]",
        "eval c.toml",
        "predict c.toml",
        "bench nowhere.toml",
        "lr-find nowhere.toml",
        "lr-find c.toml --from 1 --to 0.1",
        "lr-find c.toml --from 0",
        "sweep nowhere.toml",
        "sweep c.toml",
        "sweep c.toml --sweep optimizer.rate=1,2",
        "sweep c.toml --sweep optimizer.lr=1..0",
        "sweep c.toml --sweep optimizer.lr=1,2 --method best",
        "data fetch iris",
        "data",
        "completions tcsh",
        "nothing",
    ] {
        let err = place.fails(args, 2);
        assert!(err.contains("error") || err.contains("Usage"), "{args}: {err}");
    }
    assert!(!place.path("runs").exists(), "nothing was made");
}

#[test]
fn a_device_that_is_not_there_exits_with_3() {
    let place = Place::with(&plain());
    for command in ["train", "check", "bench"] {
        assert!(place.fails(&format!("{command} c.toml --device cuda"), 3).contains("--device cpu"));
    }
    place.fails("train c.toml --set device=\"cuda:1\"", 3);
    place.fails("bench matmul --device cuda", 3);
    assert!(!place.path("runs").exists());
    place.ok("train c.toml --quiet --out r");
    for command in ["eval", "report"] {
        assert!(place.fails(&format!("{command} r --device cuda"), 3).contains("--device cpu"), "{command}");
    }
    place.fails("report r --set device=cuda", 3);
    assert!(!place.path("r/report.html").exists());
}

/// A file may be for another machine: `check` looks at what it can, and says what it did not see.
#[test]
fn a_file_for_another_device_is_checked_on_the_cpu() {
    let text = plain();
    let place = Place::with(&format!("device = \"cuda:63\"\n{}", text.replace("device = \"cpu\"\n", "")));
    let checked = place.ok("check c.toml");
    assert!(checked.err.contains("the model is checked for the CPU"), "{checked:?}");
    assert!(checked.out.contains("linear"), "{checked:?}");
    assert!(place.ok("check c.toml --print").out.contains("device = \"cuda:63\""));
    place.fails("check c.toml --device cuda:63", 3);
    place.fails("train c.toml", 3);
}

/// Data and weights that are not there are no mistake of the command line or of the configuration, unless there is one besides.
#[test]
fn what_is_not_there_exits_with_1() {
    let place = Place::with(&plain());
    let rest = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
                [optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n";
    for (name, data) in [
        ("csv", "path = \"none.csv\"\ntarget = \"y\"\nclasses = [\"a\", \"b\"]"),
        ("csv", "path = \"none-*.csv\"\ntarget = \"y\"\nclasses = [\"a\", \"b\"]"),
        ("parquet", "path = \"none.parquet\"\ntarget = \"y\"\nclasses = [\"a\", \"b\"]"),
        ("tensors", "path = \"none.safetensors\""),
        (
            "image_folder",
            "root = \"none\"\nclasses = [\"a\", \"b\"]\ntransforms = [{ type = \"resize\", size = 8 }, { type = \"center_crop\", size = 8 }]",
        ),
        (
            "image_list",
            "path = \"none.csv\"\nclasses = [\"a\", \"b\"]\ntransforms = [{ type = \"resize\", size = 8 }, { type = \"center_crop\", size = 8 }]",
        ),
        ("mnist", "root = \"none\"\ndownload = false"),
        ("text", "path = \"none.txt\"\ntokenizer = \"bytes\"\ncontext = 8"),
        ("text", "path = \"none.txt\"\ntokenizer = \"characters\"\ncontext = 8"),
        ("tokens", "path = \"none.bin\"\nvocab_size = 2\ncontext = 8"),
        ("text_classes", "path = \"none.csv\"\ntokenizer = \"bytes\"\nmax_length = 8"),
        ("text_tags", "path = \"none.jsonl\"\ntokenizer = \"bytes\"\nmax_length = 8"),
        ("text_pairs", "path = \"none.jsonl\"\ntokenizer = \"bytes\"\nmax_length = 8\ntemplate = \"{text}{answer}\""),
    ] {
        let rest = match name {
            "text" | "tokens" | "text_pairs" => rest
                .replace("\"flatten\"", "{ type = \"embedding\", num_embeddings = 256, embedding_dim = 4 }")
                .replace("out_features = 2", "out_features = 256"),
            "mnist" => rest.replace("out_features = 2", "out_features = 10"),
            _ => rest.to_owned(),
        };
        place.write("d.toml", format!("device = \"cpu\"\n[data]\nsource = \"{name}\"\n{data}\n{rest}"));
        let said = place.fails("train d.toml --out x", 1);
        assert!(said.contains("none") && !said.contains("in the configuration"), "{name}: {said}");
        let wrong = place.run("train d.toml --out x --set optimizer.lr=-1 --json");
        assert_eq!(wrong.code, Some(2), "{name}: {wrong:?}");
    }
    for weights in ["none.pth", "none.safetensors"] {
        assert!(place.fails(&format!("train c.toml --out x --set model.weights={weights}"), 1).contains(weights));
    }
    for args in [
        "import none",
        "init none",
        "init none.csv --target y",
        "train --resume none",
        "eval none",
        "data tokenize none.txt --out x",
    ] {
        assert!(place.fails(args, 1).contains("none"), "{args}");
    }
    assert!(!place.path("x").exists());
    // A file in the place of a folder to write to is a mistake of the command line.
    for args in [
        "train c.toml --out c.toml",
        "train c.toml --out c.toml/r",
        "train c.toml --dry-run --out c.toml",
        "man --out c.toml",
        "data tokenize c.toml --tokenizer bytes --out c.toml",
        "train c.toml --set train.seeds=2 --out c.toml",
        "sweep c.toml --sweep optimizer.lr=1,2 --out c.toml",
    ] {
        let said = place.fails(args, 2);
        assert!(said.contains("`c.toml` is no folder"), "{args}: {said}");
    }
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let place = Place::with(&plain());
    for (args, code) in [
        ("train c.toml --set train.epochs=0", 2),
        ("train c.toml --device cuda", 3),
        ("eval nowhere.safetensors", 1),
        ("check nowhere.toml", 2),
        ("data fetch iris", 2),
    ] {
        let done = place.run(&format!("{args} --json"));
        assert_eq!(done.code, Some(code), "{done:?}");
        let error = &done.json()["errors"][0];
        assert!(!error["message"].as_str().unwrap().is_empty(), "{error}");
    }
    // Also where nothing of what was asked for was done.
    place.ok("train c.toml --quiet --out r");
    for (files, input, part) in
        [("none.png", "", "none.png"), ("none.png none-*.png", "", "none-*.png"), ("-", "\n", "standard input")]
    {
        place.write("names", input);
        let mut command = place.command(&format!("predict r {files} --json"));
        let done = super::support::Done::of(command.stdin(File::open(place.path("names")).unwrap()).output().unwrap());
        assert_eq!(done.code, Some(1), "{done:?}");
        let json = done.json();
        let errors = json["errors"].as_array().unwrap_or_else(|| panic!("{json}"));
        assert_eq!(errors.len(), files.split(' ').count(), "{json}");
        assert!(errors.iter().any(|error| error["message"].as_str().unwrap().contains(part)), "{part}: {json}");
    }
}

#[test]
fn the_schema_is_json_in_any_case() {
    let place = Place::new();
    assert_eq!(place.ok("schema --json").out, place.ok("schema").out);
}

/// Who reads no further has read enough.
#[test]
fn a_closed_standard_output_is_no_error() {
    let place = Place::with(&plain());
    place.write("t.csv", (0..40).map(|i| format!("{i},{}\n", i % 7)).fold("x,y\n".to_owned(), |all, row| all + &row));
    place.ok("train c.toml --quiet --out r");
    for args in [
        "check c.toml",
        "init t.csv --target y --out -",
        "eval r --predictions -",
        "report r --no-evaluation --no-timing --out -",
        "export r -",
        "export r - --softmax",
        "data show c.toml --out -",
        "bench c.toml --steps 1 --trace -",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(args).stdout(writer).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args}: {err}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_an_error() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out r");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for args in [
        "check c.toml",
        "eval r/last.safetensors --json",
        "data show c.toml",
        "data tokenize c.toml --tokenizer bytes --out tokens",
        "lr-find c.toml --tries 20",
        "sweep c.toml --sweep optimizer.lr=0.1,0.2",
        "schema",
        "devices",
        "completions bash",
        "runs .",
        "plot r",
        "report r --no-evaluation --no-timing --out -",
    ] {
        let output = place.command(args).stdout(full()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}: {err}");
        assert!(err.contains("cannot write to standard output") && !err.contains("\"errors\""), "{args}: {err}");
    }
    // Where it has a name it is called by that.
    for args in ["eval r --predictions -", "export r -", "data show c.toml --out -"] {
        let output = place.command(args).stdout(full()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}: {err}");
        assert!(err.contains("-") && err.contains("No space left"), "{args}: {err}");
    }
    // The errors themselves.
    let output = place.command("check c.toml --json --set train.epochs=0").stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("at least 1"));
    // Training goes on, and reports the error at the end.
    for more in ["", "--json"] {
        let output = place.command(&format!("train c.toml --out full --force {more}")).stdout(full()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains("warning: cannot write to standard output"), "{err}");
        assert_eq!(place.checkpoint("full/last.safetensors").meta.step, 20);
    }
    // Nowhere to say anything: no reason not to train.
    let output = place.command("train c.toml --out mute").stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let output = place.command("train c.toml --out mute").stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::with(&plain());
    for args in ["schema", "check c.toml", "completions bash", "train c.toml --json --out r", "runs .", "plot r"] {
        let mut command = place.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args}: {err}");
        assert!(err.is_empty(), "{args}: {err}");
    }
    assert_eq!(place.checkpoint("r/last.safetensors").meta.step, 20);
    // The same for standard error.
    let mut child =
        place.command("train c.toml --out s").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn files_and_folders_in_each_others_place() {
    let place = Place::with(&plain());
    place.write("file", "mine");
    for out in ["file", "file/run"] {
        let err = place.fails(&format!("train c.toml --out {out}"), 2);
        assert!(err.contains("`file` is no folder"), "{err}");
    }
    assert_eq!(place.read("file"), "mine");
    for name in ["config.toml", "metrics.jsonl"] {
        let run = format!("folder-{}", name.len());
        place.write(&format!("{run}/{name}/x"), "mine");
        let err = place.fails(&format!("train c.toml --force --out {run}"), 2);
        assert!(err.contains(name), "{err}");
        assert_eq!(place.read(&format!("{run}/{name}/x")), "mine");
    }
    // A checkpoint that cannot be written ends the run with an error; the last one stays.
    place.ok("train c.toml --quiet --out r");
    std::fs::remove_file(place.path("r/best.safetensors")).unwrap();
    place.write("r/best.safetensors/x", "mine");
    let err = place.fails("train c.toml --out r --resume r/last.safetensors --set train.epochs=9", 1);
    assert!(err.contains("best.safetensors"), "{err}");
    assert!(place.checkpoint("r/last.safetensors").meta.step >= 20);
    let err = place.fails("export r/last.safetensors nowhere/w.safetensors", 2);
    assert!(err.contains("nowhere/w.safetensors"), "{err}");
}

/// The error of a path at which nothing is names what there is in its stead.
#[test]
fn errors_of_missing_files_name_what_there_is() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet");
    std::fs::remove_file(place.path("runs/c/1/best.safetensors")).unwrap();
    for args in ["eval {}", "predict {} x.png", "export {} x.onnx", "export {} x.pth", "train --resume {}"] {
        let message = place.fails(&args.replace("{}", "runs/c/1/best.safetensors"), 1);
        let expected = "runs/c/1/best.safetensors: No such file or directory (os error 2)\nhelp: the run `runs/c/1` has `last.safetensors`\n";
        assert!(message.contains(expected), "{args}: {message}");
        let message = place.fails(&args.replace("{}", "runs/c/2/best.safetensors"), 1);
        assert!(message.contains("help: did you mean `runs/c/1`?"), "{args}: {message}");
    }
    assert!(place.fails("train --resume runs/c/3", 1).contains("help: did you mean `runs/c/1`?"));
    assert!(place.fails("train c", 2).contains("help: did you mean `c.toml`?"));
    assert!(place.fails("check ./d.toml", 2).contains("help: did you mean `./c.toml`?"));
    assert!(!place.fails("check nothing-like-it", 2).contains("did you mean"));
    assert!(place.fails("data fetch fashion-mnist", 2).contains("help: did you mean `fashion_mnist`?"));
}

//! A checkpoint that came from elsewhere: its configuration reads no file, contacts no server and makes nothing.

use super::support::{Place, plain};
use runner::checkpoint;
use std::net::TcpListener;

/// The checkpoint of a run, with another configuration in it, and a checksum that is right.
fn with_configuration(place: &Place, change: impl Fn(&str) -> String) {
    let checkpoint = place.checkpoint("r/last.safetensors");
    let mut meta = checkpoint.meta;
    meta.config = change(&meta.config);
    let views: Vec<_> = checkpoint.tensors.iter().map(|(name, t)| t.view(name)).collect();
    std::fs::create_dir_all(place.path("h")).unwrap();
    checkpoint::write(&place.path("h/last.safetensors"), &views, &meta).unwrap();
}

fn trained() -> Place {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out r");
    place
}

const COMMANDS: [&str; 4] = [
    "eval h/last.safetensors",
    "predict h/last.safetensors x.png",
    "train --resume h",
    "train c.toml --resume h/last.safetensors",
];

#[test]
fn it_names_no_other_file() {
    let place = trained();
    let secret = place.write("secret", "root:very-secret:1:2\n");
    let secret_model = place.write("model.toml", "[model]\nvery-secret = 1\n");
    for (what, change) in [
        ("extends", format!("extends = \"{}\"\n", secret.display())),
        ("use", format!("[model]\nuse = \"{}\"\n", secret_model.display())),
    ] {
        with_configuration(&place, |text| match what {
            "extends" => format!("{change}{text}"),
            _ => text.split("[model]").next().unwrap().to_string() + &change,
        });
        for command in COMMANDS {
            let err = place.fails(command, 2);
            assert!(err.contains(&format!("`{what}` in the configuration of a checkpoint")), "{command}: {err}");
            assert!(!err.contains("very-secret"), "{command}: {err}");
        }
    }
    // Weights that it names are not looked for either: those that count are in the checkpoint.
    with_configuration(&place, |text| text.replace("[model]\n", "[model]\nweights = \"/nowhere/at/all.pt\"\n"));
    let [theirs, ours] = ["h", "r"].map(|run| place.ok(&format!("eval {run}/last.safetensors --json")).out);
    assert_eq!(theirs, ours);
    place.ok("train --resume h --set train.epochs=3 --quiet");
}

/// Beside its configuration a checkpoint has the options that the run was started with.
#[test]
fn its_options_name_no_other_file_either() {
    let place = trained();
    let secret = place.write("secret.toml", "[model]\nvery-secret = 1\n");
    let checkpoint = place.checkpoint("r/last.safetensors");
    let views: Vec<_> = checkpoint.tensors.iter().map(|(name, t)| t.view(name)).collect();
    std::fs::create_dir(place.path("h")).unwrap();
    for set in [
        format!("model.use={}", secret.display()),
        format!("model={{use=\"{}\"}}", secret.display()),
        format!("extends=\"{}\"", secret.display()),
    ] {
        let mut meta = checkpoint.meta.clone();
        meta.extra["started"]["sets"] = serde_json::json!([set]);
        checkpoint::write(&place.path("h/last.safetensors"), &views, &meta).unwrap();
        let done = place.ok("train c.toml --resume h");
        assert!(done.err.contains("not for a checkpoint to say"), "{}", done.err);
        assert!(!done.err.contains("very-secret"), "{}", done.err);
    }
}

#[test]
fn it_is_not_too_long() {
    let place = trained();
    with_configuration(&place, |text| format!("{text}# {}\n", "x".repeat(16 << 20)));
    for command in COMMANDS {
        let err = place.fails(command, 2);
        assert!(err.contains("too many for a configuration") && err.len() < 1000, "{command}: {err}");
    }
    // A run whose checkpoints could not be read does not begin.
    let layer = |i: usize| {
        format!("{{ name = \"{}{i}\", type = \"conv2d\", out_channels = 1, kernel_size = 1 }}", "x".repeat(60))
    };
    let block = (0..9).map(layer).collect::<Vec<_>>().join(",\n");
    let text = plain()
        .replace("layers = [", "layers = [{ name = \"n{i}\", repeat = 9900, block = \"b\" }, ")
        .replace("[loss]", &format!("[blocks.b]\nlayers = [{block}]\n[loss]"));
    place.write("long.toml", text);
    let err = place.fails("train long.toml --out long", 2);
    assert!(err.contains("a checkpoint carries at most"), "{err}");
    assert!(!place.path("long").exists());
}

#[test]
fn it_contacts_no_server_and_makes_no_folder() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mirror = format!("http://{}", listener.local_addr().unwrap());
    place.write(
        "c.toml",
        "device = \"cpu\"\n[data]\nsource = \"mnist\"\nroot = \"made\"\ndownload = false\nfallback = \"digits\"\nlimit = 64\nbatch_size = 32\n\
         [model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    image::GrayImage::new(28, 28).save(place.path("x.png")).unwrap();
    place.ok("train c.toml --quiet --out r");
    with_configuration(&place, |text| {
        text.replace("download = false", &format!("download = true\nmirrors = [\"{mirror}\"]"))
    });
    let asked = || listener.accept().is_ok();
    place.fails("eval h/last.safetensors", 1);
    place.ok("eval h/last.safetensors --set data.fallback=digits");
    place.ok("predict h/last.safetensors x.png");
    // A run that was begun on the digits goes on with them.
    place.ok("train --resume h --quiet --set train.epochs=2");
    assert!(!asked(), "no server is contacted");
    assert!(!place.path("made").exists());
    // The command line may ask for it. The listener never answers, so that this is over when it is closed.
    let mut run = place.start("eval h/last.safetensors --allow-download");
    assert!(run.until(asked));
    drop(run);
}

#[test]
fn relative_paths_of_earlier_versions_are_named() {
    let place = trained();
    with_configuration(&place, |text| {
        text.replace(
            "source = \"digits\"",
            "source = \"mnist\"\nroot = \"data/mnist\"\ndownload = true\nfallback = \"digits\"",
        )
        .replace("limit_val", "# limit_val")
    });
    let err = place.fails("eval h/last.safetensors", 1);
    assert!(err.contains("is not absolute") && err.contains("looked in `data/mnist`"), "{err}");
}

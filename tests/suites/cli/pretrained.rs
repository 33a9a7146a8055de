//! Weights by name, from a server on this machine that answers as Hugging Face's does.

use super::support::{Done, Place, digits, repository};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A server of the files in a folder. What lies at `/OWNER/MODEL/resolve/main/FILE` is described there and fetched from `/blob/…`;
/// what `.json` ends is sent at once. `/moved/…` leads to where the same file is. A file is sent from where a request asks for; where there is a file `cut`
/// in the folder, the next transfer breaks off in the middle.
struct Hub {
    address: String,
    /// Requests, with the token that they came with, and the bytes that they ask for.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn of(folder: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (folder, log) = (folder.clone(), log.clone());
                std::thread::spawn(move || answer(stream.unwrap(), &folder, &log));
            }
        });
        Hub { address, seen }
    }

    fn command(&self, place: &Place, words: &str) -> Command {
        let mut command = place.command(words);
        command.env("HF_ENDPOINT", &self.address).env("RUNNER_TORCHVISION", format!("{}/torchvision/", self.address));
        command.env("XDG_CACHE_HOME", place.path("caches")).env_remove("HF_TOKEN");
        command
    }

    fn run(&self, place: &Place, words: &str) -> Done {
        Done::of(self.command(place, words).output().unwrap())
    }

    fn ok(&self, place: &Place, words: &str) -> Done {
        let done = self.run(place, words);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    fn fails(&self, place: &Place, words: &str) -> String {
        let done = self.run(place, words);
        assert!(done.code == Some(1) || done.code == Some(2), "{done:?}");
        done.err
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn answer(mut stream: TcpStream, folder: &std::path::Path, log: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let mut token = String::new();
    let mut from = None;
    for line in lines {
        let line = line.unwrap();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("authorization: ") {
            token = format!(" {value}");
        }
        if let Some(first) = line.to_lowercase().strip_prefix("range: bytes=") {
            from = first.strip_suffix('-').map(|first| first.parse::<usize>().unwrap());
        }
    }
    let range = from.map_or_else(String::new, |from| format!(" from {from}"));
    log.lock().unwrap().push(format!("{method} {path}{token}{range}"));
    let head = |status: &str, more: &str| format!("HTTP/1.1 {status}\r\nConnection: close\r\n{more}\r\n");
    if let Some(rest) = path.strip_prefix("/moved/") {
        let more = format!("Location: /me/{rest}\r\nContent-Length: 0\r\n");
        let _ = stream.write_all(head("307 Temporary Redirect", &more).as_bytes());
        return;
    }
    let (file, elsewhere) = match path.strip_prefix("/blob/") {
        Some(file) => (file.to_owned(), false),
        None => (path.replacen("/resolve/main/", "/", 1).trim_start_matches('/').to_owned(), !path.ends_with(".json")),
    };
    let Ok(bytes) = fs::read(folder.join(&file)) else {
        let _ = stream.write_all(head("404 Not Found", "Content-Length: 0\r\n").as_bytes());
        return;
    };
    if elsewhere && path.contains("/resolve/") {
        let digest = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        });
        let more = format!(
            "Location: /blob/{file}\r\nX-Linked-Size: {}\r\nX-Linked-Etag: \"{digest}\"\r\nContent-Length: 0\r\n",
            bytes.len()
        );
        let _ = stream.write_all(head("302 Found", &more).as_bytes());
        return;
    }
    let sent = &bytes[from.unwrap_or(0).min(bytes.len())..];
    let length = format!("Content-Length: {}\r\n", sent.len());
    let range = from.map(|from| format!("Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len()));
    let status = if from.is_some() { "206 Partial Content" } else { "200 OK" };
    let _ = stream.write_all(head(status, &(length + &range.unwrap_or_default())).as_bytes());
    if method == "GET" {
        let whole = fs::remove_file(folder.join("cut")).is_err();
        let _ = stream.write_all(if whole { sent } else { &sent[..sent.len() / 2] });
    }
}

/// A place with `c.toml`, of a small net, and the hub's model `me/net`, which is that net after some training.
fn trained() -> (Place, Hub) {
    let model = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n";
    let rest = "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
    let place = Place::with(&digits("", &format!("{model}{rest}")));
    place.ok("train c.toml --quiet --out first --device cpu");
    fs::create_dir_all(place.path("hub/me/net")).unwrap();
    place.ok("export first hub/me/net/model.safetensors");
    let hub = Hub::of(place.path("hub"));
    (place, hub)
}

#[test]
fn weights_of_a_name_are_fetched_once() {
    let (place, hub) = trained();
    let set = "--device cpu --set model.weights=hf:me/net";
    let said = hub.ok(&place, &format!("check c.toml {set}")).err;
    assert!(said.contains("`hf:me/net` is not here yet"), "{said}");
    assert_eq!(hub.seen(), [""; 0], "nothing is fetched to look at a file");

    let done = hub.ok(&place, &format!("train c.toml --out r {set}"));
    assert!(done.err.contains("fetching `hf:me/net`: model.safetensors"), "{done:?}");
    assert!(done.err.contains("2 of the model's 2 tensors are from"), "{done:?}");
    let file = "/me/net/resolve/main/model.safetensors";
    let seen = hub.seen();
    assert_eq!(seen, [format!("HEAD {file}"), format!("GET {file}"), "GET /blob/me/net/model.safetensors".into()]);
    let kept = place.path("caches/runner/weights/hf/me/net/main/model.safetensors");
    assert_eq!(fs::read(&kept).unwrap(), fs::read(place.path("hub/me/net/model.safetensors")).unwrap());

    // They are there: `check` holds them against the model, and no server is asked.
    hub.ok(&place, &format!("train c.toml --out again {set}"));
    let said = hub.ok(&place, &format!("check c.toml {set}")).err;
    assert!(said.contains("2 of the model's 2 tensors"), "{said}");
    let done = hub.ok(&place, "models --fetch hf:me/net --json").json();
    assert_eq!(done["path"], kept.to_str().unwrap());
    assert_eq!(hub.seen(), [""; 0]);
    // The run goes on without its weights' file.
    fs::remove_file(&kept).unwrap();
    hub.ok(&place, "train --resume r --set train.epochs=2");
    hub.ok(&place, "eval r");
    assert_eq!(hub.seen(), [""; 0]);
}

#[test]
fn a_token_is_for_the_hub_alone_and_a_moved_model_is_found() {
    let (place, hub) = trained();
    let mut command = hub.command(&place, "models --fetch hf:moved/net");
    let done = Done::of(command.env("HF_TOKEN", "secret").output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    let seen = hub.seen();
    assert_eq!(seen[0], "HEAD /moved/net/resolve/main/model.safetensors bearer secret");
    assert!(seen.last().unwrap().starts_with("GET /blob/me/net/model.safetensors"), "{seen:?}");
    assert!(!done.err.contains("secret") && !done.out.contains("secret"), "{done:?}");
}

#[test]
fn weights_that_cannot_be_had_say_where_to_put_the_file() {
    let (place, hub) = trained();
    let said = hub.fails(&place, "train c.toml --out r --device cpu --set model.weights=hf:me/other");
    assert!(said.contains("there are no weights `hf:me/other`"), "{said}");
    // What torchvision names is not of this size: nothing of it is fetched.
    fs::create_dir(place.path("hub/torchvision")).unwrap();
    place.write("hub/torchvision/resnet18-f37072fd.pth", "not what it says");
    hub.seen();
    let said = hub.fails(&place, "train c.toml --out r --device cpu --set model.weights=torchvision/resnet18");
    let size = "is of 16 B, and the file that is known is of 44.7 MiB";
    assert!(said.contains(size) && said.contains("put the file from"), "{said}");
    assert!(said.contains("caches/runner/weights/torchvision/resnet18-f37072fd.pth"), "{said}");
    assert_eq!(hub.seen(), ["HEAD /torchvision/resnet18-f37072fd.pth"]);
    assert!(!place.path("caches/runner/weights/torchvision/resnet18-f37072fd.pth").exists());
    // This one is, and does not have the checksum.
    place.write("hub/torchvision/squeezenet1_1-b8a52dc0.pth", vec![7; 4_958_720]);
    let said = hub.fails(&place, "train c.toml --out r --device cpu --set model.weights=torchvision/squeezenet1_1");
    assert!(said.contains("wrong checksum") && said.contains("put the file from"), "{said}");
    assert!(!place.path("caches/runner/weights/torchvision/squeezenet1_1-b8a52dc0.pth").exists());
    // Put there by hand.
    place.write("caches/runner/weights/torchvision/resnet18-f37072fd.pth", "by hand");
    let said = hub.fails(&place, "train c.toml --out r --device cpu --set model.weights=torchvision/resnet18");
    assert!(said.contains("cannot take the weights"), "{said}");
    // Nothing listens there.
    let closed = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let away = Hub { address: closed.clone(), seen: Arc::default() };
    let said = away.fails(&place, "train c.toml --out r --device cpu --set model.weights=hf:me/net");
    assert!(said.contains(&closed) && said.contains("where there is no network"), "{said}");
    for name in ["torchvision/resnet19", "hf:me", "torchvision/resnet50@V9"] {
        let said = hub.fails(&place, &format!("check c.toml --device cpu --set model.weights={name}"));
        assert!(said.contains(&format!("`{name}`")) || said.contains("`V9`"), "{said}");
        hub.fails(&place, &format!("models --fetch {name}"));
    }
    assert!(!place.path("r").exists());
}

/// A transfer that breaks off goes on where it ended, in the same call or in a later one. What comes of it is held against the SHA-256 that the hub names.
#[test]
fn a_transfer_of_weights_is_resumed_and_its_checksum_checked() {
    let (place, hub) = trained();
    let whole = fs::read(place.path("hub/me/net/model.safetensors")).unwrap();
    let kept = "caches/runner/weights/hf/me/net/main/model.safetensors";
    let part = format!("{kept}.part");
    let asked = |from: usize| format!("GET /blob/me/net/model.safetensors from {from}");

    place.write("hub/cut", "");
    hub.ok(&place, "models --fetch hf:me/net");
    assert_eq!(fs::read(place.path(kept)).unwrap(), whole);
    assert!(hub.seen().contains(&asked(whole.len() / 2)));

    fs::remove_file(place.path(kept)).unwrap();
    place.write(&part, &whole[..100]);
    hub.ok(&place, "models --fetch hf:me/net");
    assert_eq!(fs::read(place.path(kept)).unwrap(), whole);
    assert!(hub.seen().contains(&asked(100)));

    // The beginning of another file: the whole is not the hub's, is thrown away, and is fetched from the beginning.
    fs::remove_file(place.path(kept)).unwrap();
    place.write(&part, [7; 100]);
    hub.ok(&place, "models --fetch hf:me/net");
    let mut seen = hub.seen();
    seen.retain(|asked| asked.starts_with("GET /blob/"));
    assert_eq!(seen[seen.len() - 2..], [asked(100), "GET /blob/me/net/model.safetensors".into()]);
    assert_eq!(fs::read(place.path(kept)).unwrap(), whole);
    assert!(!place.path(&part).exists());
}

/// What lies in the place of a file, and is none, is named; advice is of what there is: weights have no `mirrors`.
#[test]
fn a_folder_is_no_file_of_weights() {
    let (place, hub) = trained();
    let kept = "caches/runner/weights/hf/me/net/main/model.safetensors";
    fs::create_dir_all(place.path(kept)).unwrap();
    let set = "--device cpu --set model.weights=hf:me/net";
    for args in [format!("train c.toml --out r {set}"), "models --fetch hf:me/net".into()] {
        let said = hub.fails(&place, &args);
        assert!(said.contains("a folder is at `") && said.contains(kept) && said.contains("remove it"), "{said}");
    }
    assert!(hub.ok(&place, &format!("check c.toml {set}")).err.contains("is not here yet"));
    fs::remove_dir(place.path(kept)).unwrap();
    hub.ok(&place, "models --fetch hf:me/net");
    fs::create_dir(place.path("hub/torchvision")).unwrap();
    place.write("hub/torchvision/resnet18-f37072fd.pth", "not what it says");
    let said = hub.fails(&place, "models --fetch torchvision/resnet18");
    assert!(said.contains("put the file from") && !said.contains("mirror"), "{said}");
}

/// A program that waits for another one says so, and names its process.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_for_another_program_is_reported() {
    let (place, hub) = trained();
    let part = "caches/runner/weights/hf/me/net/main/model.safetensors.part";
    place.write(part, "");
    let lock = fs::File::open(place.path(part)).unwrap();
    lock.lock().unwrap();
    let fetching = super::support::Running::new(&mut hub.command(&place, "models --fetch hf:me/net"));
    std::thread::sleep(std::time::Duration::from_secs(3));
    drop(lock);
    let (status, done) = fetching.wait();
    assert!(status.success(), "{done:?}");
    let who = format!("is being fetched by process {}, which holds `", std::process::id());
    assert_eq!(done.err.matches(&who).count(), 1, "{done:?}");
    assert!(done.err.contains("remove the file `"), "{done:?}");
}

#[test]
fn a_model_of_the_hub_is_imported() {
    let place = Place::new();
    fs::create_dir_all(place.path("hub/me/gpt2")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let from = repository("tests/golden/language_models/gpt2").join(file);
        fs::copy(from, place.path(&format!("hub/me/gpt2/{file}"))).unwrap();
    }
    let hub = Hub::of(place.path("hub"));
    hub.ok(&place, "import hf:me/gpt2");
    assert!(place.read("gpt2.toml").contains("hf/me/gpt2/main/model.safetensors"));
    let sets = "--max-tokens 3 --temperature 0 --device cpu --prompt The";
    hub.ok(&place, &format!("generate gpt2.toml {sets}"));
    let said = hub.fails(&place, "import hf:me/net");
    assert!(said.contains("config.json"), "{said}");
    let said = hub.fails(&place, "import torchvision/resnet18");
    assert!(said.contains("no model of Hugging Face's hub"), "{said}");
}

#[test]
fn weights_that_have_names_are_listed() {
    let place = Place::new();
    let hub = Hub::of(place.path("hub"));
    let out = hub.ok(&place, "models --weights").out;
    assert!(out.contains("torchvision/resnet18@IMAGENET1K_V1") && out.contains("hf:OWNER/MODEL"), "{out}");
    let row =
        |name: &str| out.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row("torchvision/resnet18@")[1..], ["44.7", "MiB", "BSD-3-Clause", "ImageNet-1K"]);
    assert_eq!(row("torchvision/vit_b_16@IMAGENET1K_SWAG")[1..4], ["330", "MiB", "CC-BY-NC-4.0"]);
    assert_eq!(row("hf:openai-community/gpt2")[1..4], ["523", "MiB", "MIT"]);
    // Its size is not known.
    assert_eq!(row("hf:HuggingFaceTB/SmolLM2-135M ")[1], "Apache-2.0");
    place.write("caches/runner/weights/torchvision/resnet18-f37072fd.pth", "by hand");
    let list = hub.ok(&place, "models --weights --json").json();
    let list = list["weights"].as_array().unwrap();
    let there: Vec<&str> = list.iter().filter(|w| !w["path"].is_null()).map(|w| w["name"].as_str().unwrap()).collect();
    assert_eq!(there, ["torchvision/resnet18@IMAGENET1K_V1"]);
    let known = &list[list.iter().position(|w| w["name"] == "hf:timm/resnet18.a1_in1k").unwrap()];
    let digest = "80c49dee3da4822c009c5a7fe591e9223c5a2cfcf95a4067ca4dfb5a7b89c612";
    assert_eq!((&known["sha256"], &known["bytes_about"]), (&digest.into(), &46_800_000.into()));
    assert_eq!((&known["licence"], &known["origin"]), (&"Apache-2.0".into(), &"Hugging Face".into()));
    let url = format!("{}/timm/resnet18.a1_in1k/resolve/main/model.safetensors", hub.address);
    assert_eq!(known["url"], url);
}

/// A file of the hub that is another one than that which is known is refused before it is fetched, also where a mirror says so itself.
#[test]
fn another_file_than_the_known_one_is_not_fetched() {
    let place = Place::new();
    for model in ["timm/resnet18.a1_in1k", "me/resnet18"] {
        fs::create_dir_all(place.path(&format!("hub/{model}"))).unwrap();
        // Of the size that it should have.
        place.write(&format!("hub/{model}/model.safetensors"), vec![7; 46_800_100]);
    }
    let hub = Hub::of(place.path("hub"));
    let said = hub.fails(&place, "models --fetch hf:timm/resnet18.a1_in1k");
    assert!(said.contains("and the file that is known 80c49dee3da4") && said.contains("`@REVISION`"), "{said}");
    assert_eq!(hub.seen(), ["HEAD /timm/resnet18.a1_in1k/resolve/main/model.safetensors"]);
    hub.ok(&place, "models --fetch hf:me/resnet18");
}

//! Data that is not there: downloads, and the bundled digits in its place.

use super::support::{Place, real_data};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Serves a folder over HTTP for as long as the process lives; what was asked for.
fn serve(folder: PathBuf) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            let range = lines
                .map_while(Result::ok)
                .take_while(|l| !l.is_empty())
                .find_map(|l| l.to_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
            let name = first.split(' ').nth(1).unwrap().trim_start_matches('/').to_string();
            let answer = match (std::fs::read(folder.join(&name)), range) {
                (Err(_), _) => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
                (Ok(bytes), from) => {
                    let (n, from) = (bytes.len(), from.unwrap_or(0));
                    let status = match from {
                        0 => "200 OK".to_string(),
                        _ => format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{n}", n - 1),
                    };
                    let head =
                        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", n - from);
                    [head.as_bytes(), &bytes[from..]].concat()
                }
            };
            log.lock().unwrap().push(format!("{name} from {}", range.unwrap_or(0)));
            // A client that has heard enough may have gone.
            let _ = stream.write_all(&answer);
        }
    });
    (address, asked)
}

/// An address at which no server answers.
fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn config(root: &Path, more: &str) -> String {
    format!(
        "seed = 1\n[data]\nsource = \"mnist\"\nroot = \"{}\"\nbatch_size = 64\nlimit = 640\nlimit_val = 128\n{more}\n\
         [model]\nlayers = [\"flatten\", {{ type = \"linear\", out_features = 10 }}]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
        root.display()
    )
}

const FILES: [&str; 4] = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
];

#[test]
fn digits_in_place_of_missing_data_are_noted_everywhere() {
    let place = Place::new();
    let more = format!("download = true\nmirrors = [\"http://{}\"]\nfallback = \"digits\"", unused_address());
    place.write("c.toml", config(Path::new("nowhere"), &more));
    let done = place.ok("train c.toml --out r --quiet");
    assert!(done.err.contains("warning: ") && done.err.contains("bundled digits"), "{}", done.err);
    assert!(done.err.contains("asked for. Reason: mnist:"), "{}", done.err);
    assert!(done.err.contains("resized from 8×8 to 28×28") && done.err.contains("download failed"), "{}", done.err);
    assert!(place.read("r/config.toml").starts_with("# the data asked for is not there"));
    // The reason has many lines, and the file is a configuration all the same.
    place.ok("check r/config.toml");
    let first = &place.metrics("r")[0];
    assert_eq!(first["kind"], "note");
    assert!(first["note"].as_str().unwrap().contains("bundled digits"), "{first}");
    let meta = place.checkpoint("r/last.safetensors").meta;
    assert!(meta.extra["data_note"].as_str().unwrap().contains("bundled digits"), "{:?}", meta.extra);
    // With the same data it goes on, whatever the reason for its absence is now.
    let done = place.ok("train c.toml --out r --resume --set train.epochs=2 --set data.download=false");
    assert!(done.err.contains("bundled digits"), "{}", done.err);
    assert_eq!(place.metrics("r").iter().filter(|l| l["kind"] == "note").count(), 1);
    // A figure of other data than the checkpoint names is there only for who asks for it, and says so itself.
    let err = place.fails("eval r/last.safetensors", 1);
    assert!(err.contains("trained on the bundled digits") && err.contains("--set data.fallback=digits"), "{err}");
    let asked = "eval r/last.safetensors --set data.fallback=digits";
    let eval = place.ok(&format!("{asked} --json"));
    assert!(eval.err.contains("bundled digits"), "{}", eval.err);
    let json = eval.json();
    assert!(json["note"].as_str().unwrap().contains("bundled digits") && json["metrics"]["accuracy"].is_f64());
    assert_eq!(json["data"], "digits");
    let text = place.ok(asked);
    assert!(text.out.starts_with("val, 128 samples of the bundled digits, not of mnist: loss "), "{}", text.out);
}

#[test]
fn without_a_fallback_missing_data_is_an_error() {
    let place = Place::new();
    place.write("c.toml", config(Path::new("nowhere"), "download = false"));
    let err = place.fails("train c.toml --out r", 1);
    assert!(err.contains("nowhere") && err.contains("runner data fetch mnist"), "{err}");
    assert!(!place.path("r").exists(), "no folder for a run that did not start");
    // Where there is no network all files are named, and nothing empty is left in their folder.
    place.write("n.toml", config(Path::new("nowhere"), &format!("mirrors = [\"http://{}\"]", unused_address())));
    let err = place.fails("train n.toml --out r", 1);
    for part in [FILES[0], FILES[3], "--set data.root=FOLDER", "The download failed"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(std::fs::read_dir(place.path("nowhere")).unwrap().next().is_none());
    // `check` needs no data.
    place.ok("check c.toml");
}

#[test]
fn a_mirror_with_other_files_is_refused() {
    let place = Place::new();
    for name in FILES {
        place.write(&format!("wrong/{name}"), "something else");
    }
    let (address, _) = serve(place.path("wrong"));
    let err = place.fails(&format!("data fetch mnist --root m --mirror http://{address}"), 1);
    assert!(err.contains(&address.to_string()), "{err}");
    assert!(!place.path("m/train-labels-idx1-ubyte.gz").exists());
    assert_eq!(err.matches(&address.to_string()).count(), 2, "once when it is asked, once with the reason: {err}");
    let (one, two) = (unused_address(), unused_address());
    let err = place.fails(&format!("data fetch mnist --root m --mirror http://{one} --mirror http://{two}"), 1);
    for mirror in [one, two] {
        assert_eq!(err.matches(&format!("{mirror}/")).count(), 1, "each mirror is named once: {err}");
    }
    let err = place.fails(&format!("data fetch mnist --root m --mirror http://{}", unused_address()), 1);
    assert!(err.contains("mnist") || err.contains("train-images"), "{err}");
}

#[test]
fn mnist_is_fetched_from_a_mirror() {
    let Some(data) = real_data() else { return };
    let place = Place::new();
    let (address, asked) = serve(data.join("mnist"));
    // A break in the middle of the largest file.
    let whole = std::fs::read(data.join("mnist/train-images-idx3-ubyte.gz")).unwrap();
    let mirror = format!("--mirror http://{} --mirror http://{address}", unused_address());
    place.write("m/train-images-idx3-ubyte.gz.part", &whole[..5_000_000]);
    let json = place.ok(&format!("data fetch mnist --root m {mirror} --json")).json();
    assert_eq!(json["files"].as_array().unwrap().len(), 4);
    for name in FILES {
        let (ours, theirs) = (std::fs::read(place.path("m").join(name)), std::fs::read(data.join("mnist").join(name)));
        assert!(ours.unwrap() == theirs.unwrap(), "{name}");
    }
    assert!(asked.lock().unwrap().contains(&"train-images-idx3-ubyte.gz from 5000000".to_string()), "{asked:?}");
    // What is there is not asked for again.
    asked.lock().unwrap().clear();
    place.ok(&format!("data fetch mnist --root m {mirror}"));
    assert!(asked.lock().unwrap().is_empty());
    // A training run fetches by itself.
    let more = format!("download = true\nmirrors = [\"http://{address}\"]");
    place.write("c.toml", config(Path::new("own"), &more));
    let done = place.ok("train c.toml --out r --json");
    assert_eq!(done.out, place.read("r/metrics.jsonl"), "progress goes to standard error");
    assert!(done.err.contains("downloading http://"), "{}", done.err);
}

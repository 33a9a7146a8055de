//! Bodies of requests to `runner serve`, for models of images, of rows, of texts with a class, and of text; of rows with several targets, and for models of
//! two folds that answer together.

use runner::api::train::{Request, start};
use runner::serve::access::Log;
use runner::serve::{Alone, How, Limits, Options, Signals};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// Where bodies go.
const PATHS: [&str; 12] = [
    "/predict/image",
    "/predict/rows",
    "/predict/texts",
    "/v2/models/image/infer",
    "/v2/models/rows/infer",
    "/v2/models/texts/infer",
    "/v1/completions",
    "/v1/chat/completions",
    "/predict/heads",
    "/v2/models/heads/infer",
    "/predict/folds",
    "/v2/models/folds/infer",
];

/// A request: the first byte is the number of its path, the rest of the first line its type or, to `infer`, the length of the JSON in front of
/// tensors; then its body. Whatever it is, the answer says so, and is no fault of the program.
pub fn body(data: &[u8]) -> bool {
    let (head, body) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &[][..]),
    };
    let Some((path, kind)) = head.split_first() else { return false };
    let path = PATHS[usize::from(*path) % PATHS.len()];
    let name = if path.ends_with("/infer") { "inference-header-content-length" } else { "content-type" };
    let headers = [(name, kind)];
    let headers = if kind.is_empty() { &headers[..0] } else { &headers[..] };
    let Ok((status, answer)) = server().post(path, headers, body) else { return false };
    let text = String::from_utf8_lossy(&answer);
    assert!((200..500).contains(&status), "{path}: {status} {text}");
    if status != 200 {
        let value: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_else(|e| panic!("{e}: {text}"));
        let error = &value["error"];
        assert!(error.is_string() || error["message"].is_string(), "{text}");
    }
    status == 200
}

/// A server of small models, which are trained when the first body comes.
fn server() -> &'static Alone {
    static SERVER: OnceLock<Alone> = OnceLock::new();
    SERVER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let models = trained(folder.path());
        let how = How {
            sets: Vec::new(),
            threads: Some(1),
            executables: 1,
            texts: 1,
            batch: Some(2),
            delay: Duration::ZERO,
            queue: 4,
            memory: 32 << 20,
        };
        let options = Options {
            models,
            host: String::new(),
            port: 0,
            how,
            limits: Limits { body: 1 << 20, pixels: 1 << 16, rows: 16, tokens: 3 },
            patience: Duration::from_secs(20),
            answer_time: Duration::from_secs(60),
            connections: 1,
            drain: Duration::ZERO,
            keys: None,
            names: Vec::new(),
            identity: None,
            log: Log::Off,
            top: 2,
            invert: false,
            signals: Signals { interrupt: false, terminate: false, hang_up: false },
        };
        Alone::open(options).expect("models")
    })
}

/// A step of training for each model.
fn trained(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut rows = "a,b,when,y\n".to_owned();
    let mut texts = "text,y\n".to_owned();
    for i in 0..8 {
        let _ = writeln!(rows, "{i},{},2024-01-0{},{}", ["x", "z"][i % 2], i + 1, i * 3);
        let _ = writeln!(texts, "some {} words,{}", ["good", "bad"][i % 2], ["p", "n"][i % 2]);
    }
    let file = |name: &str, content: &str| std::fs::write(folder.join(name), content).expect("a file");
    file("rows.csv", &rows);
    file("texts.csv", &texts);
    file("long.txt", &"one two three four\n".repeat(8));
    let source = |name: &str, more: &str| format!("path = {:?}\n{more}", folder.join(name));
    let linear = "{ type = \"linear\", out_features = ";
    let embedding = "{ type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 4 }";
    let rows = |more: &str| source("rows.csv", &format!("source = \"csv\"\ntarget = \"y\"{more}"));
    let head = "[[heads]]\nname = \"kind\"\ntarget = \"b\"\nloss = \"cross_entropy\"\n";
    let configs = [
        ("image", "source = \"digits\"".to_owned(), format!("\"flatten\", {linear}10 }}"), "cross_entropy"),
        ("rows", rows(""), format!("{linear}1 }}"), "mse"),
        ("folds/fold-1", rows("\nfolds = 2\nfold = 1"), format!("{linear}1 }}"), "mse"),
        ("folds/fold-2", rows("\nfolds = 2\nfold = 2"), format!("{linear}1 }}"), "mse"),
        (
            "heads",
            rows(""),
            "{ name = \"body\", type = \"linear\", out_features = 3 }, { name = \"kind\", type = \"linear\", out_features = 2, from = \"body\" }, \
             { type = \"linear\", out_features = 1, from = \"body\" }"
                .to_owned(),
            "mse",
        ),
        (
            "texts",
            source("texts.csv", "source = \"text_classes\"\ntext = \"text\"\ntarget = \"y\"\nmax_length = 8"),
            format!("{embedding}, {{ type = \"sequence_pool\", mode = \"mean\" }}, {linear}\"$classes\" }}"),
            "cross_entropy",
        ),
        (
            "words",
            source("long.txt", "source = \"text\"\ncontext = 4"),
            format!("{embedding}, {linear}\"$vocabulary\" }}"),
            "cross_entropy",
        ),
    ];
    let train = |(name, source, layers, loss): (&str, String, String, &str)| {
        let heads = if name == "heads" { head } else { "" };
        let config = format!(
            "device = \"cpu\"\n[data]\nbatch_size = 4\n{source}\n[model]\nlayers = [{layers}]\n[loss]\ntype = \"{loss}\"\n{heads}\
             [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nsteps = 1\n"
        );
        let path = folder.join(format!("{}.toml", name.replace('/', "-")));
        std::fs::write(&path, config).expect("a file");
        let out = folder.join(name);
        let request = Request { out: Some(out.clone()), threads: Some(1), ..Request::of_config(path) };
        start(&request).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        (name.to_owned(), out)
    };
    let runs = configs.map(train).into_iter();
    let mut models: Vec<_> = runs.filter(|(name, _)| !name.contains('/')).collect();
    file("folds/folds.json", "{\"folds\":2}");
    models.push(("folds".into(), folder.join("folds")));
    models
}

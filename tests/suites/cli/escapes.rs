//! Names, values and files from elsewhere hold what would steer a terminal or hide from the eye, and addresses hold
//! passwords: nothing of that leaves the program.

use super::support::{Place, digits, plain};
use runner::terminal::is_hidden;
use std::io::Write;
use std::net::TcpListener;

/// Sets a title and a colour, in seven bits and in eight, turns the direction of text, and hides.
const BAD: &str = "\u{1b}]0;pwned\u{7}\u{9b}31m\u{85}\u{202e}\u{2066}\u{200b}\u{feff}\u{7f}\u{e0041}!";

/// [`BAD`] as people see it.
const SHOWN: &str = "\\x1b]0;pwned\\x07\\u{9b}31m\\u{85}\\u{202e}\\u{2066}\\u{200b}\\u{feff}\\x7f\\u{e0041}!";

/// The part of it that a TOML text can hold as it is, and how that is shown.
const BAD_TOML: &str = "\u{9b}31m\u{85}\u{202e}\u{2066}\u{200b}\u{feff}!";
const SHOWN_TOML: &str = "\\u{9b}31m\\u{85}\\u{202e}\\u{2066}\\u{200b}\\u{feff}!";

/// Runs the program; all that it says, which is harmless, in colour as well.
fn says(place: &Place, args: &[&str], env: &[(&str, &str)], code: i32) -> String {
    let run = |more: &[(&str, &str)]| {
        let mut command = place.command("");
        command.args(args).env_remove("NO_COLOR").envs(env.iter().copied()).envs(more.iter().copied());
        let output = command.output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said:?}");
        said
    };
    let said = run(&[]);
    assert!(!said.contains(is_hidden), "{args:?}: {said:?}");
    let colored = run(&[("CLICOLOR_FORCE", "1")]);
    let mut rest = colored.as_str();
    while let Some(at) = rest.find(is_hidden) {
        let sequence = rest[at..].strip_prefix("\u{1b}[").unwrap_or_else(|| panic!("{args:?}: {colored:?}"));
        let end = sequence.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap();
        assert!(sequence[end..].starts_with('m'), "{args:?}: {colored:?}");
        rest = &sequence[end..];
    }
    said
}

/// The same where what was planted must be seen, written out.
fn shows(place: &Place, args: &[&str], code: i32, shown: &str) -> String {
    let said = says(place, args, &[], code);
    assert!(said.contains(shown), "{args:?}: {said}");
    said
}

#[test]
fn arguments() {
    let place = Place::with(&plain());
    let with = |before: &str, after: &str| format!("{before}{BAD}{after}");
    for (args, code) in [
        (vec!["check", "c.toml", "--device", BAD], 2),
        (vec!["check", "c.toml", "--set", &with("train.", "=3")], 2),
        (vec!["check", "c.toml", "--set", &with("loss.type=", "")], 2),
        (vec!["check", "c.toml", "--set", &with("train.epochs=[", "")], 2),
        (vec!["check", "c.toml", "--set", BAD], 2),
        (vec!["check", &with("", ".toml")], 2),
        (vec!["check", "c.toml", "--graph", BAD], 2),
        (vec!["check", "c.toml", "--without", BAD], 2),
        (vec!["check", "c.toml", &with("--", "")], 2),
        (vec!["check", "c.toml", BAD], 2),
        (vec![BAD], 2),
        (vec!["train", "c.toml", "--threads", BAD], 2),
        (vec!["completions", BAD], 2),
        (vec!["data", "fetch", BAD], 2),
        (vec!["eval", &with("", ".safetensors")], 1),
        (vec!["export", &with("", ".pth"), "w.safetensors"], 1),
        (vec!["export", "w.safetensors", &with("", ".txt")], 2),
        (vec!["export", &with("", ".safetensors"), "w.onnx"], 1),
        (vec!["data", "show", &with("", ".toml")], 2),
        (vec!["data", "tokenize", &with("", ".txt"), "--out", "t"], 1),
        (vec!["data", "tokenize", "c.toml", "--out", "t", "--end-of-text", BAD, "--tokenizer", "bytes"], 1),
        (vec!["data", "show", "c.toml", "--out", &with("", ".jpg")], 2),
        (vec!["bench", &with("", ".toml")], 2),
        (vec!["lr-find", &with("", ".toml")], 2),
        (vec!["sweep", &with("", ".toml")], 2),
        (vec!["sweep", "c.toml", "--sweep", &with("optimizer.lr=", "")], 2),
        (vec!["sweep", "c.toml", "--sweep", &with("", "=1,2")], 2),
        (vec!["runs", BAD], 2),
        (vec!["runs", ".", "--filter", &with("", "<")], 2),
        (vec!["plot", BAD], 2),
        (vec!["compare", BAD, BAD], 2),
    ] {
        let said = shows(&place, &args, code, SHOWN);
        assert!(!said.contains("panicked"), "{said}");
        // The same in JSON is the text as it is, escaped.
        if !args.contains(&"completions") {
            let json = says(&place, &[&args[..], &["--json"]].concat(), &[], code);
            let value: serde_json::Value =
                serde_json::from_str(&json).unwrap_or_else(|e| panic!("{args:?}: {e} in {json}"));
            assert!(!value["errors"][0]["message"].as_str().unwrap().is_empty());
        }
    }
    let json = says(&place, &["check", "c.toml", "--device", BAD, "--json"], &[], 2);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        value.to_string().contains("pwned") && json.contains("\\u202e") && json.contains("\\udb40\\udc41"),
        "{json}"
    );
}

#[test]
fn environment() {
    let place = Place::with(&plain());
    let cases: [(&str, &[&str], i32); 3] = [
        ("RUNNER_SIMD", &["train", "c.toml"], 2),
        ("RUNNER_SIMD", &["bench", "c.toml", "--json"], 2),
        ("RUNNER_CUDA_LIBRARIES", &["devices"], 0),
    ];
    let mut seen = 0;
    for (name, args, code) in cases {
        let mut command = place.command("");
        let output = command.args(args).env(name, BAD).output().unwrap();
        let code = output.status.code().unwrap_or(code);
        seen += usize::from(says(&place, args, &[(name, BAD)], code).contains("pwned"));
    }
    assert!(seen >= 2, "the variables are shown");
    for name in ["RUNNER_CUDA_LAUNCHER", "RUNNER_CUDA_LIBRARIES"] {
        let code = place.command("train c.toml --device cuda --out cuda").env(name, BAD).status().unwrap().code();
        says(&place, &["train", "c.toml", "--device", "cuda", "--out", "cuda"], &[(name, BAD)], code.unwrap());
    }
}

#[test]
fn lines_of_configurations() {
    let place = Place::new();
    let escaped =
        BAD.chars().map(|c| if is_hidden(c) { format!("\\U{:08x}", c as u32) } else { c.into() }).collect::<String>();
    for (text, shown) in [
        // A line that is quoted, with the carets under the right word.
        (plain().replace("epochs = 2", &format!("epochs = 0  # {BAD_TOML}")), "31m"),
        (plain().replace("epochs = 2", &format!("\"{BAD_TOML}\" = 1\nepochs = 2")), "31m"),
        (plain().replace("\"adam\"", &format!("\"{BAD_TOML}\"")), "31m"),
        // What only the value has; a value that is quoted may have been written out before.
        (plain().replace("\"adam\"", &format!("\"{escaped}\"")), "pwned"),
        (plain().replace("epochs = 2", &format!("\"{escaped}\" = 1\nepochs = 2")), "pwned"),
        (plain().replace("device = \"cpu\"", &format!("device = \"{escaped}\"")), "pwned"),
        (plain().replace("\"relu\"", &format!("\"{escaped}\"")), "pwned"),
        (plain().replace("\"relu\"", &format!("{{ type = \"linear\", out_features = \"{escaped}\" }}")), "pwned"),
        (format!("extends = \"{escaped}\"\n{}", plain()), "pwned"),
        (
            plain().replace("[model]", &format!("[model]\nweights = \"{escaped}.pth\"\nfreeze = [\"{escaped}\"]")),
            "pwned",
        ),
        // What is no TOML at all.
        (format!("{}\n{BAD}", plain()), "\\x1b"),
    ] {
        let path = place.write("c.toml", text);
        let path = path.to_str().unwrap();
        shows(&place, &["check", path], 2, shown);
        let json = says(&place, &["check", path, "--json"], &[], 2);
        assert!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["errors"].is_array());
    }
    // Carets stand under what is meant, though the line became longer before it.
    place.write("c.toml", plain().replace("epochs = 2", &format!("\"{BAD_TOML}\" = 1\nepochs = 2")));
    let said = says(&place, &["check", "c.toml"], &[], 2);
    let lines: Vec<&str> = said.lines().collect();
    let at = lines.iter().position(|line| line.contains(&format!("\"{SHOWN_TOML}\" = 1"))).unwrap();
    let key = format!("\"{SHOWN_TOML}\"");
    let column = lines[at].find(&key).unwrap();
    assert_eq!(lines[at + 1].find('^'), Some(column), "{said}");
    assert_eq!(lines[at + 1].matches('^').count(), key.len(), "{said}");
}

#[test]
fn configurations_that_are_right() {
    let place = Place::new();
    let name = format!("{BAD_TOML}.toml");
    let layer = format!("{{ name = \"a{}\", type = \"relu\" }}", "\u{202e}\u{9b}");
    place.write(&name, plain().replace("\"relu\"", &layer).replace("seed = 3", &format!("seed = 3 # {BAD_TOML}")));
    let code = place.command("check").arg(&name).status().unwrap().code().unwrap();
    let config = if code == 0 { plain().replace("\"relu\"", &layer) } else { plain() };
    place.write(&name, config);
    for more in [&[][..], &["--print"], &["--graph", "update"], &["--json"]] {
        says(&place, &[&["check", &name][..], more].concat(), &[], 0);
    }
    let printed = says(&place, &["check", &name, "--print"], &[], 0);
    assert!(printed.contains("31m"), "the file's name is shown: {printed}");
    for out in [BAD, "r"] {
        let said = shows(&place, &["train", &name, "--force", "--out", out], 0, SHOWN_TOML);
        assert!(out == "r" || said.contains(SHOWN), "{said}");
    }
    shows(&place, &["train", &name, "--out", BAD], 2, SHOWN);
    shows(&place, &["train", &name, "--out", BAD, "--resume"], 0, SHOWN);
    says(&place, &["eval", &format!("{BAD}/last.safetensors")], &[], 0);
    says(&place, &["train", &name, "--out", BAD, "--force", "--json"], &[], 0);
}

/// What is printed as TOML is the same TOML, whatever it holds.
#[test]
fn printed_configurations_stay_what_they_are() {
    let place = Place::new();
    let root = format!("a\"\\{BAD_TOML}");
    let toml = toml::Value::String(root.clone());
    let text = digits("", "").replace("source = \"digits\"", &format!("source = \"mnist\"\nroot = {toml}"))
        + &plain()[plain().find("[model]").unwrap()..];
    place.write("c.toml", text);
    let printed = says(&place, &["check", "c.toml", "--print"], &[], 0);
    let again: toml::Table = printed.parse().unwrap_or_else(|e| panic!("{e}\n{printed}"));
    // Paths are absolute there.
    let whole = place.path("").canonicalize().unwrap().join(&root);
    assert_eq!(again["data"]["root"].as_str().map(std::path::Path::new), Some(whole.as_path()), "{printed}");
}

/// A safetensors file of one tensor with that name and that type.
fn safetensors(name: &str, dtype: &str) -> Vec<u8> {
    let header = serde_json::json!({ name: { "dtype": dtype, "shape": [2], "data_offsets": [0, 8] } }).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat()
}

/// A file of `torch.save` whose pickle is this one.
fn pth(pickle: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in [("archive/data.pkl", pickle), ("archive/version", b"3\n")] {
        zip.start_file(name, options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn files_of_weights_and_samples() {
    let place = Place::with(&plain());
    place.write("name.safetensors", safetensors(BAD, "F32"));
    place.write("dtype.safetensors", safetensors("x", BAD));
    let global = format!("c{BAD}\n{BAD}\n.");
    place.write("global.pth", pth(&[&[0x80, 2][..], global.as_bytes()].concat()));
    // An entry that is no tensor, and whose name a message may have: `{BAD: 1}`.
    let text = [&[b'X'][..], &(BAD.len() as u32).to_le_bytes(), BAD.as_bytes()].concat();
    place.write("entry.pth", pth(&[&[0x80, 2, b'}'][..], &text, b"K\x01s."].concat()));
    shows(&place, &["export", "dtype.safetensors", "w.safetensors"], 1, SHOWN);
    shows(&place, &["export", "global.pth", "w.safetensors"], 1, SHOWN);
    let code = place.command("export entry.pth w.safetensors").status().unwrap().code().unwrap();
    says(&place, &["export", "entry.pth", "w.safetensors"], &[], code);
    for strict in ["true", "false"] {
        let set = ["--set", "model.weights=name.safetensors", "--set", &format!("model.weights_strict={strict}")];
        let args = [&["eval", "c.toml"][..], &set].concat();
        let code = place.command("").args(&args).status().unwrap().code().unwrap();
        shows(&place, &args, code, SHOWN);
    }
    let entry = "--set model.weights=entry.pth --set model.weights_strict=false";
    let args: Vec<&str> = ["eval", "c.toml"].into_iter().chain(entry.split(' ')).collect();
    let code = place.command("").args(&args).status().unwrap().code().unwrap();
    says(&place, &args, &[], code);
    // Samples, and a checkpoint whose state is none.
    let tensors = plain()
        .replace("source = \"digits\"", "source = \"tensors\"\npath = \"name.safetensors\"")
        .replace("limit = 320\n", "")
        .replace("limit_val = 100\n", "");
    place.write("t.toml", tensors);
    shows(&place, &["train", "t.toml"], 2, SHOWN);
    let header = serde_json::json!({ "__metadata__": { "runner": format!("{{\"{BAD}\": 1}}"), BAD: BAD } }).to_string();
    place.write("meta.safetensors", [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    says(&place, &["eval", "meta.safetensors"], &[], 1);
    says(&place, &["train", "c.toml", "--resume", "meta.safetensors", "--out", "r"], &[], 1);
}

#[test]
fn images() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out r");
    let good = format!("{BAD}.png");
    image::GrayImage::new(8, 8).save(place.path(&good)).unwrap();
    shows(&place, &["predict", "r/last.safetensors", &good], 0, SHOWN);
    let json = says(&place, &["predict", "r/last.safetensors", &good, "--json"], &[], 0);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value[0]["file"].as_str(), Some(good.as_str()), "the value is the name as it is");
    shows(&place, &["predict", "r/last.safetensors", &format!("{BAD}.jpg")], 1, SHOWN);
    shows(&place, &["serve", "--port", "0", &format!("{BAD}.safetensors")], 1, SHOWN);
}

/// An address at which no server answers.
fn unused_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn passwords_of_mirrors_are_masked() {
    let place = Place::new();
    let url = format!("http://me:hush@{}/m", unused_address());
    let masked = url.replace("me:hush", "***");
    let check = |args: &[&str], code: i32| {
        let said = says(&place, args, &[], code);
        assert!(!said.contains("hush"), "{args:?}: {said}");
        said
    };
    for more in [&[][..], &["--json"]] {
        let said = check(&[&["data", "fetch", "mnist", "--root", "m", "--mirror", &url][..], more].concat(), 1);
        assert!(said.contains(&masked), "{said}");
    }
    check(&["data", "fetch", "mnist", "--root", "m", "--mirror", &format!("{url}{BAD}")], 1);
    check(&["data", "fetch", "mnist", "--root", "m", "--mirror", "me:hush@host"], 1);
    check(&["data", "fetch", "mnist", "--root", "m", "--miror", &url], 2);
    let config = digits("", "")
        .replace("source = \"digits\"", "source = \"mnist\"\nfallback = \"digits\"\nroot = \"m\"\nMIRRORS")
        + &plain()[plain().find("[model]").unwrap()..];
    place.write("c.toml", config.replace("MIRRORS", "mirrors = [\"ftp://me:hush@host\"]"));
    for more in [&[][..], &["--json"]] {
        let said = check(&[&["check", "c.toml"][..], more].concat(), 2);
        assert!(said.contains("mirrors"), "{said}");
    }
    place.write("c.toml", config.replace("MIRRORS", ""));
    for more in [&[][..], &["--json"]] {
        check(&[&["check", "c.toml", "--set", "data.mirrors=['ftp://me:hush@host']"][..], more].concat(), 2);
    }
    // A run on the fallback says why, and keeps it in its files.
    place.write("c.toml", config.replace("MIRRORS", &format!("mirrors = [\"{url}\"]")));
    let said = check(&["train", "c.toml", "--out", "r", "--force"], 0);
    assert!(said.contains(&masked), "{said}");
    let metrics = place.read("r/metrics.jsonl");
    assert!(metrics.contains(&masked) && !metrics.contains("hush"), "{metrics}");
    let kept = place.read("r/config.toml");
    let secret: Vec<&str> = kept.lines().filter(|line| line.contains("hush")).collect();
    assert_eq!(secret.len(), 1, "the option itself, and no note: {kept}");
    assert!(secret[0].starts_with("mirrors = "), "{kept}");
}

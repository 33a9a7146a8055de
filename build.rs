//! What `runner --version` says: version, commit, features, target.
//!
//! The commit is that of the environment (`RUNNER_COMMIT`, for packagers), of a package of crates.io (`.cargo_vcs_info.json`), of an archive that git has made
//! (`.commit`), or of git where the sources are a clone; without any of these there is none. Debug builds of a clone have none either: they would be built anew
//! at every commit.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Digits of a commit that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUNNER_COMMIT");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let debug = variable("PROFILE") == "debug";
    let given = env::var("RUNNER_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let commit = given.or_else(of_package).or_else(of_archive).or_else(|| if debug { None } else { of_git() });
    let commit: String =
        commit.unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c)).collect();
    let mut features: Vec<String> = env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-")))
        .collect();
    features.sort_unstable();
    let compiler = Command::new(variable("RUSTC")).arg("--version").output();
    let compiler = compiler.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let said = match (commit.is_empty(), debug) {
        (false, _) => format!("commit {commit}"),
        (true, true) => "debug build".to_owned(),
        (true, false) => "commit not known".to_owned(),
    };
    let with = if features.is_empty() { "no features".to_owned() } else { format!("features {}", features.join(" ")) };
    let (version, target) = (variable("CARGO_PKG_VERSION"), variable("TARGET"));
    println!("cargo:rustc-env=RUNNER_VERSION={version} ({said}, {with}, {target})");
    println!("cargo:rustc-env=RUNNER_BUILT_FROM={commit}");
    println!("cargo:rustc-env=RUNNER_FEATURES={}", features.join(" "));
    println!("cargo:rustc-env=RUNNER_TARGET={target}");
    println!("cargo:rustc-env=RUNNER_COMPILER={compiler}");
}

/// That which `cargo package` writes down.
fn of_package() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    println!("cargo:rerun-if-changed=.cargo_vcs_info.json");
    let (_, rest) = text.split_once("\"sha1\"")?;
    let sha = rest.split('"').nth(1)?;
    Some(sha.chars().take(DIGITS).collect())
}

/// That which `git archive` puts in the place of a mark.
fn of_archive() -> Option<String> {
    println!("cargo:rerun-if-changed=.commit");
    let text = fs::read_to_string(".commit").ok()?;
    (!text.starts_with('$')).then(|| text.trim().chars().take(DIGITS).collect())
}

/// That of the clone whose folder this is, with `+changes` where files that are built differ from it.
fn of_git() -> Option<String> {
    // An archive that was unpacked within some other clone is not of that.
    if !Path::new(".git").exists() {
        return None;
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let built = ["src", "crates", "kernels", "models", "build.rs", "Cargo.toml", "Cargo.lock"];
    let files = ["HEAD".to_owned(), "packed-refs".to_owned()].into_iter().chain(branch);
    let files = files.filter_map(|file| git(&["rev-parse", "--git-path", &file]));
    for path in files.chain(built.map(str::to_owned)).filter(|path| Path::new(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
    let status = git(&[&["status", "--porcelain", "--"][..], &built].concat())?;
    let changes = if status.is_empty() { "" } else { "+changes" };
    Some(commit.chars().take(DIGITS).collect::<String>() + changes)
}

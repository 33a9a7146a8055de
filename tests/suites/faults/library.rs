//! Builds `preload.c`, once for every state of it.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library; `None` where there is no compiler, which is said once.
pub fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suites/faults/preload.c");
    let text = fs::read(&source).unwrap();
    let hash: String = Sha256::digest(&text).iter().take(8).map(|b| format!("{b:02x}")).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(format!("libfaults-{hash}.so"));
    if path.exists() {
        return Some(path);
    }
    let Some(compiler) = compiler() else {
        crate::sweep::say("skipped: faults of files need a C compiler (cc, gcc, clang, or what CC names)");
        return None;
    };
    // Another process may build it at the same time.
    let part = folder.join(format!("libfaults-{hash}.{}", std::process::id()));
    let options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"];
    let built = Command::new(&compiler).args(options).arg(&part).arg(&source).arg("-ldl").output().unwrap();
    let stderr = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "`preload.c` does not build with {compiler}:\n{stderr}");
    fs::rename(&part, &path).unwrap();
    Some(path)
}

fn compiler() -> Option<String> {
    let named = std::env::var("CC").ok().into_iter();
    named
        .chain(["cc", "gcc", "clang"].map(String::from))
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()))
}

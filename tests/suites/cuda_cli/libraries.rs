//! NVIDIA's libraries are opened when something is to be computed by them, and not before.

use crate::support::Place;
use crate::{emulator, run_with};
use std::fs;
use std::path::{Path, PathBuf};

/// A model for neither library, for cuBLASLt alone, or for both: what is small stays with our own kernels.
fn config(channels: usize, features: usize) -> String {
    format!(
        r#"
device = "cuda"
[data]
source = "synthetic"
shape = [8, 8, 8]
classes = 4
samples = 8
batch_size = 8
[model]
layers = [
  {{ type = "conv2d", out_channels = {channels}, kernel_size = 3, padding = 1 }},
  {{ type = "adaptive_avg_pool2d", output_size = 1 }},
  "flatten",
  {{ type = "linear", out_features = {features} }},
  {{ type = "linear", out_features = 4 }},
]
[loss]
type = "cross_entropy"
[optimizer]
type = "sgd"
lr = 0.1
[train]
epochs = 1
"#
    )
}

/// The driver's folder and that of the libraries, as `LD_LIBRARY_PATH` names them.
fn folders() -> Option<PathBuf> {
    let driver = emulator::library_dir()?;
    let double = emulator::nvidia_library("libcublasLt.so")?;
    Some(std::env::join_paths([driver.as_path(), double.parent().unwrap()]).unwrap().into())
}

/// Which of the two were loaded by a command that succeeds.
fn loaded(place: &Place, folders: &Path, args: &str, env: &[(&str, &str)]) -> [bool; 2] {
    let trace = [("LD_DEBUG", "files"), ("LD_DEBUG_OUTPUT", "loaded")];
    let done = run_with(place, folders, args, &[&trace[..], env].concat());
    assert_eq!(done.code, Some(0), "`runner {args}`: {done:?}");
    let files = fs::read_dir(place.path("")).unwrap().flatten().map(|e| e.path());
    let logs: Vec<_> = files.filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with("loaded.")).collect();
    let text: String = logs.iter().map(|log| fs::read_to_string(log).unwrap()).collect();
    logs.iter().for_each(|log| fs::remove_file(log).unwrap());
    assert!(text.contains("libcuda.so"), "{done:?}");
    ["libcublasLt.so", "libcudnn.so"].map(|name| text.contains(name))
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_is_opened_when_there_is_work_for_it() {
    let Some(folders) = folders() else { return };
    let cases =
        [((4, 4), [false, false]), ((128, 2048), [true, true]), ((128, 4), [false, true]), ((8, 32768), [true, false])];
    for ((channels, features), expected) in cases {
        let place = Place::with(&config(channels, features));
        for command in ["check c.toml", "train c.toml --out r --force -q"] {
            let found = loaded(&place, &folders, command, &[]);
            assert_eq!(found, expected, "{command}, {channels} channels and {features} features");
        }
        let none = loaded(&place, &folders, "check c.toml", &[("RUNNER_CUDA_LIBRARIES", "0")]);
        assert_eq!(none, [false, false]);
    }
    let place = Place::with(&config(4, 4));
    assert_eq!(loaded(&place, &folders, "check c.toml --json", &[]), [false, false]);
    assert_eq!(loaded(&place, &folders, "devices", &[]), [true, true], "their versions are asked for");
    let said = run_with(&place, &folders, "train c.toml --out r --force", &[]).err;
    assert!(!said.contains("cuDNN"), "a library that is not in use is not named: {said}");
    place.write("c.toml", config(128, 2048));
    let said = run_with(&place, &folders, "train c.toml --out r --force", &[]).err;
    assert!(said.contains(", cuBLASLt, cuDNN)"), "{said}");
}

/// A library that does not start is passed over. One that has not the memory to start is not: with more memory the program
/// would be another, so nothing is computed.
#[test]
fn a_library_without_memory_is_exit_3() {
    let Some(driver) = emulator::library_dir() else { return };
    let Some(double) = emulator::nvidia_library("libcublasLt.so") else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/emulator/libraries");
    for (file, code, create) in [("cublaslt.cpp", 3, "cublasLtCreate"), ("cudnn.cpp", 4004, "cudnnCreate")] {
        let place = Place::with(&config(128, 2048));
        let text = fs::read_to_string(source.join(file)).unwrap();
        // As it is, but for the call that starts it.
        let begin = text.find(&format!("EXPORT int {create}(")).unwrap_or_else(|| panic!("{file} has no {create}"));
        let body = begin + text[begin..].find('{').unwrap() + 1;
        let text = format!("{} return {code}; {}", &text[..body], &text[body..]);
        let text = text.replace("#include \"", &format!("#include \"{}/", source.display()));
        let library = if file == "cudnn.cpp" { "libcudnn.so" } else { "libcublasLt.so" };
        for name in fs::read_dir(double.parent().unwrap()).unwrap().flatten().map(|e| e.path()) {
            let to = place.path(&format!("lib/{}", name.file_name().unwrap().to_str().unwrap()));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&name, &to).unwrap();
        }
        let path = place.path(&format!("lib/{library}"));
        fs::remove_file(&path).unwrap();
        emulator::shared_library(&text, &path);
        let folders: PathBuf = std::env::join_paths([driver.clone(), place.path("lib")]).unwrap().into();
        let done = run_with(&place, &folders, "train c.toml --out r --force -q", &[]);
        assert_eq!(done.code, Some(3), "{create}: {done:?}");
        assert!(
            done.err.contains("not enough memory on cuda:0") && done.err.contains("starting"),
            "{create}: {done:?}"
        );
        assert_eq!(done.err.lines().filter(|l| l.starts_with("help: ")).count(), 1, "{done:?}");
        // A library that does not start for another reason has a note, and the run goes on.
        let text = text.replacen(&format!(" return {code}; "), " return 1; ", 1);
        fs::remove_file(&path).unwrap();
        emulator::shared_library(&text, &path);
        let done = run_with(&place, &folders, "train c.toml --out r --force", &[]);
        assert!(done.code == Some(0) && done.err.contains("does not start (status 1)"), "{create}: {done:?}");
    }
}

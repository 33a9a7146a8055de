//! Which device is taken, and what is said where it cannot be had.

use crate::support::{Place, plain};
use crate::{emulator, ok_with, run_with};
use std::fs;
use std::path::Path;

/// A configuration that leaves the device to the program.
fn on_any_device() -> String {
    plain().replace("device = \"cpu\"", "device = \"auto\"")
}

#[test]
fn a_driver_that_cannot_be_used_is_exit_3_or_the_cpu_with_the_reason() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&on_any_device());
    let cases = [
        (("EMULATED_INIT", "34"), "a stub for linking", "stubs"),
        (("EMULATED_INIT", "100"), "finds no GPU", "nvidia-smi"),
        (("EMULATED_INIT", "999"), "does not start", "nvidia-smi"),
        (("EMULATED_DRIVER", "11080"), "it knows CUDA 11.8, and 12.1 is needed", "530"),
        (("EMULATED_CAPABILITY", "70"), "compute capability 7.0", "--device cpu"),
    ];
    for (setting, reason, help) in cases {
        let env = &[setting];
        let done = run_with(&place, &folder, "check c.toml --device cuda", env);
        assert_eq!(done.code, Some(3), "{done:?}");
        assert!(done.err.contains("the device `cuda` is not available: ") && done.err.contains(reason), "{done:?}");
        let help_line = done.err.lines().find(|l| l.starts_with("help: "));
        assert!(help_line.is_some_and(|l| l.contains(help)), "{done:?}");

        let done = ok_with(&place, &folder, "check c.toml --json", env);
        assert!(done.json()["device"].as_str().unwrap().starts_with("cpu"), "{done:?}");
        assert!(!done.err.contains("no GPU"), "what trains says it, and `devices`: {done:?}");
        let done = ok_with(&place, &folder, &format!("train c.toml --out {}", setting.1), env);
        let said: Vec<&str> = done.err.lines().filter(|l| l.contains("no GPU: ")).collect();
        assert_eq!(said.len(), 1, "{done:?}");
        assert!(said[0].contains(reason) && said[0].ends_with("; computing on the CPU"), "{done:?}");

        let done = ok_with(&place, &folder, "devices", env);
        assert!(done.out.contains(reason), "{done:?}");
    }
    let done = run_with(&place, &folder, "check c.toml --device cuda:1", &[]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("there is only `cuda:0`"), "{done:?}");
}

/// Files of the driver's names that are no libraries hide a real one.
#[test]
fn without_a_driver_it_is_the_cpu_which_alone_does_not_look_for_one() {
    let place = Place::with(&on_any_device());
    for name in ["libcuda.so", "libcuda.so.1"] {
        place.write(&format!("no-driver/{name}"), "no library");
    }
    let folder = place.path("no-driver");
    let done = run_with(&place, &folder, "train c.toml --device cuda", &[]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("no NVIDIA driver is installed") && done.err.contains("\nhelp: install"), "{done:?}");
    let trained = ok_with(&place, &folder, "train c.toml --out said", &[]);
    assert!(trained.err.contains("no GPU: no NVIDIA driver is installed"), "{trained:?}");
    assert!(!ok_with(&place, &folder, "check c.toml --device cpu", &[]).err.contains("GPU"));
    let quiet = ok_with(&place, &folder, "train c.toml --quiet --out quiet", &[]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    let devices = ok_with(&place, &folder, "devices --json", &[]).json();
    assert_eq!(devices["cuda"]["available"], false);
    assert!(devices["cuda"]["reason"].as_str().unwrap().contains("libcuda"), "{devices}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_cpu_loads_nothing_of_cuda() {
    let Some(folder) = emulator::search_path() else { return };
    let place = Place::with(&on_any_device());
    let loaded = |args: &str| {
        let done = ok_with(&place, &folder, args, &[("LD_DEBUG", "files"), ("LD_DEBUG_OUTPUT", "loaded")]);
        let files = fs::read_dir(place.path("")).unwrap().flatten().map(|e| e.path());
        let logs: Vec<_> = files.filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with("loaded.")).collect();
        let text: String = logs.iter().map(|log| fs::read_to_string(log).unwrap()).collect();
        logs.iter().for_each(|log| fs::remove_file(log).unwrap());
        assert!(!text.is_empty(), "{done:?}");
        text.contains("libcuda")
    };
    assert!(!loaded("check c.toml --device cpu"));
    assert!(loaded("check c.toml --device cuda"));
}

#[test]
fn devices_shows_every_gpu() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::new();
    let env = [("EMULATED_DEVICES", "2"), ("EMULATED_DRIVER", "12080"), ("EMULATED_CAPABILITY", "90")];
    let report = ok_with(&place, &folder, "devices --json", &env).json();
    let cuda = &report["cuda"];
    assert_eq!((&cuda["available"], &cuda["count"], &cuda["current"]), (&true.into(), &2.into(), &0.into()));
    assert_eq!(cuda["driver_cuda"], "12.8");
    let devices = report["devices"].as_array().unwrap();
    let names: Vec<&str> = devices.iter().map(|d| d["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cpu", "cuda:0", "cuda:1"]);
    assert_eq!(devices[2]["compute_capability"], "9.0");
    assert_eq!(devices[1]["memory_total"], 16_u64 << 30);
    assert!(devices[1]["memory_free"].as_u64().unwrap() <= 16 << 30);
    assert_eq!(report["libraries"].as_array().unwrap().len(), 5);

    let hidden = [env[0], env[1], ("CUDA_VISIBLE_DEVICES", "1")];
    assert_eq!(ok_with(&place, &folder, "devices --json", &hidden).json()["cuda"]["count"], 1);
    let text = ok_with(&place, &folder, "devices", &env).out;
    assert!(text.contains("\ncuda:1\n") && text.contains("CUDA 12.8") && text.contains("cuDNN"), "{text}");
}

/// Libraries that are found are used, unless the environment says that they are not to be.
#[test]
fn devices_shows_which_libraries_are_used() {
    let Some(driver) = emulator::library_dir() else { return };
    let Some(double) = emulator::nvidia_library("libcublasLt.so") else { return };
    let folders = std::env::join_paths([driver.as_path(), double.parent().unwrap()]).unwrap();
    let place = Place::new();
    let libraries_by = |env: &[(&str, &str)]| {
        let report = ok_with(&place, Path::new(&folders), "devices --json", env).json();
        let libraries = report["libraries"].as_array().unwrap().clone();
        let of = |name: &str| libraries.iter().find(|l| l["name"] == name).unwrap().clone();
        [of("cuBLASLt"), of("cuDNN")]
    };
    for library in libraries_by(&[]) {
        assert!(library["used"] == true && library.get("unused").is_none(), "{library}");
    }
    let [blas, dnn] = libraries_by(&[("RUNNER_CUDA_LIBRARIES", "cudnn")]);
    assert!(blas["used"] == false && dnn["used"] == true, "{blas} {dnn}");
    assert!(blas["unused"].as_str().unwrap().contains("RUNNER_CUDA_LIBRARIES"), "{blas}");
    let text = ok_with(&place, Path::new(&folders), "devices", &[("RUNNER_CUDA_LIBRARIES", "0")]).out;
    assert!(text.contains("(not used: RUNNER_CUDA_LIBRARIES says so)"), "{text}");
}

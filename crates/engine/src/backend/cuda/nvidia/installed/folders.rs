//! The folders in which CUDA's libraries may be, found by looking at files and the environment; nothing is run.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the system's own libraries, and that of the driver where a machine is Windows below.
const SYSTEM: [&str; 9] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "usr/lib/wsl/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/local/lib",
    "opt/cuda/lib64",
];

/// Where a CUDA toolkit keeps its libraries.
const OF_TOOLKIT: [&str; 4] = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// A machine as it is seen from here.
pub struct Machine<'a> {
    /// The environment.
    pub var: &'a dyn Fn(&str) -> Option<OsString>,
    /// What the fixed places are below: `/`.
    pub root: &'a Path,
    /// The file of the driver's library, if it is loaded.
    pub driver: Option<PathBuf>,
}

impl Machine<'_> {
    /// The folders that exist: those named by environment variables, then those of the toolkits, the driver and the system,
    /// then those of Python environments.
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for home in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| self.path(name)) {
            all.extend(OF_TOOLKIT.map(|inside| home.join(inside)));
        }
        all.extend((self.var)("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
        let local = self.root.join("usr/local");
        all.extend(OF_TOOLKIT.map(|inside| local.join("cuda").join(inside)));
        for toolkit in newest_first(&local, "cuda-") {
            all.extend(OF_TOOLKIT.map(|inside| toolkit.join(inside)));
        }
        all.extend(self.driver.as_deref().and_then(Path::parent).map(Path::to_path_buf));
        all.extend(SYSTEM.map(|inside| self.root.join(inside)));
        for prefix in self.python_prefixes() {
            all.extend(of_python(&prefix));
        }
        let mut seen = HashSet::new();
        all.retain(|folder| folder.is_dir() && seen.insert(folder.canonicalize().unwrap_or_else(|_| folder.clone())));
        all
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        (self.var)(name).filter(|v| !v.is_empty()).map(PathBuf::from)
    }

    /// Folders with a `lib/python3.N` inside: the environments that are active, then those of the `python3` that a shell
    /// would start, then the user's own.
    fn python_prefixes(&self) -> Vec<PathBuf> {
        let mut prefixes: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| self.path(name)).collect();
        let on_path = (self.var)("PATH").map(|p| std::env::split_paths(&p).collect::<Vec<_>>()).unwrap_or_default();
        if let Some(python) = on_path.iter().map(|folder| folder.join("python3")).find(|file| file.is_file()) {
            let prefix = |file: &Path| file.parent().and_then(Path::parent).map(Path::to_path_buf);
            prefixes.extend(prefix(&python));
            // An environment's interpreter is a link to that which it was made from.
            prefixes.extend(python.canonicalize().ok().and_then(|file| prefix(&file)));
            prefixes.extend(pyenv(&python, self.path("PYENV_VERSION")));
        }
        prefixes.extend(self.path("HOME").map(|home| home.join(".local")));
        prefixes
    }
}

/// The version that pyenv would start: its interpreters on the path are scripts in a folder `shims`.
fn pyenv(python: &Path, chosen: Option<PathBuf>) -> Option<PathBuf> {
    let shims = python.parent().filter(|folder| folder.ends_with("shims"))?;
    let root = shims.parent()?;
    let global = || fs::read_to_string(root.join("version")).ok();
    let version = chosen.map(|v| v.to_string_lossy().into_owned()).or_else(global)?;
    // Several may be active, the first being the one that is started.
    Some(root.join("versions").join(version.split([':', '\n']).next()?.trim()))
}

/// The folders of NVIDIA's packages below a Python prefix.
fn of_python(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let versions = [prefix.join("lib"), prefix.join("lib64")].into_iter().flat_map(|lib| newest_first(&lib, "python3"));
    for python in versions {
        for packages in ["site-packages", "dist-packages"] {
            let nvidia = python.join(packages).join("nvidia");
            // `nvidia/cublas/lib` for CUDA 12, `nvidia/cu13/lib` for 13.
            found.extend(newest_first(&nvidia, "").into_iter().map(|package| package.join("lib")));
        }
    }
    // Conda's own packages.
    found.push(prefix.join("lib"));
    found
}

/// What is in a folder and begins with `start`, the highest version first.
fn newest_first(folder: &Path, start: &str) -> Vec<PathBuf> {
    let mut found: Vec<(Vec<u64>, String, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| name.starts_with(start))?;
            let numbers = name.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
            Some((numbers, name, entry.path()))
        })
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    found.into_iter().map(|(_, _, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The folders found, below `root`, in a machine with these folders and this environment.
    fn found(root: &Path, made: &[&str], env: &[(&str, String)]) -> Vec<String> {
        for folder in made {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let env: HashMap<&str, &String> = env.iter().map(|(k, v)| (*k, v)).collect();
        let var = |name: &str| env.get(name).map(|v| OsString::from(v.as_str()));
        let machine = Machine { var: &var, root, driver: None };
        machine.folders().iter().map(|f| f.strip_prefix(root).unwrap().to_str().unwrap().to_string()).collect()
    }

    #[test]
    fn named_folders_come_before_usual_ones_and_python_last() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |inside: &str| root.join(inside).display().to_string();
        let made = [
            "home/lib64",
            "named",
            "usr/local/cuda-12.4/lib64",
            "usr/local/cuda-13.0/lib64",
            "usr/lib64",
            "env/lib/python3.9/site-packages/nvidia/cudnn/lib",
            "env/lib/python3.12/site-packages/nvidia/cu13/lib",
            "env/lib/python3.12/site-packages/nvidia/cudnn/lib",
        ];
        let env = [
            ("CUDA_HOME", at("home")),
            ("CUDA_PATH", String::new()),
            ("LD_LIBRARY_PATH", format!("{}:{}:{}", at("named"), at("gone"), at("named"))),
            ("VIRTUAL_ENV", at("env")),
        ];
        assert_eq!(
            found(&root, &made, &env),
            [
                "home/lib64",
                "named",
                "usr/local/cuda-13.0/lib64",
                "usr/local/cuda-12.4/lib64",
                "usr/lib64",
                "env/lib/python3.12/site-packages/nvidia/cu13/lib",
                "env/lib/python3.12/site-packages/nvidia/cudnn/lib",
                "env/lib/python3.9/site-packages/nvidia/cudnn/lib",
                "env/lib",
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn the_python_that_a_shell_would_start_is_found_without_starting_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let make = |folder: &str| fs::create_dir_all(root.join(folder)).unwrap();
        let wheel = |prefix: &str| format!("{prefix}/lib/python3.11/site-packages/nvidia/cublas/lib");
        ["venv/bin", "base/bin", "empty"].iter().for_each(|folder| make(folder));
        fs::write(root.join("base/bin/python3.11"), "").unwrap();
        std::os::unix::fs::symlink(root.join("base/bin/python3.11"), root.join("venv/bin/python3")).unwrap();
        let path = format!("{}:{}", root.join("empty").display(), root.join("venv/bin").display());
        let made = [wheel("venv"), wheel("base")];
        let made = [made[0].as_str(), made[1].as_str()];
        assert_eq!(found(&root, &made, &[("PATH", path)]), [made[0], "venv/lib", made[1], "base/lib"]);

        make("pyenv/shims");
        fs::write(root.join("pyenv/shims/python3"), "#!/bin/sh").unwrap();
        fs::write(root.join("pyenv/version"), "3.11.4\n").unwrap();
        let inside = wheel("pyenv/versions/3.11.4");
        let path = root.join("pyenv/shims").display().to_string();
        assert_eq!(found(&root, &[&inside], &[("PATH", path)]), [inside.as_str(), "pyenv/versions/3.11.4/lib"]);
    }
}

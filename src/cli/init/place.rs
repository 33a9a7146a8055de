//! How a configuration names its source: from its own folder, so that the two may be moved together.

use crate::api::failure::Failure;
use crate::config::load::paths::absolute;
use crate::files::durable::folder_of;
use crate::files::output::Output;
use anyhow::anyhow;
use std::path::{Component, Path, PathBuf};

/// The folder of a configuration that is to be written.
pub struct Place(PathBuf);

impl Place {
    /// That of the file at `out`. What is no file, such as standard output, is taken for one in the current folder.
    pub fn of(out: &Output) -> Place {
        Place(if out.is_stream() { PathBuf::from(".") } else { folder_of(out.path()).to_owned() })
    }

    /// The path of `source` as a configuration there has it.
    ///
    /// # Errors
    /// It is not UTF-8, as configurations are.
    pub fn written(&self, source: &Path) -> Result<String, Failure> {
        let (here, there) = (absolute(&self.0), absolute(source));
        let path = match there.strip_prefix(&here) {
            Ok(below) if below.as_os_str().is_empty() => PathBuf::from("."),
            Ok(below) => below.to_owned(),
            Err(_) => between(&self.0, source).unwrap_or(there),
        };
        let text = path.into_os_string().into_string();
        // Windows takes both, and others the slash alone.
        let text = text.map(|text| if cfg!(windows) { text.replace('\\', "/") } else { text });
        text.map_err(|path| Failure::Other(anyhow!("`{}` is not UTF-8, as a configuration is", path.display())))
    }
}

/// The way from a folder to a file, whatever links lead to them; `None`: they have the root alone in common.
fn between(folder: &Path, file: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let file = match file.file_name() {
        // A link itself keeps its name.
        Some(name) => folder_of(file).canonicalize().ok()?.join(name),
        None => file.canonicalize().ok()?,
    };
    let common = folder.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    if common < 2 {
        return None;
    }
    let up = folder.components().skip(common).map(|_| Component::ParentDir);
    Some(up.chain(file.components().skip(common)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_from_the_configuration_to_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("configs/own")).unwrap();
        std::fs::create_dir_all(at("data/photos")).unwrap();
        let of = |out: &Path| Place::of(&Output::at(out).unwrap());
        let way = |out: &str, source: &str| of(&at(out)).written(&at(source)).unwrap();
        assert_eq!(way("x.toml", "data/photos/"), "data/photos");
        assert_eq!(way("x.toml", "configs/../data/photos"), "data/photos");
        assert_eq!(way("configs/own/x.toml", "data/photos"), "../../data/photos");
        assert_eq!(way("data/photos/x.toml", "data/photos"), ".");
        assert_eq!(of(Path::new("x.toml")).written(Path::new("Cargo.toml")).unwrap(), "Cargo.toml");
        #[cfg(unix)]
        {
            // After a link `..` leads to where the link points.
            std::os::unix::fs::symlink(at("configs/own"), at("link")).unwrap();
            assert_eq!(way("link/x.toml", "data/photos"), "../../data/photos");
            assert_eq!(way("x.toml", "link/y.csv"), "link/y.csv");
            for stream in ["/dev/null", "/dev/stdout", "-"] {
                assert_eq!(of(Path::new(stream)).written(Path::new("Cargo.toml")).unwrap(), "Cargo.toml");
            }
        }
    }
}

//! Cases in files: a configuration, the data, the state that training starts from, and what PyTorch makes of them.
//! `scripts/golden/case.py` gives the names of the tensors.

use super::root::root;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize_to_file};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder with the folders of cases.
pub fn folder() -> PathBuf {
    root().join("tests/golden")
}

/// A tensor of any element type, its elements exactly representable.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Tensor {
    /// A list.
    pub fn list(data: Vec<f64>) -> Self {
        Tensor { shape: vec![data.len()], data }
    }

    /// From a tensor of a file.
    pub fn from_view(view: &TensorView) -> Self {
        let data: Vec<f64> = match view.dtype() {
            Dtype::F32 => decode(view.data(), f32::from_le_bytes).map(f64::from).collect(),
            Dtype::F64 => decode(view.data(), f64::from_le_bytes).collect(),
            Dtype::I64 => decode(view.data(), i64::from_le_bytes).map(|x| x as f64).collect(),
            other => panic!("cases hold no {other:?}"),
        };
        Tensor { shape: view.shape().to_vec(), data }
    }
}

/// The elements of a block of memory.
pub fn decode<const B: usize, T>(bytes: &[u8], element: impl Fn([u8; B]) -> T) -> impl Iterator<Item = T> {
    let (elements, rest) = bytes.as_chunks::<B>();
    assert!(rest.is_empty());
    elements.iter().map(move |b| element(*b))
}

/// Tensors by their names.
pub type Tensors = BTreeMap<String, Tensor>;

/// A case.
pub struct Case {
    /// Folder and file: `layers/gelu`.
    pub name: String,
    /// The configuration; it reads the files that [`Case::write_files`] writes.
    pub config: String,
    bytes: Vec<u8>,
    tensors: Tensors,
}

impl Case {
    /// The case of that name.
    pub fn read(name: &str) -> Self {
        let path = folder().join(format!("{name}.safetensors"));
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let config = header.metadata().as_ref().expect("a case has metadata")["config"].clone();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.iter().filter(|(name, _)| !name.starts_with("file."));
        let tensors = tensors.map(|(name, view)| (name.to_string(), Tensor::from_view(&view))).collect();
        Case { name: name.to_string(), config, bytes, tensors }
    }

    /// The names of all cases in the folder of that name.
    pub fn names(folder_name: &str) -> Vec<String> {
        let folder = folder().join(folder_name);
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
            .map(|path| format!("{folder_name}/{}", path.file_stem().unwrap().to_str().unwrap()))
            .collect();
        assert!(!names.is_empty(), "no cases in `{folder_name}`");
        names.sort();
        names
    }

    /// A tensor that not every case has.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// A tensor that every case has.
    pub fn tensor(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| panic!("{}: no tensor `{name}`", self.name))
    }

    /// The tensors whose names begin with `prefix`, by the rest of their names.
    pub fn with_prefix(&self, prefix: &str) -> BTreeMap<&str, &Tensor> {
        self.tensors.iter().filter_map(|(name, t)| Some((name.strip_prefix(prefix)?, t))).collect()
    }

    /// Writes configuration, data and initial state to `dir`; the path of the configuration.
    pub fn write_files(&self, dir: &Path) -> PathBuf {
        self.write_part("batch.", &dir.join("batch.safetensors"));
        self.write_part("init.", &dir.join("init.safetensors"));
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        for (name, view) in file.iter().filter_map(|(name, view)| Some((name.strip_prefix("file.")?, view))) {
            fs::write(dir.join(name), view.data()).unwrap();
        }
        let path = dir.join("config.toml");
        fs::write(&path, &self.config).unwrap();
        path
    }

    fn write_part(&self, prefix: &str, path: &Path) {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let part: Vec<(&str, TensorView)> =
            file.iter().filter_map(|(name, view)| Some((name.strip_prefix(prefix)?, view))).collect();
        serialize_to_file(part, None, path).unwrap();
    }
}

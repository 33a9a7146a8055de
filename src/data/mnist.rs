//! MNIST (LeCun, Cortes & Burges) and Fashion-MNIST (Xiao, Rasul & Vollgraf 2017): four IDX files of the same names.

use super::footprint::UNPACKING;
use super::known::Known;
use super::labels::checked_labels;
use super::progress::Event;
use super::{DataSpec, Dataset, Describes, Files, Footprint, MissingFiles, Split, Values, idx, verify};
use crate::graph::{DType, Shape};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

/// Which of the two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// MNIST.
    Digits,
    /// Fashion-MNIST.
    Fashion,
}

impl Variant {
    /// The source's name in a configuration.
    pub fn name(self) -> &'static str {
        self.known().name()
    }

    fn known(self) -> Known {
        match self {
            Variant::Digits => Known::Mnist,
            Variant::Fashion => Known::FashionMnist,
        }
    }

    /// Where torchvision keeps the files below its own root.
    fn torchvision_folder(self) -> &'static str {
        match self {
            Variant::Digits => "MNIST/raw",
            Variant::Fashion => "FashionMNIST/raw",
        }
    }

    fn class_names(self) -> Vec<String> {
        match self {
            Variant::Digits => (0..10).map(|d| d.to_string()).collect(),
            Variant::Fashion => [
                "T-shirt/top",
                "Trouser",
                "Pullover",
                "Dress",
                "Coat",
                "Sandal",
                "Shirt",
                "Sneaker",
                "Bag",
                "Ankle boot",
            ]
            .map(String::from)
            .to_vec(),
        }
    }
}

/// Side of an image, in pixels.
const SIDE: usize = 28;

/// Images to train and to test on.
const TRAIN: usize = 60_000;
const TEST: usize = 10_000;

/// The four files, without `.gz`: training images and labels, test images and labels.
const FILES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

/// One of the two in a folder.
pub(super) struct Mnist<'a>(pub Variant, pub &'a Files);

impl Describes for Mnist<'_> {
    fn describe(&self) -> Result<DataSpec> {
        Ok(self.1.counted(spec(self.0)))
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        open(self.0, self.1)
    }

    fn footprint(&self) -> Footprint {
        Footprint::of(&spec(self.0), UNPACKING)
    }

    fn public(&self) -> Option<(Known, PathBuf)> {
        Some((self.0.known(), self.1.root.clone()))
    }
}

/// What the samples look like.
pub fn spec(variant: Variant) -> DataSpec {
    DataSpec {
        train: Some(TRAIN),
        val: Some(TEST),
        ..DataSpec::labelled(DType::U8, [SIDE, SIDE, 1], 10).named(variant.class_names())
    }
}

/// Reads the set from its folder, or from where torchvision would have put it below that. Files may be gzipped or not.
///
/// # Errors
/// A file is missing ([`MissingFiles`]), is not what its name says, or, if that is asked for, not of this set.
pub fn open(variant: Variant, files: &Files) -> Result<Dataset> {
    let paths = find(variant, &files.root)?;
    let set = variant.known();
    // Unpacking is most of the time before the first step; the two sets need not wait for each other.
    let (train, test) = std::thread::scope(|scope| {
        let read_test = || read_pair(set, 2, &paths, files);
        let test = std::thread::Builder::new().spawn_scoped(scope, read_test);
        let train = read_pair(set, 0, &paths, files);
        // Without a second thread they wait for each other.
        let join = |test: ScopedJoinHandle<_>| test.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (train, test.map_or_else(|_| read_test(), join))
    });
    let (train, test) = (train?, test?);
    ensure!(!train.is_empty(), "{} holds no image", paths[0].display());
    let spec = spec(variant);
    Ok(match files.verify {
        true => Dataset::known(set, spec, train, test),
        false => Dataset::new(spec, train, test),
    })
}

fn find(variant: Variant, root: &Path) -> Result<[PathBuf; 4]> {
    let folders = [root.to_path_buf(), root.join(variant.torchvision_folder())];
    let mut missing = Vec::new();
    let found = FILES.map(|name| {
        let candidates = folders.iter().flat_map(|f| [f.join(name), f.join(format!("{name}.gz"))]);
        // A name that stands for no file is reported when it is opened.
        let path = candidates.into_iter().find(|p| crate::files::is_there(p));
        if path.is_none() {
            missing.push(format!("`{name}.gz` (or without .gz)"));
        }
        path.unwrap_or_default()
    });
    if missing.is_empty() {
        Ok(found)
    } else {
        let fetch = variant.known().fetch_command(root);
        Err(MissingFiles { source: variant.name(), files: missing, folders: folders.to_vec(), fetch }.into())
    }
}

/// The images of the `at`-th file and the labels of the next.
fn read_pair(set: Known, at: usize, paths: &[PathBuf; 4], files: &Files) -> Result<Split> {
    let [images, labels] = [&paths[at], &paths[at + 1]];
    let shape = Shape::from([SIDE, SIDE, 1]);
    let (images_read, labels_read) = if files.verify {
        let count = if at == 0 { TRAIN } else { TEST };
        let read = |at, path, shape| verify::read_idx(set, at, path, &files.root, count, shape);
        (read(at, images, &[SIDE, SIDE])?, read(at + 1, labels, &[])?)
    } else {
        (idx::read(images, &[None, Some(SIDE), Some(SIDE)])?, idx::read(labels, &[None])?)
    };
    pair(images_read, labels_read, &shape, &images.display().to_string(), &labels.display().to_string())
}

/// Images and their labels (ten classes) as a split.
pub(super) fn pair(images: idx::Idx, labels: idx::Idx, shape: &Shape, file: &str, label_file: &str) -> Result<Split> {
    let (n, size) = (images.dims[0], &images.dims[1..]);
    ensure!(
        size == &shape.dims()[..2],
        "{file} holds images of {}×{} pixels where {}×{} are expected: not the file of this set",
        size[0],
        size[1],
        shape.dims()[0],
        shape.dims()[1]
    );
    ensure!(
        labels.dims[0] == n,
        "{file} holds {n} images, but {label_file} holds {} labels: files of different sets?",
        labels.dims[0]
    );
    let targets = checked_labels(labels.data.iter().map(|l| i64::from(*l)), 10, None, 1, label_file)?;
    Split::labelled(Values::Bytes(images.data), shape.clone(), targets)
}

#[cfg(test)]
mod tests {
    use super::super::idx::tests::{file, gz};
    use super::*;
    use std::fs;

    /// Writes a small MNIST: `n` training images and one test image.
    fn write(folder: &Path, n: u32) {
        fs::create_dir_all(folder).unwrap();
        let labels: Vec<u8> = (0..n).map(|i| (i % 10) as u8).collect();
        let pixels: Vec<u8> = (0..n * 784).map(|i| (i % 251) as u8).collect();
        fs::write(folder.join(FILES[0]), file(&[n, 28, 28], &pixels)).unwrap();
        fs::write(folder.join(format!("{}.gz", FILES[1])), gz(&file(&[n], &labels))).unwrap();
        fs::write(folder.join(format!("{}.gz", FILES[2])), gz(&file(&[1, 28, 28], &[9; 784]))).unwrap();
        fs::write(folder.join(FILES[3]), file(&[1], &[3])).unwrap();
    }

    fn error(root: &Path) -> String {
        format!("{:#}", open(Variant::Digits, &own(root)).unwrap_err())
    }

    /// A set of one's own.
    fn own(root: &Path) -> Files {
        Files { root: root.into(), verify: false }
    }

    #[test]
    fn reads_plain_and_gzipped_and_torchvisions_folder() {
        let dir = tempfile::tempdir().unwrap();
        for folder in [dir.path().to_path_buf(), dir.path().join("tv/MNIST/raw")] {
            write(&folder, 12);
        }
        for root in [dir.path().to_path_buf(), dir.path().join("tv")] {
            let set = open(Variant::Digits, &own(&root)).unwrap();
            assert_eq!((set.spec.train, set.spec.val), (Some(12), Some(1)));
            assert_eq!((set.train.label(11), set.val.label(0)), (Some(1), Some(3)));
            assert_eq!(set.train.bytes(1, 0).unwrap()[..3], [(784 % 251) as u8, (785 % 251) as u8, (786 % 251) as u8]);
        }
    }

    #[test]
    fn missing_files_are_listed_with_the_places() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 2);
        fs::remove_file(dir.path().join(FILES[0])).unwrap();
        let e = open(Variant::Fashion, &own(dir.path())).unwrap_err();
        let missing = e.downcast_ref::<MissingFiles>().unwrap();
        assert_eq!(missing.files.len(), 1);
        assert!(missing.folders.iter().any(|f| f == dir.path()));
        let text = e.to_string();
        for part in [FILES[0], "runner data fetch fashion_mnist", "download = true", "FashionMNIST/raw"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn files_that_do_not_fit_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |i: usize| dir.path().join(FILES[i]);
        write(dir.path(), 2);
        fs::write(at(0), file(&[2, 27, 28], &[0; 2 * 27 * 28])).unwrap();
        assert!(error(dir.path()).contains("holds 2×27×28 bytes where N×28×28"));
        fs::write(at(0), file(&[3, 28, 28], &[0; 3 * 784])).unwrap();
        assert!(error(dir.path()).contains("3 images, but"));
        write(dir.path(), 2);
        fs::write(at(3), file(&[1], &[10])).unwrap();
        let text = error(dir.path());
        assert!(text.contains("label 10 of sample 0") && text.contains(FILES[3]), "{text}");
        write(dir.path(), 0);
        assert!(error(dir.path()).contains("holds no image"));
    }

    /// The set's own sizes, and nothing else of it.
    #[test]
    fn what_is_not_the_set_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refusal = |files: &Files| format!("{:#}", open(Variant::Digits, files).unwrap_err());
        write(dir.path(), 2);
        let text = refusal(&Files::at(dir.path()));
        for part in [FILES[0], "2×28×28 bytes where 60000×28×28", "verify = false", "runner data fetch mnist --root"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let labels = |n: usize| -> Vec<u8> { (0..n).map(|i| (i % 10) as u8).collect() };
        fs::write(dir.path().join(FILES[0]), file(&[60_000, 28, 28], &[0; 60_000 * 784])).unwrap();
        fs::write(dir.path().join(format!("{}.gz", FILES[1])), gz(&file(&[60_000], &labels(60_000)))).unwrap();
        let text = refusal(&Files::at(dir.path()));
        assert!(text.contains("is not MNIST's `train-images-idx3-ubyte` (its SHA-256 is "), "{text}");
        // A set of one's own says so.
        assert_eq!(open(Variant::Digits, &own(dir.path())).unwrap().train.len(), 60_000);
    }
}

//! Lists of photos, and archives of photos.

use super::pack::headers;
use super::scratch::{with_file, with_folder};
use runner::data::image_list::{ImageListOptions, Kind};
use runner::data::webdataset::WebDatasetOptions;
use runner::data::{self, Source};

/// A list; the first byte says of which format and what its labels are. The photos that it names are not there, but for itself.
pub fn list(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    let name = ["input.csv", "input.tsv", "input.jsonl"][usize::from(how & 3).min(2)];
    let kind = match how >> 2 & 3 {
        0 => Kind::Class,
        1 => Kind::Classes { separator: "|".into() },
        _ => Kind::Numbers { range: None },
    };
    with_folder(name, file, |folder| {
        let options = ImageListOptions {
            path: folder.join(name),
            val_path: None,
            root: None,
            image_column: None,
            label_columns: Vec::new(),
            kind,
            classes: None,
            trained: false,
            strict: false,
            sample_weight: None,
        };
        opens(&Source::ImageList(options))
    })
}

/// An archive of photos; the first byte says how it is given: `h` headers alone, `t` as it is.
pub fn shard(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    let file = if *how == b'h' { headers(file) } else { file.to_vec() };
    with_folder("input.tar", &file, |folder| {
        let shards = folder.join("input.tar");
        let options =
            WebDatasetOptions { shards, val_shards: None, classes: None, label_key: "label".into(), strict: false };
        opens(&Source::WebDataset(options))
    })
}

/// Whether a source opens; else its file is named.
fn opens(source: &Source) -> bool {
    match data::open(source) {
        Ok(set) => {
            assert!(!set.train.is_empty() && set.train.label(0).is_none_or(|label| label >= 0));
            true
        }
        Err(e) => {
            assert!(format!("{e:#}").contains("input."), "{e:#}");
            false
        }
    }
}

/// A mask: an image whose values are classes.
pub fn mask(data: &[u8]) -> bool {
    match data::read_mask(data) {
        Ok(mask) => {
            assert!(mask.channels == 1 && mask.pixels.len() == mask.sides[0] * mask.sides[1]);
            true
        }
        Err(e) => {
            assert!(!e.to_string().is_empty());
            false
        }
    }
}

/// The index of photos that are kept on a disk; the first byte says how large the file of their pixels is.
pub fn kept(data: &[u8]) -> bool {
    let Some((size, index)) = data.split_first() else { return false };
    with_file(index, |path| data::kept_in(path, 1 << (size & 63)).expect("a file") > 0)
}

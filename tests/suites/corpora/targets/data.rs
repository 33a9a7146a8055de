//! Files of data sets, and images.

use super::pack::{gz, headers};
use super::scratch::{with_file, with_folder};
use runner::data::synthetic::{SyntheticOptions, Task};
use runner::data::table::{Format, open_sheet};
use runner::data::{self, Files, Source};
use runner_jpeg::{Decoder, Jpeg, Region};
use std::path::Path;

/// An array; the first byte says of how many dimensions, and whether it is to be gzipped.
pub fn idx(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    let packed;
    let file = match how & 4 {
        0 => file,
        _ => {
            packed = gz(file);
            &packed
        }
    };
    match data::idx::parse(file, "input", usize::from(how & 3)) {
        Ok(array) => {
            assert_eq!(array.dims.iter().product::<usize>(), array.data.len());
            true
        }
        Err(e) => {
            assert!(e.to_string().contains("input"), "{e:#}");
            false
        }
    }
}

/// An archive of CIFAR-10; the first byte says how it is given: `h` headers alone, `t` a tar archive, `z` gzipped, `x` as xz.
pub fn tar(data: &[u8]) -> bool {
    const GZ: &str = "cifar-10-binary.tar.gz";
    let Some((how, file)) = data.split_first() else { return false };
    let (name, file) = match how {
        b'h' => (GZ, gz(&headers(file))),
        b't' => (GZ, gz(file)),
        b'z' => (GZ, file.to_vec()),
        b'x' => ("cifar-10-binary.tar.xz", file.to_vec()),
        _ => return false,
    };
    // Held to the public set's checksums nothing that a fuzzer makes would get past the first file.
    let source = |root: &Path| Source::Cifar10(Files { root: root.to_path_buf(), verify: false });
    with_folder(name, &file, |root| match data::open(&source(root)) {
        Ok(set) => {
            assert!(!set.train.is_empty() && !set.val.is_empty());
            true
        }
        Err(e) => {
            assert!(format!("{e:#}").contains("cifar-10-binary"), "{e:#}");
            false
        }
    })
}

/// An image for a model of colour and for one of grey images.
pub fn image(data: &[u8]) -> bool {
    let colour = SyntheticOptions { shape: vec![3, 5, 9], task: Task::Classes(2), samples: 1, val_samples: 1, seed: 0 };
    let specs = [Source::Synthetic(colour), Source::Digits].map(|source| data::describe(&source).expect("no files"));
    with_file(data, |path| {
        let mut accepted = true;
        for spec in specs {
            match data::image_sample(path, &spec.fields[0], true) {
                Ok(sample) => assert_eq!(sample.len(), spec.fields[0].bytes()),
                Err(e) => {
                    assert!(format!("{e:#}").contains("input"), "{e:#}");
                    accepted = false;
                }
            }
        }
        accepted
    })
}

/// A JPEG file: a rectangle of it, which the first bytes choose, is what the whole has there.
pub fn jpeg(data: &[u8]) -> bool {
    let Some((place, file)) = data.split_first_chunk::<4>() else { return false };
    let Ok(jpeg) = Jpeg::read(file) else { return false };
    let sides = [jpeg.width(), jpeg.height()];
    let [x, y, width, height] = [0, 1, 2, 3].map(|i| match i {
        0 | 1 => usize::from(place[i]) * sides[i] / 256,
        _ => 1 + usize::from(place[i]) * (sides[i - 2] - usize::from(place[i - 2]) * sides[i - 2] / 256 - 1) / 255,
    });
    let (mut decoder, mut part, mut all) = (Decoder::new(), Vec::new(), Vec::new());
    let decoded = decoder.decode(&jpeg, Region { x, y, width, height }, &mut part);
    let whole = decoder.decode(&jpeg, Region { x: 0, y: 0, width: sides[0], height: sides[1] }, &mut all);
    if whole.is_ok() {
        assert!(decoded.is_ok(), "what is whole is whole in parts");
        assert_eq!(part.len(), 3 * width * height);
        for (row, part) in part.chunks(3 * width).enumerate() {
            assert!(part == &all[3 * ((y + row) * sides[0] + x)..][..3 * width], "row {row}");
        }
    }
    whole.is_ok()
}

/// A Parquet file: all of its cells.
pub fn parquet(data: &[u8]) -> bool {
    with_folder("input.parquet", data, |folder| {
        let path = folder.join("input.parquet");
        let read = open_sheet(&path, Format::default()).and_then(|sheet| {
            let wanted = sheet.readable();
            let mut rows = 0u64;
            sheet.each_cells(&wanted, |place, row| {
                rows += 1;
                assert_eq!((place.line, row.len()), (rows, sheet.names().len()));
                Ok(())
            })
        });
        if let Err(e) = &read {
            assert!(format!("{e:#}").contains("input.parquet"), "{e:#}");
        }
        read.is_ok()
    })
}

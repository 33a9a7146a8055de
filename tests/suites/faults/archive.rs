//! Samples in an archive, which every run reads anew unless it is the public one.

use crate::library::library;
use crate::place::Place;
use crate::run_state::RunState;
use crate::sweep::Sweep;
use crate::train::{CONFIG, TRAIN};
use std::fs;
use std::io::Write;

const FOLDER: &str = "cifar-10-batches-bin";

/// The files of the set, of a few records each.
fn files() -> Vec<(String, Vec<u8>)> {
    let names = (1..6).map(|n| format!("data_batch_{n}.bin")).chain(["test_batch.bin".to_string()]);
    names
        .enumerate()
        .map(|(file, name)| {
            let record = |i: usize| {
                let pixels = (0..3072).map(move |p| (p * (i + 3) * (file + 5) % 251) as u8);
                std::iter::once(((i + file) % 10) as u8).chain(pixels)
            };
            (name, (0..8).flat_map(record).collect())
        })
        .collect()
}

fn archive() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files() {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, format!("{FOLDER}/{name}"), &bytes[..]).unwrap();
    }
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&tar.into_inner().unwrap()).unwrap();
    gz.finish().unwrap()
}

#[test]
fn a_run_from_an_archive() {
    if library().is_none() {
        return;
    }
    let config = CONFIG
        .replace("source = \"digits\"", "source = \"cifar10\"\nroot = \"set\"\nverify = false\ndownload = false")
        .replace("limit = 96\nlimit_val = 32\n", "")
        .replace("epochs = 2", "epochs = 1");
    let start = Place::with("c.toml", &config);
    fs::create_dir(start.file("set")).unwrap();
    fs::write(start.file("set/cifar-10-binary.tar.gz"), archive()).unwrap();
    let tried = start.copy();
    tried.ok(TRAIN);
    let expected = RunState::read(&tried.file("run")).unwrap();
    Sweep {
        name: "train from an archive",
        start: &start,
        args: TRAIN,
        // What the run writes is looked at elsewhere.
        every: 113,
        steady: true,
        done: &|place, _| RunState::read(&place.file("run"))?.same_as(&expected),
        after: &|place, _, _| {
            let again = place.run(&format!("{TRAIN} --force"));
            if again.code != Some(0) {
                return Err(format!("what is left is in the way: {again:?}"));
            }
            RunState::read(&place.file("run"))?.same_as(&expected)
        },
    }
    .run();
}

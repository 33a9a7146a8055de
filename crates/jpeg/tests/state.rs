//! A decoder keeps memory from one file to the next, and nothing else: what it makes of a file does not depend on those before it.

use runner_jpeg::{Decoder, Jpeg, Region};
use std::path::Path;

/// Pixels of all of a file, or none; with the decoder that has decoded others.
fn decoded(decoder: &mut Decoder, file: &[u8]) -> Option<Vec<u8>> {
    let jpeg = Jpeg::read(file).ok()?;
    let region = Region { x: 0, y: 0, width: jpeg.width(), height: jpeg.height() };
    let mut pixels = Vec::new();
    decoder.decode(&jpeg, region, &mut pixels).ok()?;
    Some(pixels)
}

fn files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/jpeg");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let of_images = paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "jpg"));
    of_images.map(|path| std::fs::read(path).unwrap()).filter(|file| file.len() < 1500).collect()
}

/// Some bytes changed, most of them in the header, where the tables are.
fn mutant(file: &[u8], draw: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut out = file.to_vec();
    for _ in 0..1 + draw(3) {
        let at = if draw(4) > 0 { draw(file.len().min(620)) } else { draw(file.len()) };
        out[at] = draw(256) as u8;
    }
    out
}

#[test]
fn a_file_s_pixels_do_not_depend_on_the_one_before() {
    let mut next = 7u64;
    let mut draw = |below: usize| {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (next >> 33) as usize % below
    };
    let files = files();
    let mut all: Vec<Vec<u8>> = files.clone();
    for file in &files {
        all.extend((0..60).map(|_| mutant(file, &mut draw)));
    }
    let alone: Vec<Option<Vec<u8>>> = all.iter().map(|file| decoded(&mut Decoder::new(), file)).collect();
    assert!(alone.iter().filter(|pixels| pixels.is_some()).count() > files.len());
    let mut decoder = Decoder::new();
    for _ in 0..2 {
        for (file, alone) in all.iter().zip(&alone) {
            let other = draw(all.len());
            let _ = decoded(&mut decoder, &all[other]);
            assert!(decoded(&mut decoder, file) == *alone, "after number {other}");
        }
    }
}

/// A table whose codes do not fit, which was half made, and a file that has no codes in its own.
#[test]
fn a_table_that_was_refused_leaves_nothing() {
    let file = |dc: (&[u8; 16], &[u8]), scan: &[u8]| {
        let mut out = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec();
        out.extend([&[0xff, 0xdb, 0, 0x43, 0][..], &[8; 64]].concat());
        out.extend([0xff, 0xc0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
        for (kind, (counts, symbols)) in
            [(0, dc), (0x10, (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0][..]))]
        {
            out.extend([0xff, 0xc4, 0, 19 + symbols.len() as u8, kind]);
            out.extend([&counts[..], symbols].concat());
        }
        out.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]);
        [&out[..], scan, &[0xff, 0xd9]].concat()
    };
    let mut too_many = [0; 16];
    too_many[0] = 3;
    let refused = file((&too_many, &[0, 5, 3]), &[0, 0]);
    let empty = file((&[0; 16], &[]), &[0x69]);
    let alone = decoded(&mut Decoder::new(), &empty);
    let mut decoder = Decoder::new();
    assert_eq!(decoded(&mut decoder, &refused), None);
    assert_eq!(decoded(&mut decoder, &empty), alone);
}

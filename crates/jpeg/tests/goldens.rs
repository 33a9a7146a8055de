//! Files that Pillow made (`scripts/golden/jpegs.py`): its pixels to the bit, those of any rectangle, and whatever becomes of them when they are damaged.

use runner_jpeg::{Decoder, Jpeg, Region, Unsupported};
use sha2::{Digest, Sha256};
use std::path::Path;

struct Golden {
    name: String,
    file: Vec<u8>,
    /// SHA-256 of its pixels; a dash if it is for another decoder.
    sum: String,
}

fn goldens() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/jpeg");
    let sums = std::fs::read_to_string(folder.join("sums.txt")).unwrap();
    let golden = |line: &str| {
        let (name, sum) = line.split_once(' ').unwrap();
        let file = std::fs::read(folder.join(format!("{name}.jpg"))).unwrap();
        Golden { name: name.into(), file, sum: sum.into() }
    };
    let goldens: Vec<Golden> = sums.lines().map(golden).collect();
    assert!(goldens.len() > 60);
    goldens
}

fn common() -> impl Iterator<Item = Golden> {
    goldens().into_iter().filter(|golden| golden.sum != "-")
}

fn whole(decoder: &mut Decoder, file: &[u8]) -> Result<Vec<u8>, Unsupported> {
    let jpeg = Jpeg::read(file)?;
    let mut pixels = Vec::new();
    decoder.decode(&jpeg, Region { x: 0, y: 0, width: jpeg.width(), height: jpeg.height() }, &mut pixels)?;
    assert_eq!(pixels.len(), 3 * jpeg.width() * jpeg.height());
    Ok(pixels)
}

/// Numbers that look like chance, below `end`.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn range(&mut self, end: usize) -> (usize, usize) {
        let from = self.below(end);
        (from, 1 + self.below(end - from))
    }
}

#[test]
fn pixels_are_those_of_libjpeg_turbo() {
    let mut decoder = Decoder::new();
    for Golden { name, file, sum } in goldens() {
        let found = match whole(&mut decoder, &file) {
            Ok(pixels) => Sha256::digest(&pixels).iter().map(|byte| format!("{byte:02x}")).collect(),
            Err(Unsupported) => "-".to_string(),
        };
        assert_eq!(found, sum, "{name}");
    }
}

#[test]
fn a_rectangle_is_cut_out_of_the_whole() {
    let (mut decoder, mut numbers) = (Decoder::new(), Numbers(1));
    let mut part = Vec::new();
    for Golden { name, file, .. } in common() {
        let all = whole(&mut decoder, &file).unwrap();
        let jpeg = Jpeg::read(&file).unwrap();
        let (w, h) = (jpeg.width(), jpeg.height());
        for round in 0..60 {
            let ((mut x, mut width), (mut y, mut height)) = (numbers.range(w), numbers.range(h));
            if round % 3 == 0 {
                // A single pixel, and all that lies after it.
                (x, y) = (numbers.below(w), numbers.below(h));
                (width, height) = if round % 2 == 0 { (1, 1) } else { (w - x, h - y) };
            }
            let region = Region { x, y, width, height };
            decoder.decode(&jpeg, region, &mut part).unwrap();
            for (row, part) in part.chunks(3 * width).enumerate() {
                let cut = &all[3 * ((y + row) * w + x)..][..3 * width];
                assert!(part == cut, "{name}: row {row} of {region:?}");
            }
        }
    }
}

/// Of a file that is cut off nothing is decoded, wherever its rectangle lies.
#[test]
fn a_file_without_its_end_is_refused() {
    let mut decoder = Decoder::new();
    for Golden { name, file, .. } in common() {
        for length in (0..file.len()).step_by(1 + file.len() / 300).chain(file.len().saturating_sub(30)..file.len()) {
            let Ok(jpeg) = Jpeg::read(&file[..length]) else { continue };
            let corner = Region { x: 0, y: 0, width: 1, height: 1 };
            assert_eq!(decoder.decode(&jpeg, corner, &mut Vec::new()), Err(Unsupported), "{name}: {length} bytes");
        }
    }
}

/// A segment that is lost, or in another's place, would move all that follows.
#[test]
fn restart_markers_come_in_their_order() {
    let is_restart = |pair: &[u8]| pair[0] == 0xff && (0xd0..=0xd7).contains(&pair[1]);
    let mut found = 0;
    for Golden { name, mut file, .. } in common() {
        let Some(at) = file.windows(2).position(is_restart) else { continue };
        file[at + 1] += 1;
        assert_eq!(whole(&mut Decoder::new(), &file), Err(Unsupported), "{name}");
        found += 1;
    }
    assert!(found > 10, "{found}");
}

/// What is damaged may have other pixels, or none.
#[test]
fn damage_does_no_harm() {
    let (mut decoder, mut numbers) = (Decoder::new(), Numbers(2));
    let mut refused = 0;
    for Golden { file, .. } in goldens() {
        for _ in 0..60 {
            let mut damaged = file.clone();
            for _ in 0..=numbers.below(3) {
                let at = numbers.below(damaged.len());
                damaged[at] = match numbers.below(3) {
                    0 => 0xff,
                    1 => numbers.below(256) as u8,
                    _ => damaged[at] ^ 1 << numbers.below(8),
                };
            }
            let Ok(jpeg) = Jpeg::read(&damaged) else { continue };
            let ((x, width), (y, height)) = (numbers.range(jpeg.width()), numbers.range(jpeg.height()));
            let mut pixels = Vec::new();
            match decoder.decode(&jpeg, Region { x, y, width, height }, &mut pixels) {
                Ok(()) => assert_eq!(pixels.len(), 3 * width * height),
                Err(Unsupported) => refused += 1,
            }
        }
        // The decoder is as good as before.
        let again = whole(&mut decoder, &file);
        assert_eq!(again, whole(&mut Decoder::new(), &file));
    }
    assert!(refused > 100, "{refused}");
}

/// A few bytes that claim to be 4 billion pixels take no memory.
#[test]
fn claims_are_held_against_the_length_of_the_file() {
    let golden = common().find(|golden| golden.name == "420-8x8-edges").unwrap();
    let frame = golden.file.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let mut file = golden.file;
    file[frame + 5..frame + 9].fill(0xff);
    let jpeg = Jpeg::read(&file).unwrap();
    assert_eq!((jpeg.width(), jpeg.height()), (65_535, 65_535));
    let mut pixels = Vec::new();
    let region = Region { x: 0, y: 0, width: 65_535, height: 65_535 };
    assert_eq!(Decoder::new().decode(&jpeg, region, &mut pixels), Err(Unsupported));
    assert_eq!(pixels.capacity(), 0);
}

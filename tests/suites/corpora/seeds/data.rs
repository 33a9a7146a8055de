//! Data sets' files, and images.

use super::List;
use crate::targets::{gz, headers};

/// A header of a tar archive; what it is followed by is put there by the target.
pub fn header(name: &str, size: u64, kind: u8, filler: u8) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[511] = filler;
    block
}

/// The headers of the set's six files.
fn files() -> Vec<Vec<u8>> {
    let names = (1..=5).map(|i| format!("data_batch_{i}.bin")).chain(["test_batch.bin".into()]);
    names.enumerate().map(|(i, name)| header(&format!("cifar-10-batches-bin/{name}"), 3073, b'0', i as u8)).collect()
}

pub fn prefixed(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first], rest].concat()
}

pub fn add(list: &mut List) {
    arrays(list);
    archives(list);
    images(list);
    columns(list);
}

/// Files of pyarrow; and what claims to be one, or more than it is.
fn columns(list: &mut List) {
    let golden = |name: &str| {
        let path = format!("{}/tests/golden/parquet/{name}.parquet", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(path).expect("made by scripts/golden/parquet_files.py")
    };
    for name in ["required", "nested", "types", "lz4", "deltas"] {
        list.seed("parquet", &format!("ok-{name}"), golden(name));
    }
    let whole = golden("required");
    list.seed("parquet", "bad-cut", &whole[..whole.len() / 2]);
    list.seed("parquet", "bad-packing", golden("brotli"));
    list.crash("parquet", "bad-footer", &b"PAR1\xff\xff\xff\x7fPAR1"[..]);
    // Columns within columns, 8000 levels deep.
    let group = [0x35, 0, 0x18, 1, b'a', 0x15, 2, 0];
    let column = [0x15, 2, 0x25, 0, 0x18, 1, b'b', 0];
    let footer =
        [&[0x15, 2, 0x19, 0xfc, 0xc1, 62][..], &group.repeat(8000), &column, &[0x16, 0, 0x19, 0x0c, 0]].concat();
    let length = (footer.len() as u32).to_le_bytes();
    list.crash("parquet", "bad-deep", [&b"PAR1"[..], &footer, &length, b"PAR1"].concat());
    // Schema, rows and groups in a list that says that it has two thousand million.
    list.crash("parquet", "bad-list", &b"PAR1\x15\x02\x19\xfc\xff\xff\xff\xff\x07\x0a\0\0\0PAR1"[..]);
}

fn arrays(list: &mut List) {
    let array = |dims: &[u32], data: &[u8]| {
        let mut out = vec![0, 0, 8, dims.len() as u8];
        out.extend(dims.iter().flat_map(|d| d.to_be_bytes()));
        out.extend(data);
        out
    };
    list.seed("idx", "ok-labels", prefixed(1, &array(&[3], &[1, 2, 3])));
    list.seed("idx", "ok-images", prefixed(3, &array(&[2, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7])));
    list.seed("idx", "ok-gzipped", prefixed(4 | 1, &array(&[3], &[1, 2, 3])));
    list.seed("idx", "ok-gzip", prefixed(1, &gz(&array(&[3], &[1, 2, 3]))));
    list.seed("idx", "ok-two-members", prefixed(1, &[gz(&[0, 0, 8, 1]), gz(&[0, 0, 0, 1, 7])].concat()));
    list.seed("idx", "bad-twice-gzipped", prefixed(4 | 1, &gz(&array(&[1], &[1]))));
    // Few bytes that claim to be many.
    list.crash("idx", "bad-claims", prefixed(4 | 3, &array(&[4096, 1024, 1024], &[1; 8])));
    list.crash("idx", "bad-claims-all", prefixed(3, &array(&[u32::MAX; 3], &[])));
    list.crash("idx", "bad-claims-memory", prefixed(4 | 2, &array(&[1 << 20, 1 << 20], &[])));
    list.crash("idx", "bad-more-behind", prefixed(4 | 1, &[array(&[1], &[1]), vec![0; 3000]].concat()));
    let whole = gz(&array(&[400], &[7; 400]));
    list.crash("idx", "bad-gzip-cut", prefixed(1, &whole[..whole.len() - 5]));
    list.crash("idx", "bad-gzip-checksum", {
        let mut flipped = whole.clone();
        let at = whole.len() - 6;
        flipped[at] ^= 1;
        prefixed(1, &flipped)
    });
}

fn archives(list: &mut List) {
    let whole = files();
    list.seed("tar", "ok-headers", prefixed(b'h', &whole.concat()));
    list.seed("tar", "ok-turned", prefixed(b'h', &whole.iter().rev().flatten().copied().collect::<Vec<u8>>()));
    let archive = headers(&whole.concat());
    list.seed("tar", "ok-gz", prefixed(b'z', &gz(&archive)));
    list.seed("tar", "bad-short", prefixed(b'h', &whole[..5].concat()));
    list.seed(
        "tar",
        "bad-label",
        prefixed(b'h', &{
            let mut all = whole.clone();
            all[0][511] = 10;
            all.concat()
        }),
    );
    list.seed(
        "tar",
        "bad-links",
        prefixed(b'h', &{
            let mut all = whole.clone();
            all.iter_mut().for_each(|h| h[156] = b'2');
            all.concat()
        }),
    );
    list.seed("tar", "bad-xz", prefixed(b'x', b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46\x02\0!\x01\x1c\0\0\0"));
    // Extended headers that claim gigabytes, and some that hold what they claim.
    for (name, kind) in [("pax", b'x'), ("pax-for-all", b'g'), ("long-name", b'L'), ("long-link", b'K')] {
        for (claim, size) in [("bomb", (8 << 30) - 1), ("short", 9000)] {
            let all = [vec![header("././@LongLink", size, kind, b'9')], whole.clone()].concat().concat();
            list.crash("tar", &format!("{name}-{claim}"), prefixed(b'h', &all));
        }
    }
    list.crash(
        "tar",
        "bad-size",
        prefixed(b'h', &{
            let mut all = whole.clone();
            all[0][124..136].copy_from_slice(b"77777777777\0");
            all.concat()
        }),
    );
    list.crash(
        "tar",
        "bad-size-binary",
        prefixed(b'h', &{
            let mut all = whole.clone();
            all[0][124..136].copy_from_slice(&[0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
            all.concat()
        }),
    );
    list.crash(
        "tar",
        "sparse",
        prefixed(b'h', &{
            let mut all = whole.clone();
            all[0][156] = b'S';
            // One piece far out, and the whole size.
            all[0][386..398].copy_from_slice(b"77777770000\0");
            all[0][398..410].copy_from_slice(b"00000006001\0");
            all[0][483..495].copy_from_slice(b"77777777777\0");
            all.concat()
        }),
    );
    list.crash("tar", "bad-behind-the-end", prefixed(b't', &[archive[..4096].to_vec(), vec![0xff; 1024]].concat()));
}

fn images(list: &mut List) {
    use image::{DynamicImage, ImageFormat, RgbImage};
    let picture = DynamicImage::from(RgbImage::from_fn(5, 3, |x, y| image::Rgb([40 * x as u8, 60 * y as u8, 9])));
    let formats = [
        ("png", ImageFormat::Png),
        ("jpeg", ImageFormat::Jpeg),
        ("bmp", ImageFormat::Bmp),
        ("gif", ImageFormat::Gif),
        ("webp", ImageFormat::WebP),
    ];
    for (name, format) in formats {
        let mut bytes = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).expect("memory");
        list.seed("image", &format!("ok-{name}"), bytes.into_inner());
    }
    // A rectangle, and a file of each kind: the smallest that show something.
    for name in ["444-17x9-edges", "422-5x40-edges", "420-37x53-edges", "440-32x32-edges", "grey-16x33-edges"] {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/jpeg/");
        let file = std::fs::read(format!("{file}{name}.jpg")).expect("a golden file");
        list.seed("jpeg", &format!("bad-cut-{}", &name[..3]), [&[9, 70, 120, 200], &file[..file.len() - 2]].concat());
        list.seed("jpeg", &format!("ok-{}", &name[..3]), [&[9, 70, 120, 200], &file[..]].concat());
    }
    // 35 bytes: a canvas of which a side is 0 around a frame that has some ended the whole program.
    for (name, canvas, frame) in [
        ("canvas-width", [0u8, 1], [1, 1]),
        ("canvas-height", [1, 0], [1, 1]),
        ("width", [1, 1], [0, 1]),
        ("height", [1, 1], [1, 0]),
        ("sides", [0, 0], [0, 0]),
    ] {
        let sides = |[w, h]: [u8; 2]| [w, 0, h, 0];
        let mut gif = b"GIF89a".to_vec();
        gif.extend(sides(canvas));
        gif.extend([0x80, 0, 0, 0, 0, 0, 255, 255, 255, b',', 0, 0, 0, 0]);
        gif.extend(sides(frame));
        gif.extend([0, 2, 2, 0x44, 1, 0, b';']);
        list.crash("image", &format!("bad-gif-{name}"), gif);
    }
    bombs(list);
    list.crash("image", "bad-bmp-sides", {
        let mut bmp = b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
        bmp.extend(30_000u32.to_le_bytes());
        bmp.extend(30_000u32.to_le_bytes());
        bmp.extend([1, 0, 24, 0]);
        bmp.extend([0; 28]);
        bmp
    });
    list.crash("image", "bad-bmp-none", {
        let mut bmp = b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
        bmp.extend([0; 8]);
        bmp.extend([1, 0, 24, 0]);
        bmp.extend([0; 28]);
        bmp
    });
}

/// Few bytes that decoders made gigabytes of.
fn bombs(list: &mut List) {
    let chunk = |name: &[u8; 4], content: &[u8]| {
        let mut out = [&name[..], &(content.len() as u32).to_le_bytes(), content].concat();
        out.resize(out.len().next_multiple_of(2), 0);
        out
    };
    let riff = |chunks: &[Vec<u8>]| {
        let content = [&b"WEBP"[..], &chunks.concat()].concat();
        [&b"RIFF"[..], &(content.len() as u32).to_le_bytes(), &content].concat()
    };
    let sides = |w: u32, h: u32| ((w - 1) | (h - 1) << 14).to_le_bytes();
    // One colour, of 16,000 × 16,000 pixels.
    let plain = [&[0x2f][..], &sides(13_300, 13_300), &[0x07, 0x10, 0x11, 0xfd, 0x0f, 0x44, 0x44, 0xff, 0x03]].concat();
    list.crash("image", "bad-webp-sides", riff(&[chunk(b"VP8L", &plain)]));
    // A canvas of one pixel around an image of many, and a chunk that claims to go on.
    let canvas = |flags: u8| chunk(b"VP8X", &[flags, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let lossy = [&[0x10, 0, 0, 0x9d, 0x01, 0x2a][..], &[0xff, 0x3f, 0xff, 0x3f], &[0; 16]].concat();
    list.crash("image", "bad-webp-canvas", riff(&[canvas(0), chunk(b"VP8 ", &lossy)]));
    let mut exif = chunk(b"EXIF", &[7; 8]);
    exif[4..8].copy_from_slice(&0xfff0_0000u32.to_le_bytes());
    let mut file = riff(&[canvas(8), chunk(b"VP8L", &plain), exif]);
    file[4..8].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    list.crash("image", "bad-webp-chunk", file);
    // A progressive JPEG file of 16,383 × 32,768 pixels, none of which is in it.
    let jpeg = |h: u16, w: u16, scans: usize| {
        let mut out = b"\xff\xd8\xff\xdb\0\x43\0".to_vec();
        out.extend([16; 64]);
        out.extend([&[0xff, 0xc2, 0, 11, 8][..], &h.to_be_bytes(), &w.to_be_bytes(), &[1, 1, 0x11, 0]].concat());
        out.extend([&[0xff, 0xc4, 0, 20, 0, 1][..], &[0; 16]].concat());
        out.extend([&[0xff, 0xc4, 0, 21, 0x10, 1, 1][..], &[0; 14], &[0xe0, 0]].concat());
        for _ in 0..scans {
            out.extend([0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0, 0x7f, 0xfe]);
        }
        [&out[..], &[0xff, 0xd9]].concat()
    };
    list.crash("image", "bad-progressive-sides", jpeg(0x3fff, 0x8000, 50));
    list.crash("image", "bad-progressive-scans", jpeg(8, 8, 70));
}

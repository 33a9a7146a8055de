//! Tables that are packed and too large to be unpacked into memory: read in pieces, as those that are not packed.

use super::support::{Place, assert_same_runs};
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fmt::Write as _;
use std::io::Write as _;

/// Rows of a table that has some 200 bytes in each.
const ROWS: usize = 180_000;

fn config(path: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"{path}\"\ntarget = \"price\"\nbatch_size = 256\nvalidation_split = 0.1\nlimit = 4096\n\
         limit_val = 512\n[model]\nlayers = [{{ type = \"linear\", out_features = 1 }}]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n\
         [train]\nepochs = 1\n"
    )
}

/// Long words, numbers and missing cells. Some cells stand in quotes with an end of a line in them.
fn table() -> String {
    let mut text = String::with_capacity(220 * ROWS);
    text += "place,rooms,price\n";
    let words = ["beside the sea", "below the hill", "\"in\nthe town\"", "above the lake"].map(|word| {
        let (begin, end) = if word.ends_with('"') { word.split_at(word.len() - 1) } else { (word, "") };
        format!("{begin}{}{end}", " and so on".repeat(17))
    });
    for row in 0..ROWS {
        let rooms = if row % 11 == 3 { String::new() } else { (row * 7 % 9).to_string() };
        let _ = writeln!(text, "{},{rooms},{}.5", words[row * 5 % 4], row * 13 % 900);
    }
    text
}

/// Packed in two members, as tools that work in parallel do.
fn gzip(text: &[u8]) -> Vec<u8> {
    let member = |part: &[u8]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(part).unwrap();
        gzip.finish().unwrap()
    };
    let (begin, end) = text.split_at(text.len() / 3);
    [member(begin), member(end)].concat()
}

#[test]
fn a_packed_table_is_the_table() {
    let place = Place::with(&config("t.csv"));
    let text = table();
    assert!(text.len() > 32 << 20, "it is in pieces");
    place.write("t.csv.gz", gzip(text.as_bytes()));
    place.write("t.csv.zst", compress_to_vec(text.as_bytes(), CompressionLevel::Fastest));
    place.write("t.csv", &text);
    place.ok("train c.toml --quiet --out plain");
    for name in ["t.csv.gz", "t.csv.zst"] {
        place.write("c.toml", config(name));
        place.ok("train c.toml --quiet --out packed --force");
        let [plain, packed] = ["plain", "packed"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
        assert!(plain.tensors == packed.tensors, "{name}");
        assert_eq!(plain.meta.extra["sample"], packed.meta.extra["sample"], "{name}");
    }
    place.ok("train c.toml --quiet --out again --threads 1");
    assert_same_runs((&place, "packed"), (&place, "again"));
    // An error far down has its line, and a file that ends too early is one.
    let at = text.len() - text.len() / 8;
    let at = at + text[at..].find("and so on,").unwrap();
    let wrong = format!("{},{}", &text[..at], &text[at..]);
    place.write("wrong.csv.gz", gzip(wrong.as_bytes()));
    place.write("wrong.csv", wrong);
    let [plain, packed] = ["wrong.csv", "wrong.csv.gz"]
        .map(|name| place.fails(&format!("check c.toml --set data.path={name}"), 2).replace(name, "wrong.csv"));
    let line = plain.split("line ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(line.parse::<usize>().unwrap() > ROWS / 2 && plain.contains("has 4 cells"), "{plain}");
    assert_eq!(packed.lines().next(), plain.lines().next());
    let whole = gzip(text.as_bytes());
    place.write("cut.csv.gz", &whole[..whole.len() - 9]);
    let message = place.fails("check c.toml --set data.path=cut.csv.gz", 2);
    assert!(message.contains("`cut.csv.gz`: cannot be unpacked"), "{message}");
}

/// What is unpacked is some pieces at a time.
#[cfg(target_os = "linux")]
#[test]
fn a_packed_table_takes_no_more_memory() {
    let place = Place::with(&config("t.csv"));
    let text = table();
    place.write("t.csv.gz", gzip(text.as_bytes()));
    place.write("t.csv", &text);
    let total_memory =
        |name: &str| place.ok(&format!("check c.toml --json --set data.path={name}")).json()["memory"]["total"].clone();
    assert_eq!(total_memory("t.csv"), total_memory("t.csv.gz"));
    let used = ["t.csv", "t.csv.gz"]
        .map(|name| super::memory::most_used(&place, &format!("check c.toml --set data.path={name}")));
    eprintln!("{} KiB used, {} KiB of a packed file", used[0] / 1024, used[1] / 1024);
    assert!(used[1] < used[0] + (text.len() / 3) as u64, "{used:?}, and the text has {} bytes", text.len());
}

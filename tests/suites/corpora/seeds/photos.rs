//! Lists of photos, and archives of photos.

use super::List;
use super::data::{header, prefixed};
use crate::targets::headers;

pub fn add(list: &mut List) {
    lists(list);
    shards(list);
    masks(list);
    kept(list);
}

/// A mask of 6 × 4 pixels in a PNG file: shades of grey, or the numbers of colours; with as many pixels as its header says, or more.
fn masks(list: &mut List) {
    let png = |indexed: bool, width: u32, height: u32| {
        let chunk = |name: &[u8; 4], content: &[u8]| {
            let named = [&name[..], content].concat();
            let mut sum = flate2::Crc::new();
            sum.update(&named);
            [&(content.len() as u32).to_be_bytes()[..], &named, &sum.sum().to_be_bytes()].concat()
        };
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 3 * u8::from(indexed), 0, 0, 0]].concat();
        // Rows without a filter, in one block that is not packed.
        let rows: Vec<u8> = [0, 0, 1, 2, 3, 0, 1].repeat(4);
        let (mut low, mut high) = (1u32, 0u32);
        rows.iter().for_each(|byte| {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        });
        let block = [&[0x78, 0x01, 1, 28, 0, 227, 255][..], &rows, &(high << 16 | low).to_be_bytes()].concat();
        let palette = if indexed { chunk(b"PLTE", &[9; 12]) } else { Vec::new() };
        [&b"\x89PNG\r\n\x1a\n"[..], &chunk(b"IHDR", &header), &palette, &chunk(b"IDAT", &block), &chunk(b"IEND", b"")]
            .concat()
    };
    list.seed("mask", "ok-grey", png(false, 6, 4));
    list.seed("mask", "ok-palette", png(true, 6, 4));
    list.seed("mask", "bad-cut", &png(true, 6, 4)[..60]);
    for (name, width, height) in [("sides", 30_000, 30_000), ("side", 1 << 31, 1), ("none", 0, 4)] {
        list.crash("mask", &format!("bad-palette-{name}"), png(true, width, height));
        list.crash("mask", &format!("bad-grey-{name}"), png(false, width, height));
    }
}

/// An index of one photo that is kept, with its pixels within a file of 4 KiB or beyond it.
fn kept(list: &mut List) {
    let row = |offset: u64, sides: [u32; 3]| {
        let mut row = vec![7; 32];
        row.extend(offset.to_le_bytes());
        row.extend(sides.into_iter().chain([1]).flat_map(u32::to_le_bytes));
        row.resize(88, 3);
        let hash = blake3::hash(&row);
        row.extend(&hash.as_bytes()[..16]);
        [&b"\x0crunner: photos 1"[..], &row].concat()
    };
    list.seed("kept", "ok-row", row(0, [8, 8, 3]));
    list.seed("kept", "bad-cut", &row(0, [8, 8, 3])[..100]);
    list.crash("kept", "bad-beyond", row(4000, [8, 8, 3]));
    list.crash("kept", "bad-sides", row(0, [u32::MAX; 3]));
    list.crash("kept", "bad-offset", row(u64::MAX, [8, 8, 3]));
}

/// A list whose one photo is its own file, which is there.
fn lists(list: &mut List) {
    let seed =
        |list: &mut List, name: &str, how: u8, text: &str| list.seed("list", name, prefixed(how, text.as_bytes()));
    seed(list, "ok-csv", 0, "file_name,label\ninput.csv,a\n");
    seed(list, "ok-quotes", 0, "\u{feff}x,\"file_name\",label,split\r\n\"1,\n\"\"\",input.csv, a ,train\r\n");
    seed(list, "ok-tsv", 1, "image\tclass\ninput.tsv\t7\n");
    seed(list, "ok-jsonl", 2, "{\"file_name\":\"input.jsonl\",\"label\":3}\n");
    seed(list, "ok-several", 4, "file_name,label\ninput.csv,a|b\n");
    seed(list, "ok-several-json", 6, "{\"path\":\"input.jsonl\",\"label\":[\"a\",2,true]}\n");
    seed(list, "ok-numbers", 8, "file_name,label\ninput.csv,-1.5e3\n");
    seed(list, "ok-numbers-json", 10, "{\"file\":\"input.jsonl\",\"label\":[1,2.5]}\n");
    seed(list, "bad-no-column", 0, "name,label\ninput.csv,a\n");
    seed(list, "bad-gone", 0, "file_name,label\ngone.png,a\ngone2.png,b\n");
    seed(list, "bad-infinite", 8, "file_name,label\ninput.csv,1e999\n");
    list.crash("list", "bad-quote", prefixed(0, format!("file_name,label\n\"{}", "x\n".repeat(2000)).as_bytes()));
    list.crash("list", "bad-deep", prefixed(2, format!("{{\"file_name\":{}", "[".repeat(4000)).as_bytes()));
    list.crash(
        "list",
        "bad-widths",
        prefixed(10, b"{\"file\":\"input.jsonl\",\"label\":[1]}\n{\"file\":\"input.jsonl\",\"label\":[1,2]}"),
    );
    list.crash("list", "bad-empty-numbers", prefixed(10, b"{\"file\":\"input.jsonl\",\"label\":[]}"));
    list.crash("list", "bad-nul", prefixed(0, b"file_name,label\na\0b,a\n"));
}

fn shards(list: &mut List) {
    // What each holds is as many of its last byte as it says: the digit of a class.
    let whole = [header("1.jpg", 3, b'0', b'x'), header("1.cls", 1, b'0', b'4')];
    list.seed("shard", "ok-headers", prefixed(b'h', &whole.concat()));
    let archive = headers(&whole.concat());
    list.seed("shard", "ok-archive", prefixed(b't', &archive));
    list.seed("shard", "bad-cut", prefixed(b't', &archive[..514]));
    list.seed("shard", "bad-no-label", prefixed(b'h', &whole[0]));
    list.seed("shard", "bad-twice", prefixed(b'h', &[&whole[0][..], &whole[1], &whole[0]].concat()));
    list.seed(
        "shard",
        "bad-label",
        prefixed(b'h', &[header("1.jpg", 3, b'0', b'x'), header("1.cls", 19, b'0', b'9')].concat()),
    );
    list.seed(
        "shard",
        "bad-json",
        prefixed(b'h', &[header("1.jpg", 3, b'0', b'x'), header("1.json", 9, b'0', b'[')].concat()),
    );
    for (name, kind) in [("pax", b'x'), ("pax-for-all", b'g'), ("long-name", b'L'), ("long-link", b'K')] {
        for (claim, size) in [("bomb", (8 << 30) - 1), ("short", 9000)] {
            let all = [&header("././@LongLink", size, kind, b'9')[..], &whole.concat()].concat();
            list.crash("shard", &format!("{name}-{claim}"), prefixed(b'h', &all));
        }
    }
    let sized = |size: &[u8; 12]| {
        let mut all = whole.clone();
        all[0][124..136].copy_from_slice(size);
        let mut bytes = headers(&all.concat());
        // Claims and nothing after them.
        bytes.truncate(1024);
        prefixed(b't', &bytes)
    };
    list.crash("shard", "bad-size", sized(b"77777777777\0"));
    list.crash("shard", "bad-size-binary", sized(&[0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
}

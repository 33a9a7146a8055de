//! Lists of photos, and archives of photos.

use super::List;
use super::data::{header, prefixed};
use crate::targets::headers;

pub fn add(list: &mut List) {
    lists(list);
    shards(list);
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
        // Claims and nothing behind them.
        bytes.truncate(1024);
        prefixed(b't', &bytes)
    };
    list.crash("shard", "bad-size", sized(b"77777777777\0"));
    list.crash("shard", "bad-size-binary", sized(&[0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
}

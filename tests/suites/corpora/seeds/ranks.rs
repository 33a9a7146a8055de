//! What ranks say first to one another.

use super::List;

fn frame(kind: u8, length: u64, content: &str) -> Vec<u8> {
    [&b"runner"[..], &[kind, 0], &length.to_le_bytes(), content.as_bytes()].concat()
}

pub fn add(list: &mut List) {
    let number = format!("[{}7]", "1,".repeat(31));
    for (name, content) in [
        ("ok-hello", format!("{{\"rank\":1,\"ranks\":2,\"port\":3,\"number\":{number}}}")),
        ("ok-challenge", format!("{{\"number\":{number},\"proof\":{number}}}")),
        ("ok-no-proof", "null".to_owned()),
        ("bad-number", "{\"rank\":1,\"ranks\":2,\"port\":3,\"number\":[1]}".to_owned()),
    ] {
        list.seed("ranks", name, frame(1, content.len() as u64, &content));
    }
    list.crash("ranks", "bad-length", frame(1, u64::MAX, "null"));
    list.crash("ranks", "bad-long", frame(1, 4 << 30, "null"));
    list.crash("ranks", "bad-kind", frame(9, 4, "null"));
    list.crash("ranks", "bad-deep", frame(1, 4000, &"[".repeat(4000)));
}

//! What tokenizers make of a million characters: the tokens that Python's `tokenizers` makes, by `scripts/golden/tokenized.py`.

use crate::data::text::{Choice, Tokenizer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenized").join(name)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The beginning of a text, with characters of several bytes in place of some letters.
fn changed(text: &str) -> String {
    let other = |c| match c {
        'e' => 'é',
        'W' => '名',
        '!' => '😀',
        'x' => '\u{2581}',
        c => c,
    };
    text.chars().take(100_000).map(other).collect()
}

#[test]
fn a_million_characters_become_the_tokens_of_pythons_tokenizers() {
    let Some(data) = std::env::var_os("RUNNER_TEST_DATA").map(PathBuf::from) else {
        eprintln!("skipped: RUNNER_TEST_DATA is not set");
        return;
    };
    let plain = std::fs::read_to_string(data.join("tinyshakespeare/input.txt")).unwrap();
    let changed = changed(&plain);
    let wanted: Value = serde_json::from_slice(&std::fs::read(golden("ids.json")).unwrap()).unwrap();
    let read = |name: &str| Tokenizer::read(&golden(name)).unwrap();
    // One that is learnt here comes back from its file.
    let learnt = Tokenizer::choose(&Choice::Bpe(1024), &[&plain]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, learnt.json().unwrap()).unwrap();
    let again = Tokenizer::read(&file).unwrap();
    assert!(again == learnt);
    let (llama, bert) = (read("llama.json"), read("bert.json"));
    let mut compared = 0;
    for (which, text) in [("plain", &plain), ("changed", &changed)] {
        let characters = Tokenizer::choose(&Choice::Characters, &[text]).unwrap();
        for (name, tokenizer) in [
            ("bytes", &Tokenizer::Bytes),
            ("characters", &characters),
            // What was learnt has one text, and what was read again the other.
            ("gpt2", if which == "plain" { &learnt } else { &again }),
            ("llama", &llama),
            ("bert", &bert),
        ] {
            let wanted = &wanted[name][which];
            let tokens = tokenizer.encode(text, "the text").unwrap();
            let expect_tokens = |key: &str, of: &[u32]| {
                let expected: Vec<u32> = serde_json::from_value(wanted[key].clone()).unwrap();
                assert_eq!(of, expected, "{name}, {which}: {key}");
            };
            expect_tokens("first", &tokens[..8]);
            expect_tokens("last", &tokens[tokens.len() - 8..]);
            assert_eq!(wanted["count"].as_u64(), Some(tokens.len() as u64), "{name}, {which}");
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            assert_eq!(wanted["sha256"], sha256(&bytes), "{name}, {which}");
            assert_eq!(wanted["text_sha256"], sha256(tokenizer.decode(&tokens).unwrap().as_bytes()), "{name}, {which}");
            compared += 1;
        }
    }
    assert_eq!(compared, 10);
}

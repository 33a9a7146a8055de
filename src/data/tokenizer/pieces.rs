//! Pieces of a text, whose tokens one after the other are those of the whole.
//!
//! A `tokenizer.json` keeps the place and the text of each token and of each character while it works, some hundred bytes for each byte of text. In pieces
//! it does so for one piece at a time.

use serde_json::Value;

/// Bytes of a piece, if there is a place to cut it: more where there is none.
const PIECE: usize = 1 << 16;

/// Rules by which tokenizers of language models part words. None looks behind, and after a letter or a digit none takes a space: a word begins there, whatever stood before.
const RULES: [&str; 6] = [
    // GPT-2
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    // GPT-4, Llama 3, Qwen 2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    // GPT-4o
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// The pieces of a text for a tokenizer that parts words at spaces: each but the first begins with a space between letters or digits of ASCII.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    of_size(text, PIECE)
}

fn of_size(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let from = text.as_bytes().get(size..).unwrap_or_default();
        let Some(at) = first_place(from) else { return Some(text) };
        let (piece, more) = text.split_at(size + at);
        rest = Some(more);
        Some(piece)
    })
}

/// Where the first piece of a text may end: before a space between letters or digits of ASCII.
pub fn first_place(text: &[u8]) -> Option<usize> {
    text.windows(3).position(is_place).map(|at| at + 1)
}

/// The last such place.
pub fn last_place(text: &[u8]) -> Option<usize> {
    text.windows(3).rposition(is_place).map(|at| at + 1)
}

fn is_place(three: &[u8]) -> bool {
    three[0].is_ascii_alphanumeric() && three[1] == b' ' && three[2].is_ascii_alphanumeric()
}

/// Whether a `tokenizer.json` parts words at such spaces, so that the tokens of [`pieces`] are those of the whole text. `false` where that is not known.
pub fn parts_words(json: &str) -> bool {
    serde_json::from_str::<Value>(json).is_ok_and(|file| {
        let tokens = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
        tokens.iter().all(stays_in_a_word)
            && keeps_spaces(&file["normalizer"])
            && parts(&file["pre_tokenizer"])
            && file["model"]["dropout"].is_null()
    })
}

/// Whether a token that is looked for in the text itself is never found across such a space, and takes none beside it.
fn stays_in_a_word(token: &Value) -> bool {
    let text = token["content"].as_str().unwrap_or(" ");
    let ends = [text.bytes().next(), text.bytes().last()];
    let is_marked = ends.into_iter().all(|end| end.is_some_and(|end| end.is_ascii_punctuation()));
    let takes = ["lstrip", "rstrip", "single_word"].iter().any(|key| token[*key] != Value::Bool(false));
    !text.is_empty() && !text.contains(char::is_whitespace) && (is_marked || !takes)
}

/// Whether characters are changed without regard to what stands after such a space.
fn keeps_spaces(normalizer: &Value) -> bool {
    let list = |key: &str| normalizer[key].as_array().is_some_and(|all| all.iter().all(keeps_spaces));
    match normalizer["type"].as_str() {
        None => normalizer.is_null(),
        Some("NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "StripAccents" | "BertNormalizer") => true,
        Some("Sequence") => list("normalizers"),
        Some(_) => false,
    }
}

/// Whether text is parted at such spaces, before anything changes them.
fn parts(pre_tokenizer: &Value) -> bool {
    match pre_tokenizer["type"].as_str() {
        Some("ByteLevel") => pre_tokenizer["use_regex"] == Value::Bool(true),
        Some("BertPreTokenizer" | "Whitespace" | "WhitespaceSplit") => true,
        Some("Metaspace") => pre_tokenizer["split"] == Value::Bool(true),
        Some("Split") => {
            let rule = pre_tokenizer["pattern"]["Regex"].as_str();
            let (behaviour, invert) = (&pre_tokenizer["behavior"], &pre_tokenizer["invert"]);
            behaviour == "Isolated" && invert == &Value::Bool(false) && rule.is_some_and(|rule| RULES.contains(&rule))
        }
        // What follows works on the parts of the first.
        Some("Sequence") => {
            let all = pre_tokenizer["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice);
            let known = [
                "ByteLevel",
                "BertPreTokenizer",
                "Whitespace",
                "WhitespaceSplit",
                "Metaspace",
                "Digits",
                "Punctuation",
                "Split",
            ];
            all.first().is_some_and(parts)
                && all[1..].iter().all(|next| next["type"].as_str().is_some_and(|kind| known.contains(&kind)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Words, numbers, signs and spaces of all kinds.
    fn hostile() -> String {
        let parts = [
            "the", " ", "  ", "cat's", "12345", "\n", " \n ", "é", "名前", "!?", "\t", "<s>", "I'LL", "\u{301}",
            "a\r\n", " b", "3 4", "<mask>", "ß",
        ];
        let mut state = 1u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            parts[(state >> 33) as usize % parts.len()]
        };
        (0..4000).map(next).collect()
    }

    fn made(normalizer: &Value, pre_tokenizer: &Value, added: &Value) -> String {
        let mut vocabulary = serde_json::Map::new();
        let bytes = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        let mut letters: Vec<String> = bytes.into_iter().map(String::from).collect();
        letters.sort();
        let more = ["th", "the", "at", "Ġt", "Ġthe", "▁", "▁t", "12", "Ġ1", "Ġ12"].map(String::from);
        for (number, token) in letters.into_iter().chain(more).enumerate() {
            vocabulary.insert(token, number.into());
        }
        let merges = ["t h", "th e", "a t", "Ġ t", "Ġt he", "Ġ th", "▁ t", "1 2", "Ġ 1", "Ġ1 2"];
        json!({ "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null,
            "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary,
                "merges": merges.iter().filter(|pair| **pair != "Ġt he" && **pair != "Ġ th").collect::<Vec<_>>() } })
        .to_string()
    }

    fn split(rule: &str) -> Value {
        json!({ "type": "Split", "pattern": { "Regex": rule }, "behavior": "Isolated", "invert": false })
    }

    fn level(prefix: bool, regex: bool) -> Value {
        json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex })
    }

    #[test]
    fn tokens_of_pieces_are_those_of_the_whole() {
        let text = hostile();
        let added = json!([{ "id": 300, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true },
            { "id": 301, "content": "<mask>", "single_word": false, "lstrip": true, "rstrip": true, "normalized": false, "special": true }]);
        let mut ways: Vec<Value> = vec![level(false, true), level(true, true)];
        for rule in RULES {
            ways.push(json!({ "type": "Sequence", "pretokenizers": [split(rule), level(false, false)] }));
        }
        for scheme in ["always", "first", "never"] {
            ways.push(json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true }));
        }
        for kind in ["BertPreTokenizer", "Whitespace", "WhitespaceSplit"] {
            ways.push(json!({ "type": kind }));
            ways.push(json!({ "type": "Sequence", "pretokenizers": [{ "type": kind }, { "type": "Digits", "individual_digits": true },
                { "type": "Punctuation", "behavior": "Isolated" }, level(true, false)] }));
        }
        let bert = json!({ "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true });
        let normalizers = [
            Value::Null,
            json!({ "type": "NFC" }),
            json!({ "type": "NFKD" }),
            bert,
            json!({ "type": "Sequence", "normalizers": [{ "type": "NFKC" }, { "type": "Lowercase" }] }),
        ];
        for way in &ways {
            for normalizer in &normalizers {
                let file = made(normalizer, way, &added);
                assert!(parts_words(&file), "{way}");
                let tokenizer: tokenizers::Tokenizer = file.parse().unwrap();
                let tokens = |text: &str| tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec();
                let whole = tokens(&text);
                for size in [1, 100] {
                    let all: Vec<&str> = of_size(&text, size).collect();
                    assert!(all.len() > text.len() / 3000 && all.concat() == text);
                    let cut: Vec<u32> = all.into_iter().flat_map(tokens).collect();
                    assert!(cut == whole, "{way}, {normalizer}, pieces of {size}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_known_to_part_words_is_not_cut() {
        let plain = json!([]);
        let gpt2 = level(false, true);
        let refused = [
            made(&json!({ "type": "Prepend", "prepend": "▁" }), &gpt2, &plain),
            made(&Value::Null, &Value::Null, &plain),
            made(&Value::Null, &level(false, false), &plain),
            made(&Value::Null, &split(r"\w+ \w+"), &plain),
            made(
                &Value::Null,
                &json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false }),
                &plain,
            ),
            made(
                &Value::Null,
                &json!({ "type": "Sequence", "pretokenizers": [level(false, false), { "type": "Whitespace" }] }),
                &plain,
            ),
            made(
                &Value::Null,
                &gpt2,
                &json!([{ "id": 300, "content": "the cat", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false }]),
            ),
            made(
                &Value::Null,
                &gpt2,
                &json!([{ "id": 300, "content": "cat", "single_word": true, "lstrip": false, "rstrip": false, "normalized": true, "special": false }]),
            ),
            "{}".into(),
            "[".into(),
        ];
        for file in refused {
            assert!(!parts_words(&file), "{file}");
        }
        assert!(parts_words(&made(&Value::Null, &gpt2, &plain)));
        // There is no place to cut.
        assert_eq!(of_size(&"名前".repeat(90), 10).count(), 1);
    }
}

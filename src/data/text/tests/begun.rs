//! Texts that begin with tokens which their tokenizer puts there.

use super::*;

/// `w0` to `w9`, of which `w1` stands before each text and, if texts `end`, `w2` after it.
fn tokenizer(folder: &Path, ends: bool) -> PathBuf {
    let words: serde_json::Map<_, _> = (0..10).map(|n| (format!("w{n}"), n.into())).collect();
    let special = |id: u32| serde_json::json!({ "id": format!("w{id}"), "ids": [id], "tokens": [format!("w{id}")] });
    let put = |id: u32| serde_json::json!({ "SpecialToken": { "id": format!("w{id}"), "type_id": 0 } });
    let sequence = serde_json::json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let mut single = vec![put(1), sequence];
    single.extend(ends.then(|| put(2)));
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": { "w1": special(1), "w2": special(2) },
        },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": words, "unk_token": "w0" },
    });
    text(folder, "tokenizer.json", json.to_string())
}

/// Two files as one text, and as documents with `w9` after each.
fn of_files(folder: &Path) -> TextOptions {
    let json = tokenizer(folder, true);
    let texts = folder.join("texts");
    fs::create_dir_all(&texts).unwrap();
    for (name, content) in [("a.txt", "w3 w4 "), ("b.txt", ""), ("c.txt", "w5 w6 w7")] {
        text(&texts, name, content);
    }
    options(texts, Choice::Json(json), 1)
}

/// All tokens of a text.
fn tokens(options: TextOptions) -> Vec<i32> {
    let set = open(&Source::Text(Box::new(TextOptions { val_path: Some(options.path.clone()), ..options }))).unwrap();
    // Of one token each, with the one after it.
    let samples = batches(&set.val, 1, false);
    let first = samples.iter().take(1).flat_map(|(_, _, fields)| fields[0].clone());
    first.chain(samples.iter().flat_map(|(_, _, fields)| fields[1].clone())).collect()
}

fn codec(options: TextOptions) -> TextCodec {
    TextCodec::of(&open(&Source::Text(Box::new(options))).unwrap().spec).unwrap().unwrap()
}

#[test]
fn each_file_begins_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let own = || of_files(folder.path());
    let codec = codec(own());
    assert_eq!(codec.begin, [1]);
    assert!(codec == TextCodec::read(&codec.written().unwrap()).unwrap());
    assert_eq!(tokens(own()), [1, 3, 4, 1, 5, 6, 7]);
    // With a token that ends documents, each gets it, an empty one with what stands before it.
    let end = Some(End::Name("w9".into()));
    assert_eq!(tokens(TextOptions { end: end.clone(), ..own() }), [1, 3, 4, 9, 1, 5, 6, 7, 9]);
    // Kept apart, none begins with the end of the one before.
    let apart = Some(ApartOptions { lengths: vec![8], ignore_index: -100 });
    let set = open(&Source::Text(Box::new(TextOptions { end, apart, ..own() }))).unwrap();
    let mut given: Vec<Vec<i32>> = batches(&set.train, 1, false)
        .into_iter()
        .map(|(_, _, fields)| fields[0][..fields[1][0] as usize].to_vec())
        .collect();
    given.sort();
    assert_eq!(given, [vec![1, 3, 4], vec![1, 5, 6, 7]]);
    // A model that was trained without them goes on without them.
    let fitted = Some(Box::new(TextCodec { begin: Vec::new(), ..codec }));
    assert_eq!(tokens(TextOptions { fitted, ..own() }), [3, 4, 5, 6, 7]);
}

#[test]
fn files_of_tokens_say_whether_texts_begin_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let choice = Some(Choice::Json(tokenizer(folder.path(), false)));
    for (name, numbers, begin) in [("a.bin", &[1u16, 3, 4][..], &[1][..]), ("b.bin", &[3, 1, 4], &[])] {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let path = text(folder.path(), name, bytes);
        let content = Content::Tokens { vocabulary: None, tokenizer: choice.clone() };
        assert_eq!(codec(TextOptions { content, ..options(path, Choice::Bytes, 1) }).begin, begin);
    }
}

#[test]
fn prompts_begin_with_them_once() {
    let folder = tempfile::tempdir().unwrap();
    let own = Tokenizer::read(&tokenizer(folder.path(), true)).unwrap();
    assert_eq!(own.before(), [1]);
    let given = |begin: &[u32], text: &str| prompt(&own, [begin, &[9]], text, "it").unwrap();
    assert_eq!(given(&[1], "w3 w4"), [1, 3, 4]);
    assert_eq!(given(&[1], "w1 w3"), [1, 3]);
    assert_eq!(given(&[1], ""), [1]);
    assert_eq!((given(&[], "w3"), given(&[], "")), (vec![3], vec![9]));
    // What is written around a text begins with them, too; a template for conversations has them itself.
    let template = Some("w5 {text}".to_owned());
    let prompts = Prompts { template, chat: None, system: None, begin: vec![1] };
    assert_eq!(prompts.tokens((&own, 9), "w3", "it").unwrap(), [1, 5, 3]);
    let written = text(folder.path(), "chat.jinja", "{% for m in messages %}w6 {{ m.content }}{% endfor %}");
    let chat = Some(Chat::read(&written).unwrap());
    let prompts = Prompts { template: None, chat, system: None, begin: vec![1] };
    assert_eq!(prompts.tokens((&own, 9), "w3", "it").unwrap(), [6, 3]);
}

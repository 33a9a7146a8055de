//! Text that is tokens already, in files.

use super::*;

#[test]
fn token_files_are_read_where_samples_ask() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = |all: &[u16]| all.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>();
    let of = |path: &Path, vocabulary| TextOptions {
        content: Content::Tokens { vocabulary, tokenizer: None },
        ..options(path.to_owned(), Choice::Bytes, 2)
    };
    let bare = text(folder.path(), "a.bin", tokens(&[5, 1, 9, 3, 7]));
    let set = open(&Source::Text(Box::new(of(&bare, Some(10))))).unwrap();
    assert_eq!((set.train.len(), set.train.held_bytes()), (2, 0));
    let all = batches(&set.train, 2, false);
    assert!(all[0].2[0].iter().all(|token| [5, 1, 9, 3, 7].contains(token)));
    // With the header of llm.c, and 16 or 32 bits.
    for (magic, wide) in [(20_240_520i32, false), (20_240_801, true)] {
        let mut content: Vec<u8> = [magic, 1, 5].iter().flat_map(|number| number.to_le_bytes()).collect();
        content.resize(1024, 0);
        let list = [70_000u32, 1, 9, 3, 7].map(|token| if wide { token } else { token % 10 });
        for token in list {
            let bytes = token.to_le_bytes();
            content.extend(&bytes[..if wide { 4 } else { 2 }]);
        }
        let path = text(folder.path(), if wide { "w.bin" } else { "n.bin" }, &content);
        let set = open(&Source::Text(Box::new(TextOptions { context: 4, ..of(&path, Some(80_000)) }))).unwrap();
        assert_eq!(batches(&set.train, 1, false)[0].2[0], list[..4].iter().map(|t| *t as i32).collect::<Vec<_>>());
        content.truncate(content.len() - 2);
        let message =
            refused(of(&text(folder.path(), if wide { "wide.bin" } else { "narrow.bin" }, &content), Some(80_000)));
        assert!(message.contains("which says 5 tokens") && message.contains("the file is cut short"), "{message}");
    }
    let odd = text(folder.path(), "odd.bin", [1, 2, 3]);
    assert!(refused(of(&odd, Some(10))).contains("an odd number"));
    assert!(refused(of(&text(folder.path(), "none.bin", []), Some(10))).contains("is empty"));
    // More than is read at once: every sample is what the file has there, and both of its fields.
    let list: Vec<u16> = (0..10_000).collect();
    let long = text(folder.path(), "long.bin", tokens(&list));
    let set = open(&Source::Text(Box::new(TextOptions { context: 3000, ..of(&long, Some(10_000)) }))).unwrap();
    let [(_, _, fields)] = &batches(&set.train, 3, false)[..] else { panic!("three samples") };
    for (inputs, targets) in fields[0].chunks(3000).zip(fields[1].chunks(3000)) {
        let begin = inputs[0];
        assert!(inputs.iter().zip(begin..).all(|(token, expected)| *token == expected), "{begin}");
        assert!(targets.iter().zip(begin + 1..).all(|(token, expected)| *token == expected), "{begin}");
    }
    // Several files are one row of tokens, whatever the width of each.
    let [a, b] = [&list[..4099], &list[4099..4100]];
    text(folder.path(), "part-0.bin", tokens(a));
    text(folder.path(), "part-1.bin", tokens(b));
    let mut wide: Vec<u8> = [20_240_801i32, 1, 5900].iter().flat_map(|number| number.to_le_bytes()).collect();
    wide.resize(1024, 0);
    wide.extend(list[4100..].iter().flat_map(|token| u32::from(*token).to_le_bytes()));
    text(folder.path(), "part-2.bin", &wide);
    let parts = |vocabulary| TextOptions { context: 3000, ..of(&folder.path().join("part-*.bin"), Some(vocabulary)) };
    let several = open(&Source::Text(Box::new(parts(10_000)))).unwrap();
    assert_eq!(batches(&several.train, 3, false), batches(&set.train, 3, false));
    text(folder.path(), "part-2.bin", &wide[..wide.len() - 4]);
    let message = refused(parts(10_001));
    assert!(message.contains("part-2.bin") && message.contains("cut short"), "{message}");
    // The content of a file is its identity, and not its name or its time.
    let known = |path: &Path| open(&Source::Text(Box::new(of(path, Some(70_000))))).unwrap().fingerprint;
    let copy = text(folder.path(), "copy.bin", tokens(&list));
    let changed: Vec<u16> = list.iter().map(|token| token ^ 1).collect();
    let changed = text(folder.path(), "changed.bin", tokens(&changed));
    assert!(known(&long) == known(&copy) && known(&long) != known(&changed));
    // A token that there is none of is found when a batch asks for it.
    let set = open(&Source::Text(Box::new(of(&bare, Some(9))))).unwrap();
    let mut layout = SlotLayout { inputs: Vec::new(), bytes: 16 };
    layout.inputs.push(SlotInput { input: Input::Field(0), dtype: DType::I32, offset: 0, shape: [2, 2].into() });
    let options = LoaderOptions { batch_size: 2, end_epoch: Some(1), ..LoaderOptions::default() };
    let mut loader = Loader::start(&set.train, options, &layout, vec![buffer(16)], Position::default()).unwrap();
    let message = format!("{:#}", loader.next().err().unwrap());
    assert!(message.contains("token 2 is 9, and the vocabulary has 9, 0 .. 8"), "{message}");
}

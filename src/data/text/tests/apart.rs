//! Documents that are kept apart.

use super::super::apart::{Apart, Ends, documents};
use super::super::tokens::Tokens;
use super::*;
use crate::random::{Purpose, Stream};
use std::sync::Arc;

const END: u32 = 9;

fn apart(lengths: &[usize]) -> Option<ApartOptions> {
    Some(ApartOptions { lengths: lengths.to_vec(), ignore_index: -100 })
}

/// The inputs and the targets of each sample of a split, without the padding of batches.
fn samples(split: &Split) -> Vec<[Vec<i32>; 2]> {
    // Those of one length follow each other.
    let mut all = vec![[Vec::new(), Vec::new()]; split.len()];
    for (lengths, samples, fields) in batches(split, 1, false) {
        let size = fields[1][0] as usize;
        assert!(Some(size as u32) <= lengths.0[0], "{lengths:?}");
        assert!(fields[2][size..].iter().all(|target| *target == -100), "{fields:?}");
        all[samples[0] as usize] = [fields[0][..size].to_vec(), fields[2][..size].to_vec()];
    }
    all
}

fn token_file(folder: &Path, name: &str, tokens: &[u32]) -> PathBuf {
    text(folder, name, tokens.iter().flat_map(|token| (*token as u16).to_le_bytes()).collect::<Vec<u8>>())
}

fn of_tokens(path: PathBuf, context: usize, lengths: &[usize]) -> TextOptions {
    TextOptions {
        content: Content::Tokens { vocabulary: Some(10), tokenizer: None },
        apart: apart(lengths),
        end: Some(End::Number(END)),
        ..options(path, Choice::Bytes, context)
    }
}

#[test]
fn samples_end_where_documents_end() {
    let folder = tempfile::tempdir().unwrap();
    // Two documents, an empty one, and one that has not ended; across two files.
    token_file(folder.path(), "a.bin", &[1, 2, 3, 4, 5, 9, 6]);
    token_file(folder.path(), "b.bin", &[7, 9, 9, 8, 1, 2]);
    let set = open(&Source::Text(Box::new(of_tokens(folder.path().join("*.bin"), 4, &[2, 4])))).unwrap();
    let wanted = [
        [vec![1, 2, 3, 4], vec![2, 3, 4, 5]],
        [vec![5], vec![9]],
        [vec![9, 6, 7], vec![6, 7, 9]],
        [vec![9, 8, 1], vec![8, 1, 2]],
    ];
    assert_eq!(samples(&set.train), wanted);
    assert_eq!(set.spec.lengths, [Lengths::first(2), Lengths::first(4)]);
    let codec = TextCodec::of(&set.spec).unwrap().unwrap();
    assert!(codec.fields() == set.spec.fields && codec == TextCodec::read(&codec.written().unwrap()).unwrap());
}

#[test]
fn every_token_is_a_target_once_within_its_own_document() {
    let folder = tempfile::tempdir().unwrap();
    let mut draws = Stream::new(7, Purpose::Synthetic, 0, 0);
    for case in 0..60 {
        let tokens: Vec<u32> =
            (0..1 + draws.below(90)).map(|_| if draws.below(6) == 0 { END } else { draws.below(9) }).collect();
        let context: usize = 1 + draws.below(12) as usize;
        let mut memory = Tokens::in_memory(if case % 2 == 0 { 10 } else { 70_000 });
        memory.extend(&tokens);
        let file = Tokens::in_files(&token_file(folder.path(), "t.bin", &tokens)).unwrap();
        let found = documents(&memory, Ends::Token { end: END, begun: false }).unwrap();
        assert_eq!(found, documents(&file, Ends::Token { end: END, begun: false }).unwrap());
        let mut targeted = vec![0; tokens.len()];
        if !found.is_empty() {
            let of = apart(&[context.div_ceil(2), context]).unwrap();
            let store = Apart::new(&Arc::new(file), &found, 10, &of).unwrap();
            let split = Split::new(Arc::new(store)).unwrap();
            let samples = samples(&split);
            let targets = found.iter().flat_map(|given| given.clone().map(|at| at + 1));
            let given: Vec<i32> = samples.iter().flat_map(|[given, _]| given.clone()).collect();
            let learnt: Vec<i32> = samples.iter().flat_map(|[_, learnt]| learnt.clone()).collect();
            assert_eq!(
                given,
                found.iter().flat_map(|given| tokens[given.clone()].iter().map(|t| *t as i32)).collect::<Vec<_>>()
            );
            assert_eq!(learnt, targets.clone().map(|at| tokens[at] as i32).collect::<Vec<_>>());
            targets.for_each(|at| targeted[at] += 1);
            for [given, _] in &samples {
                assert!(given.len() <= context && given[1..].iter().all(|token| *token != END as i32), "{given:?}");
            }
        }
        for (at, count) in targeted.into_iter().enumerate() {
            let ends_nothing = tokens[at] == END && (at == 0 || tokens[at - 1] == END);
            let wanted = usize::from(at > 0 && !ends_nothing);
            assert_eq!(count, wanted, "token {at} of {tokens:?}");
        }
    }
}

#[test]
fn files_of_a_text_are_documents() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("a.txt", "abc"), ("b.txt", "d"), ("c.txt", "ef")] {
        text(folder.path(), name, content);
    }
    let own = |end| TextOptions { end, apart: apart(&[8]), ..options(folder.path().to_owned(), Choice::Bytes, 8) };
    let set = open(&Source::Text(Box::new(own(None)))).unwrap();
    let [a, b, c, d, e, f] = [97, 98, 99, 100, 101, 102];
    assert_eq!(samples(&set.train), [[vec![a, b], vec![b, c]], [vec![e], vec![f]]]);
    // With a token that ends them, each gets it.
    let set = open(&Source::Text(Box::new(own(Some(End::Number(0)))))).unwrap();
    let wanted = [[vec![a, b, c], vec![b, c, 0]], [vec![0, d], vec![d, 0]], [vec![0, e, f], vec![e, f, 0]]];
    assert_eq!(samples(&set.train), wanted);
    // Whole documents are held out, at least one of each.
    for (held, documents) in [(1, 1), (4, 1), (6, 2), (8, 2)] {
        let held = TextOptions { hold_out: Some(HoldOut::Count(held)), ..own(Some(End::Number(0))) };
        let set = open(&Source::Text(Box::new(held))).unwrap();
        assert_eq!([samples(&set.train), samples(&set.val)].concat(), wanted);
        assert_eq!(set.val.len(), documents);
    }
}

#[test]
fn documents_that_cannot_be_kept_apart_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = token_file(folder.path(), "a.bin", &[1, 2, 3, 9, 4]);
    let own = || of_tokens(path.clone(), 4, &[4]);
    let message = refused(TextOptions { end: None, apart: apart(&[4]), ..own() });
    assert!(message.contains("no token is known that ends them") && message.contains("`end_token`"), "{message}");
    let message = refused(TextOptions { end: Some(End::Number(10)), apart: apart(&[4]), ..own() });
    assert!(message.contains("`end_token` is 10, and the vocabulary has 10 tokens, 0 .. 9"), "{message}");
    let message = refused(TextOptions { end: Some(End::Name("<eos>".into())), apart: apart(&[4]), ..own() });
    assert!(message.contains("the tokenizer has no token `<eos>`"), "{message}");
    let one = token_file(folder.path(), "one.bin", &[1, 2, 3]);
    let held = TextOptions { hold_out: Some(HoldOut::Count(1)), ..of_tokens(one, 4, &[4]) };
    let message = refused(held);
    assert!(
        message.contains("whole documents") && message.contains("one.bin") && message.contains("`val_path`"),
        "{message}"
    );
    let ends = token_file(folder.path(), "ends.bin", &[9, 9]);
    assert!(refused(of_tokens(ends, 4, &[4])).contains("no documents"));
    // A token that there is not, in a batch: the place in the file.
    let broken = token_file(folder.path(), "broken.bin", &[1, 2, 77, 9]);
    let set = open(&Source::Text(Box::new(of_tokens(broken, 4, &[4])))).unwrap();
    let message = format!("{:#}", tokens_of(&set.train, 0).unwrap_err());
    assert!(message.contains("token 2 is 77, and the vocabulary has 10, 0 .. 9"), "{message}");
}

//! Texts with answers.

use super::super::*;
use super::{batches, text};
use crate::data::{Lengths, Source, open};
use std::path::{Path, PathBuf};

fn answered(path: PathBuf, choice: Choice, lengths: &[[usize; 2]]) -> AnsweredOptions {
    AnsweredOptions {
        path,
        val_path: None,
        text: "text".into(),
        target: "answer".into(),
        choice,
        start: None,
        end: None,
        lengths: lengths.to_vec(),
        ignore_index: -7,
        fitted: None,
    }
}

#[test]
fn answers_are_targets_token_by_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), "t.csv", "answer,text\nba,abab\nab,ba\n,a\naaaaaa,b\n");
    let set = open(&Source::AnsweredTexts(Box::new(answered(path, Choice::Characters, &[[2, 3], [4, 4]])))).unwrap();
    // a and b, and after them the tokens that begin and end answers.
    let codec = TextCodec::of(&set.spec).unwrap().unwrap();
    assert_eq!((codec.vocabulary, codec.fields() == set.spec.fields), (4, true));
    assert_eq!(set.spec.lengths, [Lengths::both(2, 3), Lengths::both(4, 4)]);
    let expect_note = |part: &str| assert!(set.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", set.notes);
    expect_note("1 rows without a text or an answer are left out");
    expect_note("1 of 3 answers are cut to 4 tokens");
    let all = batches(&set.train, 1, false);
    let of = |sample: u32| all.iter().find(|(_, samples, _)| samples[0] == sample).unwrap();
    // The text, what the decoder is given, how long the text is, and the targets.
    let wanted = vec![vec![0, 1, 0, 1], vec![2, 1, 0, 0], vec![4], vec![1, 0, 3, -7]];
    assert_eq!((of(0).0, &of(0).2), (Lengths::both(4, 4), &wanted));
    let wanted = vec![vec![1, 0], vec![2, 0, 1], vec![2], vec![0, 1, 3]];
    assert_eq!((of(1).0, &of(1).2), (Lengths::both(2, 3), &wanted));
    // One that is cut does not end there.
    assert_eq!(of(2).2[1..], [vec![2, 0, 0, 0], vec![1], vec![0, 0, 0, 0]]);
    // One that leaves no room for its end is cut, too.
    let path = text(folder.path(), "e.csv", "answer,text\nabab,a\naba,b\n");
    let full = open(&Source::AnsweredTexts(Box::new(answered(path, Choice::Characters, &[[4, 4]])))).unwrap();
    assert!(full.notes.iter().any(|note| note.contains("1 of 2 answers are cut to 4 tokens")), "{:?}", full.notes);
    assert_eq!(answer_of(&full.train, 0).unwrap(), [0, 1, 0, 1]);
    assert_eq!(answer_of(&full.train, 1).unwrap(), [0, 1, 0, 3]);
    assert_eq!(answer_of(&set.train, 0).unwrap(), [1, 0, 3]);
    assert_eq!(tokens_of(&set.train, 1).unwrap(), [1, 0]);
    // Other rows are read as the model was trained.
    let other = text(folder.path(), "o.csv", "text,answer\nab,abc\n");
    let fitted = Some(Box::new(codec.clone()));
    let options = AnsweredOptions { fitted, ..answered(other, Choice::Bytes, &[[9, 9]]) };
    let why = format!("{:#}", open(&Source::AnsweredTexts(Box::new(options))).unwrap_err());
    assert!(why.contains("o.csv`, row at line 2, the answer, column 3: the character 'c'"), "{why}");
    // A checkpoint may come from any source.
    let read = |change: &dyn Fn(&mut Samples)| {
        let mut codec = codec.clone();
        change(&mut codec.samples);
        TextCodec::read(&codec.written().unwrap())
    };
    let with = |to: &dyn Fn(&mut Vec<[usize; 2]>, &mut u32)| {
        let broken = read(&|samples| match samples {
            Samples::Answered { lengths, end, .. } => to(lengths, end),
            _ => panic!("answers"),
        });
        broken.is_err()
    };
    assert!(!with(&|_, _| ()) && with(&|_, end| *end = 4) && with(&|lengths, _| lengths.clear()));
    assert!(with(&|lengths, _| lengths[0] = [2, 9]) && with(&|lengths, _| lengths[0] = [0, 1]));
}

#[test]
fn a_tokenizer_names_the_tokens_around_answers() {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text_classifiers/bert/tokenizer.json");
    let path = text(folder.path(), "t.csv", "text,answer\nfine bread,cold soup\n");
    let tokenizer = Tokenizer::read(&file).unwrap();
    let token = |name: &str| tokenizer.token(name).unwrap() as i32;
    let open = |start: Option<&str>, end: Option<&str>| {
        let [start, end] = [start, end].map(|name| name.map(str::to_owned));
        let options = answered(path.clone(), Choice::Json(file.clone()), &[[16, 16]]);
        open(&Source::AnsweredTexts(Box::new(AnsweredOptions { start, end, ..options })))
    };
    let set = open(None, None).unwrap();
    let fields = &batches(&set.train, 1, false)[0].2;
    // The text has the tokens that its model expects around it, and the answer its own.
    assert_eq!((fields[0][0], fields[1][0]), (token("[CLS]"), token("[CLS]")));
    let inner = tokenizer.encode("cold soup", "").unwrap();
    assert_eq!((fields[3][inner.len()], fields[3][inner.len() + 1]), (token("[SEP]"), -7));
    assert_eq!(TextCodec::of(&set.spec).unwrap().unwrap().vocabulary, tokenizer.vocabulary());
    let fields = &batches(&open(Some("[PAD]"), Some("[MASK]")).unwrap().train, 1, false)[0].2;
    assert_eq!((fields[1][0], fields[3][inner.len()]), (token("[PAD]"), token("[MASK]")));
    let why = format!("{:#}", open(Some("<pad>"), None).unwrap_err());
    assert!(why.contains("the tokenizer has no token `<pad>`, which `start_token` names"), "{why}");
}

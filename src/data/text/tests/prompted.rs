//! Prompts with answers.

use super::super::*;
use super::{batches, text};
use crate::data::{Lengths, Source, open};
use std::path::{Path, PathBuf};

fn prompted(path: PathBuf, choice: Choice, lengths: &[usize]) -> PromptedOptions {
    PromptedOptions {
        path,
        val_path: None,
        text: "text".into(),
        target: "answer".into(),
        template: None,
        chat: None,
        system: None,
        choice,
        end: None,
        lengths: lengths.to_vec(),
        ignore_index: -7,
        fitted: None,
    }
}

#[test]
fn only_answers_are_targets() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), "t.csv", "answer,text\nba,ab\nb,aaaaaa\n,a\nabbbbbb,ab\nabbbbb,b\n");
    let options = PromptedOptions { template: Some(">{text}".into()), ..prompted(path, Choice::Characters, &[4, 6]) };
    let set = open(&Source::PromptedTexts(Box::new(options))).unwrap();
    // `>`, a and b, and after them the token that ends answers.
    let codec = TextCodec::of(&set.spec).unwrap().unwrap();
    assert_eq!((codec.vocabulary, codec.fields() == set.spec.fields), (4, true));
    assert_eq!(set.spec.lengths, [Lengths::first(4), Lengths::first(6)]);
    let expect_note = |part: &str| assert!(set.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", set.notes);
    expect_note("1 rows without a text or an answer are left out");
    expect_note("3 of 4 prompts are cut at their beginning, so that they have 6 tokens with their answers");
    expect_note("2 of 4 answers are cut to 6 tokens");
    let all = batches(&set.train, 1, false);
    let of = |sample: u32| all.iter().find(|(_, samples, _)| samples[0] == sample).unwrap();
    // What is given, how much that is, and the targets: nothing of the prompt, nor after the end.
    assert_eq!(
        (of(0).0, &of(0).2),
        (Lengths::first(6), &vec![vec![0, 1, 2, 2, 1, 0], vec![5], vec![-7, -7, 2, 1, 3, -7]])
    );
    // The prompt loses its beginning, so that the answer stays.
    assert_eq!(of(1).2, [vec![1, 1, 1, 1, 1, 2], vec![6], vec![-7, -7, -7, -7, 2, 3]]);
    // An answer that is too long by itself does not end, and one token stands before it.
    assert_eq!(of(2).2, [vec![2, 1, 2, 2, 2, 2], vec![6], vec![1, 2, 2, 2, 2, 2]]);
    assert_eq!(of(3).2, [vec![2, 1, 2, 2, 2, 2], vec![6], vec![1, 2, 2, 2, 2, 2]]);
    assert_eq!(prompt_and_answer(&set.train, 0, -7).unwrap(), (vec![0, 1, 2], vec![2, 1, 3]));
    assert_eq!(prompt_and_answer(&set.train, 3, -7).unwrap(), (vec![2], vec![1, 2, 2, 2, 2, 2]));
    // A checkpoint may come from any source.
    let with = |change: &dyn Fn(&mut Vec<usize>, &mut u32)| {
        let mut codec = codec.clone();
        let Samples::Prompted { lengths, end, .. } = &mut codec.samples else { panic!("prompts") };
        change(lengths, end);
        TextCodec::read(&codec.written().unwrap())
    };
    assert_eq!(with(&|_, _| ()).unwrap(), codec);
    assert!(with(&|_, end| *end = 4).is_err() && with(&|lengths, _| lengths.clear()).is_err());
    assert!(with(&|lengths, _| lengths[0] = 9).is_err());
    // Other rows are read as the model was trained, with its template.
    let other = text(folder.path(), "o.csv", "text,answer\na,b\n");
    let fitted = Some(Box::new(codec.clone()));
    let again = PromptedOptions { fitted, ..prompted(other, Choice::Bytes, &[9]) };
    let again = open(&Source::PromptedTexts(Box::new(again))).unwrap();
    assert_eq!(prompt_and_answer(&again.train, 0, -7).unwrap(), (vec![0, 1], vec![2, 3]));
}

#[test]
fn a_conversation_ends_with_the_token_that_its_template_writes() {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text_classifiers/bert/tokenizer.json");
    let tokenizer = Tokenizer::read(&file).unwrap();
    let path = text(folder.path(), "t.csv", "text,answer\nbread,soup\n");
    let open = |template: &str, end: Option<&str>, system: Option<&str>| {
        let chat = Some(text(folder.path(), "t.jinja", template));
        let [end, system] = [end, system].map(|text| text.map(str::to_owned));
        let own = prompted(path.clone(), Choice::Json(file.clone()), &[16]);
        open(&Source::PromptedTexts(Box::new(PromptedOptions { chat, end, system, ..own })))
    };
    let each = "{% for m in messages %}{{ m.content }} [SEP] [PAD] {% endfor %}";
    let token = |name: &str| tokenizer.token(name).unwrap();
    let encoded = |text: &str| tokenizer.encode(text, "").unwrap();
    let set = open(each, Some("[SEP]"), Some("cold")).unwrap();
    let (prompt, answer) = prompt_and_answer(&set.train, 0, -7).unwrap();
    assert_eq!(prompt, encoded("cold [SEP] [PAD] bread [SEP] [PAD] "));
    // What stands after the end is never come to.
    assert_eq!(answer, encoded("soup [SEP]"));
    // A template that does not end an answer gets a token that does.
    let set = open("{% for m in messages %}{{ m.content }} {% endfor %}", Some("[MASK]"), None).unwrap();
    assert_eq!(prompt_and_answer(&set.train, 0, -7).unwrap().1, [encoded("soup"), vec![token("[MASK]")]].concat());
    let why = format!("{:#}", open("{{ messages|length }}{{ messages }}", Some("[SEP]"), None).unwrap_err());
    assert!(why.contains("t.csv`, row at line 2") && why.contains("write `template` in its place"), "{why}");
    let why = format!("{:#}", open(each, Some("<pad>"), None).unwrap_err());
    assert!(why.contains("the tokenizer has no token `<pad>`, which `end_token` names"), "{why}");
}

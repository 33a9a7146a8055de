//! Batches that go on where those before them ended.

use super::*;

/// The letters of the inputs of each batch, and of its targets.
fn letters(split: &Split, batch: usize) -> Vec<[String; 2]> {
    let of = |numbers: &Vec<i32>| numbers.iter().map(|byte| *byte as u8 as char).collect::<String>();
    batches(split, batch, false).iter().map(|(_, _, fields)| [of(&fields[0]), of(&fields[1])]).collect()
}

#[test]
fn streams_go_on_from_batch_to_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), "a.txt", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM");
    let own = TextOptions {
        streams: Some([2, 3]),
        hold_out: Some(HoldOut::Count(16)),
        ..options(path.clone(), Choice::Bytes, 3)
    };
    let set = open(&Source::Text(Box::new(own))).unwrap();
    // 23 letters are two streams of 11, and the last one is left over; each has three pieces with one letter after them.
    let train = letters(&set.train, 2);
    assert_eq!(train, [["abclmn", "bcdmno"], ["defopq", "efgpqr"], ["ghirst", "hijstu"]]);
    // 16 are three of 5.
    assert_eq!(letters(&set.val, 3), [["xyzCDEHIJ", "yzADEFIJK"]]);
    assert_eq!((set.spec.train, set.spec.val), (Some(6), Some(3)));
    let few = TextOptions { streams: Some([10, 10]), ..options(path, Choice::Bytes, 3) };
    let message = refused(few);
    assert!(message.contains("39 tokens are too few for `carry_state` with 10 streams"), "{message}");
}

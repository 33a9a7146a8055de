//! Round trips, and every way in which a file can be broken.

use super::{parse as parse_owned, *};
use crate::checkpoint::Best;
use proptest::prelude::*;
use std::fs;

fn small() -> (Meta, Vec<(&'static str, Tensor)>) {
    let mut meta = Meta::new("seed = 7\nname = \"a \\\"quoted\\\" name\"\n", u64::MAX);
    (meta.epoch, meta.step, meta.batch) = (2, 41, 3);
    meta.best = Some(Best { monitor: "val_loss".into(), value: 0.1 + 0.2 });
    meta.extra = serde_json::json!({ "patience": 3, "sum": 1.0 / 3.0 });
    let ones = Tensor::from_f32([2, 1], &[1.0, -2.5]);
    let steps = Tensor { dtype: DType::I64, shape: vec![], data: 41i64.to_le_bytes().to_vec() };
    let bytes = Tensor { dtype: DType::U8, shape: vec![3], data: vec![1, 2, 3] };
    (
        meta,
        vec![("a.weight", ones.clone()), ("optimizer.step", steps), ("optimizer.exp_avg.a.weight", ones), ("m", bytes)],
    )
}

fn file_of(meta: &Meta, tensors: &[(&str, Tensor)]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("last.safetensors");
    let views: Vec<TensorView> = tensors.iter().map(|(n, t)| t.view(n)).collect();
    write(&path, &views, meta).unwrap();
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["last.safetensors"], "nothing is left beside the file");
    fs::read(&path).unwrap()
}

fn parse(bytes: &[u8]) -> Result<Checkpoint, Reason> {
    parse_owned(bytes.to_vec())
}

#[test]
fn what_was_written_is_read() {
    let (meta, tensors) = small();
    let bytes = file_of(&meta, &tensors);
    let mut got = parse(&bytes).unwrap();
    assert_eq!(got.meta.checksum.len(), CHECKSUM_DIGITS);
    got.meta.checksum.clear();
    assert_eq!(got.meta, meta);
    assert_eq!(got.tensors, tensors.iter().map(|(n, t)| ((*n).to_owned(), t.clone())).collect());
    // The order in which tensors are given does not matter.
    let reversed: Vec<_> = tensors.into_iter().rev().collect();
    assert_eq!(file_of(&meta, &reversed), bytes);
}

#[test]
fn every_cut_is_refused() {
    let (meta, tensors) = small();
    let bytes = file_of(&meta, &tensors);
    for len in 0..bytes.len() {
        let e = parse(&bytes[..len]).expect_err("a file cut short");
        assert!(!matches!(e, Reason::NotACheckpoint), "{len}: {e}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(parse(&longer).is_err());
}

#[test]
fn every_changed_byte_is_refused() {
    let (meta, tensors) = small();
    let bytes = file_of(&meta, &tensors);
    for at in 0..bytes.len() {
        for change in [0x01, 0x20, 0x80, 0xff, bytes[at] ^ b' ', bytes[at] ^ b'\n', bytes[at] ^ b'0'] {
            if change == 0 {
                continue;
            }
            let mut broken = bytes.clone();
            broken[at] ^= change;
            assert!(parse(&broken).is_err(), "byte {at} changed by {change:#x} goes unnoticed");
            // Nor do its weights pass for those of a plain file.
            assert!(open(&broken).is_err(), "byte {at} changed by {change:#x} goes unnoticed as weights");
        }
    }
}

#[test]
fn absurd_headers_are_refused_without_memory_for_them() {
    for length in [u64::MAX, u64::MAX / 2, 1 << 40, 200 << 20] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}      ");
        assert!(matches!(parse(&bytes), Err(Reason::NotSafetensors(_))));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last.safetensors");
        fs::write(&path, &bytes).unwrap();
        assert!(peek_step(&path).is_err());
    }
    let json = br#"{"w":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,0]}}"#;
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json);
    assert!(matches!(parse(&bytes), Err(Reason::Header(why)) if why.contains("take more than there can be")));
}

#[test]
fn files_that_are_no_checkpoints_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    write_weights(&path, &[Tensor::from_f32([1], &[1.0]).view("w")]).unwrap();
    assert!(matches!(read(&path).unwrap_err().reason, Reason::NotACheckpoint));
    assert!(matches!(peek_step(&path).unwrap_err().reason, Reason::NotACheckpoint));
    assert!(matches!(read(&dir.path().join("none")).unwrap_err().reason, Reason::Io(_)));
    // A later version is reported before anything else about it.
    let (meta, tensors) = small();
    let bytes = file_of(&meta, &tensors);
    let mark = b"\\\"version\\\":";
    let at = bytes.windows(mark.len()).position(|w| w == mark).unwrap() + mark.len();
    let mut newer = bytes.clone();
    newer[at] = b'9';
    assert!(matches!(parse(&newer), Err(Reason::Newer { found: 9, known: 1 })));
}

#[test]
fn contradictions_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("last.safetensors");
    let t = Tensor::from_f32([2], &[1.0, 2.0]);
    let short = TensorView { name: "w", dtype: DType::F32, shape: &[3], bytes: &t.data };
    for tensors in [vec![short], vec![t.view("w"), t.view("w")], vec![t.view("__metadata__")]] {
        assert!(matches!(write(&path, &tensors, &Meta::new("", 0)).unwrap_err().reason, Reason::Invalid(_)));
    }
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn a_streamed_file_is_that_of_whole_tensors_at_every_path() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (meta, tensors) = small();
    let views: Vec<TensorView> = tensors.iter().map(|(name, t)| t.view(name)).collect();
    write(&at("whole"), &views, &meta).unwrap();
    let infos: Vec<TensorInfo> = views.iter().map(TensorView::info).collect();
    fs::write(at("b"), "something before").unwrap();
    write_streamed(&[&at("a"), &at("b")], &infos, &meta, &mut |i, put| {
        views[i].bytes.chunks(3).try_for_each(&mut *put)
    })
    .unwrap();
    for name in ["a", "b"] {
        assert!(fs::read(at(name)).unwrap() == fs::read(at("whole")).unwrap(), "{name}");
    }
    assert_eq!(read(&at("b")).unwrap().tensors.len(), tensors.len());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing temporary is left");
}

#[test]
fn a_source_that_fails_or_gives_too_much_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("last.safetensors");
    let info = [TensorInfo { name: "w", dtype: DType::F32, shape: &[2] }];
    let write = |put_bytes: usize, fail: bool| {
        write_streamed(&[&path], &info, &Meta::new("", 0), &mut |_, put| {
            put(&vec![0; put_bytes])?;
            anyhow::ensure!(!fail, "the device is gone");
            Ok(())
        })
    };
    write(8, false).unwrap();
    let before = fs::read(&path).unwrap();
    assert_eq!(write(8, true).unwrap_err().to_string(), "the device is gone");
    for (bytes, how) in [(7, "fewer"), (9, "more")] {
        let e = write(bytes, false).unwrap_err().downcast::<CheckpointError>().unwrap();
        assert!(e.to_string().contains(how), "{e}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("last.safetensors");
    let t = Tensor::from_f32([1], &[1.0]);
    write(&path, &[t.view("w")], &Meta::new("", 1)).unwrap();
    let before = fs::read(&path).unwrap();
    // The temporary file's place is taken by a folder: the write cannot begin.
    fs::create_dir(durable::temporary_name(&path).unwrap()).unwrap();
    assert!(matches!(write(&path, &[t.view("w")], &Meta::new("", 2)).unwrap_err().reason, Reason::Io(_)));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_best_that_is_no_number_is_left_out() {
    let (mut meta, tensors) = small();
    meta.best = Some(Best { monitor: "val_loss".into(), value: f64::NAN });
    assert_eq!(parse(&file_of(&meta, &tensors)).unwrap().meta.best, None);
}

fn any_tensor() -> impl Strategy<Value = Tensor> {
    let dtype = prop::sample::select(vec![DType::F32, DType::F64, DType::U8, DType::U32, DType::I32, DType::I64]);
    (dtype, prop::collection::vec(0usize..4, 0..4)).prop_flat_map(|(dtype, shape)| {
        let bytes = shape.iter().product::<usize>() * dtype.bytes();
        prop::collection::vec(any::<u8>(), bytes).prop_map(move |data| Tensor { dtype, shape: shape.clone(), data })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_content_round_trips(
        tensors in prop::collection::btree_map("[^_]{1,12}", any_tensor(), 0..6),
        config in ".{0,40}",
        value in any::<f64>().prop_filter("finite", |v| v.is_finite()),
        step in any::<u64>(),
    ) {
        let mut meta = Meta::new(config, 3);
        meta.step = step;
        meta.best = Some(Best { monitor: "\u{0}\"\\".into(), value });
        let list: Vec<(&str, Tensor)> = tensors.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let got = parse(&file_of(&meta, &list)).unwrap();
        prop_assert_eq!(&got.tensors, &tensors);
        prop_assert_eq!(got.meta.best.unwrap().value.to_bits(), value.to_bits());
        prop_assert_eq!((got.meta.step, got.meta.config), (meta.step, meta.config));
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), length in 0u64..300) {
        let _ = parse(&bytes);
        let mut framed = length.to_le_bytes().to_vec();
        framed.extend(&bytes);
        let _ = parse(&framed);
    }
}

#[test]
fn a_header_that_contradicts_itself_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.safetensors");
    for (a, b, part) in [
        (
            "[0,16]",
            "[8,24]",
            "`b` begins at byte 8 of the tensors, where `a` is still, which ends at byte 16: they overlap",
        ),
        ("[0,16]", "[20,36]", "no tensor has the bytes 16 to 20, after which `b` begins"),
        ("[0,16]", "[16,8]", "`b` begins at byte 16 of the tensors, and ends at byte 8"),
        ("[0,12]", "[12,28]", "`a` has 12 bytes, and [4] of F32 take 16"),
        ("[0,16]", "[16]", "what it says of `b` cannot be read"),
    ] {
        let json = format!(
            r#"{{"a":{{"dtype":"F32","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"F32","shape":[4],"data_offsets":{b}}}}}"#
        );
        fs::write(&path, [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &[0; 32]].concat()).unwrap();
        let reason = crate::checkpoint::load_tensors(&path).unwrap_err().reason;
        let message = reason.to_string();
        assert!(
            matches!(reason, Reason::Header(_)) && message.contains(part) && !message.contains("JSON"),
            "{message}"
        );
        assert!(!is_checkpoint(&path));
    }
}

/// Sparse files: large by name, nothing on the disk, and all of it zeros.
#[test]
fn what_the_header_does_not_account_for_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let json = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let small = [&(json.len() as u64).to_le_bytes()[..], json, &[0; 8]].concat();
    for start in [&b""[..], &small] {
        fs::write(&path, start).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        if file.set_len(1 << 40).is_err() {
            eprintln!("skipped: no file of 1 TiB can be made here");
            return;
        }
        let reason = read(&path).unwrap_err().reason;
        assert!(matches!(reason, Reason::NotSafetensors(_)), "{reason}");
        let reason = crate::checkpoint::load_tensors(&path).unwrap_err().reason;
        assert!(matches!(reason, Reason::NotSafetensors(_) | Reason::UnknownFormat), "{reason}");
    }
    // A header beyond what the format allows is not read, either.
    fs::write(&path, (1u64 << 39).to_le_bytes()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let reason = read(&path).unwrap_err().reason;
    assert!(matches!(&reason, Reason::NotSafetensors(why) if why.contains("claims a header")), "{reason}");
    assert!(matches!(peek_step(&path).unwrap_err().reason, Reason::NotSafetensors(_)));
    let folder = read(dir.path()).unwrap_err().to_string();
    assert!(folder.ends_with("it is a folder, not a file"), "{folder}");
}

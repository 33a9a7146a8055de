//! Files that PyTorch wrote (`scripts/golden/pth.py`), and pickles made by hand to harm.

use super::*;
use crate::checkpoint::{Reason, TensorView, load_tensors, write_state_dict};
use crate::graph::DType;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn parse_bytes(bytes: &[u8]) -> Result<StateDict, PthError> {
    let (file, size) = (std::io::Cursor::new(bytes), bytes.len() as u64);
    match is_legacy(bytes) {
        true => parse_legacy(file, size, &Choose::default()),
        false => parse(file, size, &Choose::default()),
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pth").join(name)
}

fn load(name: &str) -> StateDict {
    parse_bytes(&std::fs::read(golden(name)).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn refusal(name: &str) -> PthError {
    match load_tensors(&golden(name)).expect_err(name).reason {
        Reason::Pth(e) => e,
        other => panic!("{name}: {other}"),
    }
}

fn f32s(dict: &StateDict, name: &str) -> (Vec<usize>, Vec<f32>) {
    (dict.tensors[name].shape.clone(), dict.tensors[name].to_f32().unwrap())
}

fn i64s(dict: &StateDict, name: &str) -> Vec<i64> {
    let wide = dict.tensors[name].cast(DType::I64).unwrap();
    crate::checkpoint::tensor::elements(&wide.data, i64::from_le_bytes).collect()
}

#[test]
fn state_dicts_read_as_safetensors_would() {
    let expected = load_tensors(&golden("plain.safetensors")).unwrap().tensors;
    assert_eq!(expected.len(), 9);
    for name in
        ["plain.pth", "module_prefix.pth", "nested.pth", "legacy.pth", "loose.pth", "namespace.pth", "averaged.pth"]
    {
        let mut tensors = load(name).tensors;
        let note = crate::checkpoint::unwrap_all_names(&mut tensors);
        assert_eq!(tensors, expected, "{name}");
        let by = match name {
            "module_prefix.pth" => Some("`DataParallel`"),
            "averaged.pth" => Some("`torch.optim.swa_utils.AveragedModel`"),
            _ => None,
        };
        assert_eq!(note, by.map(|by| format!("took `module.` off all names (saved from {by})")), "{name}");
    }
    assert!(load("plain.pth").notes.is_empty());
    for name in ["nested.pth", "loose.pth"] {
        assert_eq!(load(name).notes, ["took the state dict under the key `state_dict`"], "{name}");
    }
    let notes = load("namespace.pth").notes.join("\n");
    assert!(
        notes.contains("under the key `model.state_dict`") && notes.contains("`args` (`argparse.Namespace`)"),
        "{notes}"
    );
}

#[test]
fn windows_of_any_stride_become_dense() {
    let dict = load("strided.pth");
    let base = |r: usize, c: usize| (6 * r + c) as f32;
    let all = |rows: &[usize], cols: &[usize]| -> Vec<f32> {
        rows.iter().flat_map(|r| cols.iter().map(move |c| base(*r, *c))).collect()
    };
    let transposed: Vec<f32> = (0..6).flat_map(|c| (0..4).map(move |r| base(r, c))).collect();
    assert_eq!(f32s(&dict, "transposed"), (vec![6, 4], transposed));
    assert_eq!(f32s(&dict, "offset"), (vec![2, 3], all(&[1, 2], &[2, 3, 4])));
    assert_eq!(f32s(&dict, "stepped"), (vec![2, 2], all(&[0, 2], &[0, 3])));
    assert_eq!(f32s(&dict, "column"), (vec![4], all(&[0, 1, 2, 3], &[1])));
    assert_eq!(f32s(&dict, "expanded"), (vec![2, 3], vec![7.0, 7.0, 7.0, 8.0, 8.0, 8.0]));
    assert_eq!(f32s(&dict, "scalar"), (vec![], vec![3.5]));
    assert_eq!(f32s(&dict, "empty"), (vec![0, 3], vec![]));
    assert_eq!(f32s(&dict, "channels_last"), (vec![1, 2, 3, 4], (0..24).map(|v| v as f32).collect()));
}

#[test]
fn element_types_are_widened() {
    let dict = load("types.pth");
    for name in ["half", "bfloat16", "double", "parameter"] {
        assert_eq!(f32s(&dict, name).1, [0.0, 1.5, -2.25, 100.0], "{name}");
    }
    assert_eq!(i64s(&dict, "int64"), [1, -(1 << 40)]);
    for name in ["int32", "int16", "int8"] {
        assert_eq!(i64s(&dict, name), [1, -2], "{name}");
    }
    assert_eq!(i64s(&dict, "uint8"), [1, 255]);
    assert_eq!(i64s(&dict, "bool"), [1, 0]);
}

#[test]
fn code_is_named_and_never_run() {
    for name in ["malicious.pth", "malicious_protocol4.pth"] {
        assert_eq!(refusal(name), PthError::Global("posix.system".into()));
    }
    assert_eq!(refusal("whole_module.pth"), PthError::Global("torch.nn.modules.container.Sequential".into()));
    let text = load_tensors(&golden("malicious.pth")).unwrap_err().to_string();
    assert!(text.contains("malicious.pth") && text.contains("torch.save(model.state_dict()"), "{text}");
}

/// Each is named by what it is, and the others are read.
#[test]
fn tensors_of_other_kinds_are_named() {
    let some = [("complex", "of torch.complex64"), ("per_tensor", "quantised, of torch.qint8"), ("sparse", "sparse")];
    let more = [
        ("compressed", "sparse"),
        ("float8", "of torch.float8_e4m3fn"),
        ("meta", "on the `meta` device, which has no values"),
        ("parameter", "of torch.float8_e5m2"),
        ("per_channel", "quantised, of torch.quint8"),
        ("uint16", "of torch.uint16"),
    ];
    let owned = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
        list.iter().map(|(name, what)| ((*name).to_owned(), (*what).to_owned())).collect()
    };
    let all: Vec<_> = some.into_iter().chain(more).collect();
    for (name, expected) in [("unread.pth", owned(&all)), ("unread_legacy.pth", owned(&some))] {
        let dict = load(name);
        assert_eq!(f32s(&dict, "weight"), (vec![2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), "{name}");
        let unread = dict.unread.iter().map(|(name, what)| (name.clone(), what.to_string())).collect();
        assert_eq!((dict.tensors.len(), unread), (1, expected), "{name}");
        let notes = load_tensors(&golden(name)).unwrap().notes.join("\n");
        for part in [
            "left out `complex`, which is of torch.complex64",
            "left out `sparse`, which is sparse: in PyTorch, `.to_dense()`",
        ] {
            assert!(notes.contains(part), "{notes}");
        }
    }
    let narrow = load_tensors(&golden("types.pth")).unwrap().narrow;
    let narrow: Vec<(&str, &str)> = narrow.iter().map(|(name, dtype)| (name.as_str(), *dtype)).collect();
    assert_eq!(narrow, [("bool", "torch.bool"), ("int16", "torch.int16"), ("int8", "torch.int8")]);
    let linear = "torch.nn.modules.linear.Linear";
    assert_eq!(refusal("whole_module_legacy.pth"), PthError::Global(linear.into()));
    let within = refusal("module_within.pth").to_string();
    assert!(within.contains(&format!("it holds no state dict but `net` (`{linear}`)")), "{within}");
}

#[test]
fn a_file_that_is_cut_short_is_called_so() {
    for name in ["plain.pth", "legacy.pth"] {
        let whole = std::fs::read(golden(name)).unwrap();
        for left in [whole.len() - 30, whole.len() / 2] {
            assert_eq!(parse_bytes(&whole[..left]).err(), Some(PthError::CutShort(left as u64)), "{name}, {left}");
        }
    }
    let message = PthError::CutShort(1234).to_string();
    assert!(
        message.contains("cut short: it has 1234 bytes") && message.contains("download or copy it again"),
        "{message}"
    );
}

#[test]
fn contents_without_one_state_dict_are_errors() {
    for name in ["ambiguous.pth", "ema.pth"] {
        let e = refusal(name).to_string();
        assert!(e.contains("(`model`, `model_ema`)") && e.contains("`weights_key`"), "{e}");
    }
    let e = refusal("list.pth").to_string();
    assert!(e.contains("a list instead of a state dict"), "{e}");
}

/// A key chooses; else the dict that most names of the model are in, whatever else the file has.
#[test]
fn the_state_dict_that_is_wanted_is_taken() {
    let first = |name: &str, choose: &Choose| {
        let loaded = crate::checkpoint::load_chosen(&golden(name), choose).map(|loaded| loaded.tensors);
        loaded.map(|tensors| tensors["3.bias"].to_f32().unwrap()[0]).map_err(|e| e.to_string())
    };
    let key = |key| Choose { key: Some(key), fits: None };
    let plain = first("plain.pth", &Choose::default()).unwrap();
    assert_eq!(first("ema.pth", &key("model")).unwrap(), plain);
    assert_eq!(first("ema.pth", &key("model_ema")).unwrap(), plain + 1.0);
    assert_eq!(first("namespace.pth", &key("model.state_dict")).unwrap(), plain);
    let error = first("ema.pth", &key("ema")).unwrap_err();
    assert!(error.contains("no state dict under the key `ema`, but under `model`, under `model_ema`"), "{error}");
    let error = first("plain.safetensors", &key("model")).unwrap_err();
    assert!(error.contains("leave `weights_key` out"), "{error}");
    // Two alike, of which only one has names that the model knows.
    let fits = |names: &[&str]| names.iter().filter(|name| **name == "best_acc1").count();
    let loose = crate::checkpoint::load_chosen(&golden("loose.pth"), &Choose { key: None, fits: Some(&fits) }).unwrap();
    assert_eq!(loose.tensors.keys().collect::<Vec<_>>(), ["best_acc1"]);
}

/// Whatever is cut off or changed in a file of the old format, which has no checksums.
#[test]
fn broken_files_of_the_old_format_are_errors_or_other_numbers() {
    let whole = std::fs::read(golden("legacy.pth")).unwrap();
    let expected = load("legacy.pth").tensors;
    for len in 0..whole.len() {
        assert!(parse_bytes(&whole[..len]).is_err(), "cut at {len}");
    }
    for at in 0..whole.len() {
        for bits in [0x01, 0x11, 0xff] {
            let mut broken = whole.clone();
            broken[at] ^= bits;
            let Ok(dict) = parse_bytes(&broken) else { continue };
            for t in dict.tensors.values() {
                assert_eq!(t.data.len(), t.shape.iter().product::<usize>() * t.dtype.bytes(), "byte {at}");
            }
            assert!(dict.tensors.len() <= expected.len(), "byte {at}");
        }
    }
}

#[test]
fn every_cut_and_many_changes_are_errors_or_harmless() {
    let whole = std::fs::read(golden("plain.pth")).unwrap();
    for len in 0..whole.len() {
        assert!(parse_bytes(&whole[..len]).is_err(), "cut at {len}");
    }
    for at in 0..whole.len() {
        let mut broken = whole.clone();
        broken[at] ^= 0x11;
        // Padding and time stamps may change unnoticed; the content has its CRC-32.
        if let Ok(dict) = parse_bytes(&broken) {
            assert_eq!(dict.tensors, load("plain.pth").tensors, "byte {at}");
        }
    }
}

/// A `.pth` file around a pickle, with one storage named `0` of 8 bytes.
fn file(pickle: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in [("a/data.pkl", pickle), ("a/data/0", &[0, 0, 128, 63, 0, 0, 0, 64])] {
        zip.start_file(name, stored).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The pickle of `{"w": tensor}` with a storage of `len` floats.
fn tensor_pickle(key: &str, len: i32, offset: i32, size: &[i32], stride: &[i32]) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, s: &str) {
        out.push(b'X');
        out.extend((s.len() as u32).to_le_bytes());
        out.extend(s.as_bytes());
    }
    fn int(out: &mut Vec<u8>, v: i32) {
        out.push(b'J');
        out.extend(v.to_le_bytes());
    }
    let mut out = b"\x80\x02}".to_vec();
    text(&mut out, "w");
    out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
    text(&mut out, "storage");
    out.extend(b"ctorch\nFloatStorage\n");
    text(&mut out, key);
    text(&mut out, "cpu");
    int(&mut out, len);
    out.extend(b"tQ");
    int(&mut out, offset);
    for list in [size, stride] {
        out.push(b'(');
        list.iter().for_each(|v| int(&mut out, *v));
        out.push(b't');
    }
    out.extend(b"\x89NtRs.");
    out
}

#[test]
fn windows_outside_their_storage_are_refused() {
    let good = parse_bytes(&file(&tensor_pickle("0", 2, 0, &[2], &[1]))).unwrap();
    assert_eq!(f32s(&good, "w"), (vec![2], vec![1.0, 2.0]));
    type Window<'a> = (&'a str, i32, i32, &'a [i32], &'a [i32]);
    let bad: &[Window] = &[
        ("0", 2, 1, &[2], &[1]),
        ("0", 2, 0, &[3], &[1]),
        ("0", 2, 0, &[2], &[2]),
        ("0", 2, -1, &[2], &[1]),
        ("0", 2, 0, &[2], &[-1]),
        ("0", 2, 0, &[-2], &[1]),
        ("0", 2, 0, &[2, 1], &[1]),
        ("0", 3, 0, &[2], &[1]),
        ("0", -1, 0, &[2], &[1]),
        ("0", i32::MAX, 0, &[i32::MAX], &[1]),
        ("1", 2, 0, &[2], &[1]),
        ("../0", 2, 0, &[2], &[1]),
        // A few bytes stretched over all of memory.
        ("0", 2, 0, &[i32::MAX, i32::MAX], &[0, 0]),
        ("0", 2, 0, &[i32::MAX; 4], &[0; 4]),
        ("0", 2, 0, &[1 << 20], &[0]),
        ("0", 2, 0, &[1; 65], &[0; 65]),
    ];
    for (key, len, offset, size, stride) in bad {
        let e = parse_bytes(&file(&tensor_pickle(key, *len, *offset, size, stride))).err();
        assert!(matches!(e, Some(PthError::Malformed(_))), "{key} {len} {offset} {size:?} {stride:?}: {e:?}");
    }
}

/// What is written is read back to the bit: every element type, a scalar, nothing at all. Storages begin at multiples of 64 bytes.
#[test]
fn what_is_written_is_read_back() {
    let tensor = |dtype: DType, shape: &[usize]| {
        let bytes = shape.iter().product::<usize>() * dtype.bytes();
        Tensor { dtype, shape: shape.to_vec(), data: (0..bytes).map(|i| (i * 37 + 11) as u8).collect() }
    };
    let written: BTreeMap<String, Tensor> = [
        ("conv.weight", tensor(DType::F32, &[2, 3, 1, 5])),
        ("bn.num_batches_tracked", tensor(DType::I64, &[])),
        ("größe", tensor(DType::I32, &[7])),
        ("bytes", tensor(DType::U8, &[3])),
        ("nothing", tensor(DType::F32, &[0, 4])),
    ]
    .map(|(name, t)| (name.to_owned(), t))
    .into();
    let views: Vec<TensorView> = written.iter().map(|(name, t)| t.view(name)).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.pth");
    write_state_dict(&path, &views).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(parse_bytes(&bytes).unwrap().tensors, written);
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(&bytes)).unwrap();
    for i in 0..zip.len() {
        let entry = zip.by_index(i).unwrap();
        assert_eq!(entry.data_start().unwrap() % 64, 0, "{}", entry.name().unwrap());
    }
    // Archives of more than 4 GiB have another form, which small ones may have, too.
    let mut large = Vec::new();
    write::write_archive(&mut large, &write::pickle(&views).unwrap(), &views, true).unwrap();
    assert_ne!(large, bytes);
    assert_eq!(parse_bytes(&large).unwrap().tensors, written);
    // Halves are read as single precision.
    let halves = Tensor { dtype: DType::F16, shape: vec![2], data: vec![0x00, 0x3c, 0x00, 0xc0] };
    let brain = Tensor { dtype: DType::BF16, shape: vec![1], data: vec![0x80, 0x3f] };
    write_state_dict(&path, &[halves.view("h"), brain.view("b")]).unwrap();
    let dict = parse_bytes(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((f32s(&dict, "h"), f32s(&dict, "b")), ((vec![2], vec![1.0, -2.0]), (vec![1], vec![1.0])));
    // Nothing is left of what cannot be written.
    let short = TensorView { name: "short", dtype: DType::F32, shape: &[2], bytes: &[0; 4] };
    for (wrong, why) in [(vec![halves.view("h"), brain.view("h")], "is taken"), (vec![short], "are not 4 bytes")] {
        let error = write_state_dict(&dir.path().join("x.pth"), &wrong).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn pickles_that_make_no_sense_are_refused() {
    // Miri takes seconds for what takes a machine a millisecond.
    let many = |n: usize| if cfg!(miri) { n / 1_000 } else { n };
    let deep = [vec![b']'; many(100_000)], vec![b'a'; many(100_000) - 1], b".".to_vec()].concat();
    let itself = b"\x80\x02}q\x00X\x01\x00\x00\x00wh\x00s.".to_vec();
    let doubling = [b"(".to_vec(), [b"2".repeat(many(5_000_000)), b".".to_vec()].concat()].concat();
    for pickle in [
        &b""[..],
        b".",
        b"(.",
        b"0.",
        b"t.",
        b"s.",
        b"}s.",
        b"}(K\x01u.",
        b"h\x00.",
        b"q\x00.",
        b"Nq\x05.",
        b"X\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\xff.",
        b"NR.",
        b"N)R.",
        b"(NQ.",
        b")Q.",
        b"cposix\nsystem\n)R.",
        b"ctorch\nload\n.",
        b"i",
        b"\xff.",
        b"]K\x01a",
        b"(0.",
        b"NK\x01a.",
        b"\x8c\x01\xff.",
        &deep,
        &itself,
        &doubling,
    ] {
        assert!(parse_bytes(&file(pickle)).is_err(), "{:?}", &pickle[..pickle.len().min(20)]);
    }
}

#[test]
fn a_compressed_archive_is_refused() {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let packed = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    zip.start_file("a/data.pkl", packed).unwrap();
    zip.write_all(&vec![b'N'; 1 << 20]).unwrap();
    let bytes = zip.finish().unwrap().into_inner();
    assert!(matches!(parse_bytes(&bytes), Err(PthError::Malformed(why)) if why.contains("compressed")));
    assert!(matches!(
        parse_bytes(&zip::ZipWriter::new(std::io::Cursor::new(Vec::new())).finish().unwrap().into_inner()),
        Err(PthError::NoStateDict(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_instructions_end_without_panic(
        ops in prop::collection::vec(prop::sample::select(&b"(.012NKX}]stuaeqhrjbQRcG)\x80\x81\x85\x86\x87\x88\x8a\x8c\x93\x94\x95\x00\x01w"[..]), 0..60)
    ) {
        let _ = pickle::run(&ops);
    }

    #[test]
    fn a_changed_description_gives_an_error_or_a_tensor_within_its_storage(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut pickle = tensor_pickle("0", 2, 0, &[1, 2], &[2, 1]);
        for (at, byte) in changes {
            let at = at.index(pickle.len());
            pickle[at] = byte;
        }
        if let Ok(dict) = parse_bytes(&file(&pickle)) {
            for t in dict.tensors.values() {
                prop_assert_eq!(t.data.len(), t.shape.iter().product::<usize>() * t.dtype.bytes());
            }
        }
    }
}

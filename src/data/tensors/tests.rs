use super::*;
use proptest::prelude::*;
use safetensors::tensor::TensorView;
use std::fs;

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn f32s(name: &'static str, shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    (name, Dtype::F32, shape.to_vec(), (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect())
}

fn i64s(name: &'static str, values: &[i64]) -> Tensor {
    (name, Dtype::I64, vec![values.len()], values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

fn bytes_of(tensors: &[Tensor]) -> Vec<u8> {
    let views = tensors.iter().map(|(n, d, s, b)| (*n, TensorView::new(*d, s.clone(), b).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

/// The file, written to a folder that lives as long as the first of the pair.
fn file(bytes: &[u8]) -> (tempfile::TempDir, TensorsOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("batch.safetensors");
    fs::write(&path, bytes).unwrap();
    (dir, TensorsOptions { path, num_classes: None, ignore_index: None })
}

fn error(tensors: &[Tensor]) -> String {
    let (_dir, options) = file(&bytes_of(tensors));
    let described = describe(&options).map(|_| ()).unwrap_err();
    let opened = open(&options).map(|_| ()).unwrap_err();
    assert_eq!(format!("{described:#}"), format!("{opened:#}"));
    format!("{opened:#}")
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn images_become_channels_last() {
    let (_dir, options) = file(&bytes_of(&[f32s("inputs", &[2, 2, 1, 3]), i64s("targets", &[4, 1])]));
    let set = open(&options).unwrap();
    assert_eq!(set.spec, describe(&options).unwrap());
    assert_eq!((&set.spec.input, set.spec.dtype), (&[1, 3, 2].into(), DType::F32));
    assert_eq!((&set.spec.targets, set.spec.classes_exact), (&TargetSpec::Classes(5), false));
    assert_eq!(floats(set.train.input(0)), [0., 3., 1., 4., 2., 5.]);
    assert_eq!(floats(set.train.input(1)), [6., 9., 7., 10., 8., 11.]);
    assert_eq!((set.train.label(1), set.val.len()), (Some(1), 0));
}

#[test]
fn byte_images_values_and_a_test_set() {
    let bytes = |name, n: usize| (name, Dtype::U8, vec![n, 3, 1, 2], (0..n as u8 * 6).collect::<Vec<u8>>());
    let (_dir, options) = file(&bytes_of(&[
        bytes("inputs", 3),
        f32s("targets", &[3]),
        bytes("val_inputs", 1),
        f32s("val_targets", &[1]),
    ]));
    let set = open(&options).unwrap();
    assert_eq!((set.spec.dtype, &set.spec.targets), (DType::U8, &TargetSpec::Values([1].into())));
    assert_eq!(set.train.input(1), [6, 8, 10, 7, 9, 11]);
    assert_eq!((floats(set.train.target(2)), set.val.len()), (vec![2.0], 1));
    assert_eq!(set.spec, describe(&options).unwrap());
}

#[test]
fn classes_may_be_given() {
    let (_dir, mut options) = file(&bytes_of(&[f32s("inputs", &[2, 3]), i64s("targets", &[4, 1])]));
    options.num_classes = Some(10);
    let spec = open(&options).unwrap().spec;
    assert_eq!((spec.targets, spec.classes_exact), (TargetSpec::Classes(10), true));
    options.num_classes = Some(4);
    assert!(format!("{:#}", open(&options).unwrap_err()).contains("label 4 of sample 0 is not within 0 .. 3"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let e = error(&[f32s("x", &[2, 3]), i64s("targets", &[0, 1])]);
    assert!(e.contains("it holds: targets, x"), "{e}");
    let e = error(&[f32s("inputs", &[2, 3]), i64s("targets", &[0, 1, 2])]);
    assert!(e.contains("[2, 3]") && e.contains("[3]") && e.contains("number of samples"), "{e}");
    let e = error(&[f32s("inputs", &[2]), i64s("targets", &[0, 1])]);
    assert!(e.contains("[N, F]"), "{e}");
    let e = error(&[i64s("inputs", &[2, 3]), i64s("targets", &[0, 1])]);
    assert!(e.contains(".float()"), "{e}");
    let e = error(&[f32s("inputs", &[0, 3]), i64s("targets", &[])]);
    assert!(e.contains("[0, 3], is empty"), "{e}");
    let good = [f32s("inputs", &[2, 3]), i64s("targets", &[0, 1])];
    let e = error(&[good[0].clone(), good[1].clone(), f32s("val_inputs", &[2, 3])]);
    assert!(e.contains("only one of"), "{e}");
    let e = error(&[good[0].clone(), good[1].clone(), f32s("val_inputs", &[2, 4]), i64s("val_targets", &[0, 1])]);
    assert!(e.contains("differ"), "{e}");
    let (_dir, options) = file(&bytes_of(&[f32s("inputs", &[2, 3]), i64s("targets", &[0, -1])]));
    assert!(format!("{:#}", open(&options).unwrap_err()).contains("label -1 of sample 1"));
    let (_dir, options) = file(&bytes_of(&[f32s("inputs", &[1, 3]), i64s("targets", &[i64::MAX])]));
    assert!(open(&options).is_err());
}

#[test]
fn damage_is_named() {
    let whole = bytes_of(&[f32s("inputs", &[2, 3]), i64s("targets", &[0, 1])]);
    for (bytes, text) in [
        (&whole[..whole.len() - 1], "cut short"),
        (&whole[..30], "cut short"),
        (&whole[..5], "too short"),
        (&b"\xff\xff\xff\xff\xff\xff\xff\xff"[..], "no safetensors file"),
    ] {
        let (_dir, options) = file(bytes);
        let e = format!("{:#}", open(&options).unwrap_err());
        assert!(e.contains(text) && e.contains("batch.safetensors"), "{e}");
    }
    let options = TensorsOptions { path: "no/such/file".into(), num_classes: None, ignore_index: None };
    assert!(format!("{:#}", describe(&options).unwrap_err()).contains("no/such/file"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_bytes_never_panic(at in 0usize..400, to in any::<u8>()) {
        let mut bytes = bytes_of(&[f32s("inputs", &[2, 2, 1, 3]), i64s("targets", &[4, 1])]);
        let at = at % bytes.len();
        bytes[at] = to;
        let (_dir, options) = file(&bytes);
        let _ = open(&options);
    }
}

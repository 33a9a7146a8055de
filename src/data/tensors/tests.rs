use super::*;
use crate::graph::op::{ElementwiseLoss, Loss};

/// How many classes the target has.
fn number(spec: &DataSpec) -> Option<usize> {
    Some(spec.labels()?.number)
}
use proptest::prelude::*;
use safetensors::tensor::TensorView;
use std::fs;

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn numbers(name: &'static str, shape: &[usize], values: &[f32]) -> Tensor {
    (name, Dtype::F32, shape.to_vec(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

fn f32s(name: &'static str, shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
    numbers(name, shape, &values)
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
    (dir, TensorsOptions { path, ..TensorsOptions::default() })
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
    let looks = DataSpec::labelled(DType::F32, [1, 3, 2], 5).seen();
    assert_eq!(set.spec, DataSpec { train: Some(2), val: Some(0), ..looks });
    assert_eq!(floats(set.train.bytes(0, 0).unwrap()), [0., 3., 1., 4., 2., 5.]);
    assert_eq!(floats(set.train.bytes(1, 0).unwrap()), [6., 9., 7., 10., 8., 11.]);
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
    let looks = DataSpec::valued(DType::U8, [1, 2, 3], [1]);
    assert_eq!(set.spec, DataSpec { train: Some(3), val: Some(1), ..looks });
    assert_eq!(set.train.bytes(1, 0).unwrap(), [6, 8, 10, 7, 9, 11]);
    assert_eq!((floats(set.train.bytes(2, 1).unwrap()), set.val.len()), (vec![2.0], 1));
    assert_eq!(set.spec, describe(&options).unwrap());
}

#[test]
fn classes_may_be_given() {
    let (_dir, mut options) = file(&bytes_of(&[f32s("inputs", &[2, 3]), i64s("targets", &[4, 1])]));
    options.num_classes = Some(10);
    let spec = open(&options).unwrap().spec;
    assert_eq!(spec.labels(), Some(&Classes::of(10)));
    options.num_classes = Some(4);
    assert!(format!("{:#}", open(&options).unwrap_err()).contains("label 4 of sample 0 is not within 0 .. 3"));
}

#[test]
fn labels_that_stand_for_none_are_no_classes() {
    let (_dir, mut options) = file(&bytes_of(&[f32s("inputs", &[3, 3]), i64s("targets", &[-100, 1, 255])]));
    for (ignore_index, label) in [(None, "-100"), (Some(255), "-100"), (Some(-100), "")] {
        options.ignore_index = ignore_index;
        match open(&options) {
            Ok(set) => assert_eq!((label, number(&set.spec)), ("", Some(256))),
            Err(e) => {
                assert!(!label.is_empty() && format!("{e:#}").contains(&format!("label {label} of sample 0")), "{e:#}")
            }
        }
    }
    let (_dir, mut options) = file(&bytes_of(&[f32s("inputs", &[2, 3]), i64s("targets", &[1, 255])]));
    options.ignore_index = Some(255);
    assert_eq!(number(&open(&options).unwrap().spec), Some(2));
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
    let options = TensorsOptions { path: "no/such/file".into(), ..TensorsOptions::default() };
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

/// A model that names its inputs takes the tensors of these names, and nothing of the others is looked at.
#[test]
fn every_tensor_can_be_a_field() {
    let tensors = [
        f32s("numbers", &[2, 3]),
        f32s("image", &[2, 1, 1, 2]),
        ("other", Dtype::BOOL, vec![7], vec![0; 7]),
        i64s("targets", &[1, 0]),
        f32s("val_image", &[1, 1, 1, 2]),
        f32s("val_numbers", &[1, 3]),
        i64s("val_targets", &[2]),
    ];
    let (_dir, mut options) = file(&bytes_of(&tensors));
    options.inputs = vec!["image".into(), "numbers".into()];
    let set = open(&options).unwrap();
    assert_eq!(set.spec, describe(&options).unwrap());
    let names: Vec<&str> = set.spec.fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!((names, set.spec.fields[0].shape.dims()), (vec!["image", "numbers", "targets"], &[1, 2, 1][..]));
    assert_eq!(set.spec.fields, set.val.fields());
    assert_eq!(floats(set.train.bytes(1, 1).unwrap()), [3., 4., 5.]);
    assert_eq!((set.val.label(0), number(&set.spec)), (Some(2), Some(3)));
    // The fields alone, without what is learnt.
    let inputs = &set.spec.fields[..2];
    let used = read_fields(&options.path, inputs).unwrap();
    assert_eq!((used.len(), used.bytes(1, 0)), (2, set.train.bytes(1, 0)));
    let other = Field::numbers("numbers", DType::F32, [4]);
    let e = read_fields(&options.path, &[other]).unwrap_err().to_string();
    assert!(e.contains("a sample of `numbers` is f32 [3], but the model takes f32 [4]"), "{e}");
    let e = read_fields(&options.path, &[Field::numbers("x", DType::F32, [3])]).unwrap_err().to_string();
    assert!(e.contains("the tensors that the model takes, `x`; it holds: image, "), "{e}");

    options.inputs[1] = "number".into();
    let e = describe(&options).unwrap_err();
    let known = ["image", "numbers", "other"].map(String::from).to_vec();
    assert_eq!(e.downcast_ref(), Some(&UnknownField { name: "number".into(), known }));
    options.inputs[1] = "other".into();
    let e = format!("{:#}", describe(&options).unwrap_err());
    assert!(e.contains("`other` is BOOL: must be F32"), "{e}");
    let (_dir, other) = file(&bytes_of(&tensors[..5]));
    let e = describe(&TensorsOptions { inputs: vec!["image".into(), "numbers".into()], ..other }).unwrap_err();
    assert!(e.to_string().contains("only some of `val_image`, `val_numbers` and `val_targets`"), "{e}");
}

/// Labels may stand at every position of a sample.
#[test]
fn targets_may_have_any_shape() {
    let (_, dtype, _, bytes) = i64s("targets", &[4, 1, 0, 2, 3, 3]);
    let labels = ("targets", dtype, vec![2, 3], bytes);
    let (_dir, options) = file(&bytes_of(&[f32s("inputs", &[2, 3, 5]), labels]));
    let set = open(&options).unwrap();
    assert_eq!(
        set.spec.fields[1],
        Field::target(TARGETS, FieldKind::Category(set.spec.labels().unwrap().clone()), [3])
    );
    assert_eq!((number(&set.spec), set.train.label(0)), (Some(5), None));
    assert_eq!(set.train.bytes(1, 1).unwrap(), [2i32, 3, 3].map(i32::to_ne_bytes).concat());
    let few = TensorsOptions { num_classes: Some(4), ..options };
    let e = format!("{:#}", open(&few).unwrap_err());
    assert!(e.contains("label 4 of sample 0 is not within 0 .. 3"), "{e}");
}

/// A loss of questions of yes or no, or of counts, means nothing for other numbers. Training would only show a strange loss.
#[test]
fn targets_are_numbers_that_the_loss_is_for() {
    let cases = [
        (
            ElementwiseLoss::BceWithLogits,
            [0., 0.5, 1., 1.5],
            Some(
                "sample 1, counted from 0, has the target 1.5, and the loss `bce_with_logits` is for numbers from 0 to 1",
            ),
        ),
        (ElementwiseLoss::BceWithLogits, [0., 0.5, 1., 0.5], None),
        (
            ElementwiseLoss::PoissonNll,
            [-1., 0., 0., 3.],
            Some(
                "sample 0, counted from 0, has the target -1, and the loss `poisson_nll` is for numbers of at least 0",
            ),
        ),
        (
            ElementwiseLoss::GammaNll,
            [1., 0., 0., 3.],
            Some("sample 0, counted from 0, has the target 0, and the loss `gamma_nll` is for numbers above 0"),
        ),
        (ElementwiseLoss::Mse, [1., -5., 70., 3.], None),
    ];
    for (loss, targets, expected) in cases {
        let tensors = [f32s("inputs", &[2, 5]), numbers("targets", &[2, 2], &targets)];
        let (_dir, options) = file(&bytes_of(&tensors));
        let options = TensorsOptions { range: Loss::from(loss).target_range(), ..options };
        let results = [describe(&options).map(|_| ()), open(&options).map(|_| ())];
        for message in results.map(|result| result.err().map(|e| format!("{e:#}"))) {
            assert_eq!(message.is_some(), expected.is_some(), "{message:?}");
            assert!(message.iter().zip(expected).all(|(message, expected)| message.contains(expected)), "{message:?}");
        }
    }
}

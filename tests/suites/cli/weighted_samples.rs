//! Photos of a list, texts and tensors that weigh differently in the loss.

use super::photos::photo;
use super::support::Place;
use safetensors::tensor::{Dtype, TensorView};

const TRAIN: &str = "[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 4\n";

fn weight(sample: usize) -> f32 {
    [1.0, 2.0, 0.0, 3.0][sample % 4]
}

/// Samples as often as they weigh.
fn repeated(samples: std::ops::Range<usize>) -> Vec<usize> {
    samples.flat_map(|i| std::iter::repeat_n(i, weight(i) as usize)).collect()
}

/// The numbers of a run's last weights, and its loss on what it is validated on.
fn learnt(place: &Place, run: &str) -> Vec<f64> {
    let checkpoint = place.checkpoint(&format!("{run}/last.safetensors"));
    let parameters = checkpoint.tensors.iter().filter(|(name, _)| name.starts_with("net."));
    let numbers =
        parameters.flat_map(|(_, tensor)| tensor.data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
    let mut all: Vec<f64> = numbers.map(f64::from).collect();
    assert!(!all.is_empty());
    all.push(place.metrics(run).iter().filter_map(|line| line["val_loss"].as_f64()).next_back().unwrap());
    all
}

/// Trains with weights, and with samples as often as they weigh: the same comes of it. And other weights make another model.
fn holds(place: &Place, repeat: impl Fn(&Place), without: &str) {
    place.ok("train c.toml --quiet --out weighted");
    place.ok(&format!("train c.toml --quiet --out plain {without}"));
    let figures = place.ok("eval weighted/last.safetensors --json").json();
    repeat(place);
    place.ok(&format!("train c.toml --quiet --out repeated {without}"));
    let [weighted, repeated, plain] = ["weighted", "repeated", "plain"].map(|run| learnt(place, run));
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 2e-5 * (1.0 + a.abs()));
    assert!(close(&weighted, &repeated), "{weighted:?} {repeated:?}");
    assert!(!close(&weighted, &plain));
    // `eval` weighs, too.
    let last = *weighted.last().unwrap();
    assert!((figures["metrics"]["loss"].as_f64().unwrap() - last).abs() < 1e-5 * (1.0 + last), "{figures} {last}");
}

fn photos(place: &Place, train: &[usize], val: &[usize], weight: impl Fn(usize) -> String) {
    let mut list = "file_name,label,split,weight\n".to_owned();
    for (part, samples) in [("train", train), ("val", val)] {
        for i in samples {
            list += &format!("{i}.png,{},{part},{}\n", ["red", "blue"][i % 3 % 2], weight(*i));
        }
    }
    place.write("list.csv", list);
}

fn place_of_photos() -> Place {
    let net = "[model]\nlayers = [{ name = \"net\", layers = [{ type = \"adaptive_avg_pool2d\", output_size = 2 }, \"flatten\", \
               { type = \"linear\", out_features = 2 }] }]\n";
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"image_list\"\npath = \"list.csv\"\nbatch_size = 256\nsample_weight = \"weight\"\n\
         transforms = [{{ type = \"resize\", size = [16, 16] }}, {{ type = \"normalize\", mean = \"imagenet\", std = \"imagenet\" }}]\n\
         {net}{TRAIN}"
    ));
    (0..20).for_each(|i| photo(&place, &format!("{i}.png"), (i % 2) as u8, i));
    photos(&place, &(0..14).collect::<Vec<_>>(), &(14..20).collect::<Vec<_>>(), |i| weight(i).to_string());
    place
}

#[test]
fn photos_of_a_list_have_weights() {
    let place = place_of_photos();
    let repeat = |place: &Place| photos(place, &repeated(0..14), &repeated(14..20), |_| "1".into());
    holds(&place, repeat, "--unset data.sample_weight");
    place.ok("predict weighted 3.png");
    // A photo that is not there has no weight either.
    photos(&place, &[0, 1, 99, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 2, 0, 1], &[14], |i| {
        if i == 99 { "100".into() } else { weight(i + 1).to_string() }
    });
    place.ok("train c.toml --quiet --out missing --set train.epochs=1");
    let broken = |text: &str| {
        photos(&place, &[0, 1], &[2], |i| if i == 1 { text.to_owned() } else { "1".into() });
        place.fails("check c.toml", 2)
    };
    for (text, has) in [("-1", "`-1`"), ("", "nothing"), ("much", "`much`")] {
        let error = broken(text);
        let expected =
            format!("`list.csv`, line 3: the column `weight` has {has}, and a weight is a number of at least 0");
        assert!(error.contains(&expected), "{error}");
    }
    let error = broken("1e39");
    assert!(
        error.contains("line 3: the column `weight` has `1e39`, which is too large for single precision"),
        "{error}"
    );
    photos(&place, &[0, 1], &[2], |_| "0".into());
    let error = place.fails("train c.toml --quiet --out none", 1);
    assert!(error.contains("every weight in the column `weight` is 0"), "{error}");
    let error = place.fails("check c.toml --set data.sample_weight=wieght", 2);
    assert!(error.contains("has no column `wieght`"), "{error}");
}

fn texts(place: &Place, name: &str, samples: &[usize], weight: impl Fn(usize) -> String) {
    let words = ["good", "bad", "film", "story", "dull", "bright"];
    let row = |i: &usize| {
        let text: Vec<&str> = (0..2 + i % 3).map(|at| words[(i * 5 + at * 3) % words.len()]).collect();
        format!("{},{},{}\n", text.join(" "), ["yes", "no"][i % 5 % 2], weight(*i))
    };
    place.write(name, "text,label,weight\n".to_owned() + &samples.iter().map(row).collect::<String>());
}

#[test]
fn texts_have_weights() {
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"text_classes\"\npath = \"t.csv\"\nval_path = \"v.csv\"\nbatch_size = 256\n\
         tokenizer = \"bytes\"\nmax_length = 16\nbuckets = [16]\nsample_weight = \"weight\"\n\
         [model]\nlayers = [{{ name = \"net\", layers = [{{ type = \"embedding_bag\", num_embeddings = \"$vocabulary\", embedding_dim = 4 }}, \
         {{ type = \"linear\", out_features = 2 }}] }}]\n{TRAIN}"
    ));
    let both = |place: &Place, train: &[usize], val: &[usize], weight: &dyn Fn(usize) -> String| {
        texts(place, "t.csv", train, weight);
        texts(place, "v.csv", val, weight);
    };
    both(&place, &(0..30).collect::<Vec<_>>(), &(30..41).collect::<Vec<_>>(), &|i| weight(i).to_string());
    holds(
        &place,
        |place| both(place, &repeated(0..30), &repeated(30..41), &|_| "1".into()),
        "--unset data.sample_weight",
    );
    place.write("new.csv", "text\ngood film\n");
    place.ok("predict weighted new.csv");
    for (text, has) in [("-1", "`-1`"), ("", "nothing"), ("much", "`much`")] {
        texts(&place, "t.csv", &(0..9).collect::<Vec<_>>(), |i| if i == 4 { text.to_owned() } else { "1".into() });
        let error = place.fails("check c.toml", 2);
        let expected =
            format!("`t.csv`, line 6: the column `weight` has {has}, and a weight is a number of at least 0");
        assert!(error.contains(&expected), "{error}");
    }
    texts(&place, "t.csv", &[0, 1, 2], |_| "0".into());
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("every weight in `t.csv` is 0"), "{error}");
    let error = place.fails("check c.toml --set data.sample_weight=wieght", 2);
    assert!(error.contains("`t.csv` has no column `wieght`"), "{error}");
    // A table that is evaluated has weights, or the configuration does without.
    place.write("v.csv", "text,label\ngood film,yes\n");
    texts(&place, "t.csv", &(0..9).collect::<Vec<_>>(), |_| "1".into());
    assert!(place.fails("eval weighted", 2).contains("`v.csv` has no column `weight`"));
    place.ok("eval weighted --unset data.sample_weight");
}

fn tensors(place: &Place, train: &[usize], val: &[usize], weight: impl Fn(usize) -> f32) {
    let mut list: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for (prefix, samples) in [("", train), ("val_", val)] {
        let floats = |of: &dyn Fn(usize) -> Vec<f32>| -> Vec<u8> {
            samples.iter().flat_map(|i| of(*i)).flat_map(f32::to_le_bytes).collect()
        };
        let n = samples.len();
        let inputs = floats(&|i| (0..3).map(|c| ((i * 7 + c * 5) % 11) as f32 / 5.0 - 1.0).collect());
        list.push((format!("{prefix}inputs"), Dtype::F32, vec![n, 3], inputs));
        let labels = samples.iter().flat_map(|i| ((i % 5 % 2) as i64).to_le_bytes()).collect();
        list.push((format!("{prefix}targets"), Dtype::I64, vec![n], labels));
        list.push((format!("{prefix}w"), Dtype::F32, vec![n], floats(&|i| vec![weight(i)])));
    }
    let views = list.iter().map(|(n, d, s, b)| (n.as_str(), TensorView::new(*d, s.clone(), b).unwrap()));
    place.write("s.safetensors", safetensors::serialize(views, None).unwrap());
}

#[test]
fn tensors_have_weights() {
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"tensors\"\npath = \"s.safetensors\"\nbatch_size = 256\nsample_weight = \"w\"\n\
         [model]\nlayers = [{{ name = \"net\", layers = [{{ type = \"linear\", out_features = 2 }}] }}]\n{TRAIN}"
    ));
    let (train, val) = ((0..30).collect::<Vec<_>>(), (30..41).collect::<Vec<_>>());
    tensors(&place, &train, &val, weight);
    holds(&place, |place| tensors(place, &repeated(0..30), &repeated(30..41), |_| 1.0), "--unset data.sample_weight");
    place.ok("predict weighted s.safetensors");
    tensors(&place, &train, &val, |i| if i == 4 { -0.5 } else { 1.0 });
    let error = place.fails("check c.toml", 2);
    assert!(
        error.contains("`w`: number 4, counted from 0, is -0.5, and a weight is a number of at least 0"),
        "{error}"
    );
    tensors(&place, &train, &val, |i| if i == 33 { f32::NAN } else { 1.0 });
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("`val_w`: number 3, counted from 0, is NaN"), "{error}");
    tensors(&place, &train, &val, |_| 0.0);
    assert!(place.fails("check c.toml", 2).contains("every weight is 0"));
    for (name, expected) in
        [("wieght", "must hold the tensors `inputs`, `targets` and `wieght`"), ("inputs", "F32 of shape [N]")]
    {
        let error = place.fails(&format!("check c.toml --set data.sample_weight={name}"), 2);
        assert!(error.contains(expected), "{error}");
    }
}

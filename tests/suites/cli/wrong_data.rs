//! The wrong data is never trained on, and never evaluated on without a word.

use super::support::{Place, real_data};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::path::Path;

/// An IDX file of bytes.
fn idx(dims: &[u32], data: Vec<u8>) -> Vec<u8> {
    let dims_bytes: Vec<u8> = dims.iter().flat_map(|d| d.to_be_bytes()).collect();
    [vec![0, 0, 8, dims.len() as u8], dims_bytes, data].concat()
}

/// A set of one's own in MNIST's format: `n` images to train on and ten to test on, each of one grey that determines its class.
fn own_set(place: &Place, folder: &str, n: u32, first: u8) {
    let labels = |n: u32| -> Vec<u8> { (0..n).map(|i| (i % 10) as u8).collect() };
    let images = |n: u32, first: u8| -> Vec<u8> {
        (0..n).flat_map(|i| [(i % 10) as u8 * 20 + if i == 0 { first } else { 0 }; 784]).collect()
    };
    place.write(&format!("{folder}/train-images-idx3-ubyte"), idx(&[n, 28, 28], images(n, first)));
    place.write(&format!("{folder}/train-labels-idx1-ubyte"), idx(&[n], labels(n)));
    place.write(&format!("{folder}/t10k-images-idx3-ubyte"), idx(&[10, 28, 28], images(10, 0)));
    place.write(&format!("{folder}/t10k-labels-idx1-ubyte"), idx(&[10], labels(10)));
}

const MODEL: &str = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[loss]\n\
                     type = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\n";

fn config(source: &str, root: &Path, more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 1\n[data]\nsource = \"{source}\"\nroot = \"{}\"\ndownload = false\nbatch_size = 20\n{more}\n{MODEL}",
        root.display()
    )
}

#[test]
fn files_of_another_set_are_refused_by_name() {
    let Some(data) = real_data() else { return };
    let (mnist, fashion) = (data.join("mnist"), data.join("fashion-mnist"));
    for (source, root, title, other) in
        [("fashion_mnist", &mnist, "MNIST", "mnist"), ("mnist", &fashion, "Fashion-MNIST", "fashion_mnist")]
    {
        let place = Place::with(&config(source, root, "limit = 40\nlimit_val = 40"));
        let err = place.fails("train c.toml --out r", 1);
        for part in [format!("is a file of {title}, not of "), format!("source = \"{other}\""), "root".into()] {
            assert!(err.contains(&part), "{part}: {err}");
        }
        assert!(!place.path("r").exists(), "no run of the wrong data");
        // The right way round it is trained on.
        place.ok(&format!("train c.toml --out r --quiet --set data.source={other}"));
        // A set of one's own is believed.
        place.ok("train c.toml --out own --quiet --set data.verify=false");
    }
}

#[test]
fn mixed_up_and_damaged_files_of_the_set_are_refused() {
    let Some(data) = real_data() else { return };
    let place = Place::with(&config("mnist", Path::new("m"), ""));
    let names = [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ];
    let whole = names.map(|name| std::fs::read(data.join("mnist").join(name)).unwrap());
    let write = |place: &Place| {
        names.iter().zip(&whole).for_each(|(name, bytes)| drop(place.write(&format!("m/{name}"), bytes)));
    };
    write(&place);
    // Packed in another way, the data is the same.
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&whole[3][..]), &mut plain).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &plain).unwrap();
    let packed = packed.finish().unwrap();
    assert_ne!(packed, whole[3]);
    place.write(&format!("m/{}", names[3]), packed);
    place.ok("train c.toml --out r --quiet --set data.limit=40");
    // One label of the test set is another, and all checksums of the format are right.
    plain[100] = (plain[100] + 1) % 10;
    place.write("m/t10k-labels-idx1-ubyte", &plain);
    let err = place.fails("train c.toml --out r2", 1);
    for part in ["is not MNIST's `t10k-labels-idx1-ubyte`", "SHA-256", "runner data fetch mnist", "verify = false"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    std::fs::remove_file(place.path("m/t10k-labels-idx1-ubyte")).unwrap();
    // Flipped bits, anywhere but in gzip's header, where they give another date or name.
    write(&place);
    let at = |i: usize, of: usize| whole[of].len() / 8 * (2 * i + 1) + 11;
    for (of, name) in names.iter().enumerate() {
        for i in 0..3 {
            let mut bytes = whole[of].clone();
            let at = at(i, of);
            bytes[at] ^= 1 << i;
            place.write(&format!("m/{name}"), &bytes);
            place.fails("train c.toml --out r2", 1);
        }
        place.write(&format!("m/{name}"), &whole[of]);
    }
    place.ok("train c.toml --out r2 --quiet --set data.limit=40");
}

#[test]
fn a_set_of_ones_own_says_that_it_is_one() {
    let place = Place::with(&config("mnist", Path::new("m"), ""));
    own_set(&place, "m", 60, 0);
    let err = place.fails("train c.toml --out r", 1);
    assert!(err.contains("60×28×28 bytes where 60000×28×28") && err.contains("verify = false"), "{err}");
    place.ok("train c.toml --out r --quiet --set data.verify=false");
    // How many there are is known when they are read; before, a configuration is checked without.
    place.ok("check c.toml --set data.verify=false");
}

#[test]
fn data_that_has_changed_between_a_stop_and_a_resume_is_warned_of() {
    let place = Place::with(&config("mnist", Path::new("m"), "verify = false"));
    own_set(&place, "m", 60, 0);
    place.ok("train c.toml --out r --quiet");
    assert!(place.checkpoint("r/last.safetensors").meta.extra["data_fingerprint"].is_string());
    // The same data in another form, and in another folder, is the same.
    let labels = std::fs::read(place.path("m/train-labels-idx1-ubyte")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &labels).unwrap();
    std::fs::rename(place.path("m"), place.path("moved")).unwrap();
    std::fs::remove_file(place.path("moved/train-labels-idx1-ubyte")).unwrap();
    place.write("moved/train-labels-idx1-ubyte.gz", packed.finish().unwrap());
    let moved = "--set data.root=moved";
    let done = place.ok(&format!("train --resume r {moved} --set train.epochs=2"));
    assert!(!done.err.contains("the data has changed"), "{}", done.err);
    assert!(!place.ok(&format!("eval r/last.safetensors {moved} --json")).json()["note"].is_string());
    // One pixel's worth of difference.
    own_set(&place, "moved", 60, 1);
    let eval = place.ok(&format!("eval r/last.safetensors {moved} --json"));
    let note = eval.json()["note"].as_str().map(String::from).unwrap_or_default();
    assert_eq!(note, "the data is not that of the training: the training inputs differ");
    assert!(eval.err.contains(&note), "{}", eval.err);
    let done = place.ok("train --resume r --set train.epochs=3");
    assert!(
        done.err.contains("the data has changed") && done.err.contains("the training inputs differ"),
        "{}",
        done.err
    );
    assert!(!done.err.contains("targets differ"), "{}", done.err);
    let notes: Vec<_> = place.metrics("r").into_iter().filter(|line| line["kind"] == "note").collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    // From then on it is the run's data.
    let done = place.ok("train --resume r --set train.epochs=4");
    assert!(!done.err.contains("the data has changed"), "{}", done.err);
}

#[test]
fn tensors_that_have_changed_are_warned_of_too() {
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 1\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 4\n{MODEL}"
    ));
    let write = |flip: u8| {
        let inputs: Vec<u8> = (0..8 * 3).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let mut labels: Vec<u8> = (0..8i64).flat_map(|i| i.to_le_bytes()).collect();
        labels[0] ^= flip;
        let tensors = [
            ("inputs", TensorView::new(Dtype::F32, vec![8, 3], &inputs).unwrap()),
            ("targets", TensorView::new(Dtype::I64, vec![8], &labels).unwrap()),
        ];
        place.write("t.safetensors", safetensors::serialize(tensors, None).unwrap());
    };
    write(0);
    place.ok("train c.toml --out r --quiet");
    write(1);
    let done = place.ok("train --resume r --set train.epochs=2");
    assert!(done.err.contains("the training targets differ"), "{}", done.err);
    // From then on it is the run's data.
    let done = place.ok("eval r/last.safetensors --split train");
    assert!(!done.err.contains("differ"), "{}", done.err);
}

/// Where the model asks for the number of classes, the error says what is wrong with the file, not that the number is unknown.
#[test]
fn wrong_tensors_are_errors_where_the_number_of_classes_is_asked_for() {
    let model = MODEL.replace("out_features = 10", "out_features = \"$classes\"");
    assert!(model.contains("$classes"));
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 1\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 4\n{model}"
    ));
    let inputs = [0; 8 * 3 * 4];
    let labels: Vec<u8> = (-1..7i64).flat_map(|i| i.to_le_bytes()).collect();
    let tensors = [
        ("inputs", TensorView::new(Dtype::F32, vec![8, 3], &inputs).unwrap()),
        ("targets", TensorView::new(Dtype::I64, vec![8], &labels).unwrap()),
    ];
    place.write("t.safetensors", safetensors::serialize(tensors, None).unwrap());
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("label -1 of sample 0") && !error.contains("is not known"), "{error}");
}

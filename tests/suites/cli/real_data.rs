//! The data sets that the configurations name, where they are at hand.

use super::support::{Place, real_data, repository};
use image::GrayImage;
use runner::data::{Files, Source, open};

#[test]
fn the_cnn_learns_mnist_and_reads_a_digit_from_a_file() {
    let Some(data) = real_data() else { return };
    let place = Place::new();
    let root = data.join("mnist");
    let config = repository("configs/mnist_cnn.toml");
    place.ok(&format!(
        "train {} --quiet --out r --set data.root=\"{}\" --set data.limit=4096 --set data.limit_val=1000 --set data.batch_size=64 --set train.epochs=1",
        config.display(),
        root.display()
    ));
    let lines = place.metrics("r");
    assert!(lines.iter().all(|l| l["kind"] != "note"), "the real data was used");
    let accuracy = lines.last().unwrap()["val_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.85, "{accuracy}");

    // Test images as files: most must be what their labels say.
    let test = open(&Source::Mnist(Files::at(root))).unwrap().val;
    let names: Vec<String> = (0..20).map(|i| format!("{i}.png")).collect();
    let bytes = std::fs::read(data.join("mnist/t10k-labels-idx1-ubyte.gz")).unwrap();
    let labels = gunzip(&bytes);
    let images = gunzip(&std::fs::read(data.join("mnist/t10k-images-idx3-ubyte.gz")).unwrap());
    assert_eq!(test.len(), labels.len() - 8);
    for (i, name) in names.iter().enumerate() {
        let pixels = images[16 + 784 * i..][..784].to_vec();
        GrayImage::from_raw(28, 28, pixels).unwrap().save(place.path(name)).unwrap();
    }
    let json = place.ok(&format!("predict r/best.safetensors {} --json", names.join(" "))).json();
    let right = json.as_array().unwrap().iter().zip(&labels[8..]);
    let right = right.filter(|(r, l)| r["top"][0]["class"].as_u64() == Some(u64::from(**l))).count();
    assert!(right >= 16, "{right} of 20");
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut out).unwrap();
    out
}

#[test]
fn the_augmented_cnn_learns_fashion_mnist() {
    let Some(data) = real_data() else { return };
    let place = Place::new();
    let config = repository("configs/fashion_cnn.toml");
    place.ok(&format!(
        "train {} --quiet --out r --set data.root=\"{}\" --set schedule.warmup_epochs=0 --set data.limit=1024 --set data.limit_val=500 --set train.epochs=1 --set data.batch_size=32",
        config.display(),
        data.join("fashion-mnist").display()
    ));
    let lines = place.metrics("r");
    assert!(lines.iter().all(|l| l["kind"] != "note"));
    let accuracy = lines.last().unwrap()["val_accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.5, "{accuracy}");
}

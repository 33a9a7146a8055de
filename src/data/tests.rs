use super::*;

/// The folder with real data, if this machine has one.
fn real(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("RUNNER_TEST_DATA").map(|root| PathBuf::from(root).join(folder));
    if root.is_none() {
        eprintln!("skipped: RUNNER_TEST_DATA is not set");
    }
    root
}

fn counts(split: &Split) -> Vec<usize> {
    let mut n = vec![0; 10];
    (0..split.len()).for_each(|i| n[split.label(i).unwrap() as usize] += 1);
    n
}

/// Mean and standard deviation of each channel over all pixels.
fn moments(split: &Split) -> Vec<(f64, f64)> {
    let shape = &split.fields()[0].shape;
    let channels = shape.last();
    let mut sums = vec![(0u64, 0u64); channels];
    for i in 0..split.len() {
        for pixel in split.bytes(i, 0).unwrap().chunks_exact(channels) {
            for (sum, v) in sums.iter_mut().zip(pixel) {
                let v = u64::from(*v);
                *sum = (sum.0 + v, sum.1 + v * v);
            }
        }
    }
    let n = (split.len() * shape.len() / channels) as f64;
    sums.iter().map(|(s, q)| (*s as f64 / n, (*q as f64 / n - (*s as f64 / n).powi(2)).sqrt())).collect()
}

/// The fingerprint that stands in for the samples of a verified set is theirs.
fn assert_fingerprint(set: &Dataset) {
    assert_eq!(set.fingerprint.to_string(), Fingerprint::of(&set.train, &set.val).to_string());
}

#[test]
fn real_mnist() {
    let Some(root) = real("mnist") else { return };
    let set = open(&Source::Mnist(Files::at(root))).unwrap();
    assert_fingerprint(&set);
    assert_eq!(set.spec, describe(&Source::Mnist(Files::at("nowhere"))).unwrap());
    assert_eq!(counts(&set.train), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]);
    assert_eq!(counts(&set.val), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]);
    let (mean, std) = moments(&set.train)[0];
    assert!((mean / 255.0 - 0.1307).abs() < 1e-4 && (std / 255.0 - 0.3081).abs() < 1e-4, "{mean} {std}");
}

#[test]
fn real_fashion_mnist() {
    let Some(root) = real("fashion-mnist") else { return };
    let set = open(&Source::FashionMnist(Files::at(root))).unwrap();
    assert_eq!((counts(&set.train), counts(&set.val)), (vec![6000; 10], vec![1000; 10]));
    assert_fingerprint(&set);
    assert_eq!(set.spec.class_names().unwrap()[9], "Ankle boot");
}

#[cfg(unix)]
#[test]
fn real_cifar10() {
    let Some(root) = real("cifar-10") else { return };
    // Where it may be unpacked.
    let dir = tempfile::tempdir().unwrap();
    for name in ["cifar-10-binary.tar.gz", "cifar-10-binary.tar.xz"] {
        if root.join(name).exists() {
            std::os::unix::fs::symlink(root.join(name), dir.path().join(name)).unwrap();
        }
    }
    let source = Source::Cifar10(Files::at(dir.path()));
    let set = open(&source).unwrap();
    assert_fingerprint(&set);
    assert_eq!(set.spec, describe(&Source::Cifar10(Files::at("nowhere"))).unwrap());
    assert_eq!((counts(&set.train), counts(&set.val)), (vec![5000; 10], vec![1000; 10]));
    let expected = [(125.307, 62.993), (122.950, 62.089), (113.865, 66.705)];
    for ((mean, std), (m, s)) in moments(&set.train).into_iter().zip(expected) {
        assert!((mean - m).abs() < 1e-3 && (std - s).abs() < 1e-3, "{mean} {std}");
    }
}

#[test]
fn missing_files_lead_to_the_fallback_only_if_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let source = Source::Cifar10(Files::at(dir.path().join("none")));
    let quiet = &mut |_: Event| ();
    let e = obtain(&source, &Missing::default(), quiet).unwrap_err();
    assert!(e.is::<MissingFiles>());

    // No server listens there.
    let mirrors = vec!["http://127.0.0.1:1".to_string()];
    let missing = Missing { download: true, mirrors, fallback_digits: false };
    let e = format!("{:#}", obtain(&source, &missing, quiet).unwrap_err());
    assert!(e.contains("cifar10") && e.contains("127.0.0.1:1/cifar-10-binary.tar.gz"), "{e}");

    let set = obtain(&source, &Missing { fallback_digits: true, ..missing }, quiet).unwrap();
    assert_eq!(set.spec.fields, describe(&source).unwrap().fields);
    let note = set.note.unwrap();
    assert!(note.contains("bundled digits") && note.contains("127.0.0.1:1"), "{note}");
}

#[test]
fn damaged_files_never_lead_to_the_fallback() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cifar-10-binary.tar.gz"), b"damaged").unwrap();
    let missing = Missing { fallback_digits: true, ..Missing::default() };
    let e = obtain(&Source::Cifar10(Files::at(dir.path())), &missing, &mut |_| ()).unwrap_err();
    assert!(format!("{e:#}").contains("damaged"));
}

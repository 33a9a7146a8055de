use super::*;

/// As numpy's `rint(a * λ + b * (1 - λ))` in single precision (timm's `FastCollateMixup`).
#[test]
fn bytes_are_mixed_as_in_timm() {
    let (a, b) = ([0, 255, 10, 200, 77, 3, 128, 254], [255, 0, 11, 13, 78, 250, 128, 253]);
    for (share, first, second) in [
        (0.3, [178, 76, 11, 69, 78, 176, 128, 253], [76, 178, 10, 144, 77, 77, 128, 254]),
        (0.5, [128, 128, 10, 106, 78, 126, 128, 254], [128, 128, 10, 106, 78, 126, 128, 254]),
        (0.8125, [48, 207, 10, 165, 77, 49, 128, 254], [207, 48, 11, 48, 78, 204, 128, 253]),
        (1.0, a, b),
        (0.0, b, a),
    ] {
        let (mut x, mut y) = (a, b);
        mean(DType::U8, share, &mut x, &mut y);
        assert_eq!((x, y), (first, second), "{share}");
    }
}

/// As torchvision's `CutMix.make_params` with these draws.
#[test]
fn windows_are_torchvisions() {
    for (sides, middle, share, expected, stays) in [
        ([20, 30], [10, 15], 0.75, [5, 8, 15, 22], 0.7666666666666666),
        ([20, 30], [0, 29], 0.4, [0, 18, 7, 30], 0.86),
        ([7, 5], [6, 0], 0.0, [3, 0, 7, 2], 0.7714285714285715),
        ([224, 224], [100, 180], 0.9, [65, 145, 135, 215], 0.90234375),
    ] {
        let [top, left, bottom, right] = window(sides, middle, share);
        assert_eq!([top, left, bottom, right], expected);
        let area = ((bottom - top) * (right - left)) as f64 / (sides[0] * sides[1]) as f64;
        assert!((1.0 - area - stays).abs() < 1e-12);
    }
}

/// Five images of 4 × 6 bytes, of which all bytes are 10 times the number, the numbers as labels, and room for shares of 5 classes.
fn slot() -> (Vec<u8>, Mixer) {
    let mut slot: Vec<u8> = (0..5u8).flat_map(|i| [10 * i; 24]).collect();
    slot.extend((0..5i32).flat_map(i32::to_ne_bytes));
    slot.resize(140 + 5 * 20, 0xff);
    let labels = Column { offset: 120, bytes: 4 };
    let shares = Some((Column { offset: 140, bytes: 20 }, 5));
    let images = Images { column: Column { offset: 0, bytes: 24 }, dtype: DType::U8, sides: [4, 6], pixel: 1 };
    let mixing = Mixing { mixup: None, cutmix: None, switch_prob: 0.5 };
    (slot, Mixer { mixing, seed: 3, images, targets: Targets::Classes { labels, shares } })
}

fn at(epoch: u64, batch: usize) -> Position {
    Position { epoch, batch }
}

fn labels(slot: &[u8]) -> Vec<i32> {
    slot[120..140].as_chunks().0.iter().map(|b| i32::from_ne_bytes(*b)).collect()
}

fn shares(slot: &[u8]) -> Vec<Vec<f32>> {
    let all: Vec<f32> = slot[140..].as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
    all.chunks(5).map(<[f32]>::to_vec).collect()
}

/// Targets have the shares that the images have, of the sample itself and of that at the other end.
#[test]
fn images_and_targets_are_mixed_alike() {
    let mix = Mix { alpha: 1.0, p: 1.0, epochs: None };
    let (mut swapped, mut kept) = (0, 0);
    for batch in 0..40 {
        let (mut mixed, mixer) = slot();
        let mixing = match batch % 2 {
            0 => Mixing { mixup: Some(mix), ..mixer.mixing },
            _ => Mixing { cutmix: Some(mix), ..mixer.mixing },
        };
        Mixer { mixing, ..mixer }.mix(at(1, batch), 5, &mut mixed).unwrap();
        let (found, classes) = (shares(&mixed), labels(&mixed));
        for i in 0..5 {
            let own = found[i][i];
            let partner = 4 - i;
            assert!((found[i].iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert!(i == partner || (own + found[i][partner] - 1.0).abs() < 1e-6);
            // The mean of the image shows the share, too.
            let mean = mixed[24 * i..][..24].iter().map(|v| f32::from(*v)).sum::<f32>() / 24.0;
            let expected = if i == partner { 20.0 } else { 10.0 * (own * i as f32 + (1.0 - own) * partner as f32) };
            assert!((mean - expected).abs() <= 0.501, "{mean}, not {expected}");
            assert_eq!(classes[i], if own < 0.5 { partner } else { i } as i32);
            *(if own < 0.5 { &mut swapped } else { &mut kept }) += 1;
        }
    }
    assert!(swapped > 30 && kept > 30, "{swapped} {kept}");
}

/// Which of the two, how often, and until when.
#[test]
fn one_of_two_ways_by_chance() {
    let (_, mixer) = slot();
    let (mixup, cutmix) = (Mix { alpha: 0.4, p: 0.75, epochs: Some(2) }, Mix { alpha: 1.0, p: 1.0, epochs: Some(3) });
    let mixer = Mixer { mixing: Mixing { mixup: Some(mixup), cutmix: Some(cutmix), switch_prob: 0.25 }, ..mixer };
    let drawn = |epoch| (0..800).map(move |batch| mixer.draw(at(epoch, batch)));
    let count = |epoch| {
        let [mut means, mut windows, mut none] = [0; 3];
        drawn(epoch).for_each(|change| match change {
            Some(Change::Mean(_)) => means += 1,
            Some(Change::Window(_)) => windows += 1,
            None => none += 1,
        });
        [means, windows, none]
    };
    // 3/4 · 3/4, 1/4 and 3/4 · 1/4 of 800.
    for (found, expected) in count(1).into_iter().zip([450i32, 200, 150]) {
        assert!((found - expected).abs() < 50, "{found}, not {expected}");
    }
    assert_eq!(count(2), [0, 800, 0], "after the last epoch of the first");
    assert_eq!(count(3), [0, 0, 800]);
    assert!(drawn(0).eq(drawn(0)) && !drawn(0).eq(drawn(1)));
    // A batch that is not mixed has one class a sample.
    let (mut plain, _) = slot();
    let before = plain.clone();
    mixer.mix(at(3, 0), 5, &mut plain).unwrap();
    assert_eq!(plain[..140], before[..140]);
    assert!(shares(&plain).iter().enumerate().all(|(i, row)| (0..5).all(|c| row[c] == f32::from(u8::from(c == i)))));
}

#[test]
fn numbers_are_mixed_as_they_are_and_labels_must_be_classes() {
    let (_, mixer) = slot();
    let mix = Mix { alpha: 2.0, p: 1.0, epochs: None };
    let targets = Targets::Numbers(Column { offset: 48, bytes: 4 });
    let mixer = Mixer { mixing: Mixing { mixup: Some(mix), ..mixer.mixing }, ..mixer };
    let mut two: Vec<u8> = [[0u8; 24], [200; 24]].concat();
    two.extend([0f32, 1.0].iter().flat_map(|v| v.to_ne_bytes()));
    Mixer { targets, ..mixer }.mix(at(0, 0), 2, &mut two).unwrap();
    let numbers: Vec<f32> = two[48..].as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
    assert!(numbers[0] > 0.0 && numbers[0] < 1.0 && (numbers[0] + numbers[1] - 1.0).abs() < 1e-6);
    assert!((f32::from(two[0]) - 200.0 * numbers[0]).abs() <= 0.5);

    let (mut bad, _) = slot();
    bad[124..128].copy_from_slice(&5i32.to_ne_bytes());
    let error = mixer.mix(at(0, 0), 5, &mut bad).unwrap_err().to_string();
    assert_eq!(error, "the label 5 is no class, and only samples of a class can be mixed");
}

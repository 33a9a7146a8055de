mod goldens;

use super::*;
use crate::random::Purpose;
use proptest::prelude::*;

/// A list of moves, one after the other with real borders: slow, and plain.
fn plainly(transforms: &[Transform], draws: &mut Stream, image: &[u8], [mut h, mut w]: [usize; 2]) -> Vec<u8> {
    let mut image = image.to_vec();
    let bordered = |image: &[u8], [h, w]: [usize; 2], [l, t, r, b]: [usize; 4]| {
        let mut padded = vec![0; (h + t + b) * (w + l + r)];
        for y in 0..h {
            padded[(y + t) * (w + l + r) + l..][..w].copy_from_slice(&image[y * w..][..w]);
        }
        (padded, [h + t + b, w + l + r])
    };
    for t in transforms {
        match *t {
            Transform::RandomCrop { size: [th, tw], padding: [l, t, r, b] } => {
                // As with `pad_if_needed`.
                let (more_h, more_w) = (th.saturating_sub(h + t + b), tw.saturating_sub(w + l + r));
                let (padded, [ph, pw]) = bordered(&image, [h, w], [l + more_w, t + more_h, r + more_w, b + more_h]);
                let i = if ph > th { draws.below((ph - th + 1) as u32) as usize } else { 0 };
                let j = if pw > tw { draws.below((pw - tw + 1) as u32) as usize } else { 0 };
                image = (0..th).flat_map(|y| padded[(y + i) * pw + j..][..tw].to_vec()).collect();
                (h, w) = (th, tw);
            }
            Transform::CenterCrop { size: [th, tw] } => {
                let (more_h, more_w) = (th.saturating_sub(h), tw.saturating_sub(w));
                let border = [more_w / 2, more_h / 2, more_w.div_ceil(2), more_h.div_ceil(2)];
                let (padded, [ph, pw]) = bordered(&image, [h, w], border);
                let [i, j] = [ph - th, pw - tw].map(|spare| (spare as f64 / 2.0).round_ties_even() as usize);
                image = (0..th).flat_map(|y| padded[(y + i) * pw + j..][..tw].to_vec()).collect();
                (h, w) = (th, tw);
            }
            Transform::RandomHorizontalFlip { p } => {
                if draws.uniform() < p {
                    image.chunks_mut(w).for_each(<[u8]>::reverse);
                }
            }
            Transform::RandomVerticalFlip { p } => {
                if draws.uniform() < p {
                    image = image.chunks(w).rev().flatten().copied().collect();
                }
            }
            _ => panic!("{t:?} moves no pixels"),
        }
    }
    image
}

fn moves() -> impl Strategy<Value = Transform> {
    let p = || prop_oneof![Just(0.0), Just(0.5), Just(1.0)];
    prop_oneof![
        (prop::array::uniform2(1usize..9), prop::array::uniform4(0usize..12))
            .prop_map(|(size, padding)| Transform::RandomCrop { size, padding }),
        prop::array::uniform2(1usize..12).prop_map(|size| Transform::CenterCrop { size }),
        p().prop_map(|p| Transform::RandomHorizontalFlip { p }),
        p().prop_map(|p| Transform::RandomVerticalFlip { p }),
    ]
}

/// Two numbers in order.
fn range(from: f64, to: f64) -> impl Strategy<Value = [f64; 2]> {
    prop::array::uniform2(from..=to).prop_map(|[a, b]| [a.min(b), a.max(b)])
}

fn interpolation() -> impl Strategy<Value = Interpolation> {
    prop_oneof![Just(Interpolation::Nearest), Just(Interpolation::Bilinear), Just(Interpolation::Bicubic)]
}

fn augmentations() -> impl Strategy<Value = AugmentChanges> {
    let policies = [Policy::ImageNet, Policy::Cifar10, Policy::Svhn];
    prop_oneof![
        (1usize..4, 0usize..9, prop_oneof![Just(0.0), 0.0f64..60.0], 9usize..40)
            .prop_map(|(ops, magnitude, std, bins)| AugmentChanges::Rand { ops, magnitude, std, bins }),
        (2usize..40).prop_map(|bins| AugmentChanges::TrivialWide { bins }),
        prop::sample::select(policies.to_vec()).prop_map(AugmentChanges::Auto),
    ]
}

fn any_transform() -> impl Strategy<Value = Transform> {
    let sides = || prop::array::uniform2(1usize..24);
    let size = prop_oneof![(1usize..24).prop_map(Size::Shorter), sides().prop_map(Size::Both)];
    let p = || prop_oneof![Just(0.0), Just(0.5), Just(1.0)];
    let jitter = (range(0.0, 3.0), range(0.0, 3.0), range(0.0, 3.0), range(-0.5, 0.5));
    prop_oneof![
        3 => moves(),
        1 => (size, interpolation(), any::<bool>())
            .prop_map(|(size, interpolation, antialias)| Transform::Resize { size, interpolation, antialias }),
        1 => (sides(), range(0.0, 1.0), range(0.1, 9.0), interpolation(), any::<bool>()).prop_map(
            |(size, scale, ratio, interpolation, antialias)| Transform::RandomResizedCrop {
                size, scale, ratio, interpolation, antialias
            }
        ),
        1 => (range(-400.0, 400.0), interpolation(), any::<u8>())
            .prop_map(|(degrees, interpolation, fill)| Transform::RandomRotation { degrees, interpolation, fill }),
        1 => prop_oneof![Just(1), Just(3)].prop_map(|channels| Transform::Grayscale { channels }),
        1 => p().prop_map(|p| Transform::RandomGrayscale { p }),
        1 => jitter.prop_map(|(b, c, s, h)| {
            let [brightness, contrast, saturation, hue] = [b, c, s, h].map(Some);
            Transform::ColorJitter(ColorJitter { brightness, contrast, saturation, hue })
        }),
        1 => (0usize..9, range(0.1, 5.0))
            .prop_map(|(half, sigma)| Transform::GaussianBlur { kernel_size: 2 * half + 1, sigma }),
        1 => (p(), range(0.0, 1.0), range(0.1, 9.0), any::<u8>())
            .prop_map(|(p, scale, ratio, value)| Transform::RandomErasing { p, scale, ratio, value }),
        1 => (range(-200.0, 200.0), range(0.0, 1.0), range(0.01, 9.0), range(-80.0, 80.0), interpolation(), any::<u8>()).prop_map(
            |(degrees, translate, scale, x, interpolation, fill)| Transform::RandomAffine {
                degrees, translate, scale, shear: [x, [-9.0, 30.0]], interpolation, fill
            }
        ),
        1 => (prop::sample::select(&operation::DRAWN[10..]), 0usize..9, p())
            .prop_map(|(operation, magnitude, p)| Transform::Random { operation, magnitude: magnitude as f64, p }),
        2 => (augmentations(), interpolation(), any::<u8>())
            .prop_map(|(changes, interpolation, fill)| Transform::Augment(Augment { changes, interpolation, fill })),
    ]
}

/// Gives away the part alone that is asked for, as a decoder does.
struct Parts(Image);

impl ImageSource for Parts {
    fn sides(&self) -> [usize; 2] {
        self.0.sides
    }

    fn with<T>(&self, window: Window, take: impl FnOnce(&Image, Window) -> T) -> anyhow::Result<T> {
        let pixels = self.0.rows(window).flatten().copied().collect();
        let part = Image { sides: window.sides, channels: self.0.channels, pixels };
        Ok(take(&part, part.whole()))
    }
}

fn draws(seed: u64, sample: u64) -> Stream {
    Stream::new(seed, Purpose::Augment, 0, sample)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn one_map_is_all_changes(list in prop::collection::vec(moves(), 0..5),
                              h in 1usize..8, w in 1usize..8, seed in any::<u64>()) {
        let image: Vec<u8> = (1..=(h * w) as u8).collect();
        let expected = plainly(&list, &mut draws(seed, 0), &image, [h, w]);
        let of_its_own = Image { sides: [h, w], channels: 1, pixels: image.clone() };
        prop_assert_eq!(&transform(&list, &mut draws(seed, 0), of_its_own).pixels, &expected);
        let Ok(shape) = output_shape(&list, &[h, w, 1].into()) else { return Ok(()) };
        let mut out = vec![99; shape.len()];
        apply(&list, &mut draws(seed, 0), &image, [h, w], 1, &mut out);
        prop_assert_eq!(&out, &expected);
        // Pixels of three bytes move as one.
        let wide: Vec<u8> = image.iter().flat_map(|v| [*v, *v + 100, *v + 150]).collect();
        let mut out3 = vec![99; shape.len() * 3];
        apply(&list, &mut draws(seed, 0), &wide, [h, w], 3, &mut out3);
        for (a, b) in out.iter().zip(out3.chunks(3)) {
            prop_assert_eq!(b, if *a == 0 { [0; 3] } else { [*a, a + 100, a + 150] });
        }
    }

    /// Images of all sizes go through any list, and come out in the shape that was announced; twice, with the same draws, as the same.
    #[test]
    fn any_list_takes_images_of_any_size(list in prop::collection::vec(any_transform(), 0..4),
                                         h in 1usize..40, w in 1usize..40, grey in any::<bool>(), seed in any::<u64>()) {
        let channels = if grey { 1 } else { 3 };
        let Ok(shape) = output_shape(&list, &[h, w, channels].into()) else { return Ok(()) };
        let numbers = &mut draws(seed, 1);
        let pixels: Vec<u8> = (0..h * w * channels).map(|_| numbers.next_u32() as u8).collect();
        let image = Image { sides: [h, w], channels, pixels: pixels.clone() };
        let in_parts = transform_source(&list, &mut draws(seed, 0), &Parts(image.clone())).unwrap();
        let out = transform(&list, &mut draws(seed, 0), image.clone());
        prop_assert_eq!(&in_parts, &out);
        // What is kept after the first ones that draw nothing, and gone on with.
        let (first, rest) = list.split_at(fixed(&list));
        let kept = transform_source(first, &mut draws(seed, 9), &Parts(image.clone())).unwrap();
        prop_assert_eq!(&transform_source(rest, &mut draws(seed, 0), &kept).unwrap(), &in_parts);
        prop_assert_eq!(shape.dims(), &[out.sides[0], out.sides[1], out.channels]);
        prop_assert_eq!(out.pixels.len(), shape.len());
        let mut again = vec![0; shape.len()];
        apply(&list, &mut draws(seed, 0), &pixels, [h, w], channels, &mut again);
        prop_assert_eq!(out.pixels, again);
        // A transform that fixes the size of images fixes it as announced.
        if let Ok(fixed) = output_shape(&list, &[0, 0, channels].into()) {
            prop_assert_eq!(fixed, shape);
        }
    }
}

#[test]
fn all_windows_and_both_sides_come_up() {
    let crop = [Transform::RandomCrop { size: [2, 2], padding: [1; 4] }];
    let flip = [Transform::RandomHorizontalFlip { p: 0.5 }];
    let over = [Transform::RandomVerticalFlip { p: 0.5 }];
    let mut seen = std::collections::HashSet::new();
    let (mut flipped, mut turned_over) = (0, 0);
    for i in 0..400 {
        let mut out = [0; 4];
        apply(&crop, &mut draws(0, i), &[1, 2, 3, 4], [2, 2], 1, &mut out);
        seen.insert(out);
        apply(&flip, &mut draws(0, i), &[1, 2, 3, 4], [2, 2], 1, &mut out);
        flipped += usize::from(out == [2, 1, 4, 3]);
        apply(&over, &mut draws(0, i), &[1, 2, 3, 4], [2, 2], 1, &mut out);
        turned_over += usize::from(out == [3, 4, 1, 2]);
    }
    assert_eq!(seen.len(), 9);
    assert!((150..250).contains(&flipped), "{flipped}");
    assert!((150..250).contains(&turned_over), "{turned_over}");
}

/// Area uniform, logarithm of width to height uniform, every place as likely; and the fallback for images that are too long.
#[test]
fn windows_of_random_resized_crop_are_distributed_as_torchvisions() {
    let (mut area, mut log_ratio, mut at, mut wide) = (0.0, 0.0, [0.0; 2], 0);
    let n = 2000;
    for i in 0..n {
        let window = windows::resized_crop(&mut draws(3, i), [1000, 1000], [0.1, 0.2], [1.0, 4.0]);
        let [h, w] = window.sides.map(|side| side as f64);
        assert!((0.099..=0.201).contains(&(h * w / 1e6)) && (0.99..=4.03).contains(&(w / h)), "{window:?}");
        assert!((0..2).all(|axis| window.at[axis] + window.sides[axis] <= 1000), "{window:?}");
        area += h * w / 1e6;
        log_ratio += (w / h).ln();
        wide += usize::from((w / h).ln() > 0.75 * 4f64.ln());
        for (sum, (at, side)) in at.iter_mut().zip(window.at.iter().zip(window.sides)) {
            *sum += *at as f64 / (1000 - side) as f64;
        }
    }
    let mean = |sum: f64| sum / n as f64;
    assert!((mean(area) - 0.15).abs() < 0.005, "{}", mean(area));
    assert!((mean(log_ratio) - 2f64.ln()).abs() < 0.04, "{}", mean(log_ratio));
    assert!((420..580).contains(&wide), "a quarter of the logarithms lies above: {wide}");
    assert!(at.iter().all(|at| (mean(*at) - 0.5).abs() < 0.03), "{at:?}");
    let fallback = |sides, ratio| windows::resized_crop(&mut draws(0, 0), sides, [1.0, 1.0], ratio);
    assert_eq!(fallback([10, 100], [0.75, 4.0 / 3.0]), image::Window { at: [0, 43], sides: [10, 13] });
    assert_eq!(fallback([100, 10], [0.75, 4.0 / 3.0]), image::Window { at: [43, 0], sides: [13, 10] });
}

#[test]
fn erased_rectangles_are_taller_the_larger_the_ratio() {
    let (mut area, mut erased) = (0.0, 0);
    for i in 0..1000 {
        let Some(window) = windows::erased(&mut draws(5, i), [200, 300], [0.05, 0.15], [2.0, 3.0]) else { continue };
        let [h, w] = window.sides.map(|side| side as f64);
        assert!((1.9..=3.1).contains(&(h / w)), "{window:?}");
        area += h * w / 6e4;
        erased += 1;
    }
    assert_eq!(erased, 1000);
    assert!((area / 1000.0 - 0.1).abs() < 0.003, "{area}");
    assert_eq!(windows::erased(&mut draws(0, 0), [4, 4], [1.0, 1.0], [1.0, 1.0]), None);
}

/// Brightness before contrast makes something else than contrast before brightness.
#[test]
fn colours_are_changed_in_every_order() {
    let image = || Image { sides: [1, 4], channels: 3, pixels: vec![10, 200, 90, 250, 3, 4, 70, 80, 90, 1, 2, 255] };
    let [brightness, contrast, saturation] = [1.5, 0.6, 1.9].map(|factor| Some([factor; 2]));
    let jitter = ColorJitter { brightness, contrast, saturation, hue: Some([0.2; 2]) };
    let list = [Transform::ColorJitter(jitter)];
    let results: std::collections::HashSet<Vec<u8>> =
        (0..300).map(|i| transform(&list, &mut draws(0, i), image()).pixels).collect();
    assert!(results.len() > 12, "{} of 24 orders differ in what they make", results.len());
    assert_eq!(transform(&[Transform::ColorJitter(ColorJitter::default())], &mut draws(0, 0), image()), image());
}

/// Every kind of change comes up as often as any other, with both signs, at the strength asked for; two are made one after the other.
#[test]
fn kinds_of_change_are_drawn_as_in_torchvision() {
    use operation::DRAWN;
    let numbers = &mut draws(7, 0);
    let given = Image { sides: [12, 15], channels: 3, pixels: (0..540).map(|_| numbers.next_u32() as u8).collect() };
    let (interpolation, fill) = (Interpolation::Nearest, 7);
    let of = |operation: Operation, sign: f64, bin: usize| {
        let magnitude = operation.magnitude(false, bin as f64, 31, given.sides).map_or(0.0, |(magnitude, _)| magnitude);
        operation.apply(given.clone(), sign * magnitude, interpolation, fill).pixels
    };
    let mut expected = std::collections::HashMap::new();
    for operation in DRAWN {
        let signed = operation.magnitude(false, 12.0, 31, given.sides).is_some_and(|(_, signed)| signed);
        let signs: &[f64] = if signed { &[-1.0, 1.0] } else { &[1.0] };
        signs.iter().for_each(|sign| {
            *expected.entry(of(operation, *sign, 12)).or_insert(0.0) += 8400.0 / 14.0 / signs.len() as f64
        });
    }
    let augment = |changes| [Transform::Augment(Augment { changes, interpolation, fill })];
    let one = augment(AugmentChanges::Rand { ops: 1, magnitude: 12, std: 0.0, bins: 31 });
    let mut found = std::collections::HashMap::new();
    for i in 0..8400 {
        *found.entry(transform(&one, &mut draws(2, i), given.clone()).pixels).or_insert(0.0) += 1.0;
    }
    assert_eq!(found.len(), expected.len());
    // Four and a half standard errors: a sign that comes with 0.35 is beyond.
    expected
        .iter()
        .for_each(|(pixels, n)| assert!((found[pixels] - n).abs() < 4.5 * n.sqrt(), "{} {n}", found[pixels]));
    let two = augment(AugmentChanges::Rand { ops: 2, magnitude: 12, std: 0.0, bins: 31 });
    let several: std::collections::HashSet<Vec<u8>> =
        (0..400).map(|i| transform(&two, &mut draws(3, i), given.clone()).pixels).collect();
    assert!(several.len() > 120, "{}", several.len());
    // Of strengths around it, which are cut off at the ends of the table: the weakest changes nothing.
    let drawn = augment(AugmentChanges::Rand { ops: 1, magnitude: 12, std: 3.0, bins: 31 });
    let several: std::collections::HashSet<Vec<u8>> =
        (0..1500).map(|i| transform(&drawn, &mut draws(3, i), given.clone()).pixels).collect();
    assert!(several.len() > 150, "{}", several.len());
    let drawn = augment(AugmentChanges::Rand { ops: 1, magnitude: 0, std: 1e-9, bins: 31 });
    let near = (0..300).filter(|i| transform(&drawn, &mut draws(3, *i), given.clone()) == given).count();
    assert!(near > 150, "{near}");
    // Of any strength.
    let wide = augment(AugmentChanges::TrivialWide { bins: 31 });
    let several: std::collections::HashSet<Vec<u8>> =
        (0..1500).map(|i| transform(&wide, &mut draws(3, i), given.clone()).pixels).collect();
    assert!(several.len() > 250, "{}", several.len());
}

/// Each pair as likely, and each of its changes with its own probability and sign.
#[test]
fn pairs_of_changes_are_drawn_as_in_torchvision() {
    let given = Image { sides: [3, 2], channels: 1, pixels: vec![100, 200, 7, 90, 30, 250] };
    let (interpolation, fill, n) = (Interpolation::Nearest, 0, 4000);
    let mut expected = std::collections::HashMap::from([(given.pixels.clone(), 0.0)]);
    for pair in policies::pairs(Policy::Svhn) {
        let mut images = vec![(given.clone(), n as f64 / 25.0)];
        for (operation, p, bin) in pair {
            let magnitude = operation.magnitude(false, *bin as f64, 10, given.sides);
            let signs = if magnitude.is_some_and(|(_, signed)| signed) { [-1.0, 1.0] } else { [1.0; 2] };
            let with = images.iter().flat_map(|(image, n)| {
                let made =
                    |sign| operation.apply(image.clone(), sign * magnitude.map_or(0.0, |m| m.0), interpolation, fill);
                signs.map(|sign| (made(sign), n * p / 2.0))
            });
            let with: Vec<_> = with.collect();
            images.iter_mut().for_each(|(_, n)| *n *= 1.0 - p);
            images.extend(with);
        }
        images.into_iter().for_each(|(image, n)| *expected.entry(image.pixels).or_insert(0.0) += n);
    }
    let list = [Transform::Augment(Augment { changes: AugmentChanges::Auto(Policy::Svhn), interpolation, fill })];
    let mut found = std::collections::HashMap::new();
    (0..n).for_each(|i| *found.entry(transform(&list, &mut draws(1, i), given.clone()).pixels).or_insert(0.0) += 1.0);
    for (pixels, n) in &expected {
        let found = found.remove(pixels).unwrap_or(0.0);
        assert!((found - n).abs() < 5.0 * n.max(1.0).sqrt(), "{pixels:?}: {found}, not {n}");
    }
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn senseless_changes_are_refused() {
    let image: Shape = [8, 8, 3].into();
    let message = |transform: Transform| output_shape(&[transform], &image).unwrap_err().to_string();
    let crop = |size, padding| Transform::RandomCrop { size, padding };
    assert!(message(crop([9, 8], [0; 4])).contains("9×8"));
    assert!(message(crop([0, 8], [0; 4])).contains("at least 1"));
    assert!(message(crop([8, 8], [usize::MAX; 4])).contains("16777216"));
    let flat = output_shape(&[crop([4, 5], [0; 4])], &[64].into()).unwrap_err().to_string();
    assert!(flat.contains("[64]"));
    assert!(message(Transform::RandomHorizontalFlip { p: f64::NAN }).contains("NaN"));
    assert_eq!(output_shape(&[crop([4, 5], [0; 4])], &image).unwrap(), [4, 5, 3].into());

    let resize = |size| Transform::Resize { size, interpolation: Interpolation::Bilinear, antialias: true };
    assert!(message(resize(Size::Shorter(0))).contains("at least 1"));
    assert!(message(resize(Size::Both([1 << 24, 1 << 24]))).contains("too large"));
    let resized = |scale, ratio| Transform::RandomResizedCrop {
        size: [4, 4],
        scale,
        ratio,
        interpolation: Interpolation::Bilinear,
        antialias: true,
    };
    assert!(message(resized([1.0, 0.5], [1.0, 1.0])).contains("`scale` is [1, 0.5]"));
    assert!(message(resized([0.5, 1.0], [0.0, 1.0])).contains("`ratio`"));
    assert!(message(Transform::GaussianBlur { kernel_size: 4, sigma: [1.0, 1.0] }).contains("must be odd"));
    assert!(message(Transform::GaussianBlur { kernel_size: 3, sigma: [0.0, 1.0] }).contains("`sigma`"));
    // The smallest number above 0 is a kernel of one pixel.
    let image = Image { sides: [2, 2], channels: 1, pixels: vec![1, 2, 3, 4] };
    assert_eq!(blur::gaussian_blur(&image, 3, 5e-324), image);
    let hue = ColorJitter { hue: Some([-0.6, 0.0]), ..ColorJitter::default() };
    assert!(message(Transform::ColorJitter(hue)).contains("from -0.5 to 0.5"));
    assert!(message(Transform::Grayscale { channels: 2 }).contains("1 or 3"));
    let two = output_shape(&[Transform::RandomGrayscale { p: 0.5 }], &[8, 8, 2].into()).unwrap_err().to_string();
    assert!(two.contains("these have 2"));
}

#[test]
fn images_of_any_size_must_get_one() {
    let any: Shape = [0, 0, 3].into();
    let resize = |size| Transform::Resize { size, interpolation: Interpolation::Bilinear, antialias: true };
    let message = |list: &[Transform]| output_shape(list, &any).unwrap_err().to_string();
    assert!(message(&[]).contains(r#"for example `{ type = "resize", size = [224, 224] }`"#));
    assert!(message(&[resize(Size::Shorter(256))]).contains(r#"for example `{ type = "center_crop", size = 224 }`"#));
    assert!(message(&[Transform::RandomHorizontalFlip { p: 0.5 }]).contains("a size of its own"));
    let crop = Transform::RandomCrop { size: [7, 5], padding: [0; 4] };
    let list = [resize(Size::Shorter(9)), Transform::RandomVerticalFlip { p: 0.5 }, crop];
    assert_eq!(output_shape(&list, &any).unwrap(), [7, 5, 3].into());
    let list =
        [Transform::CenterCrop { size: [7, 5] }, resize(Size::Shorter(10)), Transform::Grayscale { channels: 1 }];
    assert_eq!(output_shape(&list, &any).unwrap(), [14, 10, 1].into());
}

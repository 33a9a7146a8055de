use super::super::{Classes, Field, FieldKind, INPUTS, Memory, Rows, Store, TARGETS, Values};
use super::*;
use crate::backend::Backend;
use crate::backend::cpu::CpuBackend;
use crate::graph::{DType, Input, Shape};
use crate::plan::SlotInput;

fn buffer(bytes: usize) -> HostBuffer {
    CpuBackend::new(Some(1)).unwrap().host_buffer(bytes).unwrap()
}

/// Byte images of 4×4×1; the label is the sample's number.
fn split(n: usize) -> Split {
    let pixels = (0..n * 16).map(|i| (i * 7 % 256) as u8).collect();
    Split::labelled(Values::Bytes(pixels), [4, 4, 1], (0..n as i32).collect()).unwrap()
}

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions {
        batch_size: 4,
        batches_together: 1,
        own: None,
        shuffle: true,
        drop_last: false,
        seed: 9,
        workers,
        transforms: vec![
            Transform::RandomCrop { size: [4, 4], padding: [1; 4] },
            Transform::RandomHorizontalFlip { p: 0.5 },
        ],
        mixing: None,
        end_epoch: None,
    }
}

fn layout() -> SlotLayout {
    let input = |input, dtype, shape: Shape, offset| SlotInput { input, dtype, shape, offset };
    SlotLayout {
        inputs: vec![
            input(Input::Field(0), DType::U8, [4, 4, 4, 1].into(), 64),
            input(Input::Field(1), DType::I32, [4].into(), 128),
            input(Input::Schedule, DType::F32, [4].into(), 0),
        ],
        bytes: 192,
    }
}

fn start(n: usize, options: LoaderOptions, slots: usize, at: Position) -> Loader {
    let buffers = (0..slots).map(|_| buffer(192)).collect();
    Loader::start(&split(n), options, &layout(), buffers, at).unwrap()
}

/// Position, length, data and targets of the next `count` batches.
fn take(loader: &mut Loader, count: usize) -> Vec<(Position, usize, Vec<u8>)> {
    let mut out = Vec::new();
    while out.len() < count {
        let Some(batch) = loader.next().unwrap() else { break };
        let b = batch.buffer.bytes();
        let content = [&b[64..][..batch.shape.samples * 16], &b[128..][..batch.shape.samples * 4]].concat();
        out.push((batch.position, batch.shape.samples, content));
        loader.release(batch);
    }
    out
}

#[test]
fn same_batches_for_any_workers_and_slots() {
    // 10 samples: batches of 4, 4, 2; eight epochs and a bit.
    let expected = take(&mut start(10, options(0), 1, Position::default()), 25);
    assert_eq!(expected[24].0, Position { epoch: 8, batch: 0 });
    assert_eq!(expected[2].1, 2);
    for workers in [0, 1, 2, 7] {
        for slots in [1, 2, 5] {
            let got = take(&mut start(10, options(workers), slots, Position::default()), 25);
            assert_eq!(got, expected, "{workers} workers, {slots} slots");
        }
    }
}

/// A class for every pixel goes where its pixel goes, from memory in one piece and sample by sample.
#[test]
fn masks_are_changed_with_their_images() {
    let pixels: Vec<u8> = (0..6 * 16).map(|i| (i * 7 % 251 + 1) as u8).collect();
    let classes = pixels.iter().map(|pixel| i32::from(*pixel) - 1000).collect();
    let fields = vec![
        (Field::image(INPUTS, DType::U8, [4, 4, 1]), Values::Bytes(pixels)),
        (Field::target(TARGETS, FieldKind::Mask(Classes::of(10)), [4, 4]), Values::Ints(classes)),
    ];
    let split = Split::in_memory(fields, 6).unwrap();
    let input = |input, dtype, shape: Shape, offset| SlotInput { input, dtype, shape, offset };
    let inputs = vec![
        input(Input::Field(0), DType::U8, [4, 4, 4, 1].into(), 0),
        input(Input::Field(1), DType::I32, [4, 4, 4].into(), 64),
    ];
    let layout = SlotLayout { inputs, bytes: 64 + 256 };
    let rotation = Transform::RandomRotation {
        degrees: [0.0, 180.0],
        interpolation: super::super::Interpolation::Nearest,
        fill: 0,
    };
    let moves = options(0).transforms;
    for transforms in [moves.clone(), [vec![rotation], moves].concat()] {
        let options = LoaderOptions { transforms, end_epoch: Some(3), ..options(0) };
        let mut loader = Loader::start(&split, options, &layout, vec![buffer(320)], Position::default()).unwrap();
        let mut outside = 0;
        while let Some(batch) = loader.next().unwrap() {
            let bytes = batch.buffer.bytes();
            let (images, masks) =
                (&bytes[..batch.shape.samples * 16], bytes[64..][..batch.shape.samples * 64].as_chunks().0);
            for (pixel, class) in images.iter().zip(masks) {
                let class = i32::from_ne_bytes(*class);
                // What comes from outside is of class 0.
                assert_eq!(class, if *pixel == 0 { 0 } else { i32::from(*pixel) - 1000 });
                outside += usize::from(*pixel == 0);
            }
            loader.release(batch);
        }
        assert!(outside > 20, "{outside}");
    }
}

#[test]
fn what_cannot_change_masks_is_refused() {
    let fields = vec![
        (Field::image(INPUTS, DType::U8, [4, 4, 1]), Values::Bytes(vec![0; 16])),
        (Field::target(TARGETS, FieldKind::Mask(Classes::of(10)), [4, 4]), Values::Ints(vec![0; 16])),
    ];
    let split = Split::in_memory(fields, 1).unwrap();
    let changes = super::super::AugmentChanges::TrivialWide { bins: 31 };
    let interpolation = super::super::Interpolation::Nearest;
    let transforms = vec![Transform::Augment(super::super::Augment { changes, interpolation, fill: 0 })];
    let options = LoaderOptions { transforms, batch_size: 1, ..options(0) };
    let layout = SlotLayout { inputs: Vec::new(), bytes: 64 };
    let error = Loader::start(&split, options, &layout, vec![buffer(64)], Position::default()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot change a mask"), "{error:#}");
}

/// The same for transforms that make new images.
#[test]
fn changed_pixels_depend_on_no_worker() {
    use super::super::{Interpolation, Size};
    let how = (Interpolation::Bilinear, true);
    let changed = |workers| LoaderOptions {
        transforms: vec![
            Transform::RandomHorizontalFlip { p: 0.5 },
            Transform::Resize { size: Size::Shorter(7), interpolation: how.0, antialias: how.1 },
            Transform::RandomRotation { degrees: [-90.0, 90.0], interpolation: how.0, fill: 0 },
            Transform::RandomCrop { size: [4, 4], padding: [0; 4] },
        ],
        ..options(workers)
    };
    let expected = take(&mut start(10, changed(0), 1, Position::default()), 7);
    assert_eq!(take(&mut start(10, changed(3), 2, Position::default()), 7), expected);
    assert_ne!(take(&mut start(10, options(0), 1, Position::default()), 7), expected);
}

#[test]
fn starting_anywhere_is_exact() {
    let all = take(&mut start(10, options(0), 2, Position::default()), 12);
    for (k, (position, ..)) in all.iter().enumerate() {
        let got = take(&mut start(10, options(2), 3, *position), 12 - k);
        assert_eq!(got, all[k..], "{position:?}");
    }
    // The end of an epoch is the start of the next.
    let got = take(&mut start(10, options(0), 1, Position { epoch: 1, batch: 3 }), 1);
    assert_eq!(got[0].0, Position { epoch: 2, batch: 0 });
}

#[test]
fn an_epoch_holds_every_sample_once_and_epochs_differ() {
    let mut loader = start(10, options(2), 2, Position::default());
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let mut order = Vec::new();
        loop {
            let batch = loader.next().unwrap().unwrap();
            order.extend_from_slice(batch.samples());
            let last = batch.last;
            loader.release(batch);
            if last {
                break;
            }
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        epochs.push(order);
    }
    assert_ne!(epochs[0], epochs[1]);
    assert_ne!(epochs[1], epochs[2]);
}

#[test]
fn plain_batches_are_the_samples_in_order() {
    let o = LoaderOptions { shuffle: false, drop_last: true, transforms: vec![], end_epoch: Some(2), ..options(2) };
    let mut loader = start(10, o, 3, Position::default());
    assert_eq!(loader.batches_per_epoch(), 2);
    let got = take(&mut loader, 99);
    assert_eq!(got.len(), 4, "two epochs of two whole batches, then nothing");
    assert!(loader.next().unwrap().is_none());
    let s = split(10);
    for (position, len, content) in got {
        assert_eq!(len, 4);
        for i in 0..4 {
            let sample = position.batch * 4 + i;
            assert_eq!(&content[i * 16..][..16], s.bytes(sample, 0).unwrap());
            assert_eq!(&content[64 + i * 4..][..4], s.bytes(sample, 1).unwrap());
        }
    }
}

#[test]
fn changes_depend_on_epoch_and_sample_alone() {
    // Without shuffling, with another batch size: the same samples come out.
    let o = LoaderOptions { shuffle: false, ..options(0) };
    let data = |batch_size: usize| {
        let mut loader =
            start(8, LoaderOptions { batch_size, batches_together: 1, own: None, ..o.clone() }, 1, Position::default());
        take(&mut loader, 16 / batch_size)
            .into_iter()
            .flat_map(|(_, len, content)| content[..len * 16].to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(data(4), data(2));
    assert_ne!(data(4)[..128], data(4)[128..], "the second epoch is changed otherwise");
}

#[test]
fn a_panic_surfaces_in_next() {
    let o = LoaderOptions { shuffle: false, ..options(0) };
    for workers in [0, 1, 3] {
        let o = LoaderOptions { workers, ..o.clone() };
        let filler = Filler::broken(&split(8), &o, &layout()).unwrap();
        let buffers = (0..2).map(|_| buffer(192)).collect();
        let mut loader = Loader::start_with(filler, &split(8), o, buffers, Position::default()).unwrap();
        let mut error = None;
        for _ in 0..2 {
            match loader.next() {
                Ok(batch) => loader.release(batch.unwrap()),
                Err(e) => error = Some(e.to_string()),
            }
        }
        let error = error.unwrap();
        assert!(error.contains("batch 2 of epoch 1") && error.contains("sample 4"), "{error}");
        assert!(loader.next().is_err(), "it stays failed");
    }
}

#[test]
fn a_slot_that_is_kept_is_an_error_and_not_a_hang() {
    for workers in [0, 2] {
        let mut loader = start(10, options(workers), 1, Position::default());
        let batch = loader.next().unwrap().unwrap();
        assert!(loader.next().err().unwrap().to_string().contains("not been given back"));
        loader.release(batch);
        assert!(loader.next().unwrap().is_some());
    }
}

#[test]
fn dropping_ends_the_threads() {
    for taken in 0..3 {
        let mut loader = start(1000, options(3), 2, Position::default());
        take(&mut loader, taken);
        let shared = Arc::clone(&loader.shared);
        drop(loader);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let with = |n: usize, o: LoaderOptions, layout: SlotLayout, at: Position| {
        Loader::start(&split(n), o, &layout, vec![buffer(192)], at).err().unwrap().to_string()
    };
    let zero = Position::default();
    assert!(with(0, options(0), layout(), zero).contains("no samples"));
    assert!(with(8, LoaderOptions { batch_size: 0, ..options(0) }, layout(), zero).contains("batch_size"));
    assert!(with(3, LoaderOptions { drop_last: true, ..options(0) }, layout(), zero).contains("drop_last"));
    assert!(with(8, options(0), layout(), Position { epoch: 0, batch: 3 }).contains("batch 3"));
    let larger = LoaderOptions { batch_size: 5, ..options(0) };
    assert!(with(8, larger, layout(), zero).contains("`inputs` of the batch slot is u8 [4, 4, 4, 1]"));
    let mut other = layout();
    other.inputs[1].dtype = DType::F32;
    assert!(with(8, options(0), other, zero).contains("`targets` of the batch slot is f32 [4]"));
    let mut small = layout();
    small.bytes = 100;
    assert!(with(8, options(0), small, zero).contains("does not fit"));
    let mut unknown = layout();
    unknown.inputs[1].input = Input::Field(2);
    assert!(with(8, options(0), unknown, zero).contains("field number 2"));
    let mut nothing = layout();
    nothing.inputs.drain(..2);
    assert!(with(8, options(0), nothing, zero).contains("no place for any field"));
    let crop = vec![Transform::RandomCrop { size: [3, 3], padding: [0; 4] }];
    assert!(with(8, LoaderOptions { transforms: crop, ..options(0) }, layout(), zero).contains("[3, 3, 1]"));
    let e = Loader::start(&split(8), options(0), &layout(), vec![], zero).err().unwrap();
    assert!(e.to_string().contains("one batch slot"));
}

/// Samples that are made when they are asked for, with draws of their own: the number of the sample and what was drawn. Those in
/// `bad` cannot be read.
struct Made {
    fields: [Field; 2],
    len: usize,
    bad: Vec<usize>,
}

impl Made {
    fn split(len: usize, bad: &[usize]) -> Split {
        let fields = [
            Field::image(INPUTS, DType::U8, [4, 4, 1]),
            Field::target(TARGETS, FieldKind::Category(Classes::of(10)), []),
        ];
        Split::new(Arc::new(Made { fields, len, bad: bad.to_vec() })).unwrap()
    }
}

impl Store for Made {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        // What is half written when it turns out that a sample cannot be read is written over.
        rows.put(0, &[255; 16]);
        if self.bad.contains(&sample) {
            return Err(Unreadable { name: format!("{sample}.png"), why: "damaged".into() });
        }
        let drawn = rows.draws().next_u32() as u8 % 200;
        rows.put(0, &[drawn; 16]);
        rows.put(1, &(sample as i32).to_ne_bytes());
        Ok(())
    }

    fn identify(&self, sample: usize, _: usize, take: &mut dyn FnMut(&[u8])) {
        take(&sample.to_le_bytes());
    }
}

fn made(n: usize, bad: &[usize], options: LoaderOptions, slots: usize, at: Position) -> Loader {
    let options = LoaderOptions { transforms: Vec::new(), ..options };
    let buffers = (0..slots).map(|_| buffer(192)).collect();
    Loader::start(&Made::split(n, bad), options, &layout(), buffers, at).unwrap()
}

/// What the loader copies field after field is what the store would write sample after sample.
struct Hidden(Memory);

impl Store for Hidden {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> &[Field] {
        self.0.fields()
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        self.0.write(sample, rows)
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        self.0.identify(sample, field, take);
    }
}

#[test]
fn samples_in_memory_are_copied_as_they_would_be_written() {
    let list = || {
        let pixels = (0..160).map(|i| (i * 7 % 256) as u8).collect();
        let labels = Values::Ints((0..10).collect());
        let image = Field::image(INPUTS, DType::U8, [4, 4, 1]);
        vec![(image, Values::Bytes(pixels)), (Field::target(TARGETS, FieldKind::Category(Classes::of(10)), []), labels)]
    };
    for transforms in [options(0).transforms, Vec::new()] {
        let all = |split: Split| {
            let o = LoaderOptions { transforms: transforms.clone(), ..options(0) };
            // A part of the samples, in another order.
            let split = split.select(&[9, 3, 4, 5, 0, 1]);
            take(&mut Loader::start(&split, o, &layout(), vec![buffer(192)], Position::default()).unwrap(), 7)
        };
        let hidden = Split::new(Arc::new(Hidden(Memory::new(list(), 10).unwrap()))).unwrap();
        assert_eq!(all(Split::in_memory(list(), 10).unwrap()), all(hidden));
    }
}

#[test]
fn samples_that_are_made_when_asked_for_are_the_same_for_any_workers() {
    let expected = take(&mut made(10, &[], options(0), 1, Position::default()), 25);
    assert_ne!(expected[0].2[..16], expected[3].2[..16], "each epoch has its draws");
    for workers in [1, 2, 7] {
        for slots in [1, 2, 5] {
            assert_eq!(take(&mut made(10, &[], options(workers), slots, Position::default()), 25), expected);
        }
    }
    for (k, (position, ..)) in expected.iter().enumerate() {
        assert_eq!(take(&mut made(10, &[], options(2), 3, *position), 25 - k), expected[k..], "{position:?}");
    }
}

#[test]
fn the_next_sample_takes_the_place_of_one_that_cannot_be_read() {
    // The last one, too, for which the first is the next.
    let (n, bad) = (60, [7, 8, 59]);
    let all = |bad: &[usize], options| {
        let mut loader = made(n, bad, options, 3, Position::default());
        let mut found = Vec::new();
        while let Some(batch) = loader.next().unwrap() {
            let b = batch.buffer.bytes();
            let labels: Vec<i32> = (0..batch.shape.samples)
                .map(|i| i32::from_ne_bytes(*b[128 + 4 * i..].first_chunk().unwrap()))
                .collect();
            let names: Vec<String> = batch.unreadable().iter().map(|u| u.name.clone()).collect();
            found.push((batch.samples().to_vec(), labels, b[64..][..batch.shape.samples * 16].to_vec(), names));
            loader.release(batch);
        }
        found
    };
    let o = |workers| LoaderOptions { end_epoch: Some(2), ..options(workers) };
    let expected = all(&bad, o(0));
    let whole = all(&[], o(0));
    for ((samples, labels, content, names), (others, _, as_drawn, none)) in expected.iter().zip(&whole) {
        let instead = |s: &u32| match *s {
            7 | 8 => 9,
            59 => 0,
            s => s as i32,
        };
        assert_eq!(*labels, others.iter().map(instead).collect::<Vec<_>>(), "the order is that of all samples");
        assert!(samples.iter().zip(labels).all(|(sample, label)| *sample as i32 == *label), "{samples:?}");
        assert_eq!(content, as_drawn, "the draws are those of the sample that was asked for");
        let mut met: Vec<String> = Vec::new();
        for sample in others {
            let of = |list: &[usize]| list.iter().map(|s| format!("{s}.png")).collect::<Vec<_>>();
            match sample {
                7 => met.extend(of(&[7, 8])),
                8 | 59 => met.extend(of(&[*sample as usize])),
                _ => {}
            }
        }
        assert_eq!((names, none.len()), (&met, 0));
    }
    for workers in [1, 2, 5] {
        assert_eq!(all(&bad, o(workers)), expected, "{workers} workers");
    }
}

/// A batch that cannot be made is reported when its turn comes, however far the workers are by then.
#[test]
fn too_many_in_a_row_end_it() {
    let bad: Vec<usize> = (20..26).collect();
    let o = LoaderOptions { shuffle: false, ..options(0) };
    for workers in [0, 1, 4] {
        let mut loader = made(60, &bad, LoaderOptions { workers, ..o.clone() }, 3, Position::default());
        for _ in 0..5 {
            let batch = loader.next().unwrap().unwrap();
            assert!(batch.unreadable().is_empty());
            loader.release(batch);
        }
        for _ in 0..2 {
            let error = loader.next().err().unwrap().to_string();
            assert!(error.contains("batch 6 of epoch 1: 4 of 60 samples cannot be read"), "{error}");
            assert!(error.contains("`20.png`: damaged"), "{error}");
        }
    }
    let e = made(2, &[0, 1], o, 1, Position::default()).next().err().unwrap().to_string();
    assert!(e.contains("2 of 2 samples"), "{e}");
}

//! Photos that are kept once they are decoded: what batches hold is the same to the bit, for the transforms of every configuration.

use image::{Rgb, RgbImage};
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::config;
use runner::data::image_folder::ImageFolderOptions;
use runner::data::{Cache, Keep, Loader, LoaderOptions, Position, Source, Split, Transform, open, output_shape};
use runner::graph::{DType, Input};
use runner::model::transforms;
use runner::plan::{SlotInput, SlotLayout};
use std::path::Path;

const EPOCHS: u64 = 3;

/// The images of all batches of some epochs.
fn batches(split: &Split, list: &[Transform]) -> Vec<Vec<u8>> {
    let shape = output_shape(list, &[0, 0, 3].into()).unwrap();
    let images = 2 * shape.len();
    let input = |field, dtype, shape: Vec<usize>, offset| SlotInput {
        input: Input::Field(field),
        dtype,
        shape: shape.into(),
        offset,
    };
    let layout = SlotLayout {
        inputs: vec![
            input(0, DType::U8, [&[2], shape.dims()].concat(), 0),
            input(1, DType::I32, vec![2], images.next_multiple_of(4)),
        ],
        bytes: images.next_multiple_of(4) + 8,
    };
    let options = LoaderOptions {
        batch_size: 2,
        workers: 2,
        transforms: list.to_vec(),
        end_epoch: Some(EPOCHS),
        ..LoaderOptions::default()
    };
    let buffers = (0..3).map(|_| CpuBackend::new(Some(1)).unwrap().host_buffer(layout.bytes).unwrap()).collect();
    let mut loader = Loader::start(split, options, &layout, buffers, Position::default()).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        all.push(batch.buffer.bytes()[..batch.shape.samples * shape.len()].to_vec());
        loader.release(batch);
    }
    all
}

#[test]
fn batches_of_every_configuration_are_the_same_with_a_cache() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("photos/a")).unwrap();
    for number in 0..5u32 {
        let pixel = |x: u32, y: u32| Rgb([(x * 5 + number) as u8, (y * 3) as u8, (x * y + 40 * number) as u8]);
        let ending = ["jpg", "png"][number as usize % 2];
        let path = place.path().join(format!("photos/a/{number}.{ending}"));
        RgbImage::from_fn(60 + 9 * number, 70 - 4 * number, pixel).save(path).unwrap();
    }
    let options = ImageFolderOptions { root: place.path().join("photos"), ..ImageFolderOptions::default() };
    let split = open(&Source::ImageFolder(options)).unwrap().train;
    let mut compared = 0;
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs")).unwrap() {
        let path = entry.unwrap().path();
        let loaded = config::load(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
        for train in [true, false] {
            let list = transforms(&loaded.experiment, train);
            // Those for images of one size leave photos as they are.
            if output_shape(&list, &[0, 0, 3].into()).is_err() {
                continue;
            }
            let plain = batches(&split, &list);
            for keep in [Keep::Memory, Keep::Disk(place.path().join(format!("kept {compared}")))] {
                let cache = Cache::new(keep, 1 << 30);
                let kept = split.clone().kept_in(&cache, "train", &list).unwrap();
                assert!(batches(&kept, &list) == plain, "{}, training: {train}", path.display());
                assert_eq!(cache.kept().images, 5, "{}", path.display());
            }
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared} lists of transforms");
}

//! Making batches allocates nothing once it is running: not in the caller, not in the workers.

#[path = "../../support/allocations.rs"]
mod allocations;

use allocations::allocations;
use runner::backend::cpu::CpuBackend;
use runner::backend::{Backend, HostBuffer};
use runner::data::synthetic::{SyntheticOptions, Task};
use runner::data::{Loader, LoaderOptions, Mix, Mixing, Position, Source, Transform, open};
use runner::graph::{DType, Input};
use runner::plan::{SlotInput, SlotLayout};

const BATCH: usize = 16;

fn buffer(bytes: usize) -> HostBuffer {
    CpuBackend::new(Some(1)).unwrap().host_buffer(bytes).unwrap()
}

#[test]
fn nothing_is_allocated_for_a_batch() {
    let options =
        SyntheticOptions { shape: vec![3, 8, 8], task: Task::Classes(4), samples: 100, val_samples: 0, seed: 1 };
    let data = open(&Source::Synthetic(options)).unwrap();
    let targets = BATCH * 192;
    let shares = targets + BATCH * 4;
    let layout = SlotLayout {
        inputs: vec![
            SlotInput { input: Input::Field(0), dtype: DType::U8, shape: [BATCH, 8, 8, 3].into(), offset: 0 },
            SlotInput { input: Input::Field(1), dtype: DType::I32, shape: [BATCH].into(), offset: targets },
            SlotInput { input: Input::Shares, dtype: DType::F32, shape: [BATCH, 4].into(), offset: shares },
        ],
        bytes: shares + BATCH * 16,
    };
    let mix = Mix { alpha: 0.2, p: 0.9, epochs: None };
    for workers in [0, 1, 3] {
        let options = LoaderOptions {
            batch_size: BATCH,
            batches_together: 1,
            own: None,
            shuffle: true,
            drop_last: false,
            seed: 1,
            workers,
            transforms: vec![
                Transform::RandomCrop { size: [8, 8], padding: [2; 4] },
                Transform::RandomHorizontalFlip { p: 0.5 },
            ],
            mixing: Some(Mixing { mixup: Some(mix), cutmix: Some(mix), switch_prob: 0.5 }),
            end_epoch: None,
        };
        let buffers = (0..4).map(|_| buffer(layout.bytes)).collect();
        let mut loader = Loader::start(&data.train, options, &layout, buffers, Position::default()).unwrap();
        let mut step = || {
            let batch = loader.next().unwrap().unwrap();
            loader.release(batch);
        };
        // A thread allocates while it starts, which may be late; what a batch cost would show in every round.
        let quiet = (0..10).any(|_| {
            let before = allocations();
            (0..200).for_each(|_| step());
            allocations() == before
        });
        assert!(quiet, "{workers} workers");
    }
}

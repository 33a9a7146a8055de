//! Batches of images on the host, as the loader makes them for a model.

use crate::api::failure::Failure;
use crate::backend::Backend;
use crate::backend::cpu::CpuBackend;
use crate::data::{Batch, Loader, LoaderOptions, Position, Split};
use crate::graph::{DType, Input, Shape};
use crate::plan::{SlotInput, SlotLayout};
use anyhow::Result;

/// Which batches.
pub struct Wanted {
    /// The number of the field of the images, and their `[H, W, C]` after the transforms.
    pub field: usize,
    /// Height, width, channels.
    pub image: [usize; 3],
    /// The number of the field of the labels, if each sample, or each pixel of it, has one.
    pub labels: Option<usize>,
    /// Each pixel has one.
    pub masks: bool,
    /// The number of classes, if their shares in each sample are asked for.
    pub shares: Option<usize>,
    /// How they are made.
    pub options: LoaderOptions,
    /// The first.
    pub start: Position,
}

/// A loader, and where its batches have what.
pub struct Batches {
    loader: Loader,
    image: SlotInput,
    labels: Option<SlotInput>,
    shares: Option<SlotInput>,
}

impl Batches {
    /// Starts the loader.
    ///
    /// # Errors
    /// There are no samples.
    pub fn start(split: &Split, wanted: &Wanted) -> Result<Self, Failure> {
        let n = wanted.options.batch_size.min(split.len().max(1));
        let mut layout = SlotLayout { inputs: Vec::new(), bytes: 0 };
        let mut add = |input, dtype: DType, shape: Shape| {
            let place = SlotInput { input, dtype, shape, offset: layout.bytes };
            layout.bytes += (place.shape.len() * dtype.bytes()).next_multiple_of(64);
            layout.inputs.push(place.clone());
            place
        };
        let [h, w, c] = wanted.image;
        let image = add(Input::Field(wanted.field as u32), DType::U8, [n, h, w, c].into());
        let labels = wanted.labels.map(|field| {
            let shape: Shape = if wanted.masks { [n, h, w].into() } else { [n].into() };
            add(Input::Field(field as u32), DType::I32, shape)
        });
        let shares = wanted.shares.map(|classes| add(Input::Shares, DType::F32, [n, classes].into()));
        let backend = CpuBackend::new(Some(1))?;
        let buffers = (0..wanted.options.workers + 1).map(|_| backend.host_buffer(layout.bytes));
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        let loader = Loader::start(split, wanted.options.clone(), &layout, buffers, wanted.start)?;
        Ok(Batches { loader, image, labels, shares })
    }

    /// The next batch; none after the last.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn next(&mut self) -> Result<Option<Batch>, Failure> {
        Ok(self.loader.next()?)
    }

    /// Gives a batch back.
    pub fn release(&mut self, batch: Batch) {
        self.loader.release(batch);
    }

    /// The images of a batch.
    pub fn images<'b>(&self, batch: &'b Batch) -> impl Iterator<Item = &'b [u8]> {
        let bytes: usize = self.image.shape.dims()[1..].iter().product();
        batch.buffer.bytes()[self.image.offset..][..batch.shape.samples * bytes].chunks_exact(bytes)
    }

    /// The labels of sample `i` of a batch: one, or one for each pixel; none where samples have none.
    pub fn labels<'b>(&self, batch: &'b Batch, i: usize) -> impl Iterator<Item = i32> + use<'b> {
        let at = self.labels.as_ref().map_or(0..0, |labels| {
            let bytes = 4 * labels.shape.dims()[1..].iter().product::<usize>();
            labels.offset + i * bytes..labels.offset + (i + 1) * bytes
        });
        batch.buffer.bytes()[at].as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes))
    }

    /// The shares of all classes in sample `i` of a batch; none where they are not asked for.
    pub fn shares<'b>(&self, batch: &'b Batch, i: usize) -> impl Iterator<Item = f32> + use<'b> {
        let at = self.shares.as_ref().map_or(0..0, |shares| {
            let bytes = 4 * shares.shape.last();
            shares.offset + i * bytes..shares.offset + (i + 1) * bytes
        });
        batch.buffer.bytes()[at].as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
    }
}

//! Writes samples into a batch slot.

use super::super::cache::Area;
use super::super::field::{mask, transformed};
use super::super::store::{Changes, Column, Key, Rows};
use super::super::transforms::output_shape;
use super::super::unreadable::{most_unreadable, too_many};
use super::super::{Field, Lengths, Split, Transform};
use super::mix::{Images, Mixer, Mixing, Targets};
use super::{LoaderOptions, Missing, Position};
use crate::graph::{DType, Input, Shape};
use crate::plan::{SlotInput, SlotLayout};
use anyhow::{Result, bail, ensure};
use std::sync::Arc;

/// What a worker needs to know to fill a batch.
pub(super) struct Filler {
    split: Split,
    seed: u64,
    /// Where the rows of each field are in a slot; `None` for fields that the slot does not have.
    columns: Vec<Option<Column>>,
    changes: Vec<Changes>,
    /// Images that are kept.
    area: Option<Arc<Area>>,
    mixer: Option<Mixer>,
}

impl Filler {
    /// Checks that layout, transforms and samples fit each other.
    pub fn new(split: &Split, options: &LoaderOptions, layout: &SlotLayout) -> Result<Self> {
        let fields = split.fields();
        let mut columns = vec![None; fields.len()];
        let mut changes = Vec::new();
        let transforms = &options.transforms;
        let transformed = transformed(fields).filter(|_| !transforms.is_empty());
        let mask = mask(fields).filter(|_| transformed.is_some());
        ensure!(
            transformed.is_some() || transforms.is_empty(),
            "transforms change the one field that is an image, and the samples have none or more than one"
        );
        ensure!(
            mask.is_none() || transforms.iter().all(Transform::takes_masks),
            "some of the transforms cannot change a mask with its image"
        );
        for place in &layout.inputs {
            let Input::Field(number) = place.input else { continue };
            let number = number as usize;
            let Some(field) = fields.get(number) else {
                bail!("the batch slot has a place for field number {number}, and the samples have {}", fields.len());
            };
            let changed = transformed == Some(number);
            ensure!(
                !changed || field.dtype == DType::U8 || transforms.iter().all(Transform::only_moves),
                "`{}` of the samples is of {}, and these transforms take bytes",
                field.name,
                field.dtype
            );
            let of_masks = mask == Some(number);
            let shape = match transformed {
                Some(image) if changed || of_masks => {
                    let mut shape = output_shape(transforms, &fields[image].shape)?;
                    shape.0.truncate(field.shape.rank());
                    shape
                }
                _ => field.shape.clone(),
            };
            columns[number] = Some(column(field, &shape, place, options.batch_size, layout)?);
            if let (true, &[h, w, ref channels @ ..]) = (changed || of_masks, field.shape.dims()) {
                let (sides, pixel) = ([h, w], channels.iter().product::<usize>() * field.dtype.bytes());
                changes.push(Changes { field: number, of_masks, transforms: transforms.clone(), sides, pixel });
            }
        }
        ensure!(columns.iter().any(Option::is_some), "the batch slot has no place for any field of the samples");
        let mixer = match options.mixing {
            Some(mixing) => Some(mixer(mixing, options, fields, &columns, layout)?),
            None => None,
        };
        let area = split.area(&options.transforms);
        Ok(Filler { split: split.clone(), seed: options.seed, columns, changes, area, mixer })
    }

    /// Writes the samples at these places of the split. One that cannot be read is added to `missing`, and the next sample of the
    /// split that can be read is written in its place: that depends on nothing but the sample.
    ///
    /// # Errors
    /// So many samples in a row cannot be read that there is no use in going on.
    pub fn fill(
        &self,
        (at, lengths): (Position, Lengths),
        samples: &mut [u32],
        slot: &mut [u8],
        missing: &mut Missing,
    ) -> Result<()> {
        let shorter = (lengths != Lengths::default()).then(|| self.columns_of(lengths));
        let columns = shorter.as_deref().unwrap_or(&self.columns);
        if shorter.is_some() || !self.copy(at.epoch, samples, slot) {
            self.write((at.epoch, columns), samples, slot, missing)?;
        }
        self.mixer.as_ref().map_or(Ok(()), |mixer| mixer.mix(at, samples.len(), slot))
    }

    /// Where rows are in a batch of these lengths.
    fn columns_of(&self, lengths: Lengths) -> Vec<Option<Column>> {
        let of = |(field, column): (&Field, &Option<Column>)| {
            let bytes = field.shape_of(lengths).len() * field.dtype.bytes();
            column.map(|column| if field.lengths.is_empty() { column } else { Column { bytes, ..column } })
        };
        self.split.fields().iter().zip(&self.columns).map(of).collect()
    }

    fn write(
        &self,
        (epoch, columns): (u64, &[Option<Column>]),
        samples: &mut [u32],
        slot: &mut [u8],
        missing: &mut Missing,
    ) -> Result<()> {
        let unreadable = &mut missing.samples;
        for (row, sample) in samples.iter_mut().enumerate() {
            let (first, met) = (*sample as usize, unreadable.len());
            let mut at = first;
            loop {
                // The draws are those of the sample that was asked for.
                let key = Key { seed: self.seed, epoch, sample: u64::from(*sample) };
                let rows = Rows::new(slot, columns, row, &self.changes, key);
                let mut rows = rows.kept_in(self.area.as_deref());
                let Err(error) = self.split.write(at, &mut rows) else { break };
                ensure!(self.split.skips_unreadable(), "a sample cannot be read: {error}");
                unreadable.push(error);
                at = if at + 1 == self.split.len() { 0 } else { at + 1 };
                let in_a_row = unreadable.len() - met;
                if in_a_row > most_unreadable(self.split.len()) || at == first {
                    bail!(too_many(in_a_row, self.split.len(), &unreadable[met..]));
                }
            }
            if at != first {
                missing.rows.push(row);
            }
            *sample = at as u32;
        }
        Ok(())
    }

    /// Writes the samples field after field, if all that the batch wants of them is in memory; whether it is. It comes to what the
    /// store would write, in half the time: what is read and written lies closer together.
    fn copy(&self, epoch: u64, samples: &[u32], slot: &mut [u8]) -> bool {
        let fields = self.split.fields();
        let columns = || self.columns.iter().enumerate().filter_map(|(number, column)| Some((number, (*column)?)));
        if columns().any(|(number, _)| self.split.stored(number).is_none()) {
            return false;
        }
        for (number, column) in columns() {
            let (stored, bytes) = (self.split.stored(number).unwrap_or_default(), fields[number].bytes());
            let changes = self.changes.iter().find(|changes| changes.field == number);
            let rows = slot[column.offset..][..samples.len() * column.bytes].chunks_exact_mut(column.bytes);
            for (row, sample) in rows.zip(samples) {
                let values = &stored[self.split.at(*sample as usize) * bytes..][..bytes];
                match changes {
                    None => row.copy_from_slice(values),
                    Some(changes) => {
                        let key = Key { seed: self.seed, epoch, sample: u64::from(*sample) };
                        changes.apply(&mut key.draws(), values, row);
                    }
                }
            }
        }
        true
    }

    /// A filler that panics in its second batch of a split of 8 in batches of 4.
    #[cfg(test)]
    pub fn broken(split: &Split, options: &LoaderOptions, layout: &SlotLayout) -> Result<Self> {
        Ok(Filler { split: split.first(4), ..Filler::new(split, options, layout)? })
    }
}

/// What mixes the batches: the one image, and what is learnt.
fn mixer(
    mixing: Mixing,
    options: &LoaderOptions,
    fields: &[Field],
    columns: &[Option<Column>],
    layout: &SlotLayout,
) -> Result<Mixer> {
    mixing.check()?;
    let number = transformed(fields).filter(|number| [DType::U8, DType::F32].contains(&fields[*number].dtype));
    let Some((number, column)) = number.and_then(|number| Some((number, columns[number]?))) else {
        bail!("samples are mixed in the one field that is an image, and the batch has none or more than one");
    };
    let dtype = fields[number].dtype;
    let changed = if options.transforms.is_empty() { None } else { Some(&options.transforms[..]) };
    let shape = changed.map_or(Ok(fields[number].shape.clone()), |list| output_shape(list, &fields[number].shape))?;
    let (sides, channels) = match *shape.dims() {
        [h, w, c] => ([h, w], c),
        _ if mixing.cutmix.is_some() => bail!("`cutmix` takes images, but the samples are of shape {shape}"),
        _ => ([1, 1], shape.len()),
    };
    let images = Images { column, dtype, sides, pixel: channels * dtype.bytes() };
    let learnt = fields.iter().position(Field::is_target);
    let targets = match learnt.and_then(|number| Some((&fields[number], columns[number]?))) {
        None => Targets::None,
        Some((field, column)) if field.dtype == DType::F32 => Targets::Numbers(column),
        Some((field, labels)) if field.dtype == DType::I32 && field.shape.len() == 1 => {
            let shares = layout.find(Input::Shares).map(|place| {
                let classes = place.shape.last();
                (Column { offset: place.offset, bytes: classes * DType::F32.bytes() }, classes)
            });
            let room = shares.is_none_or(|(place, _)| place.offset + options.batch_size * place.bytes <= layout.bytes);
            ensure!(room, "the shares of classes do not fit a batch slot of {} bytes", layout.bytes);
            Targets::Classes { labels, shares }
        }
        Some((field, _)) => bail!("samples with targets of {} {} cannot be mixed", field.dtype, field.shape),
    };
    Ok(Mixer { mixing, seed: options.seed, images, targets })
}

/// The place of a field in the slot, whose samples have that shape there.
fn column(field: &Field, shape: &Shape, place: &SlotInput, batch: usize, layout: &SlotLayout) -> Result<Column> {
    let (name, dtype) = (&field.name, field.dtype);
    let rows = place.shape.dims().split_first();
    // What a shorter sequence does not fill is not read.
    let fits = rows.is_some_and(|(n, rest)| {
        let room = rest.iter().product::<usize>();
        *n >= batch && (room == shape.len() || !field.lengths.is_empty() && n * room >= batch * shape.len())
    });
    ensure!(
        fits && place.dtype == dtype,
        "`{name}` of the batch slot is {} {}, which does not take batches of {batch} samples of {dtype} {shape}",
        place.dtype,
        place.shape,
    );
    let bytes = shape.len() * dtype.bytes();
    ensure!(
        place.offset + batch * bytes <= layout.bytes,
        "`{name}` does not fit a batch slot of {} bytes",
        layout.bytes
    );
    Ok(Column { offset: place.offset, bytes })
}

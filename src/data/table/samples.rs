//! The rows of a table as samples, by what training has fitted.

use super::super::Split;
use super::super::classes::numbering;
use super::super::field::{Field, FieldKind, INPUTS, TARGETS};
use super::super::memory::Memory;
use super::super::parallel::parallel;
use super::super::values::{Values, bytes_of};
use super::aside::{Aside, Lies, Room};
use super::codec::{Cells, ColumnCodec};
use super::fitted::{TableCodec, Target};
use super::raw::Raw;
use super::series::Series;
use super::tokens::TokensCodec;
use super::windowed::Windowed;
use super::windows::{Asked, Windows};
use crate::graph::DType;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Rows whose numbers are made by a thread at a time.
const ROWS: usize = 1024;
/// Rows and columns of a block of them that is made column by column: it stays in the cache until the last column is there.
const BLOCK: usize = 128;
const COLUMNS: usize = 64;

/// What a model takes of a row, each a field of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The numbers of all columns but the one of tokens.
    Numbers,
    /// The tokens of a column.
    Tokens,
    /// How many tokens there are.
    Lengths,
}

/// What all rows have of a field: in memory, or where it is in a file.
enum Placed {
    Here(Values),
    There((u64, u64, DType)),
}

impl Placed {
    fn here(self) -> Option<Values> {
        if let Placed::Here(values) = self { Some(values) } else { None }
    }
}

impl TableCodec {
    /// The fields of its samples.
    pub fn fields(&self) -> Vec<Field> {
        let fields = self.fields_of_a_row();
        match &self.windows {
            Some(windows) => fields.into_iter().map(|field| self.in_windows(field, windows)).collect(),
            None => fields,
        }
    }

    /// A field of samples that are windows of rows.
    fn in_windows(&self, field: Field, windows: &Windows) -> Field {
        let own = field.shape.dims();
        if field.is_input() {
            return Field { shape: [&[windows.rows], own].concat().into(), ..field };
        }
        match &field.kind {
            // A class is that of one row.
            FieldKind::Number => Field {
                shape: [own.iter().product::<usize>() * windows.learnt()].into(),
                standard: field.standard.map(|standard| standard.repeated(windows.learnt())),
                columns: windows.named(&field.columns),
                ..field
            },
            _ => field,
        }
    }

    /// The fields of a row.
    fn fields_of_a_row(&self) -> Vec<Field> {
        let target = self.target.field(TARGETS);
        let columns = if target.kind == FieldKind::Number { self.targets_named() } else { Vec::new() };
        let target = Field { columns, ..target };
        let heads = self.heads.iter().map(|head| head.target.field(format!("{TARGETS}_{}", head.name)));
        let weight = self.sample_weight.iter().map(|_| Field::sample_weight());
        self.parts().iter().map(|part| self.field(*part)).chain([target]).chain(heads).chain(weight).collect()
    }

    /// What the model takes of a row.
    fn parts(&self) -> Vec<Part> {
        let Some(tokens) = &self.tokens else { return vec![Part::Numbers] };
        let mut all = vec![(self.name_of(tokens), Part::Tokens)];
        if !self.columns.is_empty() {
            all.insert(0, (INPUTS, Part::Numbers));
        }
        let taken = |name: &String| all.iter().find(|(own, _)| own == name).map(|(_, part)| *part);
        let taken: Option<Vec<Part>> = self.takes.iter().map(taken).collect();
        // A field that is not there is reported with all that are.
        let mut parts =
            taken.filter(|taken| !taken.is_empty()).unwrap_or_else(|| all.iter().map(|(_, part)| *part).collect());
        parts.push(Part::Lengths);
        parts
    }

    /// What the field of the tokens is called: as that of any other source, where there is nothing else, unless the model names the column.
    fn name_of<'a>(&self, tokens: &'a TokensCodec) -> &'a str {
        if self.columns.is_empty() && !self.takes.contains(&tokens.column) { INPUTS } else { &tokens.column }
    }

    fn field(&self, part: Part) -> Field {
        match (part, &self.tokens) {
            (Part::Tokens, Some(tokens)) => tokens.field(self.name_of(tokens)),
            (Part::Lengths, _) => TokensCodec::length_field(),
            (Part::Numbers | Part::Tokens, _) => Field::numbers(INPUTS, DType::F32, [self.width()]),
        }
    }

    /// What all rows have of each field that the model takes, in memory or in a file; and how many texts were cut.
    fn placed_values(&self, raw: &Raw, file: Option<&Aside>) -> Result<(Vec<Placed>, usize)> {
        let encoded = match &self.tokens {
            Some(tokens) => Some((tokens.longest(), tokens.encoded(raw)?)),
            None => None,
        };
        let cut = encoded.as_ref().map_or(0, |(_, encoded)| encoded.cut());
        let of = |part: &Part| {
            Ok(match (part, &encoded, file) {
                (Part::Tokens, Some((longest, encoded)), None) => Placed::Here(encoded.values(*longest)),
                (Part::Tokens, Some((longest, encoded)), Some(file)) => Placed::There(encoded.put(*longest, file)?),
                (Part::Lengths, Some((_, encoded)), _) => Placed::Here(encoded.lengths()),
                (_, _, None) => Placed::Here(Values::Floats(self.inputs(raw)?)),
                (_, _, Some(file)) => Placed::There(self.inputs_aside(raw, file)?),
            })
        };
        Ok((self.parts().iter().map(of).collect::<Result<_>>()?, cut))
    }

    /// What the samples of a trained model have of each field that it takes, as the bytes of one after the other; of windows those that are `asked` for.
    ///
    /// # Errors
    /// There are too many for this machine; a text has a character without a token.
    pub fn input_bytes(&self, raw: &Raw, asked: Option<&Asked>) -> Result<Vec<Vec<u8>>> {
        if let (Some(asked), Some(windows)) = (asked, &self.windows) {
            let (rows, _) = self.rows(raw, false, &Room { lies: Lies::InMemory, folder: None })?;
            let (fields, series) = (self.input_fields(self.fields()), Arc::clone(&asked.series));
            return Ok(Windowed::new(rows, fields, series, windows.clone())?.input_bytes(&asked.rows));
        }
        let (all, _) = self.placed_values(raw, None)?;
        Ok(all.into_iter().filter_map(Placed::here).map(|values| values.bytes().to_vec()).collect())
    }

    fn input_fields(&self, mut fields: Vec<Field>) -> Vec<Field> {
        fields.retain(Field::is_input);
        fields
    }

    /// The numbers of all columns but the one of tokens, one row after the other.
    ///
    /// # Errors
    /// There are too many for this machine.
    pub fn inputs(&self, raw: &Raw) -> Result<Vec<f32>> {
        let (width, rows) = (self.width(), raw.rows());
        let mut inputs = vec![0f32; width.checked_mul(rows).context("the table is too large")?];
        let blocks = inputs.chunks_mut((ROWS * width).max(1)).zip((0..).step_by(ROWS));
        let done = parallel(blocks.collect(), |(block, first)| self.encode(raw, first, block));
        done.into_iter().collect::<Result<()>>()?;
        Ok(inputs)
    }

    /// Writes those of the rows from `first` on, as many as `out` has place for.
    fn encode(&self, raw: &Raw, first: usize, out: &mut [f32]) -> Result<()> {
        let width = self.width();
        let rows = first..first + out.len() / width;
        let placed: Vec<(Range<usize>, &ColumnCodec)> = self.placed().collect();
        for columns in placed.chunks(COLUMNS) {
            let pieces = columns.iter().map(|(_, codec)| raw.some(&codec.name, rows.clone()));
            let pieces = pieces.collect::<Result<Vec<_>>>()?;
            for (block, first) in out.chunks_mut(BLOCK * width).zip(rows.clone().step_by(BLOCK)) {
                for ((places, codec), piece) in columns.iter().zip(&pieces) {
                    let places = block.chunks_exact_mut(width).map(|row| &mut row[places.clone()]);
                    codec.encode_from(&piece.cells, first - piece.first, places);
                }
            }
        }
        Ok(())
    }

    /// Writes those of all rows to a file; where they are, and how many bytes they have.
    fn inputs_aside(&self, raw: &Raw, file: &Aside) -> Result<(u64, u64, DType)> {
        let (width, rows) = (self.width(), raw.rows());
        let each = (size_of::<f32>() * width) as u64;
        let bytes = each.checked_mul(rows as u64).context("the table is too large")?;
        let begin = file.place(bytes);
        let done = parallel((0..rows).step_by(ROWS).collect(), |first| {
            let mut block = vec![0f32; width * ROWS.min(rows - first)];
            self.encode(raw, first, &mut block)?;
            file.put(bytes_of(&block), begin + first as u64 * each)
        });
        done.into_iter().collect::<Result<()>>()?;
        Ok((begin, bytes, DType::F32))
    }

    /// The samples of a table, in memory or in a file, as there is `room`, and how many of their texts are cut. The number of a sample is that of its row or, where
    /// several rows of a series make one, of the last of them. `targets`: with what is learnt.
    ///
    /// # Errors
    /// A class is not known; the file cannot be written.
    pub fn samples(
        &self,
        raw: &Raw,
        series: Option<&Arc<Series>>,
        targets: bool,
        room: &Room,
    ) -> Result<(Split, usize)> {
        let (rows, cut) = self.rows(raw, targets, room)?;
        let all = match (series, &self.windows) {
            (Some(series), Some(windows)) => {
                let fields = if targets { self.fields() } else { self.input_fields(self.fields()) };
                Split::new(Arc::new(Windowed::new(rows, fields, Arc::clone(series), windows.clone())?))?
            }
            _ => Split::new(Arc::new(rows))?,
        };
        Ok((all, cut))
    }

    /// All rows of a table.
    fn rows(&self, raw: &Raw, targets: bool, room: &Room) -> Result<(Memory, usize)> {
        let rows = raw.rows();
        let mut fields = self.fields_of_a_row();
        fields.retain(|field| targets || field.is_input());
        let each: usize = fields.iter().map(Field::bytes).sum();
        let aside = room.aside((rows as u64).saturating_mul(each as u64))?;
        let (mut all, cut) = self.placed_values(raw, aside.as_deref())?;
        if targets {
            for target in self.learnt() {
                all.push(Placed::Here(self.values(target, raw)?));
            }
            all.extend(self.weights(raw)?.map(Placed::Here));
        }
        let values = match aside {
            None => all.into_iter().filter_map(Placed::here).collect(),
            Some(file) => {
                let place = |one: Placed| match one {
                    Placed::There(place) => Ok(place),
                    Placed::Here(values) => {
                        let bytes = values.bytes();
                        Ok((file.add(bytes)?, bytes.len() as u64, values.dtype()))
                    }
                };
                let places = all.into_iter().map(place).collect::<Result<Vec<_>>>()?;
                file.mapped(&places)?.into_iter().map(Values::Mapped).collect::<Vec<_>>()
            }
        };
        let list = fields.into_iter().zip(values).collect();
        let memory = Memory::new(list, rows)?;
        // Rows that come one by one need not be called anything.
        let memory = if raw.names().len() == rows { memory.named(Arc::clone(raw.names())) } else { memory };
        // Without targets samples stay in their order: all batches are of one length.
        let lengths = self.tokens.as_ref().filter(|_| targets).map_or(Vec::new(), TokensCodec::batches);
        Ok((memory.in_batches_of(lengths), cut))
    }

    fn weights(&self, raw: &Raw) -> Result<Option<Values>> {
        let Some(name) = &self.sample_weight else { return Ok(None) };
        Ok(match &*raw.numbers(name)? {
            Cells::Numbers(values) => Some(Values::Floats(values.iter().map(|value| *value as f32).collect())),
            Cells::Texts(..) => None,
        })
    }

    /// The first row with a text that is none of the known ones, and the text; rows are left out in which anything is missing that is learnt.
    fn first_unknown<'a>(
        &self,
        raw: &Raw,
        (numbers, texts): (&[Option<u32>], &'a [String]),
        known: &HashMap<&str, i32>,
    ) -> Result<Option<(usize, &'a str)>> {
        if texts.iter().all(|text| known.contains_key(text.as_str())) {
            return Ok(None);
        }
        let columns = self.learnt().flat_map(Target::columns).map(|name| raw.column(name));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let unknown = |row: usize| {
            let text = texts[numbers[row]? as usize].as_str();
            let whole = columns.iter().all(|cells| !cells.is_missing(row as u32)) && !raw.skips(row as u32);
            (whole && !known.contains_key(text)).then_some((row, text))
        };
        Ok((0..raw.rows()).find_map(unknown))
    }

    /// What all rows have of a target.
    fn values(&self, target: &Target, raw: &Raw) -> Result<Values> {
        match target {
            Target::Classes { column, names } => {
                let cells = raw.column(column)?;
                let Cells::Texts(numbers, texts) = &*cells else {
                    bail!("the target `{column}` was not read as a text")
                };
                let number = numbering(names, false);
                let known = texts.iter().filter_map(|text| Some((text.as_str(), number(text)? as i32)));
                let known: HashMap<&str, i32> = known.collect();
                if let Some((row, text)) = self.first_unknown(raw, (numbers, texts), &known)? {
                    let names: Vec<String> = names.iter().take(12).map(|name| format!("`{name}`")).collect();
                    bail!(
                        "{}: the target `{column}` has `{text}`, which the model does not know: it was trained on {}",
                        raw.names().at(row),
                        names.join(", ")
                    );
                }
                let number = |number: u32| known.get(texts[number as usize].as_str()).copied().unwrap_or(-1);
                let of = |cell: &Option<u32>| cell.map_or(-1, number);
                Ok(Values::Ints(numbers.iter().map(of).collect()))
            }
            Target::Numbers { columns, .. } => {
                let mut all = vec![f32::NAN; columns.len() * raw.rows()];
                for (at, name) in columns.iter().enumerate() {
                    if let Cells::Numbers(values) = &*raw.column(name)? {
                        let places = all.iter_mut().skip(at).step_by(columns.len());
                        places.zip(values).for_each(|(to, from)| *to = *from as f32);
                    }
                }
                Ok(Values::Floats(all))
            }
        }
    }
}

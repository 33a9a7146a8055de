//! The windows that a configuration asks for, as the columns of a table allow.

use super::codec::Read;
use super::columns::Use;
use super::fitted::TableCodec;
use super::kinds::{CellType, Column, Odd};
use super::options::{TableOptions, WindowsOptions};
use super::windows::Windows;
use crate::terminal::counted;
use anyhow::{Result, bail, ensure};

/// The windows that a training makes, with how the columns that order rows are read.
///
/// # Errors
/// A column of texts orders rows; classes are to be learnt of several rows; a column becomes tokens.
pub fn fit_windows(options: &TableOptions, columns: &[Column], uses: &[Use]) -> Result<Option<Windows>> {
    let Some(asked) = &options.windows else { return Ok(None) };
    let find = |name: &String| columns.iter().zip(uses).find(|(column, _)| column.name == *name);
    if let Some((column, _)) = columns.iter().zip(uses).find(|(_, used)| matches!(used, Use::Tokens(_))) {
        bail!(
            "`{}` becomes tokens, and a sample is {} rows: a window takes numbers, categories and dates; leave the column out",
            column.name,
            asked.rows
        );
    }
    let time = match options.division.time_column.as_ref().and_then(find) {
        None => None,
        Some((column, used)) => {
            let form = options.date_form(&column.name);
            let read = match (used, form) {
                (Use::Input(encoding), _) => encoding.read(),
                (_, Some(form)) => Read::Date(Some(form)),
                _ if matches!(column.cells, CellType::Numbers | CellType::Codes) => Read::Number,
                _ if CellType::Dates == column.cells || CellType::Dates == column.readable_as => Read::Date(None),
                _ => Read::Text,
            };
            if read.is_text()
                && matches!(used, Use::Input(_))
                && matches!(column.cells, CellType::Dates | CellType::Numbers)
            {
                bail!(
                    "`{0}` says the order of the rows, and `columns` makes texts of its cells: leave `{0}` out of `columns`, or make it a date or a number there",
                    column.name
                );
            }
            if read.is_text() {
                let has = column.odd.as_ref().map_or_else(|| format!("{} cells", column.cells.name()), Odd::in_words);
                bail!(
                    "`{}` says the order of the rows, which dates or numbers do, and it has {has}: {}",
                    column.name,
                    match column.odd {
                        Some(Odd::DateFormat(..)) => "say how they are written, in `columns`",
                        _ => "mend its cells, or leave `time_column` out, if the rows stand in their order",
                    }
                );
            }
            Some((column.name.clone(), read))
        }
    };
    let series = match asked.series.as_ref().and_then(find) {
        None => None,
        Some((column, Use::Input(encoding))) => {
            let read = encoding.read();
            ensure!(
                !matches!(read, Read::Hash { .. }),
                "`{}` says which series a row is of, and two series may have the same hash: make it a category in `columns`, without `hash_buckets`",
                column.name
            );
            Some((column.name.clone(), read))
        }
        Some((column, _)) => Some((column.name.clone(), Read::Text)),
    };
    let WindowsOptions { rows, horizon, stride, .. } = *asked;
    Ok(Some(Windows { rows, horizon, stride, time, series }))
}

/// Refuses classes of several rows.
pub fn expect_numbers(windows: &Windows, learnt: &[(&str, Read)]) -> Result<()> {
    if let Some((name, _)) = learnt.iter().find(|(_, read)| windows.horizon > 1 && read.is_text()) {
        bail!(
            "`{name}` is learnt as a class, and `horizon` asks for {}: a class is that of one row, with `horizon = 1` or `horizon = 0`",
            counted(windows.horizon, "row")
        );
    }
    Ok(())
}

impl TableCodec {
    /// Its windows, which may begin elsewhere than in training.
    pub fn windows_by(&self, options: &TableOptions) -> Option<Windows> {
        let own = self.windows.clone()?;
        Some(match &options.windows {
            Some(asked) => Windows { stride: asked.stride, ..own },
            None => own,
        })
    }
}

/// Refuses a configuration that asks a trained model for other windows than it was trained on.
pub fn expect_windows(codec: &TableCodec, options: &TableOptions) -> Result<()> {
    let own = codec.windows.as_ref().map(|own| (own.rows, own.horizon));
    let asked = options.windows.as_ref().map(|asked| (asked.rows, asked.horizon));
    let words = |windows: Option<(usize, usize)>| match windows {
        Some((rows, horizon)) => format!("`window = {rows}` with `horizon = {horizon}`"),
        None => "single rows, without `window`".to_owned(),
    };
    ensure!(
        own == asked,
        "the model was trained on {}, and the configuration asks for {}: train a model anew for other windows",
        words(own),
        words(asked)
    );
    Ok(())
}

//! How a table is written: with a point before fractions and in UTF-8, as most are, or otherwise.

use super::Wanted;
use super::writing::{Writing, quoted};
use crate::api::failure::Failure;
use crate::data::table::{CellType, Format, Odd, Shown, odd_columns, open_sheet};
use encoding_rs::Encoding;

/// What most tables are in that are no UTF-8.
const OLD_ENCODING: &str = "windows-1252";

/// How a table is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dialect {
    decimal_comma: bool,
    /// The file is no UTF-8, and is read as most of such.
    old_encoding: bool,
}

impl Dialect {
    /// That by which most of a table can be read, and the columns that `read` finds so.
    pub fn of(
        wanted: &Wanted,
        target: &str,
        read: impl Fn(Dialect) -> Result<Vec<Shown>, Failure>,
    ) -> (Dialect, Result<Vec<Shown>, Failure>) {
        let readable = |dialect: Dialect| {
            let sheet = open_sheet(wanted.source, dialect.format());
            sheet.is_ok_and(|sheet| sheet.each_cells(&sheet.readable(), |_, _| Ok(())).is_ok())
        };
        let (mut own, old) = (Dialect::default(), Dialect { old_encoding: true, ..Dialect::default() });
        let mut found = read(own);
        if found.is_err() && !readable(own) && readable(old) {
            (own, found) = (old, read(old));
        }
        let comma = |shown: &Shown| matches!(shown.column.odd, Some(Odd::Comma(_)));
        if found.as_ref().is_ok_and(|columns| !columns.iter().any(comma)) {
            return (own, found);
        }
        let is_number = |shown: &&Shown| shown.column.cells == CellType::Numbers;
        let with = Dialect { decimal_comma: true, ..own };
        match (&found, read(with)) {
            (Ok(before), Ok(after))
                if after.iter().filter(is_number).count() > before.iter().filter(is_number).count() =>
            {
                (with, Ok(after))
            }
            // `251,583` is a quarter of a million, where nothing says that it is 251 and a half.
            (Err(_), Ok(after))
                if after.iter().any(|shown| shown.column.name == target && is_number(&shown))
                    && !own.has_thousands(wanted, target) =>
            {
                (with, Ok(after))
            }
            _ => (own, found),
        }
    }

    /// Whether the commas in a column's numbers stand between thousands, as far as the table says: each has three digits behind it, and no number of another
    /// column has one that can only stand before a fraction. Where `;` stands between columns, commas stand before fractions.
    fn has_thousands(self, wanted: &Wanted, column: &str) -> bool {
        let Ok(sheet) = open_sheet(wanted.source, self.format()) else { return false };
        let Ok(odd) = odd_columns(&sheet) else { return false };
        let is_comma = |odd: &Odd| matches!(odd, Odd::Comma(_));
        sheet.separator() != Some(b';')
            && matches!(odd.get(column), Some(Odd::Thousands(_)))
            && !odd.values().any(is_comma)
    }

    /// Why a column of texts is not what it is meant as nearly everywhere, if it is none of texts.
    pub fn odd(self, wanted: &Wanted, column: &str) -> Option<Odd> {
        odd_columns(&open_sheet(wanted.source, self.format()).ok()?).ok()?.remove(column)
    }

    /// What stands before the fraction of a number.
    pub fn decimal(self) -> char {
        if self.decimal_comma { ',' } else { '.' }
    }

    /// How its file is read.
    pub fn format(self) -> Format {
        let encoding = if self.old_encoding { Encoding::for_label(OLD_ENCODING.as_bytes()) } else { None };
        Format { encoding, ..Format::default() }
    }

    /// The lines of `[data]` that say it, for a draft.
    pub fn draft(self) -> String {
        let mut out = Writing::default();
        self.write(&mut out);
        out.text()
    }

    /// Writes the lines of `[data]` that say it.
    pub fn write(self, out: &mut Writing) {
        if self.decimal_comma {
            out.key("decimal", "\"comma\"", "1,5 is one and a half");
        }
        if self.old_encoding {
            out.key("encoding", &quoted(OLD_ENCODING), "the file is no UTF-8; another one, if letters look wrong");
        }
    }
}

//! How the values of a Parquet column are written as the cells of a text: as pandas and polars write them to CSV.

use super::super::kinds::Kind;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::schema::types::ColumnDescriptor;
use std::fmt::Write;

/// What the stored values of a column stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A column of nothing.
    Nothing,
    /// As they are.
    Plain,
    /// Whole numbers without a sign, in 32 bits or 64.
    Unsigned,
    /// 16 bits of a floating-point number.
    Half,
    /// Whole numbers, of which so many digits stand after the point.
    Decimal(usize),
    /// Days since 1970-01-01.
    Date,
    /// Since midnight, so many a second.
    Time(i64),
    /// Since 1970-01-01, so many a second.
    Moment(i64),
    /// The same, in UTC.
    Utc(i64),
    /// UTF-8.
    Text,
    /// 16 bytes.
    Uuid,
}

/// A value as it is stored.
pub enum Stored<'a> {
    /// A truth.
    Truth(bool),
    /// A whole number of 32 bits.
    Int(i32),
    /// One of 64 bits.
    Long(i64),
    /// A moment in nanoseconds since 1970-01-01, as days and the rest.
    Nanoseconds(i64, i64),
    /// A number in single precision.
    Float(f32),
    /// One in double precision.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
}

const DAY: i64 = 86_400;
/// 0000-03-01 in days before 1970-01-01, and the days of 400 years.
const ERA_BEGIN: i64 = 719_468;
const ERA: i64 = 146_097;

impl Meaning {
    /// What a column of a file has; `Err`: what it has that is no cell.
    pub fn of(column: &ColumnDescriptor) -> Result<(Meaning, Kind), &'static str> {
        let per_second = |unit: &TimeUnit| match unit {
            TimeUnit::MILLIS => 1_000,
            TimeUnit::MICROS => 1_000_000,
            TimeUnit::NANOS => 1_000_000_000,
        };
        let whole = matches!(column.physical_type(), Type::INT32 | Type::INT64);
        let bytes = matches!(column.physical_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
        let length = (column.physical_type() == Type::FIXED_LEN_BYTE_ARRAY).then(|| column.type_length());
        if length.is_some_and(|length| length < 1) {
            return Err("values of no bytes");
        }
        let decimal = |scale: i32| match usize::try_from(scale) {
            Ok(digits) if digits <= 38 && (whole || bytes) => Ok((Meaning::Decimal(digits), Kind::Number)),
            _ => Err("decimals of an unknown kind"),
        };
        let number = Ok((Meaning::Plain, Kind::Number));
        let text = if bytes { Ok((Meaning::Text, Kind::Text)) } else { Err("texts of an unknown kind") };
        match column.logical_type_ref() {
            Some(LogicalType::Unknown) => return Ok((Meaning::Nothing, Kind::Nothing)),
            Some(LogicalType::String | LogicalType::Enum | LogicalType::Json) => return text,
            Some(LogicalType::Decimal(decimals)) => return decimal(decimals.scale),
            Some(LogicalType::Date) if column.physical_type() == Type::INT32 => return Ok((Meaning::Date, Kind::Date)),
            Some(LogicalType::Time(time)) if whole => return Ok((Meaning::Time(per_second(&time.unit)), Kind::Text)),
            Some(LogicalType::Timestamp(time)) if column.physical_type() == Type::INT64 => {
                let per_second = per_second(&time.unit);
                return Ok(match time.is_adjusted_to_u_t_c {
                    true => (Meaning::Utc(per_second), Kind::Utc),
                    false => (Meaning::Moment(per_second), Kind::Date),
                });
            }
            Some(LogicalType::Integer(int)) if whole && !int.is_signed => {
                return Ok((Meaning::Unsigned, Kind::Number));
            }
            Some(LogicalType::Integer(_)) if whole => return number,
            Some(LogicalType::Float16) if length == Some(2) => return Ok((Meaning::Half, Kind::Number)),
            Some(LogicalType::Uuid) if length == Some(16) => return Ok((Meaning::Uuid, Kind::Text)),
            Some(LogicalType::Bson) => return Err("bytes"),
            Some(_) => return Err("values of a kind that is not read"),
            None => {}
        }
        match column.converted_type() {
            ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON => return text,
            ConvertedType::DECIMAL => return decimal(column.type_scale()),
            ConvertedType::DATE if column.physical_type() == Type::INT32 => return Ok((Meaning::Date, Kind::Date)),
            ConvertedType::TIME_MILLIS if whole => return Ok((Meaning::Time(1_000), Kind::Text)),
            ConvertedType::TIME_MICROS if whole => return Ok((Meaning::Time(1_000_000), Kind::Text)),
            ConvertedType::TIMESTAMP_MILLIS if whole => return Ok((Meaning::Moment(1_000), Kind::Date)),
            ConvertedType::TIMESTAMP_MICROS if whole => return Ok((Meaning::Moment(1_000_000), Kind::Date)),
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64
                if whole =>
            {
                return Ok((Meaning::Unsigned, Kind::Number));
            }
            _ => {}
        }
        match column.physical_type() {
            Type::BOOLEAN => Ok((Meaning::Plain, Kind::Truth)),
            Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE => number,
            // How moments were stored before there was a kind for them.
            Type::INT96 => Ok((Meaning::Moment(1_000_000_000), Kind::Date)),
            Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY => Err("bytes"),
        }
    }

    /// Writes a value as a cell. `Err`: what is wrong with it.
    pub fn write(self, value: &Stored, out: &mut String) -> Result<(), &'static str> {
        let written = match (self, value) {
            (Meaning::Nothing, _) => Ok(()),
            (Meaning::Text, Stored::Bytes(bytes)) => {
                out.push_str(std::str::from_utf8(bytes).map_err(|_| "bytes that are not UTF-8")?);
                Ok(())
            }
            (Meaning::Uuid, Stored::Bytes(bytes)) => bytes.iter().enumerate().try_for_each(|(at, byte)| {
                let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
                write!(out, "{dash}{byte:02x}")
            }),
            (Meaning::Half, Stored::Bytes([low, high])) => {
                write!(out, "{:?}", half::f16::from_le_bytes([*low, *high]).to_f32())
            }
            (Meaning::Decimal(digits), Stored::Bytes(bytes)) => {
                let [first, ..] = bytes else { return Err("a decimal of no bytes") };
                let skip = bytes.len().saturating_sub(16);
                // A number of 128 bits has 38 digits; longer ones begin with copies of the sign.
                let sign = if first & 0x80 == 0 { 0 } else { 0xff };
                if bytes[..skip].iter().any(|byte| *byte != sign) {
                    return Err("a decimal of more than 38 digits");
                }
                let wide = bytes[skip..]
                    .iter()
                    .fold(i128::from(first.cast_signed() >> 7), |all, byte| all << 8 | i128::from(*byte));
                decimal(wide, digits, out)
            }
            (Meaning::Decimal(digits), Stored::Int(value)) => decimal(i128::from(*value), digits, out),
            (Meaning::Decimal(digits), Stored::Long(value)) => decimal(i128::from(*value), digits, out),
            (Meaning::Unsigned, Stored::Int(value)) => write!(out, "{}", value.cast_unsigned()),
            (Meaning::Unsigned, Stored::Long(value)) => write!(out, "{}", value.cast_unsigned()),
            (Meaning::Date, Stored::Int(days)) => return day(i64::from(*days), out),
            (Meaning::Time(per_second), Stored::Int(value)) => time(i64::from(*value), per_second, out),
            (Meaning::Time(per_second), Stored::Long(value)) => time(*value, per_second, out),
            (Meaning::Moment(per_second), Stored::Long(value)) => {
                let (days, rest) = (value.div_euclid(DAY * per_second), value.rem_euclid(DAY * per_second));
                return moment(days, rest, per_second, out);
            }
            // As pandas writes them, so that their zone is there in a text, too.
            (Meaning::Utc(per_second), Stored::Long(_)) => {
                Meaning::Moment(per_second).write(value, out)?;
                out.push_str("+00:00");
                Ok(())
            }
            (Meaning::Moment(per_second), Stored::Nanoseconds(days, rest)) => {
                return moment(*days, *rest, per_second, out);
            }
            (Meaning::Plain, Stored::Truth(truth)) => write!(out, "{truth}"),
            (Meaning::Plain, Stored::Int(value)) => write!(out, "{value}"),
            (Meaning::Plain, Stored::Long(value)) => write!(out, "{value}"),
            // With a point, also where it is whole.
            (Meaning::Plain, Stored::Float(value)) => write!(out, "{value:?}"),
            (Meaning::Plain, Stored::Double(value)) => write!(out, "{value:?}"),
            _ => return Err("a value of another kind than its column"),
        };
        written.map_err(|_| "a value that cannot be written")
    }
}

fn decimal(value: i128, digits: usize, out: &mut String) -> std::fmt::Result {
    let sign = if value < 0 { "-" } else { "" };
    if digits == 0 {
        return write!(out, "{value}");
    }
    let one = 10u128.pow(digits as u32);
    let (whole, part) = (value.unsigned_abs() / one, value.unsigned_abs() % one);
    write!(out, "{sign}{whole}.{part:0digits$}")
}

/// A day as ISO 8601 has it: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn day(days: i64, out: &mut String) -> Result<(), &'static str> {
    let shifted = days.saturating_add(ERA_BEGIN);
    let (era, in_era) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
    let year_of_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years begin with March here.
    let month = (5 * in_year + 2) / 153;
    let date = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if !(1..=9999).contains(&year) {
        return Err("a date outside of the years 1 to 9999");
    }
    write!(out, "{year:04}-{month:02}-{date:02}").map_err(|_| "a date that cannot be written")
}

fn moment(days: i64, rest: i64, per_second: i64, out: &mut String) -> Result<(), &'static str> {
    day(days, out)?;
    out.push(' ');
    time(rest, per_second, out).map_err(|_| "a time that cannot be written")
}

fn time(value: i64, per_second: i64, out: &mut String) -> std::fmt::Result {
    let (seconds, part) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(out, "{hours:02}:{minutes:02}:{seconds:02}")?;
    if part > 0 {
        let digits = per_second.ilog10() as usize;
        let part = format!("{part:0digits$}");
        write!(out, ".{}", part.trim_end_matches('0'))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(meaning: Meaning, value: &Stored) -> Result<String, &'static str> {
        let mut out = String::new();
        meaning.write(value, &mut out).map(|()| out)
    }

    #[test]
    fn values_are_written_as_in_a_text() {
        use Meaning::{Date, Decimal, Half, Moment, Plain, Time, Unsigned, Uuid};
        // The days are those of `datetime.date.toordinal` of Python.
        let cases: &[(Meaning, Stored, &str)] = &[
            (Plain, Stored::Double(1.0), "1.0"),
            (Plain, Stored::Float(0.1), "0.1"),
            (Plain, Stored::Double(f64::NAN), "NaN"),
            (Plain, Stored::Long(i64::MIN), "-9223372036854775808"),
            (Unsigned, Stored::Long(-1), "18446744073709551615"),
            (Unsigned, Stored::Int(-1), "4294967295"),
            (Half, Stored::Bytes(&[0x00, 0x3e]), "1.5"),
            (Decimal(2), Stored::Int(-5), "-0.05"),
            (Decimal(0), Stored::Long(12), "12"),
            (Decimal(3), Stored::Bytes(&[0xff, 0xfb, 0x2e]), "-1.234"),
            (Decimal(1), Stored::Bytes(&[0; 20]), "0.0"),
            (Date, Stored::Int(0), "1970-01-01"),
            (Date, Stored::Int(-1), "1969-12-31"),
            (Date, Stored::Int(11_016), "2000-02-29"),
            (Date, Stored::Int(20_783), "2026-11-26"),
            (Date, Stored::Int(-25_508), "1900-03-01"),
            (Moment(1_000), Stored::Long(1), "1970-01-01 00:00:00.001"),
            (Moment(1_000_000), Stored::Long(-1_000_000), "1969-12-31 23:59:59"),
            (Moment(1_000_000_000), Stored::Nanoseconds(20_783, 21_600_500_000_000), "2026-11-26 06:00:00.5"),
            (Meaning::Utc(1_000), Stored::Long(1), "1970-01-01 00:00:00.001+00:00"),
            (Time(1_000), Stored::Int(63_000_000), "17:30:00"),
            (Uuid, Stored::Bytes(&[0x12; 16]), "12121212-1212-1212-1212-121212121212"),
        ];
        for (meaning, value, expected) in cases {
            assert_eq!(written(*meaning, value).as_deref(), Ok(*expected));
        }
        assert!(written(Date, &Stored::Int(i32::MAX)).unwrap_err().contains("years 1 to 9999"));
        assert!(written(Moment(1), &Stored::Long(i64::MIN)).unwrap_err().contains("years 1 to 9999"));
        assert!(written(Meaning::Text, &Stored::Bytes(&[0xff])).unwrap_err().contains("UTF-8"));
        assert!(written(Decimal(2), &Stored::Bytes(&[1; 17])).unwrap_err().contains("38 digits"));
    }
}

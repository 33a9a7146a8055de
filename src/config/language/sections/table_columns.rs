//! What becomes of the columns of a table: types, their options, and rules that give them to names.

use std::fmt::Write as _;

use chrono::NaiveDate;
use chrono::format::{Item, Parsed, StrftimeItems, parse};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::text::{Tokenizer, check_buckets, lengths_of};
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::{Part, known_word};
use crate::config::declare::tagged::{Tagged, tagged};
use crate::config::declare::value::{Value, values};
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::tree::{Entry, Node, Table};

values!(Scaling, Fill, Norm);

/// How numbers are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// Less the mean, by the standard deviation.
    Standardize,
    /// The quantile of a normal distribution that the number is of the training rows: outliers lose their weight.
    Quantile,
    /// `sign(x) · ln(1 + |x|)`, then standardised.
    Log,
    /// `bins` numbers: how much of each bin lies below the number; bins end at quantiles (Gorishniy et al. 2022).
    PiecewiseLinear,
    /// As it is.
    None,
}

/// What stands in the place of a missing number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// The median of the training rows.
    Median,
    /// Their mean.
    Mean,
    /// Zero.
    Zero,
}

/// What the counts of a text's words are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// The root of the sum of their squares: long texts count as much as short ones.
    L2,
    /// Nothing.
    None,
}

options! {
    /// A number, and another that says whether it is missing, if it is in some training rows.
    pub struct NumberColumn {
        /// How it is scaled: `standardize` takes the mean away and divides by the standard deviation; `quantile` gives the quantile of a normal distribution that the number is of
        /// the training rows; `log` is `sign(x) · ln(1 + abs(x))`, standardised; `piecewise_linear` says of each of `bins` how much of it lies below the number; `none` leaves it as it is.
        #[option(default = Scaling::Standardize)]
        pub scaling: Scaling,
        /// What stands in its place where it is missing.
        #[option(default = Fill::Median)]
        pub missing: Fill,
        /// Bins of `scaling = "piecewise_linear"`.
        #[option(default = 16, range = 2..=1000)]
        pub bins: usize,
    }

    /// One of some texts: a 1 in its own place and 0 in the others. A text that no training row has is all zeros, which is not what a
    /// missing one is.
    pub struct CategoryColumn {
        /// Most texts that have a place of their own; the others share one.
        #[option(default = 64, range = 1..=MAX_SIZE)]
        pub max_categories: usize,
        /// Training rows that a text must stand in to have a place of its own.
        #[option(default = 1, range = 1..=MAX_SIZE)]
        pub min_count: usize,
        /// Places that all texts share, in place of places of their own: a text has the place that its hash says, whether training has seen it or not, and texts are not
        /// kept. For columns of many texts. `sklearn.feature_extraction.FeatureHasher` with `alternate_sign=False`.
        #[option(otherwise = "texts have places of their own", range = 1..=1_048_576, example = "1000")]
        pub hash_buckets: Option<usize>,
        /// Numbers of the vector that `tabular_input` has for each text. Other layers take the column as it is.
        #[option(otherwise = "`1.6 · n^0.56` of n places, at most 600", range = 1..=MAX_SIZE, example = "4")]
        pub embedding: Option<usize>,
    }

    /// The words of a text, in lower case, each counted in the place that its hash says: a bag of words, of which nothing is fitted. A word is two or more letters, digits
    /// or `_`. `sklearn.feature_extraction.text.HashingVectorizer`.
    pub struct TextColumn {
        /// How many numbers a text becomes. The fewer, the more words share one.
        #[option(default = 1024, range = 1..=1_048_576)]
        pub hash_buckets: usize,
        /// What the counts are divided by.
        #[option(default = Norm::L2)]
        pub norm: Norm,
        /// Half of the words count −1 in place of 1, by their hash, so that words that share a place cancel out on the average.
        #[option(default = true)]
        pub alternate_sign: bool,
    }

    /// The tokens of a text, in their order, for layers of sequences: a field of samples beside the numbers of the other columns, `inputs`, which the model takes by the
    /// column's name, as `inputs = ["inputs", "review"]` in `[model]`. Where there is no other column, the tokens are `inputs` themselves. One column of a table may become tokens.
    pub struct TokensColumn {
        /// As of `text_classes`. What it learns is of the training rows alone.
        #[option(default = Tokenizer::Words)]
        pub tokenizer: Tokenizer,
        /// As of `text_classes`.
        #[option(otherwise = "`10000` words, `4096` byte pairs", range = 2..=MAX_SIZE, unit = "tokens")]
        pub vocab_size: Option<usize>,
        /// Longer texts are cut to this.
        #[option(default = 256, range = 1..=MAX_SIZE, unit = "tokens")]
        pub max_length: usize,
        /// As of `text_classes`.
        #[option(otherwise = "a quarter and a half of `max_length`, and all of it", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[64, 128, 256]")]
        pub buckets: Option<Vec<usize>>,
    }

    /// True or false, yes or no: 1 or 0.
    pub struct BooleanColumn {}

    /// A date as 2026-11-26, with a time if there is one: days, and the part of the year and of the week as points on a circle.
    pub struct DateColumn {
        /// How dates are written, as `strftime` has it: `%d.%m.%Y`, `%m/%d/%y`, `%d.%m.%Y %H:%M`. Names of months are English, and a time zone is not looked at. Dates of Parquet need none.
        #[option(otherwise = "as ISO 8601 has it", example = r#""%d.%m.%Y""#)]
        pub format: Option<String>,
        /// The part of the day is a point on a circle, too.
        #[option(default = false)]
        pub time_of_day: bool,
    }

    /// A column that the model does not take.
    pub struct IgnoredColumn {
        /// Of `time_column`: how its dates are written, as of `date`. Rows are ordered and held out by them all the same.
        #[option(otherwise = "as ISO 8601 has it", example = r#""%d.%m.%Y""#)]
        pub format: Option<String>,
    }
}

tagged! {
    /// What becomes of a column.
    ColumnType by "type", resume Breaks:
    "number" => Number(NumberColumn),
    "category" => Category(CategoryColumn),
    "text" => Text(TextColumn),
    "tokens" => Tokens(TokensColumn),
    "boolean" => Boolean(BooleanColumn),
    "date" => Date(DateColumn),
    "ignore" => Ignore(IgnoredColumn),
}

impl TokensColumn {
    /// The lengths of batches, ascending.
    pub fn lengths(&self) -> Vec<usize> {
        lengths_of(self.buckets.as_deref(), self.max_length)
    }
}

impl Check for NumberColumn {}
impl Check for CategoryColumn {
    fn check(&self, part: &Part) {
        // Written out, a configuration has the defaults as well.
        for (key, usual) in [("max_categories", self.max_categories == 64), ("min_count", self.min_count == 1)] {
            if !usual {
                part.conflict("hash_buckets", key, "no text has a place of its own where all are hashed");
            }
        }
    }
}
impl Check for TextColumn {}
impl Check for TokensColumn {
    fn check(&self, part: &Part) {
        self.tokenizer.check(part, self.vocab_size);
        check_buckets(part, self.buckets.as_deref(), self.max_length);
    }
}
impl Check for BooleanColumn {}
impl Check for DateColumn {
    fn check(&self, part: &Part) {
        check_format(part, self.format.as_deref());
    }
}
impl Check for IgnoredColumn {
    fn check(&self, part: &Part) {
        check_format(part, self.format.as_deref());
    }
}

fn check_format(part: &Part, format: Option<&str>) {
    if let Some(why) = format.and_then(no_date) {
        part.require("format", false, why);
    }
}

/// Most bytes of a format of dates.
const LONGEST_FORMAT: usize = 47;

/// Why a format of `strftime` says no date, if it does not: one is written by it and read again.
fn no_date(format: &str) -> Option<&'static str> {
    if format.len() > LONGEST_FORMAT {
        return Some("may have 47 bytes");
    }
    if StrftimeItems::new(format).any(|item| item == Item::Error) {
        return Some(
            "has a `%` that stands for nothing of a date: `%d` is a day, `%m` a month, `%b` its name, `%Y` a year, `%H:%M` a time",
        );
    }
    let date = NaiveDate::from_ymd_opt(2026, 11, 26)?;
    let mut written = String::new();
    let tried = write!(written, "{}", date.and_hms_opt(17, 30, 0)?.and_utc().format(format));
    let mut read = Parsed::new();
    let read = tried.is_ok()
        && parse(&mut read, &written, StrftimeItems::new(format)).is_ok()
        && read.to_naive_date() == Ok(date);
    (!read).then_some("says no day, month and year")
}

/// What becomes of columns, by name or pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnRules(pub Vec<ColumnRule>);

/// What becomes of the columns of a name or a pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnRule {
    /// The name or the pattern.
    pub name: String,
    /// What becomes of them.
    pub column: ColumnType,
    /// Where that is written.
    pub span: Span,
}

impl Value for ColumnRules {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let Some(table) = node.as_table() else {
            part.wrong_value(key, node, "expected a table: a name and a type for each column");
            return None;
        };
        let rule = |Entry { key: name, key_span, node }: &Entry| {
            let what = format!("`{key}.{name}`");
            let nothing = Table::default();
            let (table, word) = match (node.as_table(), node.as_str()) {
                (Some(table), _) => {
                    let part = Part { table, span: node.span, what: &what, bad: &[], sink: part.sink };
                    (table, part.word::<ColumnType>(None)?)
                }
                (None, Some(_)) => (&nothing, known_word(node, ColumnType::TAG, &what, ColumnType::TYPES, part.sink)?),
                (None, None) => {
                    let error = Diagnostic::error(format!("wrong value in {what}"));
                    let label = format!("expected a table or a type, found {}", node.describe());
                    part.sink.push(error.at(node.span, label));
                    return None;
                }
            };
            let part = Part { table, span: node.span, what: &what, bad: &[], sink: part.sink };
            part.known_keys(&[&[ColumnType::TAG], ColumnType::fields(word)]);
            let column = <ColumnType as Tagged>::read(word, &part)?;
            Some(ColumnRule { name: name.clone(), column, span: *key_span })
        };
        let rules: Vec<Option<ColumnRule>> = table.entries.iter().map(rule).collect();
        rules.into_iter().collect::<Option<Vec<_>>>().map(ColumnRules)
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let column = json_schema!({ "anyOf": [{ "type": "string", "enum": ColumnType::TYPES }, { "$ref": "#/$defs/ColumnType" }] });
        json_schema!({ "type": "object", "additionalProperties": column })
    }
}

impl Serialize for ColumnRules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for rule in &self.0 {
            map.serialize_entry(&rule.name, &rule.column)?;
        }
        map.end()
    }
}

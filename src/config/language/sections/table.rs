//! Tables: which file, which columns are learnt, and how the others become numbers.

use std::path::PathBuf;

use encoding_rs::Encoding;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::photos::{Columns, OnError, each_once};
use super::public::AboutSource;
use super::table_columns::{ColumnRules, ColumnType};
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, values};
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::{Node, Value as Written};

options! {
    /// The rows of a table: CSV and its relatives or JSON Lines, also packed (`.csv.gz`, `.jsonl.zst`), or Parquet. A row is a vector of numbers, `[features]`: what stands in a
    /// column says what becomes of it, and `columns` changes that. What is fitted (means, medians, categories) is of the training rows
    /// alone, and travels in the checkpoint.
    #[rules(
        Excludes("split_column", "group_column", "`split_column` says itself which rows are held out"),
        ExcludesWithout("split_column", "time_column", "window", "`split_column` says itself which rows are held out"),
        ExcludesWithout("group_column", "time_column", "window", "rows are held out by groups or by time"),
        Excludes("stratify_column", "split_column", "`split_column` says itself which rows are held out"),
        Excludes("stratify_column", "group_column", "groups are held out whole, whatever else is in them"),
        Excludes("stratify_column", "time_column", "the latest rows are held out, whatever is in them"),
        Excludes("stratify_column", "val_path", "the rows of that file are validated on"),
        Excludes("folds", "split_column", "`split_column` says itself which rows are held out"),
        ExcludesWithout("folds", "time_column", "window", "the rows of a fold are drawn, whatever their time"),
        Excludes("folds", "val_path", "each fold is validated on rows of its own"),
        Conflicts("window", "folds", Some("group_column"), "the latest rows of series are held out, unless `group_column` says what is held out whole"),
        Conflicts("window", "stratify_column", None, "the latest rows of series are held out, whatever is in them"),
        Conflicts("window", "sample_weight", None, "a window has several rows, and one weight"),
    )]
    pub struct Csv {
        /// The file, or several by a pattern (`parts/*.parquet`, `{a,b}.csv`), which have the same columns: `.jsonl` has a JSON object a line, `.parquet` says itself what its
        /// columns are; of any other the first line names the columns.
        #[option(example = r#""housing.csv""#, resume = Differs)]
        pub path: PathBuf,
        /// A file with the same columns to validate on, or several by a pattern, instead of `validation_split`.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// The column that is learnt, or a list of several. Texts are classes, for `cross_entropy`; numbers are learnt as they are, for
        /// `mse` and its relatives. Rows in which it is missing are left out.
        #[option(example = r#""median_house_value""#)]
        pub target: Columns,
        /// The target is one of some classes, also where all of its cells are numbers. A list names the classes in their order, the least first, for the loss `ordinal`;
        /// without, they are in the order of their numbers or names.
        #[option(default = TableClasses::AsFound(false), example = r#"["low", "middle", "high"]"#)]
        pub classes: TableClasses,
        /// Learn numbers less their mean, by their standard deviation. Figures and predictions are in the target's own unit all the same;
        /// the loss is not.
        #[option(default = true)]
        pub standardize_target: bool,
        /// How columns are encoded, by their names or by patterns (`*`, `?`); the first that fits counts. Without it numbers are
        /// standardised, texts become categories, and a column that is empty, always the same, or a text of its own in every row is left
        /// out.
        #[option(otherwise = "by what their cells are", example = r#"{ zip = "category", "*" = { type = "number", scaling = "quantile" } }"#)]
        pub columns: Option<ColumnRules>,
        /// Columns that the model does not take, by name or pattern.
        #[option(length = 1.., example = r#"["id", "note_*"]"#)]
        pub drop: Option<Vec<String>>,
        /// A column that names the rows: the model does not take it, and predictions carry it along, under its own name.
        #[option(example = r#""id""#)]
        pub id: Option<String>,
        /// A column with what each row weighs in the loss, a number of at least 0: the loss is the weighted mean, in training and in evaluation. The model does not
        /// take it, `predict` does without it, and all other figures count every row alike.
        #[option(example = r#""weight""#)]
        pub sample_weight: Option<String>,
        /// Rows of a sample, for series: so many rows, one after the other in the order of `time_column`, as `[window, features]`. The model
        /// takes what `target` was in them, and learns what it is in the rows after them.
        #[option(range = 1..=65536, example = "28")]
        pub window: Option<usize>,
        /// Rows after a window of which `target` is learnt: with 7 a model of days says the numbers of a week. With 0 the target of the window's own last row is learnt, which the model
        /// does not take: what a machine or a person was doing in these rows.
        #[option(otherwise = "1", range = 0..=65536, example = "7")]
        pub horizon: Option<usize>,
        /// Rows from the begin of a window to that of the next one. With as many as `window` has, no row is in two windows.
        #[option(otherwise = "1", range = 1..=65536, example = "14")]
        pub stride: Option<usize>,
        /// A column that says which series a row is of, where a table has several: of each shop, of each sensor.
        #[option(example = r#""shop""#)]
        pub series_column: Option<String>,
        /// A column that says of each row whether it is for training, validation or test: `train`, `val` or `test`.
        #[option(example = r#""split""#)]
        pub split_column: Option<String>,
        /// `validation_split` holds out all rows of some values of this column: a patient's rows are either trained on or validated on.
        #[option(example = r#""patient""#)]
        pub group_column: Option<String>,
        /// `validation_split` holds out the rows with the latest dates, or the greatest numbers, of this column. With `window` it says the order of the rows of a series, too.
        #[option(example = r#""date""#)]
        pub time_column: Option<String>,
        /// `validation_split` holds out the same part of the rows of each value of this column, and so do `folds`: of each region, or of those with a rare illness. A missing cell is a value, too, and values of
        /// a single row count as one.
        #[option(otherwise = "the target, if it is one of classes", example = r#""region""#)]
        pub stratify_column: Option<String>,
        /// Train so many models, each with another part of the rows held out to validate on: of each class the same part, or with `group_column` whole
        /// groups. `train` trains one after the other, in folders of their own, and `predict` gives the mean of their answers.
        #[option(range = 2..=100, example = "5")]
        pub folds: Option<usize>,
        /// Train that fold alone, from 1.
        #[option(otherwise = "all of them, one after the other", range = 1..=100, example = "1")]
        pub fold: Option<usize>,
        /// What to do about a row that cannot be read: one with another number of cells, a cell that is not what its column is, a target or a weight that cannot be. Skipped rows are
        /// reported and counted, and left out; if they are more than one and more than a twentieth, that is an error.
        #[option(default = OnError::Fail, resume = Harmless)]
        pub on_error: OnError,
        /// What stands between columns: one character.
        #[option(otherwise = "of `,`, `;`, tab and `|` the one of which the first line has most", example = r#"";""#)]
        pub separator: Option<String>,
        /// What a cell of CSV stands in that has a separator or the end of a line in it: one character, or `"none"`, if no cell does and quotes are characters like any others.
        #[option(otherwise = "`\"`", example = r#""'""#)]
        pub quote: Option<String>,
        /// What the bytes of CSV stand for, where no mark at the begin of the file says that it is UTF-8 or UTF-16: `"windows-1252"`, `"iso-8859-1"`, `"shift_jis"`, `"utf-16le"` and the other names of the
        /// [Encoding Standard](https://encoding.spec.whatwg.org/#names-and-labels).
        #[option(otherwise = "UTF-8", example = r#""windows-1252""#)]
        pub encoding: Option<String>,
        /// What stands before the fraction of a number in CSV.
        #[option(default = Decimal::Point)]
        pub decimal: Decimal,
        /// The first line names the columns. `false`: their names are their numbers, from `"1"`.
        #[option(default = true)]
        pub header: bool,
    }
}

/// Whether the target of a table is one of some classes, and which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TableClasses {
    /// If they are texts or, with `true`, in any case: those that are found.
    AsFound(bool),
    /// These.
    Names(Vec<String>),
}

impl TableClasses {
    /// The names that the configuration lists, if it lists some.
    pub fn names(&self) -> Option<&[String]> {
        match self {
            TableClasses::AsFound(_) => None,
            TableClasses::Names(names) => Some(names),
        }
    }
}

impl Value for TableClasses {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        if node.as_array().is_some_and(|names| names.len() > 1) {
            return Vec::read(part, key, node).map(TableClasses::Names);
        }
        match node.value {
            Written::Boolean(classes) => Some(TableClasses::AsFound(classes)),
            _ => {
                part.wrong_value(key, node, "expected true, false, or a list of names");
                None
            }
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let names = json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 2 });
        json_schema!({ "anyOf": [{ "type": "boolean" }, names] })
    }
}

values!(Decimal);

/// What stands before the fraction of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decimal {
    /// `1.5`
    Point,
    /// `1,5`; points group digits: `1.234,5`.
    Comma,
}

impl Check for Csv {
    fn check(&self, part: &Part) {
        let one = |text: &String| text.len() == 1 && !"\r\n".contains(text.as_str());
        let separator = |text: &String| one(text) && text.bytes().next() != self.quote_byte();
        part.require("separator", self.separator.as_ref().is_none_or(separator), "must be one character, and no quote");
        let quote = self.quote.as_ref().is_none_or(|text| one(text) || text == NO_QUOTE);
        part.require("quote", quote, "must be one character, or `\"none\"`");
        let known = |name: &String| Encoding::for_label_no_replacement(name.as_bytes()).is_some();
        part.require(
            "encoding",
            self.encoding.as_ref().is_none_or(known),
            "is no encoding that is known, as `utf-8`, `windows-1252`, `iso-8859-15`, `shift_jis`, `gb18030` and `utf-16le` are",
        );
        let same = self.separator.as_deref() == Some(",") && self.decimal == Decimal::Comma;
        part.require("separator", !same, "cannot be a comma where `decimal = \"comma\"`");
        let mut targets: Vec<&String> = self.target.names().iter().collect();
        targets.sort_unstable();
        part.require("target", !targets.windows(2).any(|pair| pair[0] == pair[1]), "has a column twice");
        each_once(part, self.classes.names().unwrap_or_default());
        match (self.fold, self.folds) {
            (Some(_), None) => part.sink.push(
                Diagnostic::error(format!("`fold` in {} needs `folds`", part.what))
                    .at(part.span_of("fold"), "there are no folds of which it could be one")
                    .help(
                        "say how many folds there are, with `folds = 5` or `--set data.folds=5`, or leave out `fold`",
                    ),
            ),
            (Some(fold), Some(folds)) => {
                part.require("fold", fold <= folds, &format!("must be at most {folds}, as many as there are `folds`"));
            }
            (None, _) => {}
        }
        let of_windows = [
            ("horizon", self.horizon.is_some()),
            ("stride", self.stride.is_some()),
            ("series_column", self.series_column.is_some()),
        ];
        for (key, given) in of_windows {
            if given && self.window.is_none() {
                part.sink.push(
                    Diagnostic::error(format!("`{key}` in {} needs `window`", part.what))
                        .at(part.span_of(key), "a sample is a single row")
                        .help("say of how many rows of a series a sample is, as with `window = 28`, or leave this out"),
                );
            }
        }
        let formats = self
            .columns
            .iter()
            .flat_map(|rules| &rules.0)
            .filter(|rule| matches!(&rule.column, ColumnType::Ignore(ignored) if ignored.format.is_some()));
        for rule in formats.filter(|rule| self.time_column.as_ref() != Some(&rule.name)) {
            part.sink.push(
                Diagnostic::error(format!("`format` of the ignored column `{}` has no use", rule.name))
                    .at(rule.span, "the dates of this column are not read")
                    .help("of columns that are ignored those of `time_column` alone have a format: leave it out, or write `type = \"date\"`"),
            );
        }
        let dropped = |name: &String| self.drop.iter().flatten().any(|drop| drop == name);
        part.require("drop", !self.target.names().iter().any(dropped), "names the target");
        let series = [("series_column", &self.series_column), ("time_column", &self.time_column)];
        let series = series.into_iter().filter(|_| self.window.is_some());
        for (key, column) in [("id", &self.id), ("sample_weight", &self.sample_weight)].into_iter().chain(series) {
            part.require(key, !column.as_ref().is_some_and(|name| self.target.names().contains(name)), "is the target");
        }
        part.require("drop", !self.sample_weight.as_ref().is_some_and(dropped), "names the weight of samples");
    }
}

/// What says that no cell stands in quotes.
const NO_QUOTE: &str = "none";

impl Csv {
    /// What a cell may stand in, if something.
    pub fn quote_byte(&self) -> Option<u8> {
        match self.quote.as_deref() {
            None => Some(b'"'),
            Some(NO_QUOTE) => None,
            Some(text) => text.bytes().next(),
        }
    }
}

impl Csv {
    /// Whether a column becomes tokens.
    pub fn has_tokens(&self) -> bool {
        self.columns.iter().flat_map(|rules| &rules.0).any(|rule| matches!(rule.column, ColumnType::Tokens(_)))
    }
}

impl AboutSource for Csv {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        let val = self.val_path.as_ref().map(|path| ("val_path", path));
        let tokenizers = self.columns.iter().flat_map(|rules| &rules.0).filter_map(|rule| match &rule.column {
            ColumnType::Tokens(tokens) => Some(("columns", tokens.tokenizer.path()?.1)),
            _ => None,
        });
        [("path", &self.path)].into_iter().chain(val).chain(tokenizers).collect()
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        let val = self.val_path.as_mut().map(|path| ("val_path", path));
        let rules = self.columns.iter_mut().flat_map(|rules| &mut rules.0);
        let tokenizers = rules.filter_map(|rule| match &mut rule.column {
            ColumnType::Tokens(tokens) => Some(("columns", tokens.tokenizer.path_mut()?.1)),
            _ => None,
        });
        [("path", &mut self.path)].into_iter().chain(val).chain(tokenizers).collect()
    }

    fn divides_itself(&self) -> bool {
        true
    }

    fn folds(&self) -> Option<usize> {
        self.folds
    }

    fn named_classes(&self) -> Option<usize> {
        self.classes.names().map(<[String]>::len)
    }

    fn has_classes(&self) -> Option<bool> {
        (self.classes != TableClasses::AsFound(false)).then_some(true)
    }
}

//! What becomes of each column: by the rules of the configuration, and else by what its cells are.

use super::super::WrongColumns;
use super::super::field::INPUTS;
use super::codec::{Encoding, Fill, Scaling};
use super::kinds::{CellType, Column, Odd};
use super::names::{HEADS, expect_there, is_pattern, quoted};
use super::options::{BINS, Choice, MOST_CATEGORIES, Rule, TableOptions};
use super::tokens::TokensOptions;
use anyhow::{Result, bail, ensure};
use glob::Pattern;

/// What becomes of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Use {
    /// The model takes it.
    Input(Encoding),
    /// The model takes its tokens.
    Tokens(TokensOptions),
    /// It is learnt. Where a sample is several rows, the model takes what it was in those, too.
    Target(Option<Encoding>),
    /// It is learnt by the head of this name.
    Head(String),
    /// It names the rows.
    Id,
    /// It says what rows weigh.
    Weight,
    /// The model does not take it, and why.
    Left(String),
}

/// The encoding of cells where no rule says another.
fn usual(cells: CellType) -> Encoding {
    match cells {
        CellType::Numbers | CellType::Nothing => {
            Encoding::Number { scaling: Scaling::Standardize, fill: Fill::Median, bins: BINS }
        }
        CellType::Truths => Encoding::Boolean,
        CellType::Dates => Encoding::Date { form: None, time_of_day: false },
        CellType::Texts | CellType::Codes => Encoding::Category { most: MOST_CATEGORIES, least: 1 },
    }
}

/// What becomes of each column of a table of so many rows.
///
/// # Errors
/// The options name a column that is not there, with those that are; a rule does not fit its column; nothing is left for the model.
pub fn choose(options: &TableOptions, columns: &[Column], rows: usize) -> Result<Vec<Use>> {
    let division = &options.division;
    let of_division = [
        (&division.split_column, "it has the part of each row"),
        (&division.group_column, "it has the group of each row"),
    ];
    let series = options.windows.as_ref().and_then(|windows| windows.series.as_ref());
    let single = [
        ("id", &options.id),
        ("sample_weight", &options.sample_weight),
        ("split_column", &division.split_column),
        ("group_column", &division.group_column),
        ("time_column", &division.time_column),
        ("stratify_column", &division.stratify_column),
    ];
    let single = single.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?)));
    let single = single.chain(series.map(|name| ("series_column", name)));
    let patterns = options.drop.iter().map(|pattern| ("drop", pattern));
    let patterns = patterns.chain(options.rules.iter().map(|rule| ("columns", &rule.pattern)));
    let named = (options.target.iter().map(|name| ("target", name)))
        .chain(options.heads.iter().map(|head| (HEADS, &head.column)))
        .chain(single);
    // What the target was is a number that the model takes, unless it learns what that is of the same rows.
    let forecasts = options.windows.as_ref().is_some_and(|windows| windows.horizon > 0);
    let is_for_before = |rule: &Rule| {
        let number = matches!(rule.choice, Choice::Encode(Encoding::Number { .. }));
        forecasts && number && !options.classes && options.target.contains(&rule.pattern)
    };
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    expect_there(named.chain(patterns), &names, |pattern, name| {
        pattern == name || is_pattern(pattern) && matches(pattern, name)
    })?;
    if let Some(Rule { pattern, .. }) =
        options.rules.iter().find(|rule| options.learnt().any(|learnt| *learnt == rule.pattern) && !is_for_before(rule))
    {
        let message = format!(
            "`columns` says what becomes of `{pattern}` for the model, and `{pattern}` is what it learns: leave it out of `columns`; `classes = true` learns its numbers as classes"
        );
        bail!(WrongColumns::of("columns", pattern, "is learnt", message));
    }
    let use_of = |column: &Column| -> Result<Use> {
        let name = &column.name;
        let dropped = options.drop.iter().any(|pattern| matches(pattern, name));
        let rule = options.rules.iter().find(|rule| matches(&rule.pattern, name));
        let ignored = dropped || rule.is_some_and(|rule| matches!(rule.choice, Choice::Ignore | Choice::Order(_)));
        if let Some(what) = column.unread {
            let taken =
                [&division.split_column, &division.group_column, &division.time_column, &division.stratify_column];
            let taken = taken.into_iter().chain([&options.id, &options.sample_weight]).flatten().chain(series);
            let taken = options.learnt().any(|learnt| learnt == name) || taken.into_iter().any(|other| other == name);
            ensure!(
                ignored && !taken,
                "the column `{name}` has {what}, which are no cells of a table: leave it out{}",
                if taken { String::new() } else { format!(", with `drop = [\"{name}\"]`") }
            );
        }
        if options.target.contains(name) {
            return Ok(Use::Target(forecasts.then(|| before(options, column, rule))));
        }
        if let Some(head) = options.heads.iter().find(|head| head.column == *name) {
            return Ok(Use::Head(head.name.clone()));
        }
        if options.id.as_ref() == Some(name) {
            return Ok(Use::Id);
        }
        if options.sample_weight.as_ref() == Some(name) {
            return Ok(Use::Weight);
        }
        if dropped {
            let orders = division.time_column.as_ref() == Some(name);
            return Ok(Use::Left(if orders { "it says the order of the rows" } else { "`drop` names it" }.to_owned()));
        }
        if let Some((_, why)) = of_division.iter().find(|(of, _)| of.as_ref() == Some(name)) {
            return Ok(Use::Left((*why).to_owned()));
        }
        let named = rule.is_some_and(|rule| rule.pattern == *name);
        if options.windows.is_some() && !named {
            if series == Some(name) {
                return Ok(Use::Left("it says which series a row is of".to_owned()));
            }
            if division.time_column.as_ref() == Some(name) {
                return Ok(Use::Left("it says the order of the rows".to_owned()));
            }
        }
        let encoding = match rule.map(|rule| &rule.choice) {
            Some(Choice::Ignore) => return Ok(Use::Left("`columns` says so".to_owned())),
            Some(Choice::Order(_)) => return Ok(Use::Left("it says the order of the rows".to_owned())),
            // A pattern is for those columns that it fits.
            Some(Choice::Tokens(tokens)) if named || column.cells == CellType::Texts => {
                return Ok(Use::Tokens(tokens.clone()));
            }
            Some(Choice::Tokens(_)) => usual(column.cells),
            Some(&Choice::Encode(encoding)) if fits(encoding, column.cells, named) => encoding,
            // Texts of a file that says so are other cells where the column is named.
            Some(&Choice::Encode(encoding)) if named && fits(encoding, column.readable_as, named) => encoding,
            // What does not fit is left out with its row.
            Some(&Choice::Encode(encoding)) if named && options.skip => encoding,
            // A pattern is for those columns that it fits.
            Some(&Choice::Encode(_)) if !named => usual(column.cells),
            Some(&Choice::Encode(encoding)) => {
                let has = match &column.odd {
                    Some(odd) => odd.in_words(),
                    None => format!("{} cells, such as {}", column.cells.name(), examples(column)),
                };
                let mend = match column.odd {
                    Some(Odd::Others { .. }) => {
                        "mend the cells, leave their rows out with `on_error = \"skip\"`, or choose another type"
                    }
                    Some(Odd::DateFormat(..)) => "say how they are written, or choose another type",
                    Some(Odd::Comma(_) | Odd::Thousands(_) | Odd::Unit(..) | Odd::Time(_)) | None => {
                        "mend the cells, or choose another type"
                    }
                };
                let asked = name_of(encoding);
                let message = format!("the column `{name}` has {has}, and `columns` asks for {asked}: {mend}");
                bail!(WrongColumns::of("columns", name, "its cells are others", message))
            }
            None => match column.useless(rows) {
                Some(why) => return Ok(Use::Left(why.to_owned())),
                None => usual(column.cells),
            },
        };
        Ok(Use::Input(encoding))
    };
    let mut uses = columns.iter().map(use_of).collect::<Result<Vec<_>>>()?;
    ensure!(
        uses.iter().any(|column| matches!(column, Use::Input(_) | Use::Tokens(_) | Use::Target(Some(_)))),
        "no column is left that the model could take: {}",
        reasons(columns, &uses)
    );
    let texts = columns.iter().zip(&uses).filter(|(_, used)| matches!(used, Use::Tokens(_)));
    let texts: Vec<String> = texts.map(|(column, _)| column.name.clone()).collect();
    ensure!(
        texts.len() < 2,
        "`columns` makes tokens of {}, and a row may have tokens of one column: give the others `type = \"text\"`, which counts words",
        quoted(&texts)
    );
    // A model may name the numbers alone, or the text. Another name is reported with all fields that there are.
    let known = |text: &&String| options.takes.iter().all(|taken| taken == INPUTS || taken == *text);
    if let Some(text) = texts.first().filter(known) {
        let [numbers, tokens] = [INPUTS, text].map(|field| options.takes.iter().any(|taken| taken == field));
        for used in &mut uses {
            match used {
                Use::Input(_) if tokens && !numbers => *used = Use::Left(format!("the model takes `{text}` alone")),
                Use::Tokens(_) if numbers && !tokens => *used = Use::Left("the model takes `inputs` alone".to_owned()),
                _ => {}
            }
        }
    }
    Ok(uses)
}

/// How what the target was in the rows of a window is encoded: as a rule says that names it, else as a number or, of classes, as a category.
fn before(options: &TableOptions, column: &Column, rule: Option<&Rule>) -> Encoding {
    if options.classes || column.cells != CellType::Numbers {
        return usual(CellType::Texts);
    }
    match rule.filter(|rule| rule.pattern == column.name).map(|rule| &rule.choice) {
        Some(&Choice::Encode(encoding @ Encoding::Number { .. })) => encoding,
        _ => usual(CellType::Numbers),
    }
}

fn reasons(columns: &[Column], uses: &[Use]) -> String {
    let reason = |(column, used): (&Column, &Use)| match used {
        Use::Left(why) => Some(format!("`{}`: {why}", column.name)),
        Use::Input(_) | Use::Tokens(_) | Use::Target(_) | Use::Head(_) | Use::Id | Use::Weight => None,
    };
    let all: Vec<String> = columns.iter().zip(uses).filter_map(reason).take(10).collect();
    if all.is_empty() { "the table has nothing but what is learnt".to_owned() } else { all.join("; ") }
}

fn examples(column: &Column) -> String {
    let all: Vec<String> = column.examples.iter().map(|text| format!("`{text}`")).collect();
    all.join(", ")
}

/// Whether cells can be encoded so. Any cell is a text, too; codes are numbers where the column is `named`.
fn fits(encoding: Encoding, cells: CellType, named: bool) -> bool {
    let numbers = cells == CellType::Numbers || cells == CellType::Codes && named;
    match encoding {
        Encoding::Number { .. } => numbers || cells == CellType::Nothing,
        Encoding::Category { .. } | Encoding::Hashed { .. } => true,
        Encoding::Text(_) => named || cells == CellType::Texts,
        Encoding::Boolean => numbers || matches!(cells, CellType::Truths | CellType::Nothing),
        Encoding::Date { form: None, .. } => matches!(cells, CellType::Dates | CellType::Nothing),
        // A format says what they are, which need not look like dates: `20261126`.
        Encoding::Date { .. } => named || matches!(cells, CellType::Dates | CellType::Nothing | CellType::Texts),
    }
}

/// An encoding for people.
pub fn name_of(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Number { scaling, .. } => match scaling {
            Scaling::Standardize => "a number, standardised",
            Scaling::Quantile => "a number, by its quantile",
            Scaling::Log => "a number, its logarithm standardised",
            Scaling::PiecewiseLinear => "a number, piecewise linear",
            Scaling::None => "a number, as it is",
        },
        Encoding::Category { .. } => "a category",
        Encoding::Hashed { .. } => "a category, hashed",
        Encoding::Text(_) => "a text, its words hashed",
        Encoding::Boolean => "true or false",
        Encoding::Date { time_of_day: false, .. } => "a date",
        Encoding::Date { .. } => "a date with its time of day",
    }
}

/// Whether a column's name is as a pattern says, or is the pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    pattern == name || Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(name))
}

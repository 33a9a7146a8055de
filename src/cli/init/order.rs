//! Which columns of a table say the order of its rows, and which series each row is of.

use super::named;
use super::writing::{Writing, quoted};
use crate::api::failure::Failure;
use crate::config::value_as_toml;
use crate::data::table::{CellType, Cells, Column, DateForm, Encoding, Fill, Odd, Raw, Scaling, Sheet};
use crate::terminal::thousands;
use serde_json::json;

/// Rows that a series has at least, in the mean.
const ROWS: usize = 5;
/// Columns of each kind that are looked at.
const LOOKED_AT: usize = 8;
/// Of the steps from row to row so many are about as long as most, where times are regular.
const REGULAR: f64 = 0.8;
/// Steps of that share may be others by chance.
const CHANCE: f64 = 0.05;
/// Words in the names of columns that count or name moments. Those repeat as the names of series do: a month comes with each year.
const MOMENTS: [&str; 18] = [
    "year",
    "quarter",
    "month",
    "week",
    "weekday",
    "day",
    "date",
    "hour",
    "minute",
    "second",
    "time",
    "timestamp",
    "step",
    "steps",
    "cycle",
    "cycles",
    "tick",
    "t",
];

/// The columns that are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// The one that says the order of rows.
    pub time: Option<&'a str>,
    /// The one that says which series a row is of.
    pub series: Option<&'a str>,
}

/// The column that says the order of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    column: String,
    /// Its cells are dates, and no numbers.
    dates: bool,
    /// How they are written, if not as 2026-11-30.
    form: Option<String>,
}

/// What orders the rows of a table, and says which series each is of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    time: Option<Time>,
    series: Option<String>,
    /// The rows of each series, the fewest first.
    pub lengths: Vec<usize>,
}

/// A column that may say the order of rows, and what it has in each.
struct Times<'a> {
    time: Time,
    column: &'a Column,
    at: Vec<f64>,
}

/// A column that may say which series a row is of, and the number of that series in each row.
struct Groups<'a> {
    column: &'a Column,
    of: Vec<u32>,
}

impl Times<'_> {
    /// Whether it rises from row to row of each series.
    fn rises(&self, of: &[u32]) -> bool {
        let mut last = vec![f64::NEG_INFINITY; count(of)];
        self.at.iter().zip(of).all(|(at, of)| std::mem::replace(&mut last[*of as usize], *at) < *at)
    }

    /// Which part of the steps of series are about as long as most of their own; `None`: two rows of a series have the same time.
    fn regularity(&self, of: &[u32]) -> Option<f64> {
        let mut order: Vec<usize> = (0..of.len()).collect();
        order.sort_unstable_by(|a, b| of[*a].cmp(&of[*b]).then(self.at[*a].total_cmp(&self.at[*b])));
        let (mut all, mut regular) = (0, 0);
        for rows in order.chunk_by(|a, b| of[*a] == of[*b]) {
            let mut steps: Vec<f64> = rows.windows(2).map(|pair| self.at[pair[1]] - self.at[pair[0]]).collect();
            steps.sort_unstable_by(f64::total_cmp);
            let Some(usual) = steps.get(steps.len() / 2).copied() else { continue };
            if steps[0] == 0.0 {
                return None;
            }
            all += steps.len();
            regular += steps.iter().filter(|step| (**step - usual).abs() <= 0.2 * usual).count();
        }
        (all > 0).then(|| regular as f64 / all as f64)
    }
}

impl Groups<'_> {
    fn is_number(&self) -> bool {
        self.column.cells == CellType::Numbers
    }

    /// How often the next row is of another series.
    fn changes(&self) -> usize {
        self.of.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    /// Whether the rows of each series stand together.
    fn is_blocks(&self) -> bool {
        self.changes() + 1 == count(&self.of)
    }
}

/// One more than the largest number.
fn count(of: &[u32]) -> usize {
    of.iter().max().map_or(0, |most| *most as usize + 1)
}

/// Whether a name is that of a count or a name of moments.
fn is_moment(name: &str) -> bool {
    let name = name.to_lowercase();
    name.split(|c: char| !c.is_alphanumeric()).any(|word| MOMENTS.contains(&word))
}

impl Time {
    /// That of a column of dates, however they are written.
    fn of_dates(column: &Column) -> Option<Time> {
        let form = match &column.odd {
            Some(Odd::DateFormat(_, form)) => Some(form.clone()),
            _ if [column.cells, column.readable_as].contains(&CellType::Dates) => None,
            _ => return None,
        };
        Some(Time { column: column.name.clone(), dates: true, form })
    }

    fn of_numbers(column: &Column) -> Time {
        Time { column: column.name.clone(), dates: false, form: None }
    }

    fn encoding(&self) -> Encoding {
        match self.dates {
            true => Encoding::Date { form: self.form.as_deref().and_then(DateForm::new), time_of_day: false },
            false => Encoding::Number { scaling: Scaling::None, fill: Fill::Zero, bins: 2 },
        }
    }
}

impl Order {
    /// That of a table of so many rows, whose `columns` are those beside the target. All that may say it is read in one go.
    ///
    /// # Errors
    /// The table cannot be read; dates repeat, and no column says of which series a row is.
    pub fn of(sheet: &Sheet, decimal: char, columns: &[&Column], rows: usize, asked: Asked) -> Result<Order, Failure> {
        let own = |name: &str| columns.iter().copied().find(|column| column.name == name);
        let usable = |name: Option<&str>| name.is_none_or(|name| own(name).is_some_and(|column| column.missing == 0));
        let may_order = |column: &Column| match Time::of_dates(column) {
            Some(time) => Some(time),
            None if asked.time.is_none() && (!column.whole || column.distinct < ROWS) => None,
            None => matches!(column.cells, CellType::Numbers | CellType::Codes).then(|| Time::of_numbers(column)),
        };
        let times = columns.iter().copied().filter(|column| match asked.time {
            Some(name) => column.name == name,
            None => column.missing == 0 && asked.series != Some(&column.name),
        });
        let times = times.filter_map(|column| Some((may_order(column)?, column)));
        let (dates, numbers): (Vec<_>, Vec<_>) = times.partition(|(time, _)| time.dates);
        let times: Vec<_> = dates.into_iter().take(LOOKED_AT).chain(numbers.into_iter().take(LOOKED_AT)).collect();
        // Reading the table with them says what is wrong with columns that were asked for.
        if !usable(asked.time) || !usable(asked.series) || asked.time.is_some() && times.is_empty() {
            let time = asked.time.map(|name| Time { column: name.to_owned(), dates: true, form: None });
            return Ok(Order { time, series: asked.series.map(str::to_owned), lengths: vec![rows] });
        }
        let may_be_series = |column: &Column| match asked.series {
            Some(name) => column.name == name,
            None => {
                let is_name = matches!(column.cells, CellType::Texts | CellType::Codes) || column.whole;
                let few = column.distinct > 1 && !column.more && column.distinct * ROWS <= rows;
                let free = Time::of_dates(column).is_none() && asked.time != Some(&column.name);
                is_name && few && free && column.missing == 0 && !is_moment(&column.name)
            }
        };
        let groups: Vec<&Column> =
            columns.iter().copied().filter(|column| may_be_series(column)).take(LOOKED_AT).collect();
        let category = Encoding::Category { most: 1, least: 1 }.read();
        let reads: Vec<_> = times.iter().map(|(time, column)| (column.name.as_str(), time.encoding().read())).collect();
        let reads: Vec<_> =
            reads.into_iter().chain(groups.iter().map(|column| (column.name.as_str(), category))).collect();
        let raw = Raw::read(sheet, &reads, None, decimal, None).map_err(Failure::Other)?;
        let times = times.into_iter().map(|(time, column)| {
            let cells = if time.dates { raw.column(&column.name) } else { raw.numbers(&column.name) };
            let at = match cells?.into_owned() {
                Cells::Numbers(at) => at,
                Cells::Texts(..) => Vec::new(),
            };
            Ok(Times { time, column, at })
        });
        let times: Vec<Times> = times.collect::<anyhow::Result<_>>().map_err(Failure::Other)?;
        let groups = groups.into_iter().map(|column| {
            let of = match &*raw.column(&column.name)? {
                Cells::Texts(numbers, _) => numbers.iter().map(|text| text.unwrap_or(0)).collect(),
                Cells::Numbers(at) => vec![0; at.len()],
            };
            Ok(Groups { column, of })
        });
        let groups: Vec<Groups> = groups.collect::<anyhow::Result<_>>().map_err(Failure::Other)?;
        let one = vec![0; raw.rows()];
        let (time, series) = chosen(&times, &groups, &one, asked)?;
        let mut lengths = vec![0; series.map_or(1, |series| count(&series.of))];
        series.map_or(&one, |series| &series.of).iter().for_each(|of| lengths[*of as usize] += 1);
        lengths.retain(|rows| *rows > 0);
        lengths.sort_unstable();
        Ok(Order {
            time: time.map(|time| time.time.clone()),
            series: series.map(|series| series.column.name.clone()),
            lengths,
        })
    }

    /// A sentence on what was taken.
    pub fn in_words(&self) -> String {
        let series = self.series.as_ref().map(|name| {
            format!("`{}` says which of {} series each is of", named(name), thousands(self.lengths.len() as u64))
        });
        match (&self.time, series) {
            (Some(time), Some(series)) => format!("`{}` says the order of the rows, and {series}", named(&time.column)),
            (Some(time), None) => format!("`{}` says the order of the rows, which are one series", named(&time.column)),
            (None, Some(series)) => format!("rows are taken in the order of the file, and {series}"),
            (None, None) => "rows are taken in the order of the file, as one series".to_owned(),
        }
    }

    /// The lines of `[data]` for a draft.
    pub fn draft(&self) -> String {
        let mut out = Writing::default();
        self.write(&mut out);
        out.text()
    }

    /// Writes the lines of `[data]` that say it, and as comments those that say what it could be otherwise.
    pub fn write(&self, out: &mut Writing) {
        match &self.time {
            None => _ = out.maybe("time_column", "\"COLUMN\"", "the order of the rows, if a column says it"),
            Some(time) => {
                out.key("time_column", &quoted(&time.column), "the order of the rows; the latest are held out");
                let seen = "the model takes weekday and time of year, too";
                match &time.form {
                    Some(form) => {
                        let rules = json!({ time.column.clone(): { "type": "ignore", "format": form } });
                        let remark = format!("how its dates are written; with type = \"date\" {seen}");
                        out.key("columns", &value_as_toml(&rules), &remark);
                    }
                    None if time.dates => {
                        let rules = json!({ time.column.clone(): "date" });
                        out.maybe("columns", &value_as_toml(&rules), seen);
                    }
                    None => {}
                }
            }
        }
        match &self.series {
            Some(series) => out.key("series_column", &quoted(series), "which series a row is of"),
            None => out.maybe("series_column", "\"COLUMN\"", "which series a row is of, if the table has several"),
        };
    }
}

type Chosen<'a, 'c> = (Option<&'a Times<'c>>, Option<&'a Groups<'c>>);

/// The columns of `times` and `groups` that say the order of rows, and which series each is of. `one`: all rows as one series.
fn chosen<'a, 'c>(
    times: &'a [Times<'c>],
    groups: &'a [Groups<'c>],
    one: &[u32],
    asked: Asked,
) -> Result<Chosen<'a, 'c>, Failure> {
    // Texts name series; numbers may do many things. Of several such columns the one with the fewest series has the longest ones.
    let rank = |group: &&Groups| (group.is_number(), group.column.distinct);
    let told_apart = |time: &Times| groups.iter().filter(|group| time.regularity(&group.of).is_some()).min_by_key(rank);
    let (dates, numbers): (Vec<&Times>, Vec<&Times>) = times.iter().partition(|time| time.time.dates);
    for time in &dates {
        match time.regularity(one) {
            Some(_) if asked.series.is_some() => return Ok((Some(time), groups.first())),
            Some(whole) => return Ok((Some(time), apart(time, groups, one, whole))),
            None => {
                let group = told_apart(time);
                // That two rows have the same time in a series that was asked for is said where the table is read.
                if group.is_some() || asked.series.is_some() {
                    return Ok((Some(time), group.or(groups.first())));
                }
            }
        }
    }
    if let (Some(_), Some(time)) = (asked.time, times.first()) {
        let whole = time.regularity(one);
        return Ok((Some(time), whole.map_or_else(|| told_apart(time), |whole| apart(time, groups, one, whole))));
    }
    let of_series = numbers.iter().flat_map(|time| groups.iter().map(move |group| (*time, group)));
    let of_series = of_series.filter(|(time, group)| {
        time.column.name != group.column.name && time.rises(&group.of) && time.regularity(one).is_none()
    });
    // A grid of series and times is the same with both exchanged: names say which is which, or what changes from row to row.
    let best = of_series.min_by_key(|(time, group)| {
        (!is_moment(&time.column.name), group.is_number(), group.changes() * 2 > group.of.len(), group.column.distinct)
    });
    if let Some((time, group)) = best {
        return Ok((Some(time), Some(group)));
    }
    let rising = numbers.iter().copied().find(|time| time.rises(one) && is_moment(&time.column.name));
    if let Some(time) = rising.filter(|_| asked.series.is_none()) {
        let whole = time.regularity(one).unwrap_or(1.0);
        return Ok((Some(time), apart(time, groups, one, whole)));
    }
    if let Some(group) = groups.iter().find(|group| asked.series.is_some() || !group.is_number() && group.is_blocks()) {
        // A number that rises over all of them is that of the row.
        return Ok((None, Some(group)));
    }
    if let (Some(time), None) = (dates.first(), asked.time) {
        return Err(Failure::Usage(format!(
            "`{}` has the same in several rows, and no other column says which series a row is of\nhelp: name the column with `--series-column`; where several \
             columns say it together, join them to one; without `--model` a row is learnt from by itself",
            named(&time.column.name)
        )));
    }
    Ok((numbers.into_iter().find(|time| time.rises(one)), None))
}

/// The column of `groups` by which rows are of several series, though no two have the same time: the file has one series after the other, or the steps of
/// series are more regular than those of all rows.
fn apart<'a, 'c>(time: &Times, groups: &'a [Groups<'c>], one: &[u32], whole: f64) -> Option<&'a Groups<'c>> {
    if !time.rises(one)
        && let Some(group) = groups
            .iter()
            .filter(|group| time.rises(&group.of))
            .min_by_key(|group| (group.is_number(), group.column.distinct))
    {
        return Some(group);
    }
    let own = groups.iter().filter_map(|group| Some((group, time.regularity(&group.of)?)));
    let own = own.filter(|(group, own)| match whole < REGULAR && !group.is_number() {
        true => own + CHANCE >= whole,
        false => *own > whole + CHANCE,
    });
    own.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::super::draft;
    use super::*;
    use crate::data::table::{Format, open_sheet};
    use crate::train::setup::input::table_columns;

    /// What is found in a table whose last column is learnt.
    fn found(content: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, content).unwrap();
        let sheet = open_sheet(&path, Format::default()).unwrap();
        let experiment = draft(&format!(
            "[data]\nsource = \"csv\"\npath = {}\ntarget = \"y\"\n[model]\nuse = \"tabular\"\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\n\
             [train]\nepochs = 1\n",
            quoted(path.to_str().unwrap())
        ));
        let (columns, rows) = (table_columns(&experiment.unwrap()).unwrap().unwrap(), content.lines().count() - 1);
        let others: Vec<&Column> = columns[..columns.len() - 1].iter().map(|shown| &shown.column).collect();
        let order = Order::of(&sheet, '.', &others, rows, Asked::default()).map_err(|error| error.to_string())?;
        let or_none = |name: Option<&str>| name.unwrap_or("-").to_owned();
        let (time, series) = (order.time.as_ref().map(|time| time.column.as_str()), order.series.as_deref());
        Ok(format!("{} {} {}", or_none(time), or_none(series), order.lengths.len()))
    }

    fn rows(head: &str, rows: impl Iterator<Item = String>) -> String {
        format!("{head}\n{}\n", rows.collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn the_order_of_rows_and_their_series_are_found() {
        let grid = |times: usize, series: usize| (0..times).flat_map(move |t| (0..series).map(move |s| (t, s)));
        let day = |t: usize| format!("2026-{:02}-{:02}", t / 28 + 1, t % 28 + 1);
        for (content, expected) in [
            // Each time comes once for each series.
            (
                rows("day,shop,holiday,y", grid(60, 3).map(|(t, s)| format!("{},s{s},{},{t}", day(t), t % 5))),
                "day shop 3",
            ),
            (rows("week,shop_id,y", grid(60, 7).map(|(t, s)| format!("{t},{s},{t}"))), "week shop_id 7"),
            (rows("step,machine,y", grid(4, 50).map(|(s, t)| format!("{t},{s},{t}"))), "step machine 4"),
            (rows("a,b,y", grid(40, 15).map(|(s, t)| format!("{t},{s},{t}"))), "a b 40"),
            // Sensors that say something one after the other, each once a minute.
            (
                rows(
                    "ts,sensor,y",
                    grid(50, 2).map(|(t, s)| format!("2026-01-01 {:02}:{:02}:0{s},{s}x,{t}", t / 60, t % 60)),
                ),
                "ts sensor 2",
            ),
            // The days of one series: a column that repeats is no series.
            (rows("day,promo,n,y", (0..100).map(|t| format!("{},p{},{},{t}", day(t), t * t % 5, t % 3))), "day - 1"),
            (rows("day,weekday,y", (0..100).map(|t| format!("{},{},{t}", day(t), t % 7))), "day - 1"),
            (rows("year,month,y", grid(12, 12).map(|(y, m)| format!("{y},{m},{}", y + m))), "- - 1"),
            (rows("step,x,y", (0..100).map(|t| format!("{t},{},{t}", t * 7 % 11))), "step - 1"),
            // One file after the other.
            (rows("day,unit,y", grid(3, 30).map(|(s, t)| format!("{},u{s},{t}", day((2 - s) * 30 + t)))), "day unit 3"),
            (rows("n,unit,y", grid(3, 30).map(|(s, t)| format!("{},u{s},{t}", s * 30 + t))), "- unit 3"),
            (rows("x,y", (0..50).map(|t| format!("{},{t}", t * 7 % 11))), "- - 1"),
        ] {
            assert_eq!(found(&content).as_deref(), Ok(expected), "{}", &content[..80]);
        }
        // A shop and an article say it together.
        let both =
            rows("day,shop,article,y", grid(20, 4).map(|(t, s)| format!("{},s{},a{},{t}", day(t), s / 2, s % 2)));
        let error = found(&both).unwrap_err();
        assert!(error.contains("`day` has the same in several rows") && error.contains("--series-column"), "{error}");
    }
}

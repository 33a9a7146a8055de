//! Which rows of a table are trained on, and which are held out, by its columns.

use super::super::sheet::{Place, Sheet};
use super::cell;
use super::codec::{Cells, Read};
use super::division::{Division, Fold, Parts, at_random, by_groups, by_time, fold_at_random, fold_by_groups, strata};
use super::fitted::{TableCodec, Target};
use super::options::TableOptions;
use super::raw::{MINUTES_A_DAY, Raw, Reading, each_of};
use super::series::Series;
use super::targets::fit_target;
use anyhow::{Context, Result, ensure};

/// The rows of each part.
pub fn divide(
    options: &TableOptions,
    text: &Sheet,
    raw: &Raw,
    (rows, series): (&[u32], Option<&Series>),
    fitted: Option<&TableCodec>,
) -> Result<Parts> {
    let (division, several) = (&options.division, text.paths().count() > 1);
    let at = |place: Place| if several { place.to_string() } else { place.line_in_words() };
    let everything = || Parts { train: rows.to_vec(), ..Parts::default() };
    if let Some(column) = &division.split_column {
        let (mut parts, mut all) = (Parts::default(), 0);
        let take = |(parts, rows): &mut (Parts, usize), place: Place, word: &str| {
            if place.fault.is_none() {
                parts.add(*rows, column, word).with_context(|| at(place))?;
            }
            *rows += 1;
            Ok(())
        };
        each_of(text, (column, "split_column"), Default::default, take, |(next, rows)| {
            parts.join(next, all);
            all += rows;
        })?;
        for part in [&mut parts.train, &mut parts.val, &mut parts.test] {
            part.retain(|row| rows.binary_search(row).is_ok());
        }
        ensure!(!parts.train.is_empty(), "no row of `{column}` is for training");
        return Ok(parts);
    }
    if division.hold_out.is_none() && division.fold.is_none() {
        return Ok(everything());
    }
    if let (Some(series), Some(how), None) = (series, division.hold_out, &division.group_column) {
        return by_time(rows, how, &series.times());
    }
    if let (Some(column), Some(how), None) = (&division.time_column, division.hold_out, series) {
        let decimal = text.decimal(options.decimal);
        let form = options.date_form(column);
        let own = text.column(column).is_some_and(|at| text.kinds().is_some_and(|kinds| kinds[at].is_date()));
        let date = |word: &str| form.filter(|_| !own).map_or_else(|| cell::date(word), |form| form.days(word));
        let take = |times: &mut Vec<f64>, place: Place, word: &str| {
            if place.fault.is_some() {
                times.push(f64::NAN);
                return Ok(());
            }
            let days = date(word).map(|days| days - f64::from(cell::minutes_ahead(word)) / MINUTES_A_DAY);
            let value = days.or_else(|| cell::number(word, decimal));
            times.push(value.with_context(|| match cell::is_missing(word) {
                true => format!("{}: `{column}` is missing, and rows are held out by it", at(place)),
                false => {
                    format!(
                        "{}: `{column}` has `{word}`, which is neither a date, as 2026-11-26, nor a number",
                        at(place)
                    )
                }
            })?);
            Ok(())
        };
        let mut times = Vec::new();
        each_of(text, (column, "time_column"), Vec::new, take, |next| times.extend(next))?;
        return by_time(rows, how, &times);
    }
    if let Some(column) = &division.group_column {
        // Numbers in the order of their first rows.
        let (words, _) = words_of(text, (column, "group_column"), |words, word| words.word(word))?;
        let groups: Vec<u64> = words.into_iter().flatten().map(u64::from).collect();
        return match (division.fold, division.hold_out) {
            (Some(fold), _) => fold_by_groups(rows, fold, division.seed, &groups),
            (None, Some(how)) => by_groups(rows, how, division.seed, &groups),
            (None, None) => Ok(everything()),
        };
    }
    if let Some(column) = &division.stratify_column {
        let take = |words: &mut Reading, word: &str| words.text((!cell::is_missing(word)).then_some(word));
        let (numbers, texts) = words_of(text, (column, "stratify_column"), take)?;
        let labels = strata(&numbers, &texts, rows);
        return match (division.fold, division.hold_out) {
            (Some(fold), _) => fold_at_random(rows, fold, division.seed, Some(&labels)),
            (None, Some(how)) => at_random(rows, how, division.seed, Some(&labels)),
            (None, None) => Ok(everything()),
        };
    }
    // The same rows as in training, whatever the numbers of the classes are called now.
    let column = match fitted.map(|codec| &codec.target) {
        Some(Target::Classes { column, .. }) => Some(column.as_str()),
        Some(Target::Numbers { .. }) => None,
        None => options.target.first().map(String::as_str),
    };
    let cells = column.map(|column| raw.column(column)).transpose()?;
    let labels = cells.as_deref().and_then(|column| match column {
        Cells::Texts(numbers, texts) => Some((numbers, texts)),
        Cells::Numbers(_) => None,
    });
    let labels = labels.map(|(numbers, texts)| {
        let mut order: Vec<u32> = (0..texts.len() as u32).collect();
        order.sort_by(|a, b| texts[*a as usize].cmp(&texts[*b as usize]));
        let mut rank = vec![0i32; texts.len()];
        order.iter().zip(0..).for_each(|(text, at)| rank[*text as usize] = at);
        numbers.iter().map(|number| number.map_or(-1, |number| rank[number as usize])).collect::<Vec<i32>>()
    });
    match (division.fold, division.hold_out) {
        (Some(fold), _) => fold_at_random(rows, fold, division.seed, labels.as_deref()),
        (None, Some(how)) => at_random(rows, how, division.seed, labels.as_deref()),
        (None, None) => Ok(everything()),
    }
}

/// The cells of a column as numbers of texts, as `take` takes them; `key` names the column.
fn words_of(
    text: &Sheet,
    (column, key): (&str, &str),
    take: impl Fn(&mut Reading, &str) + Sync,
) -> Result<(Vec<Option<u32>>, Vec<String>)> {
    let fresh = || Reading::new(column, Read::Text, 0);
    let take = |words: &mut Reading, _: Place, word: &str| {
        take(words, word);
        Ok(())
    };
    let mut words = fresh();
    each_of(text, (column, key), fresh, take, |next| words.join(next))?;
    Ok(words.numbered())
}

/// Refuses folds one of which alone has a class, before the first of them is trained.
pub fn expect_folds(options: &TableOptions, text: &Sheet, raw: &Raw, rows: &[u32]) -> Result<()> {
    let Some(Fold { number: 0, of }) = options.division.fold else { return Ok(()) };
    let mut learnt = options.learnt().map(|name| raw.column(name));
    if !learnt.try_fold(false, |any, cells| Ok::<_, anyhow::Error>(any | matches!(&*cells?, Cells::Texts(..))))? {
        return Ok(());
    }
    for number in 0..of {
        let division = Division { fold: Some(Fold { number, of }), ..options.division.clone() };
        let parts = divide(&TableOptions { division, ..options.clone() }, text, raw, (rows, None), None)?;
        let fitted = fit_target(options, raw, (rows, &parts.train))
            .and_then(|_| options.heads.iter().try_for_each(|head| head.fit(raw, (rows, &parts.train)).map(|_| ())));
        fitted.with_context(|| format!("without the rows of fold {} of {of}", number + 1))?;
    }
    Ok(())
}

//! Numbers and dates: what is missing, and each way of scaling. All of it is in double precision, and rounded in the end.

use super::{Part, Taken, indicators, side_by_side};
use crate::data::table::normal::{BOUND, CENTRE, Ratio, TAIL};
use crate::data::table::{Codec, Quantiles};
use crate::onnx::graph::{Graph, int};
use crate::onnx::proto::DataType;
use std::f64::consts::{FRAC_PI_2, TAU};

/// What a column is scaled by, and with what it is filled.
struct Number<'a> {
    column: &'a Taken<'a>,
    fill: f64,
    scale: Scale<'a>,
}

#[derive(Clone, Copy)]
enum Scale<'a> {
    Standard([f64; 2]),
    Log([f64; 2]),
    Plain,
    Quantile(&'a Quantiles),
    Bins(&'a [f64]),
    /// With the part of the day, or without.
    Date([f64; 2], bool),
}

impl Scale<'_> {
    /// Columns of the same kind are scaled together.
    fn kind(&self) -> u8 {
        match self {
            Scale::Standard(_) => 0,
            Scale::Log(_) => 1,
            Scale::Plain => 2,
            Scale::Quantile(_) => 3,
            Scale::Bins(_) => 4,
            Scale::Date(_, false) => 5,
            Scale::Date(_, true) => 6,
        }
    }
}

fn number<'a>(column: &'a Taken<'a>) -> Option<Number<'a>> {
    let (fill, scale) = match column.codec.codec() {
        Codec::Standardize { fill, mean, deviation, log: false } => (fill, Scale::Standard([*mean, *deviation])),
        Codec::Standardize { fill, mean, deviation, log: true } => (fill, Scale::Log([*mean, *deviation])),
        Codec::Plain { fill } => (fill, Scale::Plain),
        Codec::Quantile { fill, quantiles } => (fill, Scale::Quantile(quantiles)),
        Codec::PiecewiseLinear { fill, edges } => (fill, Scale::Bins(edges)),
        Codec::Date { fill, mean, deviation, time_of_day, .. } => {
            (fill, Scale::Date([*mean, *deviation], *time_of_day))
        }
        Codec::Category { .. } | Codec::Hashed { .. } | Codec::Text(_) | Codec::Boolean => return None,
    };
    Some(Number { column, fill: *fill, scale })
}

/// All numbers and dates.
pub(super) fn encoded(g: &mut Graph, taken: &[Taken]) -> Vec<Part> {
    let mut all: Vec<Number> = taken.iter().filter_map(number).collect();
    all.sort_by_key(|number| number.scale.kind());
    let columns: Vec<&Taken> = all.iter().map(|number| number.column).collect();
    let Some(given) = side_by_side(g, &columns) else { return Vec::new() };
    let missing = g.op("IsNaN", &[&given], []);
    let fill = g.doubles(&all.iter().map(|number| number.fill).collect::<Vec<_>>());
    let x = g.op("Where", &[&missing, &fill, &given], []);
    let mut parts = Vec::new();
    let mut first = 0;
    for group in all.chunk_by(|a, b| a.scale.kind() == b.scale.kind()) {
        let behind = first + group.len();
        let own = if group.len() == all.len() { x.clone() } else { g.slice(&x, 1, first, behind) };
        first = behind;
        let places = |part: usize| group.iter().map(move |number| number.column.places.start + part);
        let list = |of: fn(&Scale) -> f64| group.iter().map(|number| of(&number.scale)).collect::<Vec<f64>>();
        let (name, places) = match group[0].scale {
            Scale::Standard(_) => (standardized(g, &own, &list(mean), &list(deviation)), places(0).collect()),
            Scale::Log(_) => {
                let own = log(g, &own);
                (standardized(g, &own, &list(mean), &list(deviation)), places(0).collect())
            }
            Scale::Plain => (own, places(0).collect()),
            Scale::Quantile(_) => (quantile(g, &own, group), places(0).collect()),
            Scale::Bins(_) => (in_bins(g, &own, group), group.iter().flat_map(|number| number.column.own()).collect()),
            Scale::Date(_, time_of_day) => {
                let days = standardized(g, &own, &list(mean), &list(deviation));
                let circles = circles(g, &own, time_of_day);
                let numbers = if time_of_day { 7 } else { 5 };
                (g.joined(&[days, circles], 1), (0..numbers).flat_map(places).collect())
            }
        };
        parts.push(Part { name: g.single(&name), places });
    }
    parts.extend(indicators(g, &columns, &missing, |at| at));
    parts
}

fn mean(scale: &Scale) -> f64 {
    match scale {
        Scale::Standard([mean, _]) | Scale::Log([mean, _]) | Scale::Date([mean, _], _) => *mean,
        _ => 0.0,
    }
}

fn deviation(scale: &Scale) -> f64 {
    match scale {
        Scale::Standard([_, deviation]) | Scale::Log([_, deviation]) | Scale::Date([_, deviation], _) => *deviation,
        _ => 1.0,
    }
}

fn standardized(g: &mut Graph, x: &str, mean: &[f64], deviation: &[f64]) -> String {
    let [mean, deviation] = [mean, deviation].map(|list| g.doubles(list));
    let y = g.op("Sub", &[x, &mean], []);
    g.op("Div", &[&y, &deviation], [])
}

/// `sign(x) · ln(1 + |x|)`. Where `1 + |x|` is rounded, so is the quotient: Goldberg 1991, "What Every Computer Scientist Should Know
/// About Floating-Point Arithmetic", theorem 4.
fn log(g: &mut Graph, x: &str) -> String {
    let one = g.double(1.0);
    let size = g.op("Abs", &[x], []);
    let more = g.op("Add", &[&size, &one], []);
    let rounded = g.op("Sub", &[&more, &one], []);
    let log = g.op("Log", &[&more], []);
    let log = g.op("Mul", &[&size, &log], []);
    let log = g.op("Div", &[&log, &rounded], []);
    let is_one = g.op("Equal", &[&more, &one], []);
    let log = g.op("Where", &[&is_one, &size, &log], []);
    let sign = g.op("Sign", &[x], []);
    g.op("Mul", &[&sign, &log], [])
}

/// The parts of bins: [`Codec::PiecewiseLinear`].
fn in_bins(g: &mut Graph, x: &str, group: &[Number]) -> String {
    let (mut column, mut begin, mut width) = (Vec::new(), Vec::new(), Vec::new());
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for (at, number) in group.iter().enumerate() {
        let Scale::Bins(edges) = number.scale else { continue };
        let bins = edges.len().saturating_sub(1);
        if bins == 0 {
            // A number without bins becomes zero.
            for (list, n) in [(&mut begin, 0.0), (&mut width, 1.0), (&mut low, 0.0), (&mut high, 0.0)] {
                list.push(n);
            }
            column.push(at);
        }
        for (bin, pair) in edges.windows(2).enumerate() {
            column.push(at);
            begin.push(pair[0]);
            width.push(pair[1] - pair[0]);
            low.push(if bin == 0 { f64::MIN } else { 0.0 });
            high.push(if bin + 1 == bins { f64::MAX } else { 1.0 });
        }
    }
    let x = g.gather(x, 1, &column);
    let mut y = standardized(g, &x, &begin, &width);
    for (op_type, bound) in [("Max", &low), ("Min", &high)] {
        let bound = g.doubles(bound);
        y = g.op(op_type, &[&y, &bound], []);
    }
    y
}

/// Quantiles of the normal distribution: [`Codec::Quantile`].
fn quantile(g: &mut Graph, x: &str, group: &[Number]) -> String {
    let all: Vec<&[f64]> = group
        .iter()
        .map(|number| match number.scale {
            Scale::Quantile(quantiles) => quantiles.knots(),
            _ => &[],
        })
        .collect();
    let rank = rank(g, x, &all);
    let [low, high, half] = [BOUND, 1.0 - BOUND, 0.5].map(|n| g.double(n));
    let p = g.op("Clip", &[&rank, &low, &high], []);
    let q = g.op("Sub", &[&p, &half], []);
    let in_centre = {
        let square = g.op("Mul", &[&q, &q], []);
        let r = g.double(0.180_625);
        let r = g.op("Sub", &[&r, &square], []);
        let [above, below] = polynomials(g, &r, &CENTRE);
        let above = g.op("Mul", &[&q, &above], []);
        g.op("Div", &[&above, &below], [])
    };
    let in_tail = {
        let (zero, one) = (g.double(0.0), g.double(1.0));
        let is_low = g.op("Less", &[&q, &zero], []);
        let rest = g.op("Sub", &[&one, &p], []);
        let near = g.op("Where", &[&is_low, &p, &rest], []);
        let log = g.op("Log", &[&near], []);
        let log = g.op("Neg", &[&log], []);
        let r = g.op("Sqrt", &[&log], []);
        let r = g.with_double("Sub", &r, 1.6);
        let [above, below] = polynomials(g, &r, &TAIL);
        let size = g.op("Div", &[&above, &below], []);
        let sign = g.op("Sign", &[&q], []);
        g.op("Mul", &[&sign, &size], [])
    };
    let size = g.op("Abs", &[&q], []);
    let edge = g.double(0.425);
    let is_centre = g.op("LessOrEqual", &[&size, &edge], []);
    g.op("Where", &[&is_centre, &in_centre, &in_tail], [])
}

/// Both polynomials of a quotient.
fn polynomials(g: &mut Graph, x: &str, ratio: &Ratio) -> [String; 2] {
    ratio.map(|coefficients| {
        let [others @ .., highest] = coefficients;
        let highest = g.double(highest);
        others.iter().rev().fold(highest, |sum, coefficient| {
            let product = g.op("Mul", &[&sum, x], []);
            g.with_double("Add", &product, *coefficient)
        })
    })
}

/// What part of the training rows lies below a number, for columns of which each has some quantiles. The number of quantiles that are at
/// most as large is found by halving, in all columns at once.
fn rank(g: &mut Graph, x: &str, all: &[&[f64]]) -> String {
    let most = all.iter().map(|quantiles| quantiles.len()).max().unwrap_or_default();
    let halvings = usize::BITS - most.leading_zeros();
    // Of each column: what no number is less than, its quantiles, and what all are less than.
    let stride = (1 << halvings) + 1;
    let (mut table, mut same) = (Vec::new(), Vec::new());
    for quantiles in all {
        let end = table.len() + stride;
        table.push(f64::MIN / 2.0);
        table.extend_from_slice(quantiles);
        table.resize(end, f64::INFINITY);
        same.push(0.0);
        same.extend(quantiles.iter().map(|x| quantiles.partition_point(|other| other < x) as f64));
        same.resize(end, 0.0);
    }
    let (table, same) = (g.doubles(&table), g.doubles(&same));
    let starts: Vec<i64> = (0..all.len()).map(|column| (column * stride) as i64).collect();
    let mut at = g.list(&starts);
    for halving in (0..halvings).rev() {
        let step = g.index(1 << halving);
        let further = g.op("Add", &[&at, &step], []);
        let there = g.op("Gather", &[&table, &further], []);
        let reached = g.op("LessOrEqual", &[&there, x], []);
        at = g.op("Where", &[&reached, &further, &at], []);
    }
    let one = g.index(1);
    let next = g.op("Add", &[&at, &one], []);
    let [low, high] = [&at, &next].map(|at| g.op("Gather", &[&table, at], []));
    let part = g.op("Sub", &[x, &low], []);
    let width = g.op("Sub", &[&high, &low], []);
    let part = g.op("Div", &[&part, &width], []);
    let (zero, whole) = (g.double(0.0), g.double(1.0));
    let part = g.op("Clip", &[&part, &zero, &whole], []);
    // The number of the quantile: it is one less than how many there are so far, so that below all of them −1 and a whole part are 0.
    let firsts = g.list(&starts.iter().map(|start| start + 1).collect::<Vec<_>>());
    let number = g.op("Sub", &[&at, &firsts], []);
    let number = g.op("Cast", &[&number], [int("to", DataType::Double as i64)]);
    let number = g.op("Add", &[&number, &part], []);
    // A single quantile, or none, has no distances: all numbers are in its middle.
    let lasts: Vec<f64> = all.iter().map(|quantiles| quantiles.len().saturating_sub(1) as f64).collect();
    let last = g.doubles(&lasts.iter().map(|last| last.max(1.0)).collect::<Vec<_>>());
    let from_left = g.op("Div", &[&number, &last], []);
    let is_one = g.op("Equal", &[x, &low], []);
    let first = g.op("Gather", &[&same, &at], []);
    let first = g.op("Div", &[&first, &last], []);
    let from_right = g.op("Where", &[&is_one, &first, &from_left], []);
    let sum = g.op("Add", &[&from_left, &from_right], []);
    let rank = g.with_double("Mul", &sum, 0.5);
    if lasts.iter().all(|last| *last > 0.0) {
        return rank;
    }
    let alone = g.doubles(&lasts.iter().map(|last| f64::from(*last == 0.0)).collect::<Vec<_>>());
    let alone = g.op("Equal", &[&alone, &whole], []);
    let half = g.double(0.5);
    g.op("Where", &[&alone, &half, &rank], [])
}

/// Sine and cosine of the part of the year, then of the week and, with the time of day, of the day, of days since 1970-01-01: [`Codec::Date`].
fn circles(g: &mut Graph, days: &str, time_of_day: bool) -> String {
    // 1970-01-01 was a Thursday.
    let week = g.with_double("Add", days, 3.0);
    let mut parts = vec![part_of_year(g, days), part_of(g, &week, 7.0)];
    if time_of_day {
        parts.push(part_of(g, days, 1.0));
    }
    // Older versions of ONNX Runtime have no cosine in double precision.
    let angles = parts.into_iter().flat_map(|part| {
        let angle = g.with_double("Mul", &part, TAU);
        let ahead = g.with_double("Add", &angle, FRAC_PI_2);
        [angle, ahead]
    });
    let angles: Vec<String> = angles.collect();
    let angles = g.joined(&angles, 1);
    g.op("Sin", &[&angles], [])
}

/// The part that has gone by of what comes again after so many days.
fn part_of(g: &mut Graph, days: &str, every: f64) -> String {
    let (zero, every) = (g.double(0.0), g.double(every));
    let part = g.op("Mod", &[days, &every], [int("fmod", 1)]);
    let is_before = g.op("Less", &[&part, &zero], []);
    let later = g.op("Add", &[&part, &every], []);
    let part = g.op("Where", &[&is_before, &later, &part], []);
    g.op("Div", &[&part, &every], [])
}

/// The part of the year that has gone by: `cell::part_of_year`.
fn part_of_year(g: &mut Graph, days: &str) -> String {
    let year = g.with_double("Div", days, 365.2425);
    let year = g.op("Floor", &[&year], []);
    let year = g.with_double("Add", &year, 1970.0);
    let double = int("to", DataType::Double as i64);
    // It is the right one or one beside it.
    let begin = first_day(g, &year);
    let later = g.op("Greater", &[&begin, days], []);
    let later = g.op("Cast", &[&later], [double.clone()]);
    let year = g.op("Sub", &[&year, &later], []);
    let next = g.with_double("Add", &year, 1.0);
    let end = first_day(g, &next);
    let earlier = g.op("LessOrEqual", &[&end, days], []);
    let earlier = g.op("Cast", &[&earlier], [double]);
    let year = g.op("Add", &[&year, &earlier], []);
    let [low, high] = [1.0, 9999.0].map(|year| g.double(year));
    let year = g.op("Clip", &[&year, &low, &high], []);
    let next = g.with_double("Add", &year, 1.0);
    let [begin, end] = [&year, &next].map(|year| first_day(g, year));
    let part = g.op("Sub", &[days, &begin], []);
    let length = g.op("Sub", &[&end, &begin], []);
    let part = g.op("Div", &[&part, &length], []);
    let (zero, one) = (g.double(0.0), g.double(1.0));
    g.op("Clip", &[&part, &zero, &one], [])
}

/// Days from 1970-01-01 to the first of January of a year.
fn first_day(g: &mut Graph, year: &str) -> String {
    let before = g.with_double("Sub", year, 1.0);
    let mut days = g.with_double("Mul", &before, 365.0);
    for (op_type, every) in [("Add", 4.0), ("Sub", 100.0), ("Add", 400.0)] {
        let leaps = g.with_double("Div", &before, every);
        let leaps = g.op("Floor", &[&leaps], []);
        days = g.op(op_type, &[&days, &leaps], []);
    }
    // Those of 1969 years.
    g.with_double("Sub", &days, 719_162.0)
}

//! Columns that say the target: in the rows of training that are looked at, it follows from such a column alone.

use super::super::parallel::parallel;
use super::codec::Cells;
use super::fitted::{TableCodec, Target};
use super::raw::Raw;
use anyhow::Result;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Rows at the begin of a table that are looked at.
const MOST: usize = 100_000;
/// Fewer rows say nothing.
const LEAST: usize = 20;
/// A correlation with the target that is greater is no accident.
const CORRELATION: f64 = 0.999;
/// At least so many rows outside the largest class repeat a value of an earlier row. Fewer may do so by accident.
const AGAIN: usize = 5;

/// The columns that say a target, by their names. `train`: the rows that are trained on.
///
/// # Errors
/// The cells are in a file that cannot be read.
pub fn leaks(raw: &Raw, codec: &TableCodec, train: &[u32]) -> Result<Vec<String>> {
    let first = 0..raw.rows().min(MOST);
    let rows: Vec<usize> = train.iter().map(|row| *row as usize).filter(|row| *row < MOST).collect();
    if rows.len() < LEAST {
        return Ok(Vec::new());
    }
    let targets = codec.learnt().flat_map(Target::columns);
    let targets = targets.map(|name| raw.some(name, first.clone())).collect::<Result<Vec<_>>>()?;
    let learnt: Vec<&String> = codec.learnt().flat_map(Target::columns).collect();
    // A model of windows takes what the target was before.
    let others = codec.columns.iter().filter(|column| !learnt.contains(&&column.name)).collect();
    let found = parallel(others, |column| {
        let cells = raw.some(&column.name, first.clone())?;
        Ok(targets.iter().any(|target| says(&cells.cells, &target.cells, &rows)).then(|| column.name.clone()))
    });
    Ok(found.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Whether a target follows from the cells of a column.
fn says(cells: &Cells, target: &Cells, rows: &[usize]) -> bool {
    match (cells, target) {
        (Cells::Numbers(values), Cells::Numbers(target)) => {
            let pairs = rows.iter().map(|row| [values[*row], target[*row]]);
            correlation(pairs.filter(|pair| !pair[0].is_nan()).collect()).abs() > CORRELATION
        }
        (Cells::Numbers(values), Cells::Texts(classes, _)) => {
            // Minus zero is zero.
            let value = |row: usize| Some((values[row] + 0.0).to_bits()).filter(|_| !values[row].is_nan());
            each_of_one_class(rows.iter().filter_map(|row| Some((value(*row)?, classes[*row]?))))
        }
        (Cells::Texts(numbers, _), Cells::Texts(classes, _)) => {
            each_of_one_class(rows.iter().filter_map(|row| Some((u64::from(numbers[*row]?), classes[*row]?))))
        }
        (Cells::Texts(..), Cells::Numbers(_)) => false,
    }
}

/// Pearson's correlation; 0 of too few pairs, and where one side is always the same.
fn correlation(pairs: Vec<[f64; 2]>) -> f64 {
    if pairs.len() < LEAST {
        return 0.0;
    }
    let mean = [0, 1].map(|side| pairs.iter().map(|pair| pair[side]).sum::<f64>() / pairs.len() as f64);
    let sum = |a: usize, b: usize| pairs.iter().map(|pair| (pair[a] - mean[a]) * (pair[b] - mean[b])).sum::<f64>();
    let scale = (sum(0, 0) * sum(1, 1)).sqrt();
    if scale > 0.0 { sum(0, 1) / scale } else { 0.0 }
}

/// Whether each value is of one class alone, in rows of several classes that have fewer values than half of them.
fn each_of_one_class(rows: impl Iterator<Item = (u64, u32)>) -> bool {
    // The class of each value, and the rows that have it.
    let (mut values, mut count) = (HashMap::new(), 0);
    for (value, class) in rows {
        count += 1;
        match values.entry(value) {
            Entry::Vacant(place) => _ = place.insert((class, 1usize)),
            Entry::Occupied(mut place) => {
                let (known, rows) = place.get_mut();
                if *known != class {
                    return false;
                }
                *rows += 1;
            }
        }
    }
    let (mut of_class, mut again) = (HashMap::new(), HashMap::new());
    for (class, rows) in values.values() {
        *of_class.entry(*class).or_insert(0) += rows;
        *again.entry(*class).or_insert(0) += rows - 1;
    }
    let largest = of_class.iter().max_by_key(|(class, rows)| (**rows, **class)).map(|(class, _)| *class);
    let again: usize = again.iter().filter(|(class, _)| Some(**class) != largest).map(|(_, rows)| rows).sum();
    count >= LEAST && of_class.len() > 1 && 2 * values.len() < count && again >= AGAIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn texts(numbers: impl Iterator<Item = Option<u32>>) -> Cells {
        Cells::Texts(numbers.collect(), Arc::new(Vec::new()))
    }

    #[test]
    fn what_says_the_target_is_found() {
        let rows: Vec<usize> = (0..60).collect();
        let numbers = |of: &dyn Fn(u32) -> f64| Cells::Numbers((0..60).map(of).collect());
        let target = numbers(&|row| f64::from(row * 7 % 13));
        let noise = |much: f64| numbers(&|row| 2.0 - 3.0 * f64::from(row * 7 % 13) + much * f64::from(row % 2));
        assert!(says(&noise(0.0), &target, &rows) && says(&noise(0.1), &target, &rows));
        assert!(!says(&noise(3.0), &target, &rows) && !says(&numbers(&|_| 4.0), &target, &rows));
        assert!(!says(&noise(0.0), &target, &rows[..19]), "too few rows");
        let gaps = numbers(&|row| if row % 3 == 0 { f64::NAN } else { f64::from(row * 7 % 13) });
        assert!(says(&gaps, &target, &rows));

        let classes = texts((0..60).map(|row| Some(row % 3)));
        let column = |of: &dyn Fn(u32) -> Option<u32>| texts((0..60).map(of));
        // Names of the classes, some values for each, and such with gaps.
        assert!(says(&column(&|row| Some(2 - row % 3)), &classes, &rows));
        assert!(says(&column(&|row| Some(row % 24)), &classes, &rows));
        assert!(says(&column(&|row| (row % 4 > 0).then_some(row % 3)), &classes, &rows));
        assert!(says(&numbers(&|row| f64::from(row % 6)), &classes, &rows));
        // A value of two classes, nearly as many values as rows, and rows of one class.
        assert!(!says(&column(&|row| Some(if row == 7 { 0 } else { row % 3 })), &classes, &rows));
        assert!(!says(&column(&|row| Some(row % 48)), &classes, &rows));
        assert!(!says(&column(&|row| (row % 3 == 1).then_some(row % 2)), &classes, &rows));
        // Of three rows of a rare class two have a value together: that is an accident.
        let rare = texts((0..60).map(|row| Some(u32::from(row < 3))));
        assert!(!says(
            &column(&|row| Some(if row < 2 { 99 } else { row / 3 + 100 * u32::from(row == 2) })),
            &rare,
            &rows
        ));
    }
}

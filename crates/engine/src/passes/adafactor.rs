//! Adafactor's parameters by what is kept of their squares, and the variables of their state.

use crate::graph::op::{Algorithm, Matrices, Moments};
use crate::graph::{DType, Holder, Shape, ShapeError, Storage, VarId, VarKind, Variable, Variables};

/// The algorithm with what it keeps, and its parameters: for Adafactor, each with those that this is kept of; `list` as it is for
/// all others. `id` is the parameter of an element of `list`.
///
/// # Errors
/// A parameter is no list of matrices inside (a bug of the layer that made it).
pub(super) fn by_moments<T>(
    algorithm: Algorithm,
    vars: &Variables,
    list: Vec<T>,
    id: impl Fn(&T) -> VarId,
) -> Result<Vec<(Algorithm, Vec<T>)>, ShapeError> {
    let Algorithm::Adafactor { beta2_decay, eps, d, .. } = algorithm else { return Ok(vec![(algorithm, list)]) };
    let mut groups: Vec<(Algorithm, Vec<T>)> = [Moments::Factored, Moments::Elements, Moments::Points]
        .map(|moments| (Algorithm::Adafactor { beta2_decay, eps, d, moments }, Vec::new()))
        .into();
    for element in list {
        let group = match Matrices::of(&vars[id(&element)].storage).map_err(ShapeError::new)? {
            Some(matrices) if matrices.first * matrices.second > 1 => 0,
            Some(_) => 2,
            None => 1,
        };
        groups[group].1.push(element);
    }
    groups.retain(|(_, list)| !list.is_empty());
    Ok(groups)
}

/// The name of the counter of an update, which is `name` unless Adafactor's parameters have several: a device updates those of each by an
/// operation of its own, which counts.
pub(super) fn counter_of(name: &str, algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::Adafactor { moments: Moments::Elements, .. } => format!("{name}_of_vectors"),
        Algorithm::Adafactor { moments: Moments::Points, .. } => format!("{name}_of_points"),
        _ => name.to_owned(),
    }
}

/// Makes the means of rows and columns of parameter `of`.
///
/// # Errors
/// As [`by_moments`].
pub(super) fn means(vars: &mut Variables, of: VarId, holder: Holder) -> Result<[VarId; 2], ShapeError> {
    let Variable { name, storage, origin, .. } = vars[of].clone();
    let matrices = Matrices::of(&storage).map_err(ShapeError::new)?;
    let shapes = matrices.ok_or_else(|| ShapeError::new(format!("`{name}` has no rows and columns")))?.shapes();
    let rank = storage.outside.rank();
    let mut add = |slot: &str, shape: Shape, without: usize| {
        let storage = reduced(&storage, without);
        let name = format!("optimizer.{slot}.{name}");
        let zeros = Variable::zeros(name, DType::F32, shape, VarKind::Optimizer);
        vars.get_or_add(Variable { storage, origin: origin.clone(), holder, ..zeros })
    };
    let [rows, columns] = shapes;
    Ok([add("row_var", rows, rank - 1), add("col_var", columns, rank - 2)])
}

/// How a tensor lies of which one dimension outside, number `without`, has become a single element.
fn reduced(storage: &Storage, without: usize) -> Storage {
    let mut reduced = storage.clone();
    reduced.outside.0[without] = 1;
    // As `Storage::inside_axes`, for all axes of the view.
    let (mut axis, mut left) = (0, storage.outside.dims().first().copied().unwrap_or(1));
    for length in reduced.view.0.iter_mut().filter(|length| **length != 1) {
        while left == 1 && axis + 1 < storage.outside.rank() {
            axis += 1;
            left = storage.outside.dims()[axis];
        }
        left /= *length;
        if axis == without {
            *length = 1;
        }
    }
    reduced
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state's element for each of the parameter's, both outside, is the one at its place inside.
    #[test]
    fn means_lie_as_their_parameters() {
        let sequence = Storage { outside: Shape::from([3, 4, 5]), ..Storage::conv_weight(3, 4, 1, 5) };
        let table = Storage { outside: Shape::from([9, 2]), view: Shape::from([9, 2]), perm: vec![1, 0] };
        for storage in [
            Storage::plain([4, 6]),
            Storage::plain([2, 4, 6]),
            Storage::conv_weight(3, 2, 5, 4),
            Storage::linear_after_flatten(3, [5, 4, 2]),
            Storage::image(2, 5, 3),
            sequence,
            table,
        ] {
            let mut vars = Variables::new();
            let shape = Shape::from([storage.view.len()]);
            let zeros = Variable::zeros("w", DType::F32, shape, VarKind::Parameter);
            let id = vars.get_or_add(Variable { storage: storage.clone(), ..zeros });
            let Matrices { outer, first, second, inner, by_rows } = Matrices::of(&storage).unwrap().unwrap();
            let rank = storage.outside.rank();
            let [rows, columns] = [storage.outside.dims()[rank - 2], storage.outside.dims()[rank - 1]];
            for (slot, without) in means(&mut vars, id, Holder::All).unwrap().into_iter().zip([rank - 1, rank - 2]) {
                let state = &vars[slot];
                let mut outside = storage.outside.dims().to_vec();
                outside[without] = 1;
                assert_eq!((state.storage.outside.dims(), state.shape.len()), (&outside[..], outside.iter().product()));
                // Which element of the state an element of the parameter belongs to: outside by its indices, and inside.
                let outside: Vec<usize> = (0..storage.view.len())
                    .map(|i| {
                        let (matrix, row, column) = (i / columns / rows, i / columns % rows, i % columns);
                        if without == rank - 1 { matrix * rows + row } else { matrix * columns + column }
                    })
                    .collect();
                let places = state.storage.to_inside(&(0..state.shape.len()).collect::<Vec<_>>());
                let of_first = (without == rank - 1) == by_rows;
                let mut inside = Vec::new();
                for at in 0..outer * first * second * inner {
                    let (i, s) = (at % inner, at / inner % second);
                    let (f, o) = (at / inner / second % first, at / inner / second / first);
                    inside.push(
                        places[if of_first { (o * first + f) * inner + i } else { (o * second + s) * inner + i }],
                    );
                }
                assert_eq!(storage.to_inside(&outside), inside, "{storage:?} {without}");
            }
        }
    }
}

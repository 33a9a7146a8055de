//! What Adafactor (Shazeer & Stern 2018) keeps of the squares of gradients: means of rows and columns, from which those of single
//! elements are estimated. Rows and columns are the last two dimensions of a tensor as PyTorch has it, and lie in memory in either
//! order.

use crate::graph::{Shape, Storage};

/// What is kept of a tensor's squares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moments {
    /// A mean for each element: of vectors.
    Elements,
    /// The same of tensors whose matrices have one element each, such as kernels of one pixel: the mean of its row and of its column
    /// is that of the element.
    Points,
    /// Means of rows and of columns.
    Factored,
}

/// A tensor as matrices: its elements lie as `[outer, first, second, inner]`. `first` and `second` are rows and columns; there is a
/// matrix for each of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrices {
    /// Matrices, and what is inside of them: before rows and columns.
    pub outer: usize,
    /// Rows, or columns.
    pub first: usize,
    /// Columns, or rows.
    pub second: usize,
    /// Matrices that lie element by element beside each other.
    pub inner: usize,
    /// `first` is the rows.
    pub by_rows: bool,
}

/// What an axis of a tensor is to its matrices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Other,
    Row,
    Column,
}

impl Matrices {
    /// Elements that have no rows and columns.
    pub fn elements(length: usize) -> Self {
        Matrices { outer: 1, first: 1, second: 1, inner: length, by_rows: true }
    }

    /// The matrices of a variable that is stored so: its last two dimensions outside. `None` of vectors.
    ///
    /// # Errors
    /// Rows and columns are not together inside.
    pub fn of(storage: &Storage) -> Result<Option<Self>, String> {
        let rank = storage.outside.rank();
        if rank < 2 || storage.view.is_empty() {
            return Ok(None);
        }
        let part = |outside: usize| match rank - 1 - outside {
            0 => Part::Column,
            1 => Part::Row,
            _ => Part::Other,
        };
        let axes = storage.inside_axes().ok_or_else(|| mixed(storage))?;
        let mut parts: Vec<(Part, usize)> = Vec::new();
        for (outside, length) in axes {
            match parts.last_mut() {
                Some((last, all)) if *last == part(outside) => *all *= length,
                _ => parts.push((part(outside), length)),
            }
        }
        let mut list = parts.as_slice();
        let [mut outer, mut inner] = [1, 1];
        if let [(Part::Other, length), rest @ ..] = list {
            (outer, list) = (*length, rest);
        }
        if let [rest @ .., (Part::Other, length)] = list {
            (inner, list) = (*length, rest);
        }
        let (first, second, by_rows) = match *list {
            [] => (1, 1, true),
            [(Part::Row, rows)] => (rows, 1, true),
            [(Part::Column, columns)] => (1, columns, true),
            [(Part::Row, rows), (Part::Column, columns)] => (rows, columns, true),
            [(Part::Column, columns), (Part::Row, rows)] => (columns, rows, false),
            _ => return Err(mixed(storage)),
        };
        Ok(Some(Matrices { outer, first, second, inner, by_rows }))
    }

    /// Shapes of the means of rows and of columns.
    pub fn shapes(&self) -> [Shape; 2] {
        let Matrices { outer, first, second, inner, by_rows } = *self;
        let [of_first, of_second] = [[outer, first, 1, inner], [outer, 1, second, inner]].map(Shape::from);
        if by_rows { [of_first, of_second] } else { [of_second, of_first] }
    }

    /// The matrices whose means of rows and columns have these shapes; `None` if none have.
    pub fn with_shapes(rows: &Shape, columns: &Shape) -> Option<Self> {
        let (&[outer, a, b, inner], &[outer_too, c, d, inner_too]) = (rows.dims(), columns.dims()) else { return None };
        if (outer, inner) != (outer_too, inner_too) {
            return None;
        }
        match [a, b, c, d] {
            [first, 1, 1, second] => Some(Matrices { outer, first, second, inner, by_rows: true }),
            [1, second, first, 1] => Some(Matrices { outer, first, second, inner, by_rows: false }),
            _ => None,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.outer * self.first * self.second * self.inner
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of a matrix.
    pub fn rows(&self) -> usize {
        if self.by_rows { self.first } else { self.second }
    }
}

fn mixed(storage: &Storage) -> String {
    format!("rows and columns of {} are not together inside", storage.outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(storage: &Storage) -> Option<Matrices> {
        Matrices::of(storage).unwrap()
    }

    #[test]
    fn rows_and_columns_are_those_of_pytorch() {
        let made = |outer, first, second, inner, by_rows| Some(Matrices { outer, first, second, inner, by_rows });
        assert_eq!(of(&Storage::plain([7])), None);
        assert_eq!(of(&Storage::plain(Shape::default())), None);
        assert_eq!(of(&Storage::plain([5, 3])), made(1, 5, 3, 1, true));
        assert_eq!(of(&Storage::plain([2, 5, 3])), made(2, 5, 3, 1, true));
        assert_eq!(of(&Storage::plain([1, 1, 3])), made(1, 1, 3, 1, true));
        assert_eq!(of(&Storage::conv_weight(8, 4, 5, 3)), made(8, 5, 3, 4, true));
        assert_eq!(of(&Storage::conv_weight(8, 4, 1, 1)), made(32, 1, 1, 1, true));
        assert_eq!(of(&Storage::linear_after_flatten(6, [5, 4, 3])), made(1, 6, 60, 1, true));
        assert_eq!(of(&Storage::image(2, 5, 3)), made(1, 5, 3, 2, true));
        // A convolution over sequences: rows are its channels, which lie after the columns.
        let sequence = Storage { outside: Shape::from([8, 4, 3]), ..Storage::conv_weight(8, 4, 1, 3) };
        assert_eq!(of(&sequence), made(8, 3, 4, 1, false));
        let table = Storage { outside: Shape::from([9, 2]), view: Shape::from([9, 2]), perm: vec![1, 0] };
        assert_eq!(of(&table), made(1, 2, 9, 1, false));
        let scales = Storage { outside: Shape::from([6, 1, 1]), ..Storage::plain([1, 1, 1, 6]) };
        assert_eq!(of(&scales), made(6, 1, 1, 1, true));
    }

    #[test]
    fn the_shapes_of_means_give_their_matrices() {
        for sizes in [[2, 5, 3, 4], [1, 1, 3, 1], [3, 4, 1, 2], [2, 1, 1, 1]] {
            for by_rows in [true, false] {
                let [outer, first, second, inner] = sizes;
                let matrices = Matrices { outer, first, second, inner, by_rows };
                let [rows, columns] = matrices.shapes();
                let found = Matrices::with_shapes(&rows, &columns).unwrap();
                assert_eq!((found.shapes(), found.len()), ([rows, columns], matrices.len()));
            }
        }
        let shape = |dims: [usize; 4]| Shape::from(dims);
        assert_eq!(Matrices::with_shapes(&shape([2, 5, 3, 1]), &shape([2, 1, 3, 1])), None);
        assert_eq!(Matrices::with_shapes(&shape([2, 5, 1, 1]), &shape([3, 1, 3, 1])), None);
        assert_eq!(Matrices::with_shapes(&Shape::from([5]), &Shape::from([3])), None);
    }
}

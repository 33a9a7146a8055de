use crate::case::Case;
use runner::graph::Shape;
use runner::graph::op::{Concat, NewFull, Pad, Permute, Reshape, Slice};

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (from, to) in [(vec![2, 3, 5, 4], vec![2, 60]), (vec![6, 4], vec![3, 2, 1, 4]), (vec![1], vec![1, 1])] {
        let op = Reshape { shape: Shape::from(to.clone()) };
        list.push(Case::new(format!("reshape {from:?} to {to:?}"), op, |d| vec![d.normal(from).wrt()]));
    }
    for (shape, perm) in [
        (vec![3, 5], vec![1, 0]),
        (vec![2, 3, 4], vec![2, 0, 1]),
        (vec![2, 3, 4, 5], vec![0, 3, 1, 2]),
        (vec![2, 3, 4, 5], vec![0, 2, 3, 1]),
        (vec![2, 3, 4, 5], vec![3, 1, 2, 0]),
        (vec![2, 3, 4, 5], vec![0, 1, 2, 3]),
        // Both of the axes that change places are long, or rows move whole.
        (vec![40, 35], vec![1, 0]),
        (vec![2, 3, 4, 9], vec![0, 3, 1, 2]),
        (vec![9, 2, 3, 10], vec![3, 1, 2, 0]),
        (vec![3, 4, 16], vec![1, 0, 2]),
        (vec![3, 4, 6], vec![1, 0, 2]),
    ] {
        list.push(Case::new(format!("permute {shape:?} by {perm:?}"), Permute { perm }, |d| {
            vec![d.normal(shape).wrt()]
        }));
    }
    // The shape but for the axis, the axis, its lengths.
    for (shape, axis, lengths) in [
        (vec![2, 3, 5, 0], 3, vec![4, 1, 17]),
        (vec![2, 0, 3], 1, vec![2, 5]),
        (vec![0, 7], 0, vec![1, 3, 2]),
        (vec![3, 0], 1, vec![6]),
        (vec![300, 0], 1, vec![8, 16]),
    ] {
        list.push(Case::new(format!("concat {lengths:?} on axis {axis} of {shape:?}"), Concat { axis }, |d| {
            let part = |len: &usize| {
                let mut dims = shape.clone();
                dims[axis] = *len;
                d.normal(dims).wrt()
            };
            lengths.iter().map(part).collect()
        }));
    }
    list.push(Case::new("concat, one gradient wanted", Concat { axis: 1 }, |d| {
        vec![d.normal([3, 2]), d.normal([3, 4]).wrt(), d.normal([3, 1])]
    }));
    for (shape, axis, start, len) in [
        (vec![2, 3, 5, 7], 3, 2, 4),
        (vec![2, 3, 5, 7], 1, 1, 2),
        (vec![9, 4], 0, 8, 1),
        (vec![5, 6], 1, 0, 6),
        (vec![5, 24], 1, 8, 16),
    ] {
        let name = format!("slice {len} from {start} on axis {axis} of {shape:?}");
        list.push(Case::new(name, Slice { axis, start, len }, |d| vec![d.normal(shape).wrt()]));
    }
    for (shape, axis, before, after) in [
        (vec![2, 3, 5, 7], 3, 1, 0),
        (vec![2, 3, 5, 4], 1, 2, 4),
        (vec![9, 4], 0, 0, 1),
        (vec![3, 5], 1, 0, 0),
        (vec![5, 24], 1, 8, 16),
    ] {
        let name = format!("pad {before} and {after} on axis {axis} of {shape:?}");
        list.push(Case::new(name, Pad { axis, before, after }, |d| vec![d.normal(shape).wrt()]));
    }
    for (shape, value) in [(vec![2, 3], 0.0), (vec![131], 1.5), (vec![3, 1, 1, 1], -2.0)] {
        let op = NewFull { shape: Shape::from(shape.clone()), value };
        list.push(Case::new(format!("{value} in {shape:?}"), op, |d| vec![d.normal([4])]));
    }
    list
}

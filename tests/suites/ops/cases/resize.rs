use crate::case::Case;
use runner::graph::op::{Resize2d, ResizeMode};

const MODES: [ResizeMode; 3] =
    [ResizeMode::Nearest, ResizeMode::Bilinear { align_corners: false }, ResizeMode::Bilinear { align_corners: true }];

pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for mode in MODES {
        for (x, output) in [
            ([2, 3, 4, 5], [6, 8]),
            // Whole packs and vectors of channels.
            ([1, 4, 3, 16], [9, 7]),
            // One side smaller, one the same.
            ([2, 7, 5, 3], [3, 5]),
            // Some pixels are read by none.
            ([1, 9, 8, 2], [2, 3]),
            ([3, 1, 1, 9], [2, 3]),
            ([1, 5, 6, 8], [1, 1]),
        ] {
            let op = Resize2d { output, mode, scale: None };
            list.push(Case::new(format!("resize of {x:?} to {output:?}, {mode:?}"), op, |d| vec![d.normal(x).wrt()]));
        }
        // Sizes that are rounded down keep the scale that they come of.
        let op = Resize2d { output: [6, 3], mode, scale: Some([1.7, 0.6]) };
        list.push(Case::new(format!("resize by factors, {mode:?}"), op, |d| vec![d.normal([2, 4, 5, 6]).wrt()]));
    }
    list
}

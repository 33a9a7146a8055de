use crate::case::{Case, Operand};
use runner::graph::op::CachedAttention;
use runner::graph::{DType, Input};

/// New positions, room for positions, heads, heads of the keys, floats of a head; the positions so far of each sample.
fn case(sizes: [usize; 5], positions: &[i32]) -> Case {
    far(sizes, positions, None, false)
}

/// With a window, and with what is far counting less.
fn far(sizes: [usize; 5], positions: &[i32], window: Option<usize>, alibi: bool) -> Case {
    let [new, kept, heads, kv_heads, width] = sizes;
    let name = format!(
        "cached attention of {new} positions after {positions:?} of {kept}, {heads} and {kv_heads} heads of {width}, window {window:?}, alibi: {alibi}"
    );
    Case::new(name, CachedAttention { heads, kv_heads, window, alibi }, |d| {
        let samples = positions.len();
        let positions = Operand::new(DType::I32, [samples], positions.iter().map(|p| f64::from(*p)).collect());
        vec![
            d.normal([samples, new, (heads + 2 * kv_heads) * width]),
            d.normal([samples, kept, kv_heads * width]),
            d.normal([samples, kept, kv_heads * width]),
            positions.input(Input::Field(1)),
        ]
    })
}

pub fn cases() -> Vec<Case> {
    vec![
        case([1, 1, 1, 1, 1], &[0]),
        case([1, 5, 2, 2, 3], &[0, 4, 2]),
        case([1, 300, 3, 3, 16], &[299, 0, 63, 64, 130]),
        case([1, 130, 2, 2, 65], &[128]),
        case([3, 9, 2, 2, 8], &[0, 6]),
        case([8, 200, 1, 1, 20], &[100, 0]),
        // As many as have tasks of their own, and more.
        case([9, 150, 2, 2, 5], &[141, 3]),
        case([70, 140, 2, 2, 33], &[0, 70]),
        // Several heads with the same keys.
        case([1, 90, 4, 2, 16], &[80, 7]),
        case([11, 30, 6, 1, 4], &[0, 19]),
        case([1, 10, 1, 1, 130], &[9]),
        // What has no place, and what is before the first.
        case([3, 5, 1, 1, 4], &[3, 5, 9, i32::MAX]),
        case([3, 5, 1, 1, 4], &[-1, -2, -9, i32::MIN]),
        // What is far.
        far([1, 300, 3, 3, 16], &[299, 0, 63, 64, 130], Some(40), false),
        far([3, 9, 2, 2, 8], &[0, 6], Some(1), false),
        far([8, 200, 6, 2, 20], &[100, 0], Some(70), true),
        far([70, 340, 2, 2, 33], &[0, 200], Some(30), false),
        far([40, 700, 1, 1, 8], &[0, 640], Some(150), true),
        far([11, 30, 6, 1, 4], &[0, 19], None, true),
        far([1, 90, 3, 1, 130], &[80, 7], None, true),
        far([3, 5, 1, 1, 4], &[3, 5, 9, i32::MAX], Some(3), true),
        far([12, 5, 1, 1, 4], &[3, 5, 9, i32::MAX], Some(4), true),
        far([3, 5, 1, 1, 4], &[-1, -2, -9, i32::MIN], Some(2), true),
        far([12, 5, 1, 1, 4], &[-1, -2, -20, i32::MIN], Some(2), true),
    ]
}

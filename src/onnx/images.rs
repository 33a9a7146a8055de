//! What happens to an image before it is normalised, in operators of ONNX that give the same pixels as the program: `resize` with
//! antialiasing, `center_crop`, `grayscale`.
//!
//! ONNX's own `Resize` rounds in another way. So the weights of Pillow's filter are computed in the graph, in double precision, from
//! the sizes of the image that goes in, and rounded to 22 bits after the point. The sums over them are exact: a weight is divided into
//! three parts of 8 bits, and `MatMulInteger` multiplies each part with the pixels.

use super::graph::{Graph, Subgraph, int, ints};
use super::proto::DataType;
use crate::data::{Interpolation, Size, Transform};

/// Bits of a weight after the point, as in `data/transforms/resize.rs`.
const BITS: u32 = 22;
/// What the highest part of a weight is stored with, so that no part is negative: `MatMulInteger` subtracts it again.
const OFFSET: i64 = 128;

/// Whether the graph can have all of these transforms, with the same pixels as the program.
pub(super) fn has_form(transforms: &[Transform]) -> bool {
    transforms.iter().all(|transform| match transform {
        Transform::Resize { interpolation, antialias, .. } => *antialias && *interpolation != Interpolation::Nearest,
        Transform::CenterCrop { .. } | Transform::Grayscale { .. } => true,
        _ => false,
    })
}

/// An image in the graph: bytes `[N, C, H, W]`.
pub(super) struct Image {
    /// The name of the value.
    pub name: String,
    /// Its channels.
    pub channels: usize,
}

/// Adds `transforms`, for which [`has_form`] holds.
pub(super) fn transformed(graph: &mut Graph, mut image: Image, transforms: &[Transform]) -> Image {
    for transform in transforms {
        image.name = match *transform {
            Transform::Resize { size, interpolation, .. } => resized(graph, &image.name, size, interpolation),
            Transform::CenterCrop { size } => cropped(graph, &image.name, size),
            Transform::Grayscale { channels } => {
                let grey = grey(graph, &image, channels);
                image.channels = channels;
                grey
            }
            _ => continue,
        };
    }
    image
}

/// Height and width of an image, each a number.
fn sides(g: &mut Graph, x: &str) -> [String; 2] {
    let shape = g.op("Shape", &[x], []);
    [2, 3].map(|axis| {
        let axis = g.index(axis);
        g.op("Gather", &[&shape, &axis], [])
    })
}

/// One axis: its length before and after, and the parts of the weights, each a matrix of bytes `[before, after]`.
struct Taps {
    lost: String,
    parts: [String; 3],
}

fn resized(g: &mut Graph, x: &str, size: Size, interpolation: Interpolation) -> String {
    let [height, width] = sides(g, x);
    let to = match size {
        Size::Both(sides) => sides.map(|side| g.index(side)),
        Size::Shorter(side) => {
            let (shorter, side) = (g.op("Min", &[&height, &width], []), g.index(side));
            [&height, &width].map(|one| {
                let product = g.op("Mul", &[&side, one], []);
                g.op("Div", &[&product, &shorter], [])
            })
        }
    };
    let cubic = interpolation == Interpolation::Bicubic;
    let [rows, columns] = [(&height, &to[0]), (&width, &to[1])].map(|(from, to)| taps(g, from, to, cubic));
    // As in Pillow: columns come first where more than twice as many rows as columns are lost.
    let (two, none) = (g.index(2), g.index(0));
    let twice = g.op("Mul", &[&columns.lost, &two], []);
    let most = g.op("Max", &[&twice, &none], []);
    let rows_first = g.op("Greater", &[&rows.lost, &most], []);
    let branch = |g: &mut Graph, rows_first: bool| -> Subgraph {
        g.subgraph(|g| match rows_first {
            true => {
                let y = along_height(g, x, &rows);
                along_width(g, &y, &columns)
            }
            false => {
                let y = along_width(g, x, &columns);
                along_height(g, &y, &rows)
            }
        })
    };
    let branches = [branch(g, true), branch(g, false)];
    g.either(&rows_first, branches)
}

/// The weights of `to` pixels, each of some of `from` neighbours: the triangle, or Keys' cubic convolution (1981) with -0.5, as wide
/// as the image becomes smaller.
fn taps(g: &mut Graph, from: &str, to: &str, cubic: bool) -> Taps {
    let lost = g.op("Sub", &[from, to], []);
    let double = int("to", DataType::Double as i64);
    let [input, output] = [from, to].map(|n| g.op("Cast", &[n], [double.clone()]));
    let [zero, half, one] = [0.0, 0.5, 1.0].map(|n| g.double(n));
    let scale = g.op("Div", &[&input, &output], []);
    let wider = g.op("Max", &[&scale, &one], []);
    let support = if cubic { g.with_double("Mul", &wider, 2.0) } else { wider.clone() };
    let pixels = g.op("Range", &[&zero, &output, &one], []);
    let middles = g.op("Add", &[&pixels, &half], []);
    let centre = g.op("Mul", &[&middles, &scale], []);
    // Neighbours go down, pixels to the right.
    let places = g.op("Range", &[&zero, &input, &one], []);
    let axis = g.list(&[1]);
    let places = g.op("Unsqueeze", &[&places, &axis], []);
    let inside = {
        let first = g.op("Sub", &[&centre, &support], []);
        let first = g.op("Add", &[&first, &half], []);
        let first = g.op("Max", &[&first, &zero], []);
        let first = g.op("Floor", &[&first], []);
        let behind = g.op("Add", &[&centre, &support], []);
        let behind = g.op("Add", &[&behind, &half], []);
        let behind = g.op("Floor", &[&behind], []);
        let begun = g.op("GreaterOrEqual", &[&places, &first], []);
        let ahead = g.op("Less", &[&places, &behind], []);
        g.op("And", &[&begun, &ahead], [])
    };
    let distance = g.op("Sub", &[&places, &centre], []);
    let distance = g.op("Add", &[&distance, &half], []);
    let narrower = g.op("Div", &[&one, &wider], []);
    let distance = g.op("Mul", &[&distance, &narrower], []);
    let distance = g.op("Abs", &[&distance], []);
    let filter = if cubic { cubic_filter(g, &distance) } else { linear_filter(g, &distance) };
    let weights = g.op("Where", &[&inside, &filter, &zero], []);
    let first_axis = g.list(&[0]);
    let sum = g.op("ReduceSum", &[&weights, &first_axis], [int("keepdims", 1)]);
    let weights = g.op("Div", &[&weights, &sum], []);
    let weights = g.with_double("Mul", &weights, f64::from(1u32 << BITS));
    // Rounded, halves away from zero.
    let sign = g.op("Sign", &[&weights], []);
    let size = g.op("Abs", &[&weights], []);
    let size = g.op("Add", &[&size, &half], []);
    let size = g.op("Floor", &[&size], []);
    let weights = g.op("Mul", &[&sign, &size], []);
    let mut rest = g.op("Cast", &[&weights], [int("to", DataType::Int32 as i64)]);
    let byte = int("to", DataType::Uint8 as i64);
    let base = g.int32(256);
    let low = [(); 2].map(|()| {
        let low = g.op("Mod", &[&rest, &base], []);
        let higher = g.op("Sub", &[&rest, &low], []);
        rest = g.op("Div", &[&higher, &base], []);
        g.op("Cast", &[&low], [byte.clone()])
    });
    let offset = g.int32(OFFSET as i32);
    let high = g.op("Add", &[&rest, &offset], []);
    let high = g.op("Cast", &[&high], [byte]);
    let [lowest, middle] = low;
    Taps { lost, parts: [lowest, middle, high] }
}

/// max(0, 1 - x) of distances that are not negative.
fn linear_filter(g: &mut Graph, x: &str) -> String {
    let (zero, one) = (g.double(0.0), g.double(1.0));
    let y = g.op("Sub", &[&one, x], []);
    g.op("Max", &[&y, &zero], [])
}

/// Keys' polynomials of distances that are not negative, with the same operations in the same order as `data/transforms/resize.rs`.
fn cubic_filter(g: &mut Graph, x: &str) -> String {
    let a = -0.5;
    let [zero, one, two] = [0.0, 1.0, 2.0].map(|n| g.double(n));
    let near = g.with_double("Mul", x, a + 2.0);
    let near = g.with_double("Sub", &near, a + 3.0);
    let near = g.op("Mul", &[&near, x], []);
    let near = g.op("Mul", &[&near, x], []);
    let near = g.op("Add", &[&near, &one], []);
    let far = g.with_double("Sub", x, 5.0);
    let far = g.op("Mul", &[&far, x], []);
    let far = g.with_double("Add", &far, 8.0);
    let far = g.op("Mul", &[&far, x], []);
    let far = g.with_double("Sub", &far, 4.0);
    let far = g.with_double("Mul", &far, a);
    let (is_near, is_far) = (g.op("Less", &[x, &one], []), g.op("Less", &[x, &two], []));
    let beyond = g.op("Where", &[&is_far, &far, &zero], []);
    g.op("Where", &[&is_near, &near, &beyond], [])
}

/// Every row of `x` made of another length.
fn along_width(g: &mut Graph, x: &str, taps: &Taps) -> String {
    let none = g.byte(0);
    let offset = g.byte(OFFSET as u8);
    let [low, middle, high] = [0, 1, 2].map(|i| {
        let zero = if i == 2 { &offset } else { &none };
        g.op("MatMulInteger", &[x, &taps.parts[i], &none, zero], [])
    });
    let base = g.int32(256);
    let sum = g.op("Mul", &[&high, &base], []);
    let sum = g.op("Add", &[&sum, &middle], []);
    let sum = g.op("Mul", &[&sum, &base], []);
    let sum = g.op("Add", &[&sum, &low], []);
    let (half, one) = (g.int32(1 << (BITS - 1)), g.int32(1 << BITS));
    let sum = g.op("Add", &[&sum, &half], []);
    let sum = g.op("Div", &[&sum, &one], []);
    let (least, most) = (g.int32(0), g.int32(255));
    let sum = g.op("Clip", &[&sum, &least, &most], []);
    g.op("Cast", &[&sum], [int("to", DataType::Uint8 as i64)])
}

/// Every column of `x` made of another length.
fn along_height(g: &mut Graph, x: &str, taps: &Taps) -> String {
    let turned = [0, 1, 3, 2];
    let y = g.op("Transpose", &[x], [ints("perm", turned)]);
    let y = along_width(g, &y, taps);
    g.op("Transpose", &[&y], [ints("perm", turned)])
}

/// The window in the middle, with zeros around an image that is smaller. Where halves are left, torchvision rounds the first place to
/// an even number, but not the width of a border.
fn cropped(g: &mut Graph, x: &str, size: [usize; 2]) -> String {
    let shape = g.op("Shape", &[x], []);
    let [from, to] = [2, 4].map(|axis| g.list(&[axis]));
    let sides = g.op("Slice", &[&shape, &from, &to], []);
    let size = g.list(&size.map(|n| n as i64));
    let (none, two) = (g.index(0), g.index(2));
    // The border: half of what is missing before, rounded down; the rest after.
    let missing = g.op("Sub", &[&size, &sides], []);
    let missing = g.op("Max", &[&missing, &none], []);
    let before = g.op("Div", &[&missing, &two], []);
    let behind = g.op("Sub", &[&missing, &before], []);
    let outer = g.list(&[0, 0]);
    let border = g.op("Concat", &[&outer, &before, &outer, &behind], [int("axis", 0)]);
    let zero = g.byte(0);
    let padded = g.op("Pad", &[x, &border, &zero], []);
    let spare = g.op("Sub", &[&sides, &size], []);
    let spare = g.op("Max", &[&spare, &none], []);
    let start = g.op("Cast", &[&spare], [int("to", DataType::Double as i64)]);
    let start = g.with_double("Mul", &start, 0.5);
    let start = g.op("Round", &[&start], []);
    let start = g.op("Cast", &[&start], [int("to", DataType::Int64 as i64)]);
    let end = g.op("Add", &[&start, &size], []);
    let axes = g.list(&[2, 3]);
    g.op("Slice", &[&padded, &start, &end, &axes], [])
}

/// The luma of ITU-R 601, from weights of 16 bits after the point.
fn grey(g: &mut Graph, image: &Image, channels: usize) -> String {
    let mut y = image.name.clone();
    if image.channels > 1 {
        if image.channels > 3 {
            y = g.slice(&y, 1, 0, 3);
        }
        let pixels = g.op("Cast", &[&y], [int("to", DataType::Int32 as i64)]);
        let weights = g.int32s(&[3, 1, 1], &[19595, 38470, 7471]);
        let parts = g.op("Mul", &[&pixels, &weights], []);
        let sum = g.reduce("ReduceSum", &parts, &[1], true);
        let (half, one) = (g.int32(0x8000), g.int32(1 << 16));
        let sum = g.op("Add", &[&sum, &half], []);
        let sum = g.op("Div", &[&sum, &one], []);
        y = g.op("Cast", &[&sum], [int("to", DataType::Uint8 as i64)]);
    }
    match channels {
        1 => y,
        _ => g.op("Concat", &vec![y.as_str(); channels], [int("axis", 1)]),
    }
}

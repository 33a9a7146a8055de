//! Values that persist between steps, and their layout outside.

use super::fill::Fill;
use super::holder::Holder;
use super::types::{DType, Shape};
use std::collections::HashMap;
use std::ops::Index;

/// Index of a [`Variable`] in its [`Variables`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarId(pub u32);

/// What a variable is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VarKind {
    /// A parameter; `trainable` in [`Variable`] says whether the optimizer updates it.
    Parameter,
    /// A buffer: part of the model's state dict that has no gradient (`running_mean`).
    Buffer,
    /// Optimizer state, saved as `optimizer.<slot>.<name>`. `slot` is in the variable's name already.
    Optimizer,
    /// The sum of gradients over micro-batches.
    Gradient,
    /// Running sums that the host reads and resets.
    Metric,
    /// Numbers that never change and that no state dict has.
    Constant,
    /// What recurrent layers carry on from batch to batch: saved as the optimizer's state is, and no part of a state dict.
    Carried,
    /// A copy of a buffer, made before the current update.
    Kept,
}

/// How the inside layout of a variable maps to the outside one (that of PyTorch's state dicts).
///
/// Reading the outside tensor (row-major, shape `outside`) as the row-major shape `view` and permuting its axes by
/// `perm` (inside axis `i` is axis `perm[i]` of the view) gives the inside tensor, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// The shape that state dicts show.
    pub outside: Shape,
    /// A shape of as many elements as `outside`.
    pub view: Shape,
    /// A permutation of the axes of `view`.
    pub perm: Vec<usize>,
}

/// An axis of a tensor: its length, and how far apart its elements lie inside and outside.
#[derive(Clone, Copy)]
struct Axis {
    length: usize,
    inside: usize,
    outside: usize,
}

impl Axis {
    /// No axis: a single element.
    const NONE: Axis = Axis { length: 1, inside: 0, outside: 0 };
}

/// Elements of a side of a square that is gone through at once: single-precision numbers of a cache line.
const SQUARE: usize = 16;

impl Storage {
    /// Inside and outside are the same.
    pub fn plain(shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        let perm = (0..shape.rank()).collect();
        Storage { outside: shape.clone(), view: shape, perm }
    }

    /// A convolution's weight: outside `[O, I, KH, KW]`, inside `[O, KH, KW, I]`.
    pub fn conv_weight(o: usize, i: usize, kh: usize, kw: usize) -> Self {
        let outside = Shape::from([o, i, kh, kw]);
        Storage { view: outside.clone(), outside, perm: vec![0, 2, 3, 1] }
    }

    /// A matrix `[out, inp]` that state dicts have the other way round.
    pub fn transposed(out: usize, inp: usize) -> Self {
        let outside = Shape::from([inp, out]);
        Storage { view: outside.clone(), outside, perm: vec![1, 0] }
    }

    /// The weight of a linear layer that reads flattened images: outside `[out, C·H·W]`, inside `[out, H·W·C]`.
    pub fn linear_after_flatten(out: usize, [h, w, c]: [usize; 3]) -> Self {
        Storage { outside: Shape::from([out, c * h * w]), view: Shape::from([out, c, h, w]), perm: vec![0, 2, 3, 1] }
    }

    /// Anything of shape `[C, H, W]` outside and `[H, W, C]` inside.
    pub fn image(c: usize, h: usize, w: usize) -> Self {
        let outside = Shape::from([c, h, w]);
        Storage { view: outside.clone(), outside, perm: vec![1, 2, 0] }
    }

    /// True if no element moves.
    pub fn is_plain(&self) -> bool {
        self.perm.iter().enumerate().all(|(i, p)| i == *p)
    }

    /// The axes inside that have more than one element, outermost first: the outside axis that each is a part of, and its length.
    /// `None` if one is a part of several.
    pub fn inside_axes(&self) -> Option<Vec<(usize, usize)>> {
        let outside = self.outside.dims();
        let mut parts = vec![0; self.view.rank()];
        // The outside axis that is being taken apart, and how much of it is left.
        let (mut axis, mut left) = (0, outside.first().copied().unwrap_or(1));
        for (part, length) in parts.iter_mut().zip(self.view.dims()).filter(|(_, length)| **length != 1) {
            while left == 1 {
                axis += 1;
                left = *outside.get(axis)?;
            }
            if *length == 0 || left % length != 0 {
                return None;
            }
            *part = axis;
            left /= length;
        }
        let inside = self.perm.iter().map(|axis| (parts[*axis], self.view.dims()[*axis]));
        Some(inside.filter(|(_, length)| *length != 1).collect())
    }

    /// Calls `f(inside, outside)` with the linear index of every element in both layouts, in squares of [`SQUARE`] elements a side: what
    /// lies beside an element in either layout is then near.
    fn for_each(&self, mut f: impl FnMut(usize, usize)) {
        let distances =
            |dims: &[usize]| -> Vec<usize> { (1..=dims.len()).map(|axis| dims[axis..].iter().product()).collect() };
        let view = self.view.dims();
        let dims: Vec<usize> = self.perm.iter().map(|axis| view[*axis]).collect();
        let (inside, outside) = (distances(&dims), distances(view));
        let axes = self.perm.iter().enumerate().map(|(i, axis)| Axis {
            length: dims[i],
            inside: inside[i],
            outside: outside[*axis],
        });
        let mut axes: Vec<Axis> = axes.filter(|axis| axis.length != 1).collect();
        if axes.iter().any(|axis| axis.length == 0) {
            return;
        }
        let mut take = |lies: fn(&Axis) -> bool| axes.iter().position(lies).map_or(Axis::NONE, |at| axes.remove(at));
        let (column, row) = (take(|axis| axis.inside == 1), take(|axis| axis.outside == 1));
        // The axes that are left, element by element.
        let others: usize = axes.iter().map(|axis| axis.length).product();
        for number in 0..others {
            let (mut left, mut i, mut o) = (number, 0, 0);
            for axis in axes.iter().rev() {
                i += left % axis.length * axis.inside;
                o += left % axis.length * axis.outside;
                left /= axis.length;
            }
            for first_row in (0..row.length).step_by(SQUARE) {
                for first in (0..column.length).step_by(SQUARE) {
                    for r in first_row..(first_row + SQUARE).min(row.length) {
                        for c in first..(first + SQUARE).min(column.length) {
                            f(i + r * row.inside + c, o + r + c * column.outside);
                        }
                    }
                }
            }
        }
    }

    /// The inside tensor of an outside one.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn to_inside<T: Copy>(&self, outside: &[T]) -> Vec<T> {
        let mut out = outside.to_vec();
        self.to_inside_into(outside, &mut out);
        out
    }

    /// The outside tensor of an inside one.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn to_outside<T: Copy>(&self, inside: &[T]) -> Vec<T> {
        let mut out = inside.to_vec();
        self.to_outside_into(inside, &mut out);
        out
    }

    /// As [`Storage::to_inside`], into memory that is there.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn to_inside_into<T: Copy>(&self, outside: &[T], inside: &mut [T]) {
        assert!(outside.len() == self.view.len() && inside.len() == outside.len());
        if self.is_plain() {
            return inside.copy_from_slice(outside);
        }
        self.for_each(|i, o| inside[i] = outside[o]);
    }

    /// As [`Storage::to_outside`], into memory that is there.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn to_outside_into<T: Copy>(&self, inside: &[T], outside: &mut [T]) {
        assert!(inside.len() == self.view.len() && outside.len() == inside.len());
        if self.is_plain() {
            return outside.copy_from_slice(inside);
        }
        self.for_each(|i, o| outside[o] = inside[i]);
    }

    /// Number of elements of the smallest contiguous part that holds the same elements inside and outside.
    fn unit(&self) -> usize {
        match (self.is_plain(), self.perm.first(), self.view.dims()) {
            (true, ..) => 1,
            // Nothing crosses from one row of the first axis to another.
            (false, Some(0), [rows, ..]) => self.view.len() / (*rows).max(1),
            _ => self.view.len(),
        }
    }

    /// The layout of a part of `elements` elements, which is a whole number of units.
    fn part(&self, elements: usize) -> Storage {
        if self.is_plain() || elements == self.view.len() {
            return if self.is_plain() { Storage::plain([elements]) } else { self.clone() };
        }
        let mut dims = self.view.dims().to_vec();
        dims[0] = elements / self.unit();
        let view = Shape::from(dims);
        Storage { outside: view.clone(), view, perm: self.perm.clone() }
    }
}

/// A contiguous part of a variable that holds the same elements inside and outside.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Its first byte.
    pub at: usize,
    /// Its size.
    pub bytes: usize,
    /// How its elements lie.
    pub storage: Storage,
}

/// Bytes that a [`Piece`] has at most, where the layouts allow it.
pub const PIECE: usize = 1 << 20;

/// A tensor that persists between steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The name in state dicts (`features.0.weight`, `optimizer.exp_avg.features.0.weight`), unique.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Inside shape.
    pub shape: Shape,
    /// What it is.
    pub kind: VarKind,
    /// False for frozen parameters (and everything that is no parameter).
    pub trainable: bool,
    /// The outside layout.
    pub storage: Storage,
    /// The initial value.
    pub init: Fill,
    /// The path of the layer that owns it.
    pub origin: String,
    /// Which rank has it.
    pub holder: Holder,
}

impl Variable {
    /// A variable of no layer: initially zeros, not trainable, and of the same layout outside.
    pub fn zeros(name: impl Into<String>, dtype: DType, shape: impl Into<Shape>, kind: VarKind) -> Self {
        let shape = shape.into();
        Variable {
            name: name.into(),
            dtype,
            storage: Storage::plain(shape.clone()),
            shape,
            kind,
            trainable: false,
            init: Fill::Constant(0.0),
            origin: String::new(),
            holder: Holder::All,
        }
    }

    /// Size in bytes, without padding.
    pub fn bytes(&self) -> usize {
        self.shape.len() * self.dtype.bytes()
    }

    /// Bytes of it that this rank has, without padding.
    pub fn bytes_here(&self) -> usize {
        self.holder.here(self.shape.len()).len() * self.dtype.bytes()
    }

    /// The shape of what this rank has of it.
    pub fn shape_here(&self) -> Shape {
        match self.holder {
            Holder::Part(..) => Shape::from([self.holder.here(self.shape.len()).len()]),
            _ => self.shape.clone(),
        }
    }

    /// The bytes of its pieces but for the last one, which may be smaller.
    pub fn piece_bytes(&self) -> usize {
        let unit = (self.storage.unit() * self.dtype.bytes()).max(1);
        ((PIECE / unit).max(1) * unit).min(self.bytes())
    }

    /// The parts that it is moved in, one after the other, so that no more than that is in memory twice.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        let (all, size) = (self.bytes(), self.piece_bytes().max(1));
        (0..all).step_by(size).map(move |at| {
            let bytes = size.min(all - at);
            Piece { at, bytes, storage: self.storage.part(bytes / self.dtype.bytes()) }
        })
    }
}

/// The variables that the graphs of one experiment share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Variables {
    list: Vec<Variable>,
    by_name: HashMap<String, VarId>,
}

impl Variables {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The variable of that name; added if there is none. The second graph to be built finds what the first one made.
    pub fn get_or_add(&mut self, var: Variable) -> VarId {
        if let Some(id) = self.by_name.get(&var.name) {
            debug_assert_eq!(self.list[id.0 as usize].shape, var.shape, "{}", var.name);
            return *id;
        }
        let id = VarId(self.list.len() as u32);
        self.by_name.insert(var.name.clone(), id);
        self.list.push(var);
        id
    }

    /// Looks a name up.
    pub fn find(&self, name: &str) -> Option<VarId> {
        self.by_name.get(name).copied()
    }

    /// All of them, in the order of creation.
    pub fn iter(&self) -> impl Iterator<Item = (VarId, &Variable)> {
        self.list.iter().enumerate().map(|(i, v)| (VarId(i as u32), v))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Marks a parameter as frozen or trainable.
    pub fn set_trainable(&mut self, id: VarId, trainable: bool) {
        self.list[id.0 as usize].trainable = trainable;
    }
}

impl Index<VarId> for Variables {
    type Output = Variable;
    fn index(&self, id: VarId) -> &Variable {
        &self.list[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conv_weight_layout_round_trips_with_odd_sizes() {
        let s = Storage::conv_weight(3, 2, 5, 7);
        let outside: Vec<usize> = (0..3 * 2 * 5 * 7).collect();
        let inside = s.to_inside(&outside);
        for o in 0..3 {
            for i in 0..2 {
                for y in 0..5 {
                    for x in 0..7 {
                        assert_eq!(inside[((o * 5 + y) * 7 + x) * 2 + i], outside[((o * 2 + i) * 5 + y) * 7 + x]);
                    }
                }
            }
        }
        assert_eq!(s.to_outside(&inside), outside);
    }

    #[test]
    fn every_permutation_moves_each_element_to_its_place() {
        let perms = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for perm in perms {
            // More than a square has, one that is not full, and axes of a single element.
            for dims in [[2, 3, 5], [17, 2, 33], [1, 40, 16], [19, 1, 1], [1, 1, 1], [3, 0, 2]] {
                let view = Shape::from(dims);
                let storage = Storage { outside: view.clone(), view, perm: perm.to_vec() };
                let outside: Vec<usize> = (0..dims.iter().product()).collect();
                let inside = storage.to_inside(&outside);
                let [a, b, c] = perm.map(|axis| dims[axis]);
                for (i, x) in inside.iter().enumerate() {
                    let mut at = [0; 3];
                    for (axis, place) in perm.into_iter().zip([i / (b * c), i / c % b, i % c]) {
                        at[axis] = place;
                    }
                    assert_eq!(
                        *x,
                        (at[0] * dims[1] + at[1]) * dims[2] + at[2],
                        "{dims:?} {perm:?} of {a}, {b}, {c}: {i}"
                    );
                }
                assert_eq!(storage.to_outside(&inside), outside, "{dims:?} {perm:?}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "tensors larger than a piece take Miri half an hour")]
    fn pieces_make_the_whole_in_every_layout() {
        let storages = [
            Storage::plain([700, 1000]),
            Storage::conv_weight(700, 8, 9, 7),
            Storage::linear_after_flatten(3, [300, 40, 30]),
            Storage::image(3, 400, 300),
            Storage::plain([5]),
            Storage::plain([0usize, 4]),
            Storage::plain(Shape::default()),
        ];
        for (storage, bounded) in storages.into_iter().zip([true, true, false, false, true, true, true]) {
            let var = Variable {
                storage: storage.clone(),
                ..Variable::zeros("w", DType::F32, storage.view.clone(), VarKind::Parameter)
            };
            let n = storage.view.len();
            let outside: Vec<usize> = (0..n).collect();
            let inside = storage.to_inside(&outside);
            let mut end = 0;
            for piece in var.pieces() {
                assert_eq!(piece.at, end);
                assert!(piece.bytes <= var.piece_bytes() && piece.bytes > 0);
                assert!(!bounded || piece.bytes <= PIECE, "{}", piece.bytes);
                end += piece.bytes;
                let range = piece.at / 4..end / 4;
                assert_eq!(piece.storage.to_outside(&inside[range.clone()]), outside[range.clone()]);
                assert_eq!(piece.storage.to_inside(&outside[range.clone()]), inside[range]);
            }
            assert_eq!(end, var.bytes());
        }
    }

    #[test]
    fn linear_after_flatten_reads_channels_first() {
        let s = Storage::linear_after_flatten(2, [3, 5, 4]);
        let outside: Vec<usize> = (0..2 * 60).collect();
        let inside = s.to_inside(&outside);
        // Element (row 1, h 2, w 3, c 1) inside is (row 1, c 1, h 2, w 3) outside.
        assert_eq!(inside[60 + (2 * 5 + 3) * 4 + 1], 60 + (3 + 2) * 5 + 3);
        assert_eq!(s.to_outside(&inside), outside);
    }
}

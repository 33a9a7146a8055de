//! What Adafactor's tasks work on.

use crate::graph::op::Matrices;
use crate::run::parallel::CHUNK;
use crate::run::threads::chunks;
use std::ops::Range;

/// Pieces that the lines of a few large matrices are cut into, all matrices together.
const MOST_PIECES: usize = 16;

/// What a task works on: whole matrices, lines of one, or elements without rows and columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) tensor: usize,
    /// Its elements.
    pub(super) elements: Range<usize>,
    /// Where the means over `second` of its lines are.
    pub(super) first: Range<usize>,
    /// Where the means over `first` of its matrices are.
    pub(super) second: Range<usize>,
    /// Where sums over its lines are gathered that are a part of those: in the scratch memory. Those of the first lines of a matrix
    /// are gathered in their place.
    pub(super) spare: Option<Range<usize>>,
    /// Its matrices, and the lines of each.
    pub(super) outer: usize,
    pub(super) lines: usize,
    /// Elements of `inner` that it has.
    pub(super) inner: usize,
}

/// Cuts a tensor into pieces, from place `spare` of the scratch memory on, which is moved.
pub(super) fn cut(tensor: usize, of: Matrices, factored: bool, spare: &mut usize) -> Vec<Piece> {
    let Matrices { outer, first, second, inner, .. } = of;
    if !factored {
        let pieces = chunks(of.len(), CHUNK);
        let piece = |elements: Range<usize>| Piece {
            tensor,
            first: elements.clone(),
            second: 0..0,
            spare: None,
            outer: 1,
            lines: 1,
            inner: elements.len(),
            elements,
        };
        return (0..pieces.count()).map(|i| piece(pieces.range(i))).collect();
    }
    let line = second * inner;
    let piece = |outer: Range<usize>, lines: Range<usize>, spare| {
        // Several matrices have all of their lines.
        let from = outer.start * first + lines.start;
        let to = (outer.end - 1) * first + lines.end;
        Piece {
            tensor,
            elements: from * line..to * line,
            first: from * inner..to * inner,
            second: outer.start * line..outer.end * line,
            spare,
            outer: outer.len(),
            lines: lines.len(),
            inner,
        }
    };
    let matrix = first * line;
    if matrix <= CHUNK {
        let groups = chunks(outer, CHUNK / matrix.max(1));
        return (0..groups.count()).map(|i| piece(groups.range(i), 0..first, None)).collect();
    }
    let most = matrix.div_ceil(CHUNK).min((MOST_PIECES / outer.max(1)).max(1));
    let parts = chunks(first, first.div_ceil(most));
    let mut list = Vec::new();
    for number in 0..outer {
        for part in 0..parts.count() {
            let place = (part > 0).then(|| *spare..*spare + line);
            *spare += if part > 0 { line } else { 0 };
            list.push(piece(number..number + 1, parts.range(part), place));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_everything_once() {
        let made = |outer, first, second, inner| Matrices { outer, first, second, inner, by_rows: true };
        for of in
            [made(1, 700, 300, 1), made(3, 40, 90, 50), made(200, 3, 3, 64), made(2, 1, 5, 1), made(40, 300, 90, 1)]
        {
            let mut end = 0;
            let pieces = cut(0, of, true, &mut end);
            let mut spare = 0;
            let (mut elements, mut first, mut second) = (0, 0, 0);
            for piece in &pieces {
                assert_eq!((piece.elements.start, piece.first.start), (elements, first), "{of:?}");
                (elements, first) = (piece.elements.end, piece.first.end);
                assert_eq!(piece.elements.len(), piece.outer * piece.lines * of.second * of.inner);
                assert_eq!(piece.first.len(), piece.outer * piece.lines * of.inner);
                match &piece.spare {
                    Some(place) => {
                        assert_eq!((place.start, place.len()), (spare, of.second * of.inner));
                        assert_eq!(piece.second.end, second);
                        spare = place.end;
                    }
                    None => {
                        assert_eq!(piece.second.start, second);
                        second = piece.second.end;
                    }
                }
                assert_eq!(piece.second.len(), piece.outer * of.second * of.inner);
            }
            assert_eq!((elements, first), (of.len(), of.outer * of.first * of.inner));
            assert_eq!((second, spare), (of.outer * of.second * of.inner, end));
        }
    }
}

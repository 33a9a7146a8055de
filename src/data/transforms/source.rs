//! Images of which only what their transforms need is decoded.

use super::image::{Image, Window};
use super::moves::Moves;
use super::{Interpolation, Transform, resize, transform, windows};
use crate::random::Stream;
use anyhow::Result;

/// An image, parts of which can be asked for.
pub(in crate::data) trait ImageSource {
    /// Height and width.
    fn sides(&self) -> [usize; 2];

    /// Hands over an image that has the pixels of `window`, and says where in it they are.
    ///
    /// # Errors
    /// They cannot be decoded.
    fn with<T>(&self, window: Window, take: impl FnOnce(&Image, Window) -> T) -> Result<T>;
}

impl ImageSource for Image {
    fn sides(&self) -> [usize; 2] {
        self.sides
    }

    fn with<T>(&self, window: Window, take: impl FnOnce(&Image, Window) -> T) -> Result<T> {
        Ok(take(self, window))
    }
}

/// As [`transform`], to the bit, of an image that is decoded as far as the first transforms need it.
///
/// # Errors
/// It cannot be decoded.
pub(in crate::data) fn transform_source(
    list: &[Transform],
    draws: &mut Stream,
    source: &impl ImageSource,
) -> Result<Image> {
    let sides = source.sides();
    let (first, rest) = match list {
        [Transform::RandomResizedCrop { size, scale, ratio, interpolation, antialias }, rest @ ..] => {
            let window = windows::resized_crop(draws, sides, *scale, *ratio);
            let take = |image: &Image, window| resize::resize(image, window, *size, *interpolation, *antialias);
            (source.with(window, take)?, rest)
        }
        [Transform::Resize { size, interpolation, antialias: true }, rest @ ..]
            if size.of(sides) != sides && *interpolation != Interpolation::Nearest =>
        {
            let to = size.of(sides);
            let (moves, rest) = rest.split_at(leading_moves(rest));
            let is_whole = moves.is_empty();
            let moves = Moves::fold(moves, draws, to);
            let used = moves.used();
            let part = resize::Part::new(sides, to, used, *interpolation);
            let image = source.with(part.needed, |image, window| part.resize(image, window))?;
            (if is_whole { image } else { moves.moved(used.at, [0, 0]).apply(&image) }, rest)
        }
        [Transform::Resize { size, interpolation, antialias }, rest @ ..] if size.of(sides) != sides => {
            let whole = Window { at: [0, 0], sides };
            let take =
                |image: &Image, window| resize::resize(image, window, size.of(sides), *interpolation, *antialias);
            (source.with(whole, take)?, rest)
        }
        _ => {
            let (moves, rest) = list.split_at(leading_moves(list));
            let moves = Moves::fold(moves, draws, sides);
            let used = moves.used();
            (source.with(used, |image, window| moves.moved(used.at, window.at).apply(image))?, rest)
        }
    };
    Ok(transform(rest, draws, first))
}

/// How many transforms at the beginning only move pixels.
fn leading_moves(list: &[Transform]) -> usize {
    list.iter().take_while(|transform| transform.only_moves()).count()
}

//! Affine maps of an image: rotation as Pillow's `Image.rotate`, and all of torchvision's `affine`.

use super::image::Image;
use super::resize::Interpolation;

/// The image turned by `degrees` against the clock, in its own size; where nothing comes to lie, all channels are `fill`.
pub(super) fn rotate(image: &Image, degrees: f64, interpolation: Interpolation, fill: u8) -> Image {
    mapped(image, &Map::rotation(degrees, image.sides), interpolation, fill)
}

/// What is done to an image about a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Affine {
    /// The angle that it is turned by, with the clock.
    pub degrees: f64,
    /// The pixels that it is moved by, to the right and down.
    pub translate: [f64; 2],
    /// The factor of its size.
    pub scale: f64,
    /// The angles that it is sheared by, along x and along y.
    pub shear: [f64; 2],
}

impl Affine {
    /// Nothing.
    pub const IDENTITY: Self = Affine { degrees: 0.0, translate: [0.0; 2], scale: 1.0, shear: [0.0; 2] };
}

/// The image changed about `center` (x and y), in its own size; where nothing comes to lie, all channels are `fill`.
pub(super) fn affine(image: &Image, by: Affine, center: [f64; 2], interpolation: Interpolation, fill: u8) -> Image {
    mapped(image, &Map::affine(by, center), interpolation, fill)
}

/// The middle of an image, x and y.
pub(super) fn middle([height, width]: [usize; 2]) -> [f64; 2] {
    [width as f64 * 0.5, height as f64 * 0.5]
}

/// The image whose pixels are where `map` says.
fn mapped(image: &Image, map: &Map, interpolation: Interpolation, fill: u8) -> Image {
    let ([height, width], channels) = (image.sides, image.channels);
    let straight = (interpolation == Interpolation::Nearest && map.is_straight())
        .then(|| [map.straight(0, width), map.straight(1, height)]);
    let mut pixels = vec![fill; image.pixels.len()];
    for (y, row) in pixels.chunks_exact_mut(width * channels).enumerate() {
        for (x, out) in row.chunks_exact_mut(channels).enumerate() {
            if interpolation == Interpolation::Nearest {
                let [row, column] = match &straight {
                    Some([columns, rows]) => [rows[y], columns[x]],
                    None => map.nearest(y, x),
                };
                if (0..height as i64).contains(&row) && (0..width as i64).contains(&column) {
                    let at = (row as usize * width + column as usize) * channels;
                    out.copy_from_slice(&image.pixels[at..at + channels]);
                }
                continue;
            }
            let [row, column] = map.exact(y, x);
            if (0.0..height as f64).contains(&row) && (0.0..width as f64).contains(&column) {
                let point = [row - 0.5, column - 0.5];
                for (channel, out) in out.iter_mut().enumerate() {
                    *out = between(image, channel, point, interpolation == Interpolation::Bicubic);
                }
            }
        }
    }
    Image { sides: image.sides, channels, pixels }
}

/// From places in the result to places in the image: `a · x + b · y + c` for the column and for the row.
struct Map {
    column: [f64; 3],
    row: [f64; 3],
}

impl Map {
    fn rotation(degrees: f64, [height, width]: [usize; 2]) -> Self {
        // So that a quarter of a circle is one.
        let rounded = |value: f64| (value * 1e15).round() / 1e15;
        let angle = -degrees.rem_euclid(360.0).to_radians();
        let (sin, cos) = (rounded(angle.sin()), rounded(angle.cos()));
        let (x, y) = (width as f64 / 2.0, height as f64 / 2.0);
        let column = [cos, sin, cos * -x + sin * -y + x];
        let row = [-sin, cos, -sin * -x + cos * -y + y];
        Map { column, row }
    }

    /// torchvision's `_get_inverse_affine_matrix`.
    fn affine(by: Affine, [cx, cy]: [f64; 2]) -> Self {
        let (turn, [sx, sy]) = (by.degrees.to_radians(), by.shear.map(f64::to_radians));
        let a = (turn - sy).cos() / sy.cos();
        let b = -(turn - sy).cos() * sx.tan() / sy.cos() - turn.sin();
        let c = (turn - sy).sin() / sy.cos();
        let d = -(turn - sy).sin() * sx.tan() / sy.cos() + turn.cos();
        let [x, y] = [-cx - by.translate[0], -cy - by.translate[1]];
        let line = |first: f64, second: f64, center: f64| {
            let (first, second) = (first / by.scale, second / by.scale);
            [first, second, first * x + second * y + center]
        };
        Map { column: line(d, -b, cx), row: line(-c, a, cy) }
    }

    /// True if rows come from rows and columns from columns, which Pillow looks up one by one.
    fn is_straight(&self) -> bool {
        self.column[1] == 0.0 && self.row[0] == 0.0
    }

    /// The columns (axis 0) or rows of the image that those of the result come from; negative where they come from none.
    fn straight(&self, axis: usize, len: usize) -> Vec<i64> {
        let (step, start) = if axis == 0 { (self.column[0], self.column[2]) } else { (self.row[1], self.row[2]) };
        let mut at = start + step * 0.5;
        let next = |_| {
            let place = if at < 0.0 { -1 } else { at as i64 };
            at += step;
            place
        };
        (0..len).map(next).collect()
    }

    /// The place of a pixel's middle.
    fn exact(&self, y: usize, x: usize) -> [f64; 2] {
        let (x, y) = (x as f64 + 0.5, y as f64 + 0.5);
        [self.row, self.column].map(|[a, b, c]| a * x + b * y + c)
    }

    /// The pixel in which it lies, row and column, in steps of 16 bits after the point.
    fn nearest(&self, y: usize, x: usize) -> [i64; 2] {
        let fixed = |value: f64| (value * 65_536.0 + 0.5).floor() as i64;
        [self.row, self.column].map(|[a, b, c]| {
            let start = fixed(c + a * 0.5 + b * 0.5);
            (start + fixed(a) * x as i64 + fixed(b) * y as i64) >> 16
        })
    }
}

/// A value between pixels; beyond the border there is the pixel at the border. Cut off, not rounded, as in Pillow.
fn between(image: &Image, channel: usize, [y, x]: [f64; 2], cubic: bool) -> u8 {
    let (top, left) = (y.floor(), x.floor());
    let (below, right) = (y - top, x - left);
    let at = |row: isize, column: isize| {
        let row = (top as isize + row).clamp(0, image.sides[0] as isize - 1) as usize;
        let column = (left as isize + column).clamp(0, image.sides[1] as isize - 1) as usize;
        f64::from(image.pixels[(row * image.sides[1] + column) * image.channels + channel])
    };
    let value = if cubic {
        let line = |row| curve([-1, 0, 1, 2].map(|column| at(row, column)), right);
        curve([-1, 0, 1, 2].map(line), below)
    } else {
        let line = |row| {
            let (a, b) = (at(row, 0), at(row, 1));
            a + (b - a) * right
        };
        let (a, b) = (line(0), line(1));
        a + (b - a) * below
    };
    // A negative number becomes 0, and a large one 255.
    value as u8
}

/// Cubic convolution between the second and the third of four values, with a slope of −1 as in Pillow.
fn curve([a, b, c, d]: [f64; 4], at: f64) -> f64 {
    let (first, second, third) = (c - a, 2.0 * (a - b) + c - d, b - a + d - c);
    b + at * (first + at * (second + at * third))
}

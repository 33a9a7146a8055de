use crate::case::{Case, Draw};
use runner::graph::DType;
use runner::graph::op::{AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, MaxPool2d, pool_out};

const MAX: MaxPool2d =
    MaxPool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0], dilation: [1, 1], ceil_mode: false };
const AVG: AvgPool2d =
    AvgPool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0], ceil_mode: false, count_include_pad: true };

fn max(pool: MaxPool2d, x: [usize; 4]) -> Case {
    Case::new(format!("max pool of {x:?}, {pool:?}"), pool, |d| vec![d.distinct(x).wrt()])
}

fn avg(pool: AvgPool2d, x: [usize; 4]) -> Case {
    Case::new(format!("average pool of {x:?}, {pool:?}"), pool, |d| vec![d.normal(x).wrt()])
}

/// Kernel, stride, padding and dilation of one axis, and a side that they fit.
fn drawn_axis(d: &mut Draw, most_dilation: usize, ceil: bool) -> ([usize; 4], usize) {
    loop {
        let kernel = d.between(1, 4);
        let (stride, padding) = (d.between(1, 4), d.between(0, kernel / 2));
        let (dilation, side) = (d.between(1, most_dilation), d.between(1, 9));
        // A dilated window that skips a tiny side altogether has no maximum.
        let reaches = side > dilation * (kernel - 1);
        if reaches && pool_out(side, kernel, stride, padding, dilation, ceil).is_some() {
            return ([kernel, stride, padding, dilation], side);
        }
    }
}

fn drawn(number: usize) -> [Case; 2] {
    let mut d = Draw::new(&format!("pooling {number}"));
    let ceil_mode = d.coin();
    let mut draw = |most_dilation| {
        let (rows, h) = drawn_axis(&mut d, most_dilation, ceil_mode);
        let (columns, w) = drawn_axis(&mut d, most_dilation, ceil_mode);
        let both = |i: usize| [rows[i], columns[i]];
        let x = [d.between(1, 3), h, w, d.between(1, 6)];
        ([both(0), both(1), both(2), both(3)], x, d.coin())
    };
    let ([kernel, stride, padding, dilation], x, _) = draw(2);
    let first = max(MaxPool2d { kernel, stride, padding, dilation, ceil_mode }, x);
    let ([kernel, stride, padding, _], x, count_include_pad) = draw(1);
    let mut second = avg(AvgPool2d { kernel, stride, padding, ceil_mode, count_include_pad }, x);
    second.name = format!("{} (drawn, {number})", second.name);
    [Case { name: format!("{} (drawn, {number})", first.name), ..first }, second]
}

pub fn cases() -> Vec<Case> {
    let mut list = vec![
        max(MAX, [2, 8, 6, 5]),
        max(MAX, [1, 7, 9, 17]),
        max(MaxPool2d { ceil_mode: true, ..MAX }, [1, 7, 9, 3]),
        max(MaxPool2d { kernel: [3, 3], padding: [1, 1], ..MAX }, [2, 9, 8, 4]),
        max(MaxPool2d { kernel: [3, 2], stride: [1, 1], ..MAX }, [2, 5, 6, 3]),
        max(MaxPool2d { kernel: [3, 3], dilation: [2, 2], stride: [1, 2], ..MAX }, [1, 8, 9, 2]),
        max(MaxPool2d { kernel: [2, 2], stride: [3, 3], padding: [1, 1], ceil_mode: true, ..MAX }, [1, 4, 4, 2]),
        max(MaxPool2d { kernel: [5, 3], stride: [3, 2], ceil_mode: true, ..MAX }, [2, 3, 2, 5]),
        max(MaxPool2d { ceil_mode: true, ..MAX }, [2, 1, 6, 8]),
        // Channels in whole vectors.
        max(MAX, [2, 6, 7, 8]),
        max(MaxPool2d { kernel: [3, 3], padding: [1, 1], ..MAX }, [2, 7, 6, 24]),
        max(MaxPool2d { kernel: [3, 2], dilation: [1, 2], ..MAX }, [1, 6, 7, 8]),
        // Indices that do not fit a byte.
        max(MaxPool2d { kernel: [17, 16], stride: [2, 3], ..MAX }, [1, 20, 19, 2]),
        avg(AVG, [2, 8, 6, 5]),
        avg(AVG, [1, 7, 9, 17]),
        avg(AvgPool2d { kernel: [7, 7], stride: [7, 7], ..AVG }, [2, 7, 7, 19]),
        avg(AvgPool2d { kernel: [5, 3], stride: [3, 2], padding: [1, 0], ceil_mode: true, ..AVG }, [2, 2, 2, 5]),
        avg(AVG, [2, 5, 6, 16]),
        avg(AvgPool2d { kernel: [6, 7], stride: [2, 3], padding: [3, 1], ..AVG }, [2, 9, 8, 8]),
    ];
    for count_include_pad in [false, true] {
        for ceil_mode in [false, true] {
            let pool = AvgPool2d { kernel: [3, 3], padding: [1, 1], ceil_mode, count_include_pad, ..AVG };
            list.push(avg(pool.clone(), [2, 8, 7, 3]));
            list.push(avg(AvgPool2d { kernel: [3, 2], stride: [1, 3], padding: [1, 0], ..pool }, [1, 5, 6, 4]));
        }
    }
    list.extend((0..16).flat_map(drawn));
    for (x, output) in [
        ([2, 7, 7, 5], [1, 1]),
        ([2, 5, 7, 3], [3, 3]),
        ([1, 8, 6, 4], [4, 2]),
        ([1, 2, 3, 2], [5, 7]),
        ([3, 1, 1, 18], [1, 1]),
        ([2, 7, 7, 24], [1, 1]),
        ([1, 6, 6, 264], [1, 1]),
    ] {
        let op = AdaptiveAvgPool2d { output };
        list.push(Case::new(format!("adaptive average pool of {x:?} to {output:?}"), op, |d| vec![d.normal(x).wrt()]));
    }
    for (x, output) in [
        ([2, 7, 7, 5], [1, 1]),
        ([2, 5, 7, 3], [3, 3]),
        ([1, 8, 6, 8], [4, 2]),
        ([1, 2, 3, 2], [5, 7]),
        ([1, 20, 18, 16], [1, 1]),
    ] {
        let op = AdaptiveMaxPool2d { output };
        let name = format!("adaptive max pool of {x:?} to {output:?}");
        list.push(Case::new(name, op, |d| vec![d.distinct(x).wrt()]));
    }
    let equal = Case::new("adaptive max pool of few values", AdaptiveMaxPool2d { output: [2, 3] }, |d| {
        vec![d.below(DType::F32, [2, 5, 6, 3], 2).map(|x| x - 3.0).wrt()]
    });
    list.push(equal.kinked());
    for (name, values) in [("equal", 1), ("few", 3)] {
        let pool = MaxPool2d { kernel: [3, 3], stride: [1, 1], padding: [1, 1], ..MAX };
        let case = Case::new(format!("max pool of {name} values"), pool, |d| {
            // All at most zero: padding must not win.
            vec![d.below(DType::F32, [2, 5, 6, 3], values).map(|x| x - 3.0).wrt()]
        });
        list.push(case.kinked());
    }
    list.extend(no_numbers());
    list
}

/// What is no number is the maximum of its window, and the first pixel of a window is that of one that has nothing above −∞.
fn no_numbers() -> Vec<Case> {
    let pool = MaxPool2d { kernel: [3, 3], stride: [1, 1], padding: [1, 1], ..MAX };
    let with = |d: &mut Draw, x: [usize; 4], every: usize, what: f64| {
        let mut operand = d.distinct(x);
        operand.data.iter_mut().step_by(every).for_each(|x| *x = what);
        vec![operand.wrt()]
    };
    let mut list = Vec::new();
    for (name, every, what) in [("NaN in places", 11, f64::NAN), ("−∞ alone", 1, f64::NEG_INFINITY)] {
        for channels in [3, 8] {
            let name = format!("of {channels} channels, {name}");
            let x = [2, 5, 6, channels];
            list.push(Case::new(format!("max pool {name}"), pool.clone(), |d| with(d, x, every, what)));
            list.push(Case::new(format!("max pool in tiles {name}"), MAX, |d| with(d, x, every, what)));
            let op = AdaptiveMaxPool2d { output: [2, 3] };
            list.push(Case::new(format!("adaptive max pool {name}"), op, |d| with(d, x, every, what)));
        }
    }
    list.into_iter().map(Case::kinked).collect()
}

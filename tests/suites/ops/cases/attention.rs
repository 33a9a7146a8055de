use crate::case::{Case, Draw, Operand};
use runner::graph::op::{Attention, AttentionDropout};
use runner::graph::{DType, Input};

/// Samples, positions, heads, floats of a head.
type Sizes = [usize; 4];

fn case(name: &str, sizes: Sizes, causal: bool, draw: impl FnOnce(&mut Draw, [usize; 3]) -> Operand) -> Case {
    let [n, l, heads, width] = sizes;
    let name = format!("{name} of {n} × {l} positions, {heads} heads of {width}, causal: {causal}");
    Case::new(name, Attention { heads, causal, bias: false, lengths: false, dropout: None }, |d| {
        vec![draw(d, [n, l, 3 * heads * width]).wrt()]
    })
}

/// Normal values, and these queries and keys.
fn queries_and_keys(d: &mut Draw, shape: [usize; 3], draw: impl Fn(&mut Draw) -> f64) -> Operand {
    let mut packed = d.normal(shape);
    for row in packed.data.chunks_mut(shape[2]) {
        row[..shape[2] / 3 * 2].fill_with(|| draw(d));
    }
    packed
}

/// With something added to the scores, of which sample `n` has that of `n mod biases`.
fn biased(biases: usize, [n, l, heads, width]: Sizes, causal: bool, dropout: Option<AttentionDropout>) -> Case {
    let name = format!(
        "attention of {n} × {l} positions, {heads} heads of {width}, causal: {causal}, with {biases} biases, dropout: {}",
        dropout.is_some()
    );
    Case::new(name, Attention { heads, causal, bias: true, lengths: false, dropout }, |d| {
        let mut operands = vec![d.normal([n, l, 3 * heads * width]).wrt(), d.normal([biases, heads, l, l]).wrt()];
        if dropout.is_some() {
            operands.push(d.below(DType::U32, [4], 1 << 20).input(Input::Random));
        }
        operands
    })
}

/// The mask of shifted windows: what is 100 less has no weight, and its bias no gradient.
fn masked() -> Case {
    let (heads, bias) = (2, true);
    Case::new(
        "attention with a mask of −100",
        Attention { heads, causal: false, bias, lengths: false, dropout: None },
        |d| {
            let mut mask = d.normal([2, heads, 9, 9]);
            for (at, x) in mask.data.iter_mut().enumerate() {
                let (i, j) = (at / 9 % 9, at % 9);
                *x = if (i < 4) == (j < 4) { *x } else { -100.0 };
            }
            vec![d.normal([4, 9, 3 * heads * 4]).wrt(), mask.wrt()]
        },
    )
}

/// Samples of these lengths, with as many biases, if any.
fn of_lengths(lengths: &[i32], [l, heads, width]: [usize; 3], causal: bool, biases: usize, p: Option<f32>) -> Case {
    let n = lengths.len();
    let name = format!(
        "attention of lengths {lengths:?} of {l} positions, {heads} heads of {width}, causal: {causal}, {biases} biases, dropout: {p:?}"
    );
    let dropout = p.map(|p| AttentionDropout { p, stream: 1 });
    Case::new(name, Attention { heads, causal, bias: biases > 0, lengths: true, dropout }, |d| {
        let mut operands = vec![d.normal([n, l, 3 * heads * width]).wrt()];
        operands.extend((biases > 0).then(|| d.normal([biases, heads, l, l]).wrt()));
        let data = lengths.iter().map(|length| f64::from(*length)).collect();
        operands.push(Operand::new(DType::I32, [n], data).input(Input::Field(1)));
        operands.extend(p.map(|_| d.below(DType::U32, [4], 1 << 20).input(Input::Random)));
        operands
    })
}

/// Samples with padding: of any length, also such as no sample has, around the sides of tiles and of blocks.
fn lengths() -> Vec<Case> {
    let mut list = Vec::new();
    for causal in [false, true] {
        list.push(of_lengths(&[3, 0, 7, 1], [7, 2, 5], causal, 0, None));
        list.push(of_lengths(&[9, -1, i32::MAX, i32::MIN], [5, 1, 8], causal, 0, None));
        list.push(of_lengths(&[5, 2, 1, 4], [5, 2, 4], causal, 2, Some(0.3)));
        list.push(of_lengths(&[64, 65, 3, 70], [70, 1, 16], causal, 0, None).kinked());
        list.push(of_lengths(&[130, 17, 128], [130, 2, 64], causal, 0, Some(0.2)).kinked());
        list.push(of_lengths(&[70, 33], [140, 1, 32], causal, 1, None).kinked());
        list.push(of_lengths(&[197, 100, 0], [200, 1, 96], causal, 0, None).kinked());
        list.push(of_lengths(&[90, 150], [150, 1, 128], causal, 0, None).kinked());
        list.push(of_lengths(&[531, 300, 513], [600, 1, 8], causal, 0, None).kinked());
    }
    list
}

pub fn cases() -> Vec<Case> {
    let sizes: [Sizes; 12] = [
        [1, 1, 1, 1],
        [3, 1, 2, 5],
        [2, 2, 1, 3],
        [2, 7, 3, 1],
        [1, 7, 2, 16],
        [1, 33, 1, 5],
        [2, 33, 2, 32],
        [1, 65, 3, 16],
        [1, 65, 1, 64],
        [1, 33, 2, 80],
        [1, 130, 1, 32],
        [1, 64, 1, 33],
    ];
    let mut list = vec![masked()];
    list.extend(lengths());
    let dropout = Some(AttentionDropout { p: 0.3, stream: 2 });
    for (biases, sizes, causal, dropout) in [
        (1, [1, 1, 1, 1], false, None),
        (1, [5, 7, 2, 3], false, None),
        (3, [6, 9, 1, 5], false, dropout),
        (2, [4, 17, 2, 4], true, None),
        (1, [70, 4, 1, 2], false, None),
    ] {
        list.push(biased(biases, sizes, causal, dropout));
    }
    // More positions than a block of a GPU has, and than one of a CPU.
    list.push(biased(2, [2, 70, 1, 3], true, None).kinked());
    list.push(biased(1, [2, 530, 1, 8], false, dropout).kinked());
    list.push(biased(2, [4, 49, 2, 32], false, None).kinked());
    list.push(biased(1, [2, 70, 1, 64], true, dropout).kinked());
    list.push(biased(1, [1, 67, 1, 128], false, dropout).kinked());
    for causal in [false, true] {
        for size in sizes {
            list.push(case("attention", size, causal, |d, shape| d.normal(shape)));
        }
        // On tensor cores: heads of every class of widths, with and without columns that are missing, and positions around
        // the sides of tiles.
        for size in [
            [2, 1, 2, 64],
            [1, 15, 1, 16],
            [1, 16, 1, 96],
            [1, 17, 2, 48],
            [1, 65, 1, 128],
            [1, 70, 1, 112],
            [1, 197, 1, 64],
        ] {
            list.push(case("attention", size, causal, |d, shape| d.normal(shape)).kinked());
        }
        // More positions than a block has queries or keys, on any device and with any vectors.
        for size in [[1, 531, 1, 8], [1, 250, 1, 2]] {
            list.push(case("attention", size, causal, |d, shape| d.normal(shape)).kinked());
        }
        for (p, stream, [n, l, heads, width]) in [
            (0.1, 0, [2, 7, 2, 3]),
            (0.5, 7, [1, 65, 2, 8]),
            (0.9, 300, [2, 130, 1, 4]),
            (0.2, 1, [1, 531, 1, 8]),
            (0.4, 3, [1, 101, 1, 96]),
            (0.3, 2, [1, 150, 2, 40]),
        ] {
            let name =
                format!("attention of {n} × {l} positions, {heads} heads of {width}, causal: {causal}, dropout {p}");
            let op =
                Attention { heads, causal, bias: false, lengths: false, dropout: Some(AttentionDropout { p, stream }) };
            let case = Case::new(name, op, |d| {
                let key = d.below(DType::U32, [4], 1 << 20).input(Input::Random);
                vec![d.normal([n, l, 3 * heads * width]).wrt(), key]
            });
            list.push(if l > 100 { case.kinked() } else { case });
        }
        // Scores of thousands, all exact: eˣ of most is far out of range, and that of the largest is 1.
        for size in [[2, 9, 2, 4], [1, 65, 1, 16]] {
            let large = |d: &mut Draw, shape| queries_and_keys(d, shape, |d| d.between(0, 64) as f64 - 32.0);
            list.push(case("large scores", size, causal, large).kinked());
        }
        // Equal scores of any size: the weights are those of a mean.
        list.push(case("equal scores", [1, 20, 1, 4], causal, |d, shape| queries_and_keys(d, shape, |_| 11.0)));
    }
    list
}

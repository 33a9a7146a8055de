use crate::case::{Case, Draw, Operand};
use runner::graph::op::{Attention, AttentionDropout};
use runner::graph::{DType, Input};

/// Samples, positions, heads, floats of a head.
type Sizes = [usize; 4];

fn case(name: &str, sizes: Sizes, causal: bool, draw: impl FnOnce(&mut Draw, [usize; 3]) -> Operand) -> Case {
    let [n, l, heads, width] = sizes;
    let name = format!("{name} of {n} × {l} positions, {heads} heads of {width}, causal: {causal}");
    Case::new(name, Attention { heads, causal, ..Attention::default() }, |d| {
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
    Case::new(name, Attention { heads, causal, bias: true, dropout, ..Attention::default() }, |d| {
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
    Case::new("attention with a mask of −100", Attention { heads, bias, ..Attention::default() }, |d| {
        let mut mask = d.normal([2, heads, 9, 9]);
        for (at, x) in mask.data.iter_mut().enumerate() {
            let (i, j) = (at / 9 % 9, at % 9);
            *x = if (i < 4) == (j < 4) { *x } else { -100.0 };
        }
        vec![d.normal([4, 9, 3 * heads * 4]).wrt(), mask.wrt()]
    })
}

/// Samples of these lengths, with as many biases, if any.
fn of_lengths(lengths: &[i32], [l, heads, width]: [usize; 3], causal: bool, biases: usize, p: Option<f32>) -> Case {
    let n = lengths.len();
    let name = format!(
        "attention of lengths {lengths:?} of {l} positions, {heads} heads of {width}, causal: {causal}, {biases} biases, dropout: {p:?}"
    );
    let dropout = p.map(|p| AttentionDropout { p, stream: 1 });
    Case::new(
        name,
        Attention { heads, causal, bias: biases > 0, lengths: true, dropout, ..Attention::default() },
        |d| {
            let mut operands = vec![d.normal([n, l, 3 * heads * width]).wrt()];
            operands.extend((biases > 0).then(|| d.normal([biases, heads, l, l]).wrt()));
            operands.extend(of_samples(lengths));
            operands.extend(p.map(|_| d.below(DType::U32, [4], 1 << 20).input(Input::Random)));
            operands
        },
    )
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

/// How positions of one sequence see each other.
#[derive(Clone, Copy)]
struct Far {
    causal: bool,
    window: Option<usize>,
    alibi: bool,
}

/// Positions that see each other as `far` says, of samples of these lengths, if they have any.
fn far([n, l, heads, width]: Sizes, far: Far, lengths: &[i32], p: Option<f32>) -> Case {
    let Far { causal, window, alibi } = far;
    let name = format!(
        "attention of {n} × {l} positions of lengths {lengths:?}, {heads} heads of {width}, causal: {causal}, window {window:?}, alibi: {alibi}, dropout: {p:?}"
    );
    let dropout = p.map(|p| AttentionDropout { p, stream: 3 });
    let op = Attention { heads, causal, window, alibi, lengths: !lengths.is_empty(), dropout, ..Attention::default() };
    Case::new(name, op, |d| {
        let mut operands = vec![d.normal([n, l, 3 * heads * width]).wrt()];
        operands.extend(of_samples(lengths));
        operands.extend(p.map(|_| d.below(DType::U32, [4], 1 << 20).input(Input::Random)));
        operands
    })
}

/// The operand with the lengths of samples, if they have any.
fn of_samples(lengths: &[i32]) -> Option<Operand> {
    let data: Vec<f64> = lengths.iter().map(|length| f64::from(*length)).collect();
    (!data.is_empty()).then(|| Operand::new(DType::I32, [data.len()], data).input(Input::Field(1)))
}

/// Queries of one sequence, and keys and values of another, of these lengths, if they have any.
fn between([n, queries, keys, heads, width]: [usize; 5], lengths: &[i32], p: Option<f32>) -> Case {
    let name = format!(
        "attention of {n} × {queries} queries to {keys} keys of lengths {lengths:?}, {heads} heads of {width}, dropout: {p:?}"
    );
    let dropout = p.map(|p| AttentionDropout { p, stream: 4 });
    let op = Attention { heads, between: true, lengths: !lengths.is_empty(), dropout, ..Attention::default() };
    Case::new(name, op, |d| {
        let e = heads * width;
        let mut operands = vec![d.normal([n, queries, e]).wrt(), d.normal([n, keys, 2 * e]).wrt()];
        operands.extend(of_samples(lengths));
        operands.extend(p.map(|_| d.below(DType::U32, [4], 1 << 20).input(Input::Random)));
        operands
    })
}

/// Windows of every width against lengths and blocks of every side, and ALiBi.
fn distances() -> Vec<Case> {
    let mut list = Vec::new();
    for causal in [false, true] {
        for (size, window) in [
            ([1, 1, 1, 1], 1),
            ([2, 7, 2, 3], 1),
            ([2, 7, 2, 3], 3),
            ([1, 9, 1, 8], 9),
            ([1, 9, 1, 8], 1000),
            ([1, 33, 2, 16], 8),
            ([1, 65, 1, 64], 20),
        ] {
            list.push(far(size, Far { causal, window: Some(window), alibi: false }, &[], None));
        }
        // Of several blocks, with such as no query of a block sees.
        for (size, window) in [
            ([1, 130, 1, 32], 17),
            ([1, 200, 2, 64], 64),
            ([1, 331, 1, 8], 1),
            ([1, 600, 1, 16], 100),
            ([1, 700, 1, 8], 129),
            ([1, 300, 1, 128], 70),
            ([1, 260, 1, 96], 33),
            ([1, 1100, 1, 4], 550),
        ] {
            list.push(far(size, Far { causal, window: Some(window), alibi: false }, &[], None).kinked());
        }
        let near = Far { causal, window: Some(5), alibi: true };
        list.push(far([3, 9, 2, 4], near, &[9, 2, 0], None));
        list.push(far([2, 140, 2, 32], near, &[131, 64], Some(0.3)).kinked());
        list.push(far([2, 300, 1, 16], Far { window: Some(90), ..near }, &[300, 170], Some(0.2)).kinked());
        for heads in [1, 3, 4, 6] {
            list.push(far([2, 6, heads, 2], Far { causal, window: None, alibi: true }, &[], None));
        }
        list.push(far([2, 70, 3, 40], Far { causal, window: None, alibi: true }, &[70, 33], Some(0.1)).kinked());
        list.push(far([1, 560, 2, 64], Far { causal, window: None, alibi: true }, &[], None).kinked());
    }
    list
}

/// Fewer and more queries than keys, around the sides of tiles and of blocks.
fn two_sequences() -> Vec<Case> {
    let mut list = vec![
        between([1, 1, 1, 1, 1], &[], None),
        between([2, 3, 7, 2, 3], &[], None),
        between([2, 7, 3, 1, 5], &[], Some(0.3)),
        between([3, 5, 6, 2, 4], &[6, 0, 2], None),
        between([4, 2, 5, 1, 8], &[9, -1, i32::MAX, i32::MIN], Some(0.5)),
        between([1, 33, 20, 2, 16], &[], None),
    ];
    let wide = [
        between([1, 70, 130, 2, 64], &[], None),
        between([1, 130, 70, 1, 32], &[], Some(0.2)),
        between([2, 97, 66, 1, 96], &[65, 3], None),
        between([2, 17, 150, 1, 128], &[150, 90], Some(0.4)),
        between([1, 530, 90, 1, 8], &[], None),
        between([2, 90, 560, 1, 16], &[530, 0], Some(0.3)),
        between([1, 300, 600, 1, 40], &[], None),
        between([1, 80, 200, 1, 20], &[], None),
    ];
    list.extend(wide.map(Case::kinked));
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
    list.extend(distances());
    list.extend(two_sequences());
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
            let op = Attention { heads, causal, dropout: Some(AttentionDropout { p, stream }), ..Attention::default() };
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

//! The list of cases, a file for each family of operations.

mod adafactor;
mod attention;
mod cached_attention;
mod chain;
mod conv;
mod conv_pool;
mod depthwise;
mod elementwise;
mod embedding;
mod half;
mod input;
mod linear;
mod long;
mod loss;
mod loss_weights;
mod muon;
mod norm;
mod optim;
mod pool;
mod recurrent;
mod residual;
mod resize;
mod rotary;
mod shape;
mod shards;
mod softmax;
mod sync_batch_norm;
mod tiles;

use crate::case::Case;
use runner::graph::DType;
use runner::graph::op::Activation;
use runner::random::hash_name;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, OnceLock};

/// Every activation, with slopes and scales on both sides of zero.
pub const ACTIVATIONS: [Activation; 26] = [
    Activation::Relu,
    Activation::Relu6,
    Activation::LeakyRelu { slope: 0.01 },
    Activation::LeakyRelu { slope: -0.2 },
    Activation::Elu { alpha: 1.3 },
    Activation::Elu { alpha: -0.7 },
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Tanh,
    Activation::Sigmoid,
    Activation::Sin,
    Activation::Cos,
    Activation::Hardsigmoid,
    Activation::Hardswish,
    Activation::Mish,
    Activation::Softplus { beta: 1.0, threshold: 20.0 },
    Activation::Softplus { beta: 1.7, threshold: 2.0 },
    Activation::Selu,
    Activation::Celu { alpha: 0.6 },
    Activation::Softsign,
    Activation::LogSigmoid,
    Activation::Tanhshrink,
    Activation::Hardtanh { low: -1.3, high: 0.8 },
    Activation::Hardshrink { lambda: 0.6 },
    Activation::Softshrink { lambda: 0.4 },
];

/// The name of a family, and its cases on 32-bit floats.
type Family = (&'static str, fn() -> Vec<Case>);

/// The families: a file each.
const FAMILIES: [Family; 24] = [
    ("attention", attention::cases),
    ("cached_attention", cached_attention::cases),
    ("chain", chain::cases),
    ("conv", conv::cases),
    ("conv_pool", conv_pool::cases),
    ("depthwise", depthwise::cases),
    ("elementwise", elementwise::cases),
    ("embedding", embedding::cases),
    ("input", input::cases),
    ("linear", linear::cases),
    ("long", long::cases),
    ("loss", loss::cases),
    ("loss_weights", loss_weights::cases),
    ("norm", norm::cases),
    ("optim", optim::cases),
    ("pool", pool::cases),
    ("recurrent", recurrent::cases),
    ("resize", resize::cases),
    ("rotary", rotary::cases),
    ("shape", shape::cases),
    ("shards", shards::cases),
    ("softmax", softmax::cases),
    ("sync_batch_norm", sync_batch_norm::cases),
    ("tiles", tiles::cases),
];

/// The names of the families.
pub fn families() -> Vec<&'static str> {
    FAMILIES.map(|(name, _)| name).into()
}

/// The cases of a family on values of type `dtype`, with those that come of them: made once for all tests of this binary, as
/// drawing their operands takes longer than many a test.
pub fn family(name: &str, dtype: DType) -> &'static [Case] {
    type Made = &'static OnceLock<Vec<Case>>;
    static MADE: LazyLock<Mutex<HashMap<(usize, DType), Made>>> = LazyLock::new(Mutex::default);
    let number = FAMILIES.iter().position(|(n, _)| *n == name).unwrap_or_else(|| panic!("no family `{name}`"));
    let made = *MADE.lock().unwrap().entry((number, dtype)).or_insert_with(|| Box::leak(Box::default()));
    // The map is free meanwhile. A thread that wants the same case waits.
    made.get_or_init(|| make(FAMILIES[number], dtype))
}

fn make((name, cases): Family, dtype: DType) -> Vec<Case> {
    if dtype == DType::F32 {
        let mut list = cases();
        list.extend(residual::cases(&list));
        return list;
    }
    let mut list = half::cases(family(name, DType::F32), dtype);
    if name == "elementwise" {
        list.extend(half::casts(dtype));
    }
    if name == "chain" {
        list.extend(chain::mixed(dtype));
    }
    if name == "norm" {
        list.extend(norm::with_casts(dtype));
    }
    list
}

/// All cases on values of type `dtype`.
pub fn on(dtype: DType) -> Vec<&'static Case> {
    families().into_iter().flat_map(|name| family(name, dtype)).collect()
}

/// Whether `RUNNER_TEST_CASES` asks for the case of this name: it has one of the words there, between which `|` stands. If it is not set,
/// all are asked for.
pub fn is_asked_for(name: &str) -> bool {
    static WORDS: LazyLock<String> = LazyLock::new(|| std::env::var("RUNNER_TEST_CASES").unwrap_or_default());
    WORDS.split('|').any(|word| name.contains(word))
}

/// Whether the case of this name is of the part that `RUNNER_TEST_PART` names: `0/2` and `1/2` are the halves. If it is not set, all are.
/// Cases that take long where something stands in for a machine are run by halves in `.ci/run`, another one from commit to commit.
pub fn is_of_part(name: &str) -> bool {
    static PART: LazyLock<Option<(u64, u64)>> = LazyLock::new(|| {
        let text = std::env::var("RUNNER_TEST_PART").ok()?;
        let numbers = text.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
        let (part, parts) = numbers.expect("RUNNER_TEST_PART is two numbers, such as 0/2");
        assert!(part < parts, "RUNNER_TEST_PART={text}: there is no such part");
        Some((part, parts))
    });
    PART.is_none_or(|(part, parts)| (hash_name(name) >> 32) % parts == part)
}

/// All cases on 32-bit floats.
pub fn all() -> Vec<&'static Case> {
    on(DType::F32)
}

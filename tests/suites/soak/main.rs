//! Whole experiments at random, trained on every level of instructions, on several threads and without passes: the same
//! bits on any number of threads, and else the same but for what rounding makes of it.
//!
//! `RUNNER_SOAK=MINUTES` goes on with new seeds for so long, `RUNNER_SOAK=all` takes all of those that an ordinary run takes a part of,
//! and `RUNNER_SOAK_SEED=SEED` looks at one.

mod compare;
mod experiments;
mod layers;
mod minimise;
mod rearranged;
mod trained;

use compare::{alike, same_bits};
use experiments::experiment;
use runner::backend::cpu::simd::SimdLevel;
use runner::config;
use runner::random::{Purpose, Stream};
use runner::train::setup::input;
use runner::train::setup::programs::pass_names;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use trained::{How, Trained, train};

/// Experiments in which everything occurs.
const EXPERIMENTS: u64 = 300;

/// How many of them the ordinary test run trains; with `RUNNER_SOAK=all` it trains all.
const TRAINED: u64 = 60;

/// Runs with disturbed parameters, and how many more before something is called wrong: a unit that is on the edge may go
/// either way in one of them and not in another.
const NOISY: u64 = 2;
const MORE_NOISY: u64 = 24;

/// What a configuration came to.
#[derive(Debug)]
enum Wrong {
    /// It is not one: nothing that the program did wrong, while a configuration is being made smaller.
    Refused(String),
    /// Two runs of it that do not agree, or something worse.
    Differs(String),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Refused(why) => write!(f, "it is refused: {why}"),
            Wrong::Differs(why) => f.write_str(why),
        }
    }
}

/// Trains `text` in every way; the largest share of what is allowed, and whether it stayed finite.
fn check(text: &str, seed: u64) -> Result<(f64, bool), Wrong> {
    let caught = catch_unwind(AssertUnwindSafe(|| compared(text, seed)));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Wrong::Differs(format!("panics: {}", text.unwrap_or_default())))
    })
}

fn compared(text: &str, seed: u64) -> Result<(f64, bool), Wrong> {
    let loaded = config::load_str("soak", text, &[]).map_err(|e| Wrong::Refused(e.to_string()))?;
    let experiment = &loaded.experiment;
    let samples = input::load(experiment, &mut |_| {}).map_err(|e| Wrong::Refused(format!("{e:#}")))?;
    let run = |how: &How| train(experiment, &samples, how).map_err(Wrong::Refused);
    let levels: Vec<SimdLevel> = SimdLevel::supported().collect();
    let best = SimdLevel::detect();
    let plain = How { level: best, threads: 1, without: Vec::new(), noise: None };
    let one = run(&plain)?;

    for threads in [2, 5] {
        let other = run(&How { threads, ..plain.clone() })?;
        same_bits(&one, &other).map_err(|e| Wrong::Differs(format!("on {threads} threads: {e}")))?;
    }

    let noise = |from: u64, to: u64| -> Result<Vec<Trained>, Wrong> {
        (from..to).map(|n| run(&How { noise: Some(seed ^ n << 32), ..plain.clone() })).collect()
    };
    let mut noisy = noise(0, NOISY)?;
    let mut draw = Stream::new(seed, Purpose::Synthetic, 0, 1);
    let passes = pass_names(true);
    let pass = passes[draw.below(passes.len() as u32) as usize];
    let mut others: Vec<How> =
        levels.iter().filter(|l| **l != best).map(|level| How { level: *level, ..plain.clone() }).collect();
    others.push(How { without: vec![pass], ..plain.clone() });
    others.push(How { without: passes, ..plain.clone() });
    let mut most: f64 = 0.0;
    for how in others {
        let other = run(&how)?;
        let mut share = alike(&one, &other, &noisy);
        if share.is_err() && noisy.len() < MORE_NOISY as usize {
            noisy.extend(noise(NOISY, MORE_NOISY)?);
            share = alike(&one, &other, &noisy);
        }
        let place = format!("{} against {best}, without {:?}", how.level, how.without);
        most = most.max(share.map_err(|e| Wrong::Differs(format!("{place}: {e}")))?);
    }
    Ok((most, one.losses.iter().all(|l| l.is_finite())))
}

/// Checks the experiment of `seed`, and reports one that fails.
fn look_at(seed: u64) -> (f64, bool) {
    let text = experiment(seed);
    let wrong = match check(&text, seed) {
        Ok(fine) => return fine,
        Err(wrong) => wrong,
    };
    let least = match &wrong {
        Wrong::Refused(_) => text,
        Wrong::Differs(_) => {
            minimise::minimise(&text, &|smaller| matches!(check(smaller, seed), Err(Wrong::Differs(_))))
        }
    };
    let now = match check(&least, seed) {
        Ok(_) => "nothing, now".to_owned(),
        Err(wrong) => wrong.to_string(),
    };
    panic!(
        "seed {seed} (`RUNNER_SOAK_SEED={seed} cargo test --test soak`): {wrong}\nthe least that fails, with {now}:\n{least}"
    );
}

#[test]
fn experiments_come_to_the_same_on_every_level_and_any_number_of_threads() {
    if let Ok(seed) = std::env::var("RUNNER_SOAK_SEED") {
        let seed = seed.parse().expect("RUNNER_SOAK_SEED is a number");
        println!("{}\n{:?}", experiment(seed), look_at(seed));
        return;
    }
    let asked = std::env::var("RUNNER_SOAK").ok();
    let all = asked.as_deref() == Some("all");
    let minutes = asked.filter(|_| !all).map(|m| m.parse::<f64>().expect("RUNNER_SOAK is a number of minutes"));
    let (mut most, mut not_finite, mut done) = ((0.0, 0), 0, 0);
    // New seeds for every soak; the same ones in every ordinary run.
    let (first, end) = match minutes {
        Some(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            (now.as_secs() << 20, None)
        }
        None => (0, Some(if all { EXPERIMENTS } else { TRAINED })),
    };
    let until = Instant::now() + Duration::from_secs_f64(60.0 * minutes.unwrap_or(0.0));
    while end.map_or(Instant::now() < until, |end| done < end) {
        let seed = first + done;
        let (share, finite) = look_at(seed);
        if share > most.0 {
            most = (share, seed);
        }
        not_finite += u64::from(!finite);
        done += 1;
        if minutes.is_some() && done.is_multiple_of(500) {
            eprintln!("{done} experiments");
        }
    }
    println!(
        "{done} experiments from seed {first}; the largest difference is {:.0} % of what is allowed (seed {}); {not_finite} were not finite",
        100.0 * most.0,
        most.1
    );
    assert!(not_finite * 20 <= done, "{not_finite} of {done} experiments prove little: their losses are not finite");
}

/// The generator leaves nothing out.
#[test]
fn everything_occurs() {
    let all: String = (0..EXPERIMENTS).map(experiment).collect();
    let words = [
        "linear",
        "conv2d",
        "multihead_attention",
        "transformer_encoder_layer",
        "transformer_decoder_layer",
        "shifted_window_attention",
        "lstm",
        "gru",
        "rnn",
        "merge_patches",
        "batch_norm1d",
        "batch_norm2d",
        "group_norm",
        "layer_norm",
        "max_pool2d",
        "avg_pool2d",
        "adaptive_avg_pool2d",
        "flatten",
        "dropout",
        "identity",
        "relu",
        "relu6",
        "leaky_relu",
        "elu",
        "gelu",
        "silu",
        "tanh",
        "sigmoid",
        "hardsigmoid",
        "hardswish",
        "mish",
        "softplus",
        "selu",
        "celu",
        "softsign",
        "log_sigmoid",
        "sin",
        "cos",
        "tanhshrink",
        "hardtanh",
        "hardshrink",
        "softshrink",
        "softmax",
        "prelu",
        "glu",
        "swiglu",
        "geglu",
        "rms_norm",
        "instance_norm2d",
        "log_softmax",
        "local_response_norm",
        "conv_transpose2d",
        "conv_transpose1d",
        "upsample",
        "adaptive_max_pool2d",
        "sinusoidal",
        "conv1d",
        "max_pool1d",
        "avg_pool1d",
        "adaptive_avg_pool1d",
        "class_token",
        "position_embedding",
        "layer_scale",
        "stochastic_depth",
        "unflatten",
        "reshape",
        "permute",
        "transpose",
        "chunk",
        "slice",
        "select",
        "mean",
        "sum",
        "roll",
        "channel_shuffle",
        "pixel_shuffle",
        "pixel_unshuffle",
        "zero_pad2d",
        "reflection_pad2d",
        "replication_pad2d",
        "add",
        "multiply",
        "concat",
        "dot_interaction",
        "ensemble_affine",
        "ensemble_linear",
        "ensemble_mean",
        "random_signs",
        "residual",
        "gate",
        "branches",
        "if_same_shape",
        "in_channels",
        "same",
        "cumulative",
        "sgd",
        "adam",
        "adamw",
        "rmsprop",
        "nadam",
        "radam",
        "adagrad",
        "adadelta",
        "adamax",
        "lamb",
        "adafactor",
        "adamw_schedule_free",
        "constant",
        "step",
        "cosine",
        "multi_step",
        "exponential",
        "polynomial",
        "cosine_restarts",
        "one_cycle",
        "plateau",
        "sequential",
        "cross_entropy",
        "nll",
        "focal",
        "mse",
        "bce_with_logits",
        "digits",
        "synthetic",
        "random_crop",
        "normalize",
    ];
    for word in words {
        assert!(all.contains(&format!("\"{word}\"")), "`{word}` does not occur");
    }
    for key in [
        "num_kv_heads =",
        "projection =",
        "block =",
        "repeat =",
        "from =",
        "groups = [",
        "freeze =",
        "ema =",
        "swa =",
        "accumulate =",
        "shards =",
        "sync_batch_norm =",
        "steps =",
        "eval_every_steps =",
        "tensorboard =",
        "clip_grad_norm =",
        "clip_grad_value =",
        "clip_grad_adaptive =",
        "drop_last =",
        "validation_split =",
        "label_smoothing =",
        "pos_weight =",
        "figures =",
        "nesterov",
        "amsgrad",
        "centered",
        "dampening",
        "warmup_steps",
        "warmup_epochs",
        "milestones",
        "min_lr",
        "is_causal = true",
        "dilation = 2",
        "count_include_pad = false",
        "momentum =",
    ] {
        assert!(all.contains(key), "`{key}` does not occur");
    }
}

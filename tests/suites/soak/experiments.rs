//! Whole experiments at random: every one fits, is small, and trains in a few steps.

use crate::layers::{Flow, Layers};

const OPTIMIZERS: [&str; 20] = [
    "type = \"sgd\"\nlr = 0.02",
    "type = \"sgd\"\nlr = 0.02\nmomentum = 0.9",
    "type = \"sgd\"\nlr = 0.01\nmomentum = 0.8\nnesterov = true\nweight_decay = 1e-3",
    "type = \"sgd\"\nlr = 0.03\nmomentum = 0.5\ndampening = 0.3",
    "type = \"adam\"\nlr = 1e-3",
    "type = \"adam\"\nlr = 2e-3\nbetas = [0.8, 0.95]\neps = 1e-6\nweight_decay = 1e-2",
    "type = \"adam\"\nlr = 1e-3\namsgrad = true",
    "type = \"adamw\"\nlr = 1e-3\nweight_decay = 0.1",
    "type = \"adamw\"\nlr = 1e-3\namsgrad = true",
    "type = \"rmsprop\"\nlr = 1e-3",
    "type = \"rmsprop\"\nlr = 1e-3\nmomentum = 0.5\ncentered = true",
    "type = \"rmsprop\"\nlr = 2e-3\nalpha = 0.9\neps = 1e-5\nweight_decay = 1e-3",
    "type = \"nadam\"\nlr = 1e-3",
    "type = \"radam\"\nlr = 1e-3\nbetas = [0.9, 0.8]\nweight_decay = 1e-2",
    "type = \"adagrad\"\nlr = 3e-3\neps = 1e-5",
    "type = \"adadelta\"\nlr = 0.5",
    "type = \"adamax\"\nlr = 1e-3\neps = 1e-5",
    "type = \"lamb\"\nlr = 3e-3\neps = 1e-5",
    "type = \"adafactor\"\nlr = 3e-3\neps = [1e-5, 1e-3]",
    "type = \"adamw_schedule_free\"\nlr = 1e-3\neps = 1e-5\nwarmup_steps = 2\nweight_decay = 0.05",
    // Not Lion: its steps go by signs, and those of gradients near zero by rounding. Nor LARS and Muon: their steps are as long where
    // a tensor's gradient is nothing but rounding.
];

/// Everything that the learning rate may do.
const SCHEDULES: [&str; 16] = [
    "",
    "",
    "[schedule]\ntype = \"constant\"\nwarmup_steps = 3\n",
    "[schedule]\ntype = \"constant\"\nwarmup_epochs = 1\nwarmup_start_factor = 0.2\n",
    "[schedule]\ntype = \"step\"\nstep_epochs = 1\ngamma = 0.5\n",
    "[schedule]\ntype = \"step\"\nmilestones = [1]\nwarmup_steps = 2\n",
    "[schedule]\ntype = \"cosine\"\n",
    "[schedule]\ntype = \"cosine\"\nmin_lr = 1e-4\nepochs = 1\n",
    "[schedule]\ntype = \"multi_step\"\nmilestones = [2, 3]\nby = \"step\"\n",
    "[schedule]\ntype = \"exponential\"\ngamma = 0.9\nby = \"step\"\n",
    "[schedule]\ntype = \"linear\"\nend_factor = 0.1\n",
    "[schedule]\ntype = \"polynomial\"\npower = 2\nwarmup_steps = 2\n",
    "[schedule]\ntype = \"cosine_restarts\"\nt_0 = 2\nmin_lr = 1e-4\nby = \"step\"\n",
    "[schedule]\ntype = \"one_cycle\"\n",
    "[schedule]\ntype = \"plateau\"\npatience = 0\n",
    "[schedule]\ntype = \"sequential\"\nmilestones = [1]\nschedules = [\"constant\", { type = \"exponential\", gamma = 0.5, by = \"step\" }]\n",
];

/// Samples, validation samples, and sizes of batches for both; no last batch is of one, which batch norm refuses.
const SIZES: [(usize, usize, usize, usize); 7] =
    [(10, 6, 4, 4), (6, 5, 6, 3), (11, 7, 3, 5), (14, 3, 5, 5), (8, 8, 8, 8), (17, 2, 6, 7), (9, 6, 3, 2)];

/// The configuration of `seed`, as TOML.
pub fn experiment(seed: u64) -> String {
    let mut make = Layers::new(seed);
    let values = make.one_in(4);
    let (data, flow) = data(&mut make, values);
    let results = if values { 1 + make.below(4) } else { [3, 10][usize::from(data.contains("digits"))] };
    let mut layers = make.net(flow, results);

    let smoothing = if values { "" } else { make.of(&["", "label_smoothing = 0.1\n"]) };
    let loss = loss(seed, values, data.contains("mixup") || data.contains("cutmix"), results, smoothing);
    if loss.contains("\"nll\"") {
        // Of log-probabilities, or the terms of the loss cancel each other, and what is left of them is rounding.
        // The mean over members ends a model.
        let end = layers.len() - usize::from(layers.last().is_some_and(|l| l == "\"ensemble_mean\""));
        layers.insert(end, "\"log_sigmoid\"".into());
    }
    let optimizer = make.of(&OPTIMIZERS);
    let groups = make.of(&[
        "",
        "",
        "groups = [{ match = [\"*.bias\"], weight_decay = 0 }]\n",
        "groups = [{ match = [\"first.weight\"], lr = 5e-4 }, { match = [\"first.*\"], weight_decay = 0.05 }]\n",
    ]);
    let freeze = if groups.is_empty() { make.of(&["", "", "", "freeze = [\"first.weight\"]\n"]) } else { "" };
    let schedule = make.of(&SCHEDULES);
    // It has an average of its own, and takes no schedule.
    let is_free = optimizer.contains("schedule_free");
    let schedule = if is_free { "" } else { schedule };
    let epochs = 1 + make.below(2);
    let accumulate = make.of(&["", "", "accumulate = 2\n", "accumulate = 3\n"]);
    let clip = make.of(&["", "", "clip_grad_norm = 0.1\n", "clip_grad_norm = 2.0\n", "clip_grad_value = 0.01\n"]);
    let clip = if seed % 6 == 4 { "clip_grad_adaptive = 0.02\n" } else { clip };
    let every = make.of(&["", "eval_every = 2\n"]);
    // By the seed itself, so that the draws of all else stay as they were.
    let every = if seed % 5 == 2 { "eval_every_steps = 3\n" } else { every };
    let recompute = if seed % 6 == 1 { "recompute = true\n" } else { "" };
    let (in_steps, swa) = (seed % 7 == 3, "swa = { start = 0 }\n");
    let length = match in_steps {
        true => format!("steps = {}\n", 2 + seed / 7 % 6),
        false => format!("epochs = {epochs}\n"),
    };
    let decays = "layer_decay = 0.7\nno_decay = [\"norm\", \"bias\"]\n";
    // Means of weights go by epochs.
    let rules = ["", "ema = { decay = 0.9 }\n", decays, if in_steps { "" } else { swa }][(seed % 4) as usize];
    let rules = if is_free && rules != decays { "" } else { rules };
    let thaw = if freeze.is_empty() || epochs < 2 { "" } else { "thaw_after = 1\n" };
    // Gradients that are looked at, by programs of their own.
    let log = if seed % 6 == 1 { "[log]\ntensorboard = true\n" } else { "" };
    let batch = data.lines().find_map(|line| line.strip_prefix("batch_size = ")?.parse::<usize>().ok());
    // Batch norm needs several samples in a shard.
    let in_shards = seed % 8 == 5 && batch.is_some_and(|batch| batch >= 4 && batch.is_multiple_of(2));
    let together = accumulate.is_empty() && layers.iter().any(|layer| layer.contains("batch_norm"));
    let shards = match (in_shards, together) {
        (true, true) => "[distributed]\nshards = 2\nsync_batch_norm = true\n",
        (true, false) => "[distributed]\nshards = 2\n",
        (false, _) => "",
    };
    // The number of values is known now.
    let data = data.replace("targets = 0", &format!("targets = {results}"));
    format!(
        "seed = {}\n[data]\n{data}[loss]\n{loss}[optimizer]\n{optimizer}\n{groups}{rules}{schedule}{log}{shards}\
         [train]\n{length}{accumulate}{clip}{every}{recompute}{}[model]\n{freeze}{thaw}layers = [\n  {},\n]\n",
        seed % 1000,
        make.blocks(),
        layers.join(",\n  ")
    )
}

/// The keys of `[loss]`, and of the figures that come with it. By the seed itself, so that the draws of all else stay as they were.
fn loss(seed: u64, values: bool, mixed: bool, results: usize, smoothing: &str) -> String {
    let weights = |list: &[&str]| (0..results).map(|i| list[i % list.len()]).collect::<Vec<_>>().join(", ");
    let figures = if values { "" } else { "[metrics]\nfigures = [\"top2_accuracy\", \"macro_f1\", \"mean_iou\"]\n" };
    let keys = match (seed / 3 % 5, values) {
        (0, false) if !mixed => format!("type = \"nll\"\nweight = [{}]\n", weights(&["1.0", "0.5", "2.0"])),
        (1, false) if !mixed => "type = \"focal\"\ngamma = 1.5\n".to_owned(),
        // Made-up targets are any numbers, for which `sigmoid_focal` means nothing.
        (0..=2, true) => format!("type = \"bce_with_logits\"\npos_weight = [{}]\n", weights(&["2.0", "0.7"])),
        (_, true) => "type = \"mse\"\n".to_owned(),
        (_, false) => format!("type = \"cross_entropy\"\n{smoothing}"),
    };
    format!("{keys}{}", if seed.is_multiple_of(4) { figures } else { "" })
}

/// The keys of `[data]`, and what samples look like.
fn data(make: &mut Layers, values: bool) -> (String, Flow) {
    let (samples, val, batch, eval) = SIZES[make.below(SIZES.len())];
    let mut text = format!("batch_size = {batch}\neval_batch_size = {eval}\n");
    text += make.of(&["", "shuffle = false\n"]);
    text += make.of(&["", "", "drop_last = true\n"]);
    text += make.of(&["workers = 0\n", "workers = 1\n", "workers = 3\nprefetch = 5\n"]);
    let flow;
    if !values && make.one_in(5) {
        text += &format!("source = \"digits\"\nlimit = {samples}\nlimit_val = {val}\n");
        flow = Flow::Image([1, 8, 8]);
    } else {
        let targets = if values { "targets = 0" } else { "classes = 3" };
        flow = match make.below(4) {
            0 => Flow::Vector(1 + make.below(40)),
            _ => Flow::Image([1 + make.below(5), 4 + make.below(9), 4 + make.below(9)]),
        };
        let shape = match flow {
            Flow::Image(chw) => format!("{chw:?}"),
            _ => format!("[{}]", flow.len()),
        };
        text += &format!("source = \"synthetic\"\nshape = {shape}\n{targets}\n");
        text += &match make.one_in(4) {
            // The same numbers for what is left.
            true => format!("samples = {}\nval_samples = 1\nvalidation_split = {val}\n", samples + val),
            false => format!("samples = {samples}\nval_samples = {val}\n"),
        };
    }
    if let Flow::Image([c, h, w]) = flow {
        if make.one_in(4) {
            text += &format!(
                "train_transforms = [{{ type = \"random_crop\", size = [{h}, {w}], padding = [1, 2] }}, \"random_horizontal_flip\"]\n"
            );
        }
        if make.one_in(4) && !values {
            let list = text.find("train_transforms = [").map(|at| at + "train_transforms = [".len());
            let mix = match make.below(3) {
                0 => "{ type = \"mixup\", alpha = 0.3, off_after_epoch = 1 }",
                1 => "{ type = \"cutmix\", p = 0.7 }",
                _ => "\"mixup\", { type = \"cutmix\", switch_prob = 0.4 }",
            };
            match list.and_then(|from| Some(from + text[from..].find("]\n")?)) {
                Some(end) => text.insert_str(end, &format!(", {mix}")),
                None => text += &format!("train_transforms = [{mix}]\n"),
            }
        }
        if make.one_in(4) {
            let channels = vec!["0.3"; c].join(", ");
            text += &format!("transforms = [{{ type = \"normalize\", mean = [{channels}], std = [0.6] }}]\n");
        }
    }
    (text, flow)
}

//! Configurations that look as if they had a mistake.

use super::lints::{FC, POOL, changed, language_model, rendered_warnings};

/// What looks like a mistake, and is none.
#[test]
fn what_is_in_order_is_not_warned_of() {
    let mut quiet = Vec::new();
    let last = |layer: &str| changed(&[(FC, &format!("{FC}\n  {layer},"))]);
    quiet.extend([last("\"leaky_relu\""), last("\"identity\""), last("{ type = \"dropout\", p = 0.0 }")]);
    // Pooled activations are no bounds on what a class may get: SqueezeNet ends so.
    quiet.push(changed(&[(
        "\"flatten\",\n  { name = \"fc\", type = \"linear\", out_features = 10 },",
        "{ type = \"conv2d\", out_channels = 10, kernel_size = 1 }, \"relu\", { type = \"adaptive_avg_pool2d\", output_size = 1 }, \"flatten\",",
    )]));
    // Bounds that the targets may have, too.
    for act in ["relu", "sigmoid", "tanh", "softmax"] {
        let text = changed(&[("classes = 10", "targets = 10"), ("cross_entropy", "mse")]);
        quiet.push(text.replace(FC, &format!("{FC} \"{act}\",")));
    }
    // A mean above 0, by what is at the end.
    for loss in ["gamma_nll", "tweedie"] {
        for act in ["softplus", "sigmoid", "softmax"] {
            let text = changed(&[("classes = 10", "targets = 10"), ("cross_entropy", loss)]);
            quiet.push(text.replace(FC, &format!("{FC} \"{act}\",")));
        }
    }
    // A block whose activation has an effect in one place of two.
    quiet.push(
        changed(&[(POOL, "{ block = \"pre\", repeat = 2 },")])
            + "[blocks.pre]\nlayers = [\"relu\", { type = \"conv2d\", out_channels = 8, kernel_size = 1 }]\n",
    );
    // Every way in which an output is taken.
    quiet.push(changed(&[(
        POOL,
        "{ type = \"residual\", layers = [\"relu6\", \"tanh\"] }, { type = \"gate\", layers = [{ type = \"adaptive_avg_pool2d\", output_size = 1 }, \"sigmoid\"] },
  { name = \"b\", type = \"branches\", combine = \"concat\", branches = [\"tanh\", \"identity\"] }, { type = \"concat\", from = [\"b\", \"conv\"] },",
    )]));
    quiet.push(changed(&[(
        "batch_size = 10",
        "batch_size = 10\ntransforms = [{ type = \"normalize\", mean = [0], std = [1] }]",
    )]));
    // Vectors are floats, and their range is not known.
    quiet.push(
        changed(&[(
            "shape = [3, 8, 8]",
            "shape = [4]\ntransforms = [{ type = \"normalize\", mean = [127.5], std = [40] }]",
        )])
        .lines()
        .filter(|line| !["conv", "act", "pool"].iter().any(|name| line.contains(&format!("\"{name}\""))))
        .fold(String::new(), |text, line| text + line + "\n"),
    );
    quiet.push(changed(&[("batch_size = 10", "batch_size = 100\neval_batch_size = 5000")]));
    quiet.push(changed(&[("epochs = 5", "epochs = 5\naccumulate = 10\nearly_stopping = { patience = 4 }")]));
    quiet.push(changed(&[("[train]", "[schedule]\ntype = \"cosine\"\nwarmup_steps = 49\n[train]")]));
    // Steps are more than epochs.
    quiet.push(changed(&[(
        "[train]",
        "[schedule]\ntype = \"multi_step\"\nmilestones = [20, 40]\nby = \"step\"\n[train]",
    )]));
    quiet.push(changed(&[
        ("val_samples = 20", "val_samples = 0"),
        ("[train]", "[checkpoint]\nmonitor = \"train_loss\"\n[train]"),
    ]));
    // Zeros and what came before alone.
    quiet.push(language_model(
        "{ type = \"permute\", dims = [0, 2, 1] }, { type = \"conv1d\", out_channels = 24, kernel_size = 3, padding = 2 },
  { type = \"slice\", end = 8, dim = 2 }, { type = \"permute\", dims = [0, 2, 1] },
  { type = \"scaled_dot_product_attention\", num_heads = 2, is_causal = true }, { type = \"lstm\", hidden_size = 8 }",
    ));
    // Adam scales the gradient, and the decay with it.
    quiet.push(changed(&[("type = \"sgd\"\nlr = 0.1", "type = \"adam\"\nlr = 0.1\nweight_decay = 5")]));
    quiet.push(changed(&[(
        "lr = 0.1",
        "lr = 0.1\ngroups = [{ match = [\"*.bias\"], lr = 1 }, { match = [\"fc.*\"], lr = 2 }]",
    )]));
    for text in quiet {
        assert_eq!(rendered_warnings(&text), "nothing\n", "{text}");
    }
}

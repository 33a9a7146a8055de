//! What a person types who comes from PyTorch, and what is said to it.

use runner::config;
use runner::config::text::diagnostics;

use super::errors::{GOOD, changed, rendered};

/// The remark at the culprit of each error, and the help.
fn remarks(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let Err(failure) = config::load_str("test.toml", text, &sets) else { return "taken".into() };
    let errors = failure.diagnostics.iter();
    let one = |d: &diagnostics::Diagnostic| {
        let label = d.labels.iter().find(|label| label.primary).map_or("", |label| label.text.as_str());
        format!("{}: {label}", d.message)
    };
    errors.map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn types_of_pytorch_are_understood() {
    let words = [
        "Conv2d",
        "nn.Linear",
        "torch.nn.ReLU",
        "F.relu",
        "BatchNorm2d",
        "batch_norm",
        "BatchNorm",
        "LayerNorm",
        "GELU",
        "Dropout2d",
        "MaxPool2d",
        "maxpool",
        "AdaptiveAvgPool2d",
        "GlobalAveragePooling2D",
        "LeakyReLU",
        "SiLU",
        "Swish",
        "Mish",
        "nn.LogSigmoid",
        "F.logsigmoid",
        "Hardtanh",
        "Dense",
        "Sequential",
        "Cat",
        "nn.MultiheadAttention",
        "attention",
        "LogSoftmax",
        "ConvTranspose2d",
        "Deconv2d",
        "nn.Upsample",
        "UpSampling2D",
        "interpolate",
        "AdaptiveMaxPool2d",
        "InstanceNorm2d",
        "Conv1d",
        "LSTM",
        "Residual",
        "Flatten",
        "ReLU6",
        "block",
    ];
    let types = words.map(|word| {
        format!("{word:24} {}", remarks(&changed(&[("\"relu\"", &format!("{{ type = \"{word}\" }}"))]), &[]))
    });
    let others = [
        (
            "cross_entropy",
            ["CrossEntropyLoss", "nn.MSELoss", "NLLLoss", "BCEWithLogitsLoss", "BCELoss", "L1Loss"].as_slice(),
        ),
        ("sgd", &["Adam", "torch.optim.AdamW", "RMSprop", "SGD", "NAdam", "Adagrad", "LBFGS"]),
        ("synthetic", &["MNIST", "FashionMNIST", "cifar-10", "CIFAR100", "FakeData"]),
    ];
    let others = others.iter().flat_map(|(from, words)| {
        words.iter().map(move |word| {
            format!("{word:24} {}", remarks(&changed(&[(&format!("\"{from}\""), &format!("\"{word}\""))]), &[]))
        })
    });
    let schedules = [
        "CosineAnnealingLR",
        "StepLR",
        "MultiStepLR",
        "ReduceLROnPlateau",
        "LinearLR",
        "ExponentialLR",
        "PolynomialLR",
        "OneCycleLR",
        "CosineAnnealingWarmRestarts",
        "SequentialLR",
        "CyclicLR",
    ];
    let schedules = schedules.iter().map(|word| {
        format!(
            "{word:24} {}",
            remarks(&changed(&[("[train]", &format!("[schedule]\ntype = \"{word}\"\n[train]"))]), &[])
        )
    });
    let transforms = ["ToTensor", "transforms.Normalize", "RandomHorizontalFlip", "hflip"].iter().map(|word| {
        format!("{word:24} {}", remarks(&changed(&[("batch_size = 32", &format!("transforms = [\"{word}\"]"))]), &[]))
    });
    insta::assert_snapshot!(
        types.into_iter().chain(others).chain(schedules).chain(transforms).collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn arguments_of_pytorch_are_understood() {
    let layers = [
        "type = \"linear\", in_features = 3, out_features = 4",
        "type = \"linear\", in_features = 3",
        "type = \"linear\", units = 4",
        "type = \"linear\", out_channels = 4",
        "type = \"conv2d\", in_channels = 3, out_channels = 8, kernel_size = 3",
        "type = \"conv2d\", filters = 8, kernel = 3, strides = 2, pad = 1",
        "type = \"conv2d\", out_features = 8, kernel_size = 3, padding_mode = \"zeros\"",
        "type = \"batch_norm2d\", num_features = 8",
        "type = \"group_norm\", num_channels = 8, groups = 2",
        "type = \"layer_norm\", normalized_shape = [8]",
        "type = \"multihead_attention\", embed_dim = 8, heads = 2, batch_first = true",
        "type = \"multihead_attention\", num_heads = 4, num_key_value_heads = 2",
        "type = \"relu\", inplace = true",
        "type = \"dropout\", rate = 0.5",
        "type = \"max_pool2d\", pool_size = 2",
    ];
    let layers = layers
        .map(|layer| format!("{layer}\n  {}", remarks(&changed(&[("\"relu\"", &format!("{{ {layer} }}"))]), &[])));
    let keys = [
        ("lr = 0.1", "learning_rate = 0.1"),
        ("lr = 0.1", "lr = 0.1\nwd = 0.1\nfused = true"),
        ("lr = 0.1", "lr = 0.1\nepochs = 3"),
        ("lr = 0.1", "lr = 0.1\nbetas = [0.9, 0.99]"),
        ("epochs = 3", "max_epochs = 3"),
        (
            "epochs = 3",
            "epochs = 3\nlr = 0.1\nbatch_size = 3\ngradient_accumulation_steps = 2\nmax_grad_norm = 1.0\npatience = 3",
        ),
        ("batch_size = 32", "batchsize = 32\nnum_workers = 2\npin_memory = true\nval_split = 0.1"),
        ("source = \"synthetic\"", "type = \"synthetic\""),
        ("type = \"sgd\"", "name = \"sgd\""),
        ("seed = 1", "manual_seed = 1\nepochs = 3\nlr = 0.1\nweights = \"x.pth\""),
        ("[train]", "[training]"),
        ("[train]", "[lr_scheduler]\ntype = \"step\"\n[train]"),
        ("[loss]", "[criterion]"),
        ("[data]", "[dataset]"),
        ("[model]", "[network]"),
        ("[train]", "[schedule]\ntype = \"cosine\"\nT_max = 3\neta_min = 0\nseed = 3\n[train]"),
        ("[train]", "[schedule]\ntype = \"step\"\nstep_size = 3\n[train]"),
        ("seed = 1", "precision = \"bfloat16\""),
        ("seed = 1", "precision = \"half\""),
        ("epochs = 3", "epochs = 3\nearly_stopping = { metric = \"val_loss\", monitor = \"accuracy\" }"),
    ];
    let keys =
        keys.map(|(from, to)| format!("{}\n  {}", to.replace('\n', "; "), remarks(&changed(&[(from, to)]), &[])));
    insta::assert_snapshot!(layers.into_iter().chain(keys).collect::<Vec<_>>().join("\n"));
}

/// A key without its section is found, and plain numbers and truth values are taken as such.
#[test]
fn options_are_understood() {
    let refused = [
        "epochs=3",
        "lr=0.1",
        "epoch=3",
        "batch-size=3",
        "patience=3",
        "early_stopping.patience=3",
        "optim.lr=1",
        "nonsense=1",
        "nonsense.x=1",
        "extends=x",
        "optimizer.lr=fast",
        "optimizer.nesterov=yes",
        "schedule.warmup_epochs=None",
        "optimizer.betas=[.9, .99]",
        "train.epochs=1.",
        "model.layers.1.p=0.3",
    ];
    insta::assert_snapshot!(refused.map(|set| format!("{set}\n  {}", remarks(GOOD, &[set]))).join("\n"));
    for (set, key, value) in [
        ("optimizer.lr=.1", "lr", "0.1"),
        ("optimizer.lr=1.", "lr", "1.0"),
        ("optimizer.lr=+1", "lr", "1.0"),
        ("optimizer.lr=1e5", "lr", "100000.0"),
        ("optimizer.lr=1.e-3", "lr", "0.001"),
        ("optimizer.lr=007", "lr", "7.0"),
        ("data.shuffle=False", "shuffle", "false"),
        ("data.drop_last = True", "drop_last", "true"),
    ] {
        let loaded =
            config::load_str("test.toml", GOOD, &[set.to_owned()]).unwrap_or_else(|failure| panic!("{failure}"));
        let text = config::to_toml(&loaded);
        assert!(text.contains(&format!("\n{key} = {value}\n")), "{set}\n{text}");
    }
}

/// One error for what is there twice, with both places; and for a number or a word in a wrong spelling.
#[test]
fn mistakes_of_syntax_are_named_in_plain_words() {
    let cases: [&[(&str, &str)]; 14] = [
        &[("lr = 0.1", "lr = 0.1\nlr = 0.2")],
        &[("lr = 0.1", "lr = 0.1\ngroups = [{ match = [\"*\"], lr = 0.3 }]\nlr = 0.2")],
        &[("[train]", "[optimizer]\ntype = \"adam\"\nlr = 0.3\n[train]")],
        &[("kernel_size = 3", "kernel_size = 3, kernel_size = 4")],
        &[("seed = 1", "seed = 1\ntrain.epochs = 4")],
        &[("epochs = 3", "epochs = 3\nearly_stopping.patience = 3\nearly_stopping.patience = 4")],
        &[(
            "epochs = 3",
            "epochs = 3\n[train.early_stopping]\npatience = 3\n[train.early_stopping]\npatience = 4\n[log]\nevery_steps = 1",
        )],
        &[("lr = 0.1", "lr = .1")],
        &[("lr = 0.1", "lr = 1.")],
        &[("seed = 1", "seed = 007")],
        &[("lr = 0.1", "lr = 0.1\nnesterov = True")],
        &[("lr = 0.1", "lr = 0.1\nmomentum = None")],
        &[("\"sgd\"", "sgd"), ("\"relu\"", "identity, flatten")],
        &[("batch_size = 32", "batch_size = # none yet")],
    ];
    insta::assert_snapshot!(cases.map(|changes| rendered(&changed(changes), &[])).join("\n==========\n"));
}

/// Layers whose parameters would have the same names: an error with both places, whatever the layers are.
#[test]
fn names_that_clash_are_refused() {
    let residual = |layer: &str| format!("{{ type = \"residual\", layers = [{layer}] }}");
    let conv = "{ type = \"conv2d\", out_channels = 8, kernel_size = 1 }";
    let attention = "{ type = \"multihead_attention\", num_heads = 1 }";
    let cases = [
        format!("{}, {}", residual(conv), residual(conv)),
        residual(conv),
        residual(&residual(attention)),
        format!("{{ name = \"7\", layers = [{attention}, {}] }}", residual(attention)),
        format!("{{ type = \"branches\", combine = \"add\", branches = [{conv}, {conv}] }}"),
        "{ name = \"a\", type = \"multihead_attention\", num_heads = 1 }, { name = \"a\", layers = [{ name = \"out_proj\", type = \"linear\", out_features = 3 }] }"
            .to_owned(),
        "{ type = \"residual\", layers = [\"relu\"], projection = { name = \"x_{i}\", block = \"b\", repeat = 2 } }"
            .to_owned(),
    ];
    let errors =
        cases.map(|layers| rendered(&(changed(&[("\"relu\"", &layers)]) + "[blocks.b]\nlayers = [\"relu\"]\n"), &[]));
    insta::assert_snapshot!(errors.join("\n==========\n"));
}

/// A layer that is a parameter itself would be the weight of another.
#[test]
fn a_layer_that_is_a_parameter_clashes_with_a_layer_around_it() {
    let conv = "{ name = \"a\", type = \"conv2d\", out_channels = 8, kernel_size = 1 }";
    let group = "{ name = \"a\", layers = [{ name = \"weight\", type = \"layer_scale\" }] }";
    for layers in [format!("{conv}, {group}"), format!("{group}, {conv}")] {
        let error = rendered(&changed(&[("\"relu\"", &layers)]), &[]);
        assert!(error.contains("the parameters of two layers would both be called `a.…`"), "{error}");
    }
}

/// Checkpoints have tensors of these names that are none of the model's.
#[test]
fn names_of_the_state_of_training_are_refused() {
    let linear = |name: &str| format!("\"flatten\", {{ name = \"{name}\", type = \"linear\", out_features = 3 }}");
    let group = |name: &str, layer: &str| format!("{{ name = \"{name}\", layers = [{layer}] }}");
    let scale = "{ name = \"scale\", type = \"layer_scale\" }";
    for (layers, named) in [
        (linear("optimizer"), "optimizer.…"),
        (group("optimizer", &linear("fc")), "optimizer.fc.…"),
        ("{ name = \"optimizer\", block = \"b\" }".to_owned(), "optimizer.0.…"),
        (group("grad_scaler", scale), "grad_scaler.scale"),
    ] {
        let block = "[blocks.b]\nlayers = [{ type = \"conv2d\", out_channels = 3, kernel_size = 1 }]\n";
        let text = changed(&[("\"relu\"", &layers)]) + if layers.contains("block") { block } else { "" };
        let error = rendered(&text, &[]);
        assert!(error.contains("parameters of a model cannot be called") && error.contains(named), "{layers}: {error}");
    }
    for layers in [
        "{ name = \"optimizer\", type = \"relu\" }".to_owned(),
        group("a", &linear("optimizer")),
        linear("optimizers"),
        group("metrics", &linear("train")),
    ] {
        assert_eq!(remarks(&changed(&[("\"relu\"", &layers)]), &[]), "taken", "{layers}");
    }
}

#[test]
fn keys_of_other_programs_lead_to_ours() {
    let of = |changes: &[(&str, &str)]| remarks(&changed(changes), &[]);
    let synthetic = "source = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 10\nbatch_size = 32";
    let text = |source: &str| of(&[(synthetic, source)]);
    for (found, part) in [
        (
            text("source = \"text_pairs\"\npath = \"p.jsonl\"\nanswer = \"reply\""),
            "`answer` in `[data]`: did you mean `target`?",
        ),
        (text("source = \"text\"\npath = \"train.bin\"\ncontext = 8"), "`path` in `[data]` names a file of tokens"),
        (
            text("source = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nwindow = 3\ntime_column = \"y\""),
            "wrong value for `time_column` in `[data]`: is the target",
        ),
        (of(&[("batch_size = 32", "batch_size = 32\nmemory_budget = \"1 GiB\"")]), "did you mean `cache_size`?"),
        (
            of(&[("\"cross_entropy\"", "\"cross_entropy\"\nreduction = \"sum\"")]),
            "the loss is the mean over the samples",
        ),
        (of(&[("lr = 0.1\n", "")]), "taken"),
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

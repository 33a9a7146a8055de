//! Random configurations: every section, every type of layer and of container, odd names and odd numbers.

use runner::random::{Purpose, Stream};

/// Numbers above 0 that are hard to write.
const POSITIVE: [&str; 12] = [
    "1e-7",
    "0.1",
    "1",
    "0.30000000000000004",
    "3.4028234663852886e38",
    "1.1754943508222875e-38",
    "5e-324",
    "1e16",
    "1e300",
    "123456789.125",
    "2.5e-3",
    "1_000",
];
/// Numbers from 0 up to but not including 1.
const SHARES: [&str; 7] = ["0", "0.5", "1e-9", "0.9999999999999999", "0.1", "-0.0", "0.999"];
/// Whole numbers from 1 on.
const WHOLE: [&str; 6] = ["1", "2", "7", "1000", "16777216", "65537"];
/// The same, as large as TOML takes them.
const LARGE: [&str; 5] = ["1", "3", "4294967296", "9007199254740993", "9223372036854775807"];
/// Text in TOML's quotes.
const TEXTS: [&str; 10] = [
    r#""a.b""#,
    r#""*""#,
    r#"'quo"te'"#,
    r#""apos'trophe""#,
    r#""üñ🙂""#,
    r#""tab\tnew\nline""#,
    r#""\u007f\u0001""#,
    r#"'back\slash'"#,
    r##""# no comment""##,
    r#"" ""#,
];
const BOOLS: [&str; 2] = ["true", "false"];

/// A configuration that the language takes, unless names of layers clash.
pub fn any(seed: u64) -> String {
    Random { draw: Stream::new(seed, Purpose::Synthetic, 0, 0), names: Vec::new(), count: 0, builds: false }.config()
}

/// The same of layers that fit each other: it can be built.
pub fn fitting(seed: u64) -> String {
    Random { draw: Stream::new(seed, Purpose::Synthetic, 0, 1), names: Vec::new(), count: 0, builds: true }.config()
}

struct Random {
    draw: Stream,
    /// Names that a later layer can find, as they stand among its siblings or further out.
    names: Vec<String>,
    count: usize,
    /// Every layer keeps the shape of an image.
    builds: bool,
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.draw.below(n as u32) as usize
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// `key = value` lines, each there or not.
    fn some(&mut self, lines: &[(&str, &[&str])]) -> String {
        let mut out = String::new();
        for (key, values) in lines {
            if self.one_in(2) {
                let value = self.of(values);
                out += &format!("{key} = {value}\n");
            }
        }
        out
    }

    fn config(&mut self) -> String {
        let top = self.some(&[
            ("seed", &["0", "7", "9223372036854775807"]),
            ("device", &["\"auto\"", "\"cpu\"", "\"cuda:3\""]),
            ("precision", &["\"fp32\"", "\"tf32\"", "\"bf16\"", "\"fp16\""]),
            ("graph", &BOOLS),
        ]);
        let classes = self.builds || !self.one_in(4);
        let (data, loss) = (self.data(classes), self.loss(classes));
        let (optimizer, schedule, train, model) =
            (self.optimizer(), self.schedule(), self.train(classes), self.model());
        let checkpoint = self.some(&[("keep", &["1", "9223372036854775807"]), ("every_steps", &LARGE)]);
        let log = self.some(&[("every_steps", &LARGE), ("tensorboard", &BOOLS), ("mistakes", &["0", "100"])]);
        let figures = ["figures = []\n", "figures = [\"macro_f1\", \"top2_accuracy\"]\n", ""];
        let metrics = format!("[metrics]\n{}", if classes { self.of(&figures) } else { "" });
        let mut sections = [
            data,
            loss,
            optimizer,
            schedule,
            train,
            model,
            format!("[checkpoint]\n{checkpoint}"),
            format!("[log]\n{log}"),
            metrics,
        ];
        // In any order.
        for i in (1..sections.len()).rev() {
            let j = self.below(i + 1);
            sections.swap(i, j);
        }
        top + &sections.concat()
    }

    fn data(&mut self, classes: bool) -> String {
        let source = match self.below(if self.builds || !classes { 2 } else { 6 }) {
            _ if self.builds => "source = \"synthetic\"\nshape = [4, 6, 6]\nclasses = 3\n".to_owned(),
            0 | 1 if !classes => "source = \"synthetic\"\nshape = [4, 6, 6]\ntargets = 2\n".to_owned(),
            0 | 1 => {
                let own = self.some(&[("samples", &["1", "1099511627776"]), ("val_samples", &["0", "5"])]);
                format!("source = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 16777216\n{own}")
            }
            2 => "source = \"digits\"\n".to_owned(),
            3 => format!("source = \"tensors\"\npath = {}\n", self.of(&TEXTS)),
            _ => {
                let source = self.of(&["mnist", "fashion_mnist", "cifar10", "cifar100"]);
                let own = self.some(&[
                    ("root", &TEXTS),
                    ("download", &["true"]),
                    ("mirrors", &["[\"https://a.b/ü\", \"http://c\"]"]),
                    ("fallback", &["\"digits\""]),
                ]);
                format!("source = \"{source}\"\n{own}")
            }
        };
        let loading = self.some(&[
            ("batch_size", if self.builds { &["2"] } else { &["1", "16777216", "\"auto\""] }),
            ("eval_batch_size", &["1", "300"]),
            ("workers", &["0", "256"]),
            ("prefetch", &["1", "256"]),
            ("shuffle", &BOOLS),
            ("cache_size", &["\"1 B\"", "\"1.5 GB\"", "\"1024TiB\""]),
            ("cache_dir", &TEXTS),
            ("drop_last", &["false"]),
            ("validation_split", if self.builds { &["0.1"] } else { &["0.1", "1e-7", "0.9999999999999999", "1"] }),
            ("limit", &["100"]),
            ("limit_val", &["100"]),
            (
                "train_transforms",
                &[
                    "[]",
                    "[{ type = \"random_crop\", size = [6, 6], padding = [0, 3] }]",
                    "[\"random_horizontal_flip\"]",
                    "[{ type = \"random_vertical_flip\", p = 1e-9 }, { type = \"center_crop\", size = [6, 6] }]",
                    "[{ type = \"random_resized_crop\", size = 6, scale = [0.30000000000000004, 1], ratio = [1e-7, 1e300] }, \
                     { type = \"random_rotation\", degrees = [-0.0, 1e-9] }, { type = \"random_erasing\", p = 1 }, \
                     { type = \"gaussian_blur\", kernel_size = 3, sigma = 1e-300 }]",
                ],
            ),
            ("val_transforms", &["[{ type = \"resize\", size = 6, antialias = false, interpolation = \"bicubic\" }]"]),
            ("transforms", &["[{ type = \"normalize\", mean = [-0.0], std = [1e-7] }]"]),
        ]);
        format!("[data]\n{source}{loading}")
    }

    fn loss(&mut self, classes: bool) -> String {
        match classes {
            true => match self.below(4) {
                0 => format!("[loss]\ntype = \"nll\"\n{}", self.some(&[("ignore_index", &["-1", "7"])])),
                1 => format!("[loss]\ntype = \"focal\"\n{}", self.some(&[("gamma", &POSITIVE)])),
                _ => format!("[loss]\ntype = \"cross_entropy\"\n{}", self.some(&[("label_smoothing", &SHARES)])),
            },
            false => "[loss]\ntype = \"mse\"\n".to_owned(),
        }
    }

    fn optimizer(&mut self) -> String {
        let own = match self.below(4) {
            0 => {
                let nesterov = match self.one_in(2) {
                    true => "momentum = 0.9\nnesterov = true\n".to_owned(),
                    false => self.some(&[("momentum", &POSITIVE), ("dampening", &["0", "1", "1e-7"])]),
                };
                format!("type = \"sgd\"\nlr = {}\n{nesterov}", self.of(&POSITIVE))
            }
            1 => format!(
                "type = \"rmsprop\"\n{}",
                self.some(&[
                    ("lr", &POSITIVE),
                    ("alpha", &SHARES),
                    ("eps", &POSITIVE),
                    ("momentum", &POSITIVE),
                    ("centered", &BOOLS)
                ])
            ),
            _ => format!(
                "type = \"{}\"\n{}",
                self.of(&["adam", "adamw"]),
                self.some(&[
                    ("lr", &POSITIVE),
                    ("betas", &["[0, 0.1]", "[0.9999999999999999, 0.0]"]),
                    ("eps", &POSITIVE),
                    ("amsgrad", &BOOLS)
                ])
            ),
        };
        let decay = self.some(&[("weight_decay", &POSITIVE)]);
        let (one, two, lr) = (self.of(&TEXTS), self.of(&TEXTS), self.of(&POSITIVE));
        let groups = match self.below(3) {
            0 if !self.builds => {
                format!("groups = [{{ match = [{one}, {two}], lr = {lr} }}, {{ match = [\"*\"], weight_decay = 0 }}]\n")
            }
            1 => "groups = []\n".to_owned(),
            _ => String::new(),
        };
        format!("[optimizer]\n{own}{decay}{groups}")
    }

    fn schedule(&mut self) -> String {
        let own = match self.below(5) {
            0 => String::new(),
            1 => "type = \"constant\"\n".to_owned(),
            2 => format!("type = \"step\"\nstep_epochs = {}\n{}", self.of(&LARGE), self.some(&[("gamma", &POSITIVE)])),
            3 => "type = \"step\"\nmilestones = [1, 2, 9007199254740993]\ngamma = 1e-7\n".to_owned(),
            _ => format!(
                "type = \"cosine\"\n{}",
                self.some(&[("min_lr", &["0", "5e-324", "-0.0"]), ("epochs", &["9", "90"])])
            ),
        };
        let warmup = self.of(&[
            "",
            "warmup_epochs = 0\n",
            "warmup_steps = 3\nwarmup_start_factor = 1e-7\n",
            "warmup_steps = 0\n",
        ]);
        format!("[schedule]\n{own}{warmup}")
    }

    fn train(&mut self, classes: bool) -> String {
        let epochs = self.of(&["1", "9", "9223372036854775807"]);
        let every = self.of(&["eval_every", "eval_every_steps"]);
        let own = self.some(&[
            ("accumulate", &["1", "1048576"]),
            ("clip_grad_norm", &POSITIVE),
            ("max_steps", &LARGE),
            ("recompute", if self.builds { &["true", "false"] } else { &["true", "false", "[\"a.*\", \"b\"]"] }),
            (every, &LARGE),
        ]);
        let monitor = self.of(&["train_loss", "val_loss", if classes { "val_accuracy" } else { "val_rmse" }]);
        let (patience, delta) = (self.of(&LARGE), self.of(&POSITIVE));
        let stopping = match self.below(3) {
            0 => {
                format!("early_stopping = {{ monitor = \"{monitor}\", patience = {patience}, min_delta = {delta} }}\n")
            }
            1 => "early_stopping = {}\n".to_owned(),
            _ => String::new(),
        };
        let length = self.of(&["epochs", "epochs", "steps"]);
        format!("[train]\n{length} = {epochs}\n{own}{stopping}")
    }

    fn model(&mut self) -> String {
        let weights = match self.below(3) {
            _ if self.builds => String::new(),
            0 => format!("weights = {}\nweights_strict = {}\n", self.of(&TEXTS), self.of(&BOOLS)),
            1 => "weights_strict = false\n".to_owned(),
            _ => String::new(),
        };
        let freeze = match self.below(3) {
            0 if !self.builds => format!("freeze = [{}, {}]\n", self.of(&TEXTS), self.of(&TEXTS)),
            1 => "freeze = []\n".to_owned(),
            _ => String::new(),
        };
        let mut layers = self.list(3);
        if self.builds {
            let end = [
                "{ type = \"adaptive_avg_pool2d\", output_size = 1 }",
                "\"flatten\"",
                "{ name = \"end\", type = \"linear\", out_features = 3 }",
            ];
            layers.extend(end.map(str::to_owned));
        }
        format!(
            "[params]\nact = \"relu\"\nside = 3\n[blocks.unit]\nparams = {{ kind = \"$act\", bias = true }}\nlayers = [\n  \
             {{ type = \"conv2d\", out_channels = 4, kernel_size = [\"$side\", 3], padding = \"($side - 1) / 2\", bias = \"$bias\" }},\n  \"$kind\",\n]\n\
             [blocks.row]\nlayers = [{{ name = \"row_{{i}}\", block = \"unit\", repeat = 2, first = {{ bias = false }} }}]\n\
             [model]\n{weights}{freeze}layers = [\n  {},\n]\n",
            layers.join(",\n  ")
        )
    }

    /// Layers one after another; what they are called is seen by those that follow.
    fn list(&mut self, depth: usize) -> Vec<String> {
        let known = self.names.len();
        let layers = (0..1 + self.below(4)).map(|index| self.layer(index, depth)).collect();
        self.names.truncate(known);
        layers
    }

    fn inner(&mut self, depth: usize) -> String {
        self.list(depth - 1).join(", ")
    }

    /// The start of a table: a name, often an odd one, and where its input comes from.
    fn head(&mut self, index: usize) -> (String, Option<String>) {
        self.count += 1;
        let unique = format!("n-{}_", self.count);
        let (name, unique) = match self.below(8) {
            0 | 1 => (index.to_string(), false),
            2 => ("projection".to_owned(), false),
            3 => (format!("{}", index + 1), false),
            4 | 5 => (unique, true),
            6 => ("N".repeat(64), false),
            _ => (String::new(), false),
        };
        let from = match self.names.len() {
            n if n > 0 && self.one_in(5) => {
                let at = self.below(n);
                format!("from = \"{}\", ", self.names[at])
            }
            _ => String::new(),
        };
        let head = match name.as_str() {
            "" => from,
            name => format!("name = \"{name}\", {from}"),
        };
        (head, unique.then_some(name))
    }

    fn layer(&mut self, index: usize, depth: usize) -> String {
        let (head, name) = self.head(index);
        let text = self.headed(&head, depth);
        // From now on it has an output.
        self.names.extend(name.filter(|name| text.contains(&format!("name = \"{name}\""))));
        text
    }

    fn headed(&mut self, head: &str, depth: usize) -> String {
        let kind = self.below(if depth > 0 { 14 } else { 7 });
        match kind {
            0 | 1 => format!(
                "{{ {head}type = \"conv2d\", out_channels = 4, kernel_size = 3, padding = 1, bias = {} }}",
                self.of(&BOOLS)
            ),
            2 => self.norm(head),
            3 => self
                .of(&["\"relu\"", "\"identity\"", "\"tanh\"", "\"dropout\"", "\"batch_norm2d\"", "\"$act\""])
                .to_owned(),
            4..=6 if !self.builds => self.other(head),
            4..=6 => format!("{{ {head}type = \"elu\", alpha = 0.30000000000000004 }}"),
            7 => format!("{{ {head}layers = [{}] }}", self.inner(depth)),
            8 | 9 => {
                let body = self.inner(depth);
                let more = match self.below(4) {
                    0 => ", shortcut = \"if_same_shape\"".to_owned(),
                    1 => format!(", projection = [{}]", self.inner(depth)),
                    2 => format!(", projection = {}", self.alone(0, depth)),
                    _ => String::new(),
                };
                format!("{{ {head}type = \"residual\", layers = [{body}]{more} }}")
            }
            10 => format!("{{ {head}type = \"gate\", layers = [{}] }}", self.inner(depth)),
            11 | 12 => {
                let combine = self.of(if self.builds { &["add", "multiply"] } else { &["add", "multiply", "concat"] });
                let branches: Vec<String> = (0..1 + self.below(3)).map(|i| self.branch(i, depth)).collect();
                format!(
                    "{{ {head}type = \"branches\", combine = \"{combine}\", branches = [{}] }}",
                    branches.join(", ")
                )
            }
            _ => self.block(head),
        }
    }

    fn branch(&mut self, index: usize, depth: usize) -> String {
        match self.one_in(3) {
            true => format!("[{}]", self.inner(depth)),
            false => self.alone(index, depth),
        }
    }

    /// A single layer, which nothing after it sees.
    fn alone(&mut self, index: usize, depth: usize) -> String {
        if self.one_in(3) {
            let (head, _) = self.head(index);
            return self.block(&head);
        }
        let known = self.names.len();
        let layer = self.layer(index, depth - 1);
        self.names.truncate(known);
        layer
    }

    fn block(&mut self, head: &str) -> String {
        match self.below(3) {
            0 => format!("{{ {head}block = \"unit\", with = {{ kind = \"gelu\" }} }}"),
            1 => format!(
                "{{ {head}block = \"unit\", repeat = 2, with = {{ bias = false }}, first = {{ bias = true }} }}"
            ),
            _ => format!("{{ {head}block = \"row\" }}"),
        }
    }

    fn norm(&mut self, head: &str) -> String {
        let eps = self.of(&POSITIVE);
        let (a, b) = (self.of(&BOOLS), self.of(&BOOLS));
        match self.below(4) {
            0 => {
                let momentum = self.of(&["0", "1", "1e-7", "\"cumulative\""]);
                format!(
                    "{{ {head}type = \"batch_norm2d\", eps = {eps}, momentum = {momentum}, affine = {a}, track_running_stats = {b} }}"
                )
            }
            1 => format!("{{ {head}type = \"group_norm\", num_groups = 2, affine = {a} }}"),
            2 => {
                format!("{{ {head}type = \"layer_norm\", normalized_dims = 3, elementwise_affine = {a}, bias = {b} }}")
            }
            _ => format!("{{ {head}type = \"layer_norm\", eps = {eps} }}"),
        }
    }

    /// Layers of the other types, whether they fit or not.
    fn other(&mut self, head: &str) -> String {
        let (size, float, share, truth) = (self.of(&WHOLE), self.of(&POSITIVE), self.of(&SHARES), self.of(&BOOLS));
        let dim = self.of(&["-8", "0", "7"]);
        let pair = self.of(&["3", "[3, 5]", "[2, 2]"]);
        let arguments = match self.below(20) {
            0 => format!("\"linear\", out_features = {size}, bias = {truth}"),
            1 => format!(
                "\"conv2d\", kernel_size = {pair}, groups = \"in_channels\", stride = {pair}, dilation = {pair}"
            ),
            2 => format!("\"conv2d\", out_channels = 6, groups = 3, kernel_size = {pair}, padding = \"same\""),
            3 => format!("\"conv2d\", out_channels = {size}, kernel_size = {pair}, padding = \"valid\""),
            4 => format!("\"batch_norm1d\", eps = {float}, affine = {truth}"),
            5 => format!(
                "\"multihead_attention\", num_heads = {size}, dropout = {share}, is_causal = {truth}, bias = {truth}, alibi = {truth}, sliding_window = {size}"
            ),
            6 => format!(
                "\"max_pool2d\", kernel_size = {pair}, stride = {pair}, padding = 1, dilation = {pair}, ceil_mode = {truth}"
            ),
            7 => format!("\"avg_pool2d\", kernel_size = {pair}, ceil_mode = {truth}, count_include_pad = {truth}"),
            8 => format!("\"adaptive_avg_pool2d\", output_size = {pair}"),
            9 => format!("\"flatten\", start_dim = {dim}, end_dim = {dim}"),
            10 => format!("\"dropout\", p = {share}"),
            11 => format!("\"leaky_relu\", negative_slope = -{float}"),
            12 => format!("\"elu\", alpha = {float}"),
            13 => format!("\"gelu\", approximate = \"{}\"", self.of(&["none", "tanh"])),
            14 => format!("\"softmax\", dim = {}", self.of(&["1", "-1"])),
            15 => format!(
                "\"{}\"",
                self.of(&["relu", "relu6", "silu", "tanh", "mish", "softplus", "log_sigmoid", "hardswish", "identity"])
            ),
            // Two inputs, if there are names.
            _ if self.names.is_empty() => "\"identity\"".to_owned(),
            16 => format!("\"concat\", dim = {dim}, {}", self.two()),
            n => format!("\"{}\", {}", if n == 17 { "add" } else { "multiply" }, self.two()),
        };
        match arguments.contains("from = ") {
            // It has inputs of its own.
            true => format!("{{ type = {arguments} }}"),
            false => format!("{{ {head}type = {arguments} }}"),
        }
    }

    fn two(&mut self) -> String {
        let n = self.names.len();
        let (a, b) = (self.below(n), self.below(n));
        format!("from = [\"{}\", \"{}\"]", self.names[a], self.names[b])
    }
}

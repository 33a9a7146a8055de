//! Random configurations.

use runner::random::{Purpose, Stream};

/// A configuration that grows at random.
struct Nets {
    draw: Stream,
    /// For names.
    count: usize,
}

/// What goes from layer to layer, in PyTorch's order.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Image([usize; 3]),
    Vector(usize),
}

const ACTIVATIONS: [&str; 23] = [
    r#""relu""#,
    r#""relu6""#,
    r#""leaky_relu""#,
    r#""elu""#,
    r#""gelu""#,
    r#"{ type = "gelu", approximate = "tanh" }"#,
    r#""silu""#,
    r#""tanh""#,
    r#""sigmoid""#,
    r#""hardsigmoid""#,
    r#""hardswish""#,
    r#""mish""#,
    r#""softplus""#,
    r#""selu""#,
    r#""celu""#,
    r#""softsign""#,
    r#""log_sigmoid""#,
    r#""sin""#,
    r#""cos""#,
    r#""tanhshrink""#,
    r#""hardtanh""#,
    r#""hardshrink""#,
    r#""softshrink""#,
];

const OPTIMIZERS: [&str; 8] = [
    "type = \"sgd\"\nlr = 0.01",
    "type = \"sgd\"\nlr = 0.01\nmomentum = 0.9\nnesterov = true\nweight_decay = 1e-3",
    "type = \"adam\"\nlr = 1e-3",
    "type = \"adamw\"\nlr = 1e-3\namsgrad = true",
    "type = \"rmsprop\"\nlr = 1e-3",
    "type = \"rmsprop\"\nlr = 1e-3\nmomentum = 0.5\ncentered = true",
    "type = \"nadam\"\nlr = 1e-3\nmomentum_decay = 0.1",
    "type = \"adamax\"\nlr = 1e-3\neps = 1e-5",
];

/// A configuration whose layers fit each other.
pub fn fitting(seed: u64) -> String {
    let mut nets = Nets::new(seed);
    let mut flow = match nets.below(4) {
        0 => Flow::Vector(1 + nets.below(20)),
        _ => Flow::Image([1 + nets.below(4), 5 + nets.below(8), 5 + nets.below(8)]),
    };
    let shape = match flow {
        Flow::Image(chw) => format!("{chw:?}"),
        Flow::Vector(f) => format!("[{f}]"),
    };
    let mut layers = Vec::new();
    // Something to train, whatever comes.
    let first = match flow {
        Flow::Image([_, h, w]) => {
            flow = Flow::Image([6, h, w]);
            r#"{ type = "conv2d", out_channels = 6, kernel_size = 3, padding = 1 }"#
        }
        Flow::Vector(_) => {
            flow = Flow::Vector(12);
            r#"{ type = "linear", out_features = 12 }"#
        }
    };
    layers.push(first.to_string());
    for _ in 0..2 + nets.below(8) {
        let (text, next) = nets.fit(flow, 2);
        layers.push(text);
        flow = next;
    }
    if let Flow::Image(_) = flow {
        if nets.below(2) == 0 {
            layers.push(r#"{ type = "adaptive_avg_pool2d", output_size = [2, 1] }"#.into());
        }
        layers.push(r#""flatten""#.into());
        if nets.below(2) == 0 {
            layers.push(nets.of(&[r#""dropout""#, r#""relu""#, r#""batch_norm1d""#, r#"{ type = "layer_norm" }"#]));
        }
    }
    layers.push(r#"{ type = "linear", out_features = 3 }"#.into());
    nets.config(&shape, &layers)
}

/// A configuration of layers of all types with all arguments, that hardly ever fit each other.
pub fn wild(seed: u64) -> String {
    let mut nets = Nets::new(seed);
    let shape = nets.of(&["[3, 8, 8]", "[1, 1, 1]", "[7]", "[2, 16777216, 1]", "[16777216]", "[1, 3, 40]"]);
    let layers: Vec<String> = (0..1 + nets.below(8)).map(|_| nets.any(3)).collect();
    nets.config(&shape, &layers)
}

impl Nets {
    fn new(seed: u64) -> Self {
        Nets { draw: Stream::new(seed, Purpose::Synthetic, 0, 0), count: 0 }
    }

    fn below(&mut self, n: usize) -> usize {
        self.draw.below(n as u32) as usize
    }

    fn of(&mut self, list: &[&str]) -> String {
        list[self.below(list.len())].to_string()
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("n{}", self.count)
    }

    fn config(&mut self, shape: &str, layers: &[String]) -> String {
        let optimizer = self.of(&OPTIMIZERS);
        let extra = self.of(&["", "accumulate = 2", "clip_grad_norm = 0.1", "accumulate = 3\nclip_grad_norm = 1.0"]);
        let smoothing = self.of(&["", "label_smoothing = 0.1"]);
        let freeze = self.of(&["", "", "freeze = [\"0.*\"]"]);
        // 2 + 4 samples, and 1 + 4 to evaluate.
        format!(
            "seed = 3\n[data]\nsource = \"synthetic\"\nshape = {shape}\nclasses = 3\nsamples = 10\nval_samples = 5\nbatch_size = 4\n\
             [model]\n{freeze}\nlayers = [\n  {},\n]\n[loss]\ntype = \"cross_entropy\"\n{smoothing}\n[optimizer]\n{optimizer}\n\
             [train]\nepochs = 1\n{extra}\n",
            layers.join(",\n  ")
        )
    }

    /// A layer that fits `flow`, and what it puts out. Containers hold others, `depth` deep.
    fn fit(&mut self, flow: Flow, depth: usize) -> (String, Flow) {
        match flow {
            Flow::Vector(f) => self.fit_vector(f),
            Flow::Image(chw) => self.fit_image(chw, depth),
        }
    }

    fn fit_vector(&mut self, f: usize) -> (String, Flow) {
        let same = Flow::Vector(f);
        match self.below(7) {
            0 | 1 => {
                let out = 1 + self.below(20);
                let bias = self.of(&["true", "false"]);
                (format!(r#"{{ type = "linear", out_features = {out}, bias = {bias} }}"#), Flow::Vector(out))
            }
            2 => (self.of(&ACTIVATIONS), same),
            3 => {
                (self.of(&[r#""dropout""#, r#"{ type = "dropout", p = 0.0 }"#, r#""identity""#, r#""softmax""#]), same)
            }
            4 => (
                self.of(&[
                    r#""batch_norm1d""#,
                    r#"{ type = "layer_norm" }"#,
                    r#"{ type = "group_norm", num_groups = 1 }"#,
                ]),
                same,
            ),
            5 => {
                let name = self.name();
                let text = format!(
                    r#"{{ name = "{name}", type = "residual", layers = [{{ type = "linear", out_features = {f} }}, "relu"] }}"#
                );
                (text, same)
            }
            _ => {
                let (a, b, c) = (self.name(), self.name(), self.name());
                let text = format!(
                    r#"{{ name = "{a}", layers = [
    {{ name = "{b}", type = "linear", out_features = 5 }},
    {{ name = "{c}", type = "linear", out_features = 4 }},
    {{ type = "concat", from = ["{b}", "{c}", "{b}"] }},
  ] }}"#
                );
                (text, Flow::Vector(14))
            }
        }
    }

    fn fit_image(&mut self, [c, h, w]: [usize; 3], depth: usize) -> (String, Flow) {
        let same = Flow::Image([c, h, w]);
        match self.below(if depth > 0 { 11 } else { 7 }) {
            0 | 1 => {
                let out = 1 + self.below(9);
                let k = 1 + self.below(3.min(h).min(w));
                let stride = 1 + self.below(2);
                let bias = self.of(&["true", "false"]);
                let side = |s: usize| (s + 2 * (k / 2) - k) / stride + 1;
                let p = k / 2;
                let text = format!(
                    r#"{{ type = "conv2d", out_channels = {out}, kernel_size = {k}, stride = {stride}, padding = {p}, bias = {bias} }}"#
                );
                (text, Flow::Image([out, side(h), side(w)]))
            }
            2 => {
                let text = r#"{ type = "conv2d", kernel_size = 3, padding = "same", groups = "in_channels" }"#;
                (text.to_string(), same)
            }
            3 => (self.of(&ACTIVATIONS), same),
            4 => {
                let norm = self.of(&[
                    r#""batch_norm2d""#,
                    r#"{ type = "batch_norm2d", affine = false }"#,
                    r#"{ type = "layer_norm", normalized_dims = 1 }"#,
                    r#"{ type = "layer_norm", normalized_dims = 3 }"#,
                    r#"{ type = "group_norm", num_groups = 1 }"#,
                    r#"{ type = "batch_norm2d", momentum = "cumulative" }"#,
                ]);
                (norm, same)
            }
            5 => {
                (self.of(&[r#""dropout""#, r#""identity""#, r#"{ type = "softmax", dim = 1 }"#, r#""softmax""#]), same)
            }
            6 => {
                let kind = self.of(&["max_pool2d", "avg_pool2d"]);
                if h < 2 || w < 2 {
                    let text = r#"{ type = "adaptive_avg_pool2d", output_size = 2 }"#;
                    return (text.to_string(), Flow::Image([c, 2, 2]));
                }
                (format!(r#"{{ type = "{kind}", kernel_size = 2 }}"#), Flow::Image([c, h / 2, w / 2]))
            }
            7 => {
                let (name, body) = (self.name(), self.keeping(c, depth - 1));
                (format!(r#"{{ name = "{name}", type = "residual", layers = [{body}] }}"#), same)
            }
            8 => {
                let name = self.name();
                let out = 1 + self.below(6);
                let text = format!(
                    r#"{{ name = "{name}", type = "residual", layers = [
    {{ type = "conv2d", out_channels = {out}, kernel_size = 3, stride = 2, padding = 1 }},
    "batch_norm2d",
  ], projection = {{ name = "p", type = "conv2d", out_channels = {out}, kernel_size = 1, stride = 2 }} }}"#
                );
                (text, Flow::Image([out, (h - 1) / 2 + 1, (w - 1) / 2 + 1]))
            }
            9 => {
                let name = self.name();
                let text = format!(
                    r#"{{ name = "{name}", type = "gate", layers = [
    {{ type = "adaptive_avg_pool2d", output_size = 1 }},
    {{ type = "conv2d", out_channels = {c}, kernel_size = 1 }},
    "sigmoid",
  ] }}"#
                );
                (text, same)
            }
            _ => {
                let combine = self.of(&["add", "multiply", "concat"]);
                let (name, a, b) = (self.name(), self.keeping(c, depth - 1), self.keeping(c, 0));
                let text = format!(
                    r#"{{ name = "{name}", type = "branches", combine = "{combine}", branches = [
    {{ name = "a", layers = [{a}] }},
    {{ name = "b", layers = [{b}] }},
    "identity",
  ] }}"#
                );
                (text, Flow::Image([if combine == "concat" { 3 * c } else { c }, h, w]))
            }
        }
    }

    /// Layers that put out an image of the shape that they are given.
    fn keeping(&mut self, c: usize, depth: usize) -> String {
        let mut list =
            vec![format!(r#"{{ type = "conv2d", out_channels = {c}, kernel_size = 3, padding = 1, bias = false }}"#)];
        if self.below(2) == 0 {
            list.push(r#""batch_norm2d""#.into());
        }
        list.push(self.of(&ACTIVATIONS));
        if depth > 0 {
            let (name, body) = (self.name(), self.keeping(c, depth - 1));
            list.push(format!(r#"{{ name = "{name}", type = "residual", layers = [{body}] }}"#));
        }
        list.join(", ")
    }

    /// A size, now and then an absurd one.
    fn size(&mut self) -> usize {
        match self.below(12) {
            0 => 16_777_216,
            1 => 4096,
            2 => 0,
            n => n,
        }
    }

    fn sizes(&mut self) -> String {
        match self.below(3) {
            0 => format!("[{}, {}]", self.size(), self.size()),
            _ => self.size().to_string(),
        }
    }

    /// Any layer with any arguments.
    fn any(&mut self, depth: usize) -> String {
        let dim = self.below(10) as i64 - 5;
        let named = if self.below(3) == 0 { format!("name = \"{}\", ", self.name()) } else { String::new() };
        let from = match self.count {
            0 => String::new(),
            n => format!(", from = [\"n{}\", \"n{}\"]", 1 + self.below(n), 1 + self.below(n)),
        };
        match self.below(if depth > 0 { 18 } else { 13 }) {
            0 => self.of(&ACTIVATIONS),
            1 => format!(r#"{{ {named}type = "linear", out_features = {} }}"#, self.size()),
            2 | 3 => {
                let (out, k, stride, padding) = (self.size(), self.sizes(), self.sizes(), self.sizes());
                let groups = self.of(&["1", "2", "3", "\"in_channels\""]);
                let dilation = self.of(&["1", "2", "16777216"]);
                format!(
                    r#"{{ {named}type = "conv2d", out_channels = {out}, kernel_size = {k}, stride = {stride}, padding = {padding}, groups = {groups}, dilation = {dilation} }}"#
                )
            }
            4 => {
                let kind = self.of(&["batch_norm1d", "batch_norm2d"]);
                let track = self.of(&["true", "false"]);
                format!(r#"{{ {named}type = "{kind}", track_running_stats = {track} }}"#)
            }
            5 => format!(r#"{{ {named}type = "group_norm", num_groups = {} }}"#, self.size()),
            6 => format!(r#"{{ {named}type = "layer_norm", normalized_dims = {} }}"#, self.size()),
            7 => {
                let kind = self.of(&["max_pool2d", "avg_pool2d"]);
                let (k, stride, padding) = (self.sizes(), self.sizes(), self.sizes());
                let ceil = self.of(&["true", "false"]);
                format!(
                    r#"{{ {named}type = "{kind}", kernel_size = {k}, stride = {stride}, padding = {padding}, ceil_mode = {ceil} }}"#
                )
            }
            8 => format!(r#"{{ {named}type = "adaptive_avg_pool2d", output_size = {} }}"#, self.sizes()),
            9 => format!(r#"{{ {named}type = "flatten", start_dim = {dim}, end_dim = {} }}"#, self.below(8) as i64 - 4),
            10 => format!(r#"{{ {named}type = "softmax", dim = {} }}"#, self.of(&["1", "-1"])),
            11 => self.of(&[r#""dropout""#, r#""identity""#, r#""flatten""#]),
            12 => {
                let kind = self.of(&["add", "multiply", "concat"]);
                format!(r#"{{ {named}type = "{kind}"{from} }}"#)
            }
            13 => format!(r#"{{ {named}layers = [{}] }}"#, self.list(depth)),
            14 => format!(r#"{{ {named}type = "residual", layers = [{}] }}"#, self.list(depth)),
            15 => {
                let projection = self.any(0);
                format!(r#"{{ {named}type = "residual", layers = [{}], projection = {projection} }}"#, self.list(depth))
            }
            16 => format!(r#"{{ {named}type = "gate", layers = [{}] }}"#, self.list(depth)),
            _ => {
                let combine = self.of(&["add", "multiply", "concat"]);
                format!(r#"{{ {named}type = "branches", combine = "{combine}", branches = [{}] }}"#, self.list(depth))
            }
        }
    }

    fn list(&mut self, depth: usize) -> String {
        let n = 1 + self.below(4);
        (0..n).map(|_| self.any(depth - 1)).collect::<Vec<_>>().join(", ")
    }
}

//! Layers that fit each other: all types, all containers, all arguments.

use runner::random::{Purpose, Stream};

/// What goes from layer to layer, in PyTorch's order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Flow {
    /// Channels, height, width.
    Image([usize; 3]),
    /// Length, features.
    Sequence([usize; 2]),
    /// Features.
    Vector(usize),
}

impl Flow {
    /// Numbers in a sample.
    pub fn len(self) -> usize {
        match self {
            Flow::Image(dims) => dims.iter().product(),
            Flow::Sequence(dims) => dims.iter().product(),
            Flow::Vector(n) => n,
        }
    }
}

const ACTIVATIONS: [&str; 27] = [
    r#""relu""#,
    r#""relu""#,
    r#""relu6""#,
    r#""leaky_relu""#,
    r#"{ type = "leaky_relu", negative_slope = 0.2 }"#,
    r#"{ type = "elu", alpha = 0.7 }"#,
    r#""gelu""#,
    r#"{ type = "gelu", approximate = "tanh" }"#,
    r#""silu""#,
    r#""tanh""#,
    r#""sigmoid""#,
    r#""hardsigmoid""#,
    r#""hardswish""#,
    r#""elu""#,
    r#""mish""#,
    r#""softplus""#,
    r#"{ type = "softplus", beta = 2.5, threshold = 18.0 }"#,
    r#""selu""#,
    r#"{ type = "celu", alpha = 0.7 }"#,
    r#""softsign""#,
    r#""log_sigmoid""#,
    r#""sin""#,
    r#""cos""#,
    r#""tanhshrink""#,
    r#"{ type = "hardtanh", min_val = -1.5, max_val = 2.0 }"#,
    r#"{ type = "hardshrink", lambd = 0.1 }"#,
    r#"{ type = "softshrink", lambd = 0.1 }"#,
];

/// The most numbers in a sample between layers, so that no net is slow.
pub const MOST: usize = 3000;

/// A list of layers that grows at random.
pub struct Layers {
    draw: Stream,
    names: usize,
    uses_block: bool,
    /// Named layers of the list that grows, with what they put out.
    taps: Vec<(String, Flow)>,
}

impl Layers {
    /// All draws come from `seed`.
    pub fn new(seed: u64) -> Self {
        let draw = Stream::new(seed, Purpose::Synthetic, 0, 0);
        Layers { draw, names: 0, uses_block: false, taps: Vec::new() }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.draw.below(n as u32) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of a list.
    pub fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    fn activation(&mut self) -> String {
        self.of(&ACTIVATIONS).into()
    }

    /// The blocks that layers use.
    pub fn blocks(&self) -> &'static str {
        match self.uses_block {
            true => {
                "[blocks.pair]\nparams = { planes = 1, kernel = 3 }\nlayers = [{ name = \"conv_{i}\", type = \"conv2d\", out_channels = \
                 \"$planes\", kernel_size = \"$kernel\", padding = \"same\" }, \"batch_norm2d\", \"silu\"]\n"
            }
            false => "",
        }
    }

    /// A whole net from `flow` to `results` numbers.
    pub fn net(&mut self, mut flow: Flow, results: usize) -> Vec<String> {
        let mut list = Vec::new();
        let add = |text: String, next: Flow, list: &mut Vec<String>| {
            list.push(text);
            next
        };
        // Something to train, whatever comes; its name is what groups and `freeze` speak of.
        flow = match flow {
            Flow::Image([_, h, w]) => {
                let c = 1 + self.below(20);
                let text = format!(
                    r#"{{ name = "first", type = "conv2d", out_channels = {c}, kernel_size = 3, padding = 1 }}"#
                );
                add(text, Flow::Image([c, h, w]), &mut list)
            }
            _ => {
                let f = 1 + self.below(40);
                add(format!(r#"{{ name = "first", type = "linear", out_features = {f} }}"#), Flow::Vector(f), &mut list)
            }
        };
        self.taps.push(("first".into(), flow));
        for _ in 0..2 + self.below(9) {
            let (text, next) = self.fit(flow, 2);
            // A layer that can be taken up again.
            let text = match text.strip_prefix("{ type") {
                Some(rest) if self.one_in(3) => {
                    let name = self.name();
                    self.taps.push((name.clone(), next));
                    format!("{{ name = \"{name}\", type{rest}")
                }
                _ => text,
            };
            flow = add(text, next, &mut list);
            if self.one_in(5) {
                let (text, next) = self.joined();
                flow = add(text, next, &mut list);
            }
        }
        if let Flow::Image(_) = flow
            && self.one_in(2)
        {
            let text = self.of(&["1", "[2, 1]"]);
            let c = if let Flow::Image([c, ..]) = flow { c } else { 0 };
            let next = Flow::Image([c, if text == "1" { 1 } else { 2 }, 1]);
            flow = add(format!("{{ type = \"adaptive_avg_pool2d\", output_size = {text} }}"), next, &mut list);
        }
        if !matches!(flow, Flow::Vector(_)) {
            flow = add("\"flatten\"".into(), Flow::Vector(flow.len()), &mut list);
        }
        if self.one_in(2) {
            let (text, next) = self.vector(flow.len(), 1);
            flow = add(text, next, &mut list);
        }
        if flow.len() < 60 && self.one_in(4) {
            let members = 1 + self.below(4);
            list.push(format!(r#"{{ type = "ensemble_affine", members = {members} }}"#));
            list.push(format!(r#"{{ type = "ensemble_linear", out_features = {results} }}"#));
            list.push(r#""ensemble_mean""#.into());
            return list;
        }
        list.push(format!(r#"{{ type = "linear", out_features = {results} }}"#));
        list
    }

    /// A layer that joins others by name.
    fn joined(&mut self) -> (String, Flow) {
        let at = self.below(self.taps.len());
        let (a, flow) = self.taps[at].clone();
        let alike: Vec<String> = self.taps.iter().filter(|(_, f)| *f == flow).map(|(n, _)| n.clone()).collect();
        let b = alike[self.below(alike.len())].clone();
        let kind = self.of(&["add", "multiply", "concat"]);
        let text = format!(r#"{{ type = "{kind}", from = ["{a}", "{b}"] }}"#);
        match (kind, flow) {
            ("concat", Flow::Image([c, h, w])) if 2 * flow.len() <= MOST => (text, Flow::Image([2 * c, h, w])),
            ("concat", Flow::Vector(f)) => (text, Flow::Vector(2 * f)),
            ("concat", _) => (format!(r#"{{ type = "add", from = ["{a}", "{b}"] }}"#), flow),
            _ => (text, flow),
        }
    }

    /// A layer that fits `flow`, and what it puts out. Containers hold others, `depth` deep.
    fn fit(&mut self, flow: Flow, depth: usize) -> (String, Flow) {
        // Sequences are rare, and have many such layers.
        if self.one_in(if matches!(flow, Flow::Sequence(_)) { 2 } else { 4 }) {
            return self.rearranged(flow);
        }
        match flow {
            Flow::Vector(f) => self.vector(f, depth),
            Flow::Sequence(dims) => self.sequence(dims, depth),
            Flow::Image(chw) => self.image(chw, depth),
        }
    }

    fn vector(&mut self, f: usize, depth: usize) -> (String, Flow) {
        let same = Flow::Vector(f);
        match self.below(if depth > 0 { 9 } else { 6 }) {
            0 | 1 => {
                let (out, bias) = (1 + self.below(70), self.of(&["true", "false"]));
                (format!(r#"{{ type = "linear", out_features = {out}, bias = {bias} }}"#), Flow::Vector(out))
            }
            2 | 3 => (self.activation(), same),
            4 => (self.plain(), same),
            5 => {
                let groups = self.divisor(f);
                let norms = [
                    r#"{ type = "batch_norm1d" }"#.to_string(),
                    r#"{ type = "batch_norm1d", track_running_stats = false, eps = 1e-3 }"#.into(),
                    r#"{ type = "layer_norm", elementwise_affine = false }"#.into(),
                    r#"{ type = "layer_norm", bias = false }"#.into(),
                    format!(r#"{{ type = "group_norm", num_groups = {groups} }}"#),
                ];
                (norms[self.below(norms.len())].clone(), same)
            }
            6 => {
                let act = self.activation();
                let body = format!(r#"{{ type = "linear", out_features = {f} }}, {act}"#);
                let name = self.name();
                (format!(r#"{{ name = "{name}", type = "residual", layers = [{body}] }}"#), same)
            }
            7 => {
                let (name, kind) = (self.name(), self.of(&["gate", "residual"]));
                let body = format!(
                    r#"{{ type = "linear", out_features = 3 }}, "tanh", {{ type = "linear", out_features = {f} }}, "sigmoid""#
                );
                (format!(r#"{{ name = "{name}", type = "{kind}", layers = [{body}] }}"#), same)
            }
            _ => {
                let (a, b, c) = (self.name(), self.name(), self.name());
                let (m, n) = (1 + self.below(9), 1 + self.below(9));
                let text = format!(
                    r#"{{ name = "{a}", layers = [{{ name = "{b}", type = "linear", out_features = {m} }}, {{ name = "{c}", type = "linear", out_features = {n} }}, {{ type = "concat", from = ["{b}", "{c}", "{b}"] }}] }}"#
                );
                (text, Flow::Vector(2 * m + n))
            }
        }
    }

    /// A layer for anything that keeps its shape and has no parameters.
    fn plain(&mut self) -> String {
        self.of(&[
            r#"{ type = "dropout" }"#,
            r#"{ type = "dropout", p = 0.1 }"#,
            r#"{ type = "dropout", p = 0.0 }"#,
            r#""identity""#,
            r#""softmax""#,
            r#""log_softmax""#,
        ])
        .into()
    }

    pub fn divisor(&mut self, n: usize) -> usize {
        let all: Vec<usize> = (1..=n).filter(|d| n.is_multiple_of(*d)).collect();
        all[self.below(all.len())]
    }

    fn sequence(&mut self, [l, e]: [usize; 2], depth: usize) -> (String, Flow) {
        let same = Flow::Sequence([l, e]);
        match self.below(if depth > 0 { 11 } else { 9 }) {
            0 | 1 => {
                let heads = self.divisor(e);
                let groups = self.divisor(heads);
                let shared = if self.one_in(2) { format!(", num_kv_heads = {groups}") } else { String::new() };
                let (bias, causal) = (self.of(&["true", "false"]), self.of(&["true", "false"]));
                let dropout = self.of(&["0", "0", "0.2"]);
                let far =
                    self.of(&["", "", ", sliding_window = 2", ", alibi = true", ", sliding_window = 3, alibi = true"]);
                (
                    format!(
                        r#"{{ type = "multihead_attention", num_heads = {heads}, bias = {bias}, is_causal = {causal}, dropout = {dropout}{shared}{far} }}"#
                    ),
                    same,
                )
            }
            2 => {
                let out = 1 + self.below(MOST.min(24 * l) / l);
                (format!(r#"{{ type = "linear", out_features = {out} }}"#), Flow::Sequence([l, out]))
            }
            3 => (self.activation(), same),
            4 => (self.plain(), same),
            5 => {
                let norm = self.of(&[
                    r#"{ type = "layer_norm" }"#,
                    r#"{ type = "layer_norm", normalized_dims = 2 }"#,
                    r#"{ type = "batch_norm1d" }"#,
                ]);
                (norm.into(), same)
            }
            6 if (2..9).contains(&l) && self.one_in(2) => {
                (r#""dot_interaction""#.into(), Flow::Vector(l * (l - 1) / 2))
            }
            6 => (r#""flatten""#.into(), Flow::Vector(l * e)),
            7 | 8 => {
                let kind = self.of(&["lstm", "gru", "rnn", r#"rnn", nonlinearity = "relu"#]);
                let (hidden, layers) = (1 + self.below(12), 1 + self.below(2));
                let (bias, both, dropout) =
                    (self.of(&["true", "false"]), self.of(&["true", "false"]), self.of(&["0", "0.2"]));
                let out = hidden * if both == "true" { 2 } else { 1 };
                (
                    format!(
                        r#"{{ type = "{kind}", hidden_size = {hidden}, num_layers = {layers}, bias = {bias}, bidirectional = {both}, dropout = {dropout} }}"#
                    ),
                    Flow::Sequence([l, out]),
                )
            }
            9 => {
                let (heads, wide) = (self.divisor(e), 1 + self.below(20));
                let (first, bias, causal) =
                    (self.of(&["true", "false"]), self.of(&["true", "false"]), self.of(&["true", "false"]));
                let (act, dropout, repeat) =
                    (self.of(&["relu", "gelu"]), self.of(&["0.0", "0.2"]), self.of(&["", ", repeat = 2"]));
                let options = format!(
                    r#"d_model = {e}, nhead = {heads}, dim_feedforward = {wide}, norm_first = {first}, bias = {bias}, is_causal = {causal}, activation = "{act}", dropout = {dropout}{repeat}"#
                );
                // The decoder's attention looks at what comes in here.
                let name = self.name();
                let text = match self.of(&["encoder", "decoder"]) {
                    "encoder" => format!(r#"{{ type = "transformer_encoder_layer", {options} }}"#),
                    _ => format!(
                        r#"{{ name = "{name}", type = "identity" }}, {{ type = "transformer_decoder_layer", from = ["{name}", "{name}"], {options} }}"#
                    ),
                };
                (text, same)
            }
            _ => {
                let (name, wide) = (self.name(), 1 + self.below(20));
                (
                    format!(
                        r#"{{ name = "{name}", type = "residual", layers = ["layer_norm", {{ type = "linear", out_features = {wide} }}, "gelu", {{ type = "linear", out_features = {e} }}] }}"#
                    ),
                    same,
                )
            }
        }
    }

    fn image(&mut self, chw: [usize; 3], depth: usize) -> (String, Flow) {
        let [c, h, w] = chw;
        let same = Flow::Image(chw);
        match self.below(if depth > 0 { 18 } else { 11 }) {
            0..=2 => self.conv(chw),
            3 => {
                let dilation = 1 + self.below(2);
                let text = format!(
                    r#"{{ type = "conv2d", kernel_size = 3, padding = "same", groups = "in_channels", dilation = {dilation} }}"#
                );
                (text, same)
            }
            4 | 5 => (self.activation(), same),
            6 => {
                let groups = self.divisor(c);
                let norms = [
                    r#"{ type = "batch_norm2d" }"#.to_string(),
                    r#"{ type = "batch_norm2d", affine = false }"#.into(),
                    r#"{ type = "batch_norm2d", momentum = "cumulative" }"#.into(),
                    r#"{ type = "batch_norm2d", track_running_stats = false }"#.into(),
                    r#"{ type = "layer_norm" }"#.into(),
                    r#"{ type = "layer_norm", normalized_dims = 3 }"#.into(),
                    format!(r#"{{ type = "group_norm", num_groups = {groups}, affine = false }}"#),
                    format!(r#"{{ type = "group_norm", num_groups = {groups} }}"#),
                ];
                (norms[self.below(norms.len())].clone(), same)
            }
            7 => (if self.one_in(4) { r#"{ type = "softmax", dim = 1 }"#.into() } else { self.plain() }, same),
            8 | 9 => self.pool(chw),
            10 => {
                if self.one_in(3) {
                    let (a, b) = (1 + self.below(4), 1 + self.below(4));
                    let text = format!(r#"{{ type = "adaptive_avg_pool2d", output_size = [{a}, {b}] }}"#);
                    return (text, Flow::Image([c, a, b]));
                }
                // Attention sees every row.
                match c * h <= 60 {
                    true => (r#"{ type = "flatten", end_dim = 2 }"#.into(), Flow::Sequence([c * h, w])),
                    false => (r#"{ type = "flatten", start_dim = 1 }"#.into(), Flow::Vector(c * h * w)),
                }
            }
            11 | 12 => {
                let (name, body) = (self.name(), self.keeping(c, depth - 1));
                // Without a name its layers' stand in the list around; two such would clash.
                (format!(r#"{{ name = "{name}", type = "residual", layers = [{body}] }}"#), same)
            }
            13 => {
                let (name, out) = (self.name(), 1 + self.below(12));
                let text = format!(
                    r#"{{ name = "{name}", type = "residual", layers = [{{ type = "conv2d", out_channels = {out}, kernel_size = 3, stride = 2, padding = 1 }}, "batch_norm2d"], projection = {{ name = "p", type = "conv2d", out_channels = {out}, kernel_size = 1, stride = 2 }} }}"#
                );
                let next = [out, (h - 1) / 2 + 1, (w - 1) / 2 + 1];
                // Where nothing changes there is no projection, and a sum.
                (text, Flow::Image(next))
            }
            14 => {
                let (name, out) = (self.name(), 1 + self.below(12));
                let text = format!(
                    r#"{{ name = "{name}", type = "residual", shortcut = "if_same_shape", layers = [{{ type = "conv2d", out_channels = {out}, kernel_size = 1 }}] }}"#
                );
                (text, Flow::Image([out, h, w]))
            }
            15 => {
                let (name, few) = (self.name(), 1 + self.below(3));
                let text = format!(
                    r#"{{ name = "{name}", type = "gate", layers = [{{ type = "adaptive_avg_pool2d", output_size = 1 }}, {{ type = "conv2d", out_channels = {few}, kernel_size = 1 }}, "relu", {{ type = "conv2d", out_channels = {c}, kernel_size = 1 }}, "hardsigmoid"] }}"#
                );
                (text, same)
            }
            16 => {
                self.uses_block = true;
                let (name, kernel) = (self.name(), self.of(&["1", "3"]));
                let text = format!(
                    r#"{{ name = "{name}", block = "pair", repeat = 2, with = {{ planes = {c} }}, first = {{ planes = {c}, kernel = {kernel} }} }}"#
                );
                (text, same)
            }
            _ => {
                let combine = self.of(&["add", "multiply", "concat"]);
                let combine = if 3 * c * h * w > MOST { "add" } else { combine };
                let (name, a, b) = (self.name(), self.keeping(c, depth - 1), self.keeping(c, 0));
                let text = format!(
                    r#"{{ name = "{name}", type = "branches", combine = "{combine}", branches = [{{ name = "a", layers = [{a}] }}, {{ name = "b", layers = [{b}] }}, "identity"] }}"#
                );
                (text, Flow::Image([if combine == "concat" { 3 * c } else { c }, h, w]))
            }
        }
    }

    fn conv(&mut self, [c, h, w]: [usize; 3]) -> (String, Flow) {
        let most = (MOST / (h * w)).clamp(1, 40);
        let groups = if self.one_in(3) { self.divisor(c) } else { 1 };
        let out = groups * (1 + self.below((most / groups).max(1)));
        let bias = self.of(&["true", "false"]);
        let common = format!("out_channels = {out}, groups = {groups}, bias = {bias}");
        if self.one_in(4) {
            let (a, b) = (1 + self.below(5), 1 + self.below(4));
            let text = format!(r#"{{ type = "conv2d", {common}, kernel_size = [{a}, {b}], padding = "same" }}"#);
            return (text, Flow::Image([out, h, w]));
        }
        let [(kh, sh, ph, dh, oh), (kw, sw, pw, dw, ow)] = [h, w].map(|side| self.window(side, 3, true));
        let text = format!(
            r#"{{ type = "conv2d", {common}, kernel_size = [{kh}, {kw}], stride = [{sh}, {sw}], padding = [{ph}, {pw}], dilation = [{dh}, {dw}] }}"#
        );
        (text, Flow::Image([out, oh, ow]))
    }

    fn pool(&mut self, [c, h, w]: [usize; 3]) -> (String, Flow) {
        let kind = self.of(&["max_pool2d", "avg_pool2d"]);
        if self.one_in(2) && h > 1 && w > 1 {
            let text = format!(r#"{{ type = "{kind}", kernel_size = 2 }}"#);
            return (text, Flow::Image([c, h / 2, w / 2]));
        }
        let dilated = kind == "max_pool2d";
        let [(kh, sh, ph, dh, oh), (kw, sw, pw, dw, ow)] = [h, w].map(|side| self.window(side, 2, dilated));
        let more = match dilated {
            true => format!("dilation = [{dh}, {dw}]"),
            false => format!("count_include_pad = {}", self.of(&["true", "false"])),
        };
        let text = format!(
            r#"{{ type = "{kind}", kernel_size = [{kh}, {kw}], stride = [{sh}, {sw}], padding = [{ph}, {pw}], {more} }}"#
        );
        (text, Flow::Image([c, oh, ow]))
    }

    /// Kernel, stride, padding (at most half the window), dilation, and what becomes of `side`.
    fn window(&mut self, side: usize, strides: usize, dilated: bool) -> (usize, usize, usize, usize, usize) {
        let k = 1 + self.below(side.min(5));
        let stride = 1 + self.below(strides);
        let padding = self.below(k / 2 + 1);
        let fits = |d: usize| d * (k - 1) < side + 2 * padding;
        let dilation = if dilated && self.one_in(4) && fits(2) { 2 } else { 1 };
        (k, stride, padding, dilation, (side + 2 * padding - dilation * (k - 1) - 1) / stride + 1)
    }

    /// Layers that put out an image of the shape that they are given.
    fn keeping(&mut self, c: usize, depth: usize) -> String {
        let bias = self.of(&["true", "false"]);
        let mut list =
            vec![format!(r#"{{ type = "conv2d", out_channels = {c}, kernel_size = 3, padding = 1, bias = {bias} }}"#)];
        if self.one_in(2) {
            list.push(r#""batch_norm2d""#.into());
        }
        list.push(self.activation());
        if depth > 0 {
            let (name, body) = (self.name(), self.keeping(c, depth - 1));
            list.push(format!(r#"{{ name = "{name}", type = "residual", layers = [{body}] }}"#));
        }
        list.join(", ")
    }
}

//! Layers that give values another shape or order, take parts of them, or belong to nets of blocks.

use super::layers::{Flow, Layers, MOST};

impl Layers {
    /// Such a layer that fits `flow`, and what it puts out.
    pub fn rearranged(&mut self, flow: Flow) -> (String, Flow) {
        match flow {
            Flow::Vector(f) => self.vector_as(f),
            Flow::Sequence(dims) => self.sequence_as(dims),
            Flow::Image(chw) => self.image_as(chw),
        }
    }

    fn vector_as(&mut self, f: usize) -> (String, Flow) {
        let d = self.divisor(f);
        match self.below(7) {
            5 if f < 100 => {
                let (members, hidden, out) = (1 + self.below(4), 1 + self.below(9), 1 + self.below(6));
                let init = self.of(&["normal", "random_signs", "ones"]);
                let bias = self.of(&["true", "false"]);
                let text = format!(
                    r#"{{ layers = [{{ type = "ensemble_affine", members = {members}, init = "{init}", bias = {bias} }}, {{ type = "linear", out_features = {hidden} }}, "tanh", {{ type = "ensemble_linear", out_features = {out} }}] }}"#
                );
                (text, Flow::Sequence([members, out]))
            }
            0 if f < 400 => {
                (format!(r#"{{ type = "unflatten", unflattened_size = [{d}, -1] }}"#), Flow::Sequence([d, f / d]))
            }
            1 => (format!(r#"{{ type = "reshape", shape = [{d}, 1, -1] }}"#), Flow::Image([d, 1, f / d])),
            2 if f.is_multiple_of(2) => {
                let unit = self.of(&["glu", "swiglu", "geglu"]);
                (format!("\"{unit}\""), Flow::Vector(f / 2))
            }
            3 => (r#"{ type = "rms_norm", eps = 1e-3 }"#.into(), Flow::Vector(f)),
            4 => (r#"{ type = "stochastic_depth", p = 0.2 }"#.into(), Flow::Vector(f)),
            _ => (r#"{ type = "prelu" }"#.into(), Flow::Vector(f)),
        }
    }

    fn sequence_as(&mut self, [l, e]: [usize; 2]) -> (String, Flow) {
        match self.below(15) {
            0 => (r#"{ type = "transpose", dim0 = 1, dim1 = 2 }"#.into(), Flow::Sequence([e, l])),
            1 | 2 => {
                let (out, k) = (1 + self.below((MOST / e).clamp(1, 20)), 1 + self.below(4));
                let text =
                    format!(r#"{{ type = "conv1d", out_channels = {out}, kernel_size = {k}, padding = "same" }}"#);
                (text, Flow::Sequence([out, e]))
            }
            3 => (r#"{ type = "class_token", init_std = 0.5 }"#.into(), Flow::Sequence([l + 1, e])),
            4 => (r#"{ type = "position_embedding" }"#.into(), Flow::Sequence([l, e])),
            5 => (r#"{ type = "mean", dim = 1 }"#.into(), Flow::Vector(e)),
            6 => (r#"{ type = "select", index = -1 }"#.into(), Flow::Vector(e)),
            7 | 8 if e > 1 => {
                let kind = self.of(&["max_pool1d", "avg_pool1d"]);
                (format!(r#"{{ type = "{kind}", kernel_size = 2 }}"#), Flow::Sequence([l, e / 2]))
            }
            9 => {
                let text = r#"{ type = "adaptive_avg_pool1d", output_size = 3 }"#;
                (text.into(), Flow::Sequence([l, 3]))
            }
            10 | 13 if 2 * l * e < MOST => {
                let out = 1 + self.below(8);
                let text =
                    format!(r#"{{ type = "conv_transpose1d", out_channels = {out}, kernel_size = 2, stride = 2 }}"#);
                (text, Flow::Sequence([out, 2 * e]))
            }
            11 | 12 => (r#"{ type = "position_embedding", kind = "sinusoidal" }"#.into(), Flow::Sequence([l, e])),
            _ => (r#"{ type = "layer_scale", init_value = 0.8 }"#.into(), Flow::Sequence([l, e])),
        }
    }

    fn image_as(&mut self, [c, h, w]: [usize; 3]) -> (String, Flow) {
        let same = Flow::Image([c, h, w]);
        let room = (c * (h + 2) * (w + 2)) < MOST;
        match self.below(26) {
            0 => (r#"{ type = "permute", dims = [0, 3, 1, 2] }"#.into(), Flow::Image([w, c, h])),
            1 => {
                let groups = self.divisor(c);
                (format!(r#"{{ type = "channel_shuffle", groups = {groups} }}"#), same)
            }
            2 if c.is_multiple_of(4) => {
                (r#"{ type = "pixel_shuffle", upscale_factor = 2 }"#.into(), Flow::Image([c / 4, 2 * h, 2 * w]))
            }
            3 if h.is_multiple_of(2) && w.is_multiple_of(2) => {
                (r#"{ type = "pixel_unshuffle", downscale_factor = 2 }"#.into(), Flow::Image([4 * c, h / 2, w / 2]))
            }
            4 | 5 if room && h > 1 && w > 1 => {
                let kind = self.of(&["zero_pad2d", "reflection_pad2d", "replication_pad2d"]);
                (format!(r#"{{ type = "{kind}", padding = 1 }}"#), Flow::Image([c, h + 2, w + 2]))
            }
            6 if h * w > 1 => (r#"{ type = "instance_norm2d", eps = 1e-3 }"#.into(), same),
            7 => (r#"{ type = "roll", shifts = [1, -2], dims = [2, 3] }"#.into(), same),
            8 => (r#"{ type = "chunk", chunks = 2, index = 0, dim = 2 }"#.into(), Flow::Image([c, h.div_ceil(2), w])),
            9 if w > 1 => (r#"{ type = "slice", dim = 3, start = 1 }"#.into(), Flow::Image([c, h, w - 1])),
            10 => (r#"{ type = "sum", dim = 2, keepdim = true }"#.into(), Flow::Image([c, 1, w])),
            11 => (r#"{ type = "mean", dim = [2, 3] }"#.into(), Flow::Vector(c)),
            12 if c * h * w <= 60 => {
                (r#"{ type = "reshape", shape = [-1, 1] }"#.into(), Flow::Sequence([c * h * w, 1]))
            }
            13 => (r#"{ type = "layer_scale", init_value = 0.9 }"#.into(), same),
            14 | 15 if 4 * c * h * w < MOST => {
                let out = 1 + self.below((MOST / (4 * h * w)).clamp(1, 12));
                let bias = self.of(&["true", "false"]);
                let text = format!(
                    r#"{{ type = "conv_transpose2d", out_channels = {out}, kernel_size = 3, stride = 2, padding = 1, output_padding = 1, bias = {bias} }}"#
                );
                (text, Flow::Image([out, 2 * h, 2 * w]))
            }
            16 if 4 * c * h * w < MOST => {
                let mode = self.of(&["nearest", "bilinear"]);
                (
                    format!(r#"{{ type = "upsample", scale_factor = 2, mode = "{mode}" }}"#),
                    Flow::Image([c, 2 * h, 2 * w]),
                )
            }
            17 if 20 * c < MOST => {
                let text = r#"{ type = "upsample", size = [4, 5], mode = "bilinear", align_corners = true }"#;
                (text.into(), Flow::Image([c, 4, 5]))
            }
            23 | 24 if c <= 12 => {
                let (heads, shift) = (self.divisor(c), self.below(2));
                let text = format!(
                    r#"{{ layers = [{{ type = "permute", dims = [0, 2, 3, 1] }}, {{ type = "shifted_window_attention", window_size = [2, 3], shift_size = {shift}, num_heads = {heads}, dropout = 0.1 }}, {{ type = "permute", dims = [0, 3, 1, 2] }}] }}"#
                );
                (text, same)
            }
            25 if 8 * c * h * w < MOST => {
                let text = r#"{ layers = [{ type = "permute", dims = [0, 2, 3, 1] }, "merge_patches", { type = "permute", dims = [0, 3, 1, 2] }] }"#;
                (text.into(), Flow::Image([4 * c, h.div_ceil(2), w.div_ceil(2)]))
            }
            20 | 21 if c <= 60 => (r#"{ type = "flatten", start_dim = 2 }"#.into(), Flow::Sequence([c, h * w])),
            19 => (r#"{ type = "local_response_norm", size = 3, alpha = 0.5 }"#.into(), same),
            18 => (r#"{ type = "adaptive_max_pool2d", output_size = [3, 2] }"#.into(), Flow::Image([c, 3, 2])),
            _ => (r#"{ type = "stochastic_depth", p = 0.3, mode = "batch" }"#.into(), same),
        }
    }
}

//! Learning rates by depth.

use std::collections::HashSet;

/// The learning rate of the parameters in one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerRate {
    /// The layer's name.
    pub layer: String,
    /// Its share of the section's rate.
    pub share: f64,
}

/// Which layer each parameter is in. Each block of a stack is a layer.
pub struct Layers<'a> {
    /// The names of groups that have numbered groups in them, at any depth.
    stacks: HashSet<&'a str>,
}

impl<'a> Layers<'a> {
    /// Those of a model whose parameters these are.
    pub fn new(parameters: impl Iterator<Item = &'a str>) -> Self {
        let mut stacks = HashSet::new();
        for name in parameters {
            let dots: Vec<usize> = name.match_indices('.').map(|(at, _)| at).collect();
            // A group has a layer in it, and that a parameter.
            for two in dots.windows(2).take(dots.len().saturating_sub(2)) {
                if is_numbered(&name[two[0] + 1..two[1]]) {
                    stacks.extend(dots.iter().take_while(|dot| **dot <= two[0]).map(|dot| &name[..*dot]));
                }
            }
        }
        Layers { stacks }
    }

    /// The layer that a parameter is in: a block of a stack, a layer beside a stack, or else one of the model's own layers.
    pub fn of<'b>(&self, parameter: &'b str) -> &'b str {
        let mut layer = "";
        for (at, _) in parameter.match_indices('.') {
            layer = &parameter[..at];
            let last = layer.rsplit('.').next().unwrap_or_default();
            if is_numbered(last) || !self.stacks.contains(layer) {
                break;
            }
        }
        layer
    }

    /// What a factor makes of the learning rates of the layers of these parameters, the lowest first.
    pub fn rates(&self, decay: f64, parameters: impl Iterator<Item = &'a str>) -> Vec<LayerRate> {
        let mut layers: Vec<&str> = Vec::new();
        for layer in parameters.map(|name| self.of(name)) {
            if !layers.contains(&layer) {
                layers.push(layer);
            }
        }
        let all = layers.len();
        let rate =
            |(i, layer): (usize, &str)| LayerRate { layer: layer.to_owned(), share: decay.powi((all - 1 - i) as i32) };
        layers.into_iter().enumerate().map(rate).collect()
    }
}

/// Whether a group has the name of a copy of a block: a number, or one after `_`.
fn is_numbered(name: &str) -> bool {
    let number = name.rsplit('_').next().unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(names: &[&'static str]) -> Vec<(String, f64)> {
        let layers = Layers::new(names.iter().copied());
        let rates = layers.rates(0.5, names.iter().copied());
        rates.into_iter().map(|LayerRate { layer, share }| (layer, share)).collect()
    }

    fn named(names: &[&'static str]) -> Vec<String> {
        shares(names).into_iter().map(|(layer, _)| layer).collect()
    }

    #[test]
    fn blocks_of_a_stack_are_layers() {
        let gpt = ["wte.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.bias", "h.1.ln_1.weight", "ln_f.weight"];
        let wanted = [("wte", 0.125), ("h.0", 0.25), ("h.1", 0.5), ("ln_f", 1.0)];
        assert_eq!(shares(&gpt), wanted.map(|(layer, share)| (layer.to_owned(), share)));
        let llama =
            ["model.embed.weight", "model.layers.0.mlp.up.weight", "model.layers.1.mlp.up.weight", "model.norm.weight"];
        assert_eq!(named(&llama), ["model.embed", "model.layers.0", "model.layers.1", "model.norm"]);
        let vit = [
            "class_token",
            "encoder.layers.encoder_layer_0.ln_1.weight",
            "encoder.layers.encoder_layer_1.ln_1.weight",
            "encoder.ln.weight",
        ];
        assert_eq!(named(&vit), ["", "encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_1", "encoder.ln"]);
        let resnet = [
            "conv1.weight",
            "layer1.0.conv1.weight",
            "layer1.0.downsample.0.weight",
            "layer1.1.conv1.weight",
            "fc.bias",
        ];
        assert_eq!(named(&resnet), ["conv1", "layer1.0", "layer1.1", "fc"]);
    }

    #[test]
    fn what_is_no_stack_is_one_layer() {
        // Layers that have numbers for names, as those without a name have, are no groups.
        assert_eq!(named(&["features.0.weight", "features.3.weight", "fc.weight"]), ["features", "fc"]);
        assert_eq!(named(&["0.weight", "2.1.weight", "2.1.0.weight"]), ["0", "2"]);
        assert_eq!(named(&["mlp.fc_1.weight", "mlp.fc_2.weight", "scale"]), ["mlp", ""]);
    }
}

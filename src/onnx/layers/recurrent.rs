//! Recurrent layers. ONNX has both directions in one operator, gates in another order, and positions before samples.

use crate::config::LayerNode;
use crate::config::language::layers::{Gru, Lstm, Rnn, RnnNonlinearity};
use crate::onnx::graph::{int, word, words};
use crate::onnx::proto::DataType;
use crate::onnx::{Translator, Value};

/// What the three kinds have in common.
pub(super) struct Stack {
    op: &'static str,
    /// PyTorch's gates in ONNX's order.
    gates: &'static [usize],
    activation: Option<&'static str>,
    hidden: usize,
    layers: usize,
    bias: bool,
    directions: usize,
}

impl Stack {
    fn new(op: &'static str, gates: &'static [usize], sizes: [usize; 2], bias: bool, bidirectional: bool) -> Stack {
        let [hidden, layers] = sizes;
        Stack { op, gates, activation: None, hidden, layers, bias, directions: 1 + usize::from(bidirectional) }
    }
}

impl From<&Lstm> for Stack {
    fn from(l: &Lstm) -> Stack {
        Stack::new("LSTM", &[0, 3, 1, 2], [l.hidden_size, l.num_layers], l.bias, l.bidirectional)
    }
}

impl From<&Gru> for Stack {
    fn from(l: &Gru) -> Stack {
        Stack::new("GRU", &[1, 0, 2], [l.hidden_size, l.num_layers], l.bias, l.bidirectional)
    }
}

impl From<&Rnn> for Stack {
    fn from(l: &Rnn) -> Stack {
        let activation = (l.nonlinearity == RnnNonlinearity::Relu).then_some("Relu");
        Stack { activation, ..Stack::new("RNN", &[0], [l.hidden_size, l.num_layers], l.bias, l.bidirectional) }
    }
}

impl Translator<'_> {
    pub(super) fn recurrent(&mut self, node: &LayerNode, of: &Stack, x: &Value) -> String {
        let lengths = self.lengths(&x.name).map(|lengths| {
            let whole = [int("to", DataType::Int32 as i64)];
            self.graph.op("Cast", &[&lengths], whole)
        });
        let mut made = x.name.clone();
        for layer in 0..of.layers {
            let [weight, state] = ["weight_ih", "weight_hh"].map(|name| self.both(node, of, layer, &[name]));
            let bias = of.bias.then(|| self.both(node, of, layer, &["bias_ih", "bias_hh"]));
            let given = self.permuted(&made, &[1, 0, 2]);
            let mut inputs = vec![given.as_str(), &weight, &state, bias.as_deref().unwrap_or_default()];
            inputs.extend(lengths.as_deref());
            let mut attributes = vec![int("hidden_size", of.hidden as i64)];
            if of.directions > 1 {
                attributes.push(word("direction", "bidirectional"));
            }
            if of.op == "GRU" {
                attributes.push(int("linear_before_reset", 1));
            }
            attributes.extend(of.activation.map(|act| words("activations", &vec![act; of.directions])));
            let [states] = self.graph.ops(of.op, &inputs, attributes);
            // Positions, directions, samples, numbers.
            let states = self.permuted(&states, &[2, 0, 1, 3]);
            made = self.graph.reshape(&states, &[0, x.shape[1], of.directions * of.hidden]);
        }
        made
    }

    /// The parameters of a layer, gates in ONNX's order, one after the other, and the directions one above the other.
    fn both(&mut self, node: &LayerNode, of: &Stack, layer: usize, names: &[&str]) -> String {
        let ends = ["", "_reverse"].into_iter().take(of.directions);
        let directions: Vec<String> = ends
            .map(|end| {
                let parts: Vec<String> = names
                    .iter()
                    .flat_map(|name| {
                        let all = self.parameter(node, &format!("{name}_l{layer}{end}"));
                        let gate = |gate: &usize| match of.gates.len() {
                            1 => all.clone(),
                            _ => self.graph.slice(&all, 0, gate * of.hidden, (gate + 1) * of.hidden),
                        };
                        of.gates.iter().map(gate).collect::<Vec<String>>()
                    })
                    .collect();
                let one = self.joined(&parts, 0);
                let axes = self.graph.list(&[0]);
                self.graph.op("Unsqueeze", &[&one, &axes], [])
            })
            .collect();
        self.joined(&directions, 0)
    }

    /// Values one after the other in an axis.
    pub(super) fn joined(&mut self, parts: &[String], axis: i64) -> String {
        self.graph.joined(parts, axis)
    }
}

//! What the rules of `init` make of the start of a parameter: the formulas of `torch.nn.init`.

use super::Builder;
use crate::config::language::sections::{FanMode, Init};
use crate::config::{Diagnostic, LayerNode};
use crate::graph::{Fill, Shape};

/// The number of a weight's inputs and that of its outputs, its kernel's elements counted: what PyTorch calls fans. `None` where a
/// parameter has fewer than two dimensions.
fn fans(outside: &Shape) -> Option<[f64; 2]> {
    let [outputs, inputs, kernel @ ..] = outside.dims() else { return None };
    let field: usize = kernel.iter().product();
    Some([*inputs, *outputs].map(|n| (n.max(1) * field.max(1)) as f64))
}

fn normal(mean: f64, std: f64) -> Fill {
    if std == 0.0 { Fill::Constant(mean) } else { Fill::Normal { mean, std } }
}

/// How a parameter of that shape in PyTorch starts; `None` if that depends on fans, and there are none.
fn fill(init: &Init, outside: &Shape) -> Option<Fill> {
    let fan = |mode: FanMode| {
        let [inputs, outputs] = fans(outside)?;
        Some(if mode == FanMode::FanIn { inputs } else { outputs })
    };
    let both = || fans(outside).map(|[inputs, outputs]| inputs + outputs);
    Some(match init {
        Init::Zeros(_) => Fill::Constant(0.0),
        Init::Ones(_) => Fill::Constant(1.0),
        Init::Constant(c) => Fill::Constant(c.val),
        Init::Uniform(u) => Fill::Between { low: u.a, high: u.b },
        Init::Normal(n) => normal(n.mean, n.std),
        Init::TruncNormal(n) => Fill::TruncatedNormal { std: n.std, low: n.a, high: n.b },
        Init::XavierUniform(x) => Fill::Uniform { bound: x.gain * (6.0 / both()?).sqrt() },
        Init::XavierNormal(x) => normal(0.0, x.gain * (2.0 / both()?).sqrt()),
        Init::KaimingUniform(k) => Fill::Uniform { bound: k.nonlinearity.gain(k.a) * (3.0 / fan(k.mode)?).sqrt() },
        Init::KaimingNormal(k) => normal(0.0, k.nonlinearity.gain(k.a) / fan(k.mode)?.sqrt()),
    })
}

impl Builder<'_> {
    /// How the parameter `name` of the layer `node` starts: as the first rule of `init` says that is for it, else as is `usual`.
    pub(super) fn start(&mut self, node: &LayerNode, name: &str, outside: &Shape, usual: Fill) -> Fill {
        let rules = &self.experiment.model.init;
        let Some(rule) = rules.iter().find(|rule| rule.fits(node.kind_name(), name)) else { return usual };
        fill(&rule.init, outside).unwrap_or_else(|| {
            let message = format!(
                "a rule of `init` goes by the numbers of inputs and outputs, which `{name}` of shape {outside} does not have"
            );
            let error = Diagnostic::error(message)
                .at(rule.span, "is for it")
                .context(node.span, "of this layer")
                .help("`match = [\"*.weight\"]` leaves biases to other rules");
            self.report(error);
            usual
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::language::sections::{KaimingNormal, KaimingUniform, Nonlinearity, XavierUniform};

    /// A kernel of 3 × 5 from 4 to 8 channels: 60 inputs, 120 outputs.
    #[test]
    fn fans_count_the_elements_of_the_kernel() {
        let shape = Shape::from([8, 4, 3, 5]);
        assert_eq!(fans(&shape), Some([60.0, 120.0]));
        assert_eq!(fans(&Shape::from([8])), None);
        let (a, mode, nonlinearity) = (0.0, FanMode::FanOut, Nonlinearity::Relu);
        let kaiming = Init::KaimingNormal(KaimingNormal { a, mode, nonlinearity });
        assert_eq!(fill(&kaiming, &shape), Some(Fill::Normal { mean: 0.0, std: 2f64.sqrt() / 120f64.sqrt() }));
        // What PyTorch starts a convolution with.
        let (a, mode, nonlinearity) = (5f64.sqrt(), FanMode::FanIn, Nonlinearity::LeakyRelu);
        let usual = fill(&Init::KaimingUniform(KaimingUniform { a, mode, nonlinearity }), &shape);
        let Some(Fill::Uniform { bound }) = usual else { panic!("{usual:?}") };
        assert!((bound - 1.0 / 60f64.sqrt()).abs() < 1e-15);
        let xavier = Init::XavierUniform(XavierUniform { gain: 2.0 });
        assert_eq!(fill(&xavier, &shape), Some(Fill::Uniform { bound: 2.0 * (6.0 / 180f64).sqrt() }));
        assert_eq!(fill(&xavier, &Shape::from([8])), None);
    }
}

//! Adds Muon's update of one parameter: its iteration as products of matrices, which every device has kernels for.

use crate::graph::op::{
    Clipping, Linear, LinearGradInput, LinearGradWeight, MuonPolynomial, MuonStart, MuonStep, StepLength,
    TensorOptions, as_matrix,
};
use crate::graph::{Graph, Shape, ShapeError, ValueId, VarId};

/// Muon (Jordan 2024): the rule of some parameters; that of the others is the [`super::update_spec::UpdateSpec`]'s own.
#[derive(Debug, Clone, PartialEq)]
pub struct Muon {
    /// Share of the momentum that an update keeps.
    pub momentum: f64,
    /// Look ahead.
    pub nesterov: bool,
    /// `a`, `b`, `c` of the iteration `X ← (a · I + b · XXᵀ + c · (XXᵀ)²) · X`.
    pub coefficients: [f32; 3],
    /// How often.
    pub steps: usize,
    /// Least norm that a direction is divided by.
    pub eps: f32,
    /// Length of the steps.
    pub length: StepLength,
    /// The parameters that it updates.
    pub parameters: Vec<VarId>,
}

/// Its state, in the names of variables.
pub const MOMENTUM_SLOT: &str = "momentum_buffer";

impl Muon {
    /// Adds the update of `parameter` by `gradient`, with its `momentum` buffer. `head` is the operands that `clipping` has.
    ///
    /// # Errors
    /// The shapes differ (a bug of the gradient pass).
    pub fn add(
        &self,
        graph: &mut Graph,
        (clipping, head): (Clipping, &[ValueId]),
        options: TensorOptions,
        [parameter, gradient, momentum]: [ValueId; 3],
    ) -> Result<(), ShapeError> {
        let with = |values: [ValueId; 2]| head.iter().copied().chain(values).collect::<Vec<_>>();
        let start = MuonStart { clipping, momentum: self.momentum, nesterov: self.nesterov, eps: self.eps };
        let mut x = graph.add1(start, &with([gradient, momentum]))?;
        for _ in 0..self.steps {
            x = self.iterated(graph, x)?;
        }
        let matrix = as_matrix(graph.shape(parameter));
        let length = self.length.factor(matrix) as f32;
        graph.add(MuonStep { clipping, length, options }, &with([x, parameter])).map(|_| ())
    }

    /// One step of the iteration. The squares are made of the shorter side: `p(XXᵀ) · X` is `X · p(XᵀX)`, and all of these are
    /// symmetric, so that it does not matter which operand of a product is transposed.
    fn iterated(&self, graph: &mut Graph, x: ValueId) -> Result<ValueId, ShapeError> {
        let [rows, columns] = as_matrix(graph.shape(x));
        let linear = Linear { bias: false };
        let wide = rows <= columns;
        let gram = if wide {
            graph.add1(linear.clone(), &[x, x])?
        } else {
            graph.add1(LinearGradWeight { bias: false }, &[x, x])?
        };
        debug_assert_eq!(graph.shape(gram), &Shape::from([rows.min(columns); 2]));
        let square = graph.add1(linear.clone(), &[gram, gram])?;
        let factor = graph.add1(MuonPolynomial { coefficients: self.coefficients }, &[gram, square])?;
        if wide { graph.add1(LinearGradInput {}, &[factor, x]) } else { graph.add1(linear, &[x, factor]) }
    }
}

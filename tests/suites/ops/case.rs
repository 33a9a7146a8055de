//! A case: one operation, with drawn operands.

use half::{bf16, f16};
use runner::backend::reference::Values;
use runner::graph::op::{Activation, ActivationOp, Fused, Source};
use runner::graph::{DType, Graph, Input, Op, Role, Shape, Value, ValueId, VarKind, Variable, Variables, verify};
use runner::passes::grad::backward;
use runner::random::{Purpose, Stream, hash_name};

/// An operand with its elements. All numbers are exact in the operand's type.
#[derive(Clone)]
pub struct Operand {
    pub dtype: DType,
    pub shape: Shape,
    pub data: Vec<f64>,
    /// The gradient by this operand is wanted.
    pub wrt: bool,
    /// It comes in the batch slot; otherwise it is a variable.
    pub input: Option<Input>,
}

impl Operand {
    pub fn new(dtype: DType, shape: impl Into<Shape>, data: Vec<f64>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.len(), data.len());
        Operand { dtype, shape, data, wrt: false, input: None }
    }

    /// Asks for the gradient by this operand.
    pub fn wrt(mut self) -> Self {
        self.wrt = true;
        self
    }

    /// Makes it part of the batch slot.
    pub fn input(mut self, input: Input) -> Self {
        self.input = Some(input);
        self
    }

    /// The same operand as floats of type `to`.
    pub fn cast(&self, to: DType) -> Self {
        assert!(self.dtype.is_activation());
        let data = self.data.iter().map(|v| nearest(to, *v)).collect();
        Operand { dtype: to, data, ..self.clone() }
    }

    /// Applies `f` to every element.
    pub fn map(mut self, f: impl Fn(f64) -> f64) -> Self {
        for v in &mut self.data {
            *v = round(f(*v));
        }
        self
    }
}

/// The nearest number of a float type.
fn nearest(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::BF16 => bf16::from_f64(x).to_f64(),
        DType::F16 => f16::from_f64(x).to_f64(),
        _ => round(x),
    }
}

/// The nearest 32-bit float.
fn round(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Draws operands.
pub struct Draw(Stream);

impl Draw {
    pub fn new(name: &str) -> Self {
        Draw(Stream::new(1, Purpose::Synthetic, hash_name(name), 0))
    }

    /// An integer in `from ..= to`.
    pub fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.0.below((to - from + 1) as u32) as usize
    }

    pub fn coin(&mut self) -> bool {
        self.0.below(2) == 1
    }

    pub fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    fn floats(&mut self, shape: impl Into<Shape>, mut f: impl FnMut(&mut Stream) -> f64) -> Operand {
        let shape = shape.into();
        let data = (0..shape.len()).map(|_| round(f(&mut self.0))).collect();
        Operand::new(DType::F32, shape, data)
    }

    /// Standard normal floats.
    pub fn normal(&mut self, shape: impl Into<Shape>) -> Operand {
        self.floats(shape, Stream::normal)
    }

    /// Floats between a half and two.
    pub fn positive(&mut self, shape: impl Into<Shape>) -> Operand {
        self.floats(shape, |s| 0.5 + 1.5 * s.uniform())
    }

    /// Floats that are at least a tenth apart, in random order.
    pub fn distinct(&mut self, shape: impl Into<Shape>) -> Operand {
        let shape = shape.into();
        let mut data: Vec<f64> = (0..shape.len()).map(|i| round(i as f64 * 0.1 - shape.len() as f64 * 0.05)).collect();
        self.0.shuffle(&mut data);
        Operand::new(DType::F32, shape, data)
    }

    /// Whole numbers below `n` of type `dtype`.
    pub fn below(&mut self, dtype: DType, shape: impl Into<Shape>, n: u32) -> Operand {
        let mut operand = self.floats(shape, |s| f64::from(s.below(n)));
        operand.dtype = dtype;
        operand
    }
}

#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub op: Op,
    pub operands: Vec<Operand>,
    /// The operation has derivatives all around its operands, so that differences make sense.
    pub smooth: bool,
}

/// A case as a graph: the operation and, if a gradient is wanted, its backward pass under a random gradient of the
/// first output.
pub struct Built {
    pub graph: Graph,
    pub variables: Variables,
    /// The elements of everything that no node computes.
    pub values: Values,
    /// The operands, in order.
    pub operands: Vec<ValueId>,
    /// The first output and its given gradient, if a gradient is wanted.
    pub seed: Option<(ValueId, ValueId)>,
    /// The operands whose gradients are wanted, each with its gradient.
    pub grads: Vec<(ValueId, ValueId)>,
}

impl Case {
    /// The case of `op` on what `operands` draws. Draws depend on the name alone.
    pub fn new(name: impl Into<String>, op: impl Into<Op>, operands: impl FnOnce(&mut Draw) -> Vec<Operand>) -> Self {
        let name = name.into();
        let operands = operands(&mut Draw::new(&name));
        Case { name, op: op.into(), operands, smooth: true }
    }

    /// Not to be checked by differences: some operand lies at a kink, or there are too many.
    pub fn kinked(mut self) -> Self {
        self.smooth = false;
        self
    }

    /// The case of its operation with `act` after it; without gradients, since groups have no gradient rule.
    pub fn activated(mut self, act: Option<Activation>) -> Self {
        self.operands.iter_mut().for_each(|o| o.wrt = false);
        let outputs = self.outputs().len();
        if let Some(act) = act {
            let group = Fused::of(self.op, self.operands.len()).then(ActivationOp { act }, vec![Source::Step(0)]);
            self.op = (1..outputs).fold(group, |group, output| group.with_result(0, output)).into();
        }
        self
    }

    /// Types and shapes of the operation's results.
    pub fn outputs(&self) -> Vec<(DType, Shape)> {
        let value = |o: &Operand| Value::new(o.dtype, o.shape.clone(), Role::Temporary);
        let values: Vec<Value> = self.operands.iter().map(value).collect();
        let values: Vec<&Value> = values.iter().collect();
        self.op.rules().infer(&values).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    pub fn build(&self) -> Built {
        let mut graph = Graph::new();
        let mut variables = Variables::new();
        let mut values = Values::new();
        let mut add = |graph: &mut Graph, name: String, operand: &Operand| {
            let id = match operand.input {
                Some(input) => graph.input(input, operand.dtype, operand.shape.clone()),
                None => {
                    let var = variables.get_or_add(variable(name, operand));
                    graph.variable(&variables, var)
                }
            };
            values.insert(id, operand.data.clone());
            id
        };
        let operands: Vec<ValueId> =
            self.operands.iter().enumerate().map(|(i, o)| add(&mut graph, format!("operand{i}"), o)).collect();
        let outputs = graph.add(self.op.clone(), &operands).unwrap_or_else(|e| panic!("{}: {e}", self.name));

        let wrt: Vec<ValueId> = operands.iter().zip(&self.operands).filter(|(_, o)| o.wrt).map(|(id, _)| *id).collect();
        let mut seed = None;
        let mut grads = Vec::new();
        if !wrt.is_empty() {
            let y = graph.value(outputs[0]).clone();
            let dy = Draw::new(&format!("{} (gradient)", self.name)).normal(y.shape).cast(y.dtype);
            let dy = add(&mut graph, "gradient".into(), &dy);
            seed = Some((outputs[0], dy));
            let found =
                backward(&mut graph, &[(outputs[0], dy)], &wrt).unwrap_or_else(|e| panic!("{}: {e}", self.name));
            let found = found.into_iter().map(|g| g.unwrap_or_else(|| panic!("{}: no gradient", self.name)));
            grads = wrt.into_iter().zip(found).collect();
        }
        for node in &graph.nodes {
            for output in &node.outputs {
                graph.values[output.index()].role = Role::Output;
            }
        }
        verify(&graph).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        Built { graph, variables, values, operands, seed, grads }
    }
}

fn variable(name: String, operand: &Operand) -> Variable {
    let kind = if operand.wrt { VarKind::Parameter } else { VarKind::Buffer };
    Variable { trainable: operand.wrt, ..Variable::zeros(name, operand.dtype, operand.shape.clone(), kind) }
}

//! The intermediate representation: a static, typed graph of mid-level operations.
//!
//! A [`Graph`] is a list of [`Node`]s in execution order over a list of [`Value`]s. It knows no device and no
//! configuration file. Values that persist from step to step (parameters, optimizer state, running statistics) are
//! [`Variable`]s, kept in a [`Variables`] table that several graphs (training, evaluation, the smaller last batch) share.
//!
//! Images are channels-last inside: a batch of images has the shape `[N, H, W, C]`. The layout of a
//! variable outside (PyTorch's) is described by its [`Storage`].

mod fill;
mod holder;
pub mod op;
mod print;
mod rounds;
mod types;
mod variable;
mod verify;

pub use fill::{Angles, Counting, Fill, Scaling};
pub use holder::Holder;
pub use op::{Op, OpRules, ShapeError};
pub use rounds::Rounds;
pub use types::{DType, MAX_ELEMENTS, Shape};
pub use variable::{PIECE, Piece, Storage, VarId, VarKind, Variable, Variables};
pub use verify::verify;

use std::collections::HashMap;

/// Index of a [`Value`] in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

/// Index of a [`Node`] in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl ValueId {
    /// The index as `usize`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The index as `usize`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The role of a value in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Filled from a batch slot before the program runs.
    Input(Input),
    /// Likewise, of this shard, from 1 on, of those that a program computes together. The first one's are those above.
    ShardInput(Input, u32),
    /// A trainable (or frozen) parameter.
    Parameter(VarId),
    /// Anything else that persists: running statistics, optimizer state, accumulated gradients and metrics.
    State(VarId),
    /// Lives within one run of the program.
    Temporary,
    /// A temporary that is read by the host after the run.
    Output,
}

/// The inputs that a batch slot carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// The samples' field of this number, `[N, …]`: what the model takes, or what it learns.
    Field(u32),
    /// `F32 [N, C]`: the share of each class in a sample of training, where samples are mixed.
    Shares,
    /// `F32 [4]`: learning rate, gradient scale (1 / accumulated micro-batches), loss scale, floor of the
    /// learning rate (the part of it that groups of parameters have in common).
    Schedule,
    /// `F32 [4]`: the same for the update of moving averages: the share of the new value, −1, 1, 0.
    Averaging,
    /// `I32 [4]`: where a shard's sums go ([`op::ShardSum`]).
    Shard,
    /// `U32 [4]`: seed (low, high word), micro-step counter (low, high word). Keys every random draw of the step.
    Random,
}

/// A tensor of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Element type.
    pub dtype: DType,
    /// Shape, channels last for images.
    pub shape: Shape,
    /// Where it lives.
    pub role: Role,
    /// In memory it is rounded to `BF16`: its nodes round what they write, and read it as if it were `F32`, which `dtype` says.
    pub narrow: bool,
}

impl Value {
    /// A value that no other type stands for in memory.
    pub fn new(dtype: DType, shape: Shape, role: Role) -> Value {
        Value { dtype, shape, role, narrow: false }
    }

    /// The element type in memory.
    pub fn stored(&self) -> DType {
        if self.narrow { DType::BF16 } else { self.dtype }
    }

    /// Size in bytes, without padding.
    pub fn bytes(&self) -> usize {
        self.shape.len().saturating_mul(self.stored().bytes())
    }
}

/// Which of its operands a kernel can read, and which of its results it can write, rounded to `BF16`: their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrow {
    /// Operands.
    pub reads: Vec<usize>,
    /// Results.
    pub writes: Vec<usize>,
}

/// What the kernel of a node can read and write so.
pub type Narrows = fn(&Graph, &Node) -> Narrow;

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Its operands. An operand that [`OpRules::mutates`] names is updated in place.
    pub inputs: Vec<ValueId>,
    /// Its results, all new values.
    pub outputs: Vec<ValueId>,
    /// The layer it came from, for [`Graph::origin`].
    pub origin: u32,
    /// True for nodes that the gradient and optimizer passes made.
    pub backward: bool,
}

/// Operations in execution order over typed values.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// All values.
    pub values: Vec<Value>,
    /// All operations, in the order in which they run.
    pub nodes: Vec<Node>,
    /// Paths of the layers that nodes came from (`features.0`); index 0 is the empty path.
    origins: Vec<String>,
    /// The index of each path in `origins`, and of each input and variable in `values`: models have many thousand layers,
    /// and every node looks one up.
    origin_of: HashMap<String, u32>,
    inputs: HashMap<Input, ValueId>,
    variables: HashMap<VarId, ValueId>,
    /// The origin given to nodes that are added now.
    pub current_origin: u32,
    /// True while nodes that are added belong to the backward pass.
    pub in_backward: bool,
}

impl Default for Graph {
    fn default() -> Self {
        Graph {
            values: Vec::new(),
            nodes: Vec::new(),
            origins: vec![String::new()],
            origin_of: HashMap::from([(String::new(), 0)]),
            inputs: HashMap::new(),
            variables: HashMap::new(),
            current_origin: 0,
            in_backward: false,
        }
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Graph::default()
    }

    /// The value after `id`.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The shape of `id`.
    pub fn shape(&self, id: ValueId) -> &Shape {
        &self.values[id.index()].shape
    }

    /// Adds a value that no node computes.
    pub fn add_value(&mut self, dtype: DType, shape: Shape, role: Role) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        match role {
            Role::Input(input) => _ = self.inputs.entry(input).or_insert(id),
            Role::Parameter(var) | Role::State(var) => _ = self.variables.entry(var).or_insert(id),
            Role::ShardInput(_, _) | Role::Temporary | Role::Output => {}
        }
        self.values.push(Value::new(dtype, shape, role));
        id
    }

    /// The value that stands for batch input `input`, added on first use.
    pub fn input(&mut self, input: Input, dtype: DType, shape: Shape) -> ValueId {
        match self.inputs.get(&input) {
            Some(id) => *id,
            None => self.add_value(dtype, shape, Role::Input(input)),
        }
    }

    /// The value that stands for variable `id`, added on first use.
    pub fn variable(&mut self, vars: &Variables, id: VarId) -> ValueId {
        if let Some(v) = self.find_variable(id) {
            return v;
        }
        let var = &vars[id];
        let role = if var.kind == VarKind::Parameter { Role::Parameter(id) } else { Role::State(id) };
        self.add_value(var.dtype, var.shape_here(), role)
    }

    /// The value that stands for variable `id`, if the graph uses it.
    pub fn find_variable(&self, id: VarId) -> Option<ValueId> {
        self.variables.get(&id).copied()
    }

    /// Sets the origin (a layer's path) of the nodes added from now on.
    pub fn set_origin(&mut self, path: &str) {
        self.current_origin = self.origin_of.get(path).copied().unwrap_or_else(|| {
            let at = self.origins.len() as u32;
            self.origins.push(path.to_string());
            self.origin_of.insert(path.to_string(), at);
            at
        });
    }

    /// Appends `op` on `inputs`, infers its outputs and returns them.
    ///
    /// # Errors
    /// The operation's shape rule refuses the inputs.
    pub fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, ShapeError> {
        let op = op.into();
        let infos: Vec<&Value> = inputs.iter().map(|i| self.value(*i)).collect();
        let outputs = op.rules().infer(&infos)?;
        for shape in infos.iter().map(|v| &v.shape).chain(outputs.iter().map(|(_, s)| s)) {
            if shape.len() > MAX_ELEMENTS {
                let name = op.rules().name();
                return Err(ShapeError::new(format!(
                    "`{name}` would need a value of shape {}: too large",
                    shape.to_pytorch()
                )));
            }
        }
        let outputs: Vec<ValueId> =
            outputs.into_iter().map(|(dtype, shape)| self.add_value(dtype, shape, Role::Temporary)).collect();
        self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            origin: self.current_origin,
            backward: self.in_backward,
        });
        Ok(outputs)
    }

    /// [`Graph::add`] for an operation with one output (or whose first output is wanted).
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn add1(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, ShapeError> {
        Ok(self.add(op, inputs)?[0])
    }

    /// For every value the one whose memory it shares: itself, or the operand that it reshapes.
    pub fn roots(&self) -> Vec<ValueId> {
        let mut root: Vec<ValueId> = (0..self.values.len() as u32).map(ValueId).collect();
        for node in self.nodes.iter().filter(|n| n.op.rules().is_alias()) {
            root[node.outputs[0].index()] = root[node.inputs[0].index()];
        }
        root
    }

    /// The path of the layer that `node` came from.
    pub fn origin(&self, node: &Node) -> &str {
        &self.origins[node.origin as usize]
    }
}

//! Runs one operation on given operands, in every way there is, under the simplest plan.

use crate::backend::Backend;
use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::simd::SimdLevel;
use crate::graph::{DType, Graph, Op, Role, Shape, ValueId, VarKind, Variable, Variables};
use crate::plan::{ALIGN, Place, Plan, Program, Region, SlotInput, SlotLayout};
use crate::random::{Purpose, Stream};
use std::sync::Arc;

/// A tensor of any type, as bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Shape,
    pub bytes: Vec<u8>,
}

macro_rules! accessors {
    ($($make:ident, $get:ident, $t:ty => $d:ident;)*) => {
        impl Tensor { $(
            #[allow(dead_code)]
            pub fn $make(shape: impl Into<Shape>, data: &[$t]) -> Self {
                let shape = shape.into();
                assert_eq!(shape.len(), data.len());
                Tensor { dtype: DType::$d, shape, bytes: data.iter().flat_map(|v| v.to_ne_bytes()).collect() }
            }
            #[allow(dead_code)]
            pub fn $get(&self) -> Vec<$t> {
                assert_eq!(self.dtype, DType::$d);
                self.bytes.chunks(size_of::<$t>()).map(|b| <$t>::from_ne_bytes(b.try_into().unwrap())).collect()
            }
        )* }
    };
}

accessors! {
    from_f32, f32s, f32 => F32;
    from_f64, f64s, f64 => F64;
    from_u8, u8s, u8 => U8;
    from_u32, u32s, u32 => U32;
    from_i32, i32s, i32 => I32;
    from_i64, i64s, i64 => I64;
}

impl Tensor {
    /// Numbers from a normal distribution.
    pub fn normal(shape: impl Into<Shape>, stream: u64) -> Self {
        let shape = shape.into();
        let mut draws = Stream::new(7, Purpose::Synthetic, stream, 0);
        let data: Vec<f32> = (0..shape.len()).map(|_| draws.normal() as f32).collect();
        Tensor::from_f32(shape, &data)
    }

    /// The floats in double precision.
    pub fn doubles(&self) -> Vec<f64> {
        self.f32s().into_iter().map(f64::from).collect()
    }

    /// Each float changed.
    pub fn map(&self, f: impl Fn(f32) -> f32) -> Self {
        Tensor::from_f32(self.shape.clone(), &self.f32s().into_iter().map(f).collect::<Vec<_>>())
    }
}

/// What one run left.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub outputs: Vec<Tensor>,
    /// The operands, some of which were updated.
    pub operands: Vec<Tensor>,
}

/// A place for every value of every graph, none shared but by `merged` pairs (the second takes the first one's place)
/// and by operations that only rename.
pub fn simple_plan(graphs: Vec<Graph>, vars: Variables, backend: &dyn Backend, merged: &[(ValueId, ValueId)]) -> Plan {
    let mut persistent = 0;
    let grow = |end: &mut usize, bytes: usize| {
        *end += bytes.next_multiple_of(ALIGN);
        *end - bytes.next_multiple_of(ALIGN)
    };
    let variable_offsets: Vec<usize> = vars.iter().map(|(_, v)| grow(&mut persistent, v.bytes())).collect();
    let mut slot = SlotLayout::default();
    let mut programs = Vec::new();
    for graph in graphs {
        let mut transient = 0;
        let mut places: Vec<Place> = Vec::new();
        for (i, v) in graph.values.iter().enumerate() {
            let renamed = graph.nodes.iter().find(|n| n.op.rules().is_alias() && n.outputs[0].index() == i);
            let shared = merged.iter().find(|m| m.1.index() == i).map(|m| m.0).or(renamed.map(|n| n.inputs[0]));
            places.push(match (shared, v.role) {
                (Some(other), _) => places[other.index()],
                (_, Role::Parameter(id) | Role::State(id)) => {
                    Place { region: Region::Persistent, offset: variable_offsets[id.0 as usize] }
                }
                (_, Role::Input(input)) => {
                    let have = slot.inputs.iter().find(|x| x.input == input).map(|x| x.offset);
                    let offset = have.unwrap_or_else(|| {
                        let offset = grow(&mut slot.bytes, v.bytes());
                        slot.inputs.push(SlotInput { input, dtype: v.dtype, shape: v.shape.clone(), offset });
                        offset
                    });
                    Place { region: Region::Slot, offset }
                }
                (_, Role::ShardInput(_, _)) => unreachable!("no test has several shards"),
                (_, Role::Temporary | Role::Output) => {
                    Place { region: Region::Transient, offset: grow(&mut transient, v.bytes()) }
                }
            });
        }
        let workspace = graph.nodes.iter().map(|n| backend.workspace(&graph, n)).collect::<Vec<_>>();
        let workspace = workspace.into_iter().map(|b| (grow(&mut transient, b), b)).collect();
        let kept = vec![(0, 0); graph.nodes.len()];
        programs.push(Program {
            name: "test".into(),
            graph,
            places,
            workspace,
            kept,
            transient_bytes: transient,
            loss: None,
            training_loss: None,
            prediction: None,
            peak: Default::default(),
            together: 1,
        });
    }
    Plan {
        variables: Arc::new(vars),
        variable_offsets,
        persistent_bytes: persistent,
        transient_bytes: programs.iter().map(|p| p.transient_bytes).max().unwrap_or(0),
        slot,
        beside: SlotLayout::default(),
        together: 1,
        programs,
        apart: false,
    }
}

/// A variable of no particular kind.
pub fn plain_variable(name: &str, dtype: DType, shape: &Shape) -> Variable {
    Variable::zeros(name, dtype, shape.clone(), VarKind::Buffer)
}

/// Runs `op` once, every operand being a variable; twice in fact, so that what the first run left in the scratch memory
/// must not matter. `in_place`: the first output takes the memory of the operand that the rules name.
fn run_once(op: &Op, operands: &[Tensor], level: SimdLevel, threads: usize, in_place: bool) -> Outcome {
    let mut vars = Variables::new();
    let mut graph = Graph::new();
    let ids: Vec<_> = operands
        .iter()
        .enumerate()
        .map(|(i, t)| vars.get_or_add(plain_variable(&format!("x{i}"), t.dtype, &t.shape)))
        .collect();
    let inputs: Vec<ValueId> = ids.iter().map(|id| graph.variable(&vars, *id)).collect();
    let outputs = graph.add(op.clone(), &inputs).unwrap();
    outputs.iter().for_each(|o| graph.values[o.index()].role = Role::Output);
    let merged: Vec<_> = if in_place { vec![(inputs[op.rules().in_place().unwrap()], outputs[0])] } else { vec![] };

    let backend = CpuBackend::with_level(Some(threads), level);
    let plan = Arc::new(simple_plan(vec![graph.clone()], vars, &backend, &merged));
    let mut exe = backend.compile(plan.clone()).unwrap();
    let batch = backend.host_buffer(plan.slot.bytes).unwrap();
    for _ in 0..2 {
        ids.iter().zip(operands).for_each(|(id, t)| exe.upload(*id, &t.bytes).unwrap());
        exe.run(0, 0, &batch).unwrap();
    }
    let outputs = outputs.iter().map(|o| {
        let v = graph.value(*o);
        let mut bytes = vec![0; v.bytes()];
        exe.output(0, *o, &mut bytes).unwrap();
        Tensor { dtype: v.dtype, shape: v.shape.clone(), bytes }
    });
    let outputs = outputs.collect();
    let after = ids.iter().zip(operands).map(|(id, t)| {
        let mut bytes = vec![0; t.bytes.len()];
        exe.download(*id, &mut bytes).unwrap();
        Tensor { bytes, ..t.clone() }
    });
    Outcome { outputs, operands: after.collect() }
}

/// Runs `op` on every level; checks that threads and in-place outputs change no bit, and that operands which the rules
/// call constant stay as they are.
pub fn run(op: impl Into<Op>, operands: &[Tensor]) -> Vec<Outcome> {
    let op = op.into();
    let name = op.rules().name();
    let mutated = op.rules().mutates(operands.len());
    let level = |level: SimdLevel| {
        let first = run_once(&op, operands, level, 1, false);
        for (i, (before, after)) in operands.iter().zip(&first.operands).enumerate() {
            assert!(mutated.contains(&i) || before == after, "{name} changed operand {i}");
        }
        for threads in [2, 5] {
            assert!(run_once(&op, operands, level, threads, false) == first, "{name}: {threads} threads, {level}");
        }
        if op.rules().in_place().is_some_and(|k| operands[k].bytes.len() == first.outputs[0].bytes.len()) {
            let shared = run_once(&op, operands, level, 2, true);
            assert!(shared.outputs == first.outputs, "{name} in place, {level}");
        }
        first
    };
    SimdLevel::supported().map(level).collect()
}

/// [`run`] for the outputs alone.
pub fn outputs(op: impl Into<Op>, operands: &[Tensor]) -> Vec<Vec<Tensor>> {
    run(op, operands).into_iter().map(|o| o.outputs).collect()
}

/// Asserts `|got − want| ≤ tolerance · (|want| + scale)` for every element.
#[track_caller]
pub fn assert_close(what: &str, got: &Tensor, want: &[f64], tolerance: f64, scale: f64) {
    let got = got.f32s();
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let same = *g as f64 == *w || g.is_nan() && w.is_nan();
        let error = (*g as f64 - w).abs();
        assert!(same || error <= tolerance * (w.abs() + scale), "{what}[{i}]: {g}, not {w} (off by {error:e})");
    }
}

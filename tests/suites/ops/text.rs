//! Operations of text models, held to PyTorch's figures on every backend. `scripts/golden/text.py` makes them.

use crate::case::{Built, Case, Draw, Operand};
use crate::emulator;
use crate::parity::run;
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::cpu::simd::bf16::Bf16Unit;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::Wanted;
use runner::backend::reference::elements::decode;
use runner::backend::reference::{Values, evaluate};
use runner::graph::op::{
    Attention, Binary, BinaryKind, CachedAttention, Cell, Concat, CrossEntropy, Embedding, Linear, LossOp, Recurrent,
    Reshape, Rotary, Slice,
};
use runner::graph::{DType, Graph, Input, Op, Role, Shape, ValueId, VarKind, Variable, Variables, verify};
use runner::passes::grad::backward;
use serde_json::Value;
use std::sync::LazyLock;

/// Error allowed, relative to the largest number of a result.
const TOLERANCE: f64 = 2e-6;

/// The numbers of a case.
struct Golden(&'static Value);

impl Golden {
    fn of(case: &str) -> Golden {
        static ALL: LazyLock<Value> =
            LazyLock::new(|| serde_json::from_str(include_str!("../../golden/text.json")).unwrap());
        Golden(&ALL[case])
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        let list = self.0[name].as_array().unwrap_or_else(|| panic!("no `{name}`"));
        list.iter().map(|x| x.as_f64().unwrap()).collect()
    }

    fn operand(&self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Operand {
        Operand::new(dtype, shape, self.numbers(name))
    }
}

fn backends() -> Vec<Box<dyn Backend>> {
    let cpus = SimdLevel::supported().map(|level| CpuBackend::with_level(Some(2), level));
    let mut list: Vec<Box<dyn Backend>> = cpus.map(|cpu| Box::new(cpu) as Box<dyn Backend>).collect();
    if emulator::ready() {
        list.push(Box::new(CudaBackend::new(0).unwrap().with_libraries(&Wanted::default())));
    }
    list
}

/// Every backend computes `wanted`.
fn check(built: &Built, wanted: &[(&str, ValueId, Vec<f64>)]) {
    for backend in backends() {
        let found = run(backend.as_ref(), built);
        for (name, id, wanted) in wanted {
            let found = decode(DType::F32, &found[id]);
            assert_eq!(found.len(), wanted.len(), "{name}");
            let allowed = TOLERANCE * wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                let fits = (found - wanted).abs() <= allowed;
                assert!(fits, "{}: {name} [{i}] is {found}, not {wanted}", backend.describe());
            }
        }
    }
}

/// The operation's first result, and its gradient by each operand that wants one, under the gradient `dy` of the case.
fn check_case(golden: &Golden, case: &Case, y: &str, grads: &[&str]) {
    let mut built = case.build();
    let (result, dy) = built.seed.expect("a gradient is wanted");
    built.values.insert(dy, golden.numbers("dy"));
    let mut wanted = vec![("y", result, golden.numbers(y))];
    wanted.extend(grads.iter().zip(&built.grads).map(|(name, (_, grad))| (*name, *grad, golden.numbers(name))));
    assert_eq!(wanted.len(), 1 + built.grads.len());
    check(&built, &wanted);
}

#[test]
fn an_embedding_is_pytorchs() {
    let golden = Golden::of("embedding");
    let case = Case::new("embedding of PyTorch's", Embedding { padding: Some(3) }, |_| {
        let ids = golden.operand("ids", DType::I32, [2, 9]).input(Input::Field(0));
        vec![golden.operand("table", DType::F32, [7, 5]).wrt(), ids]
    });
    check_case(&golden, &case, "y", &["dtable"]);
}

/// A graph with the values that no node computes.
#[derive(Default)]
struct Net {
    graph: Graph,
    variables: Variables,
    values: Values,
}

impl Net {
    fn variable(&mut self, name: &str, shape: impl Into<Shape>, data: Vec<f64>) -> ValueId {
        let variable = Variable::zeros(name, DType::F32, shape, VarKind::Parameter);
        let variable = self.variables.get_or_add(Variable { trainable: true, ..variable });
        let id = self.graph.variable(&self.variables, variable);
        self.values.insert(id, data);
        id
    }

    fn ids(&mut self, field: u32, shape: impl Into<Shape>, data: Vec<f64>) -> ValueId {
        let id = self.graph.input(Input::Field(field), DType::I32, shape.into());
        self.values.insert(id, data);
        id
    }

    fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.graph.add(op, inputs).unwrap()[0]
    }

    /// Checks `y` and its gradient by `x` under the gradient `dy`.
    fn check(mut self, [x, y, dy]: [ValueId; 3], wanted: [(&str, Vec<f64>); 2]) {
        let dx = backward(&mut self.graph, &[(y, dy)], &[x]).unwrap()[0].unwrap();
        for result in [y, dx] {
            self.graph.values[result.index()].role = Role::Output;
        }
        verify(&self.graph).unwrap();
        let Net { graph, variables, values } = self;
        let built = Built { graph, variables, values, operands: vec![x], seed: Some((y, dy)), grads: vec![(x, dx)] };
        let [(y_name, y_wanted), (dx_name, dx_wanted)] = wanted;
        check(&built, &[(y_name, y, y_wanted), (dx_name, dx, dx_wanted)]);
    }
}

/// A table that is read by ids and is the weight of the projection to logits, too: its gradient is the sum of both.
#[test]
fn a_tied_weight_is_pytorchs() {
    let (golden, mut net) = (Golden::of("tied"), Net::default());
    let table = net.variable("table", [11, 6], golden.numbers("table"));
    let one = net.variable("one", [1], vec![1.0]);
    let [ids, targets] = [(0, "ids"), (1, "targets")].map(|(field, name)| net.ids(field, [2, 4], golden.numbers(name)));
    let x = net.add(Embedding::default(), &[table, ids]);
    let logits = net.add(Linear { bias: false }, &[x, table]);
    let loss = net.add(LossOp::from(CrossEntropy::smoothed(0.0)), &[logits, targets]);
    let wanted = [("loss", vec![golden.0["loss"].as_f64().unwrap()]), ("dtable", golden.numbers("dtable"))];
    net.check([table, loss, one], wanted);
}

/// Heads of keys and values that several heads of queries share are copied for each of them.
#[test]
fn attention_with_shared_keys_is_pytorchs() {
    let (golden, mut net) = (Golden::of("grouped"), Net::default());
    let [n, l, heads, kv_heads, d] = [2, 5, 4, 2, 4];
    let x = net.variable("x", [n, l, (heads + 2 * kv_heads) * d], golden.numbers("x"));
    let dy = net.variable("dy", [n, l, heads * d], golden.numbers("dy"));
    let q = net.add(Slice { axis: 2, start: 0, len: heads * d }, &[x]);
    let kv = net.add(Slice { axis: 2, start: heads * d, len: 2 * kv_heads * d }, &[x]);
    let kv = net.add(Reshape { shape: Shape::from([n, l, 2 * kv_heads, 1, d]) }, &[kv]);
    let kv = net.add(Concat { axis: 3 }, &vec![kv; heads / kv_heads]);
    let kv = net.add(Reshape { shape: Shape::from([n, l, 2 * heads * d]) }, &[kv]);
    let qkv = net.add(Concat { axis: 2 }, &[q, kv]);
    let y = net.add(Attention { heads, causal: true, ..Attention::default() }, &[qkv]);
    net.check([x, y, dy], [("y", golden.numbers("y")), ("dx", golden.numbers("dx"))]);
}

/// Rotary positions of twice the same, whose memory they take over.
#[test]
fn rotary_positions_in_place_are_llamas() {
    let (golden, mut net) = (Golden::of("rotary"), Net::default());
    let op = Rotary { heads: 3, kv_heads: 1, position: true, back: false };
    let x = net.variable("x", [2, 5, 40], golden.numbers("x"));
    let table = net.variable("table", [10, 8], golden.numbers("table"));
    let dy = net.variable("dy", [2, 5, 40], golden.numbers("dy"));
    let first = net.ids(0, [2], golden.numbers("first"));
    let twice = net.add(Binary { kind: BinaryKind::Add }, &[x, x]);
    let y = net.add(op, &[twice, table, first]);
    let double = |name: &str| golden.numbers(name).into_iter().map(|x| 2.0 * x).collect();
    net.check([x, y, dy], [("y", double("y")), ("dx", double("dx"))]);
}

#[test]
fn rotary_positions_are_llamas() {
    let golden = Golden::of("rotary");
    let op = Rotary { heads: 3, kv_heads: 1, position: true, back: false };
    let case = Case::new("rotary positions of PyTorch's", op, |_| {
        let first = golden.operand("first", DType::I32, [2]).input(Input::Field(0));
        vec![golden.operand("x", DType::F32, [2, 5, 40]).wrt(), golden.operand("table", DType::F32, [10, 8]), first]
    });
    check_case(&golden, &case, "y", &["dx"]);
}

/// Keys and values that are kept, and what became of new positions.
struct Kept {
    backend: Box<dyn Backend>,
    window: Option<usize>,
    alibi: bool,
    keys: Vec<f64>,
    values: Vec<f64>,
}

/// Positions of a sample, and room for them.
const LENGTH: usize = 75;
const ROOM: usize = 80;
const SAMPLES: usize = 2;
const HEADS: usize = 2;
/// Floats of a head.
const WIDTH: usize = 12;

impl Kept {
    /// Results of `new` positions of each sample, of those in `qkv` from `first` on.
    fn next(&mut self, qkv: &[f64], first: [usize; SAMPLES], new: usize) -> Vec<f64> {
        let e = HEADS * WIDTH;
        let packed: Vec<f64> = first
            .iter()
            .enumerate()
            .flat_map(|(n, first)| qkv[(n * LENGTH + first) * 3 * e..][..new * 3 * e].iter().copied())
            .collect();
        let op = CachedAttention { heads: HEADS, kv_heads: HEADS, window: self.window, alibi: self.alibi };
        let case = Case::new("kept positions", op, |_| {
            let position = Operand::new(DType::I32, [SAMPLES], first.map(|p| p as f64).to_vec()).input(Input::Field(1));
            let kept = |data: &[f64]| Operand::new(DType::F32, [SAMPLES, ROOM, e], data.to_vec());
            let qkv = Operand::new(DType::F32, [SAMPLES, new, 3 * e], packed);
            vec![qkv, kept(&self.keys), kept(&self.values), position]
        });
        let built = case.build();
        let found = run(self.backend.as_ref(), &built);
        let read = |id: ValueId| decode(DType::F32, &found[&id]);
        (self.keys, self.values) = (read(built.operands[1]), read(built.operands[2]));
        read(built.graph.nodes[0].outputs[0])
    }
}

/// All positions at once, in pieces, and one by one, with samples that are not equally far: what a causal attention gives.
#[test]
fn kept_positions_give_what_a_causal_attention_gives() {
    kept_positions(Attention { heads: HEADS, causal: true, ..Attention::default() });
}

#[test]
fn kept_positions_are_seen_within_a_window_and_by_distance() {
    kept_positions(Attention { heads: HEADS, causal: true, window: Some(9), alibi: true, ..Attention::default() });
}

fn kept_positions(op: Attention) {
    let e = HEADS * WIDTH;
    let Attention { window, alibi, .. } = op;
    let whole = Case::new("a causal attention", op, |d| vec![d.normal([SAMPLES, LENGTH, 3 * e])]);
    let mut built = whole.build();
    evaluate(&built.graph, &mut built.values);
    let (qkv, y) = (&whole.operands[0].data, &built.values[&built.graph.nodes[0].outputs[0]]);
    for backend in backends() {
        let nothing = vec![0.0; SAMPLES * ROOM * e];
        let mut kept = Kept { backend, window, alibi, keys: nothing.clone(), values: nothing };
        let check = |found: &[f64], first: [usize; SAMPLES], new: usize, backend: &dyn Backend| {
            for (n, first) in first.into_iter().enumerate() {
                let wanted = &y[(n * LENGTH + first) * e..][..new * e];
                for (found, wanted) in found[n * new * e..].iter().zip(wanted) {
                    assert!(
                        (found - wanted).abs() <= 2e-6,
                        "{}, {new} from {first}: {found}, not {wanted}",
                        backend.describe()
                    );
                }
            }
        };
        for pieces in [vec![LENGTH], vec![1; LENGTH], vec![3, 1, 60, 8, 2, 1]] {
            let mut at = 0;
            for new in pieces {
                let found = kept.next(qkv, [at; SAMPLES], new);
                check(&found, [at; SAMPLES], new, kept.backend.as_ref());
                at += new;
            }
            assert_eq!(at, LENGTH);
        }
        // What lies after a position has no influence: it is written again.
        for (first, new) in [([70, 0], 5), ([3, 5], 1), ([0, 6], 40), ([40, 46], 9)] {
            let found = kept.next(qkv, first, new);
            check(&found, first, new, kept.backend.as_ref());
        }
    }
}

#[test]
fn attention_of_samples_with_padding_is_pytorchs() {
    for causal in [false, true] {
        let golden = Golden::of(&format!("lengths, causal: {causal}"));
        let op = Attention { heads: 2, causal, lengths: true, ..Attention::default() };
        let case = Case::new("attention of PyTorch's", op, |_| {
            let lengths = golden.operand("lengths", DType::I32, [3]).input(Input::Field(0));
            vec![golden.operand("qkv", DType::F32, [3, 6, 24]).wrt(), lengths]
        });
        check_case(&golden, &case, "y", &["dqkv"]);
    }
}

/// Results and gradients of samples of these lengths in a batch of `room` positions, without the padding. The positions of a sample are the
/// same in every batch.
fn padded(
    backend: &dyn Backend,
    lengths: [usize; 3],
    room: usize,
    (causal, window): (bool, Option<usize>),
) -> Vec<Vec<Vec<u8>>> {
    let (heads, width) = (2, 16);
    let op = Attention { heads, causal, window, lengths: true, ..Attention::default() };
    let fill = |columns: usize, name: &str| {
        let of = |(n, length): (usize, &usize)| {
            let mut of = Draw::new(&format!("{name} {n}")).normal([*length, columns]).data;
            of.resize(room * columns, 7.0);
            of
        };
        lengths.iter().enumerate().flat_map(of).collect::<Vec<f64>>()
    };
    let case = Case::new("samples of any padding", op, |_| {
        let of = lengths.map(|length| length as f64).to_vec();
        vec![
            Operand::new(DType::F32, [3, room, 3 * heads * width], fill(3 * heads * width, "qkv")).wrt(),
            Operand::new(DType::I32, [3], of).input(Input::Field(0)),
        ]
    });
    let mut built = case.build();
    let (y, dy) = built.seed.unwrap();
    built.values.insert(dy, fill(heads * width, "dy"));
    let found = run(backend, &built);
    let part = |id: ValueId, n: usize, length: usize| {
        let sample = found[&id].len() / 3;
        let (kept, padding) = found[&id][n * sample..(n + 1) * sample].split_at(sample / room * length);
        assert!(padding.iter().all(|byte| *byte == 0), "padding is not 0");
        kept.to_vec()
    };
    let of = |id| lengths.iter().enumerate().map(|(n, length)| part(id, n, *length)).collect();
    vec![of(y), of(built.grads[0].1)]
}

/// However long the batch is that a sample comes in, it has the same bits.
#[test]
fn padding_changes_no_bit() {
    let cpus = SimdLevel::supported().flat_map(|level| {
        let single = [1, 3].map(|threads| CpuBackend::with_level(Some(threads), level));
        let tiles = CpuBackend::with_level(Some(2), level).with_unit(Some(Bf16Unit::Plain)).in_bf16(true);
        single.into_iter().chain([tiles])
    });
    let mut list: Vec<Box<dyn Backend>> = cpus.map(|cpu| Box::new(cpu) as Box<dyn Backend>).collect();
    if emulator::ready() {
        let cuda = || CudaBackend::new(0).unwrap().with_libraries(&Wanted::default());
        list.extend([cuda(), cuda().with_tf32(true)].map(|cuda| Box::new(cuda) as Box<dyn Backend>));
    }
    for backend in list {
        for seen in [(false, None), (true, None), (false, Some(20)), (true, Some(40))] {
            for lengths in [[5, 33, 1], [70, 170, 96]] {
                let [least, more] =
                    [lengths[1], 2 * lengths[1] + 3].map(|room| padded(backend.as_ref(), lengths, room, seen));
                assert!(least == more, "{}: {lengths:?}, causal and window: {seen:?}", backend.describe());
            }
        }
    }
}

/// Two layers in both directions, of samples with lengths, as PyTorch has them packed.
#[test]
fn recurrent_layers_are_pytorchs() {
    let [n, l, width, h] = [3, 6, 3, 4];
    for (name, cell) in [("lstm", Cell::Lstm), ("gru", Cell::Gru), ("rnn tanh", Cell::Tanh), ("rnn relu", Cell::Relu)] {
        let (golden, mut net) = (Golden::of(name), Net::default());
        let mut x = net.variable("x", [n, l, width], golden.numbers("x"));
        let lengths = net.ids(0, [n], golden.numbers("lengths"));
        let mut operands = vec![("x".to_string(), x)];
        for layer in 0..2 {
            let both = [("", false), ("_reverse", true)].map(|(end, reverse)| {
                let (gates, inputs) = (cell.gates() * h, if layer == 0 { width } else { 2 * h });
                let shapes = [vec![gates, inputs], vec![gates, h], vec![gates], vec![gates]];
                let [w_input, w_state, b_input, b_state] = std::array::from_fn(|i| {
                    let name = format!("{}_l{layer}{end}", ["weight_ih", "weight_hh", "bias_ih", "bias_hh"][i]);
                    let id = net.variable(&name, shapes[i].clone(), golden.numbers(&name));
                    operands.push((name, id));
                    id
                });
                let given = net.add(Linear { bias: true }, &[x, w_input, b_input]);
                let op = Recurrent { cell, reverse, bias: true, lengths: true, saves: true, carries: false };
                net.add(op, &[given, w_state, b_state, lengths])
            });
            x = net.add(Concat { axis: 2 }, &both);
        }
        let dy = net.variable("dy", [n, l, 2 * h], golden.numbers("dy"));
        let Net { mut graph, variables, values } = net;
        let ids: Vec<ValueId> = operands.iter().map(|(_, id)| *id).collect();
        let grads: Vec<ValueId> =
            backward(&mut graph, &[(x, dy)], &ids).unwrap().into_iter().map(Option::unwrap).collect();
        for result in [x].iter().chain(&grads) {
            graph.values[result.index()].role = Role::Output;
        }
        verify(&graph).unwrap();
        let wanted = operands.iter().zip(&grads).map(|((name, _), id)| (format!("d{name}"), *id));
        let wanted: Vec<_> = std::iter::once(("y".to_string(), x)).chain(wanted).collect();
        let wanted: Vec<_> = wanted.iter().map(|(name, id)| (name.as_str(), *id, golden.numbers(name))).collect();
        let grads = ids.iter().copied().zip(grads).collect();
        check(&Built { graph, variables, values, operands: ids, seed: Some((x, dy)), grads }, &wanted);
    }
}

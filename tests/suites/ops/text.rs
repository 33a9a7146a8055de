//! Operations of text models, held to PyTorch's figures on every backend. `scripts/golden/text.py` makes them.

use crate::case::{Built, Case, Operand};
use crate::emulator;
use crate::parity::{decode, run};
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::Wanted;
use runner::backend::reference::Values;
use runner::graph::op::{CrossEntropy, Embedding, Linear, LossOp};
use runner::graph::{DType, Graph, Input, Role, Shape, ValueId, VarKind, Variable, Variables};
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

/// A table that is read by ids and is the weight of the projection to logits, too: its gradient is the sum of both.
#[test]
fn a_tied_weight_is_pytorchs() {
    let golden = Golden::of("tied");
    let (mut graph, mut variables, mut values) = (Graph::new(), Variables::new(), Values::new());
    let table = Variable::zeros("table", DType::F32, [11, 6], VarKind::Parameter);
    let table = variables.get_or_add(Variable { trainable: true, ..table });
    let table = graph.variable(&variables, table);
    let one = variables.get_or_add(Variable::zeros("one", DType::F32, [1], VarKind::Buffer));
    let one = graph.variable(&variables, one);
    let [ids, targets] = [0, 1].map(|field| graph.input(Input::Field(field), DType::I32, Shape::from([2, 4])));
    let x = graph.add1(Embedding::default(), &[table, ids]).unwrap();
    let logits = graph.add1(Linear { bias: false }, &[x, table]).unwrap();
    let loss = graph.add1(LossOp::from(CrossEntropy::smoothed(0.0)), &[logits, targets]).unwrap();
    let grad = backward(&mut graph, &[(loss, one)], &[table]).unwrap()[0].unwrap();
    for result in [loss, grad] {
        graph.values[result.index()].role = Role::Output;
    }
    for (value, data) in [
        (table, golden.numbers("table")),
        (one, vec![1.0]),
        (ids, golden.numbers("ids")),
        (targets, golden.numbers("targets")),
    ] {
        values.insert(value, data);
    }
    let built = Built { graph, variables, values, operands: vec![table, ids], seed: None, grads: vec![(table, grad)] };
    let wanted = [("loss", loss, vec![golden.0["loss"].as_f64().unwrap()]), ("dtable", grad, golden.numbers("dtable"))];
    check(&built, &wanted);
}

//! The memory plan of random and of real models.

use crate::nets::fitting;
use crate::random::{build, some_text};
use runner::backend::cpu::CpuBackend;
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::{Backend, Executable, HostBuffer};
use runner::config;
use runner::graph::{Graph, Input, Role, Rounds, ValueId};
use runner::model::init::initial;
use runner::plan::{Place, Plan, Program, Region, align};
use runner::random::{Purpose, Stream};
use runner::train::setup::programs::{Kind, Programs};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// How many random models each test draws.
const MODELS: u64 = 60;

fn model(seed: u64, backend: &CpuBackend) -> Programs {
    let text = fitting(seed);
    let loaded = config::load_str("random.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    build(&loaded.experiment, backend).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
}

/// For each value, the value whose memory it is: itself, or what it reshapes.
fn owners(graph: &Graph) -> Vec<usize> {
    let mut owner: Vec<usize> = (0..graph.values.len()).collect();
    for node in graph.nodes.iter().filter(|n| n.op.rules().is_alias()) {
        owner[node.outputs[0].index()] = owner[node.inputs[0].index()];
    }
    owner
}

/// Runs through a program with a map of who has written which bytes last, and checks that every operand is still there
/// when it is read, and outputs at the end: the definition of a right plan, without lifetimes.
fn replay(program: &Program) {
    let graph = &program.graph;
    let (owner, parts) = (owners(graph), graph.parts());
    // Start of a stretch of transient memory, its end, and the value that was written there last.
    let mut memory: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let write = |memory: &mut BTreeMap<usize, (usize, usize)>, start: usize, len: usize, who: usize| {
        memory.retain(|s, (end, _)| *end <= start || *s >= start + len);
        if len > 0 {
            memory.insert(start, (start + len, who));
        }
    };
    let transient = |v: ValueId| program.places[v.index()].region == Region::Transient;
    // Where a value lies while a part of the batch is computed.
    let place = |v: ValueId, part: usize| {
        let (Place { offset, .. }, bytes) = (program.places[v.index()], graph.value(v).bytes());
        if parts[v.index()] > 1 { offset + part * bytes } else { offset }
    };
    let check = |memory: &BTreeMap<usize, (usize, usize)>, v: ValueId, part: usize, at: &str| {
        let start = place(v, part);
        let end = start + graph.value(v).bytes();
        // What was written in parts is there in parts, one after the other; and a part of what was written at once is there with it.
        let mut reached = start;
        while reached < end {
            let found = memory.range(..=reached).next_back().map(|(_, found)| *found);
            let there = found.filter(|(stop, who)| *stop > reached && *who == owner[v.index()]);
            let Some((stop, _)) = there else { panic!("{}: {at}: value {}: {found:?}", program.name, v.0) };
            reached = stop;
        }
        assert!(start % 64 == 0 && end <= program.transient_bytes);
    };
    // What is kept from run to run is there before the first node, and must be after the last.
    let keeps = |i: usize| usize::MAX - 1 - i;
    let kept = || program.kept.iter().enumerate().filter(|(_, (_, bytes))| *bytes > 0);
    kept().for_each(|(i, (start, bytes))| write(&mut memory, *start, *bytes, keeps(i)));
    let rounds = graph.rounds().into_iter();
    let order = rounds.flat_map(|Rounds { nodes, parts }| {
        (0..parts).flat_map(move |part| nodes.clone().map(move |node| (node, part)))
    });
    for (i, part) in order {
        let node = &graph.nodes[i];
        let rules = node.op.rules();
        let here = format!("node {i} (`{}`), part {part}", rules.name());
        if rules.is_alias() {
            assert_eq!(program.places[node.inputs[0].index()], program.places[node.outputs[0].index()], "{here}");
            continue;
        }
        let operands = || node.inputs.iter().copied().filter(|v| transient(*v));
        operands().for_each(|v| check(&memory, v, part, &here));
        // Workspace is used together with the operands and the results.
        let (start, len) = program.workspace[i];
        write(&mut memory, start, len, usize::MAX);
        operands().for_each(|v| check(&memory, v, part, &format!("{here}, workspace")));
        for (o, output) in node.outputs.iter().enumerate() {
            // The operand in whose place the first result may lie; to the others it is like any other, unless it is gone.
            let taken = |v: ValueId| place(v, part) == place(node.outputs[0], part);
            let over = rules.in_place().map(|k| node.inputs[k]).filter(|v| o == 0 || taken(*v));
            write(&mut memory, place(*output, part), graph.value(*output).bytes(), output.index());
            // While results are written only that operand may go that the operation allows to be written over.
            for v in operands().filter(|v| over.is_none_or(|over| owner[over.index()] != owner[v.index()])) {
                check(&memory, v, part, &format!("{here}, output {o}"));
            }
            for before in &node.outputs[..o] {
                check(&memory, *before, part, &format!("{here}, output {o}"));
            }
        }
    }
    let outputs = (0..graph.values.len() as u32).map(ValueId).filter(|v| graph.value(*v).role == Role::Output);
    outputs.filter(|v| transient(*v)).for_each(|v| check(&memory, v, 0, "the end"));
    for (i, (start, bytes)) in kept() {
        assert_eq!(memory.get(start), Some(&(start + bytes, keeps(i))), "{}: node {i} keeps", program.name);
    }
}

#[test]
fn every_operand_is_there_when_it_is_read() {
    let backend = CpuBackend::new(Some(2)).unwrap();
    for seed in 0..MODELS {
        model(seed, &backend).plan.programs.iter().for_each(replay);
    }
}

/// The same programs with a place of its own for every value and every workspace.
fn spread(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for program in &mut plan.programs {
        let (owner, parts) = (owners(&program.graph), program.graph.parts());
        let mut end = 0;
        let mut take = |bytes: usize| {
            let start = end;
            end += align(bytes);
            start
        };
        let transient = |places: &[Place], i: usize| places[i].region == Region::Transient;
        for i in (0..owner.len()).filter(|i| owner[*i] == *i) {
            if transient(&program.places, i) {
                program.places[i].offset = take(parts[i] * program.graph.values[i].bytes());
            }
        }
        for (i, owner) in owner.into_iter().enumerate() {
            if transient(&program.places, i) {
                program.places[i].offset = program.places[owner].offset;
            }
        }
        let own = program.workspace.iter_mut().chain(&mut program.kept);
        own.for_each(|(start, bytes)| *start = take(*bytes));
        program.transient_bytes = end;
        plan.transient_bytes = plan.transient_bytes.max(end);
    }
    plan
}

/// A batch of random samples.
fn batch(backend: &CpuBackend, plan: &Plan, seed: u64) -> HostBuffer {
    let mut buffer = backend.host_buffer(plan.slot.bytes).unwrap();
    let mut draw = Stream::new(seed, Purpose::Synthetic, 1, 0);
    let least = i32::from(plan.slot.inputs.iter().any(|input| input.input == Input::Field(2)));
    for input in &plan.slot.inputs {
        let n = input.shape.len();
        let bytes: Vec<u8> = match input.input {
            Input::Field(0) if input.dtype == runner::graph::DType::U8 => {
                (0..n).map(|_| draw.below(256) as u8).collect()
            }
            Input::Field(0) => (0..n).flat_map(|_| (draw.normal() as f32).to_ne_bytes()).collect(),
            // Classes or, where texts have them, lengths; and then the tags of words, or answers and the tokens after theirs.
            Input::Field(_) => (0..n).flat_map(|_| (least + draw.below(3) as i32).to_ne_bytes()).collect(),
            Input::Schedule => [0.01f32, 0.5, 1.0, 0.0].into_iter().flat_map(f32::to_ne_bytes).collect(),
            Input::Averaging => [0.1f32, -1.0, 1.0, 0.0].into_iter().flat_map(f32::to_ne_bytes).collect(),
            Input::Shares => unreachable!("no configuration mixes samples"),
            Input::Shard => [0i32, 0, 1, 0].into_iter().flat_map(i32::to_ne_bytes).collect(),
            Input::Random => [seed as u32, 1, 2, 3].into_iter().flat_map(u32::to_ne_bytes).collect(),
        };
        buffer.bytes_mut()[input.offset..input.offset + bytes.len()].copy_from_slice(&bytes);
    }
    buffer
}

/// All variables, and all outputs of all programs, after two rounds of running every program.
fn results(backend: &CpuBackend, plan: Plan, seed: u64) -> Vec<Vec<u8>> {
    let plan = Arc::new(plan);
    let mut executable: Box<dyn Executable> = backend.compile(plan.clone()).unwrap();
    for (id, var) in plan.variables.iter() {
        executable.upload(id, &initial(var, seed)).unwrap();
    }
    let mut all = Vec::new();
    for round in 0..2 {
        let batch = batch(backend, &plan, seed + round);
        for (p, program) in plan.programs.iter().enumerate() {
            executable.run(p, 0, &batch).unwrap();
            executable.wait_slot(0).unwrap();
            let outputs = (0..program.graph.values.len() as u32).map(ValueId);
            for v in outputs.filter(|v| program.graph.value(*v).role == Role::Output) {
                let mut bytes = vec![0; program.graph.value(v).bytes()];
                executable.output(p, v, &mut bytes).unwrap();
                all.push(bytes);
            }
        }
    }
    for (id, var) in plan.variables.iter() {
        let mut bytes = vec![0; var.bytes()];
        executable.download(id, &mut bytes).unwrap();
        all.push(bytes);
    }
    all
}

#[test]
fn results_do_not_depend_on_the_plan() {
    let backend = CpuBackend::new(Some(2)).unwrap();
    let mut saved = 0;
    for seed in 0..MODELS {
        let programs = model(seed, &backend);
        let apart = spread(&programs.plan);
        assert!(apart.transient_bytes >= programs.plan.transient_bytes);
        saved += apart.transient_bytes - programs.plan.transient_bytes;
        let plain = results(&backend, (*programs.plan).clone(), seed);
        assert!(programs.kinds.iter().any(|(k, _)| *k == Kind::Train) && plain.len() > 5);
        assert_eq!(plain, results(&backend, apart, seed), "seed {seed}\n{}", fitting(seed));
    }
    assert!(saved > 0);
}

/// The configurations of the repository, with what `check` counts and what the device says that it used.
#[test]
fn the_peak_is_what_the_plan_says() {
    let backend = CpuBackend::new(Some(2)).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Smaller batches, so that the test is quick: sizes differ, and the rule is the same.
        let mut sets = some_text(&path);
        sets.push("data.batch_size=8".to_string());
        let loaded = config::load(&path, &sets).unwrap_or_else(|e| panic!("{e}"));
        let programs = build(&loaded.experiment, &backend).unwrap();
        let plan = &programs.plan;
        plan.programs.iter().for_each(replay);
        let m = plan.memory(4);
        let sum = [m.parameters, m.gradients, m.optimizer, m.buffers, m.activations, m.workspace, m.unused, m.batches];
        assert_eq!(sum.iter().sum::<usize>(), m.total, "{}", path.display());
        let mut executable = backend.compile(plan.clone()).unwrap();
        for (id, var) in plan.variables.iter() {
            executable.upload(id, &initial(var, 1)).unwrap();
        }
        let batch = batch(&backend, plan, 1);
        for p in 0..plan.programs.len() {
            executable.run(p, 0, &batch).unwrap();
        }
        assert_eq!(executable.peak_bytes(), plan.device_bytes(), "{}", path.display());
        assert_eq!(executable.peak_bytes() + 4 * plan.slot.bytes, m.total, "{}", path.display());
    }
}

/// Bytes of transient memory of the configurations of the repository, on two threads without vectors. A change of the
/// planner may lower them.
const TRANSIENT: [(&str, usize); 7] = [
    // 0.8 % more than before gradients of batch normalisation took their operand's place, which moves a fifth less memory there, and 4.2 % more than
    // before gradients of convolutions were summed in transformed tiles of 4 × 4 pixels.
    ("cifar10_resnet18.toml", 90_367_616),
    ("digits_cnn.toml", 3_837_760),
    // 0.2 to 2.3 MB more, as those of MNIST, than before products packed once what several tasks use, and, as others here, two pages more than before the memory of the
    // two threads lay apart.
    ("digits_transformer.toml", 2_726_272),
    ("fashion_cnn.toml", 72_260_160),
    ("linear_regression.toml", 23_616),
    ("mnist_cnn.toml", 22_803_840),
    ("mnist_mlp.toml", 2_859_904),
];

#[test]
fn plans_do_not_grow() {
    let backend = CpuBackend::with_level(Some(2), SimdLevel::Scalar);
    for (name, most) in TRANSIENT {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name);
        let loaded = config::load(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
        let plan = build(&loaded.experiment, &backend).unwrap().plan;

        assert!(plan.transient_bytes <= most, "{name}: {} bytes, not {most}", plan.transient_bytes);
    }
}

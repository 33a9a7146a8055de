//! Sums over ranks, and what they give each other, from GPU to GPU: the same bits as among ranks on the CPU.
//!
//! Each test is a process of its own, for which the emulated driver has as many devices as there are ranks. On a real GPU those run that need no planted
//! faults, if there are enough.

mod ahead;

use super::emulator;
use runner::backend::cpu::CpuBackend;
use runner::backend::cuda::nvidia::installed::{self, Library};
use runner::backend::cuda::settings::{Settings, Source};
use runner::backend::cuda::{CudaBackend, driver};
use runner::backend::{Backend, DeviceError, Executable, HostBuffer};
use runner::collective::{Collective, team};
use runner::graph::op::{Receivers, SHARD_INPUTS, ShardGather, ShardReduce};
use runner::graph::{DType, Graph, Input, Shape, VarId, VarKind, Variable, Variables};
use runner::plan::{self, Plan};
use runner::random::{Purpose, Stream};
use runner::shards::{Shards, part_of};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The variable that has a child process run one of the tests.
const CHILD: &str = "RUNNER_TEST_RANKS";

/// Types and lengths: small ones, of which several travel together, and large ones, whose parts travel alone.
const TENSORS: [(DType, usize); 7] = [
    (DType::F32, 5),
    (DType::F32, 3000),
    (DType::F32, 70_000),
    (DType::F64, 3),
    (DType::F64, 20_001),
    (DType::I64, 1),
    (DType::F32, 1025),
];

/// Tensors of which sums take more than is made by all ranks.
const MANY: [(DType, usize); 2] = [(DType::F32, 270_000), (DType::I64, 2)];

/// A tensor, and which of its elements a rank gets.
struct Delivery {
    variable: VarId,
    dtype: DType,
    length: usize,
    to: To,
}

enum To {
    All,
    Part,
    Owner(usize),
}

impl Delivery {
    fn bytes(&self, rank: usize, ranks: usize) -> std::ops::Range<usize> {
        let elements = match self.to {
            To::All => 0..self.length,
            To::Part => part_of(self.length, (rank, ranks)),
            To::Owner(owner) if owner == rank => 0..self.length,
            To::Owner(_) => 0..0,
        };
        elements.start * self.dtype.bytes()..elements.end * self.dtype.bytes()
    }
}

/// A program with a sum for all, one for parts, one for owners, and an exchange of parts.
fn program(shards: Shards) -> (Arc<Variables>, Graph, Vec<Delivery>) {
    let (mut vars, mut graph, mut deliveries) = (Variables::new(), Graph::new(), Vec::new());
    let (slots, ranks) = (shards.slots(), shards.ranks);
    let place = graph.input(Input::Shard, DType::I32, Shape::from([SHARD_INPUTS]));
    let add = |vars: &mut Variables, name: String, (dtype, length): (DType, usize)| {
        vars.get_or_add(Variable::zeros(name, dtype, [length], VarKind::Buffer))
    };
    let owners: Vec<usize> = (0..TENSORS.len()).map(|at| at % ranks).collect();
    let all: &[(DType, usize)] = &TENSORS;
    let sums = [
        ("all", Receivers::All, all),
        ("many", Receivers::All, &MANY),
        ("parts", Receivers::Parts, all),
        ("owners", Receivers::Owners(owners), all),
    ];
    for (name, to, tensors) in sums {
        let mut operands = vec![place];
        for (at, of) in tensors.iter().enumerate() {
            for slot in 0..slots {
                let variable = add(&mut vars, format!("{name}.{at}.{slot}"), *of);
                operands.push(graph.variable(&vars, variable));
                if slot == 0 {
                    let to = match &to {
                        Receivers::All => To::All,
                        Receivers::Parts => To::Part,
                        Receivers::Owners(owners) => To::Owner(owners[at]),
                    };
                    deliveries.push(Delivery { variable, dtype: of.0, length: of.1, to });
                }
            }
        }
        graph.add(ShardReduce { slots, shards, to, bucket: None }, &operands).unwrap();
    }
    let (mut operands, mut parts) = (Vec::new(), Vec::new());
    for (at, (dtype, length)) in TENSORS.into_iter().enumerate() {
        let variable = add(&mut vars, format!("given.{at}"), (dtype, length));
        operands.push(graph.variable(&vars, variable));
        deliveries.push(Delivery { variable, dtype, length, to: To::All });
        let of_ranks = (0..ranks).map(|rank| (part_of(length, (rank, ranks)).len(), rank));
        parts.extend(of_ranks.filter(|(length, _)| *length > 0));
    }
    graph.add(ShardGather { parts }, &operands).unwrap();
    (Arc::new(vars), graph, deliveries)
}

/// Numbers whose sum depends on the order in which they are added.
fn numbers(dtype: DType, length: usize, (rank, variable): (usize, u32)) -> Vec<u8> {
    let mut random = Stream::new(7, Purpose::Synthetic, rank as u64, variable.into());
    let mut number = || random.normal() * f64::from(1 << random.below(20));
    match dtype {
        DType::I64 => (0..length).flat_map(|_| (number() as i64).to_ne_bytes()).collect(),
        DType::F64 => (0..length).flat_map(|_| (number() / 3.0).to_ne_bytes()).collect(),
        _ => (0..length).flat_map(|_| (number() as f32).to_ne_bytes()).collect(),
    }
}

/// A rank before its first step.
struct Prepared {
    plan: Arc<Plan>,
    executable: Box<dyn Executable>,
    batch: HostBuffer,
    /// What each variable has at first.
    given: Vec<(VarId, Vec<u8>)>,
}

/// Compiles programs of these graphs, and connects the rank with the others.
fn prepare<const N: usize>(backend: &dyn Backend, vars: &Arc<Variables>, graphs: [Graph; N]) -> Prepared {
    let rank = backend.team().unwrap().rank();
    let sources = graphs.map(|graph| plan::Source { name: "sums".into(), graph, loss: None, prediction: None });
    let (needs, apart) = (|g: &Graph, n: &_| backend.node_memory(g, n), !backend.shares_memory());
    let plan = Arc::new(Plan::laid_out(vars.clone(), sources.into(), needs, apart));
    let mut executable = backend.compile(plan.clone()).unwrap();
    executable.connect().unwrap();
    let batch = backend.host_buffer(plan.slot.bytes).unwrap();
    let given = vars.iter().map(|(id, of)| (id, numbers(of.dtype, of.shape.len(), (rank, id.0)))).collect();
    Prepared { plan, executable, batch, given }
}

/// What a rank gets in steps of so many shards.
fn run(backend: &dyn Backend, shards: Shards, steps: &[usize]) -> Vec<Vec<u8>> {
    let rank = backend.team().unwrap().rank();
    let (vars, graph, deliveries) = program(shards);
    let Prepared { plan, mut executable, mut batch, given } = prepare(backend, &vars, [graph]);
    let mut results = Vec::new();
    for present in steps {
        given.iter().for_each(|(id, bytes)| executable.upload(*id, bytes).unwrap());
        write_place(&mut batch, &plan, *present, true);
        executable.run(0, 0, &batch).unwrap();
        executable.wait_slot(0).unwrap();
        for of in &deliveries {
            let bytes = of.bytes(rank, shards.ranks);
            let mut result = vec![0; bytes.len()];
            executable.download_part(of.variable, bytes.start, &mut result).unwrap();
            results.push(result);
        }
    }
    executable.leave().unwrap();
    results
}

fn write_place(batch: &mut HostBuffer, plan: &Plan, present: usize, last: bool) {
    let at = plan.slot.find(Input::Shard).unwrap().offset;
    for (i, number) in [0, 0, present as i32, i32::from(last)].into_iter().enumerate() {
        batch.bytes_mut()[at + 4 * i..][..4].copy_from_slice(&number.to_ne_bytes());
    }
}

/// What all ranks do, each in a thread of its own.
fn on_all<T: Send>(
    ranks: usize,
    backend: impl Fn(Arc<dyn Collective>) -> Box<dyn Backend> + Sync,
    work: impl Fn(&dyn Backend) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let start = |member: Arc<dyn Collective>| {
            let (backend, work) = (&backend, &work);
            scope.spawn(move || work(backend(member).as_ref()))
        };
        let threads: Vec<_> = team(ranks).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn on_cpu(member: Arc<dyn Collective>) -> Box<dyn Backend> {
    Box::new(CpuBackend::new(Some(1)).unwrap().in_team(Some(member)))
}

fn settings() -> Settings {
    let nccl = match emulator::on_gpu() {
        true => Source::Found,
        false => Source::File(emulator::nvidia_library("libnccl.so").unwrap()),
    };
    Settings { nccl, ..Settings::default() }
}

fn on_gpu(member: Arc<dyn Collective>) -> CudaBackend {
    CudaBackend::open(member.rank(), &settings()).unwrap().in_team(member).unwrap()
}

/// Whether a machine with GPUs has so many, and NCCL.
fn has(devices: usize) -> bool {
    let found = driver::start().map_or(0, |(_, count)| count);
    match installed::open(Library::Nccl) {
        Ok(_) if found >= devices => true,
        _ => {
            eprintln!("skipped: it takes {devices} GPUs, of which there are {found}, and NCCL");
            false
        }
    }
}

/// Runs the test of that name in a process with so many devices. Faults are planted in the test double alone.
fn in_process(test: &str, devices: usize, env: &[(&str, &str)]) {
    let goes = match emulator::on_gpu() {
        true => env.iter().all(|(name, _)| *name == "EMULATED_SEED") && has(devices),
        false => emulator::emulated() && emulator::nvidia_library("libnccl.so").is_some(),
    };
    if !goes {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "ranks::child", "--nocapture"]).env(CHILD, test).envs(env.iter().copied());
    let done = command.env("EMULATED_DEVICES", devices.to_string()).output().unwrap();
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(done.status.success() && said.contains(&format!("done: {test}")), "{test}: {said}");
}

/// How a device is used.
type How = fn(CudaBackend) -> CudaBackend;

const CAPTURED: (&str, How) = ("captured", |backend| backend);
const NOT_CAPTURED: (&str, How) = ("not captured", |backend| backend.with_graph(false));
const APART: (&str, How) = ("apart", |backend| backend.with_separate(true).with_sync(true));

/// The bits of ranks on the CPU, captured or not, and with every value in an allocation of its own.
fn sums(ranks: usize, hows: &[(&str, How)]) {
    for count in [12, ranks] {
        let shards = Shards { count, ranks };
        // Some steps have fewer shards. Each slot of the device has a graph, which is run again.
        let steps = [count, 1, count.div_ceil(2), count - 1, count];
        let expected = on_all(ranks, on_cpu, |backend| run(backend, shards, &steps));
        for (name, how) in hows {
            let found = on_all(ranks, |member| Box::new(how(on_gpu(member))), |backend| run(backend, shards, &steps));
            assert!(found == expected, "{count} shards on {ranks} GPUs, {name}");
        }
    }
}

/// A rank that fails while the others wait for what it would send: at the end of a run, or after each launch.
fn gone((_, how): (&str, How)) {
    let (begins, hears) = mpsc::channel::<()>();
    let (begins, hears) = (Mutex::new(begins), Mutex::new(hears));
    let shards = Shards { count: 3, ranks: 3 };
    let errors = on_all(
        3,
        |member| Box::new(how(on_gpu(member))),
        |backend| {
            let team = backend.team().unwrap();
            let mut executable = ready(backend, shards);
            executable.connect().unwrap();
            if team.rank() == 1 {
                (0..2).for_each(|_| hears.lock().unwrap().recv().unwrap());
                // They are at it by then, or begin it in vain.
                std::thread::sleep(Duration::from_millis(200));
                team.fail("it had enough");
                return String::new();
            }
            let batch = backend.host_buffer(4096).unwrap();
            begins.lock().unwrap().send(()).unwrap();
            let mut bytes = vec![0; 20];
            let error =
                executable.run(0, 0, &batch).and_then(|()| executable.download(VarId(0), &mut bytes)).unwrap_err();
            let again = executable.run(0, 0, &batch).unwrap_err();
            assert_eq!(format!("{error:#}"), format!("{again:#}"));
            format!("{error:#}")
        },
    );
    assert_eq!(errors, ["rank 1 has failed: it had enough", "", "rank 1 has failed: it had enough"]);
}

/// What a rank says that NCCL fails on, and what the others hear of it.
fn failing(expected: &str) {
    let shards = Shards { count: 2, ranks: 2 };
    let errors = on_all(
        2,
        |member| Box::new(on_gpu(member)),
        |backend| {
            let team = backend.team().unwrap();
            let mut executable = ready(backend, shards);
            let batch = backend.host_buffer(4096).unwrap();
            let mut bytes = vec![0; 20];
            let mut work = || -> anyhow::Result<()> {
                executable.connect()?;
                for _ in 0..5 {
                    executable.run(0, 0, &batch)?;
                    executable.download(VarId(0), &mut bytes)?;
                    // As a run does between its steps.
                    team.gather(&[])?;
                    std::thread::sleep(Duration::from_millis(100));
                }
                Ok(())
            };
            let error = format!("{:#}", work().unwrap_err());
            team.fail(&error);
            error
        },
    );
    assert!(errors[1].starts_with(expected) && errors[1].contains("a planted fault\nhelp: "), "{errors:?}");
    assert!(errors[0].starts_with(&format!("rank 1 has failed: {expected}")), "{errors:?}");
}

fn ready(backend: &dyn Backend, shards: Shards) -> Box<dyn Executable> {
    let (vars, graph, _) = program(shards);
    let source = plan::Source { name: "sums".into(), graph, loss: None, prediction: None };
    backend.compile(Arc::new(Plan::new(vars, vec![source], |g, n| backend.node_memory(g, n)))).unwrap()
}

/// Two ranks on one GPU, which NCCL refuses.
fn one_gpu() {
    let shards = Shards { count: 2, ranks: 2 };
    let same = |member: Arc<dyn Collective>| -> Box<dyn Backend> {
        Box::new(CudaBackend::open(0, &settings()).unwrap().in_team(member).unwrap())
    };
    let errors = on_all(2, same, |backend| {
        let error = ready(backend, shards).connect().err().map(|error| format!("{error:#}"));
        error.iter().for_each(|error| backend.team().unwrap().fail(error));
        error.unwrap_or_default()
    });
    assert!(errors.iter().any(|error| error.contains("Duplicate GPU detected")), "{errors:?}");
}

/// NCCL that is not there, or too old, is an error before anything is planned.
fn none() {
    let refused = |settings: &Settings| {
        let member = team(2).into_iter().next().unwrap();
        CudaBackend::open(0, settings).unwrap().in_team(member).unwrap_err()
    };
    let nowhere = refused(&Settings::default());
    assert!(nowhere.is::<DeviceError>() && format!("{nowhere}").contains("several GPUs need NCCL"), "{nowhere}");
    let old = refused(&settings());
    assert!(old.is::<DeviceError>(), "{old}");
    let said = format!("{old}");
    assert!(said.contains("is too old (2.17.1, and 2.18 is needed)") && said.contains("help: install it"), "{said}");
}

#[test]
fn child() {
    let Ok(test) = std::env::var(CHILD) else { return };
    assert!(emulator::ready());
    match test.as_str() {
        "sums of 2" => sums(2, &[CAPTURED, NOT_CAPTURED]),
        "sums of 3" => sums(3, &[CAPTURED, APART]),
        "watched" => sums(3, &[APART]),
        "sums of 4" => sums(4, &[CAPTURED]),
        "ahead of 2" => ahead::sums(2, &[CAPTURED, NOT_CAPTURED]),
        "ahead of 3" => ahead::sums(3, &[CAPTURED, APART]),
        "gone" => [CAPTURED, APART].into_iter().for_each(gone),
        "init" => failing("NCCL failed while connecting the GPUs (ncclUnhandledCudaError, status 1)"),
        "error" => failing("NCCL failed while exchanging bytes (ncclUnhandledCudaError, status 1)"),
        "one GPU" => one_gpu(),
        "none" => none(),
        other => panic!("there is no test `{other}`"),
    }
    println!("done: {test}");
}

#[test]
fn sums_are_those_of_ranks_on_the_cpu() {
    for (ranks, seed) in [(2, "0"), (3, "5"), (4, "11")] {
        in_process(&format!("sums of {ranks}"), ranks, &[("EMULATED_SEED", seed)]);
    }
}

#[test]
fn sums_begin_beside_the_computation() {
    for (ranks, seed) in [(2, "0"), (2, "3"), (3, "5"), (3, "12")] {
        in_process(&format!("ahead of {ranks}"), ranks, &[("EMULATED_SEED", seed)]);
    }
    in_process("ahead of 3", 3, &[("EMULATED_SANITIZER", "1")]);
}

#[test]
fn exchanges_have_no_races_and_stay_within_their_memory() {
    in_process("watched", 3, &[("EMULATED_SANITIZER", "1")]);
}

#[test]
fn no_rank_waits_for_one_that_has_failed() {
    in_process("gone", 3, &[]);
}

#[test]
fn all_ranks_report_an_error_of_nccl() {
    in_process("init", 2, &[("FAKE_NCCL", "init:1")]);
    in_process("error", 2, &[("FAKE_NCCL", "error:1:7")]);
}

#[test]
fn a_gpu_is_no_two_ranks() {
    in_process("one GPU", 1, &[]);
}

#[test]
fn nccl_that_cannot_be_used_is_an_error_of_the_device() {
    in_process("none", 1, &[("FAKE_NCCL_VERSION", "21701")]);
}

//! Which of cuDNN's plans a convolution gets, what is done about engines that do what they should not, and that a choice
//! holds: on the emulated driver, with a test double of the library whose engines can be spoilt.

use super::convolutions::{CONV, Way, convolution};
use super::emulator::{self, Fault};
use runner::backend::Backend;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::{Source, Wanted};
use runner::backend::gpu::launch::{Convolution, Direction, Lowered};
use runner::backend::gpu::lower::lower;
use runner::backend::gpu::target::{Problem, Target};
use runner::graph::op::{Activation, Conv2d};
use runner::graph::{DType, Graph};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::MutexGuard;

/// The double's engines: on tensor cores, with TF32 for 32-bit operands; without rounding; compiled at run time, with other
/// sums; and what works for everything. Its other engines end the program when they are used.
pub const TENSOR: i32 = 1;
const DIRECT: i32 = 3;
const COMPILED: i32 = 4;
const FALLBACK: i32 = 6;

/// Their tags, in the order in which the heuristics offer them.
const TAGS: [(i32, &str); 4] = [(TENSOR, "eng1"), (DIRECT, "eng3_k2=1_k99=0"), (COMPILED, "eng4"), (FALLBACK, "eng6")];

/// A test double of its own, so that what is planted in it disturbs no other test.
pub struct Lab {
    dir: tempfile::TempDir,
    file: PathBuf,
    /// Trials take memory of the device for a moment, which other tests count.
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// `None` on a real GPU or without a compiler.
    pub fn new() -> Option<Lab> {
        if !emulator::only_emulated() {
            return None;
        }
        let _turn = emulator::alone();
        let dir = tempfile::tempdir().unwrap();
        let file = emulator::own_cudnn(dir.path())?;
        Some(Lab { dir, file, _turn })
    }

    pub fn plant(&self, engine: i32, fault: Fault) {
        emulator::plant(&self.file, engine, fault);
    }

    pub fn plant_all(&self, fault: Fault) {
        TAGS.iter().for_each(|(engine, _)| self.plant(*engine, fault));
    }

    /// A backend that uses cuDNN for everything, with its choices in `cache`.
    pub fn backend(&self, cache: Option<&Path>) -> CudaBackend {
        let cudnn = Source::File(self.file.clone());
        let wanted = Wanted { cudnn, everywhere: true, cache: cache.map(Path::to_path_buf), ..Wanted::default() };
        let backend = CudaBackend::new(0).unwrap().with_libraries(&wanted);
        assert_eq!(backend.libraries().problems(), Vec::<String>::new());
        backend
    }

    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }
}

/// A convolution of two small images.
pub fn graph(conv: &Conv2d, way: Way, dtype: DType) -> Graph {
    convolution(conv, way, dtype, [2, 6, 5, 16], [16, 3, 3])
}

/// What a backend chooses for the only convolution that it is asked about.
pub fn choice(backend: &CudaBackend, conv: &Conv2d, way: Way, dtype: DType) -> String {
    let graph = graph(conv, way, dtype);
    backend.workspace(&graph, &graph.nodes[0]);
    let choices = plans(&backend.choices().unwrap());
    assert_eq!(choices.len(), 1, "{choices:?}");
    choices.into_values().next().unwrap()
}

/// The plans in a file of choices, or in a checkpoint.
pub fn plans(json: &str) -> BTreeMap<String, String> {
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    serde_json::from_value(json["plans"].clone()).unwrap()
}

/// The plain plan of an engine, as a choice is written.
pub fn plain(engine: i32) -> String {
    let tag = TAGS.iter().find(|(e, _)| *e == engine).unwrap().1;
    format!("plain {tag}")
}

#[test]
fn each_type_gets_the_first_plan_that_its_arithmetic_allows() {
    let Some(lab) = Lab::new() else { return };
    for way in [Way::Forward, Way::Input, Way::Weight] {
        // TF32 must be asked for.
        assert_eq!(choice(&lab.backend(None), &CONV, way, DType::F32), plain(DIRECT), "{way:?}");
        assert_eq!(choice(&lab.backend(None).with_tf32(true), &CONV, way, DType::F32), plain(TENSOR), "{way:?}");
        assert_eq!(choice(&lab.backend(None), &CONV, way, DType::BF16), plain(TENSOR), "{way:?}");
        // The gradient of a weight is of 32 bits, which the double gives of FP16 only where it copies it.
        let expected = if way == Way::Weight { "fused eng1".into() } else { plain(TENSOR) };
        assert_eq!(choice(&lab.backend(None), &CONV, way, DType::F16), expected, "{way:?}");
        let sides = Conv2d { padding: [2, 2, 1, 1], stride: [2, 1], dilation: [1, 2], ..CONV };
        assert_eq!(choice(&lab.backend(None), &sides, way, DType::BF16), plain(TENSOR), "{way:?}");
        let grouped = Conv2d { groups: 2, ..CONV };
        assert_eq!(choice(&lab.backend(None), &grouped, way, DType::F32), plain(DIRECT), "{way:?}");
        // What the library does not take.
        let refused = Conv2d { stride: [3, 3], dilation: [2, 2], ..CONV };
        assert_eq!(choice(&lab.backend(None), &refused, way, DType::BF16), "own", "{way:?}");
    }
    let grouped = Conv2d { groups: 2, ..CONV };
    assert_eq!(choice(&lab.backend(None), &grouped, Way::Weight, DType::BF16), "own");
}

#[test]
fn bias_and_activation_are_fused_where_the_library_can() {
    let Some(lab) = Lab::new() else { return };
    let of = |bias, act: Option<Activation>, dtype, tf32| {
        let conv = Conv2d { bias, ..CONV };
        let backend = lab.backend(None).with_tf32(tf32);
        let chosen = choice(&backend, &conv, act.map_or(Way::Forward, Way::Activated), dtype);
        assert_eq!(backend.notes(), Vec::<String>::new(), "{act:?}");
        chosen
    };
    let fused = [
        Activation::Relu,
        Activation::Relu6,
        Activation::LeakyRelu { slope: 0.2 },
        Activation::Elu { alpha: 1.5 },
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Tanh,
        Activation::Sigmoid,
    ];
    for act in fused.map(Some).into_iter().chain([None]) {
        for dtype in [DType::BF16, DType::F16] {
            assert_eq!(of(true, act, dtype, false), "fused eng1", "{act:?}, {dtype}");
        }
        assert_eq!(of(true, act, DType::F32, true), "fused eng1", "{act:?}");
        // The double fuses nothing that is not rounded, as the library.
        assert_eq!(of(true, act, DType::F32, false), plain(DIRECT), "{act:?}");
    }
    assert_eq!(of(false, Some(Activation::Relu), DType::BF16, false), "fused eng1");
    // Of these the double knows none, and the library has no other two.
    let celu = Activation::Celu { alpha: 0.5 };
    let hardtanh = Activation::Hardtanh { low: -1.0, high: 1.0 };
    for act in [Activation::Gelu, Activation::Hardsigmoid, Activation::Hardswish, celu, hardtanh] {
        assert_eq!(of(true, Some(act), DType::BF16, false), plain(TENSOR), "{act:?}");
    }
}

#[test]
fn an_engine_that_does_what_it_should_not_is_passed_over() {
    let Some(lab) = Lab::new() else { return };
    let cases = [
        (Fault::Wrong, Some("element 959 of a trial is ")),
        (Fault::NanResult, Some("element 0 of a trial is NaN, and ")),
        (Fault::Unsteady, Some("it gives other bits when it is run again")),
        (Fault::NoRun, Some("cuDNN failed while convolving (status 5000)")),
        // That it cannot be had at all has no note.
        (Fault::NoPlan, None),
        (Fault::Strange, None),
        (Fault::Large, None),
    ];
    for (fault, reason) in cases {
        for cache in [None, Some(lab.dir.path().join(format!("{fault:?}")))] {
            // One after the other, until there is none.
            lab.plant_all(Fault::None);
            for (k, (engine, _)) in TAGS.iter().enumerate() {
                lab.plant(*engine, fault);
                let cache = cache.as_ref().map(|folder| folder.join(k.to_string()));
                let backend = lab.backend(cache.as_deref());
                let graph = graph(&CONV, Way::Input, DType::BF16);
                let chosen = choice(&backend, &CONV, Way::Input, DType::BF16);
                let notes = backend.notes();
                let left: Vec<String> = TAGS[k + 1..].iter().map(|(engine, _)| plain(*engine)).collect();
                match left.first() {
                    // Measuring may prefer any that is left.
                    Some(first) => assert!(chosen == *first || cache.is_some() && left.contains(&chosen), "{chosen}"),
                    None => {
                        assert_eq!(chosen, "own", "{fault:?}");
                        // All were tried.
                        let expected = if reason.is_some() { TAGS.len() } else { 0 };
                        assert_eq!(notes.len(), expected, "{notes:?}");
                        let own = CudaBackend::new(0).unwrap().with_libraries(&Wanted::default());
                        let bytes = [&backend, &own].map(|b| b.workspace(&graph, &graph.nodes[0]));
                        assert_eq!(bytes[0], bytes[1]);
                    }
                }
                let why =
                    |note: &String| reason.is_some_and(|part| note.contains(part)) && note.contains("is not used for");
                assert!(notes.iter().all(why), "{fault:?}: {notes:?}");
                assert!(reason.is_none() || cache.is_some() || notes.len() == k + 1, "{fault:?}: {notes:?}");
            }
        }
    }
}

/// An engine that rounds more than it says.
#[test]
fn rounding_that_is_not_noted_is_found() {
    let Some(lab) = Lab::new() else { return };
    for way in [Way::Forward, Way::Input, Way::Weight] {
        lab.plant_all(Fault::None);
        lab.plant(DIRECT, Fault::ToTf32);
        assert_eq!(choice(&lab.backend(None), &CONV, way, DType::F32), plain(COMPILED), "{way:?}");
        // TF32 has the range of 32 bits, and 16 bits have not.
        lab.plant(TENSOR, Fault::ToHalf);
        let tf32 = || lab.backend(None).with_tf32(true);
        assert_eq!(choice(&tf32(), &CONV, way, DType::F32), plain(DIRECT), "{way:?}");
        lab.plant(TENSOR, Fault::None);
        assert_eq!(choice(&tf32(), &CONV, way, DType::F32), plain(TENSOR), "{way:?}");
    }
}

#[test]
fn a_plan_that_is_wrong_where_it_is_fused_leaves_the_plain_one() {
    let Some(lab) = Lab::new() else { return };
    let conv = Conv2d { bias: true, ..CONV };
    let way = Way::Activated(Activation::Relu);
    // TF32 is fused by one engine only.
    let backend = lab.backend(None).with_tf32(true);
    lab.plant(TENSOR, Fault::NanResult);
    assert_eq!(choice(&backend, &conv, way, DType::F32), plain(DIRECT));
    assert_eq!(backend.notes().len(), 2, "once fused, once not");
}

/// Engines that compile kernels need a part of the library that may be missing.
#[test]
fn without_the_compiler_its_engines_are_passed_over() {
    let Some(lab) = Lab::new() else { return };
    for engine in [TENSOR, DIRECT] {
        lab.plant(engine, Fault::NoPlan);
    }
    assert_eq!(choice(&lab.backend(None), &CONV, Way::Forward, DType::BF16), plain(COMPILED));
    fs::remove_file(lab.dir.path().join("libcudnn_engines_runtime_compiled.so.9")).unwrap();
    assert_eq!(choice(&lab.backend(None), &CONV, Way::Forward, DType::BF16), plain(FALLBACK));
}

#[test]
fn the_workspace_of_the_plan_is_planned() {
    let Some(lab) = Lab::new() else { return };
    // Kernels of nine need none of the double, others four bytes an element and four.
    let graph = convolution(&CONV, Way::Forward, DType::F32, [2, 6, 5, 8], [16, 3, 5]);
    let bytes = 4 * 16 * 3 * 5 * 8 + 4;
    let planned = lab.backend(None).workspace(&graph, &graph.nodes[0]);
    assert!((bytes..bytes + 512).contains(&planned), "{planned}");
}

/// Batches whose size is looked for are many, and none of them but one is ever run.
#[test]
fn what_is_only_estimated_is_not_tried_and_counts_for_the_most() {
    let Some(lab) = Lab::new() else { return };
    let backend = lab.backend(Some(&lab.cache()));
    let graph = graph(&Conv2d { bias: true, ..CONV }, Way::Forward, DType::BF16);
    let workspace = || backend.workspace(&graph, &graph.nodes[0]);
    backend.estimate(true);
    let estimated = workspace();
    let runs = || TAGS.map(|(engine, _)| emulator::runs(&lab.file, engine));
    assert_eq!((backend.choices(), runs()), (None, [0; 4]));
    assert!(!lab.cache().exists());
    backend.estimate(false);
    let chosen = workspace();
    assert!(backend.choices().is_some() && chosen < estimated, "{chosen}, {estimated} estimated");
    // What was chosen is no estimate.
    backend.estimate(true);
    assert_eq!(workspace(), chosen);
}

/// Our own kernels have their part in what is measured, unless the library is to be used for everything.
#[test]
fn our_own_kernels_compute_where_they_are_faster() {
    let Some(lab) = Lab::new() else { return };
    lab.plant_all(Fault::Slow);
    let graph = graph(&CONV, Way::Forward, DType::BF16);
    let own = || lower(&graph, &graph.nodes[0], &Target::new(80)).unwrap();
    let convolution = Convolution {
        direction: Direction::Forward,
        images: 2,
        input: [6, 5],
        inputs: 16,
        output: [6, 5],
        outputs: 16,
        kernel: [3, 3],
        groups: 1,
        stride: [1, 1],
        padding: [1; 4],
        dilation: [1, 1],
        dtype: DType::BF16,
        result: DType::BF16,
        tf32: false,
        bias: false,
        act: None,
    };
    for (always, cache, library) in
        [(false, Some(lab.cache()), false), (true, Some(lab.dir.path().join("other")), true), (false, None, true)]
    {
        let backend = lab.backend(cache.as_deref());
        let dnn = backend.libraries().dnn().unwrap();
        let nothing = Lowered::default;
        let problem = Problem { convolution: &convolution, own: &own, after: nothing(), widen: nothing(), always };
        let chosen = dnn.choose(&problem);
        assert_eq!(chosen.is_some(), library, "{always}, {cache:?}: {:?}", backend.notes());
    }
    // Kept like a plan.
    lab.plant_all(Fault::None);
    assert_eq!(choice(&lab.backend(Some(&lab.cache())), &CONV, Way::Forward, DType::BF16), "own");
}

/// Of several plans the fastest is taken, and from then on always.
#[test]
fn a_measured_choice_is_kept() {
    let Some(lab) = Lab::new() else { return };
    let cache = lab.cache();
    let ask = || {
        let backend = lab.backend(Some(&cache));
        let chosen = choice(&backend, &CONV, Way::Forward, DType::BF16);
        assert_eq!(backend.notes(), Vec::<String>::new());
        chosen
    };
    for engine in [TENSOR, DIRECT, COMPILED] {
        lab.plant(engine, Fault::Slow);
    }
    assert_eq!(ask(), plain(FALLBACK));
    // An engine that is slower now is not measured again.
    lab.plant_all(Fault::None);
    lab.plant(FALLBACK, Fault::Slow);
    let before = TAGS.map(|(engine, _)| emulator::runs(&lab.file, engine));
    assert_eq!(ask(), plain(FALLBACK));
    assert_eq!(TAGS.map(|(engine, _)| emulator::runs(&lab.file, engine)), before);
    let files: Vec<PathBuf> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    let file = files.iter().find(|file| file.extension().is_some_and(|e| e == "json")).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("cudnn-91000-") && name.contains(env!("CARGO_PKG_VERSION")), "{name}");
    // Without the file, or with a choice that there is no more, it is made again.
    let text = fs::read_to_string(file).unwrap();
    for text in [None, Some(text.replace("eng6", "eng66")), Some(text[..text.len() / 2].into())] {
        fs::remove_file(file).unwrap();
        if let Some(text) = &text {
            fs::write(file, text).unwrap();
        }
        let chosen = ask();
        assert_ne!(chosen, plain(FALLBACK), "{text:?}");
        assert_eq!(plans(&fs::read_to_string(file).unwrap()).into_values().collect::<Vec<_>>(), [chosen]);
    }
}

/// What is measured and not kept might come out otherwise the next time, and with it the bits.
#[test]
fn nothing_is_measured_where_a_choice_cannot_be_kept() {
    let Some(lab) = Lab::new() else { return };
    lab.plant(TENSOR, Fault::Slow);
    let file = lab.dir.path().join("file");
    fs::write(&file, "").unwrap();
    let backend = lab.backend(Some(&file.join("folder")));
    assert_eq!(choice(&backend, &CONV, Way::Forward, DType::BF16), plain(TENSOR));
    let notes = backend.notes().join("\n");
    assert!(notes.contains("cannot be kept in") && notes.contains("RUNNER_CUDA_CACHE"), "{notes}");
    // What was kept there before still holds, and then there is nothing to be said.
    let other = lab.dir.path().join("other");
    let kept = choice(&lab.backend(Some(&other)), &CONV, Way::Forward, DType::BF16);
    let lock = fs::read_dir(&other).unwrap().map(|e| e.unwrap().path()).find(|f| f.extension().unwrap() == "lock");
    let lock = lock.unwrap();
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    assert_ne!(kept, plain(TENSOR));
    let backend = lab.backend(Some(&other));
    assert_eq!(choice(&backend, &CONV, Way::Forward, DType::BF16), kept);
    assert_eq!(backend.notes(), Vec::<String>::new());
    // As when the disk fills up while plans are tried.
    let cache = lab.cache();
    assert_ne!(choice(&lab.backend(Some(&cache)), &CONV, Way::Forward, DType::BF16), plain(TENSOR));
    let file = fs::read_dir(&cache).unwrap().map(|e| e.unwrap().path()).find(|f| f.extension().unwrap() == "json");
    let file = file.unwrap();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let backend = lab.backend(Some(&cache));
    assert_eq!(choice(&backend, &CONV, Way::Forward, DType::BF16), plain(TENSOR));
    assert_eq!(backend.notes().len(), 1);
}

/// A run that is resumed goes on with the plans of its checkpoint, whatever would be chosen now.
#[test]
fn choices_of_a_checkpoint_hold() {
    let Some(lab) = Lab::new() else { return };
    for engine in [TENSOR, DIRECT] {
        lab.plant(engine, Fault::NoPlan);
    }
    let first = lab.backend(None);
    assert_eq!(choice(&first, &CONV, Way::Forward, DType::BF16), plain(COMPILED));
    lab.plant_all(Fault::None);
    let said = first.choices().unwrap();
    let resumed = |said: &str, cache: Option<&Path>| {
        let backend = lab.backend(cache);
        let note = backend.take_choices(said);
        (choice(&backend, &CONV, Way::Forward, DType::BF16), note, backend.notes())
    };
    let cache = lab.cache();
    assert_eq!(resumed(&said, None), (plain(COMPILED), None, vec![]));
    // The cache has another, and keeps it.
    choice(&lab.backend(Some(&cache)), &CONV, Way::Forward, DType::BF16);
    assert_eq!(resumed(&said, Some(&cache)), (plain(COMPILED), None, vec![]));
    // Of another library, or of no sense: noted, and chosen anew.
    for (other, words) in [(said.replace("91000", "91001"), "91001"), ("[]".into(), "cannot be read")] {
        let (chosen, note, notes) = resumed(&other, None);
        assert_eq!((chosen, notes), (plain(TENSOR), vec![]));
        let note = note.unwrap();
        assert!(note.contains(words) && note.contains("no longer bit for bit"), "{note}");
    }
    let (chosen, note, notes) = resumed(&said.replace("eng4", "eng44"), None);
    assert_eq!((chosen, note), (plain(TENSOR), None));
    assert!(notes[0].contains("eng44") && notes[0].contains("no longer bit for bit"), "{notes:?}");
    let without = CudaBackend::new(0).unwrap().with_libraries(&Wanted::default());
    assert!(without.take_choices(&said).unwrap().contains("cuDNN"));
}

/// In a process of its own, whose device has too little memory.
#[test]
fn child_without_memory() {
    if std::env::var("EMULATED_MEMORY").is_err() {
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let backend = lab.backend(None);
    assert_eq!(choice(&backend, &CONV, Way::Forward, DType::F32), "own");
    let notes = backend.notes().join("\n");
    assert!(notes.contains("cannot be tried") && notes.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{notes}");
}

#[test]
fn without_memory_for_a_trial_our_own_kernels_compute() {
    if !emulator::only_emulated() {
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "plans::child_without_memory"])
        .env("EMULATED_MEMORY", "4096")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

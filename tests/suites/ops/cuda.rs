//! The CUDA backend against the reference. `RUNNER_TEST_CASES=conv` takes the cases with `conv` in their names.

use crate::case::{Case, Operand};
use crate::cases::is_of_part;
use crate::emulator;
#[cfg(feature = "cust")]
use crate::parity::check_some;
use crate::parity::{check_families, check_tf32};
use runner::backend::Backend;
use runner::backend::cuda::CudaBackend;
#[cfg(feature = "cust")]
use runner::backend::cuda::settings::Bindings;
use runner::backend::cuda::settings::{Source, Wanted};
use runner::graph::{DType, Op};
use std::process::Command;

/// A backend that captures, and one that does not.
fn backends(libraries: &Wanted) -> Vec<Box<dyn Backend>> {
    let captures = CudaBackend::new(0).unwrap().with_libraries(libraries);
    // What is tried and chosen for one holds for the other.
    let plain = CudaBackend::new(0).unwrap().with_graph(false).with_libraries_of(&captures);
    [captures, plain].map(|backend| Box::new(backend) as Box<dyn Backend>).into()
}

/// A module with a test for each family of cases: on a GPU each can be a process of its own, and an error that ends the use
/// of the device hides no other family.
macro_rules! families {
    ($module:ident, $check:ident) => {
        families! { $module, $check: attention, cached_attention, chain, conv, conv_pool, depthwise, elementwise, embedding, input, linear, long, loss, loss_weights, norm, optim, pool, recurrent, resize, rotary, shape, shards, softmax, sync_batch_norm, tiles }
    };
    ($module:ident, $check:ident: $($name:ident),*) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    super::$check(stringify!($name));
                }
            )*

            #[test]
            fn every_family_has_its_test() {
                assert_eq!([$(stringify!($name)),*].as_slice(), crate::cases::families());
            }
        }
    };
}

families! { agrees_with_the_reference, own_kernels }
families! { agrees_where_libraries_compute, libraries }

/// Captured, not captured, and one by one with every value in an allocation of its own, where what reaches beyond a value is
/// an error.
fn own_kernels(family: &str) {
    if emulator::ready() {
        let mut backends = backends(&Wanted::default());
        if emulator::emulated() {
            // The one below launches the same kernels, and an emulated one takes its time.
            backends.truncate(1);
        }
        let apart = CudaBackend::new(0).unwrap().with_libraries(&Wanted::default()).with_separate(true).with_sync(true);
        backends.push(Box::new(apart));
        check_families(&backends, &[family], worth_emulating);
    }
}

/// On the emulated driver, the longest cases are left out: sequences that are long for the blocks of a CPU alone, as a block of a GPU has
/// at most 128 keys, and large images in one of the types of 16 bits. So are cases of another part than the one that is asked for.
fn worth_emulating(case: &Case) -> bool {
    let long = |operand: &Operand| operand.shape.dims().get(1).is_some_and(|length| *length > 400);
    let attention = matches!(case.op, Op::Attention(_)) && case.operands.iter().any(long);
    let images = case.name.contains("unfolded") && case.operands[0].dtype == DType::F16;
    !emulator::emulated() || is_of_part(&case.name) && !(attention || images)
}

/// With cuBLASLt and cuDNN for all that they take: the machine's own on a GPU, the test double on the emulated driver.
fn libraries(family: &str) {
    if !emulator::ready() {
        return;
    }
    // Calls and objects are counted for the whole process.
    let _turn = emulator::alone();
    let double = |file| if emulator::on_gpu() { None } else { emulator::nvidia_library(file) };
    let source = |file: Option<std::path::PathBuf>| file.map_or(Source::Found, Source::File);
    let files = ["libcublasLt.so", "libcudnn.so"].map(double);
    let [cublaslt, cudnn] = files.clone().map(source);
    let wanted = Wanted { cublaslt, cudnn, everywhere: true, cache: None };
    let before = files.clone().map(|file| file.as_deref().map(emulator::counts));
    let backends = backends(&wanted);
    check_families(&backends, &[family], |case| {
        let linear = matches!(case.op, Op::Linear(_) | Op::LinearGradInput(_) | Op::LinearGradWeight(_));
        let conv = matches!(case.op, Op::Conv2d(_) | Op::Conv2dGradInput(_) | Op::Conv2dGradWeight(_));
        // What has large tiles in our kernels is nothing special to a library.
        (linear || conv) && !case.name.contains("a large") && worth_emulating(case)
    });
    // What the double does is right. A plan of the library itself that is not is passed over, and worth being known.
    let notes: Vec<String> = backends.iter().flat_map(|backend| backend.notes()).collect();
    assert!(notes.is_empty() || !emulator::emulated(), "{notes:?}");
    notes.iter().for_each(|note| println!("{note}"));
    drop(backends);
    for (file, before) in files.into_iter().zip(before) {
        let Some((file, before)) = file.zip(before) else { continue };
        let after = emulator::counts(&file);
        // The one family that has products of both kinds.
        let both = family == "tiles" && std::env::var_os("RUNNER_TEST_CASES").is_none();
        assert!(!both || after.calls > before.calls, "{} was not called", file.display());
        assert_eq!(after.live, before.live, "descriptors of {} that were never destroyed", file.display());
    }
}

/// Attention whose products are rounded to TF32, in heads that tensor cores take. Scores far from 0 are left out: a score `s` is rounded
/// by up to |s|/1024, and its exponential, relative to itself, by as much as that, so that no bound on the rounding of products holds.
#[test]
fn attention_agrees_in_tf32() {
    if emulator::ready() {
        let backend = || CudaBackend::new(0).unwrap().with_libraries(&Wanted::default()).with_tf32(true);
        let backends = [backend(), backend().with_separate(true).with_sync(true)];
        check_tf32(&backends.map(|backend| Box::new(backend) as Box<dyn Backend>), "attention", |case| {
            let Op::Attention(op) = &case.op else { return false };
            let parts = if op.between { 1 } else { 3 };
            let width = case.operands[0].shape.dims()[2] / parts / op.heads;
            width.is_multiple_of(4) && width <= 64 && !case.name.starts_with("large scores") && worth_emulating(case)
        });
    }
}

/// Products have other kernels below 8.0; above, no choice depends on the capability. A process of its own, as the emulated driver
/// is asked for its capability once.
#[test]
fn products_agree_on_older_architectures() {
    if !emulator::only_emulated() {
        return;
    }
    let words = ["conv", "few rows", "thin results", "1 heads of 96"];
    // Depthwise convolutions have no products.
    let families = ["conv", "tiles", "attention"].map(|family| format!("cuda::agrees_with_the_reference::{family}"));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(families)
        .args(["--exact", "--nocapture"])
        .env("EMULATED_CAPABILITY", "75")
        .env("RUNNER_TEST_CASES", words.join("|"))
        .env_remove("RUNNER_TEST_PART")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    for word in words {
        let ran = said.lines().any(|line| line.contains("case ") && line.contains(word));
        assert!(ran, "no case with `{word}` in its name was run: {said}");
    }
}

/// Through `cust`: right, and the same bits as through `cudarc`. What launches a kernel does not know what it computes, so
/// one family with launches of several kinds is enough, in one type.
#[cfg(feature = "cust")]
#[test]
fn cuda_through_cust_agrees_with_the_reference_and_with_cudarc() {
    if emulator::ready() {
        let backend = |bindings| CudaBackend::new(0).unwrap().with_bindings(bindings);
        let backends = [Bindings::Cust, Bindings::Cudarc].map(|b| Box::new(backend(b)) as Box<dyn Backend>);
        let family =
            |case: &Case| ["batch norm", "layer norm", "group norm"].iter().any(|name| case.name.contains(name));
        check_some(&backends, |case| family(case) && case.operands[0].dtype == DType::F32);
    }
}

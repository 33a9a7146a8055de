//! What the assembler makes of the kernels: which instructions their inner loops have, and that nothing lies on the stack.
//!
//! NVIDIA's disassembler writes the machine code as text. It needs neither a GPU nor a driver.

use crate::compiled::{as_packed, checked, compiled, whole};
use crate::cubins;
use crate::nvrtc::usual_folders;
use crate::sources::Architecture;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The machine code of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// `mean_pool_bf16`
    pub name: String,
    /// The instructions with their modifiers, in order: `LDG.E.128`.
    pub instructions: Vec<String>,
    /// First and last instruction of what is run again and again, the shortest first.
    pub loops: Vec<(usize, usize)>,
}

/// The disassembler: of the folder that the environment variable `RUNNER_NVDISASM` names, or else from where CUDA and Python's
/// packages are usually installed.
///
/// # Errors
/// It is not there.
///
/// # Panics
/// `RUNNER_NVDISASM` is set, but it is not there.
pub fn find() -> Result<PathBuf, String> {
    let name = "nvdisasm";
    if let Some(folder) = std::env::var_os("RUNNER_NVDISASM") {
        let path = Path::new(&folder).join(name);
        assert!(path.is_file(), "RUNNER_NVDISASM: {} is not there", path.display());
        return Ok(path);
    }
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    // Beside the folder of libraries is that of programs; a Python package has one of its own.
    let beside = usual_folders().into_iter().flat_map(|lib| {
        let package = lib.parent().map(Path::to_owned).unwrap_or_default();
        let nvidia = package.parent().map(Path::to_owned).unwrap_or_default();
        [package.join("bin"), nvidia.join("cuda_nvdisasm/bin"), nvidia.join("cu13/bin")]
    });
    let found = std::env::split_paths(&path).chain(beside).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| "nvdisasm was not found (RUNNER_NVDISASM names its folder)".to_owned())
}

/// A module that is to be looked at: its machine code for an architecture.
struct Module<'a> {
    name: &'a str,
    architecture: Architecture,
    cubin: Cow<'a, [u8]>,
}

/// The machine code of every kernel of a module, by name.
///
/// # Errors
/// The disassembler does not take it.
fn disassemble(nvdisasm: &Path, module: &Module) -> Result<Vec<Code>, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    let name = format!("{}.{}.{}.cubin", module.name, module.architecture.name(), std::process::id());
    let path = folder.join(name);
    let fail = |e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &module.cubin)).map_err(fail)?;
    let output = Command::new(nvdisasm).arg("-c").arg(&path).output();
    let _ = fs::remove_file(&path);
    let output = output.map_err(|e| format!("{}: {e}", nvdisasm.display()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", nvdisasm.display(), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// The kernels in the text that the disassembler writes.
fn parse(text: &str) -> Vec<Code> {
    let mut list = Vec::new();
    let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':')) {
            list.push(Code { name: name.to_owned(), instructions: Vec::new(), loops: Vec::new() });
            labels.clear();
        }
        let Some(code) = list.last_mut() else { continue };
        if let Some(label) = line.strip_suffix(':').filter(|l| l.starts_with(".L_")) {
            labels.insert(label, code.instructions.len());
        }
        // `/*0080*/               @P0 BRA `(.L_x_1) ;`
        let Some((_, rest)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) else { continue };
        let mut words = rest.split_whitespace().filter(|word| !word.starts_with('@'));
        let Some(instruction) = words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())) else {
            continue;
        };
        let at = code.instructions.len();
        code.instructions.push(instruction.trim_end_matches(';').to_owned());
        let target = rest.split_once("`(").and_then(|(_, label)| label.split_once(')')).map(|(label, _)| label);
        // What leads to itself stands after the kernel's end.
        if instruction.starts_with("BRA")
            && let Some(first) = target.and_then(|label| labels.get(label)).filter(|first| **first < at)
        {
            code.loops.push((*first, at));
        }
    }
    for code in &mut list {
        code.loops.sort_by_key(|(first, last)| last - first);
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// True if an instruction is what `wanted` says: its name, and modifiers that it has among others. `LDG` and `STG` are also
/// those whose addresses come from memory, of which the compiler does not know that they are global.
fn is(instruction: &str, wanted: &str) -> bool {
    // Hardly any is, and there are millions of them.
    if instruction.as_bytes().first() != wanted.as_bytes().first() {
        return false;
    }
    let (name, modifiers) = instruction.split_once('.').unwrap_or((instruction, ""));
    let mut wanted = wanted.split('.');
    let base = wanted.next().unwrap_or_default();
    let named = name == base || (base == "LDG" && name == "LD") || (base == "STG" && name == "ST");
    named && wanted.all(|modifier| modifiers.split('.').any(|have| have == modifier))
}

impl Code {
    fn count(&self, (first, last): (usize, usize), wanted: &str) -> usize {
        self.instructions[first..=last].iter().filter(|i| is(i, wanted)).count()
    }

    /// The shortest loop that has this instruction so many times.
    fn loop_with(&self, (wanted, times): (&str, usize)) -> Option<(usize, usize)> {
        self.loops.iter().copied().find(|range| self.count(*range, wanted) >= times)
    }
}

/// What the shortest loop with an instruction must have besides.
struct Rule {
    /// Parts of the kernels' names: a prefix, or what stands within.
    kernels: &'static [&'static str],
    /// How their names end.
    types: &'static [&'static str],
    /// The instruction that identifies the loop, and how often it is there at least.
    anchor: (&'static str, usize),
    must: &'static [&'static str],
}

const FLOATS: &[&str] = &["_f32", "_bf16", "_f16"];
const HALVES: &[&str] = &["_bf16", "_f16"];
const SINGLE: &[&str] = &["_f32"];
const PRODUCTS: &[&str] = &["linear_", "conv_"];
const ATTENTION: &[&str] = &[
    "attention_f32",
    "attention_f16",
    "attention_bf16",
    "attention_biased_",
    "attention_grad_",
    "attention_far_f",
    "attention_far_b",
    "attention_far_grad_",
];
const ATTENTION_MMA: &[&str] = &["attention_mma_", "attention_far_mma_"];
const DEPTHWISE_3: &[&str] = &["depthwise3_f", "depthwise3_b", "depthwise3_stride2", "depthwise3_grad_"];
const DEPTHWISE: &[&str] = &[
    "depthwise5_f",
    "depthwise5_b",
    "depthwise5_stride2",
    "depthwise5_grad_",
    "depthwise7_f",
    "depthwise7_b",
    "depthwise7_stride2",
    "depthwise7_grad_",
];

/// For capability 8.0 and up.
const RULES: [Rule; 31] = [
    // Tensor cores, fed by matrix loads from tiles that are copied asynchronously, 16 bytes at a time.
    Rule { kernels: PRODUCTS, types: HALVES, anchor: ("HMMA", 8), must: &["LDSM", "LDGSTS.128"] },
    // There is no matrix load of 32-bit elements.
    Rule { kernels: PRODUCTS, types: &["_tf32"], anchor: ("HMMA", 8), must: &["LDS", "LDGSTS.128"] },
    // Of attention the copies are around the loop over a stage.
    Rule { kernels: ATTENTION_MMA, types: HALVES, anchor: ("HMMA", 16), must: &["LDSM", "MUFU.EX2"] },
    Rule { kernels: ATTENTION_MMA, types: &["_tf32"], anchor: ("HMMA", 16), must: &["LDS", "MUFU.EX2"] },
    Rule { kernels: ATTENTION_MMA, types: &["_tf32", "_bf16", "_f16"], anchor: ("LDGSTS.128", 2), must: &["HMMA"] },
    // Fused multiply-adds, fed by 16 bytes at a time; around them the loop that reads the next tile.
    Rule { kernels: &["*_simt_"], types: SINGLE, anchor: ("FFMA", 64), must: &["LDS.128"] },
    Rule { kernels: &["*_simt_"], types: SINGLE, anchor: ("LDG.128", 1), must: &["FFMA", "LDS.128"] },
    Rule { kernels: ATTENTION, types: FLOATS, anchor: ("FFMA", 64), must: &["LDS.128"] },
    // Sums leave in 16 bytes.
    Rule { kernels: PRODUCTS, types: &["_f32", "_tf32", "_bf16", "_f16"], anchor: ("STG.128", 1), must: &["LDS.128"] },
    // One trip through memory, 16 bytes at a time.
    Rule {
        kernels: &[
            "activation_",
            "binary_f32",
            "binary_bf16",
            "binary_f16",
            "dropout_",
            "cast_",
            "stretch_packs_",
            "chain_",
        ],
        types: FLOATS,
        anchor: ("STG.128", 1),
        must: &["LDG.128"],
    },
    // Two packs of three operands.
    Rule { kernels: &["relu_grad_of_sum_"], types: FLOATS, anchor: ("LDG.128", 6), must: &["STG.128"] },
    Rule {
        kernels: &["max_pool_packs_", "max_pool_grad_packs_"],
        types: FLOATS,
        anchor: ("STG.128", 1),
        must: &["LDG.128"],
    },
    Rule {
        kernels: &["mean_pool_packs_", "mean_pool_grad_packs_"],
        types: FLOATS,
        anchor: ("STG.128", 1),
        must: &["LDG.128"],
    },
    Rule { kernels: &["normalize_f32_"], types: FLOATS, anchor: ("STG.128", 1), must: &["LDG.128"] },
    Rule { kernels: &["normalize_u8_"], types: FLOATS, anchor: ("STG.128", 1), must: &["LDG.64"] },
    Rule { kernels: &["copy_rows_", "gather_"], types: &["_b128"], anchor: ("STG.128", 1), must: &["LDG.128"] },
    Rule { kernels: &["transpose_"], types: &["_b128"], anchor: ("STG.128", 1), must: &["LDS.128"] },
    // A row of depthwise convolutions: all taps of the kernel for the columns and channels of a thread, while the next row is loaded.
    Rule { kernels: DEPTHWISE_3, types: SINGLE, anchor: ("FFMA", 72), must: &["LDG.128", "LDS.128", "STG.128"] },
    Rule { kernels: DEPTHWISE_3, types: HALVES, anchor: ("FFMA", 72), must: &["LDG.64", "LDS.128", "STG.64"] },
    Rule { kernels: DEPTHWISE, types: SINGLE, anchor: ("FFMA", 196), must: &["LDG.64", "LDS.64", "STG.64"] },
    Rule { kernels: DEPTHWISE, types: HALVES, anchor: ("FFMA", 196), must: &["LDG", "LDS.64", "STG"] },
    Rule { kernels: &["depthwise7_f", "depthwise7_b"], types: FLOATS, anchor: ("FFMA", 686), must: &["LDG", "STG"] },
    Rule { kernels: &["depthwise7_weight_"], types: FLOATS, anchor: ("FFMA", 392), must: &["LDG"] },
    // Channels by 16 bytes; of 16-bit floats by fours, too, where they are no multiple of eight.
    Rule {
        kernels: &["*_norm_apply4", "*_norm_grad_apply4", "*_norm_infer4"],
        types: SINGLE,
        anchor: ("STG.128", 1),
        must: &["LDG.128"],
    },
    Rule {
        kernels: &["*_norm_apply8", "*_norm_apply_sum8", "*_norm_grad_apply8", "*_norm_infer8"],
        types: HALVES,
        anchor: ("STG.128", 1),
        must: &["LDG.128"],
    },
    Rule {
        kernels: &["*_norm_apply4", "*_norm_grad_apply4", "*_norm_infer4"],
        types: HALVES,
        anchor: ("STG.64", 1),
        must: &["LDG.64"],
    },
    Rule { kernels: &["*_moments4", "*_sums4"], types: SINGLE, anchor: ("LDG.128", 4), must: &["FADD"] },
    Rule { kernels: &["*_moments8", "*_sums8"], types: HALVES, anchor: ("LDG.128", 8), must: &["FFMA"] },
    // A row of whole packs at once.
    Rule { kernels: &["layer_norm_grad_packs_"], types: SINGLE, anchor: ("STG.128", 8), must: &["SHFL"] },
    // The update: every array in 16 bytes.
    Rule {
        kernels: &[
            "accumulate",
            "adam",
            "rmsprop",
            "sgd",
            "nadam",
            "radam",
            "adagrad",
            "adadelta",
            "adamax",
            "lion",
            "lamb",
            "lars_f32",
            "muon",
            "adafactor_f32",
            "schedule_free_adamw",
        ],
        types: SINGLE,
        anchor: ("STG.128", 1),
        must: &["LDG.128"],
    },
    // Norms of parameters and gradients: they are read alone, in 16 bytes as well.
    Rule { kernels: &["lars_squares"], types: SINGLE, anchor: ("LDG.128", 2), must: &["DFMA"] },
];

/// For 7.5, which has no asynchronous copies, and tensor cores for binary16 alone.
const RULES_75: [Rule; 2] = [
    Rule { kernels: PRODUCTS, types: &["_f16"], anchor: ("HMMA", 8), must: &["LDSM"] },
    Rule { kernels: &["*_simt_"], types: FLOATS, anchor: ("FFMA", 64), must: &["LDS.128"] },
];

impl Rule {
    fn holds_for(&self, name: &str) -> bool {
        let named = |part: &&str| part.strip_prefix('*').map_or(name.starts_with(part), |inside| name.contains(inside));
        self.kernels.iter().any(named) && self.types.iter().any(|end| name.ends_with(end))
    }

    /// What `code` lacks.
    fn complaint(&self, code: &Code) -> Option<String> {
        let Some(range) = code.loop_with(self.anchor) else {
            return Some(format!("no loop has {} ({} times)", self.anchor.0, self.anchor.1));
        };
        let missing: Vec<&str> = self.must.iter().copied().filter(|wanted| code.count(range, wanted) == 0).collect();
        (!missing.is_empty()).then(|| format!("the loop with {} has no {}", self.anchor.0, missing.join(", ")))
    }
}

/// Kernels that may have a stack, with the reason. Names are without the element type.
const MAY_HAVE_A_STACK: [(&str, &str); 1] =
    [("cross_entropy_block", "up to 16 registers are spilled around a row where NVRTC assembles them")];

fn may_have_a_stack(name: &str) -> bool {
    MAY_HAVE_A_STACK.iter().any(|(kernel, _)| name.strip_prefix(kernel).is_some_and(|rest| rest.starts_with('_')))
}

/// The kernels of modules, each for an architecture.
type Modules = Vec<(Architecture, Vec<Code>)>;

/// The machine code of all modules, once for all tests; or why there is none.
fn all() -> Result<&'static Modules, String> {
    static ALL: OnceLock<Result<Modules, String>> = OnceLock::new();
    let read = || {
        let nvdisasm = find()?;
        let compiled = compiled()?.iter().map(|c| Module {
            name: &c.module,
            architecture: c.architecture,
            cubin: Cow::Borrowed(&c.cubin),
        });
        let packed = as_packed().iter().map(|name| Module {
            name,
            architecture: Architecture::CHECKED,
            cubin: Cow::Owned(cubins::packed(name, Architecture::CHECKED)),
        });
        let list: Vec<Module> = compiled.chain(packed).collect();
        let read = |part: &[Module]| -> Result<Modules, String> {
            part.iter().map(|module| Ok((module.architecture, disassemble(&nvdisasm, module)?))).collect()
        };
        // With the tests beside this one, more than two at a time would be no faster.
        let (first, second) = list.split_at(list.len() / 2);
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| read(second));
            (read(first), second.join().expect("it does not panic"))
        });
        Ok([first?, second?].concat())
    };
    ALL.get_or_init(read).as_ref().map_err(Clone::clone)
}

#[test]
fn inner_loops_have_the_instructions_that_they_are_written_for() {
    let list = match all() {
        Ok(list) => list,
        Err(why) => return println!("inner_loops_have_the_instructions_that_they_are_written_for: skipped, {why}"),
    };
    let mut wrong = Vec::new();
    for architecture in checked().iter().copied() {
        let rules: &[Rule] = if architecture.capability() >= 80 { &RULES } else { &RULES_75 };
        for rule in rules {
            let mut held = 0;
            let codes = list.iter().filter(|(of, _)| *of == architecture).flat_map(|(_, codes)| codes);
            for code in codes.filter(|code| rule.holds_for(&code.name)) {
                held += 1;
                wrong.extend(
                    rule.complaint(code).map(|what| format!("{} for {}: {what}", code.name, architecture.name())),
                );
            }
            assert!(held > 0, "no kernel is named like {:?} with {:?}", rule.kernels, rule.types);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_lies_on_the_stack() {
    let list = match all() {
        Ok(list) => list,
        Err(why) => return println!("nothing_lies_on_the_stack: skipped, {why}"),
    };
    let mut wrong = Vec::new();
    for (architecture, codes) in list {
        // What is looked at as it is packed has been assembled from PTX.
        let may = |name: &str| may_have_a_stack(name) || (!whole() && cubins::may_spill(name));
        for code in codes.iter().filter(|code| !may(&code.name)) {
            let count = code.instructions.iter().filter(|i| is(i, "LDL") || is(i, "STL")).count();
            if count > 0 {
                wrong.push(format!("{} for {}: {count} accesses to the stack", code.name, architecture.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same as the assembler reports it, for which no disassembler is needed.
#[test]
fn the_assembler_gives_no_kernel_a_stack() {
    let Some(list) = crate::compiled_for("the_assembler_gives_no_kernel_a_stack") else { return };
    let mut wrong = Vec::new();
    for c in list {
        for kernel in c.kernels.iter().filter(|k| k.stack > 0 && !may_have_a_stack(&k.name)) {
            wrong.push(format!("{} for {}: {} bytes", kernel.name, c.architecture.name(), kernel.stack));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let named = list.iter().flat_map(|c| &c.kernels).filter(|k| k.stack > 0);
    for (kernel, _) in MAY_HAVE_A_STACK {
        assert!(named.clone().any(|k| k.name.starts_with(kernel)), "`{kernel}` has no stack: take it off the list");
    }
}

/// A kernel with a loop within a loop, as the disassembler writes it.
#[cfg(test)]
const TEXT: &str = "\t.section\t.text.gemm_mma_bf16,\"ax\",@progbits
.text.gemm_mma_bf16:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDGSTS.E.BYPASS.128 [R3], [R4.64] ;
.L_x_2:
        /*0020*/              @!P0 LDSM.16.M88.4 R8, [R3] ;
        /*0030*/                   HMMA.16816.F32.BF16 R8, R8, R12, R8 ;
        /*0040*/               @P0 BRA `(.L_x_2) ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   STL.64 [R1+0x8], R8 ;
        /*0070*/                   EXIT ;
.L_x_3:
        /*0080*/                   BRA `(.L_x_3);
.text.add_f32:
        /*0000*/                   LD.E.128 R4, [R2.64] ;
        /*0010*/                   EXIT ;
";

#[test]
fn machine_code_is_understood() {
    let list = parse(TEXT);
    assert_eq!(list.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["add_f32", "gemm_mma_bf16"]);
    let gemm = &list[1];
    assert_eq!((gemm.instructions.len(), &gemm.loops[..]), (9, &[(2, 4), (1, 5)][..]));
    assert_eq!(gemm.loop_with(("HMMA", 1)), Some((2, 4)));
    assert_eq!(gemm.loop_with(("LDGSTS.128", 1)), Some((1, 5)));
    assert_eq!(gemm.loop_with(("STL", 1)), None);
    let rule = |must| Rule { kernels: &["*_mma_"], types: HALVES, anchor: ("HMMA", 1), must };
    assert!(rule(&["LDSM"]).holds_for("gemm_mma_bf16") && !rule(&["LDSM"]).holds_for("gemm_mma_tf32"));
    assert_eq!(rule(&["LDSM"]).complaint(gemm), None);
    let complaint = rule(&["LDSM", "LDGSTS.128"]).complaint(gemm).unwrap();
    assert_eq!(complaint, "the loop with HMMA has no LDGSTS.128");
    assert!(is("LD.E.128", "LDG.128") && !is("LDG.E.64", "LDG.128") && !is("LDSM.16.M88.4", "LDS"));
    assert!(is("STL.64", "STL") && !is("STG.E", "ST"));
}

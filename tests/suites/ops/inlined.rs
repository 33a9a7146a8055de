//! Kernels have their vector instructions in them.

#![cfg(target_os = "linux")]

use object::{Object, ObjectSymbol};

/// An instruction is a function of the standard library, which is inlined into what was compiled for that instruction. Where it is
/// called, the caller was not: it is a closure, for instance, that is too long to be inlined into its kernel. Such code is many
/// times slower.
#[test]
fn no_vector_instruction_is_a_call() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let file = object::File::parse(&*program).unwrap();
    let names: Vec<&str> = file.symbols().filter_map(|symbol| symbol.name().ok()).collect();
    assert!(names.iter().any(|name| name.contains("runner_cpu")), "the program has no names");
    let is_vector = |name: &&&str| {
        let of_library = name.contains("core_arch");
        of_library && ["_mm256_", "_mm512_", "4neon"].iter().any(|family| name.contains(family))
    };
    let calls: Vec<&&str> = names.iter().filter(is_vector).collect();
    assert!(
        calls.is_empty(),
        "functions of instructions: {calls:#?}\nwho calls them: objdump -d on this program, and a search for `call` with such a name"
    );
}

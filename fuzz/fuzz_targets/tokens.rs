#![no_main]

#[path = "../../tests/suites/corpora/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    targets::target("tokens")(data);
});

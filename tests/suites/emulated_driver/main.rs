//! The emulated CUDA driver does what a driver does, and reports what a GPU would not.

#[path = "../../support/emulator/mod.rs"]
mod emulator;

mod errors;
mod gpu;
mod kernels;
mod order;
mod sanitizer;

/// Prints where, for those who start programs with it by hand (`LD_LIBRARY_PATH`).
#[test]
fn the_driver_is_built() {
    if let Some(folder) = emulator::library_dir() {
        assert!(folder.join("libcuda.so.1").exists());
        println!("the emulated driver is in {}", folder.display());
    }
}

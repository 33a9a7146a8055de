//! Tables of a library's functions, looked up by name when it is opened.

#[cfg(not(unix))]
pub use libloading::Library as Loaded;
#[cfg(unix)]
pub use libloading::os::unix::Library as Loaded;

/// A struct with a field for each of the functions, all of which answer with a status, and `load`, which finds them.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident($($arg:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        struct $table {
            $($name: unsafe extern "C" fn($($arg),*) -> u32,)*
            /// The library stays loaded for as long as its functions may be called.
            _loaded: $crate::backend::cuda::nvidia::functions::Loaded,
        }

        impl $table {
            /// Loads the file and finds its functions.
            ///
            /// # Errors
            /// It does not load, or lacks a function.
            fn load(path: &std::path::Path) -> Result<$table, String> {
                type Loaded = $crate::backend::cuda::nvidia::functions::Loaded;
                // SAFETY: NVIDIA's libraries may be loaded at any time.
                let loaded = unsafe { Loaded::new(path) }.map_err(|e| format!("does not load: {e}"))?;
                Ok($table {
                    // SAFETY: these are the functions' types in every version of the library that is used.
                    $($name: *unsafe { loaded.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| format!("has no function `{}`", stringify!($name)))?,)*
                    _loaded: loaded,
                })
            }
        }
    };
}

pub(super) use functions;

//! Which build this is.

/// Version, commit, features and target.
pub const VERSION: &str = env!("RUNNER_VERSION");
/// The commit; empty where it is not known, as in debug builds.
pub const COMMIT: &str = env!("RUNNER_BUILT_FROM");
/// The features, with spaces between them.
pub const FEATURES: &str = env!("RUNNER_FEATURES");
/// The platform that it was built for.
pub const TARGET: &str = env!("RUNNER_TARGET");
/// The compiler.
pub const COMPILER: &str = env!("RUNNER_COMPILER");

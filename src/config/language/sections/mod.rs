//! The sections of a configuration: `[data]`, `[model]`, `[loss]`, …; the layers are in [`super::layers`].

mod cache;
mod data;
mod distributed;
mod init;
mod length;
mod lint;
mod loss;
mod metrics;
mod model;
mod optimizer;
mod photos;
mod recompute;
mod schedule;
mod sweep;
mod table;
mod top;
mod training;
mod transforms;

pub use cache::*;
pub use data::*;
pub use distributed::*;
pub use init::*;
pub use length::*;
pub use lint::*;
pub use loss::*;
pub use metrics::*;
pub use model::*;
pub use optimizer::*;
pub use photos::*;
pub use recompute::*;
pub use schedule::*;
pub use sweep::*;
pub use table::*;
pub use top::*;
pub use training::*;
pub use transforms::*;

//! How options are declared, and how a table is read and described by the declaration. Nothing here knows which options there
//! are.

pub(super) mod bounds;
mod de;
pub mod declaration;
pub(super) mod field;
pub mod options;
pub mod part;
pub(super) mod schema;
pub mod tagged;
pub(super) mod value;

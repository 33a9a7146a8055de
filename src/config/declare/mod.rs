//! How options are declared, and how a table is read and described by the declaration. Nothing here knows which options there
//! are.

pub mod bounds;
mod de;
pub mod declaration;
pub mod field;
pub mod options;
pub mod part;
pub mod schema;
pub mod tagged;
pub mod value;

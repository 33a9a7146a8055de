//! Every kernel against plain loops in double precision, on every level of instructions, with the same bits for any
//! number of threads, in place as out of place.

mod elementwise;
mod engine;
mod harness;
mod kept;
mod losses;
mod narrow;
mod norms;
mod optimizers;
mod parts;
mod pools;
mod products;
mod shapes;

//! What a configuration means once model and data are at hand: mistakes that only then can be seen, memory, and that no
//! list of layers makes the program panic; what is warned of; and that passes change no result; the learning rate of every update; the architectures that come with the program.

mod architectures;
mod errors;
mod fields;
mod gradients;
mod growth;
mod in_order;
mod kept;
mod lints;
mod memory;
mod nets;
mod passes;
mod random;
mod rearranged;
mod scaler;
mod schedules;
mod statistics;
mod two_sequences;
mod without;

//! What options may be that runs and models have in common. The command line checks its own as it reads them, and knows their names.

use super::failure::Failure;
use crate::train::setup::programs::pass_names;

/// Most compute threads of the CPU: more than any machine has cores, and fewer than a system refuses.
pub const MAX_THREADS: usize = 1024;

/// Refuses numbers of threads that there cannot be, and names of passes that there are not.
///
/// # Errors
/// One of them.
pub fn expect_valid(threads: Option<usize>, without: &[String]) -> Result<(), Failure> {
    if let Some(threads) = threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
        return Err(Failure::Usage(format!(
            "`threads` is {threads}\nhelp: expected a number from 1 to {MAX_THREADS}, or `None` for all cores"
        )));
    }
    let known = pass_names(true);
    match without.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Failure::Usage(format!(
            "`without` names no pass: `{name}`\nhelp: those that can be left out are {}",
            known.join(", ")
        ))),
        None => Ok(()),
    }
}

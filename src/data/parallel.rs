//! Work on parts of data by several threads.

use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, available_parallelism, scope};

/// Items in groups, of which one is worked on at a time: enough for all threads, and few enough that what is made of them may be in memory.
pub fn rounds<I>(items: &[I]) -> impl Iterator<Item = &[I]> {
    items.chunks(at_once())
}

/// How many items such a group has.
pub fn at_once() -> usize {
    (8 * available_parallelism().map_or(1, usize::from)).max(16)
}

/// What `work` makes of each item, in the order of the items. As many threads work as there are cores, this one among them.
///
/// # Panics
/// If `work` does.
pub fn parallel<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let threads = available_parallelism().map_or(1, usize::from).min(items.len());
    let left = Mutex::new(items.into_iter().enumerate());
    let run = || {
        let mut made = Vec::new();
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, item)) = next else { return made };
            made.push((number, work(item)));
        }
    };
    let mut all = scope(|scope| {
        // Where no more threads can be had, those that there are do all.
        let others: Vec<_> = (1..threads).map_while(|_| Builder::new().spawn_scoped(scope, run).ok()).collect();
        let mut all = run();
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_unstable_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        assert_eq!(parallel((0..1000).collect(), |n: usize| n * n), (0..1000).map(|n| n * n).collect::<Vec<_>>());
        assert!(parallel(Vec::<usize>::new(), |n| n).is_empty());
        let panicked = std::panic::catch_unwind(|| parallel(vec![1, 2, 3], |n| assert_ne!(n, 2)));
        assert!(panicked.is_err());
    }
}

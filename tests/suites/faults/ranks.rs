//! Several ranks, of which the first one writes: what its disk does ends all of them.

use crate::faults::Fault;
use crate::library::library;
use crate::place::Place;
use crate::train::{CONFIG, TRAIN, recovers, undisturbed};

/// From some write on the disk is full; ranks are threads. No rank waits for the one that cannot write: all end with the reason, and a run of one rank goes on from what was saved.
#[test]
fn a_full_disk_ends_all_ranks_and_the_run_goes_on() {
    if library().is_none() {
        return;
    }
    let config = format!("{CONFIG}[distributed]\nshards = 4\n");
    let expected = undisturbed(&config);
    let (args, start) = (format!("launch --ranks 2 -- {TRAIN}"), Place::with("c.toml", &config));
    let (ended, operations) = start.copy().recorded(&args, None, false);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let writes: Vec<usize> =
        (1..).zip(&operations).filter(|(_, o)| o.name == "write").map(|(number, _)| number).collect();
    // When the run begins, while its first checkpoint is written, and in the middle.
    for number in [writes[0], writes[writes.len() / 4], writes[writes.len() / 2]] {
        let place = start.copy();
        let (ended, seen) = place.recorded(&args, Some((number, Fault::Full)), false);
        let at = format!("operation {number}: {ended:?}");
        assert!(seen.iter().any(|o| o.hit), "nothing failed: {at}");
        assert!(ended.code == Some(1) && !ended.panicked(), "{at}");
        assert!(ended.err.contains("No space left on device"), "{at}");
        recovers(&place, &expected).unwrap_or_else(|why| panic!("{at}: {why}"));
    }
}

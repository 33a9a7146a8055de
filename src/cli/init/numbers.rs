//! Which labels are numbers to be learnt, and which are names of classes.

/// Different whole numbers that may be names of classes.
pub const CLASSES: usize = 20;
/// Rows of which each may not be of a class of its own.
const MANY: usize = 20;

/// Whether nearly every row has another label: those are no classes.
pub fn differ(distinct: usize, rows: usize) -> bool {
    rows >= MANY && 10 * distinct >= 9 * rows
}

/// Whether so many different numbers are amounts, and no numbers of classes. `whole`: none has a fraction.
pub fn are_amounts(whole: bool, distinct: usize, rows: usize) -> bool {
    !whole || distinct > CLASSES && differ(distinct, rows)
}

#[cfg(test)]
mod tests {
    use super::are_amounts;

    #[test]
    fn numbers_that_come_often_are_classes() {
        assert!(are_amounts(false, 3, 1000) && are_amounts(true, 95, 100));
        assert!(!are_amounts(true, 100, 1000) && !are_amounts(true, 10, 10));
    }
}

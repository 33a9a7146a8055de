//! Which shards of a step are summed in which order: a binary tree over their numbers, the same for any number of ranks.
//!
//! A step is cut into shards, and the sum over them is that of the tree whose root covers all of them and whose nodes halve what
//! they cover. A rank computes a range of shards, one after the other, and adds what it has of the tree as soon as that is
//! complete: it never keeps more than a few partial sums, which lie on a stack of slots. What is left on the stacks of all ranks
//! at the end are subtrees, and [`Shards::total`] adds them in the order of the tree. Floating-point addition is not
//! associative; because the order of additions depends on the tree alone, the result does not depend on who has made which part of it.

use std::ops::Range;

/// Where the sum of a shard goes, on the stack of its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The slot that the sum is stored in.
    pub slot: usize,
    /// So many slots from there on hold sums that come before it: the newest is added first.
    pub merged: usize,
}

/// A partial sum on the stack of a rank when all its shards are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Whose.
    pub rank: usize,
    /// Which slot.
    pub slot: usize,
    /// How it enters the whole: as a shard enters the stack of a rank, with a stack of the partial sums before it.
    pub place: Place,
}

/// Elements of a block: ranks have whole blocks of a tensor, so that what is summed block by block does not depend on how many ranks there are.
pub const BLOCK: usize = 1024;

/// The elements of a tensor of that length that belong to `rank` of so many.
pub fn part_of(length: usize, (rank, ranks): (usize, usize)) -> Range<usize> {
    let blocks = length.div_ceil(BLOCK) as u64;
    let bound = |rank: usize| ((blocks * rank as u64 / ranks.max(1) as u64) as usize * BLOCK).min(length);
    bound(rank)..bound(rank + 1)
}

/// The shards of a step, and which of them each of the ranks has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    /// How many there are.
    pub count: usize,
    /// Among how many ranks they are divided, which has no rest.
    pub ranks: usize,
}

impl Shards {
    /// All of them on one rank.
    pub fn alone(count: usize) -> Shards {
        Shards { count, ranks: 1 }
    }

    /// The shards of a rank.
    pub fn of(self, rank: usize) -> Range<usize> {
        let each = self.count / self.ranks;
        rank * each..(rank + 1) * each
    }

    /// Slots that a stack needs: the largest over all ranks, and over all numbers of shards that a step may have.
    pub fn slots(self) -> usize {
        let of = |rank| {
            let present = self.count;
            self.of(rank).map(move |shard| self.place(rank, shard, present).slot + 1).max().unwrap_or(1)
        };
        (0..self.ranks).map(of).max().unwrap_or(1)
    }

    /// Where `rank` puts the sum of `shard`, one of its own, in a step that has the first `present` of all shards. Of a shard that the step does not
    /// have there is no sum, and its place is the first slot.
    pub fn place(self, rank: usize, shard: usize, present: usize) -> Place {
        let own = self.of(rank);
        let mut stack = Vec::new();
        let mut place = Place { slot: 0, merged: 0 };
        if shard >= present || !own.contains(&shard) {
            return place;
        }
        for at in own.start..=shard {
            place = self.push(&mut stack, at..at + 1, present, &|node| is_within(node, &own, present));
        }
        place
    }

    /// The partial sums of all ranks after a step that had the first `present` of all shards, in the order in which they are added.
    pub fn total(self, present: usize) -> Vec<Partial> {
        let mut all = Vec::new();
        let mut stack = Vec::new();
        for rank in 0..self.ranks {
            let own = self.of(rank);
            let mut left = Vec::new();
            for at in own.start..own.end.min(present) {
                self.push(&mut left, at..at + 1, present, &|node| is_within(node, &own, present));
            }
            for (slot, covered) in left.into_iter().enumerate() {
                let place = self.push(&mut stack, covered, present, &|_| true);
                all.push(Partial { rank, slot, place });
            }
        }
        all
    }

    /// Pushes the sum over `covered` onto a stack, where it is joined with the sums before it to those nodes of the tree that are
    /// wanted and complete now.
    fn push(
        self,
        stack: &mut Vec<Range<usize>>,
        covered: Range<usize>,
        present: usize,
        wanted: &dyn Fn(&Range<usize>) -> bool,
    ) -> Place {
        let mut merged = 0;
        let mut sum = covered;
        // From the smallest node that covers more than it to the root.
        for node in self.above(&sum, present).into_iter().rev() {
            let is_complete = node.end.min(present) == sum.end;
            if !is_complete || !wanted(&node) {
                break;
            }
            // With nothing in its right half it is its left half, which the sum covers already.
            if middle(&node) >= present {
                continue;
            }
            if let Some(left) = stack.pop() {
                debug_assert_eq!((left.start, left.end), (node.start, sum.start));
                sum = left.start..sum.end;
                merged += 1;
            }
        }
        stack.push(sum);
        Place { slot: stack.len() - 1, merged }
    }

    /// The nodes of the tree that cover more than `covered` of the shards that there are, the root first.
    fn above(self, covered: &Range<usize>, present: usize) -> Vec<Range<usize>> {
        let mut list = Vec::new();
        let mut node = 0..self.count;
        // A node without shards in its right half is its left half.
        while node.len() > 1 && (node.start, node.end.min(present)) != (covered.start, covered.end) {
            list.push(node.clone());
            let middle = middle(&node);
            node = if covered.start < middle { node.start..middle } else { middle..node.end };
        }
        list
    }
}

/// Where the right half of a node begins, which has one shard more if they cannot be halved.
fn middle(node: &Range<usize>) -> usize {
    node.start + node.len() / 2
}

/// Whether a rank has all shards of a node that there are.
fn is_within(node: &Range<usize>, own: &Range<usize>, present: usize) -> bool {
    own.start <= node.start && node.end.min(present) <= own.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_blocks_and_cover_all_elements() {
        for length in [0, 1, BLOCK, BLOCK + 1, 10 * BLOCK - 3, 1_000_000] {
            for ranks in [1, 2, 3, 8, 64] {
                let parts: Vec<Range<usize>> = (0..ranks).map(|rank| part_of(length, (rank, ranks))).collect();
                assert!(parts.iter().all(|part| part.start.is_multiple_of(BLOCK) || part.start == length));
                assert!(parts.iter().flat_map(Clone::clone).eq(0..length), "{length} {ranks}");
            }
        }
    }

    /// The sum over the first `present` shards by the definition, in words.
    fn defined(node: Range<usize>, present: usize) -> Option<String> {
        if node.start >= present {
            return None;
        }
        if node.len() == 1 {
            return Some(node.start.to_string());
        }
        let middle = middle(&node);
        match (defined(node.start..middle, present), defined(middle..node.end, present)) {
            (Some(left), Some(right)) => Some(format!("({left}+{right})")),
            (left, right) => left.or(right),
        }
    }

    fn enter(stack: &mut Vec<String>, value: String, place: Place) {
        let mut sum = value;
        for slot in (place.slot..place.slot + place.merged).rev() {
            sum = format!("({}+{sum})", stack[slot]);
        }
        stack.resize(stack.len().max(place.slot + 1), String::new());
        stack[place.slot] = sum;
    }

    /// The same as ranks make it.
    fn made(shards: Shards, present: usize) -> String {
        let stacks: Vec<Vec<String>> = (0..shards.ranks)
            .map(|rank| {
                let mut stack = Vec::new();
                for shard in shards.of(rank).filter(|shard| *shard < present) {
                    enter(&mut stack, shard.to_string(), shards.place(rank, shard, present));
                    assert!(stack.len() <= shards.slots(), "{shards:?}");
                }
                stack
            })
            .collect();
        let mut total = Vec::new();
        for partial in shards.total(present) {
            enter(&mut total, stacks[partial.rank][partial.slot].clone(), partial.place);
        }
        total[0].clone()
    }

    #[test]
    fn all_ranks_add_in_the_order_of_the_tree() {
        for count in 1..=24 {
            for ranks in (1..=count).filter(|ranks| count % ranks == 0) {
                for present in 1..=count {
                    let expected = defined(0..count, present).unwrap();
                    assert_eq!(made(Shards { count, ranks }, present), expected, "{count} {ranks} {present}");
                }
            }
        }
    }

    #[test]
    fn a_shard_that_is_not_there_has_no_sum() {
        let shards = Shards { count: 12, ranks: 2 };
        for (rank, shard, present) in [(1, 6, 4), (1, 11, 11), (0, 3, 0), (0, 7, 12)] {
            assert_eq!(shards.place(rank, shard, present), Place { slot: 0, merged: 0 });
        }
        assert!(shards.total(0).is_empty());
    }

    #[test]
    fn a_stack_is_no_deeper_than_the_tree() {
        assert_eq!(Shards::alone(1).slots(), 1);
        assert_eq!(Shards::alone(2).slots(), 1);
        assert_eq!(Shards::alone(4).slots(), 2);
        assert_eq!(Shards::alone(8).slots(), 3);
        assert_eq!(Shards { count: 8, ranks: 8 }.slots(), 1);
        assert_eq!(Shards { count: 12, ranks: 4 }.slots(), 2);
        assert_eq!(Shards { count: 12, ranks: 3 }.slots(), 3);
    }
}

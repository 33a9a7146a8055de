//! The operands of operations, by name. Shape rules, gradients and backends share one declaration of them and of their order.

/// Declares the operands of operations in their order. One with a condition is there where that holds.
///
/// `BatchNormGrad => BatchNormGradOperands { x, dy, mean, invstd, gamma if |op| op.affine }` makes a struct with these fields,
/// of which `gamma` is an `Option`, and three methods of the operation: `arity`, `operands` and `places`.
macro_rules! operands {
    ($($(#[$doc:meta])* $op:ident => $operands:ident { $($name:ident $(if $there:expr)?),* $(,)? })*) => {$(
        $(#[$doc])*
        #[expect(missing_docs, reason = "the operation describes them")]
        pub struct $operands<T> {
            $(pub $name: $crate::graph::op::operands::operand!(type T $(, $there)?),)*
        }

        // A derive does not see through the macro that makes the types of fields.
        impl<T: Copy> Clone for $operands<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T: Copy> Copy for $operands<T> {}

        impl $op {
            /// How many operands there are.
            pub fn arity(&self) -> usize {
                0 $(+ $crate::graph::op::operands::operand!(count self, $op $(, $there)?))*
            }

            /// Of one thing for each operand, which of them is whose. `all` may go on after the operands: those of a group do.
            pub fn operands<T: Copy>(&self, all: &[T]) -> $operands<T> {
                let mut all = all.iter().copied();
                let mut next = || all.next().expect("the shape rule has counted the operands");
                $operands { $($name: $crate::graph::op::operands::operand!(take self, next, $op $(, $there)?)),* }
            }

            /// The numbers of the operands.
            pub fn places(&self) -> $operands<usize> {
                let all: [usize; 16] = std::array::from_fn(|i| i);
                self.operands(&all)
            }
        }
    )*};
}

/// The parts of [`operands`] that differ where an operand has a condition.
macro_rules! operand {
    (type $t:ident) => { $t };
    (type $t:ident, $there:expr) => { Option<$t> };
    (count $self:ident, $op:ident) => { 1 };
    (count $self:ident, $op:ident, $there:expr) => {{
        let there: fn(&$op) -> bool = $there;
        usize::from(there($self))
    }};
    (take $self:ident, $next:ident, $op:ident) => { $next() };
    (take $self:ident, $next:ident, $op:ident, $there:expr) => {{
        let there: fn(&$op) -> bool = $there;
        there($self).then(&mut $next)
    }};
}

pub(crate) use {operand, operands};

#[cfg(test)]
mod tests {
    use crate::graph::op::{Attention, AttentionGrad, BatchNorm, BatchNormInfer};

    #[test]
    fn operands_that_are_not_there_take_no_place() {
        for affine in [false, true] {
            for track in [false, true] {
                let op = BatchNorm { eps: 1e-5, momentum: None, affine, track };
                let places = op.places();
                assert_eq!(op.arity(), 1 + 2 * usize::from(affine) + 3 * usize::from(track));
                assert_eq!((places.x, places.gamma.is_some(), places.beta), (0, affine, affine.then_some(2)));
                assert_eq!(places.num_batches_tracked, track.then(|| op.arity() - 1));
            }
            let op = BatchNormInfer { eps: 1e-5, affine };
            let named = op.operands(&["x", "a", "b", "c", "d", "more"][..]);
            assert_eq!((named.running_mean, named.gamma), if affine { ("c", Some("a")) } else { ("a", None) });
        }
        let attention = Attention { heads: 1, between: true, lengths: true, ..Attention::default() };
        let places = AttentionGrad { attention }.places();
        assert_eq!((places.q, places.kv, places.y, places.lse), (1, Some(2), 3, 4));
        assert_eq!((places.bias, places.lengths, places.key), (None, Some(5), None));
    }
}

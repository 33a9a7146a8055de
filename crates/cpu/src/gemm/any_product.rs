//! A product in single precision or in bf16, as instructions and shape say.

use super::bf16::product::{TileProduct, is_worthwhile};
use super::memory::Memory;
use super::numbers::{Numbers, NumbersMut, Rounded};
use super::product::{Operand, Product, ProductSpec};
use super::prologue::Source;
use super::tile::EpilogueOperands;
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::threads::Pool;
use crate::simd::bf16::Instructions;

/// A product.
pub enum AnyProduct {
    /// In single precision.
    Single(Box<Product>),
    /// On tiles of bf16.
    Bf16(Box<TileProduct>),
}

/// Calls the method of the product, whichever it is.
macro_rules! either {
    ($self:ident, $p:ident => $call:expr) => {
        match $self {
            AnyProduct::Single($p) => $call,
            AnyProduct::Bf16($p) => $call,
        }
    };
}

impl AnyProduct {
    /// Lays out `spec`, with a prologue for one of the operands, the columns of which lie side by side; `keeps`: for a program that keeps the
    /// panels of `B`, if they can be kept.
    pub fn new(
        spec: ProductSpec,
        how: impl Into<Instructions>,
        threads: usize,
        prepared: Option<Operand>,
        keeps: bool,
    ) -> AnyProduct {
        let Instructions { level, bf16 } = how.into();
        if let Some(unit) = bf16.filter(|unit| is_worthwhile(&spec, *unit, keeps)) {
            return AnyProduct::Bf16(Box::new(TileProduct::new(spec, (unit, level), threads, prepared, keeps)));
        }
        AnyProduct::Single(Box::new(if keeps && prepared.is_none() {
            Product::keeping(spec, level, threads)
        } else {
            Product::prepared(spec, level, threads, prepared)
        }))
    }

    /// The same for operands that may be rounded in memory, in bf16 however small it is.
    ///
    /// # Panics
    /// Products are not made in bf16.
    pub fn rounded(spec: ProductSpec, how: Instructions, threads: usize, keeps: bool, rounded: Rounded) -> AnyProduct {
        let unit = how.bf16.expect("numbers are rounded where products are made in bf16");
        AnyProduct::Bf16(Box::new(TileProduct::rounded(spec, (unit, how.level), threads, None, keeps, rounded)))
    }

    /// The activation that it was made for.
    pub fn act(&self) -> Option<Activation> {
        either!(self, p => p.act())
    }

    /// The activation that is left to [`EpilogueOperands::finish`].
    pub fn remaining_act(&self) -> Option<Activation> {
        either!(self, p => p.remaining_act())
    }

    /// Workspace that [`AnyProduct::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        either!(self, p => p.workspace_bytes())
    }

    /// The panels of `B`, operand 1, if copying them is a part of each run.
    pub fn kept(&self) -> Option<Kept> {
        either!(self, p => p.kept())
    }

    /// Computes the product. `a`, `b` and `c` begin at element (0, 0).
    ///
    /// # Panics
    /// A slice is too short, a prologue is there that the product was not made for or the other way round, or the pool has
    /// more threads than the product was made for.
    pub fn run<'a>(
        &self,
        pool: &Pool,
        a: Source,
        b: Source,
        operands: impl Into<EpilogueOperands<'a>>,
        c: &mut [f32],
        memory: impl Into<Memory<'a>>,
    ) {
        either!(self, p => p.run(pool, a, b, operands, c, memory));
    }

    /// The same of operands that may be rounded in memory, as it was made for.
    ///
    /// # Panics
    /// As [`AnyProduct::run`], and if it was made for others.
    pub fn run_numbers(
        &self,
        pool: &Pool,
        a: Numbers,
        b: &[f32],
        operands: EpilogueOperands,
        c: NumbersMut,
        memory: Memory,
    ) {
        match (self, a, c) {
            (AnyProduct::Bf16(p), a, c) => p.run_numbers(pool, a, b, operands, c, memory),
            (AnyProduct::Single(p), Numbers::Single(a), NumbersMut::Single(c)) => {
                p.run(pool, a.into(), b.into(), operands, c, memory);
            }
            _ => panic!("a product of floats has numbers that are rounded"),
        }
    }
}

//! Transfer of variables between a device and files, piece by piece, so that a state never is in memory twice.

use crate::backend::Executable;
use crate::graph::{DType, Piece, ValueId, VarId, VarKind, Variable, Variables};
use anyhow::Result;
use std::io::Read;

/// Variables that a checkpoint holds: the state dict, the optimizer's state, and what recurrent layers carry on. Sums of gradients are empty whenever a
/// checkpoint is written, no copies of buffers are needed then, and metric sums are part of the metadata.
pub fn in_checkpoint(var: &Variable) -> bool {
    matches!(var.kind, VarKind::Parameter | VarKind::Buffer | VarKind::Optimizer | VarKind::Carried)
}

/// Variables that a state dict holds.
pub fn in_state_dict(var: &Variable) -> bool {
    matches!(var.kind, VarKind::Parameter | VarKind::Buffer)
}

/// The memory that pieces go through. It grows to the largest piece, and is used again.
#[derive(Debug, Default)]
pub struct Transfer {
    inside: Vec<u8>,
    outside: Vec<u8>,
}

impl Transfer {
    /// The bytes that it grows to for variables of which it moves those that are `wanted`.
    pub fn bytes(variables: &Variables, wanted: impl Fn(&Variable) -> bool) -> usize {
        2 * variables.iter().filter(|(_, v)| wanted(v)).map(|(_, v)| v.piece_bytes()).max().unwrap_or(0)
    }

    /// Hands on a variable in the outside layout (native endian, row-major), in order. `from` reads its bytes from a place on as they lie inside.
    ///
    /// # Errors
    /// `from` failed, or `take` did.
    pub fn read(
        &mut self,
        from: &mut dyn FnMut(usize, &mut [u8]) -> Result<()>,
        var: &Variable,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for piece in var.pieces() {
            self.inside.resize(piece.bytes, 0);
            from(piece.at, &mut self.inside)?;
            if piece.storage.is_plain() {
                take(&self.inside)?;
            } else {
                self.outside.resize(piece.bytes, 0);
                rearrange(var.dtype, &piece, Way::Outside, &self.inside, &mut self.outside);
                take(&self.outside)?;
            }
        }
        Ok(())
    }

    /// Hands on what a program has put out as a value of the shape of `var`, as it lies on the device, in pieces of that size.
    ///
    /// # Errors
    /// As [`Transfer::read`].
    pub fn read_output(
        &mut self,
        executable: &mut dyn Executable,
        (program, value): (usize, ValueId),
        var: &Variable,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for piece in var.pieces() {
            self.inside.resize(piece.bytes, 0);
            executable.output_part(program, value, piece.at, &mut self.inside)?;
            take(&self.inside)?;
        }
        Ok(())
    }

    /// Copies the content of a variable to another one of the same layout.
    ///
    /// # Errors
    /// The device failed.
    pub fn copy(&mut self, executable: &mut dyn Executable, var: &Variable, from: VarId, to: VarId) -> Result<()> {
        for piece in var.pieces() {
            self.inside.resize(piece.bytes, 0);
            executable.download_part(from, piece.at, &mut self.inside)?;
            executable.upload_part(to, piece.at, &self.inside)?;
        }
        Ok(())
    }

    /// Sets a variable from bytes in the outside layout that are still to be read. `to` writes bytes as they lie inside, from a place on.
    ///
    /// # Errors
    /// There are too few bytes, or the device failed.
    pub fn write_from(
        &mut self,
        to: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
        var: &Variable,
        from: &mut dyn Read,
    ) -> Result<()> {
        for piece in var.pieces() {
            self.outside.resize(piece.bytes, 0);
            from.read_exact(&mut self.outside)?;
            if piece.storage.is_plain() {
                to(piece.at, &self.outside)?;
            } else {
                self.inside.resize(piece.bytes, 0);
                rearrange(var.dtype, &piece, Way::Inside, &self.outside, &mut self.inside);
                to(piece.at, &self.inside)?;
            }
        }
        Ok(())
    }
}

/// Which layout something is brought into.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Inside,
    Outside,
}

/// Brings elements of four or eight bytes into the other layout.
fn rearrange(dtype: DType, piece: &Piece, way: Way, from: &[u8], to: &mut [u8]) {
    fn of<const N: usize>(piece: &Piece, way: Way, from: &[u8], to: &mut [u8]) {
        let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        match way {
            Way::Inside => piece.storage.to_inside_into(from, to),
            Way::Outside => piece.storage.to_outside_into(from, to),
        }
    }
    match dtype.bytes() {
        1 => of::<1>(piece, way, from, to),
        2 => of::<2>(piece, way, from, to),
        4 => of::<4>(piece, way, from, to),
        _ => of::<8>(piece, way, from, to),
    }
}

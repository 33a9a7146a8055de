//! The contents of variables, out of a session and into it.

use super::Session;
use crate::graph::{DType, VarId, Variable};
use anyhow::{Result, anyhow, ensure};
use std::io::Read;

/// A variable's content in the outside layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// Name in state dicts.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Outside shape.
    pub shape: Vec<usize>,
    /// Native-endian elements, row-major.
    pub bytes: Vec<u8>,
}

impl Session {
    /// The contents of all variables that `wanted` accepts, in the outside layout.
    ///
    /// # Errors
    /// The device failed.
    pub fn save(&mut self, wanted: impl Fn(&Variable) -> bool) -> Result<Vec<Saved>> {
        let plan = self.programs.plan.clone();
        let mut out = Vec::new();
        for (id, var) in plan.variables.iter().filter(|(_, v)| wanted(v)) {
            let mut bytes = Vec::with_capacity(var.bytes());
            self.read(id, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            let shape = var.storage.outside.dims().to_vec();
            out.push(Saved { name: var.name.clone(), dtype: var.dtype, shape, bytes });
        }
        Ok(out)
    }

    /// The state, for sessions with the same programs on other ranks: [`Session::take_in`].
    ///
    /// # Errors
    /// The device failed.
    pub fn hand_out(&mut self) -> Result<Vec<u8>> {
        let plan = self.programs.plan.clone();
        let mut state = vec![u8::from(self.frozen), u8::from(self.waits)];
        state.extend(self.average_share.to_ne_bytes());
        for (id, var) in plan.variables.iter() {
            let start = state.len();
            state.resize(start + var.bytes(), 0);
            self.executable.download(id, &mut state[start..])?;
        }
        Ok(state)
    }

    /// Takes over what [`Session::hand_out`] has made.
    ///
    /// # Errors
    /// It is of other programs; the device failed.
    pub fn take_in(&mut self, state: &[u8]) -> Result<()> {
        let plan = self.programs.plan.clone();
        let other = || anyhow!("the state is that of another model");
        let (flags, mut rest) = state.split_first_chunk::<6>().ok_or_else(other)?;
        for (id, var) in plan.variables.iter() {
            let (content, after) = rest.split_at_checked(var.bytes()).ok_or_else(other)?;
            self.executable.upload(id, content)?;
            rest = after;
        }
        ensure!(rest.is_empty(), other());
        let [frozen, waits, share @ ..] = *flags;
        (self.frozen, self.waits, self.average_share) = (frozen != 0, waits != 0, f32::from_ne_bytes(share));
        Ok(())
    }

    /// Hands on the content of variable `id` in the outside layout, in order, a piece at a time.
    ///
    /// # Errors
    /// The device failed, or `take` did.
    pub fn read(&mut self, id: VarId, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let plan = self.programs.plan.clone();
        self.transfer.read(self.executable.as_mut(), (id, &plan.variables[id]), take)
    }

    /// Sets variable `id` from `bytes` in the outside layout.
    ///
    /// # Errors
    /// The length is wrong, or the device failed.
    pub fn restore(&mut self, id: VarId, bytes: &[u8]) -> Result<()> {
        let plan = self.programs.plan.clone();
        self.transfer.write(self.executable.as_mut(), (id, &plan.variables[id]), bytes)
    }

    /// Sets variable `id` from bytes in the outside layout that are read from `from`.
    ///
    /// # Errors
    /// There are too few bytes, or the device failed.
    pub fn restore_from(&mut self, id: VarId, from: &mut dyn Read) -> Result<()> {
        let plan = self.programs.plan.clone();
        self.transfer.write_from(self.executable.as_mut(), (id, &plan.variables[id]), from)
    }
}

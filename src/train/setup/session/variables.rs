//! The contents of variables, out of a session and into it.

use super::Session;
use crate::collective::Collective;
use crate::graph::{DType, Holder, VarId, VarKind, Variable};
use crate::model::init;
use anyhow::{Context, Result, anyhow, ensure};
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

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

/// Contents of variables that other ranks have, until these are given them.
pub(super) type Elsewhere = HashMap<VarId, Vec<u8>>;

/// What all ranks must know besides variables: [`Session::frozen`], [`Session::waits`], and the share of the new values in averages.
const FLAGS: usize = 6;

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

    /// Gives the sessions of all ranks the state of the first one's: what a checkpoint has, and the figures. All ranks call it at
    /// the start of a run. A variable that one rank alone has goes there, and nowhere else.
    ///
    /// # Errors
    /// The device, or a rank, failed.
    pub fn hand_out(&mut self) -> Result<()> {
        let Some(team) = self.team.clone() else { return Ok(()) };
        let (plan, is_first) = (self.programs.plan.clone(), team.rank() == 0);
        // Which variables of other ranks have another value than their initial one.
        let mut head = vec![u8::from(self.frozen), u8::from(self.waits)];
        head.extend(self.average_share.to_ne_bytes());
        head.extend(plan.variables.iter().map(|(id, _)| u8::from(self.elsewhere.contains_key(&id))));
        let all = team.gather(if is_first { &head } else { &[] })?;
        let other = || anyhow!("the state of rank 0 is that of another model");
        let (flags, set) = all.first().and_then(|head| head.split_first_chunk::<FLAGS>()).ok_or_else(other)?;
        ensure!(set.len() == plan.variables.iter().count(), other());
        let [frozen, waits, share @ ..] = *flags;
        (self.frozen, self.waits, self.average_share) = (frozen != 0, waits != 0, f32::from_ne_bytes(share));
        let wanted = |var: &Variable| !matches!(var.kind, VarKind::Gradient | VarKind::Kept);
        let mut bytes = Vec::new();
        for ((id, var), set) in plan.variables.iter().zip(set).filter(|((_, var), _)| wanted(var)) {
            let holder = holder(var, team.as_ref());
            match holder {
                Some(0) => continue,
                // As it is at first.
                Some(rank) if *set == 0 => {
                    if rank == team.rank() {
                        init::initial_pieces(var, 0, |at, bytes| self.executable.upload_part(id, at, bytes))?;
                    }
                    continue;
                }
                _ => {}
            }
            let kept = self.elsewhere.remove(&id);
            for piece in var.pieces() {
                bytes.resize(if is_first { piece.bytes } else { 0 }, 0);
                match &kept {
                    Some(kept) => bytes.copy_from_slice(&kept[piece.at..piece.at + piece.bytes]),
                    None if is_first => self.executable.download_part(id, piece.at, &mut bytes)?,
                    None => {}
                }
                let to = |rank: usize| if holder.is_none_or(|holder| holder == rank) { &bytes[..] } else { &[] };
                let given = team.exchange(&to)?.into_iter().next().unwrap_or_default();
                if !is_first && var.is_here() {
                    ensure!(given.len() == piece.bytes, other());
                    self.executable.upload_part(id, piece.at, &given)?;
                }
            }
        }
        Ok(())
    }

    /// Gives the first rank what it reads of this rank's variables, until it says that it has all ([`Session::has_all`]).
    ///
    /// # Errors
    /// The device, or a rank, failed.
    pub fn give(&mut self) -> Result<()> {
        let Some(team) = self.divided() else { return Ok(()) };
        let plan = self.programs.plan.clone();
        let mut bytes = Vec::new();
        loop {
            let asked = team.gather(&[])?.into_iter().next().unwrap_or_default();
            let ([id, at, length], []) = asked.as_chunks::<8>() else {
                ensure!(asked.is_empty(), "what rank 0 asks for cannot be read");
                return Ok(());
            };
            let [id, at, length] = [id, at, length].map(|number| u64::from_ne_bytes(*number) as usize);
            let found = plan.variables.iter().find(|(var, _)| var.0 as usize == id);
            let (id, var) = found.context("rank 0 asks for a variable that there is not")?;
            bytes.clear();
            if var.holder == Holder::This {
                bytes.resize(length.min(var.bytes()), 0);
                self.executable.download_part(id, at, &mut bytes)?;
            }
            team.exchange(&|to| if to == 0 { &bytes[..] } else { &[] })?;
        }
    }

    /// Ends what the first rank has read of other ranks' variables.
    ///
    /// # Errors
    /// A rank failed.
    pub fn has_all(&self) -> Result<()> {
        match self.divided() {
            Some(team) if self.elsewhere.is_empty() => team.gather(&[]).map(drop),
            _ => Ok(()),
        }
    }

    /// The ranks, if some variables are on one of them alone.
    fn divided(&self) -> Option<Arc<dyn Collective>> {
        let is_divided = self.programs.plan.variables.iter().any(|(_, var)| var.holder != Holder::All);
        self.team.clone().filter(|_| is_divided)
    }

    /// Hands on the content of variable `id` in the outside layout, in order, a piece at a time. Another rank that has it must be in
    /// [`Session::give`].
    ///
    /// # Errors
    /// The device failed, or `take` did.
    pub fn read(&mut self, id: VarId, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let plan = self.programs.plan.clone();
        let var = &plan.variables[id];
        let Session { transfer, executable, team, elsewhere, .. } = self;
        let Holder::Other(rank) = var.holder else {
            return transfer.read(&mut |at, bytes| executable.download_part(id, at, bytes), var, take);
        };
        if let Some(kept) = elsewhere.get(&id) {
            let mut from = |at: usize, bytes: &mut [u8]| {
                bytes.copy_from_slice(&kept[at..at + bytes.len()]);
                Ok(())
            };
            return transfer.read(&mut from, var, take);
        }
        let team = team.clone().context("a variable of another rank, and there is none")?;
        let mut from = |at: usize, bytes: &mut [u8]| {
            let asked = [u64::from(id.0), at as u64, bytes.len() as u64].map(u64::to_ne_bytes);
            team.gather(asked.as_flattened())?;
            let given = team.exchange(&|_| &[])?;
            let given = given.get(rank).filter(|given| given.len() == bytes.len());
            bytes.copy_from_slice(given.with_context(|| format!("rank {rank} has not given `{}`", var.name))?);
            Ok(())
        };
        transfer.read(&mut from, var, take)
    }

    /// Sets variable `id` from `bytes` in the outside layout.
    ///
    /// # Errors
    /// The length is wrong, or the device failed.
    pub fn restore(&mut self, id: VarId, mut bytes: &[u8]) -> Result<()> {
        let var = &self.programs.plan.variables[id];
        ensure!(bytes.len() == var.bytes(), "`{}` has {} bytes, not {}", var.name, bytes.len(), var.bytes());
        self.restore_from(id, &mut bytes)
    }

    /// Sets variable `id` from bytes in the outside layout that are read from `from`. If another rank has it, they are kept until
    /// [`Session::hand_out`].
    ///
    /// # Errors
    /// There are too few bytes, or the device failed.
    pub fn restore_from(&mut self, id: VarId, from: &mut dyn Read) -> Result<()> {
        let plan = self.programs.plan.clone();
        let var = &plan.variables[id];
        let Session { transfer, executable, elsewhere, .. } = self;
        if var.is_here() {
            return transfer.write_from(&mut |at, bytes| executable.upload_part(id, at, bytes), var, from);
        }
        let kept = elsewhere.entry(id).or_insert_with(|| vec![0; var.bytes()]);
        let mut to = |at: usize, bytes: &[u8]| {
            kept[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        transfer.write_from(&mut to, var, from)
    }
}

/// The rank that alone has a variable.
fn holder(var: &Variable, team: &dyn Collective) -> Option<usize> {
    match var.holder {
        Holder::All => None,
        Holder::This => Some(team.rank()),
        Holder::Other(rank) => Some(rank),
    }
}

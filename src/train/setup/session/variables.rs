//! The contents of variables, out of a session and into it.

use super::Session;
use crate::collective::Collective;
use crate::graph::{DType, Holder, VarId, VarKind, Variable};
use crate::model::init;
use anyhow::{Context, Result, anyhow, ensure};
use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
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
    /// the start of a run, and their devices are connected then. A variable that one rank alone has goes there, and nowhere else.
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
        let ranks = team.ranks();
        let mut bytes = Vec::new();
        for ((id, var), set) in plan.variables.iter().zip(set).filter(|((_, var), _)| wanted(var)) {
            let of = |rank: usize| bytes_of(var, team.as_ref(), rank);
            if var.holder != Holder::All && *set == 0 {
                // As it is at first.
                if !is_first {
                    init::initial_pieces(var, 0, |at, bytes| self.put(id, at, bytes))?;
                }
                continue;
            }
            let kept = self.elsewhere.remove(&id);
            for piece in var.pieces() {
                let piece = piece.at..piece.at + piece.bytes;
                let parts: Vec<Range<usize>> = (0..ranks).map(|rank| common(&piece, &of(rank))).collect();
                if parts[1..].iter().all(Range::is_empty) {
                    continue;
                }
                bytes.resize(if is_first { piece.len() } else { 0 }, 0);
                match &kept {
                    Some(kept) => bytes.copy_from_slice(&kept[piece.clone()]),
                    None if is_first => self.executable.download_part(id, piece.start, &mut bytes)?,
                    None => {}
                }
                let to = |rank: usize| match is_first {
                    true => &bytes[parts[rank].start - piece.start..parts[rank].end - piece.start],
                    false => &[],
                };
                let given = team.exchange(&to)?.into_iter().next().unwrap_or_default();
                let own = &parts[team.rank()];
                if !is_first && !own.is_empty() {
                    ensure!(given.len() == own.len(), other());
                    self.executable.upload_part(id, own.start - of(team.rank()).start, &given)?;
                }
            }
        }
        self.executable.connect()
    }

    /// Writes bytes of variable `id`, as it lies inside, from `at` on, as far as they belong to this rank.
    pub(super) fn put(&mut self, id: VarId, at: usize, bytes: &[u8]) -> Result<()> {
        let var = &self.programs.plan.variables[id];
        let here = bytes_here(var);
        let own = common(&(at..at + bytes.len()), &here);
        if own.is_empty() {
            return Ok(());
        }
        self.executable.upload_part(id, own.start - here.start, &bytes[own.start - at..own.end - at])
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
            let here = bytes_here(var);
            let own = common(&(at..at.saturating_add(length)), &here);
            bytes.resize(own.len(), 0);
            if !own.is_empty() {
                self.executable.download_part(id, own.start - here.start, &mut bytes)?;
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
        if let Holder::All | Holder::This = var.holder {
            return transfer.read(&mut |at, bytes| executable.download_part(id, at, bytes), var, take);
        }
        if let Some(kept) = elsewhere.get(&id) {
            let mut from = |at: usize, bytes: &mut [u8]| {
                bytes.copy_from_slice(&kept[at..at + bytes.len()]);
                Ok(())
            };
            return transfer.read(&mut from, var, take);
        }
        let team = team.clone().context("a variable of other ranks, and there are none")?;
        let here = bytes_here(var);
        let mut from = |at: usize, bytes: &mut [u8]| {
            let piece = at..at + bytes.len();
            let asked = [u64::from(id.0), at as u64, bytes.len() as u64].map(u64::to_ne_bytes);
            team.gather(asked.as_flattened())?;
            for (rank, given) in team.exchange(&|_| &[])?.into_iter().enumerate() {
                let part = common(&piece, &bytes_of(var, team.as_ref(), rank));
                let to = &mut bytes[part.start - at..part.end - at];
                if rank == team.rank() && !part.is_empty() {
                    executable.download_part(id, part.start - here.start, to)?;
                } else if !part.is_empty() {
                    ensure!(given.len() == to.len(), "rank {rank} has not given `{}`", var.name);
                    to.copy_from_slice(&given);
                }
            }
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
        if let Holder::All | Holder::This = var.holder {
            return transfer.write_from(&mut |at, bytes| executable.upload_part(id, at, bytes), var, from);
        }
        let mut kept = vec![0; var.bytes()];
        let mut to = |at: usize, bytes: &[u8]| {
            kept[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        transfer.write_from(&mut to, var, from)?;
        let here = bytes_here(var);
        executable.upload_part(id, 0, &kept[here])?;
        elsewhere.insert(id, kept);
        Ok(())
    }
}

/// The bytes of a variable that this rank has, as it lies inside.
fn bytes_here(var: &Variable) -> Range<usize> {
    in_bytes(var, var.holder.here(var.shape.len()))
}

/// The bytes of a variable that `rank` has, as it lies inside.
fn bytes_of(var: &Variable, team: &dyn Collective, rank: usize) -> Range<usize> {
    in_bytes(var, var.holder.elements_of(var.shape.len(), rank, rank == team.rank()))
}

fn in_bytes(var: &Variable, elements: Range<usize>) -> Range<usize> {
    elements.start * var.dtype.bytes()..elements.end * var.dtype.bytes()
}

/// What two ranges have in common, inside the first one.
fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = b.start.clamp(a.start, a.end);
    start..b.end.clamp(start, a.end)
}

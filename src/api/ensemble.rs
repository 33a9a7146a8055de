//! Several models of one folder, one for each fold or seed, that answer a sample together.

use super::failure::Failure;
use super::members::{Members, difference, not_of_one_training, together_in_parts};
use super::model::{Model, load_model};
use super::predictor::{Predictor, Seen};
use crate::data::table::TableCodec;
use crate::files;
use crate::train::files::folder::{file, is_at_work};
use anyhow::{Result, anyhow};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Models that answer together, or one alone.
pub struct Ensemble {
    first: Predictor,
    others: Vec<Predictor>,
}

impl Ensemble {
    /// Of models whose samples are the same, or of rows that each makes samples of in its own way.
    ///
    /// # Errors
    /// There is none; they do not answer the same.
    pub fn new(members: Vec<Predictor>) -> Result<Ensemble> {
        let mut members = members.into_iter();
        let first = members.next().ok_or_else(|| anyhow!("there is no model"))?;
        let others: Vec<Predictor> = members.collect();
        let alike = |other: &Predictor| {
            let answers = |one: &Predictor| {
                let heads =
                    one.heads().iter().map(|head| (head.name.clone(), head.data.class_names().map(<[String]>::to_vec)));
                (one.parts(), one.classes().map(<[String]>::to_vec), heads.collect::<Vec<_>>())
            };
            answers(&first) == answers(other)
        };
        match others.iter().position(|other| !alike(other)) {
            Some(at) => Err(anyhow!("models 1 and {} of the folder answer other classes or numbers", at + 2)),
            None => Ok(Ensemble { first, others }),
        }
    }

    /// The first of them.
    pub fn first(&self) -> &Predictor {
        &self.first
    }

    /// How many there are.
    pub fn number(&self) -> usize {
        1 + self.others.len()
    }

    /// What they put out for samples together, as [`Predictor::raw_with_heads`] has it. `rows` has the samples as all of them take them or, one after the
    /// other, as each of them does.
    ///
    /// # Errors
    /// As [`Predictor::raw_with_heads`].
    pub fn raw(&self, rows: &[&[u8]], out: &mut [f32]) -> Result<()> {
        let fields = self.first.fields().len();
        let own = |member: usize| rows.get(member * fields..).filter(|rest| !rest.is_empty()).unwrap_or(rows);
        let of = |member: usize| own(member).get(..fields).unwrap_or(rows);
        self.first.raw_with_heads(of(0), out)?;
        if self.others.is_empty() {
            return Ok(());
        }
        let mut all = vec![out.to_vec()];
        for (number, other) in (1..).zip(&self.others) {
            let mut outputs = vec![0.0; out.len()];
            other.raw_with_heads(of(number), &mut outputs)?;
            all.push(outputs);
        }
        let (width, parts) = (self.first.width().max(1), self.first.parts());
        for (at, mean) in out.chunks_exact_mut(width).enumerate() {
            let each: Vec<&[f32]> = all.iter().map(|outputs| &outputs[at * width..][..width]).collect();
            mean.copy_from_slice(&together_in_parts(&parts, &each));
        }
        Ok(())
    }
}

/// How each of the others makes samples of the rows of a table; nothing where all make them as the first does.
///
/// # Errors
/// They take other samples, and no rows.
pub fn other_codecs(seen: &[Seen]) -> Result<Vec<TableCodec>> {
    let Some((first, others)) = seen.split_first() else { return Ok(Vec::new()) };
    let codec = |seen: &Seen| TableCodec::of(&seen.data);
    let taken = |codec: Option<TableCodec>| codec.map(|codec| (codec.columns, codec.tokens, codec.takes, codec.bins));
    let alike = |other: &&Seen| {
        taken(codec(other)) == taken(codec(first))
            && other.given == first.given
            && (&other.of_files, &other.transforms) == (&first.of_files, &first.transforms)
    };
    if others.iter().all(|other| alike(&other)) {
        return Ok(Vec::new());
    }
    let codecs: Option<Vec<TableCodec>> = others.iter().map(codec).collect();
    codecs.filter(|_| codec(first).is_some()).ok_or_else(|| anyhow!("the models of the folder take other samples"))
}

/// The models of a path: those of all folds or seeds of a folder, or the one that it names. All are of one training, and of one state of the folder.
///
/// # Errors
/// As [`load_model`]; a training is at work in the folder, or was cut off and has left models of another one.
pub fn load_members(path: &Path, sets: &[String]) -> Result<Vec<Model>, Failure> {
    let Some(members) = Members::of(path)? else { return Ok(vec![load_model(path, sets)?]) };
    let folders = members.folders(path);
    let refused = |what: &str| not_of_one_training(path, members, what);
    if std::iter::once(path).chain(folders.iter().map(PathBuf::as_path)).any(is_at_work) {
        return Err(refused("a training is at work there"));
    }
    let before = looks(path, &folders);
    let models = folders.iter().map(|folder| load_model(folder, sets)).collect::<Result<Vec<_>, _>>()?;
    if looks(path, &folders) != before {
        return Err(refused("files were replaced while they were read"));
    }
    match difference(members, &folders) {
        Some(what) => Err(refused(&what)),
        None => Ok(models),
    }
}

/// By what is seen whether files of a folder were replaced.
fn looks(path: &Path, folders: &[PathBuf]) -> Vec<Option<(u64, Option<SystemTime>)>> {
    let of = |metadata: &Metadata| (metadata.len(), metadata.modified().ok());
    let checkpoints = folders.iter().flat_map(|folder| [file::BEST, file::LAST].map(|name| folder.join(name)));
    let all = super::members::FILES.map(|name| path.join(name)).into_iter().chain(checkpoints);
    all.map(|path| files::uninterrupted(|| std::fs::metadata(&path)).ok().as_ref().map(of)).collect()
}

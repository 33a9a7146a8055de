//! A tar archive: where its images are, and their labels.

use super::super::image_folder::photos::ENDINGS;
use crate::files::{self, Opened};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::path::Path;

const BLOCK: u64 = 512;
/// Largest header before a file, and largest label, that is read, in bytes.
const MAX_TEXT: u64 = 1 << 20;
/// Largest image, in bytes.
const MAX_IMAGE: u64 = 256 << 20;
/// How many names a message shows.
const SHOWN: usize = 3;

/// A label as it is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Label {
    /// A number.
    Number(i64),
    /// The name of a class.
    Text(String),
}

/// An image with a label.
#[derive(Debug)]
pub struct Sample {
    /// The name of its files without their endings.
    pub key: String,
    /// Where the image begins, and its bytes.
    pub image: (u64, u32),
    /// Its label.
    pub label: Label,
}

/// What is in an archive.
pub struct Scanned {
    /// Its size.
    pub bytes: u64,
    /// Its samples, in its order.
    pub samples: Vec<Sample>,
    /// What the user should know: files of other kinds.
    pub told: Option<String>,
}

/// What is known of a sample so far.
#[derive(Default)]
struct Half {
    image: Option<(u64, u32)>,
    label: Option<Label>,
}

/// Reads the headers of the archive in `path`, and its labels; in JSON they are at `label_key`.
///
/// # Errors
/// It cannot be read, is no archive, or is cut short; a sample lacks something, or has it twice.
pub fn scan(path: &Path, label_key: &str) -> Result<Scanned> {
    let Opened { file, size, .. } = files::open(path)?;
    let place = path.display();
    let (mut order, mut halves, mut others) = (Vec::new(), HashMap::<String, Half>::new(), Vec::new());
    let mut walk = Walk { file: &file, size, at: 0 };
    while let Some(Member { name, offset, bytes }) = walk.next().with_context(|| format!("`{place}`"))? {
        let (key, ending) = parts(&name);
        let ending = ending.to_ascii_lowercase();
        let is_image = ENDINGS.contains(&&ending[..]);
        if !is_image && ending != "cls" && ending != "json" {
            others.push(name);
            continue;
        }
        let half = match halves.entry(key.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                order.push(key.to_owned());
                new.insert(Half::default())
            }
        };
        if is_image {
            ensure!(bytes <= MAX_IMAGE, "`{place}`: `{name}` has {bytes} bytes, and at most {MAX_IMAGE} are read");
            ensure!(half.image.is_none(), "`{place}` has two images called `{key}`: the names of samples must differ");
            half.image = Some((offset, bytes as u32));
            continue;
        }
        // A sample may have both; the number of a class is preferred, whichever comes first.
        let text = text(&file, offset, bytes).with_context(|| format!("`{place}`: `{name}`"))?;
        let label = if ending == "cls" {
            Some(number_or_name(&text))
        } else {
            of_json(&text, label_key).with_context(|| format!("`{place}`: `{name}`"))?
        };
        match (&half.label, ending == "cls") {
            (None, _) => half.label = label,
            (Some(_), true) => half.label = label,
            (Some(_), false) => {}
        }
    }
    let whole = |key: String| {
        let half = halves.remove(&key).unwrap_or_default();
        let lacks = |what: &str| format!("`{place}`: the sample `{key}` has no {what}");
        let image = half
            .image
            .with_context(|| lacks(&format!("image: files with the endings {} are images", ENDINGS.join(", "))))?;
        let label = half
            .label
            .with_context(|| lacks(&format!("label: neither `{key}.cls` nor `{label_key}` in `{key}.json`")))?;
        Ok(Sample { image, label, key })
    };
    let samples = order.into_iter().map(whole).collect::<Result<_>>()?;
    let told = (!others.is_empty()).then(|| {
        let some: Vec<String> = others.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        let more = if others.len() > SHOWN { format!(" and {} more", others.len() - SHOWN) } else { String::new() };
        format!("`{place}` has files that are neither images nor labels, which are left out: {}{more}", some.join(", "))
    });
    Ok(Scanned { bytes: size, samples, told })
}

/// A name without its ending, which begins at the first dot of its last part, and the ending.
fn parts(name: &str) -> (&str, &str) {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[file..].find('.') {
        Some(dot) => (&name[..file + dot], &name[file + dot + 1..]),
        None => (name, ""),
    }
}

/// A small file as text.
fn text(file: &File, offset: u64, bytes: u64) -> Result<String> {
    ensure!(bytes <= MAX_TEXT, "a label of {bytes} bytes is none");
    let mut text = vec![0; bytes as usize];
    files::read_at(file, &mut text, offset)?;
    String::from_utf8(text).context("is not UTF-8")
}

fn number_or_name(text: &str) -> Label {
    let text = text.trim();
    text.parse().map_or_else(|_| Label::Text(text.to_owned()), Label::Number)
}

/// The label at a key of a JSON object, if it has one.
fn of_json(text: &str, key: &str) -> Result<Option<Label>> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).context("is no JSON object")?;
    match object.get(key) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(name)) => Ok(Some(Label::Text(name.clone()))),
        Some(value) => match value.as_i64() {
            Some(number) => Ok(Some(Label::Number(number))),
            None => bail!("`{key}` is neither a whole number nor a text"),
        },
    }
}

/// The name in the header before the file that begins at `offset`.
pub fn name_before(path: &Path, offset: u64) -> Option<String> {
    let mut block = [0; BLOCK as usize];
    files::read_at(&files::open(path).ok()?.file, &mut block, offset.checked_sub(BLOCK)?).ok()?;
    let header = tar::Header::from_byte_slice(&block);
    Some(header.path().ok()?.to_string_lossy().into_owned())
}

/// A file in an archive.
struct Member {
    name: String,
    offset: u64,
    bytes: u64,
}

/// Goes from header to header.
struct Walk<'a> {
    file: &'a File,
    size: u64,
    at: u64,
}

impl Walk<'_> {
    /// The next regular file; `None` at the end.
    fn next(&mut self) -> Result<Option<Member>> {
        // What headers of their own say of the file behind them.
        let (mut long_name, mut long_size) = (None, None);
        loop {
            let at = self.at;
            if at == self.size && at > 0 {
                // Some writers leave out the empty blocks at the end.
                return Ok(None);
            }
            ensure!(
                self.size - at >= BLOCK,
                "is cut short, or no tar archive: it ends within the header at byte {at}{}",
                self.packed()
            );
            let mut block = [0; BLOCK as usize];
            files::read_at(self.file, &mut block, at)?;
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let header = tar::Header::from_byte_slice(&block);
            let sum = block
                .iter()
                .enumerate()
                .map(|(i, byte)| if (148..156).contains(&i) { 32 } else { u32::from(*byte) })
                .sum::<u32>();
            ensure!(
                header.cksum().is_ok_and(|told| told == sum),
                "is damaged, or no tar archive: there is no header at byte {at}{}",
                self.packed()
            );
            let kind = header.entry_type();
            let bytes = match long_size.take().filter(|_| kind.is_file()) {
                Some(bytes) => bytes,
                None => header.entry_size().with_context(|| format!("the header at byte {at} has no size"))?,
            };
            let offset = at + BLOCK;
            let end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(BLOCK));
            let name = || header.path_bytes().into_owned();
            let Some(end) = end.filter(|end| *end <= self.size) else {
                bail!(
                    "is cut short: `{}` is to have {bytes} bytes from byte {offset} on, and the archive ends at byte {}",
                    String::from_utf8_lossy(&name()),
                    self.size
                )
            };
            self.at = end;
            if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
                ensure!(
                    bytes <= MAX_TEXT,
                    "the header at byte {at} has {bytes} bytes, and at most {MAX_TEXT} are read"
                );
                let mut text = vec![0; bytes as usize];
                files::read_at(self.file, &mut text, offset)?;
                if kind.is_gnu_longname() {
                    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
                    long_name = Some(text);
                } else {
                    for record in tar::PaxExtensions::new(&text) {
                        let record = record.with_context(|| format!("the header at byte {at} is damaged"))?;
                        match record.key_bytes() {
                            b"path" => long_name = Some(record.value_bytes().to_vec()),
                            b"size" => long_size = record.value().ok().and_then(|size| size.parse().ok()),
                            _ => {}
                        }
                    }
                }
                continue;
            }
            if !kind.is_file() {
                long_name = None;
                continue;
            }
            let name = String::from_utf8(long_name.take().unwrap_or_else(name)).map_err(|error| {
                anyhow::anyhow!("the name `{}` is not UTF-8", String::from_utf8_lossy(error.as_bytes()))
            })?;
            return Ok(Some(Member { name, offset, bytes }));
        }
    }

    /// What to do about an archive that is compressed.
    fn packed(&self) -> &'static str {
        let mut start = [0; 2];
        match files::read_at(self.file, &mut start, 0) {
            Ok(()) if start == [0x1f, 0x8b] => {
                "; it is compressed by gzip, and samples cannot be read from the middle of that: unpack it with `gunzip`"
            }
            _ => "",
        }
    }
}

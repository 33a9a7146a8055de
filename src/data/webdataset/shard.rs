//! A tar archive: where its images are, and their labels.

use super::super::image_folder::photos::ENDINGS;
use crate::files::{self, Opened, contained};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
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
    /// What the user should know: files of other kinds, an archive that may be cut off.
    pub notes: Vec<String>,
}

/// What is known of a sample so far.
#[derive(Default)]
struct Half {
    image: Option<(u64, u32)>,
    /// What `cls` and `json` say, if they are there.
    labels: [Option<Option<Label>>; 2],
}

/// Reads the headers of the archive in `path`, and its labels; in JSON they are at `label_key`.
///
/// # Errors
/// It cannot be read, is no archive, or is cut short; a sample lacks something, or has it twice.
pub fn scan(path: &Path, label_key: &str) -> Result<Scanned> {
    let Opened { file, size, .. } = files::open(path)?;
    let place = path.display();
    let (mut order, mut halves, mut others) = (Vec::new(), HashMap::<String, Half>::new(), Vec::new());
    let mut walk = Walk { file: &file, size, at: 0, ended: false };
    let mut last = None;
    while let Some(Member { name, offset, bytes }) = walk.next().with_context(|| format!("`{place}`"))? {
        last = Some(name.clone());
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
        let known = &mut half.labels[usize::from(ending == "json")];
        ensure!(
            known.is_none(),
            "`{place}`: the sample `{key}` has two files with the ending `{ending}`: `{name}`, whose header is at byte {}, is the second",
            offset - BLOCK
        );
        *known = Some(label);
    }
    let whole = |key: String| {
        let half = halves.remove(&key).unwrap_or_default();
        let lacks = |what: &str| format!("`{place}`: the sample `{key}` has no {what}");
        let image = half
            .image
            .with_context(|| lacks(&format!("image: files with the endings {} are images", ENDINGS.join(", "))))?;
        let [number, of_json] = half.labels.map(Option::flatten);
        let label = number
            .or(of_json)
            .with_context(|| lacks(&format!("label: neither `{key}.cls` nor `{label_key}` in `{key}.json`")))?;
        Ok(Sample { image, label, key })
    };
    let samples = order.into_iter().map(whole).collect::<Result<_>>()?;
    let mut notes = Vec::new();
    if !walk.ended {
        // Some writers leave out the empty blocks at the end.
        notes.push(format!(
            "`{place}` does not end as a tar archive does: if it was cut off, samples are missing after `{}`",
            last.unwrap_or_default()
        ));
    }
    notes.extend((!others.is_empty()).then(|| {
        let some: Vec<String> = others.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        let more = if others.len() > SHOWN { format!(" and {} more", others.len() - SHOWN) } else { String::new() };
        format!("`{place}` has files that are neither images nor labels, which are left out: {}{more}", some.join(", "))
    }));
    Ok(Scanned { bytes: size, samples, notes })
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
    Some(String::from_utf8_lossy(&Header::read(&block).ok()?.name).into_owned())
}

/// A file in an archive.
struct Member {
    name: String,
    offset: u64,
    bytes: u64,
}

/// A header.
struct Header {
    kind: tar::EntryType,
    bytes: io::Result<u64>,
    /// The sum of the block's bytes, if the header has one.
    sum: Option<u32>,
    name: Vec<u8>,
}

impl Header {
    fn read(block: &[u8; BLOCK as usize]) -> Result<Header> {
        contained(|| {
            let header = tar::Header::from_byte_slice(block);
            Ok(Header {
                kind: header.entry_type(),
                bytes: header.entry_size(),
                sum: header.cksum().ok(),
                name: header.path_bytes().into_owned(),
            })
        })
    }
}

/// The name and the size in an extended header, of those that it has.
fn extended(text: &[u8]) -> Result<(Option<Vec<u8>>, Option<u64>)> {
    contained(|| {
        let (mut name, mut size) = (None, None);
        for record in tar::PaxExtensions::new(text) {
            let record = record?;
            match record.key_bytes() {
                b"path" => name = Some(record.value_bytes().to_vec()),
                b"size" => size = record.value().ok().and_then(|size| size.parse().ok()),
                _ => {}
            }
        }
        Ok((name, size))
    })
}

/// Goes from header to header.
struct Walk<'a> {
    file: &'a File,
    size: u64,
    at: u64,
    /// Whether there was the empty block that an archive ends with.
    ended: bool,
}

impl Walk<'_> {
    /// The next regular file; `None` at the end.
    fn next(&mut self) -> Result<Option<Member>> {
        // What headers of their own say of the file after them.
        let (mut long_name, mut long_size) = (None, None);
        loop {
            let at = self.at;
            if at == self.size && at > 0 {
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
                self.ended = true;
                self.nothing_behind()?;
                return Ok(None);
            }
            let header = Header::read(&block).with_context(|| format!("has no header at byte {at}"))?;
            let sum = block
                .iter()
                .enumerate()
                .map(|(i, byte)| if (148..156).contains(&i) { 32 } else { u32::from(*byte) })
                .sum::<u32>();
            ensure!(
                header.sum == Some(sum),
                "is damaged, or no tar archive: there is no header at byte {at}{}",
                self.packed()
            );
            let kind = header.kind;
            let bytes = match long_size.take().filter(|_| kind.is_file()) {
                Some(bytes) => bytes,
                None => header.bytes.with_context(|| format!("the header at byte {at} has no size"))?,
            };
            let offset = at + BLOCK;
            let end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(BLOCK));
            let name = header.name;
            let Some(end) = end.filter(|end| *end <= self.size) else {
                bail!(
                    "is cut short: `{}` is to have {bytes} bytes from byte {offset} on, and the archive ends at byte {}",
                    String::from_utf8_lossy(&name),
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
                    let (name, size) =
                        extended(&text).with_context(|| format!("the header at byte {at} is damaged"))?;
                    (long_name, long_size) = (name.or(long_name), size.or(long_size));
                }
                continue;
            }
            if !kind.is_file() {
                long_name = None;
                continue;
            }
            let name = String::from_utf8(long_name.take().unwrap_or(name)).map_err(|error| {
                anyhow::anyhow!("the name `{}` is not UTF-8", String::from_utf8_lossy(error.as_bytes()))
            })?;
            return Ok(Some(Member { name, offset, bytes }));
        }
    }

    /// What follows the end of an archive is empty.
    fn nothing_behind(&self) -> Result<()> {
        const PIECE: u64 = 1 << 16;
        let mut piece = Vec::new();
        let mut at = self.at;
        while at < self.size {
            piece.resize(PIECE.min(self.size - at) as usize, 0);
            files::read_at(self.file, &mut piece, at)?;
            if let Some(place) = piece.iter().position(|byte| *byte != 0) {
                bail!(
                    "goes on after its end, at byte {}: archives that were put together into one file are read to the end of the first; give \
                     each as a shard of its own",
                    at + place as u64
                );
            }
            at += piece.len() as u64;
        }
        Ok(())
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

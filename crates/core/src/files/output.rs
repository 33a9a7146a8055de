//! Outputs that a user names: what may be written there, and how.
//!
//! | what is there | what is done |
//! | --- | --- |
//! | nothing | a new file |
//! | a regular file | replaced when all has been written; the new file has its mode, owner and group |
//! | a link | what it leads to is written, by these same rules |
//! | a pipe, a device, an open descriptor (`/dev/stdout`; `-` is that, too) | written to, as it comes |
//! | a folder, a socket, a file that may not be written, an input of the same command | refused |
//!
//! Files that a run keeps in its own folder are written by [`durable`], which replaces links.

use super::durable;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Links that are followed at most, as on Linux.
const MAX_LINKS: usize = 40;

/// A place that may be written to.
#[derive(Debug, Clone)]
pub struct Output {
    path: PathBuf,
}

/// A place that nothing is written to.
#[derive(Debug)]
pub struct Refusal {
    /// The place.
    pub path: PathBuf,
    /// Why.
    pub why: Why,
}

/// Why nothing is written to a place.
#[derive(Debug)]
pub enum Why {
    /// The system refused.
    Io(io::Error),
    /// There is no folder in which it could be.
    NoFolder(PathBuf),
    /// It is something that nothing can be written to: what.
    NotAFile(&'static str),
    /// The file there may not be written.
    ReadOnly,
    /// It is a file that the same command reads, under this name.
    Input(PathBuf),
}

impl Refusal {
    /// Why, without the place.
    pub fn in_words(&self) -> String {
        match &self.why {
            Why::Io(e) => e.to_string(),
            Why::NoFolder(folder) => format!("there is no folder `{}`", folder.display()),
            Why::NotAFile(what) => format!("it is {what}"),
            Why::ReadOnly => "the file there is read-only".into(),
            Why::Input(input) if *input == self.path => "this command reads that file".into(),
            Why::Input(input) => format!("it is the file `{}`, which this command reads", input.display()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write `{}`: {}", self.path.display(), self.in_words())
    }
}

// No `source`: the message has the reason in full, and would say it twice.
impl std::error::Error for Refusal {}

/// What is written to in the end.
enum Target {
    /// A regular file, and what the system knows of it; or a name that is free.
    File(PathBuf, Option<Metadata>),
    /// A pipe or a device.
    Stream(PathBuf),
    /// Standard output or standard error, of this process.
    Descriptor(u8),
}

impl Output {
    /// The output of that name. Nothing is made or opened yet.
    ///
    /// # Errors
    /// Nothing can be written there, or nothing may.
    pub fn at(path: &Path) -> Result<Output, Refusal> {
        let target = target(path)?;
        if let Target::File(file, Some(metadata)) = &target {
            // Root may write it all the same, and the mode says that it is to stay.
            if metadata.permissions().readonly() {
                return Err(refusal(path, Why::ReadOnly));
            }
            File::options().append(true).open(file).map_err(|e| refusal(path, Why::Io(e)))?;
        }
        Ok(Output { path: path.to_owned() })
    }

    /// The name, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is standard output of this process.
    pub fn is_standard_output(&self) -> bool {
        matches!(target(&self.path), Ok(Target::Descriptor(1)))
    }

    /// Whether there is no file of that name when it has been written, wherever a shell may lead it.
    pub fn is_stream(&self) -> bool {
        matches!(target(&self.path), Ok(Target::Stream(_) | Target::Descriptor(_)))
    }

    /// Refuses an output that is one of the files at `inputs`, under whatever name.
    ///
    /// # Errors
    /// It is one of them.
    pub fn is_none_of<'a>(&self, inputs: impl IntoIterator<Item = &'a Path>) -> Result<(), Refusal> {
        let Target::File(file, Some(metadata)) = target(&self.path)? else { return Ok(()) };
        let own = identity(&file, &metadata);
        let same =
            |input: &&Path| fs::metadata(input).is_ok_and(|meta| meta.is_file() && identity(input, &meta) == own);
        match inputs.into_iter().find(same) {
            Some(input) => Err(refusal(&self.path, Why::Input(input.to_owned()))),
            None => Ok(()),
        }
    }

    /// Writes what `fill` writes. A file is there, whole, when `fill` has come to its end; a stream is opened at the first byte, which may
    /// wait for its reader. True if it was written: without a single byte all stays as it was.
    ///
    /// # Errors
    /// That of `fill`; the disk is full, or the like; a file's owner cannot be kept. The old file is whole then.
    pub fn write<E: From<io::Error>>(&self, fill: impl FnOnce(&mut Out) -> Result<(), E>) -> Result<bool, E> {
        // What is there may be something else by now.
        let to = match target(&self.path).map_err(|refusal| io::Error::other(refusal.in_words()))? {
            Target::File(file, old) => {
                return durable::replace_like(&file, old.as_ref(), |file| {
                    let mut out = Out { to: To::File(file), bytes: 0 };
                    fill(&mut out).map(|()| out.bytes > 0)
                });
            }
            Target::Stream(path) => To::Stream(path),
            Target::Descriptor(number) => To::Descriptor(number),
        };
        let mut out = Out { to, bytes: 0 };
        fill(&mut out)?;
        Ok(out.bytes > 0)
    }

    /// [`Output::write`] of `content`.
    ///
    /// # Errors
    /// As for [`Output::write`].
    pub fn put(&self, content: &[u8]) -> io::Result<()> {
        self.write(|out| out.write_all(content)).map(|_| ())
    }
}

/// Takes what is written to an [`Output`].
pub struct Out<'a> {
    to: To<'a>,
    bytes: u64,
}

enum To<'a> {
    File(&'a mut File),
    /// Not open yet.
    Stream(PathBuf),
    Descriptor(u8),
    Open(File),
}

impl Out<'_> {
    fn file(&mut self) -> io::Result<&mut File> {
        let opened = match &self.to {
            To::Stream(path) => Some(File::options().write(true).open(path)?),
            To::Descriptor(number) => Some(descriptor(*number)?),
            To::File(_) | To::Open(_) => None,
        };
        if let Some(file) = opened {
            self.to = To::Open(file);
        }
        match &mut self.to {
            To::File(file) => Ok(file),
            To::Open(file) => Ok(file),
            To::Stream(_) | To::Descriptor(_) => Err(io::Error::other("not open")),
        }
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file()?.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refusal(path: &Path, why: Why) -> Refusal {
    Refusal { path: path.to_owned(), why }
}

/// Follows links, one after the other: the last of them may lead to where nothing is yet.
fn target(path: &Path) -> Result<Target, Refusal> {
    let io = |e| refusal(path, Why::Io(e));
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        if let Some(number) = standard(&at) {
            return Ok(Target::Descriptor(number));
        }
        let metadata = match super::uninterrupted(|| fs::symlink_metadata(&at)) {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let folder = durable::folder_of(&at);
                return match super::uninterrupted(|| fs::metadata(folder)) {
                    Ok(found) if found.is_dir() && at.file_name().is_some() => Ok(Target::File(at, None)),
                    Ok(found) if found.is_dir() => Err(refusal(path, Why::NotAFile("no file's name"))),
                    Ok(_) => Err(refusal(path, Why::NoFolder(folder.to_owned()))),
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                        Err(refusal(path, Why::NoFolder(folder.to_owned())))
                    }
                    Err(e) => {
                        let why = format!("the folder `{}` cannot be looked at: {e}", folder.display());
                        Err(refusal(path, Why::Io(io::Error::new(e.kind(), why))))
                    }
                };
            }
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                return Err(refusal(path, Why::NoFolder(durable::folder_of(&at).to_owned())));
            }
            Err(e) => return Err(io(e)),
        };
        if metadata.is_symlink() {
            let to = fs::read_link(&at).map_err(io)?;
            // What a descriptor shows as a link is the name that its file had once.
            if durable::folder_of(&at) == Path::new("/proc/self/fd") || at.starts_with("/dev/fd") {
                return Ok(Target::Stream(at));
            }
            at = durable::folder_of(&at).join(to);
            continue;
        }
        return match super::what_else(&metadata) {
            None => Ok(Target::File(at, Some(metadata))),
            Some("a pipe" | "a device") => Ok(Target::Stream(at)),
            Some(what) => Err(refusal(path, Why::NotAFile(what))),
        };
    }
    Err(io(io::Error::other("too many links lead to one another")))
}

/// The number of a standard stream of this process that a path names.
fn standard(path: &Path) -> Option<u8> {
    let name = path.to_str()?;
    match name {
        "-" | "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => {
            let number = name.strip_prefix("/dev/fd/").or_else(|| name.strip_prefix("/proc/self/fd/"))?;
            number.parse().ok().filter(|number| matches!(number, 1 | 2))
        }
    }
}

/// Another descriptor of a standard stream, which goes on from where that is.
fn descriptor(number: u8) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        let owned = match number {
            1 => io::stdout().as_fd().try_clone_to_owned()?,
            _ => io::stderr().as_fd().try_clone_to_owned()?,
        };
        Ok(File::from(owned))
    }
    #[cfg(not(unix))]
    Err(io::Error::new(ErrorKind::Unsupported, format!("descriptor {number}")))
}

/// What is the same for two names of one file, and differs for two files.
#[cfg(unix)]
fn identity(_: &Path, metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(path: &Path, _: &Metadata) -> Option<PathBuf> {
    path.canonicalize().ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn put(path: &Path, text: &str) -> Result<bool, String> {
        let output = Output::at(path).map_err(|e| e.to_string())?;
        output.write(|out| out.write_all(text.as_bytes())).map_err(|e: io::Error| e.to_string())
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_leads_on() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "old").unwrap();
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", at("link")).unwrap();
        symlink(at("link"), at("link to it")).unwrap();
        symlink("later", at("dangling")).unwrap();
        for (name, file) in [("file", "file"), ("link", "file"), ("link to it", "file"), ("dangling", "later")] {
            assert_eq!(put(&at(name), name), Ok(true));
            assert_eq!(fs::read_to_string(at(file)).unwrap(), name);
        }
        assert_eq!(fs::metadata(at("file")).unwrap().mode() & 0o7777, 0o640);
        assert!(at("link").is_symlink() && at("link to it").is_symlink() && at("dangling").is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5, "nothing is left beside them");
    }

    #[test]
    fn standard_output_has_a_short_name() {
        for name in ["-", "/dev/stdout", "/dev/fd/1"] {
            let output = Output::at(Path::new(name)).unwrap();
            assert!(output.is_standard_output() && output.is_stream(), "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        let output = Output::at(&dir.path().join("-")).unwrap();
        assert!(!output.is_stream() && !output.is_standard_output());
        let null = Output::at(Path::new("/dev/null")).unwrap();
        assert!(null.is_stream() && !null.is_standard_output());
    }

    #[test]
    fn without_a_byte_and_after_a_failure_all_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(put(&path, ""), Ok(false));
        assert!(!path.exists());
        fs::write(&path, "old").unwrap();
        assert_eq!(put(&path, ""), Ok(false));
        let failed = Output::at(&path).unwrap().write(|out| {
            out.write_all(b"half")?;
            Err(io::Error::other("it went wrong"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn pipes_are_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, link) = (dir.path().join("pipe"), dir.path().join("link"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link] {
            let from = pipe.clone();
            let reader = std::thread::spawn(move || {
                let mut text = String::new();
                File::open(from).unwrap().read_to_string(&mut text).unwrap();
                text
            });
            assert_eq!(put(path, "through it"), Ok(true));
            assert_eq!(reader.join().unwrap(), "through it");
        }
        assert_eq!(put(&pipe, ""), Ok(false), "without a byte the pipe is not opened");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_must_not_be_written_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("read-only"), "").unwrap();
        fs::set_permissions(at("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
        fs::create_dir(at("folder")).unwrap();
        symlink("circle", at("circle")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, why) in [
            ("read-only", "read-only"),
            ("folder", "it is a folder"),
            ("socket", "it is a socket"),
            ("circle", "links"),
            ("nowhere/file", "there is no folder"),
            ("read-only/file", "there is no folder"),
        ] {
            let error = Output::at(&at(name)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(name), "{error}");
        }
    }

    #[test]
    fn an_input_is_known_under_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("input"), "kept").unwrap();
        fs::hard_link(at("input"), at("hard")).unwrap();
        symlink("input", at("soft")).unwrap();
        fs::write(at("other"), "").unwrap();
        let input = at("input");
        for name in ["input", "hard", "soft"] {
            let error = Output::at(&at(name)).unwrap().is_none_of([input.as_path()]).unwrap_err().to_string();
            assert!(error.contains("this command reads"), "{error}");
        }
        for name in ["other", "new"] {
            Output::at(&at(name)).unwrap().is_none_of([input.as_path()]).unwrap();
        }
    }
}

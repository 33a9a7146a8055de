//! Downloading a set, from a server on this machine.

use crate::library::library;
use crate::place::Place;
use crate::sweep::{Sweep, say};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

const FILES: [&str; 4] = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
];

/// Serves the files of a folder, or what a range leaves of them; the address.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let folder = folder.clone();
            // Who asked may have been killed; that is nothing to a server.
            std::thread::spawn(move || drop(answer(stream, &folder)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, folder: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let name = first.split(['/', ' ']).find(|part| part.ends_with(".gz")).unwrap_or_default().to_string();
    let mut from = None;
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        let range = line.strip_prefix("range: bytes=").and_then(|r| r.strip_suffix('-'));
        from = range.and_then(|n| n.parse::<usize>().ok()).or(from);
    }
    let bytes = fs::read(folder.join(name))?;
    let total = bytes.len();
    let body = &bytes[from.unwrap_or(0).min(total)..];
    let head = match from {
        Some(from) => format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{total}", total - 1),
        None => "200 OK".into(),
    };
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(body)
}

/// A set that is there in part, and the command that brings the rest.
pub struct Download {
    pub start: Place,
    pub args: String,
    from: PathBuf,
}

impl Download {
    /// `None` without real data or a compiler, which is said.
    pub fn new() -> Option<Download> {
        let Some(data) = std::env::var_os("RUNNER_TEST_DATA").map(PathBuf::from) else {
            say("skipped: the faults of a download need RUNNER_TEST_DATA");
            return None;
        };
        library()?;
        let from = data.join("mnist");
        let args = format!("data fetch mnist --root set --mirror {}", serve(from.clone()));
        let start = Place::new();
        let set = start.file("set");
        fs::create_dir(&set).unwrap();
        // The longest is there: it takes most of the time and shows nothing new. One is missing, one was begun, one is
        // damaged.
        fs::copy(from.join(FILES[0]), set.join(FILES[0])).unwrap();
        let begun = fs::read(from.join(FILES[2])).unwrap();
        fs::write(set.join(format!("{}.part", FILES[2])), &begun[..begun.len() / 2]).unwrap();
        fs::write(set.join(FILES[3]), DAMAGED).unwrap();
        Some(Download { start, args, from })
    }

    /// Every file under its own name is that file, or as it was; `all`: all are there.
    pub fn whole(&self, place: &Place, all: bool) -> Result<(), String> {
        for name in FILES {
            match fs::read(place.file("set").join(name)) {
                Ok(found) if found == fs::read(self.from.join(name)).unwrap() => (),
                Ok(found) if found == DAMAGED && name == FILES[3] && !all => (),
                Ok(found) => return Err(format!("{name} is not whole: {} bytes", found.len())),
                Err(_) if all => return Err(format!("{name} is missing")),
                Err(_) => (),
            }
        }
        Ok(())
    }
}

const DAMAGED: &[u8] = b"damaged";

#[test]
fn a_download() {
    let Some(download) = Download::new() else { return };
    Sweep {
        name: "data fetch",
        start: &download.start,
        args: &download.args,
        every: 113,
        // What comes in one piece is up to the network.
        steady: false,
        done: &|place, _| download.whole(place, true),
        after: &|place, _, _| {
            download.whole(place, false)?;
            let again = place.run(&download.args);
            match again.code {
                Some(0) => download.whole(place, true),
                _ => Err(format!("what is left is in the way: {again:?}")),
            }
        },
    }
    .run();
}

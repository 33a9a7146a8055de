use super::super::digest::Digest;
use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How the server answers one request.
#[derive(Clone)]
enum Answer {
    /// The whole, or the rest if a range is asked for.
    File(Vec<u8>),
    /// The same, but the connection ends after so many bytes of the body.
    Broken(Vec<u8>, usize),
    /// The whole, whatever is asked for.
    NoRange(Vec<u8>),
    Status(&'static str),
}

/// A server on this machine that gives `answers` one after the other, then 500; and the ranges it was asked for.
fn serve(answers: Vec<Answer>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/some/folder", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        for stream in listener.incoming() {
            answer(stream.unwrap(), answers.next().unwrap_or(Answer::Status("500 Internal Server Error")), &log);
        }
    });
    (url, seen)
}

fn answer(mut stream: TcpStream, how: Answer, log: &Mutex<Vec<String>>) {
    let mut range = String::new();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.starts_with("GET /some/folder/the.gz "), "{first}");
    for line in lines {
        let line = line.unwrap().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("range: ") {
            range = value.to_string();
        }
    }
    let from = range.strip_prefix("bytes=").and_then(|r| r.strip_suffix('-')).map(|n| n.parse::<usize>().unwrap());
    log.lock().unwrap().push(range.clone());
    let (bytes, from, cut) = match how {
        Answer::File(b) => (b, from, usize::MAX),
        Answer::Broken(b, cut) => (b, from, cut),
        Answer::NoRange(b) => (b, None, usize::MAX),
        Answer::Status(s) => {
            let _ = write!(stream, "HTTP/1.1 {s}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
    };
    let body = &bytes[from.unwrap_or(0)..];
    let (length, total) = (body.len(), bytes.len());
    let head = match from {
        Some(f) => format!("206 Partial Content\r\nContent-Range: bytes {f}-{}/{total}", total - 1),
        None => "200 OK".into(),
    };
    // The client may hang up early; that is its business.
    let _ = write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(&body[..cut.min(length)]);
}

fn content() -> Vec<u8> {
    (0..300_000u32).map(|i| (i % 251 + i / 1000 % 5) as u8).collect()
}

fn remote(content: &[u8]) -> KnownFile {
    let hex = Digest::of(&[content]).to_string();
    KnownFile { name: "the.gz", bytes: content.len() as u64, sha256: hex.leak() }
}

struct Outcome {
    dir: tempfile::TempDir,
    result: Result<()>,
    events: Vec<String>,
}

/// Brings the file into a new folder in which `part` is there already.
fn bring(mirrors: &[String], part: Option<&[u8]>) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    if let Some(part) = part {
        std::fs::write(dir.path().join("the.gz.part"), part).unwrap();
    }
    let mut events = Vec::new();
    let result = get(&Wanted::from(&remote(&content())), dir.path(), mirrors, &mut |e| match e {
        Event::Started { done, .. } => events.push(format!("started at {done}")),
        Event::Failed { reason, .. } => events.push(format!("failed: {reason}")),
        Event::Finished { .. } => events.push("finished".into()),
        Event::Present { .. } => events.push("present".into()),
        Event::Progress { done, total, .. } => assert!(done <= total),
        Event::Unpacking { .. } | Event::Unpacked { .. } | Event::Note { .. } => unreachable!("no archive"),
    });
    Outcome { dir, result, events }
}

impl Outcome {
    fn is_whole(&self) {
        self.result.as_ref().unwrap();
        assert_eq!(std::fs::read(self.dir.path().join("the.gz")).unwrap(), content());
        assert!(!self.dir.path().join("the.gz.part").exists());
    }
}

#[test]
fn a_whole_file_and_then_none() {
    let (url, seen) = serve(vec![Answer::File(content())]);
    let got = bring(&[url.clone() + "/"], None);
    got.is_whole();
    assert_eq!(got.events, ["started at 0", "finished"]);
    let mut again = Vec::new();
    get(&Wanted::from(&remote(&content())), got.dir.path(), &[url], &mut |e| again.push(format!("{e:?}"))).unwrap();
    assert_eq!(again, [r#"Present { file: "the.gz" }"#]);
    assert_eq!(*seen.lock().unwrap(), [""]);
}

#[test]
fn a_damaged_file_is_replaced() {
    let (url, _) = serve(vec![Answer::File(content())]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("the.gz"), b"damaged").unwrap();
    get(&Wanted::from(&remote(&content())), dir.path(), &[url], &mut |_| ()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("the.gz")).unwrap(), content());
}

#[test]
fn a_broken_transfer_is_continued() {
    let (url, seen) = serve(vec![Answer::Broken(content(), 100_000), Answer::File(content())]);
    let got = bring(&[url], None);
    got.is_whole();
    assert_eq!(*seen.lock().unwrap(), ["", "bytes=100000-"]);
    assert_eq!(got.events[2..], ["started at 100000", "finished"]);
}

#[test]
fn what_an_earlier_run_left_is_continued_at_the_next_mirror() {
    let (dead, _) = serve(vec![Answer::Status("404 Not Found")]);
    let (url, seen) = serve(vec![Answer::File(content())]);
    let got = bring(&[dead, url], Some(&content()[..1234]));
    got.is_whole();
    assert_eq!(*seen.lock().unwrap(), ["bytes=1234-"]);
    assert_eq!(got.events, ["failed: answered 404 Not Found", "started at 1234", "finished"]);
}

#[test]
fn a_server_without_ranges_starts_over() {
    let (url, seen) = serve(vec![Answer::Broken(content(), 5000), Answer::NoRange(content())]);
    let got = bring(&[url], None);
    got.is_whole();
    assert_eq!(*seen.lock().unwrap(), ["", "bytes=5000-"]);
    assert_eq!(got.events[2], "started at 0");
}

#[test]
fn a_wrong_checksum_goes_to_the_next_mirror() {
    let mut wrong = content();
    wrong[77] ^= 1;
    let (bad, seen) = serve(vec![Answer::File(wrong); 9]);
    let (good, _) = serve(vec![Answer::File(content())]);
    bring(&[bad.clone(), good], None).is_whole();
    assert_eq!(seen.lock().unwrap().len(), 1, "the same wrong file is not fetched twice");
    let got = bring(&[bad], None);
    assert!(got.result.unwrap_err().to_string().contains("wrong checksum"));
    assert!(!got.dir.path().join("the.gz").exists());
}

#[test]
fn a_part_of_something_else_is_thrown_away() {
    for part in [vec![0; 1000], vec![0; 300_000], vec![0; 400_000]] {
        let (url, _) = serve(vec![Answer::File(content()), Answer::File(content())]);
        bring(&[url], Some(&part)).is_whole();
    }
}

#[test]
fn too_much_is_refused() {
    let (url, _) = serve(vec![Answer::File([content(), content()].concat())]);
    assert!(bring(&[url], None).result.unwrap_err().to_string().contains("more than the file's 300000 bytes"));
}

#[test]
fn all_failures_are_listed() {
    let (missing, _) = serve(vec![Answer::Status("404 Not Found")]);
    let (short, _) = serve(vec![Answer::Broken(content(), 0)]);
    // A port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mirrors = [missing.clone(), short.clone(), format!("http://{closed}"), "no address".into()];
    let text = bring(&mirrors, None).result.unwrap_err().to_string();
    for part in [&missing[..], "404", &short, &closed.to_string(), "no address", "from any mirror"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let none = bring(&[], None);
    assert!(none.result.is_err() && !none.dir.path().join("the.gz.part").exists());
}

#[test]
fn a_page_is_no_file() {
    for page in ["<!DOCTYPE html><html>please log in</html>", "\n<html></html>", ""] {
        let (url, _) = serve(vec![Answer::File(page.as_bytes().to_vec())]);
        let dir = tempfile::tempdir().unwrap();
        let wanted = Wanted { name: "the.gz", bytes: page.len() as u64, sha256: "", token: None };
        let error = get(&wanted, dir.path(), &[url], &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("is a web page, or empty"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }
}

#[test]
fn the_known_sets_are_complete() {
    for set in Known::ALL {
        assert_eq!(Known::by_name(set.name()), Some(set));
        assert!(set.mirrors().len() >= 2);
        assert!(set.fingerprint().iter().flatten().all(|part| part.len() == 32));
        for file in set.files().iter().chain(set.content()) {
            assert_eq!((file.sha256.len(), file.bytes > 4000), (64, true), "{}", file.name);
        }
    }
}

#[test]
fn a_part_of_a_checksum_is_enough() {
    let whole = remote(&content());
    let bring = |sha256: &str| {
        let (url, _) = serve(vec![Answer::File(content())]);
        let dir = tempfile::tempdir().unwrap();
        get(&Wanted { sha256, ..Wanted::from(&whole) }, &dir.path().join("new"), &[url], &mut |_| ())
    };
    bring(&whole.sha256[..8]).unwrap();
    bring("").unwrap();
    assert!(bring("00000000").unwrap_err().to_string().contains("wrong checksum"));
}

#[test]
fn one_of_two_programs_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let _other = http::Part::open(&dir.path().join("the.gz.part")).unwrap();
    let (url, _) = serve(vec![Answer::File(content())]);
    let error = get(&Wanted::from(&remote(&content())), dir.path(), &[url], &mut |_| ()).unwrap_err();
    assert!(error.is::<Busy>() && error.to_string().contains("by another program"), "{error}");
}

//! `runner serve`: the program as a server, asked over sockets.

mod answered;
mod answers;
mod batches;
mod charsets;
mod hostile;
mod life;
mod limits;
mod members;
mod page;
mod protocol;
mod series;
mod texts;
mod tls;
mod turns;

use super::support::{LAYERS, Place, digits};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time to wait for anything; only reached where something hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How a model of the digits is trained.
const TRAIN: &str = "[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = 2\n";

/// A server, which is killed at the latest when the test ends.
struct Server {
    child: Child,
    address: SocketAddr,
    /// Where its standard error goes.
    log: std::path::PathBuf,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn of(bytes: &[u8]) -> Reply {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head, body: bytes[end + 4..].to_vec() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }

    /// What was wrong; each refusal says it in one way.
    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    /// The predictions of a good answer.
    fn predictions(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()["predictions"].as_array().unwrap().clone()
    }
}

impl Server {
    /// Starts it on a free port of the loopback device.
    fn start(place: &Place, args: &str) -> Server {
        Server::start_at(place, args, 0)
    }

    /// Starts it on that port of the loopback device; 0: one that is free.
    fn start_at(place: &Place, args: &str, port: u16) -> Server {
        Server::of(place, place.command(&format!("serve --port {port} --threads 1 {args}")))
    }

    /// Starts it by this command.
    fn of(place: &Place, mut command: Command) -> Server {
        let log = place.path("log.txt");
        command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on http").and_then(|rest| {
            let (_, rest) = rest.split_once("://")?;
            rest.split(',').next()?.parse().ok()
        });
        let address = address.unwrap_or_else(|| {
            _ = child.wait();
            panic!("it does not listen: {line} {}", std::fs::read_to_string(&log).unwrap())
        });
        Server { child, address, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes, and reads until the server ends the connection.
    fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // It may be refused before it is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        Reply::of(&self.raw(&request(method, path, headers, body)))
    }

    fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "", b"")
    }

    fn json(&self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, "Content-Type: application/json\r\n", body.as_bytes())
    }

    fn image(&self, path: &str, file: &[u8]) -> Reply {
        self.ask("POST", path, "Content-Type: image/png\r\n", file)
    }

    /// Files as a form.
    fn files(&self, path: &str, files: &[(&str, Vec<u8>)]) -> Reply {
        let mut body = Vec::new();
        for (name, content) in files {
            write!(body, "--part\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n").unwrap();
            body.extend(content);
            body.extend(b"\r\n");
        }
        body.extend(b"--part--\r\n");
        self.ask("POST", path, "Content-Type: multipart/form-data; boundary=part\r\n", &body)
    }

    /// A number of `/metrics`.
    fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: `kill` takes plain numbers; the process is our child and not waited for yet, so the number is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Asks it to stop; its exit code.
    fn stop(mut self) -> Option<i32> {
        self.signal(libc::SIGTERM);
        self.child.wait().unwrap().code()
    }

    /// Waits until something is so.
    fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < PATIENCE, "{what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request whose connection ends with its answer.
fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length =
        if body.is_empty() && method == "GET" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}{length}\r\n");
    [head.as_bytes(), body].concat()
}

/// A place with a model of the digits, in the folder `r`.
fn trained() -> Place {
    let place = Place::with(&digits("", &format!("{LAYERS}\n{TRAIN}")));
    place.ok("train c.toml --quiet --out r");
    place
}

/// An image of 8 × 8 as a PNG file, and its bytes.
fn drawing(number: usize) -> (Vec<u8>, Vec<u8>) {
    let pixel = |x: u32, y: u32| image::Luma([(x as u8 * 31) ^ (y as u8 * 17) ^ (number as u8).wrapping_mul(29)]);
    let image = image::GrayImage::from_fn(8, 8, pixel);
    let mut file = Vec::new();
    image.write_to(&mut std::io::Cursor::new(&mut file), image::ImageFormat::Png).unwrap();
    (file, image.into_raw())
}

/// Images as instances.
fn instances(images: &[Vec<u8>]) -> String {
    let image = |bytes: &Vec<u8>| vec![bytes.chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>()];
    serde_json::json!({ "instances": images.iter().map(image).collect::<Vec<_>>() }).to_string()
}

//! Files that hurt: they are refused with a word on what they are, at once and without taking memory.
#![cfg(unix)]

use super::support::{Done, LAYERS, Place, digits};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Memory that a process gets here, in bytes: enough for the program, and far less than what the files claim.
const MEMORY: libc::rlim_t = 2 << 30;

/// Runs with little memory; a process that waits for a pipe is a test that hangs.
pub fn run(place: &Place, args: &str) -> Done {
    run_within(place, args, MEMORY)
}

/// Runs with so many bytes of memory.
pub fn run_within(place: &Place, args: &str, memory: libc::rlim_t) -> Done {
    let mut command: Command = place.command(args);
    // SAFETY: `setrlimit` is safe to call between fork and exec, and reads a value of its own.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: memory, rlim_max: memory };
            match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    Done::of(command.output().unwrap())
}

/// Failed while running, or the command line or the configuration was wrong to name such a file.
const REFUSED: [i32; 2] = [1, 2];

fn fails(place: &Place, args: &str, parts: &[&str]) {
    let done = run(place, args);
    assert!(done.code.is_some_and(|code| REFUSED.contains(&code)), "`runner {args}`: {done:?}");
    assert!(!done.err.contains("panicked"), "`runner {args}`: {done:?}");
    parts.iter().for_each(|part| assert!(done.err.contains(part), "`runner {args}`: no `{part}` in {}", done.err));
}

fn pipe(place: &Place, name: &str) {
    let path = std::ffi::CString::new(place.path(name).to_str().unwrap()).unwrap();
    // SAFETY: the name is a string with an end, alive for the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

fn sparse(place: &Place, name: &str, start: &[u8], size: u64) -> bool {
    let path = place.write(name, start);
    std::fs::File::options().write(true).open(path).unwrap().set_len(size).is_ok()
}

const TRAIN: &str = "[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = 1\n";

fn place() -> Place {
    Place::with(&digits("", &format!("{LAYERS}\n{TRAIN}")))
}

/// Whatever memory there is: a file that is worth it is read, or an error says that there is too little. No decoder ends the program in another way.
#[test]
fn files_are_read_or_there_is_too_little_memory() {
    let place = place();
    place.ok("train c.toml --quiet --out r --set data.limit=64");
    let photo = image::RgbImage::from_fn(2400, 1600, |x, y| image::Rgb([x as u8, y as u8, (x * y) as u8]));
    let names = ["a.png", "a.jpg", "a.gif", "a.bmp", "a.webp"];
    names.iter().filter(|name| **name != "a.gif").for_each(|name| photo.save(place.path(name)).unwrap());
    // Colours that are chosen with less care take seconds less.
    let gif = fs::File::create(place.path("a.gif")).unwrap();
    image::codecs::gif::GifEncoder::new_with_speed(gif, 30)
        .encode(&photo, photo.width(), photo.height(), image::ExtendedColorType::Rgb8)
        .unwrap();
    let starts = |memory: libc::rlim_t| run_within(&place, "--version", memory).code == Some(0);
    let least = (8..).step_by(8).map(|n| n << 20).find(|memory| starts(*memory)).unwrap();
    let mut ended = [0; 2];
    for name in names {
        // What the program takes, and less and more than the pixels, which are 11 MiB.
        for more in [0, 6, 12, 24, 48, 1024] {
            let done = run_within(&place, &format!("predict r {name} --threads 1"), least + (more << 20));
            let at = format!("{name} with {} MiB: {done:?}", (least >> 20) + more);
            match done.code {
                Some(0) => ended[0] += 1,
                Some(1 | 3) if done.err.contains("memory") || done.err.contains("cannot start") => ended[1] += 1,
                _ => panic!("{at}"),
            }
            assert!(!done.err.contains("panicked") && !done.err.contains("internal error"), "{at}");
            assert!(more < 1024 || done.code == Some(0), "{at}");
        }
    }
    assert!(ended.iter().all(|times| *times >= names.len()), "{ended:?}");
}

#[test]
fn weights_that_are_no_files_neither_hang_nor_fill_memory() {
    let place = place();
    pipe(&place, "pipe");
    assert!(sparse(&place, "zeros", b"", 1 << 40), "a sparse file");
    assert!(sparse(&place, "large.pth", b"PK\x03\x04", 1 << 33), "a sparse file");
    for (file, what) in [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder")] {
        let parts = [what, "not a file"];
        fails(&place, &format!("train c.toml --out r --set model.weights={file}"), &parts);
        if file != "." {
            fails(&place, &format!("predict {file} a.png"), &parts);
            fails(&place, &format!("eval {file}"), &parts);
            fails(&place, &format!("export {file} x.safetensors"), &parts);
        }
    }
    for (file, why, no_checkpoint) in [
        ("zeros", "neither a safetensors file nor", "no safetensors file"),
        ("large.pth", "is cut short", "is a zip archive, not a checkpoint"),
    ] {
        fails(&place, &format!("train c.toml --out r --set model.weights={file}"), &[why]);
        fails(&place, &format!("predict {file} a.png"), &[no_checkpoint]);
    }
}

#[test]
fn tensors_that_are_no_files_are_refused_by_check_too() {
    let place = Place::with(&format!(
        "[data]\nsource = \"tensors\"\npath = \"pipe\"\n{LAYERS}\n[loss]\ntype = \"cross_entropy\"\n{TRAIN}"
    ));
    pipe(&place, "pipe");
    // A header that is right about a file which is a terabyte of zeros.
    let json = br#"{"inputs":{"dtype":"U8","shape":[1099511627776,1,1,1],"data_offsets":[0,1099511627776]}}"#;
    let head = [&(json.len() as u64).to_le_bytes()[..], json].concat();
    assert!(sparse(&place, "large", &head, (1 << 40) + head.len() as u64), "a sparse file");
    for (file, what) in [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder"), ("large", "memory")] {
        for command in ["check", "train"] {
            fails(&place, &format!("{command} c.toml --set data.path={file}"), &[what]);
        }
    }
}

#[test]
fn pictures_that_hurt_leave_the_others() {
    let place = place();
    place.ok("train c.toml --quiet --out r");
    image::GrayImage::new(8, 8).save(place.path("good.png")).unwrap();
    pipe(&place, "pipe.png");
    let gif = [
        &b"GIF89a\0\0\x08\0\x80\0\0\0\0\0\xff\xff\xff"[..],
        &[0x2c, 0, 0, 0, 0, 0, 0, 8, 0, 0, 2, 2, 0x4c, 1, 0, 0x3b],
    ]
    .concat();
    assert_eq!(gif.len(), 35);
    place.write("empty.gif", gif);
    let mut large = b"GIF89a\x00\x7d\x00\x7d\x80\0\0\0\0\0\xff\xff\xff".to_vec();
    large.extend([0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x4c, 1, 0, 0x3b]);
    place.write("large.gif", large);
    assert!(sparse(&place, "sparse.png", b"\x89PNG\r\n\x1a\n", 1 << 40), "a sparse file");
    let files = "empty.gif pipe.png large.gif sparse.png /dev/zero good.png";
    let done = run(&place, &format!("predict r/last.safetensors {files} --json"));
    assert_eq!(done.code, Some(1), "{done:?}");
    let results = done.json();
    assert_eq!(results.as_array().unwrap().len(), 1, "{done:?}");
    assert_eq!(results[0]["file"], "good.png");
    assert_eq!(done.err.lines().count(), 6, "a line for each, and how many: {}", done.err);
    for part in ["0×8 pixels", "it is a pipe, not a file", "it is a device, not a file", "at most 268435456 are read"]
    {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}

/// Gzipped: these bytes, then so many megabytes of zeros.
fn bomb(head: &[u8], megabytes: usize) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(head).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..megabytes).for_each(|_| e.write_all(&zeros).unwrap());
    e.finish().unwrap()
}

#[test]
fn sets_that_unpack_to_gigabytes_are_refused() {
    let place = place();
    let root = "--set data.source=mnist --set data.root=m --set data.download=false";
    let head = |dims: [u32; 3]| [vec![0, 0, 8, 3], dims.iter().flat_map(|d| d.to_be_bytes()).collect()].concat();
    place.write("m/train-images-idx3-ubyte.gz", bomb(&head([4_000_000, 28, 28]), 3000));
    for name in ["train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"] {
        place.write(&format!("m/{name}"), bomb(&[0, 0, 8, 1, 0, 0, 0, 0], 0));
    }
    let train = "train c.toml --out r --set";
    fails(&place, &format!("{train} data.verify=true {root}"), &["4000000×28×28 bytes where 60000×28×28"]);
    fails(&place, &format!("{train} data.verify=false {root}"), &["more than the 1073741824 bytes"]);
    // Named like a file of the set, and a pipe.
    std::fs::remove_file(place.path("m/train-images-idx3-ubyte.gz")).unwrap();
    pipe(&place, "m/train-images-idx3-ubyte.gz");
    fails(&place, &format!("{train} data.verify=false {root}"), &["is a pipe, not a file"]);

    let root = "--set data.source=cifar10 --set data.root=c --set data.download=false";
    let mut header = tar::Header::new_ustar();
    header.set_path("pax").unwrap();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(6 << 30);
    header.set_cksum();
    place.write("c/cifar-10-binary.tar.gz", bomb(header.as_bytes(), 1100));
    for verify in [true, false] {
        let args = format!("{train} data.verify={verify} {root}");
        fails(&place, &args, &["cifar-10-binary.tar.gz", "more than 1073741824 bytes"]);
    }
    assert!(!place.path("c/cifar-10-batches-bin").exists());
}

#[test]
fn configurations_that_are_no_files_do_not_hang() {
    let place = place();
    pipe(&place, "pipe.toml");
    place.write("e.toml", "extends = \"pipe.toml\"\n");
    fails(&place, "check e.toml", &["pipe.toml", "a pipe, not a file"]);
    place.write("m.toml", "[model]\nuse = \"pipe.toml\"\n");
    fails(&place, "check m.toml", &["pipe.toml", "a pipe, not a file"]);
}

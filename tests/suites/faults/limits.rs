//! Less than is needed: of memory, of a disk, of the length that a file may have.

use crate::library::library;
use crate::place::{Ended, Place, finish};
use crate::run_state::{RunState, all_whole};
use crate::sweep::{Failed, all, in_parallel};
use crate::train::{CONFIG, TRAIN, finished, recovers, undisturbed};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Limits what the command may have of `resource`.
fn limited(mut command: Command, resource: libc::__rlimit_resource_t, most: u64) -> Ended {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    let limits = move || {
        // SAFETY: a plain call of the kernel, which a process may make between fork and exec.
        let done = unsafe { libc::setrlimit(resource, &limit) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: as above; the closure touches no memory but its own.
    unsafe { command.pre_exec(limits) };
    finish(&mut command)
}

/// A run that has enough, or says what it lacks; whatever it leaves leads to the end.
fn enough_or_a_message(place: &Place, ended: &Ended, expected: &RunState, messages: &[&str]) -> Result<(), String> {
    // Rust's library aborts where a new thread has no room for the stack of its signals; no program can prevent that.
    if ended.err.contains("failed to allocate an alternative stack") {
        return recovers(place, expected);
    }
    if ended.panicked() || ended.signal.is_some() {
        return Err("a panic".into());
    }
    match ended.code {
        Some(0) => finished(place, expected)?,
        Some(1 | 3) if messages.iter().any(|words| ended.err.contains(words)) => (),
        code => return Err(format!("exit code {code:?} and no word of why")),
    }
    recovers(place, expected)
}

/// More than a file of a run has.
const LONGEST: u64 = 6000;

#[test]
fn files_that_may_not_be_long() {
    let expected = undisturbed(CONFIG);
    let start = Place::with("c.toml", CONFIG);
    let step = if all() { 10 } else { 500 };
    let limits: Vec<u64> = (0..LONGEST).step_by(step).collect();
    in_parallel("train, with short files", "lengths", &limits, |most| {
        let place = start.copy();
        let ended = limited(place.command(TRAIN), libc::RLIMIT_FSIZE, *most);
        enough_or_a_message(&place, &ended, &expected, &["File too large"])
            .map_err(|why| Failed { at: format!("{most} bytes: {ended:?}"), why })
    });
}

/// A run whose parts are large enough to stand out from everything else.
const LARGE: &str = r#"
device = "cpu"
seed = 3
[data]
source = "synthetic"
shape = [1, 16, 16]
classes = 10
samples = 500
val_samples = 100
batch_size = 64
workers = 1
[model]
layers = ["flatten", { type = "linear", out_features = 500 }, "relu", { type = "linear", out_features = 10 }]
[loss]
type = "cross_entropy"
[optimizer]
type = "adam"
[train]
epochs = 1
"#;

/// Blocks of at least this size are refused, one by one.
const BLOCK: usize = 100_000;

fn refusals(name: &str, start: &Place, args: &str, after: impl Fn(&Place) -> Result<(), String> + Sync) {
    let (ended, blocks) = start.copy().refused(args, 0, BLOCK);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let numbers: Vec<usize> = (1..=blocks.len()).collect();
    assert!(!numbers.is_empty(), "{name}: no large block is asked for");
    in_parallel(name, "blocks of memory refused", &numbers, |n| {
        let place = start.copy();
        let (ended, _) = place.refused(args, *n, BLOCK);
        let text = format!("{}{}", ended.err, ended.out);
        let result = match ended.code {
            Some(1 | 3) if text.contains("memory") && !ended.panicked() => after(&place),
            code => Err(format!("exit code {code:?}")),
        };
        result.map_err(|why| Failed { at: format!("{n}: {} bytes: {ended:?}", blocks[n - 1].offset), why })
    });
}

#[test]
fn memory_that_is_not_there() {
    if library().is_none() {
        return;
    }
    let expected = undisturbed(LARGE);
    let start = Place::with("c.toml", LARGE);
    refusals("train, without memory", &start, TRAIN, |place| recovers(place, &expected));
    start.ok(TRAIN);
    let whole = |place: &Place| all_whole(&place.file("run"));
    let longer = format!("{TRAIN} --resume --set train.epochs=2");
    let second = start.copy();
    second.ok(&longer);
    let expected_longer = RunState::read(&second.file("run")).unwrap();
    refusals("train --resume, without memory", &start, &longer, |place| {
        // What was asked for holds from the moment on at which it is saved.
        recovers(place, &expected).or_else(|_| recovers(place, &expected_longer))
    });
    refusals("eval, without memory", &start, "eval run/last.safetensors --threads 1", whole);
    refusals("export, without memory", &start, "export run/last.safetensors out.safetensors", |place| {
        match place.file("out.safetensors").exists() {
            true => Err("half a file was left".into()),
            false => whole(place),
        }
    });
}

#[test]
fn little_room_for_addresses() {
    let expected = undisturbed(LARGE);
    let start = Place::with("c.toml", LARGE);
    let step = if all() { 1 } else { 24 };
    let sizes: Vec<u64> = (8..400).step_by(step).map(|n| n << 20).collect();
    let starts = limited(start.command("--version"), libc::RLIMIT_AS, sizes[sizes.len() - 1]);
    assert_eq!(starts.code, Some(0), "{starts:?}");
    in_parallel("train, with little address space", "sizes", &sizes, |most| {
        // Below this the program cannot even be loaded, so it cannot say so.
        if limited(start.command("--version"), libc::RLIMIT_AS, *most).code != Some(0) {
            return Ok(());
        }
        let place = start.copy();
        let ended = limited(place.command(&TRAIN.replace("--threads 1", "--threads 2")), libc::RLIMIT_AS, *most);
        enough_or_a_message(&place, &ended, &expected, &["memory", "cannot start"])
            .map_err(|why| Failed { at: format!("{} MiB: {ended:?}", most >> 20), why })
    });
}

/// A file of `torch.save` with the weights of [`LARGE`], and with many numbers besides that are none of them.
fn pytorch_file() -> Vec<u8> {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let int = |number: usize| [b"J", &(number as u32).to_le_bytes()[..]].concat();
    let tensors: [(&str, &[usize]); 5] = [
        ("1.weight", &[500, 256]),
        ("1.bias", &[500]),
        ("3.weight", &[10, 500]),
        ("3.bias", &[10]),
        ("step_sizes", &[6 << 20]),
    ];
    let mut pickle = b"\x80\x02}".to_vec();
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut entry = |name: &str, bytes: &[u8]| {
        zip.start_file(format!("archive/{name}"), options).unwrap();
        std::io::Write::write_all(&mut zip, bytes).unwrap();
    };
    for (key, (name, shape)) in tensors.iter().enumerate() {
        let len = shape.iter().product::<usize>();
        let list =
            |numbers: &[usize]| [b"(".to_vec(), numbers.iter().flat_map(|n| int(*n)).collect(), b"t".to_vec()].concat();
        let strides: Vec<usize> = (0..shape.len()).map(|at| shape[at + 1..].iter().product()).collect();
        pickle.extend(text(name));
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        pickle.extend(
            [text("storage"), b"ctorch\nFloatStorage\n".to_vec(), text(&key.to_string()), text("cpu"), int(len)]
                .concat(),
        );
        pickle.extend([b"tQ".to_vec(), int(0), list(shape), list(&strides)].concat());
        pickle.extend(b"\x89ccollections\nOrderedDict\n)RtRs");
        entry(&format!("data/{key}"), &vec![0; 4 * len]);
    }
    pickle.extend(b".");
    entry("data.pkl", &pickle);
    entry("version", b"3\n");
    zip.finish().unwrap().into_inner()
}

#[test]
fn weights_of_pytorch_with_little_room() {
    let start = Place::with("c.toml", LARGE);
    std::fs::write(start.file("w.pth"), pytorch_file()).unwrap();
    let command =
        "train c.toml --quiet --out run --threads 1 --set model.weights=w.pth --set model.weights_strict=false";
    start.copy().ok(command);
    let step = if all() { 1 } else { 13 };
    let sizes: Vec<u64> = (8..260).step_by(step).map(|n| n << 20).collect();
    in_parallel("train from w.pth, with little address space", "sizes", &sizes, |most| {
        if limited(start.command("--version"), libc::RLIMIT_AS, *most).code != Some(0) {
            return Ok(());
        }
        let place = start.copy();
        let ended = limited(place.command(command), libc::RLIMIT_AS, *most);
        let explained = ["memory", "cannot start"].iter().any(|words| ended.err.contains(words));
        let well = match ended.code {
            Some(0) => place.file("run/last.safetensors").exists(),
            Some(1..=3) => explained && !ended.panicked(),
            // As above: no room for the stack of a thread's signals.
            _ => ended.err.contains("failed to allocate an alternative stack"),
        };
        let failed = || Failed { at: format!("{} MiB: {ended:?}", most >> 20), why: "no word of why".into() };
        if well { Ok(()) } else { Err(failed()) }
    });
}

/// A user who may have few threads: whatever is started is started, or an error says what could not be.
#[test]
fn few_threads() {
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can become a user who has no other threads");
        return;
    }
    // A number that no other user has.
    const USER: u32 = 60_123;
    let start = Place::with("c.toml", CONFIG);
    start.ok(TRAIN);
    let commands = [
        TRAIN.replace("--threads 1", "--threads 2 --force"),
        "sweep c.toml --sweep optimizer.lr=1e-3,1e-2 --jobs 2 --out s".into(),
    ];
    for (number, command) in commands.iter().enumerate() {
        // One after the other: the limit is on all of a user's threads.
        for most in 1..8 {
            let place = start.copy();
            open_to_all(place.path().parent().unwrap());
            let mut process = place.command(command);
            process.uid(USER + number as u32).gid(USER);
            let ended = limited(process, libc::RLIMIT_NPROC, most);
            let explained = ended.err.contains("cannot start") || ended.err.contains("cannot watch for Ctrl-C");
            let fine =
                ended.code == Some(0) || ended.code == Some(1) && (explained || ended.err.contains("have failed"));
            assert!(fine && !ended.panicked(), "{command} with {most}: {ended:?}");
        }
    }
}

/// Lets all users write all that is in a folder.
fn open_to_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => open_to_all(&entry.path()),
            false => drop(std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(0o666))),
        }
    }
}

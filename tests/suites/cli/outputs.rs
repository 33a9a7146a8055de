//! What commands write to names that the user gives: every command, to every kind of thing that can be there.

use super::support::{LAYERS, Place, digits};
use image::{GrayImage, Luma};
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// A run, an image, and a configuration that names the weights of the run.
fn trained() -> Place {
    let train = "[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n";
    let place = Place::with(&digits("", &format!("{LAYERS}\n{train}")));
    place.ok("train c.toml --quiet --out r");
    let config = place.read("c.toml").replace("[model]", "[model]\nweights = \"r/last.safetensors\"");
    place.write("w.toml", config);
    GrayImage::from_fn(8, 8, |x, _| Luma([if x == 4 { 255 } else { 0 }])).save(place.path("a.png")).unwrap();
    place
}

/// Commands whose last word is the output, its ending, and a file that they read.
const WRITERS: [(&str, &str, &str); 8] = [
    ("predict r/last.safetensors a.png --format csv --out", "png", "a.png"),
    ("predict w.toml a.png --format jsonl --out", "toml", "w.toml"),
    ("eval r/last.safetensors --predictions", "csv", "r/last.safetensors"),
    ("report r --no-evaluation --no-timing --out", "html", "r/metrics.jsonl"),
    ("data show c.toml --count 4 --out", "png", "c.toml"),
    ("export r/last.safetensors", "safetensors", "r/last.safetensors"),
    ("export w.toml", "pth", "r/last.safetensors"),
    ("export w.toml", "onnx", "w.toml"),
];

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// A device that takes everything, of our own; `None` where none may be made.
fn null_device(path: &Path) -> Option<()> {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with a zero, and lives until the call returns.
    let made = unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 3)) };
    (made == 0).then_some(())
}

fn pipe(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// A command to a pipe; what came through it.
fn through(place: &Place, command: &str, out: &str, pipe: &Path) -> Vec<u8> {
    let from = pipe.to_owned();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        fs::File::open(from).unwrap().read_to_end(&mut all).unwrap();
        all
    });
    place.ok(&format!("{command} {out}"));
    reader.join().unwrap()
}

#[test]
fn a_dash_is_standard_output() {
    let place = trained();
    let predict = "predict r/last.safetensors a.png --format csv";
    let expected = place.ok(predict).out;
    assert_eq!(place.ok(&format!("{predict} --out -")).out, expected);
    assert_eq!(
        place.ok("predict r/last.safetensors a.png --out -").out,
        place.ok("predict r/last.safetensors a.png").out
    );
    // What comes through standard output is the file alone; figures go to standard error.
    place.ok("eval r --predictions p.csv");
    let figures = place.ok("eval r").out;
    let eval = place.ok("eval r --predictions -");
    assert_eq!((eval.out, eval.err.contains(figures.lines().next().unwrap())), (place.read("p.csv"), true));
    let report = place.ok("report r --no-evaluation --no-timing --out -");
    assert!(report.out.starts_with("<!doctype html>") && report.out.trim_end().ends_with("</html>"), "{}", report.out);
    for (command, file) in
        [("export r", "w.safetensors"), ("export r --softmax", "w.onnx"), ("data show c.toml --out", "s.png")]
    {
        place.ok(&format!("{command} {file}"));
        for out in ["-", "/dev/stdout"] {
            let all = place.command(&format!("{command} {out}")).output().unwrap();
            assert!(all.status.success() && all.stdout == fs::read(place.path(file)).unwrap(), "{command} {out}");
            assert!(!all.stderr.is_empty(), "{command} says what it did");
        }
    }
    // A stream without an ending has the format of `-`, and one with an ending its own.
    assert_eq!(place.ok("eval r --predictions /dev/stdout").out, place.read("p.csv"));
    let [named, unnamed] = ["-", "/dev/stdout"].map(|out| place.ok(&format!("predict r a.png --out {out}")).out);
    assert_eq!(named, unnamed);
    place.ok("eval r --predictions /dev/null");
    pipe(&place.path("answers.jsonl"));
    let objects = through(&place, "eval r --predictions", "answers.jsonl", &place.path("answers.jsonl"));
    assert!(objects.starts_with(b"{"), "{objects:?}");
    let trace = place.ok("bench c.toml --steps 1 --trace -");
    assert!(trace.out.starts_with('[') && trace.err.contains("samples/s"), "{}", trace.err);
    for command in [
        "eval r --predictions -",
        "report r --out -",
        "export r -",
        "data show c.toml --out -",
        "bench c.toml --trace -",
    ] {
        let message = place.run(&format!("{command} --json")).json()["errors"][0]["message"].to_string();
        assert!(message.contains("both write to standard output"), "{command}: {message}");
    }
    assert!(!place.path("-").exists());
    place.ok(&format!("{predict} --out ./-"));
    assert_eq!(place.read("-"), expected);
}

#[test]
fn every_command_writes_to_every_kind_of_target() {
    let place = trained();
    for (number, (command, ending, _)) in WRITERS.into_iter().enumerate() {
        let folder = format!("o{number}");
        fs::create_dir(place.path(&folder)).unwrap();
        let name = |what: &str| format!("{folder}/{what}.{ending}");
        let at = |what: &str| place.path(&name(what));
        let written = |what: &str| place.ok(&format!("{command} {}", name(what)));

        written("new");
        let expected = fs::read(at("new")).unwrap();
        assert!(!expected.is_empty(), "{command}");
        let same = |bytes: &[u8], what: &str| {
            // A page says when it was written.
            assert!(ending == "html" && !bytes.is_empty() || bytes == expected, "{command}: {what}");
        };

        // A file keeps its mode, whatever that of a new one would be.
        // Of images only its own are replaced.
        let old = if command.starts_with("data show") { [&expected[..], b"old"].concat() } else { b"old".to_vec() };
        fs::write(at("old"), old).unwrap();
        fs::set_permissions(at("old"), Permissions::from_mode(0o646)).unwrap();
        written("old");
        assert_eq!(mode(&at("old")), 0o646, "{command}");
        same(&fs::read(at("old")).unwrap(), "old");

        // Links stay links, also those to links, and to what is not there yet.
        symlink(at("old").file_name().unwrap(), at("link")).unwrap();
        symlink(at("link"), at("far")).unwrap();
        symlink("later", at("dangling")).unwrap();
        for (link, target) in
            [("link", at("old")), ("far", at("old")), ("dangling", place.path(&format!("{folder}/later")))]
        {
            let _ = fs::remove_file(&target);
            written(link);
            assert!(at(link).is_symlink(), "{command}: {link}");
            same(&fs::read(&target).unwrap(), link);
        }

        // Streams are written to.
        pipe(&at("pipe"));
        symlink(at("pipe"), at("to-pipe")).unwrap();
        for out in ["pipe", "to-pipe"] {
            same(&through(&place, command, &name(out), &at("pipe")), out);
        }
        assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo(), "{command}");
        if null_device(&at("device")).is_some() {
            written("device");
            assert!(fs::symlink_metadata(at("device")).unwrap().file_type().is_char_device(), "{command}");
        } else {
            eprintln!("skipped: no device may be made here");
        }
        symlink("/dev/stdout", at("stdout")).unwrap();
        let all = place.command(&format!("{command} {}", name("stdout"))).output().unwrap();
        assert!(all.status.success(), "{command}: {all:?}");
        same(&all.stdout[..expected.len().min(all.stdout.len())], "stdout");

        let kept = fs::read_dir(place.path(&folder)).unwrap().count();
        assert_eq!(kept, if at("device").exists() { 10 } else { 9 }, "{command}: nothing is left beside them");
    }
}

#[test]
fn no_command_writes_where_it_must_not() {
    let place = trained();
    for (number, (command, ending, input)) in WRITERS.into_iter().enumerate() {
        let folder = format!("o{number}");
        fs::create_dir(place.path(&folder)).unwrap();
        let name = |what: &str| format!("{folder}/{what}.{ending}");
        let at = |what: &str| place.path(&name(what));
        let refused = |what: &str, why: &str| {
            let message = place.fails(&format!("{command} {}", name(what)), 2);
            assert!(
                message.contains(why) && message.contains(&name(what)) && message.contains("help: "),
                "{command}: {message}"
            );
        };
        fs::write(at("fixed"), "fixed").unwrap();
        fs::set_permissions(at("fixed"), Permissions::from_mode(0o444)).unwrap();
        refused("fixed", "read-only");
        assert_eq!((place.read(&name("fixed")).as_str(), mode(&at("fixed"))), ("fixed", 0o444));
        fs::create_dir(at("folder")).unwrap();
        refused("folder", "it is a folder");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        refused("socket", "it is a socket");
        refused("nowhere/x", "there is no folder");
        // What it reads, under other names.
        let before = fs::read(place.path(input)).unwrap();
        symlink(place.path(input), at("soft")).unwrap();
        fs::hard_link(place.path(input), at("hard")).unwrap();
        for link in ["soft", "hard"] {
            refused(link, "which this command reads");
        }
        assert_eq!(fs::read(place.path(input)).unwrap(), before, "{command}");
    }
    for (command, input) in [
        ("predict r/last.safetensors a.png --format csv --out a.png", "a.png"),
        ("predict r/last.safetensors a.png --format csv --out r/last.safetensors", "r/last.safetensors"),
        ("export r/last.safetensors r/last.safetensors", "r/last.safetensors"),
    ] {
        let before = fs::read(place.path(input)).unwrap();
        assert!(place.fails(command, 2).contains("this command reads that file"), "{command}");
        assert_eq!(fs::read(place.path(input)).unwrap(), before, "{command}");
    }
}

/// What a run has written is not replaced by what is made of it.
#[test]
fn no_file_of_a_run_is_replaced() {
    let place = trained();
    symlink(place.path("r/config.toml"), place.path("link.csv")).unwrap();
    place.ok("train w.toml --quiet --out s");
    for (command, file) in [
        ("predict r/last.safetensors a.png --format csv --out r/config.toml", "r/config.toml"),
        ("predict r/last.safetensors a.png --format csv --out r/metrics.csv", "r/metrics.csv"),
        ("predict r/last.safetensors a.png --format csv --out link.csv", "r/config.toml"),
        ("eval r/last.safetensors --predictions s/metrics.jsonl", "s/metrics.jsonl"),
        ("export r/last.safetensors s/best.safetensors", "s/last.safetensors"),
    ] {
        let before = fs::read(place.path(file)).unwrap();
        let message = place.fails(command, 2);
        assert!(message.contains("that is a file of the run in `"), "{command}: {message}");
        assert_eq!(fs::read(place.path(file)).unwrap(), before, "{command}");
    }
    // Names that no run uses are free, also in its folder; and names of a run are, elsewhere.
    for out in ["r/answers.csv", "metrics.csv"] {
        place.ok(&format!("predict r/last.safetensors a.png --format csv --out {out}"));
    }
}

/// Without a result there is nothing to put in the place of what is there.
#[test]
fn nothing_takes_the_place_of_results() {
    let place = trained();
    place.write("broken.png", "no image");
    place.write("old.csv", "old");
    for out in ["old.csv", "new.csv"] {
        let message = place.fails(&format!("predict r/last.safetensors broken.png nowhere.png --out {out}"), 1);
        assert!(message.contains(&format!("nothing was written to `{out}`")), "{message}");
    }
    assert_eq!(place.read("old.csv"), "old");
    assert!(!place.path("new.csv").exists());
    // With one that can be read there is.
    place.fails("predict r/last.safetensors broken.png a.png --out old.csv", 1);
    assert!(place.read("old.csv").contains("a.png"));
}

#[test]
fn masks_do_not_take_the_place_of_images_under_other_names() {
    let config = digits("", "[model]\nlayers = [{ type = \"conv2d\", out_channels = 10, kernel_size = 1 }]\n");
    let config = config
        .replace("\"digits\"", "\"image_list\"\npath = \"l.csv\"\nlabel_kind = \"mask\"\nclasses = [\"a\", \"b\"]");
    let config = config.replace(
        "limit = 320\nlimit_val = 100\n",
        "val_path = \"l.csv\"\ntransforms = [{ type = \"resize\", size = [8, 8] }, \"grayscale\"]\n",
    );
    let config = config.replace("out_channels = 10", "out_channels = 2");
    let place = Place::with(&format!(
        "{config}[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n[lint]\nallow = [\"chosen_on_test_set\"]\n"
    ));
    let image = |name: &str| GrayImage::from_fn(8, 8, |x, _| Luma([u8::from(x > 3)])).save(place.path(name)).unwrap();
    fs::create_dir(place.path("m")).unwrap();
    for name in ["i.png", "t.png"] {
        image(name);
    }
    place.write("l.csv", "file_name,mask\ni.png,t.png\n");
    place.ok("train c.toml --quiet --out r");
    let before = fs::read(place.path("i.png")).unwrap();
    fs::hard_link(place.path("i.png"), place.path("m/other.png")).unwrap();
    symlink(place.path("i.png"), place.path("m/i.png")).unwrap();
    let message = place.fails("predict r/last.safetensors i.png --masks m", 2);
    assert!(message.contains("`m/i.png`, which this command reads"), "{message}");
    assert_eq!(fs::read(place.path("i.png")).unwrap(), before);
}

/// A configuration is changed where it must be, and nowhere else.
#[test]
fn a_configuration_keeps_all_else() {
    const MARK: &str = "\u{feff}";
    let place = Place::new();
    let config = digits("", &format!("{LAYERS}\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n"));
    let mixed: String =
        config.lines().enumerate().map(|(i, l)| format!("{l}{}", if i % 3 == 0 { "\r\n" } else { "\n" })).collect();
    let windows = config.replace('\n', "\r\n");
    for text in [config.clone(), windows.clone(), format!("{MARK}{windows}"), format!("{MARK}{config}"), mixed] {
        place.write("c.toml", &text);
        place.ok("data show c.toml --write-normalize");
        let changed = place.read("c.toml");
        let (old, new): (Vec<&str>, Vec<&str>) =
            (text.split_inclusive('\n').collect(), changed.split_inclusive('\n').collect());
        let added: Vec<&&str> = new.iter().filter(|line| line.starts_with("transforms = ")).collect();
        assert_eq!(added.len(), 1, "{changed:?}");
        assert_eq!(added[0].ends_with("\r\n"), old[0].ends_with("\r\n"), "{changed:?}");
        let rest: Vec<&str> = new.iter().copied().filter(|line| !line.starts_with("transforms = ")).collect();
        assert_eq!(rest, old, "{changed:?}");
    }
    // What it is stays: a link, private, or not to be changed.
    place.write("shared.toml", &config);
    symlink("shared.toml", place.path("link.toml")).unwrap();
    fs::set_permissions(place.path("shared.toml"), Permissions::from_mode(0o600)).unwrap();
    place.ok("data show link.toml --write-normalize");
    assert!(place.path("link.toml").is_symlink() && place.read("shared.toml").contains("normalize"));
    assert_eq!(mode(&place.path("shared.toml")), 0o600);
    place.write("fixed.toml", &config);
    fs::set_permissions(place.path("fixed.toml"), Permissions::from_mode(0o444)).unwrap();
    assert!(place.fails("data show fixed.toml --write-normalize", 2).contains("read-only"));
    assert_eq!(place.read("fixed.toml"), config);
}

/// A signal that ends the program leaves nothing of a file that was being written.
#[cfg(unix)]
#[test]
fn nothing_unfinished_is_left_by_ctrl_c() {
    use std::os::unix::process::ExitStatusExt;
    let place = super::tables::place(200);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.write("many.csv", super::tables::houses(200_000));
    let unfinished = || {
        let names = fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".out.csv.tmp-")).count()
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        place.write("out.csv", "old");
        let mut running = place.start("predict r many.csv --out out.csv");
        assert!(running.until(|| unfinished() == 1), "it writes under another name");
        running.signal(signal);
        let (status, done) = running.wait();
        // A shell is to know Ctrl-C as that. For the others the exit code is that of every interrupted command.
        let expected = if signal == libc::SIGINT { (Some(signal), None) } else { (None, Some(130)) };
        assert_eq!((status.signal(), status.code()), expected, "{done:?}");
        assert_eq!((unfinished(), place.read("out.csv")), (0, "old".to_owned()));
    }
}

/// The folder of a run stands for its best checkpoint, and a page about it goes into it.
#[test]
fn a_run_is_given_by_its_folder() {
    let place = trained();
    let eval = |model: &str| place.ok(&format!("eval {model} --json")).json();
    assert_eq!(eval("r"), eval("r/best.safetensors"));
    assert_eq!(place.ok("predict r a.png --json").json(), place.ok("predict r/best.safetensors a.png --json").json());
    place.ok("export r of-run.pth");
    place.ok("export r/best.safetensors of-file.pth");
    assert_eq!(fs::read(place.path("of-run.pth")).unwrap(), fs::read(place.path("of-file.pth")).unwrap());
    assert!(place.ok("report r --no-evaluation --no-timing").out.contains("`r/report.html`"));
    assert!(place.read("r/report.html").contains("</html>"));
    place.ok("train c.toml --quiet --out r2");
    place.ok("report r r2 --no-evaluation --no-timing");
    assert!(place.read("report.html").contains("r2"));
    // A new run in its place has none.
    place.ok("train c.toml --quiet --out r --force");
    assert!(!place.path("r/report.html").exists());
    fs::remove_file(place.path("r/best.safetensors")).unwrap();
    assert_eq!(eval("r"), eval("r/last.safetensors"));
    fs::create_dir(place.path("empty")).unwrap();
    assert!(place.fails("eval empty", 2).contains("is a folder, and of no run"));
}

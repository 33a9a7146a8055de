//! The commands of the guide are run: the blocks `sh` of a page one after the other, in a folder that has the files they name.
//! A block that cannot be run here says why after its language: `sh skip network`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use image::{Rgb, RgbImage};

use crate::markdown::{Block, Document, manual};

/// Why a block is not run.
const REASONS: &[&str] = &[
    "network", // it fetches data or weights
    "cluster", // it needs other machines, or a scheduler
    "server",  // it runs until it is stopped
    "program", // it calls a program that may not be installed
];

fn is_guide(page: &Document) -> bool {
    page.path.starts_with("docs/guide")
}

/// Why this block is not run, if it says so.
fn skipped(block: &Block) -> Option<&str> {
    block.info.strip_prefix("sh skip")
}

/// What the pages begin with: photos of two classes, tables, a text, and a configuration that has been trained.
fn furnish(folder: &Path) {
    let digits = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/digits_cnn.toml")).unwrap();
    let digits = digits.replace("[data]\n", "[data]\nvalidation_split = 0.1\n").replace("epochs = 10", "epochs = 3");
    let digits: String =
        digits.lines().filter(|line| !line.starts_with("#:")).map(|line| format!("{line}\n")).collect();
    fs::write(folder.join("file.toml"), digits).unwrap();
    for class in ["photos/ants", "photos/bees", "folder"] {
        fs::create_dir_all(folder.join(class)).unwrap();
        for number in 1..=6 {
            photo(number).save(folder.join(class).join(format!("{number}.jpg"))).unwrap();
        }
    }
    for name in ["photo.jpg", "new.jpg"] {
        photo(9).save(folder.join(name)).unwrap();
    }
    let rooms = |row: usize| format!("{},{}", 1 + row % 5, 40 + row * 37 % 30);
    let priced = (0..60).map(|row| format!("{},{}\n", rooms(row), 1000 * (50 + row * row % 23 + row * 37 % 30)));
    fs::write(folder.join("houses.csv"), format!("rooms,area,price\n{}", priced.collect::<String>())).unwrap();
    fs::write(folder.join("new.csv"), format!("rooms,area\n{}\n{}\n", rooms(3), rooms(8))).unwrap();
    let visits = (0..120).map(|day| format!("{},{}\n", day, 100 + 30 * (day % 7)));
    fs::create_dir_all(folder.join("data/visits")).unwrap();
    fs::write(folder.join("data/visits/visits.csv"), format!("day,visits\n{}", visits.collect::<String>())).unwrap();
    fs::write(folder.join("input.txt"), "Once there was a fox, and the fox was red.\n".repeat(200)).unwrap();
}

fn photo(number: u8) -> RgbImage {
    RgbImage::from_fn(40, 36, |x, y| Rgb([(x as u8).wrapping_mul(number), y as u8 * 5, number * 20]))
}

/// Trainings of the configurations that pages have written into a folder are made short, and their models of photos small.
fn shorten(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") && !path.ends_with("file.toml") {
            let lines = fs::read_to_string(&path).unwrap();
            let short = |line: &str| match line.split(" = ").next() {
                Some("epochs") => "epochs = 2\n".to_owned(),
                Some("steps") => "steps = 4\n".to_owned(),
                Some("use") if line.contains("resnet") => "use = \"lenet5\"\n".to_owned(),
                Some("early_stopping" | "warmup_steps") => String::new(),
                Some("eval_every_steps") => "eval_every_steps = 2\n".to_owned(),
                _ => format!("{line}\n"),
            };
            fs::write(&path, lines.lines().map(short).collect::<String>()).unwrap();
        }
    }
}

/// Runs lines of a shell, of which each must end well. Nothing is fetched: the addresses of proxies lead nowhere.
fn shell(folder: &Path, lines: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_runner")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let nowhere = "http://127.0.0.1:9";
    let mut command = Command::new("sh");
    command.args(["-e", "-c", lines]).current_dir(folder).env("PATH", path).env("HOME", folder);
    command.env("XDG_CACHE_HOME", folder.join("cache")).env("http_proxy", nowhere).env("https_proxy", nowhere);
    command.output().unwrap()
}

#[cfg(unix)]
#[test]
fn the_commands_of_the_guide_run() {
    let mut run = 0;
    for page in manual().iter().filter(|page| is_guide(page)) {
        let blocks: Vec<&Block> = page.blocks.iter().filter(|block| block.info == "sh").collect();
        if blocks.is_empty() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        furnish(folder.path());
        let trained = shell(folder.path(), "runner train file.toml --quiet");
        assert!(trained.status.success(), "{trained:?}");
        for block in blocks {
            shorten(folder.path());
            let done = shell(folder.path(), &block.text);
            let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            let place = format!("{}, block at line {}", page.path.display(), block.line);
            assert!(done.status.success(), "{place}: {}\n{}\n{out}\n{err}", done.status, block.text);
            assert!(!err.contains("warning: "), "{place} warns\n{}\n{err}", block.text);
            run += 1;
        }
    }
    assert!(run >= 20, "only {run} blocks were run");
}

/// Blocks that are not run say why, in one of the words that there are for it; on pages that are not run there is nothing to say.
#[test]
fn blocks_that_are_not_run_say_why() {
    let mut seen = 0;
    for page in manual() {
        for block in page.blocks.iter().filter(|block| block.info.starts_with("sh")) {
            let place = format!("{}, block at line {}", page.path.display(), block.line);
            let Some(reason) = skipped(block) else {
                assert_eq!(block.info, "sh", "{place}: neither `sh` nor `sh skip REASON`");
                continue;
            };
            assert!(is_guide(&page), "{place}: commands of this page are never run, and need no reason");
            assert!(REASONS.contains(&reason.trim()), "{place}: `{}` is none of {REASONS:?}", block.info);
            seen += 1;
        }
    }
    assert!(seen > 0, "no block is left out");
}

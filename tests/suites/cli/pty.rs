//! The program on a terminal: colours, bars, and lines that fit.

use super::support::{LAYERS, Place, digits};
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;

/// Runs `command` on a terminal of so many columns; its exit code, and all that it has written to either stream.
fn on_terminal(mut command: Command, columns: u16, env: &[(&str, &str)]) -> (Option<i32>, String) {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the two numbers are written, the size is read, and neither a name nor settings are asked for.
    let result = unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were opened just now, and no other code has them.
    let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "COLUMNS"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm-256color").envs(env.iter().copied());
    command.stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    // The terminal ends when its other side is closed.
    drop(command);
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = master.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..n]);
    }
    (child.wait().unwrap().code(), String::from_utf8(bytes).unwrap())
}

/// The texts that were on some line at some time, without control sequences.
fn lines(screen: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut rest = screen.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['), "only sequences that move and colour: {screen:?}");
                let end = rest.by_ref().find(|c| c.is_ascii_alphabetic()).unwrap();
                assert!("mKABCD".contains(end), "{end:?} in {screen:?}");
            }
            '\r' | '\n' => out.push(String::new()),
            _ => out.last_mut().unwrap().push(c),
        }
    }
    out.retain(|line| !line.trim().is_empty());
    out
}

/// A training on made-up samples that ends after so many steps.
fn regression() -> &'static str {
    "seed = 1\n[data]\nsource = \"synthetic\"\nshape = [8]\ntargets = 2\nsamples = 64\nval_samples = 16\nbatch_size = 16\n\
     [model]\nlayers = [{ type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"mse\"\n\
     [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 3\nearly_stopping = { monitor = \"val_loss\", patience = 9 }\n"
}

fn classes(epochs: usize) -> String {
    digits("", &format!("{LAYERS}\n[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = {epochs}\n"))
}

#[test]
fn colours_are_asked_for_and_declined_as_usual() {
    let place = Place::with("[data\n");
    // A configuration that is wrong, a command line that is, and help.
    for (args, code) in [("check c.toml", 2), ("check c.toml --nothing", 2), ("--help", 0), ("train --help", 0)] {
        let on = |env: &[(&str, &str)]| {
            let (got, text) = on_terminal(place.command(args), 80, env);
            assert_eq!(got, Some(code), "{text}");
            assert!(!lines(&text).is_empty());
            text.contains('\u{1b}')
        };
        assert!(on(&[]), "{args}: a terminal has colours");
        assert!(on(&[("NO_COLOR", "")]), "{args}: empty is not set");
        assert!(!on(&[("NO_COLOR", "1")]), "{args}");
        assert!(!on(&[("CLICOLOR", "0")]), "{args}");
        assert!(!on(&[("TERM", "dumb")]), "{args}");
        assert!(!on(&[("TERM", "dumb"), ("CI", "true")]), "{args}");
        assert!(on(&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")]), "{args}");
        assert!(!on(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]), "{args}");
        let piped = |env: &[(&str, &str)]| {
            let output = place.command(args).env_remove("NO_COLOR").envs(env.iter().copied()).output().unwrap();
            [output.stdout, output.stderr].concat().contains(&0x1b)
        };
        assert!(!piped(&[]) && piped(&[("CLICOLOR_FORCE", "1")]), "{args}");
        assert!(!piped(&[("CLICOLOR_FORCE", "0")]), "{args}");
    }
}

/// Weights and images are led to a file, and not shown.
#[test]
fn bytes_are_not_written_to_a_terminal() {
    let place = Place::with(&classes(1));
    place.ok("train c.toml --quiet --out r");
    for command in ["export r -", "data show c.toml --out -"] {
        let (code, text) = on_terminal(place.command(command), 80, &[]);
        assert!(code == Some(2) && text.contains("is no text for a terminal"), "{command}: {text}");
    }
}

#[test]
fn a_bar_and_a_table_fit_the_terminal() {
    for (config, figures) in
        [(classes(12), &["loss ", "acc ", " left"][..]), (regression().into(), &["loss ", "at most "])]
    {
        let place = Place::with(&config);
        for columns in [80, 60, 100] {
            let command = place.command("train c.toml --force --out r --set data.limit_val=16");
            let (code, screen) = on_terminal(command, columns, &[]);
            assert_eq!(code, Some(0), "{screen}");
            let lines = lines(&screen);
            // What is said in sentences may be as long as it is.
            let tabular = |line: &&String| {
                line.starts_with("epoch ") || line.trim_start().starts_with(|c: char| c.is_ascii_digit())
            };
            for line in lines.iter().filter(tabular) {
                assert!(line.chars().count() <= usize::from(columns), "{columns} columns: {line:?}");
            }
            let bars: Vec<&String> =
                lines.iter().filter(|line| line.contains("loss ") && line.starts_with("epoch ")).collect();
            assert!(!bars.is_empty(), "{screen:?}");
            for figure in figures.iter().filter(|_| columns >= 80) {
                assert!(bars.iter().any(|line| line.contains(figure)), "{figure:?} in {bars:#?}");
            }
        }
    }
}

#[test]
fn curves_stay_below_the_table() {
    let place = Place::with(&classes(3));
    let (code, screen) = on_terminal(place.command("train c.toml --out r --plot"), 80, &[("LC_ALL", "C.UTF-8")]);
    assert_eq!(code, Some(0), "{screen}");
    // The name of the curves, ten lines of them, the axis and its ends, drawn anew after each epoch but the first.
    assert_eq!(screen.matches("\u{1b}[1A\u{1b}[2K").count(), 2 * 13, "{screen:?}");
    let lines = lines(&screen);
    assert_eq!(lines.iter().filter(|line| line.contains("━━ val_loss")).count(), 3, "{lines:#?}");
    assert!(lines.iter().filter(|line| line.contains('┤')).all(|line| line.chars().count() <= 80), "{lines:#?}");
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let place = Place::with(&classes(2));
    let (code, screen) = on_terminal(place.command("train c.toml --out r"), 80, &[("TERM", "dumb")]);
    assert_eq!(code, Some(0), "{screen}");
    // The terminal itself makes carriage returns of line feeds.
    let text = screen.replace("\r\n", "\n");
    assert!(!text.contains(['\r', '\u{1b}']), "{text:?}");
    assert!(text.contains("samples/s\n") && text.contains("done: "), "{text}");
}

#[test]
fn passwords_are_masked_on_a_terminal_and_kept_for_programs() {
    let place = Place::with(
        "[data]\nsource = \"mnist\"\nmirrors = [\"https://me:hush@host/x\"]\nbatch_size = 8\n[model]\nlayers = [\"flatten\", \
         { type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n\
         [train]\nepochs = 1\n",
    );
    for args in ["check c.toml --print", "check c.toml --print --json"] {
        let (code, shown) = on_terminal(place.command(args), 80, &[]);
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("https://***@host/x") && !shown.contains("hush"), "{shown}");
        assert!(place.ok(args).out.contains("https://me:hush@host/x"), "a program that reads it needs it");
    }
}

/// Help goes on in the next line where the terminal ends, between words.
#[test]
fn help_is_as_wide_as_the_terminal() {
    let place = Place::new();
    for args in ["--help", "train --help", "predict -h"] {
        let at = |columns: u16| {
            let (code, screen) = on_terminal(place.command(args), columns, &[]);
            assert_eq!(code, Some(0), "{screen}");
            let widths: Vec<usize> = lines(&screen).iter().map(|line| line.chars().count()).collect();
            let most = widths.iter().copied().max().unwrap();
            assert!(most <= usize::from(columns), "{args}, {columns} columns: {most}\n{screen}");
            (most, widths.len())
        };
        let [(_, many), (middle, fewer), (wide, fewest)] = [64, 90, 160].map(at);
        assert!(many > fewer && fewer > fewest, "{args}: {many}, {fewer}, {fewest} lines");
        assert!(middle > 70 && wide > 90, "{args}: the room is used: {middle}, {wide}");
        // In a pipe there is no terminal to ask.
        let piped = place.ok(args).out;
        assert!(piped.lines().all(|line| line.chars().count() <= 80), "{args}: {piped}");
    }
}

/// What there is no room for is left out of the list of runs, whole columns at a time.
#[test]
fn a_list_of_runs_fits_the_terminal() {
    let place = Place::with(&classes(1));
    place.ok("train c.toml --quiet --out runs/photographs-of-birds/12");
    let head = |columns: u16| {
        let (code, screen) = on_terminal(place.command("runs"), columns, &[]);
        assert_eq!(code, Some(0), "{screen}");
        let lines = lines(&screen);
        assert!(lines.iter().all(|line| line.chars().count() <= usize::from(columns)), "{columns}: {lines:#?}");
        lines[0].split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(head(140), "run state epochs best train_loss val_loss val_accuracy time size");
    assert_eq!(head(80), "run state epochs best time");
    let (_, sorted) = on_terminal(place.command("runs --sort size"), 80, &[]);
    assert!(lines(&sorted)[0].ends_with("size"), "{sorted}");
    let piped = place.ok("runs").out;
    assert_eq!(piped.lines().next().unwrap().split_whitespace().count(), 9, "in a pipe: {piped}");
}

/// Operations of equal layers share a row on a terminal, which fits it; with `--all`, as in a pipe, each has its own.
#[test]
fn a_profile_folds_on_a_terminal() {
    let layers = "{ type = \"linear\", out_features = 16 }, \"tanh\", ".repeat(12);
    let config = regression().replace("layers = [", &format!("layers = [{layers}"));
    let place = Place::with(&config);
    let bench = "bench c.toml --steps 2 --profile --device cpu";
    // The step, the peak, the head, and then the operations.
    let all = place.ok(bench).out.lines().count() - 3;
    let table = |args: &str, columns: u16| {
        let (code, screen) = on_terminal(place.command(args), columns, &[]);
        assert_eq!(code, Some(0), "{screen}");
        let lines = lines(&screen);
        let head = lines.iter().position(|line| line.trim_start().starts_with("ms ")).expect("a head");
        for line in &lines[head..] {
            assert!(line.chars().count() <= usize::from(columns), "{columns} columns: {line:?}");
        }
        lines[head + 1..].to_vec()
    };
    let folded = table(bench, 80);
    assert!(folded.len() + 20 < all, "{all} operations: {folded:#?}");
    assert!(folded.iter().any(|line| line.contains("11 × linear") || line.contains("10 × linear")), "{folded:#?}");
    let sum = |lines: &[String]| -> usize {
        let many = |line: &String| {
            let words: Vec<&str> = line.split_whitespace().collect();
            if matches!(words[2], "×" | "others") { words[1].parse().unwrap() } else { 1 }
        };
        lines.iter().map(many).sum()
    };
    assert_eq!(sum(&folded), all, "none is lost: {folded:#?}");
    assert_eq!(table(&format!("{bench} --all"), 80).len(), all);
    assert_eq!(table(&format!("{bench} --all"), 140).len(), all);
    assert_eq!(place.run("bench c.toml --all").code, Some(2), "of a profile alone");
}

/// After the bar of an epoch stands the figure of the evaluation before it, and not the best one so far.
#[test]
fn a_bar_shows_the_newest_figure() {
    // From the second epoch on the rate is far too large, so that the first epoch stays the best.
    let schedule = "[schedule]\ntype = \"multi_step\"\nmilestones = [1]\ngamma = 300\n";
    let config = format!("{}{schedule}[checkpoint]\nmonitor = \"val_loss\"\n", classes(30));
    let place = Place::with(&config.replace("limit = 320\n", ""));
    let (code, screen) = on_terminal(place.command("train c.toml --out r"), 140, &[]);
    assert_eq!(code, Some(0), "{screen}");
    let metrics = place.metrics("r");
    let losses: Vec<f64> =
        metrics.iter().filter(|line| line["kind"] == "epoch").map(|line| line["val_loss"].as_f64().unwrap()).collect();
    let mut seen = 0;
    for line in lines(&screen) {
        let Some((epoch, rest)) = line.strip_prefix("epoch ").and_then(|rest| rest.split_once("/30")) else { continue };
        let Some((_, figure)) = rest.split_once("val_loss ") else { continue };
        let shown: f64 =
            figure.split([' ', '·', '|', ',']).next().unwrap().parse().unwrap_or_else(|e| panic!("{line}: {e}"));
        let newest = losses[epoch.parse::<usize>().unwrap() - 2];
        assert!((shown / newest - 1.0).abs() < 0.01, "{line}: {newest} was the newest of {losses:?}");
        let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
        seen += usize::from((shown / best - 1.0).abs() > 0.1);
    }
    assert!(seen > 0, "no bar has shown a figure that is not the best: {losses:?}, {screen:?}");
}

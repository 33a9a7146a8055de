//! Photos that lists name and that lie in archives, and folders with everything in them that should not be there.

use super::photos::{MODEL, TRANSFORMS, photo, place};
use super::support::Place;
use std::fs;

/// The photos that are trained and validated on, in the order of their folders.
fn listed(place: &Place) -> Vec<(String, &'static str, &'static str)> {
    let mut all = Vec::new();
    for part in ["train", "val"] {
        for class in ["blue", "red"] {
            let folder = format!("{part}/{class}");
            let files = fs::read_dir(place.path(&format!("photos/{folder}"))).unwrap();
            let mut names: Vec<String> = files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            all.extend(names.into_iter().map(|name| (format!("{folder}/{name}"), class, part)));
        }
    }
    all
}

fn config(source: &str, more: &str) -> String {
    format!("device = \"cpu\"\nseed = 3\n[data]\nsource = \"{source}\"\nbatch_size = 5\n{more}\n{TRANSFORMS}{MODEL}")
}

/// The same photos in folders, in a list and in archives are the same samples: so are all figures of a run.
#[test]
fn lists_and_archives_are_learnt_as_folders_are() {
    let place = place("", TRANSFORMS);
    let all = listed(&place);
    let lines: Vec<String> = all.iter().map(|(name, class, part)| format!("{name},{class},{part}\n")).collect();
    place.write("photos/all.csv", format!("file_name,label,split\n{}", lines.concat()));
    place.write("list.toml", config("image_list", "path = \"photos/all.csv\""));
    for (at, shard) in [("train", 0..7), ("train", 7..14), ("val", 14..20)].into_iter().enumerate() {
        let mut archive = tar::Builder::new(Vec::new());
        for (number, (name, class, part)) in all[shard.1].iter().enumerate() {
            assert_eq!(*part, shard.0);
            let ending = name.rsplit('.').next().unwrap();
            let image = fs::read(place.path(&format!("photos/{name}"))).unwrap();
            for (ending, bytes) in [(ending, &image[..]), ("cls", class.as_bytes())] {
                let mut header = tar::Header::new_ustar();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                archive.append_data(&mut header, format!("{number:04}.{ending}"), bytes).unwrap();
            }
        }
        place.write(&format!("{}-{at}.tar", shard.0), archive.into_inner().unwrap());
    }
    let shards = "shards = \"train-{0..1}.tar\"\nval_shards = \"val-*.tar\"\nclasses = [\"blue\", \"red\"]";
    place.write("shards.toml", config("webdataset", shards));
    for config in ["c", "list", "shards"] {
        place.ok(&format!("train {config}.toml --quiet --out {config} --set train.epochs=3"));
        assert_eq!(place.metrics(config), place.metrics("c"), "{config}");
    }
    photo(&place, "new.jpg", 1, 77);
    for run in ["list", "shards"] {
        let figures = place.ok(&format!("eval {run}/last.safetensors --json")).json();
        assert_eq!(figures["samples"], 6, "{figures}");
        let answers = place.ok(&format!("predict {run}/last.safetensors new.jpg --json")).json();
        assert!(["blue", "red"].map(Into::into).contains(&answers[0]["top"][0]["label"]), "{answers}");
        // Stopped and gone on with, from another folder: what its configuration named is found.
        fs::create_dir_all(place.path("far")).unwrap();
        let more =
            place.run_in("far", &format!("train --resume ../{run}/last.safetensors --quiet --set train.epochs=4"));
        assert_eq!(more.code, Some(0), "{}", more.err);
    }
    assert_eq!(place.metrics("list"), place.metrics("shards"));
}

/// Notes say what `validation_split` makes of lines for validation, and of photos on several lines.
#[test]
fn photos_that_are_held_out_of_a_list_are_noted() {
    let place = place("", TRANSFORMS);
    let lines: Vec<String> = listed(&place).iter().map(|(name, class, _)| format!("{name},{class}")).collect();
    let note = |more: &str| {
        place.write("c.toml", config("image_list", &format!("path = \"photos/all.csv\"\nvalidation_split = {more}")));
        let stderr = place.ok("train c.toml --out r --force --set train.epochs=1").err;
        stderr.lines().filter(|line| line.contains("note:")).collect::<Vec<_>>().join("\n")
    };
    place.write("photos/all.csv", format!("file_name,label\n{}\n", lines.join("\n")));
    let once = note("0.5");
    assert!(!once.contains("both trained on") && !once.contains("not used"), "{once}");
    // Of three lines of a photo one is held out.
    let both = [&lines[0], &lines[lines.len() - 1]].map(|line| format!("{line}\n").repeat(3)).concat();
    place.write("photos/all.csv", format!("file_name,label\n{both}"));
    let twice = note("2");
    let photo = lines[0].split(',').next().unwrap();
    let expected = format!("2 photos, such as `{photo}`, are both trained on and validated on");
    assert!(twice.contains(&expected), "{twice}");

    let part = |at: usize| ["train", "train", "val", "test"][at % 4];
    let parts: String = lines.iter().enumerate().map(|(at, line)| format!("{line},{}\n", part(at))).collect();
    place.write("photos/all.csv", format!("file_name,label,split\n{parts}"));
    let unused = note("2");
    assert!(unused.contains("so that 5 samples of the data for validation are not used at all"), "{unused}");
    // Without test samples those for validation are the test set.
    place.write("photos/all.csv", format!("file_name,label,split\n{}", parts.replace(",test\n", ",train\n")));
    let tested = note("2");
    assert!(!tested.contains("not used"), "{tested}");
}

#[test]
fn several_classes_and_numbers_are_learnt_from_lists() {
    let place = place("", TRANSFORMS);
    let all = listed(&place);
    let line = |(name, class, part): &(String, &str, &str)| {
        let colours = if *class == "red" { "[\"red\", \"any\"]" } else { "[\"any\"]" };
        let red = if *class == "red" { 1.5 } else { -1.5 };
        format!("{{\"file_name\": \"{name}\", \"label\": {colours}, \"value\": {red}, \"split\": \"{part}\"}}\n")
    };
    place.write("photos/metadata.jsonl", all.iter().map(line).collect::<String>());
    let loss = |text: String, loss: &str| text.replace("cross_entropy", loss);
    place.write("c.toml", loss(config("image_list", "path = \"photos\"\nlabel_kind = \"classes\""), "bce_with_logits"));
    place.ok("train c.toml --quiet --out several");
    let red = &all.iter().find(|(_, class, _)| *class == "red").unwrap().0;
    let stdout = place.ok(&format!("predict several/last.safetensors photos/{red}")).out;
    assert!(stdout.contains("%  any\n") && stdout.contains("%  red\n"), "{stdout}");
    let number = "path = \"photos\"\nlabel_kind = \"number\"\nlabel_column = [\"value\", \"value\"]";
    place.write(
        "c.toml",
        loss(config("image_list", &number.replace(", \"value\"]", "]")), "mse")
            .replace("out_features = 2", "out_features = 1"),
    );
    place.ok("train c.toml --quiet --out number");
    // A loss that does not fit is an error without a look at the list.
    place.write("c.toml", config("image_list", number));
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("the loss `cross_entropy` does not fit the targets of `image_list`"), "{error}");
}

/// Of several numbers each has the name of its column, as in a table.
#[test]
fn several_numbers_have_the_names_of_their_columns() {
    let place = place("", TRANSFORMS);
    let row = |(at, (name, class, part)): (usize, &(String, &str, &str))| {
        format!("{name},{},{at}.5,{part}\n", if *class == "red" { 1.5 } else { -1.5 })
    };
    let rows: String = listed(&place).iter().enumerate().map(row).collect();
    place.write("photos/metadata.csv", format!("file_name,bright,area,split\n{rows}"));
    let keys = "path = \"photos\"\nlabel_kind = \"number\"\nlabel_column = [\"bright\", \"area\"]";
    place.write("c.toml", config("image_list", keys).replace("cross_entropy", "mse"));
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let figures = place.ok("eval r --json").json();
    let names: Vec<_> = figures["per_target"].as_array().unwrap().iter().map(|each| &each["target"]).collect();
    assert_eq!(names, ["bright", "area"]);
    let table = place.ok("eval r").out;
    assert!(["bright ", "area "].iter().all(|name| table.lines().any(|line| line.starts_with(name))), "{table}");
    let answers = place.ok("predict r photos/train/red --format csv").out;
    assert!(answers.starts_with("file,value_bright,value_area\n"), "{answers}");
}

#[test]
fn a_list_that_is_wrong_is_an_error_with_a_place() {
    let place = place("", TRANSFORMS);
    place.write("photos/all.csv", "name,label\ntrain/red/0.png,red\n");
    place.write("c.toml", config("image_list", "path = \"photos/all.csv\""));
    let error = place.fails("check c.toml", 2);
    for part in ["its columns are `name`, `label`", "path = \"photos/all.csv\""] {
        assert!(error.contains(part), "{part}: {error}");
    }
    place.write("c.toml", config("image_list", "path = \"none.csv\"\nclasses = [\"a\", \"b\"]"));
    place.ok("check c.toml");
    assert!(place.fails("train c.toml --out r", 1).contains("cannot read `none.csv`: No such file"));
    assert!(!place.path("r").exists());
    for (more, part) in [
        ("label_separator = \";\"", "`label_separator`"),
        ("label_column = [\"a\", \"b\"]", "may be several with `label_kind = \"number\"` alone"),
        ("label_column = 3", "expected the name of a column, or a list of them"),
        ("classes = [\"a\", \"a\"]", "has a class twice"),
    ] {
        place.write("c.toml", config("image_list", &format!("path = \"none.csv\"\n{more}")));
        let error = place.fails("check c.toml", 2);
        assert!(error.contains(part), "{part}: {error}");
    }
    for (classes, part) in [("0", "expected a whole number from 1, or a list"), ("[\"a\", \"a\"]", "has a class twice")]
    {
        place.write("c.toml", config("webdataset", &format!("shards = \"none.tar\"\nclasses = {classes}")));
        let error = place.fails("check c.toml", 2);
        assert!(error.contains(part), "{part}: {error}");
    }
    place.write("c.toml", config("webdataset", "shards = \"photos/train/red/0.png\""));
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("no tar archive: there is no header at byte 0"), "{error}");
}

/// All that may lie in a folder of photos: each kind has its note, and the run goes on with the others.
#[cfg(unix)]
#[test]
fn the_worst_folder_has_a_note_of_each_kind() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    // Of a hundred photos five may be broken.
    let config = |source: &str| config(source, "workers = 0").replace("epochs = 5", "epochs = 1");
    let place = Place::with(&config("image_folder\"\nroot = \"photos"));
    for number in 0..100 {
        let (kind, class) = if number % 2 == 0 { (0, "red") } else { (1, "blue") };
        photo(&place, &format!("photos/{class}/{number:02}.png"), kind, number);
    }
    let whole = fs::read(place.path("photos/red/00.png")).unwrap();
    photo(&place, "whole.jpg", 0, 1);
    let jpeg = fs::read(place.path("whole.jpg")).unwrap();
    let mut broken = vec![("cut.jpg", &jpeg[..jpeg.len() / 3]), ("empty.png", &[][..]), ("text.jpg", b"no photo")];
    let unreadable = place.write("photos/red/locked.png", &whole);
    fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).unwrap();
    // Who may do anything can read it.
    if fs::read(&unreadable).is_err() {
        broken.push(("locked.png", &whole));
    }
    for (name, bytes) in broken.iter().filter(|(name, _)| *name != "locked.png") {
        place.write(&format!("photos/red/{name}"), bytes);
    }
    symlink("nowhere", place.path("photos/red/link.png")).unwrap();
    broken.push(("link.png", &[]));
    symlink("..", place.path("photos/blue/around")).unwrap();
    fs::create_dir(place.path("photos/green")).unwrap();
    place.write("photos/red/notes.txt", "no photo");
    fs::write(place.path("photos/blue").join(OsStr::from_bytes(b"caf\xe9.png")), &whole).unwrap();
    let stderr = place.ok("train c.toml --out r").err;
    for part in [
        "the folder `green` holds no photos, and is no class",
        "links to folders that are there already, which are left out: `blue/around`",
        "files that are no images by their endings, which are left out: `red/notes.txt`",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    for (name, _) in &broken {
        assert!(stderr.contains(&format!("`red/{name}`: ")), "{name}: {stderr}");
    }
    assert!(!stderr.contains("caf"), "it can be read: {stderr}");
    assert_eq!(place.metrics("r").pop().unwrap()["unreadable"], broken.len());
    // A list of the same: what is not there, or leads nowhere, is known before the run.
    let names = |folder: &str| {
        let all = fs::read_dir(place.path(&format!("photos/{folder}"))).unwrap();
        let all = all.filter_map(|f| f.unwrap().file_name().into_string().ok()).filter(|name| name.contains('.'));
        all.map(|name| format!("{folder}/{name},{folder}\n")).collect::<String>()
    };
    let text = ["file_name,label\n", &names("red").replace("red/notes.txt,red\n", ""), &names("blue")].concat();
    place.write("photos/all.csv", text + "blue/gone.png,blue\n");
    place.write("c.toml", config("image_list\"\npath = \"photos/all.csv"));
    let stderr = place.ok("train c.toml --out l").err;
    assert!(
        stderr.contains("photos are not there: ")
            && stderr.contains("`red/link.png`")
            && stderr.contains("`blue/gone.png`"),
        "{stderr}"
    );
    for (name, _) in broken.iter().filter(|(name, _)| *name != "link.png") {
        assert!(stderr.contains(&format!("`red/{name}`: ")), "{name}: {stderr}");
    }
}

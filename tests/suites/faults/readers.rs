//! Commands that read a run, and write one file at most.

use crate::faults::Fault;
use crate::place::{Ended, Place};
use crate::sweep::{Case, Sweep};
use crate::train::{CONFIG, TRAIN};
use runner::checkpoint::{self, Tensor};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A finished run, an image for it, an earlier export and an earlier sheet.
pub fn place() -> Place {
    let place = Place::with("c.toml", CONFIG);
    place.ok(TRAIN);
    let shades = image::GrayImage::from_fn(8, 8, |x, y| image::Luma([(x * 30 + y) as u8]));
    shades.save(place.file("digit.png")).unwrap();
    let old = Tensor::from_f32([2], &[1.0, 2.0]);
    checkpoint::write_weights(&place.file("out.safetensors"), &[old.view("old")]).unwrap();
    place.ok("data show c.toml --out sheet.png --count 2");
    place
}

/// All files with their contents.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        match path.is_dir() {
            true => found.extend(contents(&path).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes))),
            false => drop(found.insert(name, fs::read(&path).unwrap())),
        }
    }
    found
}

/// The command prints what it prints without faults, and changes nothing.
fn only_reads(name: &str, args: &str, every: usize) {
    only_reads_in(&place(), name, args, every);
}

fn only_reads_in(start: &Place, name: &str, args: &str, every: usize) {
    // What memory there is at the moment is different every time.
    let lasting = |text: &str| {
        let mut json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        if let Some(host) = json.pointer_mut("/memory/host").and_then(|host| host.as_object_mut()) {
            host.retain(|key, _| key != "available" && key != "because");
        }
        json
    };
    let printed = lasting(&start.ok(args).out);
    let before = contents(&start.path());
    Sweep {
        name,
        start,
        args,
        every,
        steady: true,
        done: &|_, ended| match lasting(&ended.out) == printed && !printed.is_null() {
            true => Ok(()),
            false => Err(format!("it printed {:?}, not {printed}", ended.out)),
        },
        after: &|place, _, _| match contents(&place.path()) == before {
            true => Ok(()),
            false => Err("it has changed a file".into()),
        },
    }
    .run();
}

#[test]
fn evaluation() {
    only_reads("eval", "eval run/last.safetensors --json --threads 1", 4);
}

#[test]
fn prediction() {
    only_reads("predict", "predict run/best.safetensors digit.png --json --threads 1", 4);
}

#[test]
fn a_check() {
    only_reads("check", "check c.toml --json", 4);
}

/// Puts a file in the place of another.
pub const EXPORT: &str = "export run/last.safetensors out.safetensors";

#[test]
fn curves() {
    only_reads("plot", "plot run --json", 2);
}

#[test]
fn an_export() {
    replaces("export", EXPORT, ".out.safetensors.tmp-", 4);
}

/// A contact sheet, and the mean that is written into a configuration.
#[test]
fn a_look_at_the_data() {
    replaces("data show", "data show c.toml --out sheet.png --count 6", ".sheet.png.tmp-", 9);
    replaces("data show --write-normalize", "data show c.toml --write-normalize", ".c.toml.tmp-", 9);
}

#[test]
fn files_of_tokens() {
    replaces("data tokenize", "data tokenize c.toml --tokenizer bytes --out . --force", ".train.bin.tmp-", 4);
}

/// The command puts one file in the place of another, whole or not at all; `temporary` is how the name of the unfinished one begins.
fn replaces(name: &'static str, args: &str, temporary: &str, every: usize) {
    let start = place();
    let tried = start.copy();
    let old = contents(&start.path());
    let said = tried.ok(args);
    let new = contents(&tried.path());
    assert_ne!(old, new);
    // A process that is killed cannot tidy up, and no process can where nothing can be removed. Else all is tidy.
    let left = |case: &Case, ended: &Ended, found: &mut BTreeMap<String, Vec<u8>>| {
        if ended.signal.is_some() || [Fault::ReadOnly, Fault::Dead].contains(&case.fault) {
            found.retain(|name, _| !name.starts_with(temporary));
        }
    };
    Sweep {
        name,
        start: &start,
        args,
        every,
        steady: true,
        done: &|place, ended| match contents(&place.path()) == new && ended.out == said.out {
            true => Ok(()),
            false => Err("the file is another".into()),
        },
        after: &|place, case, ended| {
            let mut found = contents(&place.path());
            left(case, ended, &mut found);
            if found != old && found != new {
                let names: Vec<&String> = found.keys().collect();
                return Err(format!("neither the old file nor the new one is there: {names:?}"));
            }
            place.ok(args);
            let mut found = contents(&place.path());
            left(case, ended, &mut found);
            if found == new { Ok(()) } else { Err("done again, it is another".into()) }
        },
    }
    .run();
}

/// What the model says of every sample, in a file.
#[test]
fn an_evaluation_with_a_table() {
    let args = "eval run/last.safetensors --predictions digit.csv --threads 1";
    replaces("eval --predictions", args, ".digit.csv.tmp-", 24);
}

/// A page leaves out what could not be read for it, and says so; the page itself is there whole, or not at all.
#[test]
fn a_report() {
    let start = place();
    let args = "report run --out page.html --no-timing --no-evaluation --threads 1";
    let tried = start.copy();
    tried.ok(args);
    let read = |place: &Place| fs::read(place.file("page.html")).ok();
    let (new, whole) = (read(&tried), |page: &[u8]| page.ends_with(b"</html>\n"));
    assert!(new.as_deref().is_some_and(whole));
    Sweep {
        name: "report",
        start: &start,
        args,
        every: 97,
        steady: true,
        done: &|place, ended| match read(place) {
            found if found == new => Ok(()),
            Some(page) if whole(&page) && ended.err.contains("warning") => Ok(()),
            _ => Err("the page is another".into()),
        },
        after: &|place, case, ended| {
            if read(place).is_some_and(|page| !whole(&page)) {
                return Err("half a page".into());
            }
            let left = contents(&place.path()).into_keys().find(|name| name.starts_with(".page.html.tmp-"));
            let cannot_tidy = ended.signal.is_some() || [Fault::ReadOnly, Fault::Dead].contains(&case.fault);
            if let Some(left) = left.filter(|_| !cannot_tidy) {
                return Err(format!("`{left}` is left behind"));
            }
            place.ok(args);
            if read(place) == new { Ok(()) } else { Err("done again, it is another".into()) }
        },
    }
    .run();
}

/// Results are in their file when all is done; what could not be read has no row there, and has a warning.
#[test]
fn a_prediction_to_a_file() {
    let start = place();
    let args = "predict run/best.safetensors digit.png --out out.csv --threads 1";
    let tried = start.copy();
    tried.ok(args);
    let read = |place: &Place| fs::read_to_string(place.file("out.csv")).ok();
    let new = read(&tried);
    assert!(new.as_ref().is_some_and(|table| table.lines().count() == 2));
    Sweep {
        name: "predict to a file",
        start: &start,
        args,
        every: 127,
        steady: true,
        done: &|place, _| if read(place) == new { Ok(()) } else { Err("the table is another".into()) },
        after: &|place, _, _| {
            let found = read(place);
            if found.as_ref().is_some_and(|table| !table.is_empty()) && found != new {
                return Err(format!("half a table: {found:?}"));
            }
            place.ok(args);
            if read(place) == new { Ok(()) } else { Err("done again, it is another".into()) }
        },
    }
    .run();
}

/// Samples from a file, and weights to begin with: both are read by a run.
#[test]
fn a_run_from_files() {
    let start = place();
    let inputs: Vec<f32> = (0..64 * 64).map(|i| ((i * 37 % 101) as f32) / 101.0).collect();
    let targets: Vec<u8> = (0..64_i64).flat_map(|i| (i % 10).to_le_bytes()).collect();
    let targets = Tensor { dtype: runner::graph::DType::I64, shape: vec![64], data: targets };
    let inputs = Tensor::from_f32([64, 1, 8, 8], &inputs);
    checkpoint::write_weights(&start.file("set.safetensors"), &[inputs.view("inputs"), targets.view("targets")])
        .unwrap();
    let config = CONFIG
        .replace("source = \"digits\"", "source = \"tensors\"\npath = \"set.safetensors\"")
        .replace("limit = 96\nlimit_val = 32\n", "")
        .replace("[model]", "[model]\nweights = \"run/best.safetensors\"");
    fs::write(start.file("c.toml"), config).unwrap();
    let args = TRAIN.replace("--out run", "--out new");
    let tried = start.copy();
    tried.ok(&args);
    let expected = crate::run_state::RunState::read(&tried.file("new")).unwrap();
    Sweep {
        name: "train from files",
        start: &start,
        args: &args,
        // What it writes is looked at elsewhere.
        every: 197,
        steady: true,
        done: &|place, _| crate::run_state::RunState::read(&place.file("new"))?.same_as(&expected),
        after: &|place, _, _| crate::run_state::all_whole(&place.file("new")),
    }
    .run();
}

/// The rows of tables, packed and plain: a run reads both, and so do an evaluation and a prediction.
#[test]
fn tables() {
    let table = |first: usize| {
        let rows = (first..first + 40).map(|i| format!("{},{},{}\n", i % 7, ["sea", "hill"][i % 2], i % 7 * 3 + i % 2));
        format!("rooms,town,price\n{}", rows.collect::<String>())
    };
    let (head, rest) = CONFIG.split_once("[model]").unwrap();
    let (_, rest) = rest.split_once("[optimizer]").unwrap();
    let head = head
        .replace("\"digits\"", "\"csv\"\npath = \"rows.csv.gz\"\nval_path = \"val.jsonl\"\ntarget = \"price\"")
        .replace("limit = 96\nlimit_val = 32\n", "")
        .replace("workers = 1", "workers = 0");
    let model = "[model]\nlayers = [{ type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n[optimizer]";
    let start = Place::with("c.toml", &[&head, model, &rest.replace("lr = 0.1", "lr = 0.01")].concat());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, table(0).as_bytes()).unwrap();
    fs::write(start.file("rows.csv.gz"), packed.finish().unwrap()).unwrap();
    let object = |i: usize| format!("{{\"rooms\":{},\"town\":\"sea\",\"price\":{i}}}\n", i % 5);
    fs::write(start.file("val.jsonl"), (0..9).map(object).collect::<String>()).unwrap();
    fs::write(start.file("new.csv"), table(3)).unwrap();
    let tried = start.copy();
    tried.ok(TRAIN);
    let expected = crate::run_state::RunState::read(&tried.file("run")).unwrap();
    Sweep {
        name: "train on a table",
        start: &start,
        args: TRAIN,
        // What it writes is looked at elsewhere.
        every: 197,
        steady: true,
        done: &|place, _| crate::run_state::RunState::read(&place.file("run"))?.same_as(&expected),
        after: &|place, _, _| crate::run_state::all_whole(&place.file("run")),
    }
    .run();
    only_reads_in(&tried, "eval of a table", "eval run/last.safetensors --json --threads 1", 24);
    only_reads_in(&tried, "predict of a table", "predict run/last.safetensors new.csv --json --threads 1", 24);
    // Its cells and samples in files: threads come to columns in an order of their own.
    let args = format!("{TRAIN} --set data.cache=disk --set data.cache_dir=kept");
    let tried = start.copy();
    tried.ok(&args);
    let expected = crate::run_state::RunState::read(&tried.file("run")).unwrap();
    Sweep {
        name: "train on a table in a file",
        start: &start,
        args: &args,
        every: 149,
        steady: false,
        done: &|place, _| crate::run_state::RunState::read(&place.file("run"))?.same_as(&expected),
        after: &|place, _, _| match contents(&place.path()).keys().find(|name| name.starts_with("kept/")) {
            Some(left) => Err(format!("{left} is left")),
            None => crate::run_state::all_whole(&place.file("run")),
        },
    }
    .run();
}

/// Photos from a folder, a list and an archive. Those that cannot be read end the run here, so that it is the same or none. What could not
/// be kept of them is made anew by the next run.
#[test]
fn a_run_on_photos() {
    let start = Place::with("none.toml", "");
    let mut archive = tar::Builder::new(Vec::new());
    let mut list = "file_name,label\n".to_owned();
    for number in 0..4_u8 {
        let (class, name) = (["a", "b"][usize::from(number % 2)], format!("{number}.bmp"));
        let folder = start.file(&format!("photos/{class}"));
        fs::create_dir_all(&folder).unwrap();
        image::RgbImage::from_pixel(4, 4, image::Rgb([number * 40, 9, 90])).save(folder.join(&name)).unwrap();
        list += &format!("{class}/{name},{class}\n");
        let image = fs::read(folder.join(&name)).unwrap();
        for (ending, bytes) in [("bmp", &image[..]), ("cls", if class == "a" { b"0" } else { b"1" })] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, format!("{number}.{ending}"), bytes).unwrap();
        }
    }
    fs::write(start.file("photos/all.csv"), list).unwrap();
    fs::write(start.file("photos.tar"), archive.into_inner().unwrap()).unwrap();
    let (head, rest) = CONFIG.split_once("[model]").unwrap();
    let (_, rest) = rest.split_once("[loss]").unwrap();
    // Without threads the operations come in one order; one epoch reads all that two do.
    let head = head.replace("workers = 1", "workers = 0");
    let rest = rest.replace("epochs = 2", "epochs = 1").replace("every_steps = 2\n", "");
    for (name, source) in [
        ("folder", "\"image_folder\"\nroot = \"photos\"\ncache = \"disk\"\ncache_dir = \"kept\""),
        ("list", "\"image_list\"\npath = \"photos/all.csv\""),
        ("archive", "\"webdataset\"\nshards = \"photos.tar\"\nclasses = 2"),
    ] {
        // They have the most in common; each takes a while.
        if name != "folder" && !crate::sweep::all() {
            continue;
        }
        let head = head
            .replace("\"digits\"", source)
            .replace("limit = 96\nlimit_val = 32\n", "on_error = \"fail\"\nvalidation_split = 2\n");
        let crop = "transforms = [{ type = \"center_crop\", size = 4 }]\n";
        let model = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 2 }]\n[loss]";
        fs::write(start.file(&format!("{name}.toml")), [&head, crop, model, &rest].concat()).unwrap();
        let args = TRAIN.replace("c.toml", &format!("{name}.toml"));
        let tried = start.copy();
        tried.ok(&args);
        let expected = crate::run_state::RunState::read(&tried.file("run")).unwrap();
        Sweep {
            name,
            start: &start,
            args: &args,
            every: 500,
            // The files of a cache are named by the whole path of the photos, which is another in every copy.
            steady: name != "folder",
            done: &|place, _| crate::run_state::RunState::read(&place.file("run"))?.same_as(&expected),
            after: &|place, case, _| {
                crate::run_state::all_whole(&place.file("run"))?;
                if !case.operation.path.contains("kept") {
                    return Ok(());
                }
                let again = place.run(&args.replace("--out run", "--out again"));
                if again.code != Some(0) {
                    return Err(format!("what is left of photos that were kept is in the way: {again:?}"));
                }
                crate::run_state::RunState::read(&place.file("again"))?.same_as(&expected)
            },
        }
        .run();
    }
}

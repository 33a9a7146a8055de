//! What commands are given in the place of what they take: files of other kinds, addresses, words that look like numbers, patterns.

use super::support::{LAYERS, Place, digits, repository};
use image::RgbImage;
use std::fs;
use std::io::Cursor;

fn plain() -> String {
    digits("", &format!("{LAYERS}\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n"))
}

/// A model of the layers of PyTorch's files in `tests/golden/pth`, for samples that are made up.
fn small(weights: &str) -> String {
    format!(
        "device = \"cpu\"\n[data]\nsource = \"synthetic\"\nshape = [2, 4, 3]\nclasses = 4\nsamples = 40\nval_samples = 20\nbatch_size = 20\n\
         [model]\n{weights}\nlayers = [{{ type = \"conv2d\", out_channels = 3, kernel_size = [3, 2] }}, \"batch_norm2d\", \"flatten\", {{ type = \"linear\", out_features = 4 }}]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n"
    )
}

/// However a training script has saved it, the same state dict gives the same figures.
#[test]
fn checkpoints_of_pytorch_are_read_as_they_are_left() {
    let place = Place::new();
    let golden = repository("tests/golden/pth");
    for file in fs::read_dir(golden).unwrap().flatten() {
        fs::copy(file.path(), place.path(file.file_name().to_str().unwrap())).unwrap();
    }
    let eval = |file: &str, more: &str| {
        place.write("c.toml", small(&format!("weights = \"{file}\"\n{more}")));
        place.ok("eval c.toml --json").json()["metrics"].clone()
    };
    let plain = eval("plain.pth", "");
    for file in ["loose.pth", "namespace.pth", "averaged.pth", "legacy.pth", "nested.pth", "module_prefix.pth"] {
        assert_eq!(eval(file, ""), plain, "{file}");
    }
    assert_eq!(eval("ema.pth", "weights_key = \"model\""), plain);
    assert_ne!(eval("ema.pth", "weights_key = \"model_ema\""), plain);
    place.write("c.toml", small("weights = \"ema.pth\""));
    let message = place.fails("eval c.toml", 2);
    assert!(message.contains("(`model`, `model_ema`)") && message.contains("`weights_key`"), "{message}");
    place.write("c.toml", small("weights = \"malicious.pth\""));
    assert!(
        place.fails("eval c.toml", 2).contains("`posix.system`, which would run Python code, and that is never done")
    );
}

#[test]
fn an_address_is_no_path() {
    let place = Place::with(&plain());
    for set in ["model.weights=https://example.org/w.pth", "data.cache_dir=s3://bucket/folder"] {
        let message = place.fails(&format!("check c.toml --set {set}"), 2);
        assert!(
            message.contains("is an address, and files are not fetched") && message.contains("fetch the file first"),
            "{message}"
        );
    }
}

/// A string that looks like a number is a string where a string is declared.
#[test]
fn words_are_what_their_key_takes() {
    let place = Place::with(&plain());
    let image = RgbImage::new(8, 8);
    for folder in ["2024/train/a", "2024/train/b", "2024/val/a", "2024/val/b"] {
        fs::create_dir_all(place.path(folder)).unwrap();
        image.save(place.path(&format!("{folder}/1.png"))).unwrap();
    }
    let config = plain().replace(
        "\"digits\"",
        "\"image_folder\"\nroot = \"nowhere\"\ntransforms = [{ type = \"resize\", size = [8, 8] }]",
    );
    let config = config.replace("limit = 320\nlimit_val = 100\n", "").replace("out_features = 10", "out_features = 2");
    place.write("c.toml", config);
    place.ok("check c.toml --set data.root=2024");
    // Numbers stay numbers, and what is quoted is what it was.
    place.ok("check c.toml --set data.root=\"2024\" --set train.epochs=2 --set seed=2024");
}

/// Patterns of shards are looked for where other paths are.
#[test]
fn patterns_of_shards_are_beside_the_configuration() {
    let place = Place::new();
    let mut archive = tar::Builder::new(Vec::new());
    for i in 0..8u8 {
        let mut png = Cursor::new(Vec::new());
        RgbImage::from_pixel(8, 8, image::Rgb([30 * i, 9, 9])).write_to(&mut png, image::ImageFormat::Png).unwrap();
        for (name, content) in [(format!("{i}.png"), png.into_inner()), (format!("{i}.cls"), vec![b'0' + i % 2])] {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content.as_slice()).unwrap();
        }
    }
    place.write("there/a-000.tar", archive.into_inner().unwrap());
    fs::create_dir(place.path("elsewhere")).unwrap();
    for (name, shards) in
        [("exact", "a-000.tar"), ("braces", "a-{000..000}.tar"), ("star", "a-*.tar"), ("mark", "?-000.tar")]
    {
        let config = format!(
            "device = \"cpu\"\n[data]\nsource = \"webdataset\"\nshards = \"{shards}\"\nbatch_size = 4\n\
             transforms = [{{ type = \"resize\", size = [8, 8] }}]\n[model]\nlayers = [\"flatten\", {{ type = \"linear\", out_features = 2 }}]\n\
             [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n"
        );
        place.write(&format!("there/{name}.toml"), config);
        for (folder, path) in [("there", format!("{name}.toml")), ("elsewhere", format!("../there/{name}.toml"))] {
            let done = place.run_in(folder, &format!("check {path}"));
            assert_eq!(done.code, Some(0), "{name} from {folder}: {done:?}");
        }
    }
}

/// A file that is no configuration has an error of a few lines, which says what it is.
#[test]
fn what_is_no_configuration_is_named() {
    let place = Place::new();
    let text: String =
        (0..400).map(|i| format!("It was a bright cold day in April, and clock {i} was striking.\n")).collect();
    place.write("input.txt", &text);
    let message = place.fails("train input.txt", 2);
    assert!(message.contains("it looks like a text, not like TOML") && message.lines().count() < 15, "{message}");
    assert!(message.contains("`runner init TEXT`"), "{message}");
    place.write("t.csv", (0..40).map(|i| format!("{i},{},a{i}\n", i % 3)).collect::<String>());
    let message = place.fails("train t.csv", 2);
    assert!(
        message.contains("it looks like a table (CSV)") && message.contains("`runner init TABLE --target COLUMN`"),
        "{message}"
    );
    place.write("c.yaml", (0..40).map(|i| format!("key{i}: value {i}\n")).collect::<String>());
    assert!(place.fails("check c.yaml", 2).contains("it looks like YAML"));
    // TOML with very many mistakes is still TOML.
    place.write("c.toml", (0..40).map(|i| format!("key{i} = value {i}\n")).collect::<String>());
    let message = place.fails("check c.toml", 2);
    assert!(message.contains("more mistakes are not shown") && message.contains("a string needs quotes"), "{message}");
    // Other encodings.
    let config = format!("# größe\n{}", plain());
    let utf16: Vec<u8> = [0xfeffu16].into_iter().chain(config.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let latin: Vec<u8> = config.chars().map(|c| c as u8).collect();
    for (name, bytes, parts) in [
        ("utf16.toml", utf16, ["it is UTF-16", "iconv -f UTF-16 -t UTF-8"]),
        ("latin.toml", latin, ["line 1 has the byte 0xf6, which is `ö`", "iconv -f WINDOWS-1252 -t UTF-8"]),
    ] {
        place.write(name, bytes);
        let message = place.fails(&format!("check {name}"), 2);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn a_table_is_no_file_of_tensors() {
    let config = plain().replace("\"digits\"", "\"tensors\"\npath = \"t.csv\"");
    let place = Place::with(&config.replace("limit = 320\nlimit_val = 100\n", ""));
    place.write("t.csv", "x,y,label\n1.0,2.0,a\n3.0,4.0,b\n");
    let message = place.fails("check c.toml", 2);
    assert!(message.contains("is no safetensors file, but a text") && !message.contains("claims"), "{message}");
}

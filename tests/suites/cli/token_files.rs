//! Files of tokens that are found out about, or change, while a training reads them.

use super::support::Place;
use std::fs;

/// Where nothing says how many tokens there are, those of all files say so, once.
#[test]
fn the_vocabulary_of_token_files_is_found() {
    let place = Place::with(
        "device = \"cpu\"\n[data]\nsource = \"tokens\"\npath = \"train.bin\"\nval_path = \"val.bin\"\ncontext = 8\nbatch_size = 4\n\
         [model]\nlayers = [{ type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 4 }, \
         { type = \"linear\", out_features = \"$vocabulary\" }]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n\
         [train]\nsteps = 4\neval_every_steps = 2\n",
    );
    let tokens = |most: u16, count: u16| (0..count).flat_map(|at| (at % (most + 1)).to_le_bytes()).collect::<Vec<u8>>();
    place.write("train.bin", tokens(29, 200));
    place.write("val.bin", tokens(36, 100));
    let note = "`train.bin` and `val.bin`: the largest token is 36, so the vocabulary has 37; `vocab_size` in `[data]` states another number";
    let done = place.ok("train c.toml --out r --set train.steps=2");
    assert!(done.err.contains(note), "{}", done.err);
    assert!(place.ok("check c.toml").out.contains("[4, 8, 37]"));
    // A model that is trained keeps what was found: fewer are fine, and more are an error of the sample.
    place.write("train.bin", tokens(9, 200));
    place.write("val.bin", tokens(9, 100));
    let resumed = place.ok("train --resume r --set train.steps=4");
    assert!(!resumed.err.contains("the largest token is"), "{}", resumed.err);
    let evaluated = place.ok("eval r");
    assert!(!evaluated.err.contains("the largest token is"), "{}", evaluated.err);
    place.write("other.bin", tokens(40, 200));
    let more = place.run("eval r --data other.bin");
    assert!(more.err.contains("the vocabulary has 37"), "{more:?}");
    // What says how many there are is taken, and no file is read for it.
    let said = place.ok("train c.toml --out s --set data.vocab_size=64").err;
    assert!(!said.contains("the largest token is"), "{said}");
    // Without the files nothing is known.
    fs::remove_file(place.path("val.bin")).unwrap();
    assert!(place.fails("check c.toml", 1).contains("`val.bin` is not there"));
    // Numbers of 32 bits that are no tokens.
    let header: Vec<u8> = [20_240_801i32, 1, 2].iter().flat_map(|number| number.to_le_bytes()).collect();
    let wide = [header, vec![0; 1024 - 12], 5u32.to_le_bytes().to_vec(), u32::MAX.to_le_bytes().to_vec()].concat();
    place.write("wide.bin", wide);
    let none = place.fails("check c.toml --unset data.val_path --set data.path=wide.bin", 2);
    assert!(none.contains("the largest token is 4294967295, and a vocabulary has at most 16777216"), "{none}");
}

/// Another program cuts the file short while a training reads it.
#[test]
fn a_token_file_that_is_cut_short_ends_the_run_with_an_error() {
    let data = "source = \"tokens\"\npath = \"train.bin\"\nvocab_size = 256\ncontext = 16\nbatch_size = 8";
    let place = Place::with(&format!(
        "device = \"cpu\"\n[data]\n{data}\nlimit_val = 1\n[model]\nlayers = [{{ type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 4 }}, \
         {{ type = \"linear\", out_features = \"$vocabulary\" }}]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n\
         [train]\nsteps = 100_000_000\neval_every_steps = 5\n"
    ));
    let path = place.write("train.bin", vec![0; 1 << 20]);
    let mut running = place.start("train c.toml --out r");
    assert!(running.until(|| place.path("r/last.safetensors").exists()));
    fs::File::options().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let (_, done) = running.wait();
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in ["train.bin", "the file ends before token", "it was cut short"] {
        assert!(done.err.contains(part), "{part}: {done:?}");
    }
    assert!(place.checkpoint("r/last.safetensors").meta.step >= 5, "what was saved before stays");
}

//! Tables on several ranks, by several workers and threads: the same bits.

use super::support::{Place, assert_same_runs, repository};
use super::tables::houses;
use std::fmt::Write;

/// Houses with columns of all kinds, and missing cells in most of them, which two shards learn.
fn place(model: &str, more: &str) -> Place {
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 5\n[data]\nsource = \"csv\"\npath = \"houses.csv\"\nid = \"id\"\nbatch_size = 20\ntarget = \"price\"\n\
         validation_split = 0.25\n[data.columns]\nage = {{ type = \"number\", scaling = \"quantile\", missing = \"mean\" }}\n\
         street = {{ type = \"category\", hash_buckets = 8 }}\nnote = {{ type = \"text\", hash_buckets = 16 }}\n\
         [model]\n{model}\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adamw\"\nlr = 0.01\n[schedule]\ntype = \"cosine\"\n\
         [distributed]\nshards = 2\n[log]\nevery_steps = 1\n[checkpoint]\nevery_steps = 4\n\
         [train]\nepochs = 4\nclip_grad_norm = 1.0\neval_every_steps = 5\n{more}"
    ));
    let mut table = String::new();
    for (at, line) in houses(190).lines().enumerate() {
        let missing = |every: usize, cell: String| if at % every == 1 { String::new() } else { cell };
        let more = match at {
            0 => "street,note,sold,garden".to_owned(),
            _ => [
                missing(17, format!("s{}", at % 37)),
                missing(5, format!("a {} house", ["small", "large", "nice"][at % 3])),
                missing(13, format!("2026-0{}-1{}", 1 + at % 9, at % 10)),
                missing(7, ["yes", "no"][at % 2].to_owned()),
            ]
            .join(","),
        };
        let _ = writeln!(table, "{line},{more}");
    }
    place.write("houses.csv", table);
    place
}

/// Dropout draws, and the last batch of an epoch is smaller and of an uneven number of rows.
const NET: &str = "layers = [{ type = \"linear\", out_features = 32 }, \"batch_norm1d\", \"relu\", { type = \"dropout\", p = 0.2 }, \
                   { type = \"linear\", out_features = 1 }]";

fn tabular() -> String {
    format!("use = {:?}", repository("models/tabular.toml").display().to_string())
}

#[test]
fn two_ranks_come_to_what_one_does() {
    for (model, more) in [(NET.to_owned(), "accumulate = 2\n"), (tabular(), "")] {
        let place = place(&model, more);
        place.ok("train c.toml --quiet --out one");
        place.ok("launch --ranks 2 -- train c.toml --quiet --out two");
        assert_same_runs((&place, "one"), (&place, "two"));
        // As processes each reads the table by itself, here from a file.
        let disk = "--set data.cache=disk --set data.cache_dir=kept";
        place.ok(&format!("launch --ranks 2 --processes -- train c.toml --quiet --out processes {disk}"));
        assert_same_runs((&place, "one"), (&place, "processes"));
        let fitted = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).meta.extra["sample"].clone();
        assert_eq!([fitted("two"), fitted("processes")], [fitted("one"), fitted("one")]);
    }
}

#[test]
fn ranks_that_are_killed_go_on_bit_for_bit() {
    let place = place(NET, "accumulate = 2\n");
    place.ok("train c.toml --quiet --out whole");
    let mut ranks = place.start("launch --ranks 2 -- train c.toml --quiet --out killed");
    ranks.until(|| place.path("killed/last.safetensors").exists());
    ranks.signal(9);
    ranks.wait();
    place.ok("launch --ranks 2 -- train c.toml --quiet --out killed --resume");
    assert_same_runs((&place, "whole"), (&place, "killed"));
    // In the middle of an epoch, and with another number of ranks each time.
    place.ok("launch --ranks 2 -- train c.toml --quiet --out parts --set train.max_steps=6");
    place.ok("train --resume parts --quiet --set train.max_steps=9");
    place.ok("launch --ranks 2 -- train --resume parts --quiet --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "parts"));
}

#[test]
fn workers_and_threads_change_nothing() {
    for model in [NET.to_owned(), tabular()] {
        let place = place(&model, "");
        place.ok("train c.toml --quiet --out first --set data.workers=0 --threads 1");
        for (at, (workers, threads)) in [(1, 2), (3, 1), (4, 5)].into_iter().enumerate() {
            place.ok(&format!("train c.toml --quiet --out r{at} --set data.workers={workers} --threads {threads}"));
            assert_same_runs((&place, "first"), (&place, &format!("r{at}")));
        }
    }
}

//! Folds and seeds of a folder are of one training: what is said of one of them holds for all, and what does not go together is named.

use super::support::Place;
use super::tables::houses;
use std::fs;

fn place() -> Place {
    let place = Place::with(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"houses.csv\"\nid = \"id\"\ntarget = \"price\"\nbatch_size = 32\nfolds = 3\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\n\
         epochs = 2\n",
    );
    place.write("houses.csv", houses(90));
    place.ok("train c.toml --quiet --out r");
    place
}

fn epochs(place: &Place, run: &str) -> usize {
    place.metrics(run).iter().filter(|line| line["kind"] == "epoch").count()
}

#[test]
fn what_was_given_to_folds_that_go_on_holds_for_all_of_them() {
    let place = place();
    // As an interruption in the first fold leaves them.
    place.ok("train --resume r/fold-1 --quiet --set train.epochs=5 --set log.every_steps=1");
    for command in ["eval r", "predict r houses.csv"] {
        let said = place.fails(command, 1);
        assert!(said.contains("not of one training"), "{said}");
        assert!(said.contains("is 5 in fold 1, and 2 in fold 2") || said.contains("every_steps"), "{said}");
    }
    let said = place.ok("train --resume r");
    assert!(!said.err.contains("not of one training"), "{said:?}");
    assert_eq!(["r/fold-1", "r/fold-2", "r/fold-3"].map(|run| epochs(&place, run)), [5; 3]);
    place.ok("eval r");
    // One that was given something by itself is not taken for one of them.
    place.ok("train --resume r/fold-3 --quiet --set train.epochs=6");
    let said = place.fails("eval r", 1);
    assert!(
        said.contains("`train.epochs` is 5 in fold 1, and 6 in fold 3") && said.contains("runner train --resume r"),
        "{said}"
    );
    place.ok("train --resume r --quiet --set train.epochs=7");
    place.ok("eval r");
}

#[test]
fn a_fold_in_the_place_of_another_is_named() {
    let place = place();
    fs::remove_dir_all(place.path("r/fold-2")).unwrap();
    fs::create_dir(place.path("r/fold-2")).unwrap();
    for file in fs::read_dir(place.path("r/fold-1")).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), place.path("r/fold-2").join(file.file_name())).unwrap();
    }
    let said = place.fails("eval r", 1);
    assert!(said.contains("`fold-2` has a run of fold 1"), "{said}");
    let done = place.run("verify r");
    assert!(done.code == Some(1) && done.out.contains("`fold-2` has a run of fold 1"), "{done:?}");
}

#[test]
fn a_list_of_folds_that_is_lost_is_named() {
    let place = place();
    fs::remove_file(place.path("r/folds.json")).unwrap();
    let said = place.fails("train --resume r", 1);
    assert!(said.contains("folds.json") && said.contains(r#"`{"folds":3}`"#), "{said}");
}

#[test]
fn folds_that_are_to_be_replaced_are_there_until_a_new_one_has_ended() {
    let place = place();
    let before = fs::read(place.path("r/fold-3/last.safetensors")).unwrap();
    // As a process leaves them that is killed in the first of the new folds.
    fs::create_dir(place.path("r/.old")).unwrap();
    for name in ["folds.json", "config.toml", "fold-1", "fold-2", "fold-3"] {
        fs::rename(place.path(&format!("r/{name}")), place.path(&format!("r/.old/{name}"))).unwrap();
    }
    for name in ["folds.json", "config.toml", "fold-1/last.safetensors", "fold-1/metrics.jsonl"] {
        place.write(&format!("r/{name}"), fs::read(place.path(&format!("r/.old/{name}"))).unwrap());
    }
    place.fails("train c.toml --out r --force --set data.path=nowhere.csv", 1);
    assert_eq!(fs::read(place.path("r/fold-3/last.safetensors")).unwrap(), before);
    place.ok("eval r");
}

#[test]
fn evaluations_of_folds_and_seeds_say_what_they_were_chosen_on() {
    let place = place();
    place.ok("train c.toml --quiet --out seeds --unset data.folds --set data.validation_split=0.2 --set train.seeds=2");
    for (folder, number) in [("r", 3), ("seeds", 2)] {
        let said = place.ok(&format!("eval {folder}")).err;
        assert!(said.contains("note: the checkpoints were chosen by `val_loss` on these samples"), "{said}");
        let chosen = &place.ok(&format!("eval {folder} --json")).json()["chosen"];
        assert_eq!((&chosen["monitor"], &chosen["same_samples"]), (&"val_loss".into(), &true.into()), "{chosen}");
        assert_eq!(chosen["values"].as_array().map(Vec::len), Some(number), "{chosen}");
    }
    // Other samples are no matter of it.
    place.write("new.csv", houses(12));
    assert!(!place.ok("eval r --set data.val_path=new.csv").err.contains("chosen"));
}

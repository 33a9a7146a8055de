use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn an_option_that_is_a_key_is_told_how_to_be_set() {
    let told = |line: &str| {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        explain(Cli::try_parse_from(&words).unwrap_err(), &words).to_string()
    };
    for (line, tip) in [
        ("runner train a.toml --epochs 3", "'--set train.epochs=3' or '--set schedule.epochs=3'"),
        ("runner train a.toml --lr=3e-4", "'--set optimizer.lr=3e-4'"),
        ("runner check a.toml --batch-size 32", "'--set data.batch_size=32'"),
        ("runner eval a.toml --seed", "'--set seed=…'"),
        ("runner bench a.toml --learning-rate --quiet", "'--set optimizer.lr=…'"),
        ("runner train a.toml --optimizer.lr 1", "'--set optimizer.lr=1'"),
    ] {
        let text = told(line);
        assert!(text.contains(tip) && !text.contains("as a value"), "{line}\n{text}");
    }
    // Options of our own are still proposed, and nothing where there is nothing to set.
    assert!(told("runner train a.toml --forse").contains("'--force'"));
    for line in ["runner export a b --epochs 3", "runner train a.toml --frobnicate", "runner --epochs 3"] {
        let text = told(line);
        assert!(!text.contains("--set") && !text.contains("as a value"), "{line}\n{text}");
    }
}

#[test]
fn passes_to_leave_out_are_told_in_their_order() {
    let words = ["runner", "bench", "a.toml", "--without", "fuse", "--without=reorder", "--without", "fuse"];
    let Command::Bench(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
    assert_eq!(args.passes.note(), " without reorder and fuse");
    assert_eq!(Passes::default().note(), "");
    assert_eq!(args.passes.options().without, ["fuse", "reorder", "fuse"]);
}

#[test]
fn resume_takes_an_optional_checkpoint() {
    let train = |args: &[&str]| match Cli::try_parse_from([&["runner", "train"], args].concat()).unwrap().command {
        Command::Train(t) => t,
        _ => unreachable!(),
    };
    assert_eq!(train(&["a.toml"]).resume, None);
    assert_eq!(train(&["--resume"]).config, None);
    assert!(Cli::try_parse_from(["runner", "train"]).is_err());
    assert!(Cli::try_parse_from(["runner", "train", "a.toml", "--allow-download"]).is_err());
    let overrides = train(&["a.toml", "--set", "data = { root = \"x\" }", "--set", "train.epochs=1"]).overrides;
    assert!(overrides.gives("data.root") && overrides.gives("train.epochs") && !overrides.gives("train"));
    assert_eq!(train(&["a.toml", "--resume"]).resume, Some(None));
    assert_eq!(train(&["a.toml", "--resume", "x"]).resume, Some(Some("x".into())));
    assert_eq!(train(&["a.toml", "--device", "cuda:1"]).overrides.sets(), ["device=\"cuda:1\""]);
    let both = train(&["a.toml", "--set", "seed=1", "--unset", "schedule"]);
    assert_eq!(both.overrides.sets(), ["--unset schedule", "seed=1"]);
}

use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn passes_to_leave_out_are_listed_in_their_order() {
    let words = ["runner", "bench", "a.toml", "--without", "fuse", "--without=reorder", "--without", "fuse"];
    let Command::Bench(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
    assert_eq!(args.passes.note(), " without reorder and fuse");
    assert_eq!(Passes::default().note(), "");
    assert_eq!(args.passes.options().without, ["fuse", "reorder", "fuse"]);
}

/// Names that options had before still stand for them.
#[test]
fn options_of_serve_have_their_earlier_names() {
    for words in [["--max-batch", "4", "--max-delay-ms", "7"], ["--batch", "4", "--batch-delay", "7"]] {
        let words = ["runner", "serve", "r"].into_iter().chain(words);
        let Command::Serve(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
        assert_eq!((args.max_batch, args.max_delay_ms), (Some(4), 7));
    }
    let help = Cli::command().find_subcommand_mut("serve").unwrap().render_long_help().to_string();
    assert!(help.contains("--max-batch") && !help.contains("--batch "), "{help}");
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
    assert_eq!(train(&["a.toml", "--resume"]).resume, Some(None));
    assert_eq!(train(&["a.toml", "--resume", "x"]).resume, Some(Some("x".into())));
    assert_eq!(train(&["a.toml", "--device", "cuda:1"]).overrides.sets(), ["device=\"cuda:1\""]);
    let both = train(&["a.toml", "--set", "seed=1", "--unset", "schedule"]);
    assert_eq!(both.overrides.sets(), ["--unset schedule", "seed=1"]);
}

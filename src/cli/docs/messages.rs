//! What messages of errors and exit codes mean.

/// The guide's page of messages: a heading for each, in which `…` stands for what differs.
const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/troubleshooting.md"));

/// The page of figures: a row of its table for some that belong together.
const FIGURES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/config/metrics.md"));

/// The words that books and other programs use.
const WORDS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/glossary.md"));

/// The exit codes, as docs/cli.md has them.
const EXIT_CODES: [(&str, &str); 5] = [
    (
        "0",
        "Done. Also: early stopping, `max_steps`, `--pause-after`, nothing left to do; a sweep some of whose trials have failed.",
    ),
    (
        "1",
        "Something failed on the way: files, network, a loss that is not finite. A checkpoint, a run to go on with, weights or data are not there, also the source for `init` or `import`, and nothing else is wrong.",
    ),
    (
        "2",
        "The command line, a variable of the environment or the configuration is wrong, the folder of a new run holds another or is a file, or another process is at work there. The file of the configuration, or the run for `verify`, `report`, `runs`, `compare` or `plot` is not there.",
    ),
    ("3", "The device is not there, or has not enough memory."),
    (
        "130",
        "Interrupted by Ctrl-C, SIGTERM or SIGHUP; a training also by SIGUSR1 or, with `--watch-stdin`, by the end of standard input. `serve` ends with 0 where all requests were answered, else with 1.",
    ),
];

/// Parts of a file that have names of the user's own, so that no table lists their keys.
const SECTIONS: [(&str, &str); 2] = [
    (
        "params",
        "Parameters of the file: `[params]` gives names to values, such as `width = 32`, and `\"$width\"` or `\"$width * 2\"` stands for them in `[blocks]` and `[model]`.",
    ),
    (
        "blocks",
        "Blocks of layers: `[blocks.NAME]` has `layers`, and in `params` the parameters of the block with their defaults. `{ block = \"NAME\", repeat = 2, with = { … } }` among the layers of the model uses it.",
    ),
];

/// What is explained, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// `message`, `exit code`, `section`, `figure` or `word`.
    pub kind: &'static str,
    /// The message, with `…` for what differs, or the code.
    pub name: String,
    /// What it means, and what to do.
    pub about: String,
    /// The page that has it.
    pub page: &'static str,
}

/// What explains `name`: an exit code (`3`, `exit code 3`; `exit codes`: all), or a message, a part of it or all, as the program has written it.
pub fn explained(name: &str) -> Vec<Explained> {
    let plain = plain(name);
    let code = plain.strip_prefix("exit").map_or(plain.as_str(), |rest| rest.trim_start_matches([' ', '_', '-']));
    let code = code.strip_prefix("codes").or_else(|| code.strip_prefix("code")).unwrap_or(code).trim();
    let all = code.is_empty() && plain.starts_with("exit");
    let codes = EXIT_CODES.iter().filter(|(known, _)| all || *known == code).map(|(code, about)| Explained {
        kind: "exit code",
        name: (*code).to_owned(),
        about: (*about).to_owned(),
        page: "docs/cli.md#exit-codes",
    });
    let messages = || PAGE.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'));
    let mut fitting: Vec<(&str, &str)> = messages().filter(|(heading, _)| fits(heading, &plain)).collect();
    // What differs in a message stands in its explanation alone.
    if fitting.is_empty() && plain.contains(' ') {
        fitting = messages().filter(|(_, about)| about.to_lowercase().contains(&plain)).collect();
    }
    let fitting = fitting.into_iter().map(|(heading, about)| Explained {
        kind: "message",
        name: heading.trim_matches('`').to_owned(),
        about: without_marks(about.trim(), "docs/guide/"),
        page: "docs/guide/troubleshooting.md",
    });
    let section = |(name, about): &(&str, &str)| Explained {
        kind: "section",
        name: (*name).to_owned(),
        about: (*about).to_owned(),
        page: "docs/config/blocks.md",
    };
    let first = plain.split('.').next().unwrap_or_default();
    let sections = SECTIONS.iter().filter(|(known, _)| *known == first).map(section);
    codes.chain(sections).chain(figure(&plain)).chain(words(&plain)).chain(fitting).collect()
}

/// What explains a word of books, alone or as a part of several: `series` as `time series`.
fn words(name: &str) -> impl Iterator<Item = Explained> + use<'_> {
    let is = move |term: &str| term == name || term.split(' ').any(|word| word == name);
    let rows = WORDS.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let rows = rows.skip(2).filter(move |(terms, _)| terms.split(", ").any(&is));
    rows.map(|(terms, about)| Explained {
        kind: "word",
        name: terms.to_owned(),
        about: without_marks(about, "docs/"),
        page: "docs/glossary.md",
    })
}

/// What explains a figure, also by the name that it has in `metrics.jsonl`: `val_accuracy`.
fn figure(name: &str) -> Option<Explained> {
    let name = ["val_", "train_"].iter().find_map(|part| name.strip_prefix(part)).unwrap_or(name);
    let rows = FIGURES.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let (_, about) = rows
        .filter(|(_, about)| !about.contains(" | "))
        .find(|(names, _)| names.split(", ").any(|one| one.trim_matches('`') == name))?;
    let (kind, page) = ("figure", "docs/config/metrics.md");
    Some(Explained { kind, name: name.to_owned(), about: without_marks(about, "docs/config/"), page })
}

/// A message without what marks names in it, and without what stands before it in a terminal.
fn plain(text: &str) -> String {
    let text = text.replace('`', "").to_lowercase();
    text.trim().trim_start_matches("error:").trim().to_owned()
}

/// Whether a heading is that of a message, or has all of `said` in one piece.
fn fits(heading: &str, said: &str) -> bool {
    let heading = plain(heading);
    let pieces =
        || heading.split('…').map(|piece| piece.trim_matches([' ', ',', ':', ';'])).filter(|piece| !piece.is_empty());
    let mut rest = said;
    let is_whole = pieces().all(|piece| match rest.find(piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    });
    // One short word, as `in`, is in every other heading.
    is_whole || (said.contains(' ') && pieces().any(|piece| piece.contains(said)))
}

/// Markdown as plain text: links are followed by the file that they lead to from `folder`, and nothing is bold.
fn without_marks(text: &str, folder: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        let Some((target, after)) = link.split_once(')') else { break };
        let (before, shown) = before.rsplit_once('[').unwrap_or(("", before));
        out += before;
        out += shown;
        let file = target.split('#').next().unwrap_or_default();
        if !file.is_empty() && !target.contains("://") {
            let parent = folder.trim_end_matches('/').rsplit_once('/').map_or("", |(parent, _)| parent);
            let path = match file.strip_prefix("../") {
                Some(file) => format!("{parent}/{file}"),
                None => format!("{folder}{file}"),
            };
            out += &format!(" ({path})");
        }
        rest = after;
    }
    (out + rest).replace("**", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::Figure;

    fn names(said: &str) -> Vec<String> {
        explained(said).into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn messages_are_found_by_a_part_and_as_they_are_printed() {
        assert_eq!(names("unknown key"), ["unknown key … in …"]);
        assert_eq!(names("error: unknown key `lrr` in `[optimizer]`"), ["unknown key … in …"]);
        assert_eq!(names("not enough memory on cuda:0: 9 GiB are needed"), ["not enough memory on …"]);
        let found = explained("unknown key").remove(0);
        assert!(
            found.about.contains("All names (docs/config/keys.md)") && !found.about.contains("**"),
            "{}",
            found.about
        );
        for nothing in ["in", "the", "no such words at all", ""] {
            assert!(names(nothing).is_empty(), "{nothing}: {:?}", names(nothing));
        }
    }

    #[test]
    fn words_of_books_are_explained() {
        for word in ["series", "forecasting", "time series"] {
            let [found] = &explained(word)[..] else { panic!("{word}: {:?}", names(word)) };
            assert!(found.kind == "word" && found.about.contains("series (docs/config/tables.md)"), "{found:?}");
        }
        assert_eq!(names("word"), [""; 0]);
        let message = "no … is for …: …, and … for …; take a smaller window";
        assert_eq!(names("no window"), [message]);
        let printed = "no window of 9 rows is for training: there is 1 series of at most 5 rows, and 5 rows for training; take a smaller `window`, or hold out another part";
        assert_eq!(names(printed), [message]);
    }

    #[test]
    fn figures_are_explained() {
        for figure in Figure::ALL {
            for name in [figure.name().to_owned(), format!("val_{}", figure.name())] {
                let [found] = &explained(&name)[..] else { panic!("{name}") };
                assert!(found.kind == "figure" && found.name == figure.name() && found.about.len() > 10, "{found:?}");
            }
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_docs() {
        let docs = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md"))
            .replace("[environment](#environment)", "environment");
        let (_, table) = docs.split_once("## Exit codes\n| code | meaning |\n| --- | --- |\n").unwrap();
        let rows: Vec<String> = table.lines().take_while(|line| line.starts_with('|')).map(str::to_owned).collect();
        let own: Vec<String> = EXIT_CODES.iter().map(|(code, about)| format!("| {code} | {about} |")).collect();
        assert_eq!(rows, own);
        assert_eq!(names("3"), ["3"]);
        assert_eq!(names("exit code 130"), ["130"]);
        assert_eq!(names("exit codes"), ["0", "1", "2", "3", "130"]);
        assert_eq!(names("exit_code").len(), 5);
        assert!(names("4").is_empty());
    }
}

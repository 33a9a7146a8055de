//! Rows that are held out have no share in anything that training knows: whatever stands in them, it changes nothing that is fitted, and no sample of training.

use super::super::super::tokenizer::Choice as Tokenizers;
use super::*;
use crate::random::{Purpose, Stream};

const CASES: u64 = 48;
const COLUMNS: &str = "x,z,kind,page,note,tame,born,w,place,part,y";

/// How rows are held out, by what does not change.
#[derive(Debug, Clone, Copy)]
enum By {
    Part,
    Groups,
    Time,
    Chance,
    Strata,
    Folds,
    File,
}

const WAYS: [By; 7] = [By::Part, By::Groups, By::Time, By::Chance, By::Strata, By::Folds, By::File];

fn pick<'a>(draw: &mut Stream, all: &[&'a str]) -> &'a str {
    all[draw.below(all.len() as u32) as usize]
}

/// The cells of a row; `wild`: as no row of training is.
fn row(draw: &mut Stream, i: usize, classes: bool, wild: bool) -> Vec<String> {
    let scale = if wild { 1e4 * (draw.uniform() + 0.1) } else { 1.0 };
    let number = |draw: &mut Stream, scale: f64| format!("{}", (draw.normal() * scale * 64.0).round() / 16.0);
    let text = |draw: &mut Stream, usual: &[&str]| match wild && draw.uniform() < 0.6 {
        true => format!("new {}", draw.below(1000)),
        false => pick(draw, usual).to_owned(),
    };
    let x = number(draw, scale);
    let z = number(draw, scale);
    let kind = text(draw, &["a", "b", "c", "d", "e"]);
    let page = text(draw, &["home", "shop", "help"]);
    let note = text(draw, &["good and warm", "cold", "good, cold"]);
    let tame = pick(draw, &["yes", "no"]).to_owned();
    let born = format!("{}-0{}-1{}", if wild { 2090 } else { 2020 } + draw.below(5), 1 + draw.below(9), draw.below(9));
    let weight = format!("{}", f64::from(draw.below(8)) * scale);
    let mut cells = vec![x, z, kind, page, note, tame, born, weight];
    // Missing where training may have none missing, but not what rows weigh.
    let missing = if wild { 0.3 } else { 0.05 };
    cells[..7].iter_mut().for_each(|cell| {
        if draw.uniform() < missing {
            cell.clear();
        }
    });
    let y = if classes { pick(draw, &["no", "yes"]).to_owned() } else { number(draw, scale) };
    let part = if i % 4 == 1 { ["val", "test"][i / 4 % 2] } else { "train" };
    cells.extend([format!("p{}", i % 9), part.to_owned(), y]);
    cells
}

fn text_of(rows: &[Vec<String>]) -> String {
    let line =
        |cells: &Vec<String>| cells.iter().map(|cell| format!("\"{cell}\"")).collect::<Vec<_>>().join(",") + "\n";
    format!("{COLUMNS}\n{}", rows.iter().map(line).collect::<String>())
}

/// The bytes of all samples of a split, with the names of their rows.
fn samples(split: &Split) -> Vec<(String, Vec<Vec<u8>>)> {
    let of = |i: usize| {
        let fields = (0..split.fields().len()).map(|field| split.bytes(i, field).unwrap().to_vec());
        (split.row(i).map(|name| name.to_string()).unwrap_or_default(), fields.collect())
    };
    (0..split.len()).map(of).collect()
}

#[test]
fn rows_that_are_held_out_change_nothing_of_training() {
    let mut changed = 0;
    for seed in 0..CASES {
        let mut draw = Stream::new(seed, Purpose::Split, 77, 0);
        let way = WAYS[seed as usize % WAYS.len()];
        // Classes decide by themselves which rows are drawn, and what rows are held out by chance must not depend on what stands in them.
        let classes = !matches!(way, By::Chance | By::Folds) && draw.uniform() < 0.5;
        let count = 40 + draw.below(60) as usize;
        let plain: Vec<Vec<String>> = (0..count).map(|i| row(&mut draw, i, classes, false)).collect();
        let scaling = [Scaling::Standardize, Scaling::Quantile, Scaling::Log, Scaling::PiecewiseLinear, Scaling::None]
            [draw.below(5) as usize];
        let fill = [Fill::Median, Fill::Mean, Fill::Zero][draw.below(3) as usize];
        let rule = |name: &str, encoding| Rule { pattern: name.to_owned(), choice: Choice::Encode(encoding) };
        let words = Encoding::Text(Words { buckets: 11, norm: Norm::L2, alternate_sign: true });
        let tokenizers = [Tokenizers::Words(9), Tokenizers::Bpe(270), Tokenizers::Bytes];
        let note = match tokenizers.into_iter().nth(draw.below(6) as usize) {
            Some(tokenizer) => {
                let tokens = Choice::Tokens(TokensOptions { tokenizer, lengths: vec![2, 4] });
                Rule { pattern: "note".to_owned(), choice: tokens }
            }
            None => rule("note", words),
        };
        let rules = vec![
            note,
            rule("x", Encoding::Number { scaling, fill, bins: 5 }),
            rule("kind", Encoding::Category { most: 3 + draw.below(3) as usize, least: 1 + draw.below(4) as usize }),
            rule("page", Encoding::Hashed { buckets: 7 }),
        ];
        let place = Place::new(&text_of(&plain));
        let mut options = TableOptions {
            classes,
            bins: (draw.uniform() < 0.5).then_some(4),
            rules,
            sample_weight: Some("w".into()),
            drop: vec!["part".into(), "place".into()],
            ..place.options("y")
        };
        options.division.seed = seed;
        let half = Some(HoldOut::Fraction(0.3));
        match way {
            By::Part => options.division.split_column = Some("part".into()),
            By::Groups => (options.division.hold_out, options.division.group_column) = (half, Some("place".into())),
            // Its order is that of the file, and of no cell that is changed.
            By::Time => (options.division.hold_out, options.division.time_column) = (half, Some("row".into())),
            By::Chance => options.division.hold_out = half,
            By::Strata => (options.division.hold_out, options.division.stratify_column) = (half, Some("place".into())),
            By::Folds => options.division.fold = Some(Fold { number: 1, of: 3 }),
            By::File => options.val_path = Some(place.write("v.csv", &text_of(&plain))),
        }
        let with_rows = |rows: &[Vec<String>]| {
            let text = text_of(rows);
            let lines = text.lines().enumerate();
            lines
                .map(|(i, line)| if i == 0 { format!("{line},row\n") } else { format!("{line},{i}\n") })
                .collect::<String>()
        };
        options.drop.push("row".into());
        place.write("t.csv", &with_rows(&plain));
        place.write("v.csv", &with_rows(&plain));
        let before = open(&options).unwrap();

        // Every other row is as no row of training is.
        let trained: Vec<usize> = (0..before.train.len()).map(|i| before.train.at(i)).collect();
        let mut other = plain.clone();
        for (i, cells) in other.iter_mut().enumerate() {
            let held_out = matches!(way, By::File) || !trained.contains(&i);
            if held_out {
                // Which part a row is of stays.
                let new = row(&mut draw, i, classes, true);
                let y = if matches!(way, By::Folds) { cells[10].clone() } else { new[10].clone() };
                *cells = [&new[..8], &cells[8..10], &[y]].concat();
            }
        }
        // Under another name: what was found in a file is kept.
        let changed_path = place.write("other.csv", &with_rows(&other));
        match way {
            By::File => options.val_path = Some(changed_path),
            _ => options.path = changed_path,
        }
        let after = open(&options).unwrap();

        let at = format!("case {seed}, {way:?}, {scaling:?}, {fill:?}");
        assert_eq!(before.spec.fitted, after.spec.fitted, "{at}: what is fitted");
        assert_eq!(before.spec.leaks, after.spec.leaks, "{at}: warnings");
        assert_eq!(before.spec.fields, after.spec.fields, "{at}: fields and their classes");
        assert!(samples(&before.train) == samples(&after.train), "{at}: samples of training");
        let labels = |set: &Dataset| (0..set.train.len()).map(|i| set.train.label(i)).collect::<Vec<_>>();
        assert_eq!(labels(&before), labels(&after), "{at}: what weights of classes are measured on");
        changed += usize::from(samples(&before.val) != samples(&after.val));
    }
    assert_eq!(changed as u64, CASES, "what is held out differs in every case");
}

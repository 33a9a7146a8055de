//! Tables, read whole; and their codecs beside scikit-learn's.

mod faults;
mod folds;
mod leakage;
mod windows;

use super::super::{HoldOut, Split, progress::Event};
use super::codec::{Cells, ColumnCodec};
use super::*;
use anyhow::Result;
use std::path::{Path, PathBuf};

const GOLDEN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/table_codecs.json"));

fn numbers(value: &serde_json::Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect()
}

/// What a codec that is fitted on `train` makes of `values`.
fn encoded(scaling: Scaling, train: &[f64], values: &[f64]) -> Vec<Vec<f32>> {
    let all = Cells::Numbers([train, values].concat());
    let rows: Vec<u32> = (0..train.len() as u32).collect();
    let codec = ColumnCodec::fit("x", &Encoding::Number { scaling, fill: Fill::Median, bins: 8 }, &all, &rows, None);
    let row = |at: usize| {
        let mut out = vec![0.0; codec.width()];
        codec.encode(&all, at, &mut out);
        out
    };
    (0..train.len() + values.len()).map(row).collect()
}

#[test]
fn numbers_are_encoded_as_scikit_learn_does() {
    let golden: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
    let (train, other) = (numbers(&golden["train"]), numbers(&golden["other"]));
    for (name, scaling) in
        [("standardize", Scaling::Standardize), ("quantile", Scaling::Quantile), ("log", Scaling::Log)]
    {
        let rows = encoded(scaling, &train, &other);
        for (at, (row, expected)) in rows.iter().zip(numbers(&golden[name])).enumerate() {
            let got = f64::from(row[0]);
            assert!((got - expected).abs() <= 2e-6 * (1.0 + expected.abs()), "{name} {at}: {got} {expected}");
        }
    }
    let rows = encoded(Scaling::PiecewiseLinear, &train, &other);
    for (row, expected) in rows.iter().zip(golden["piecewise_linear"].as_array().unwrap()) {
        let expected = numbers(expected);
        assert_eq!(row.len(), expected.len());
        for (got, expected) in row.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() <= 1e-6 * (1.0 + expected.abs()), "{got} {expected}");
        }
    }
    assert_eq!(encoded(Scaling::None, &train, &other)[0], [train[0] as f32]);
}

#[test]
fn missing_cells_are_filled_and_marked() {
    let golden: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
    let values = numbers(&golden["missing"]);
    let rows: Vec<u32> = (0..values.len() as u32).collect();
    let cells = Cells::Numbers(values);
    for (fill, expected) in
        [(Fill::Median, golden["median"].as_f64()), (Fill::Mean, golden["mean"].as_f64()), (Fill::Zero, Some(0.0))]
    {
        let encoding = Encoding::Number { scaling: Scaling::None, fill, bins: 8 };
        let codec = ColumnCodec::fit("x", &encoding, &cells, &rows, None);
        let mut out = [0.0; 2];
        codec.encode(&cells, 0, &mut out);
        assert_eq!(out, [expected.unwrap() as f32, 1.0]);
        codec.encode(&cells, 1, &mut out);
        assert_eq!(out[1], 0.0);
    }
}

#[test]
fn categories_have_places_by_name() {
    let golden: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
    let words: Vec<String> = serde_json::from_value(golden["words"].clone()).unwrap();
    let texts: Vec<String> = ["b", "a", "c", "d"].map(String::from).to_vec();
    let number = |word: &String| texts.iter().position(|text| text == word).map(|at| at as u32);
    let mut all: Vec<Option<u32>> = words.iter().map(number).collect();
    let train: Vec<u32> = (0..all.len() as u32).collect();
    // `a`, `b`, `c`, and one that training does not have; the last is missing.
    all.extend([Some(1), Some(0), Some(2), Some(3), None]);
    let cells = Cells::Texts(all, texts.clone().into());
    let encode = |most, width: usize| {
        let codec = ColumnCodec::fit("x", &Encoding::Category { most, least: 1 }, &cells, &train, None);
        assert_eq!(codec.width(), width);
        let row = |at: usize| {
            let mut out = vec![9.0; width];
            codec.encode(&cells, words.len() + at, &mut out);
            out
        };
        (0..5).map(row).collect::<Vec<_>>()
    };
    let expected = |key: &str| -> Vec<Vec<f32>> { serde_json::from_value(golden[key].clone()).unwrap() };
    assert_eq!(encode(64, 3)[..4], expected("one_hot"));
    assert_eq!(encode(64, 3)[4], [0.0; 3], "nothing was missing in training");
    assert_eq!(encode(1, 2)[..4], expected("infrequent"));
}

#[test]
fn the_most_frequent_categories_have_places() {
    let texts: Vec<String> = ["rare", "often", "some"].map(String::from).to_vec();
    let cells = Cells::Texts([0, 1, 1, 1, 2, 2].map(Some).to_vec(), texts.into());
    let codec = ColumnCodec::fit("x", &Encoding::Category { most: 2, least: 1 }, &cells, &[0, 1, 2, 3, 4, 5], None);
    let row = |at: usize| {
        let mut out = vec![9.0; codec.width()];
        codec.encode(&cells, at, &mut out);
        out
    };
    // By name: `often`, `some`, and all others.
    assert_eq!([row(0), row(1), row(4)], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]);
}

#[test]
fn truths_and_dates_are_numbers() {
    let fitted = |encoding: &Encoding, values: &[f64], at: usize| {
        let (cells, rows) = (Cells::Numbers(values.to_vec()), (0..values.len() as u32).collect::<Vec<_>>());
        let codec = ColumnCodec::fit("x", encoding, &cells, &rows, None);
        let mut out = vec![9.0; codec.width()];
        codec.encode(&cells, at, &mut out);
        out
    };
    let truths = [1.0, 0.0, f64::NAN];
    let all = [0, 1, 2].map(|at| fitted(&Encoding::Boolean, &truths, at));
    assert_eq!(all, [[1.0, 0.0], [0.0, 0.0], [0.5, 1.0]], "a missing one is neither");
    // 1970-01-05 was a Monday, with which a week begins; the next day is a seventh of the circle further.
    let days: Vec<f64> = (4..11).map(f64::from).collect();
    let week = |at| fitted(&Encoding::Date { form: None, time_of_day: false }, &days, at)[3..].to_vec();
    assert_eq!(week(0), [0.0, 1.0]);
    let angle = std::f64::consts::TAU / 7.0;
    let tuesday = week(1);
    assert!((f64::from(tuesday[0]) - angle.sin()).abs() < 1e-6 && (f64::from(tuesday[1]) - angle.cos()).abs() < 1e-6);
}

/// A place with a table in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new(content: &str) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        place.write("t.csv", content);
        place
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn options(&self, target: &str) -> TableOptions {
        TableOptions {
            path: self.0.path().join("t.csv"),
            val_path: None,
            format: Format::default(),
            decimal: '.',
            target: vec![target.to_owned()],
            classes: false,
            class_names: None,
            standardize_target: true,
            range: None,
            heads: Vec::new(),
            bins: None,
            takes: Vec::new(),
            rules: Vec::new(),
            drop: Vec::new(),
            id: None,
            sample_weight: None,
            skip: false,
            windows: None,
            division: Division {
                hold_out: None,
                fold: None,
                seed: 0,
                split_column: None,
                group_column: None,
                time_column: None,
                stratify_column: None,
            },
            room: Room::default(),
            fitted: None,
        }
    }
}

fn open(options: &TableOptions) -> Result<Dataset> {
    options.open(&mut |_: Event| ())
}

fn inputs(split: &Split) -> Vec<Vec<f32>> {
    let row = |i| split.bytes(i, 0).unwrap().as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
    (0..split.len()).map(row).collect()
}

const PETS: &str = "id,kind,weight,born,tame,y\nr1,cat,4,2020-01-01,yes,1.5\nr2,dog,NA,2021-06-01,no,2.5\n\
                    r3,cat,6,2020-07-01,yes,\nr4,bird,5,2022-01-01,no,3.5\n";

#[test]
fn a_table_becomes_vectors() {
    let place = Place::new(PETS);
    let options = TableOptions { id: Some("id".into()), ..place.options("y") };
    let set = open(&options).unwrap();
    // Three kinds; a weight and whether it is missing; five numbers of a date; one truth.
    assert_eq!(set.spec.fields[0].shape.dims(), [3 + 2 + 5 + 1]);
    assert_eq!((set.train.len(), set.train.name(1)), (3, Some("r2".to_owned())));
    assert!(set.notes[0].contains("1 row without `y`"), "{:?}", set.notes);
    let rows = inputs(&set.train);
    assert_eq!((&rows[0][..3], &rows[2][..3]), (&[0., 1., 0.][..], &[1., 0., 0.][..]));
    assert_eq!((rows[1][4], rows[0][4], rows[0][10], rows[1][10]), (1.0, 0.0, 1.0, 0.0));
    let standard = set.spec.fields[1].standard.clone().unwrap();
    assert_eq!(standard.mean, [2.5]);
    // The columns of a class.
    let classes = open(&TableOptions { drop: vec!["id".into()], ..place.options("kind") }).unwrap();
    assert_eq!(classes.spec.class_names().unwrap(), ["bird", "cat", "dog"]);
    assert_eq!(classes.train.label(1), Some(2));
    // Numbers that are classes, in their order.
    let place = Place::new("x,y\n1,10\n2,9\n3,10\n");
    let options = TableOptions { classes: true, ..place.options("y") };
    assert_eq!(open(&options).unwrap().spec.class_names().unwrap(), ["9", "10"]);
}

/// Nothing of the rows that are held out is in what is fitted.
#[test]
fn codecs_are_fitted_on_the_rows_of_training_alone() {
    let row = |i: usize, x: &str, kind: &str| format!("{x},{kind},{}\n", i % 3);
    let table = |strange: bool| {
        let rows = (0..50).map(|i| {
            let x = if strange && i >= 40 { "1000000".to_owned() } else { (i % 7).to_string() };
            row(i, &x, if strange && i >= 40 { "z" } else { ["a", "b"][i % 2] })
        });
        "x,kind,y\n".to_owned() + &rows.collect::<String>()
    };
    let fitted = |strange| {
        let place = Place::new(&table(strange));
        let mut options = place.options("y");
        // The last rows, whatever they are.
        options.division.hold_out = Some(HoldOut::Count(10));
        let text = table(strange);
        let lines: Vec<String> = text
            .lines()
            .enumerate()
            .map(|(i, line)| match i {
                0 => format!("{line},t\n"),
                i => format!("{line},{i}\n"),
            })
            .collect();
        place.write("t.csv", &lines.concat());
        options.division.time_column = Some("t".into());
        options.drop = vec!["t".into()];
        let set = open(&options).unwrap();
        (set.spec.fitted.clone().unwrap(), inputs(&set.train), inputs(&set.val))
    };
    let (plain, strange) = (fitted(false), fitted(true));
    assert_eq!((&plain.0, &plain.1), (&strange.0, &strange.1));
    assert_ne!(plain.2, strange.2);
    // A text that training does not have is none of its own.
    assert_eq!(strange.2[0][1..3], [0.0, 0.0]);
}

#[test]
fn other_tables_are_read_by_what_was_fitted() {
    let place = Place::new(PETS);
    let options = TableOptions { id: Some("id".into()), ..place.options("y") };
    let set = open(&options).unwrap();
    let codec = TableCodec::of(&set.spec).unwrap();
    // Other columns and another order are none of its business, and the target need not be there.
    let other = place.write("o.csv", "tame;more;born;weight;kind\nyes;1;2020-01-01;4;cat\nno;2;2020-01-01;;ox\n");
    let rows = inputs(&read_rows(&other, &codec, false, &mut Unseen::default()).unwrap());
    assert_eq!(rows[0], inputs(&set.train)[0]);
    assert_eq!(rows[1][..3], [0.0; 3]);
    let fault = |content: &str| {
        format!("{:#}", read_rows(&place.write("f.csv", content), &codec, false, &mut Unseen::default()).unwrap_err())
    };
    assert!(
        fault("kind,weight,born,tam\na,1,2020-01-01,yes\n")
            .contains("the model takes a column `tame`, which the table does not have")
    );
    assert!(fault("kind,weight\na,1\n").contains("lacks columns that the model takes: `born`, `tame`"));
    let text = fault("kind,weight,born,tame\na,heavy,2020-01-01,yes\n");
    assert!(text.contains("line 2: the column `weight` has `heavy`, and a number is expected"), "{text}");
    // What is evaluated later has the same numbers for its classes.
    let options = TableOptions { drop: vec!["id".into()], ..place.options("kind") };
    let trained = open(&options).unwrap();
    let fitted = TableCodec::of(&trained.spec).map(Box::new);
    place.write("t.csv", "id,kind,weight,born,tame,y\na,dog,1,2020-01-01,no,1\nb,cat,1,2020-01-01,no,\n");
    let again = open(&TableOptions { fitted: fitted.clone(), ..options.clone() }).unwrap();
    assert_eq!([again.train.label(0), again.train.label(1)], [Some(2), Some(1)]);
    place.write("t.csv", "id,kind,weight,born,tame,y\na,ox,1,2020-01-01,no,1\nb,cat,1,2020-01-01,no,\n");
    let error = open(&TableOptions { fitted, standardize_target: false, ..options }).unwrap_err();
    assert!(format!("{error:#}").contains("has `ox`, which the model does not know"), "{error:#}");
}

#[test]
fn rows_of_each_part_are_where_they_belong() {
    let place = Place::new("x,y,part,g\n1,1,train,a\n2,2,val,b\n3,3,test,c\n4,4,train,d\n");
    let mut options = place.options("y");
    options.division.split_column = Some("part".into());
    let set = open(&options).unwrap();
    assert_eq!((set.train.len(), set.val.len(), set.test.map(|test| test.len())), (2, 1, Some(1)));
    let val = place.write("v.csv", "x,y,part,g\n9,9,train,a\n");
    let options = TableOptions { val_path: Some(val), drop: vec!["part".into()], ..place.options("y") };
    let set = open(&options).unwrap();
    assert_eq!((set.train.len(), set.val.len()), (4, 1));
    assert!(Path::new(&options.path).is_file());
}

#[test]
fn what_a_checkpoint_says_of_columns_is_looked_at() {
    let place = Place::new(PETS);
    let set = open(&TableOptions { id: Some("id".into()), ..place.options("y") }).unwrap();
    let written = set.spec.fitted.unwrap();
    assert!(TableCodec::read(&written).is_some());
    let weight = written["columns"].as_array().unwrap().iter().position(|column| column["name"] == "weight").unwrap();
    let change = |pointer: &str, value: serde_json::Value| {
        let mut changed = serde_json::Value::clone(&written);
        *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}: {written}")) = value;
        TableCodec::read(&changed).is_some()
    };
    let of_weight = |key: &str| format!("/columns/{weight}/codec/standardize/{key}");
    for (pointer, value) in [
        (of_weight("deviation"), 0.0.into()),
        (of_weight("deviation"), (-1.0).into()),
        (of_weight("mean"), serde_json::Value::Null),
        (format!("/columns/{weight}/name"), "kind".into()),
        ("/target/numbers/columns".into(), serde_json::json!([])),
        ("/target/numbers/standard/mean".into(), serde_json::json!([])),
        ("/target/numbers/standard/deviation".into(), serde_json::json!([0.0])),
        ("/columns".into(), serde_json::json!([])),
        // A part of a character.
        ("/separator".into(), 0xc3.into()),
        ("/separator".into(), 10.into()),
    ] {
        assert!(!change(&pointer, value.clone()), "{pointer} {value}");
    }
}

/// Bins that a layer cuts numbers into are quantiles of the training rows, and of single numbers alone.
#[test]
fn bins_are_of_the_training_rows() {
    let table = |held: &str| {
        let rows: String = (0..9).map(|i| format!("{i},{},{},{},train\n", i % 2, ["a", "b"][i % 2], i * i)).collect();
        format!("x,two,kind,y,part\n{rows}{held}")
    };
    let place = Place::new(&table("900,1,a,7,val\n-5,0,b,7,val\n"));
    let mut options = TableOptions { bins: Some(4), ..place.options("y") };
    options.division.split_column = Some("part".into());
    let set = open(&options).unwrap();
    let codec = TableCodec::of(&set.spec).unwrap();
    let binned = codec.binned();
    // The mean of 0 to 8 is 4; two different numbers have one bin.
    let deviation = (60f64 / 9.0).sqrt();
    let edges: Vec<f32> = [-4.0, -2.0, 0.0, 2.0, 4.0].map(|x| (x / deviation) as f32).to_vec();
    assert_eq!((binned[0].0, binned[0].1), (0, &edges[..]));
    assert_eq!((binned.len(), binned[1].0, binned[1].1.len()), (2, 1, 2));
    assert_eq!(codec.bins, Some(4));
    // What is held out changes none of it.
    place.write("t.csv", &table("3,0,a,7,val\n"));
    let other = open(&TableOptions { standardize_target: false, ..options.clone() }).unwrap();
    assert_eq!(TableCodec::of(&other.spec).unwrap().binned(), binned);
    let mut written = serde_json::Value::clone(&set.spec.fitted.unwrap());
    for wrong in [serde_json::json!([1.0, 0.5]), serde_json::json!([0.0, 0.0]), (0..2000).collect()] {
        written["columns"][0]["edges"] = wrong;
        assert!(TableCodec::read(&written).is_none());
    }
    let plain = open(&TableOptions { bins: None, ..options }).unwrap();
    assert!(TableCodec::of(&plain.spec).unwrap().binned().is_empty());
}

#[test]
fn a_file_to_validate_on_has_targets_of_its_own() {
    let place = Place::new("x:y\n1:1\n2:2\n3:3\n");
    let val = place.write("v.csv", "x:y\n9:9\n8:\n");
    let mut options = TableOptions { val_path: Some(val.clone()), ..place.options("y") };
    options.format.separator = Some(b':');
    let set = open(&options).unwrap();
    assert_eq!((set.val.len(), set.notes.len()), (1, 1), "{:?}", set.notes);
    // The separator that was given is kept.
    let codec = TableCodec::of(&set.spec).unwrap();
    assert_eq!(read_rows(&val, &codec, false, &mut Unseen::default()).unwrap().len(), 2);
    place.write("v.csv", "x:y\n9:\n");
    let error = open(&TableOptions { standardize_target: false, ..options.clone() }).unwrap_err();
    assert!(format!("{error:#}").contains("has no row with a target"), "{error:#}");
    // Another target is not what the model learnt.
    let fitted = Some(Box::new(codec));
    let error = open(&TableOptions { target: vec!["x".into()], fitted, ..options }).unwrap_err();
    assert!(format!("{error:#}").contains("the model learnt `y`, and `target` asks for `x`"), "{error:#}");
}

/// A table that is read in many pieces, with everything that columns may become, aside and in memory.
#[test]
fn a_table_aside_has_the_samples_of_one_in_memory() {
    let mut text = String::from("id,x,y,kind,day,part,w\n");
    for i in 0..400 {
        let x = if i % 17 == 5 { String::new() } else { format!("{}.{i}", i * 7 % 23) };
        let kind = ["cat", "dog", "", "bird"][i * 5 % 4];
        text += &format!(
            "r{i},{x},{},{kind},20{:02}-0{}-11,{},{}\n",
            i % 31,
            i % 30,
            1 + i % 9,
            ["train", "val"][i * 3 % 5 % 2],
            i % 4
        );
    }
    let place = Place::new(&text);
    let folder = place.0.path().join("aside");
    let division = |options: &TableOptions, change: &dyn Fn(&mut Division)| {
        let mut options = options.clone();
        change(&mut options.division);
        options
    };
    let plain = TableOptions { bins: Some(4), drop: vec!["part".into(), "w".into()], ..place.options("y") };
    let named =
        TableOptions { id: Some("id".into()), sample_weight: Some("w".into()), drop: Vec::new(), ..plain.clone() };
    let all = [
        plain.clone(),
        division(&plain, &|d| d.hold_out = Some(HoldOut::Fraction(0.3))),
        division(&named, &|d| d.split_column = Some("part".into())),
        division(&named, &|d| (d.hold_out, d.group_column) = (Some(HoldOut::Count(90)), Some("kind".into()))),
        division(&named, &|d| (d.hold_out, d.time_column) = (Some(HoldOut::Count(90)), Some("day".into()))),
        division(&named, &|d| d.fold = Some(Fold { number: 1, of: 3 })),
        division(&TableOptions { classes: true, ..named.clone() }, &|d| d.fold = Some(Fold { number: 2, of: 3 })),
    ];
    for options in all {
        let room = Room { lies: Lies::Aside, folder: Some(folder.clone()) };
        let [here, aside] = [options.clone(), TableOptions { room, ..options }].map(|options| open(&options).unwrap());
        assert_eq!((&here.spec, &here.notes, &here.fingerprint), (&aside.spec, &aside.notes, &aside.fingerprint));
        for (here, aside) in [(&here.train, &aside.train), (&here.val, &aside.val)] {
            assert_eq!(here.len(), aside.len());
            for i in 0..here.len() {
                assert_eq!((here.row(i), here.at(i)), (aside.row(i), aside.at(i)));
                (0..here.fields().len()).for_each(|field| assert_eq!(here.bytes(i, field), aside.bytes(i, field)));
            }
        }
        assert_eq!((here.train.filed_bytes(), aside.train.filed_bytes() > 0), (0, true));
        let taken = here.train.held_bytes() - aside.train.held_bytes();
        assert!(aside.train.filed_bytes() >= taken, "{taken}");
        // On Windows it has one as long as the process keeps what it has found.
        assert!(cfg!(windows) || std::fs::read_dir(&folder).unwrap().count() == 0, "the file has no name");
    }
}

/// A file that changes while it is read is no table any more.
#[test]
fn a_table_that_changes_while_it_is_read_is_an_error() {
    let content: String = (0..200).map(|i| format!("{i},{}\n", i % 7)).collect();
    let place = Place::new(&format!("x,y\n{content}"));
    let path = place.0.path().join("t.csv");
    let sheet = open_sheet(&path, Format::default()).unwrap();
    let rows = |sheet: &super::super::sheet::Sheet| {
        let mut rows = 0;
        sheet.each_cells(&[0], |_, _| {
            rows += 1;
            Ok(())
        })?;
        Ok::<usize, anyhow::Error>(rows)
    };
    assert_eq!(rows(&sheet).unwrap(), 200);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(300).unwrap();
    let error = rows(&sheet).unwrap_err().to_string();
    assert!(error.contains("t.csv` has changed since it was looked at"), "{error}");
}

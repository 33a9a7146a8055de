//! Samples of several rows of a series.

use super::super::super::field::{Field, TARGETS};
use super::super::*;
use super::{Place, open};
use crate::data::HoldOut;

/// Two series in no order: `b` has what `a` has ten times, and `a` is a row longer.
const SHOPS: &str = "shop,day,sold,cost,open
b,2026-01-02,20,2,yes
a,2026-01-01,1,1,yes
a,2026-01-04,4,4,no
b,2026-01-01,10,1,yes
a,2026-01-03,3,3,yes
b,2026-01-04,40,4,no
b,2026-01-03,30,3,yes
a,2026-01-02,2,2,yes
a,2026-01-05,5,5,yes
";

/// Windows of two rows, and one row after them.
fn options(place: &Place, target: &[&str]) -> TableOptions {
    let plain = Encoding::Number { scaling: Scaling::None, fill: Fill::Zero, bins: 8 };
    let rule = |name: &str| Rule { pattern: name.into(), choice: Choice::Encode(plain) };
    let own = place.options(target[0]);
    TableOptions {
        target: target.iter().map(|name| (*name).to_owned()).collect(),
        standardize_target: false,
        rules: ["sold", "cost"].map(rule).to_vec(),
        windows: Some(WindowsOptions { rows: 2, horizon: 1, stride: 1, series: Some("shop".into()) }),
        division: Division { time_column: Some("day".into()), ..own.division.clone() },
        ..own
    }
}

/// What sample `i` has of field number `field`.
fn numbers(split: &Split, i: usize, field: usize) -> Vec<f32> {
    let mut bytes = Vec::new();
    split.identify(i, field, &mut |more| bytes.extend_from_slice(more));
    bytes.as_chunks().0.iter().map(|number| f32::from_ne_bytes(*number)).collect()
}

fn all(split: &Split, field: usize) -> Vec<Vec<f32>> {
    (0..split.len()).map(|i| numbers(split, i, field)).collect()
}

/// The error of a table with these options.
fn fault(options: &TableOptions) -> String {
    format!("{:#}", open(options).map(|_| ()).unwrap_err())
}

#[test]
fn a_sample_is_rows_of_one_series_in_their_order_and_what_comes_next() {
    let place = Place::new(SHOPS);
    let set = open(&options(&place, &["sold"])).unwrap();
    // `sold`, `cost` and whether the shop is open; neither the series nor its days.
    let [inputs, target] = &set.spec.fields[..] else { panic!("{:?}", set.spec.fields) };
    assert_eq!((inputs.shape.dims(), target.shape.dims()), (&[2, 3][..], &[1][..]));
    // In the order of the table by their last rows: `b` of the second day first.
    let windows = [
        [20., 2., 1., 10., 1., 1., 30.],
        [3., 3., 1., 2., 2., 1., 4.],
        [30., 3., 1., 20., 2., 1., 40.],
        [2., 2., 1., 1., 1., 1., 3.],
        [4., 4., 0., 3., 3., 1., 5.],
    ];
    let mut expected: Vec<Vec<f32>> = windows.iter().map(|w| [&w[3..6], &w[..3], &w[6..]].concat()).collect();
    let mut got: Vec<Vec<f32>> =
        all(&set.train, 0).into_iter().zip(all(&set.train, 1)).map(|(x, y)| [x, y].concat()).collect();
    expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
    got.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(got, expected);
    assert_eq!(set.train.name(0).unwrap(), "line 2", "the row of a sample is the last of its window");
}

#[test]
fn several_rows_of_several_columns_are_learnt_column_by_column() {
    let place = Place::new(SHOPS);
    let own = TableOptions { standardize_target: true, ..options(&place, &["sold", "cost"]) };
    let windows = Some(WindowsOptions { rows: 1, horizon: 3, stride: 1, series: Some("shop".into()) });
    let own = TableOptions { windows, ..own };
    let set = open(&own).unwrap();
    let targets = all(&set.train, 1);
    assert!(targets.contains(&vec![2., 3., 4., 2., 3., 4.]) && targets.contains(&vec![20., 30., 40., 2., 3., 4.]));
    assert_eq!(targets.len(), 3);
    let field = &set.spec.fields[1];
    assert_eq!((field.shape.dims(), &field.name[..]), (&[6][..], TARGETS));
    // The mean of each column stands for each of its rows.
    let mean = &field.standard.as_ref().unwrap().mean;
    assert_eq!(mean[..3], [mean[0]; 3]);
    assert_eq!((mean[3..].to_vec(), (mean[0] - 115.0 / 9.0).abs() < 1e-5), (vec![25.0 / 9.0; 3], true));
    let names = TableCodec::of(&set.spec).unwrap().answers_named();
    assert_eq!(names, ["sold_1", "sold_2", "sold_3", "cost_1", "cost_2", "cost_3"]);
}

/// The rows after a window say which part it is of; a window between two parts is of none. What is fitted is of the rows of training.
#[test]
fn no_window_of_training_learns_a_row_that_is_held_out() {
    let rows: String = (0..40).map(|i| format!("{i},{}\n", if i < 30 { i } else { 1000 })).collect();
    let place = Place::new(&format!("t,y\n{rows}"));
    let own = place.options("y");
    let with = |time: Option<&str>| TableOptions {
        windows: Some(WindowsOptions { rows: 4, horizon: 3, stride: 1, series: None }),
        division: Division {
            hold_out: Some(HoldOut::Count(10)),
            time_column: time.map(str::to_owned),
            ..own.division.clone()
        },
        drop: if time.is_none() { vec!["t".into()] } else { Vec::new() },
        ..own.clone()
    };
    for options in [with(Some("t")), with(None)] {
        let set = open(&options).unwrap();
        // Windows end with the rows 3 to 26, and 29 to 36.
        assert_eq!((set.train.len(), set.val.len()), (24, 8));
        assert!(all(&set.train, 1).iter().flatten().all(|y| *y < 30.0));
        assert!(all(&set.val, 1).iter().flatten().all(|y| *y == 1000.0));
        let standard = set.spec.fields[1].standard.clone().unwrap();
        assert_eq!(standard.mean, [14.5; 3]);
        // Rows of training stand in the windows of those that are held out.
        assert!(numbers(&set.val, 0, 0).iter().all(|x| x.abs() < 2.0));
    }
    // Of each series the same part, where no column has times.
    let rows: String = (0..40).map(|i| format!("{},{i}\n", ["a", "b"][usize::from(i >= 30)])).collect();
    let place = Place::new(&format!("s,y\n{rows}"));
    let own = place.options("y");
    let windows = Some(WindowsOptions { rows: 2, horizon: 1, stride: 1, series: Some("s".into()) });
    let division = Division { hold_out: Some(HoldOut::Fraction(0.2)), ..own.division.clone() };
    let set = open(&TableOptions { windows, division, ..own }).unwrap();
    assert_eq!(all(&set.val, 1).concat(), [24., 25., 26., 27., 28., 29., 38., 39.]);
}

#[test]
fn a_missing_target_is_learnt_of_no_window_and_stands_in_some() {
    let place = Place::new("y\n1\n2\n\"\"\n4\n5\n6\n");
    let windows = Some(WindowsOptions { rows: 2, horizon: 1, stride: 1, series: None });
    let rules = vec![Rule {
        pattern: "y".into(),
        choice: Choice::Encode(Encoding::Number { scaling: Scaling::None, fill: Fill::Zero, bins: 8 }),
    }];
    let set = open(&TableOptions { windows, rules, ..place.options("y") }).unwrap();
    assert_eq!(all(&set.train, 1).concat(), [4., 5., 6.]);
    // Each row has the number, and whether it is missing.
    assert_eq!(all(&set.train, 0), [[2., 0., 0., 1.], [0., 1., 4., 0.], [4., 0., 5., 0.]]);
}

/// The model sees what the target was, and that it was not there: rows without one stand in windows of training.
#[test]
fn a_model_knows_where_the_target_was_missing() {
    let rows: String =
        (0..30).map(|i| format!("{i},{}\n", if i % 5 == 3 { String::new() } else { i.to_string() })).collect();
    let place = Place::new(&format!("t,y\n{rows}"));
    let own = place.options("y");
    let windows = Some(WindowsOptions { rows: 4, horizon: 1, stride: 1, series: None });
    let division =
        Division { time_column: Some("t".into()), hold_out: Some(HoldOut::Count(6)), ..own.division.clone() };
    let set = open(&TableOptions { windows, division, ..own }).unwrap();
    assert_eq!(set.spec.fields[0].shape.dims(), [4, 2]);
    assert!(set.notes.iter().any(|note| note.contains("6 rows without `y` in windows, and not learnt")));
    let path = place.write("new.csv", &format!("t,y\n{rows}"));
    let mut unseen = Unseen::default();
    read_rows(&path, &TableCodec::of(&set.spec).unwrap(), false, &mut unseen).unwrap();
    assert_eq!(unseen.in_words(), [""; 0]);
}

/// Rows are in the order of their instants, whatever clock they are written by: the hour that is there twice in autumn, and two places.
#[test]
fn times_with_a_zone_are_points_in_time() {
    let hours = ["01:00:00+02:00", "02:00:00+02:00", "02:00:00+01:00", "03:00:00+01:00"];
    let rows: String =
        hours.iter().rev().zip((0..4).rev()).map(|(time, y)| format!("2025-10-26T{time},{y}\n")).collect();
    let of = |rows: &str| {
        let place = Place::new(&format!("t,y\n{rows}"));
        let own = place.options("y");
        let windows = Some(WindowsOptions { rows: 3, horizon: 1, stride: 1, series: None });
        let plain = Encoding::Number { scaling: Scaling::None, fill: Fill::Zero, bins: 8 };
        let rules = vec![Rule { pattern: "y".into(), choice: Choice::Encode(plain) }];
        let division = Division { time_column: Some("t".into()), ..own.division.clone() };
        open(&TableOptions { windows, rules, division, standardize_target: false, ..own }).unwrap()
    };
    let set = of(&rows);
    assert_eq!((all(&set.train, 0), all(&set.train, 1)), (vec![vec![0., 1., 2.]], vec![vec![3.]]));
    assert!(!set.notes.iter().any(|note| note.contains("zone")), "the model takes no dates: {:?}", set.notes);
    // The first cell with a zone comes after others, and in another piece than most.
    let apart = "2025-10-26T05:00:00-05:30,2\n2025-10-26T09:00:00,0\n2025-10-26T10:00:00Z,1\n2025-10-26T11:00:00,3\n";
    let set = of(apart);
    assert_eq!((all(&set.train, 0), all(&set.train, 1)), (vec![vec![0., 1., 2.]], vec![vec![3.]]));
    assert_eq!(set.train.series(0), [("t".to_owned(), "2025-10-26T10:30:00".to_owned())]);
}

/// Single precision has no steps between numbers that are far from 0 and close to one another.
#[test]
fn a_target_that_single_precision_cannot_hold_is_noted() {
    let of = |base: f64| {
        let rows: String = (0..40).map(|i| format!("{i},{}\n", base + f64::from(i % 7))).collect();
        open(&Place::new(&format!("x,y\n{rows}")).options("y")).unwrap().notes.join("\n")
    };
    let notes = of(1e9);
    assert!(notes.contains("the target `y` has a mean of 1000000003 and a standard deviation of 1."), "{notes}");
    assert!(notes.contains("steps of 64 there"), "{notes}");
    assert!(!of(1e4).contains("single precision"));
}

#[test]
fn the_class_of_the_next_row_is_learnt() {
    let rows: String = (0..12).map(|i| format!("{i},{}\n", ["red", "green", "blue"][i % 3])).collect();
    let place = Place::new(&format!("t,light\n{rows}"));
    let own = place.options("light");
    let windows = Some(WindowsOptions { rows: 3, horizon: 1, stride: 1, series: None });
    let division = Division { time_column: Some("t".into()), ..own.division.clone() };
    let options = TableOptions { windows, division, ..own };
    let set = open(&options).unwrap();
    let field = &set.spec.fields[1];
    assert_eq!((field.shape.len(), field.kind.classes().unwrap().number), (1, 3));
    assert_eq!(set.spec.fields[0].shape.dims(), [3, 3], "what the light was is a category");
    let mut classes = Vec::new();
    (0..set.train.len()).for_each(|i| assert!(set.train.classes(i, 1, |class| classes.push(class))));
    assert_eq!(classes, [2, 1, 0, 2, 1, 0, 2, 1, 0]);
    let windows = Some(WindowsOptions { rows: 3, horizon: 2, stride: 1, series: None });
    assert!(
        fault(&TableOptions { windows, ..options })
            .contains("`light` is learnt as a class, and `horizon` asks for 2 rows")
    );
}

#[test]
fn a_trained_model_answers_for_the_last_row_of_each_series() {
    let place = Place::new(SHOPS);
    let own = options(&place, &["sold"]);
    let set = open(&own).unwrap();
    let codec = TableCodec::of(&set.spec).unwrap();
    assert_eq!(codec.taken().collect::<Vec<_>>(), ["sold", "cost", "open", "day", "shop"]);
    assert_eq!(TableCodec::read(&codec.written().unwrap()), Some(codec.clone()));
    let path = place.write("new.csv", SHOPS);
    let split = read_rows(&path, &codec, false, &mut Unseen::default()).unwrap();
    assert_eq!((split.len(), split.fields().len()), (2, 1));
    assert_eq!(all(&split, 0), [[30., 3., 1., 40., 4., 0.], [4., 4., 0., 5., 5., 1.]]);
    assert_eq!([split.at(0), split.at(1)], [5, 8]);
    assert_eq!([split.name(0), split.name(1)], [Some("b".to_owned()), Some("a".to_owned())]);
    // The same of rows that come one by one.
    let mut given = Given::new(&codec);
    for line in SHOPS.lines().skip(1) {
        let [shop, day, sold, cost, open] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let cells = [sold, cost, open, day, shop].map(|text| Some(Cell::Text(text.into())));
        given.add(&cells, Some(&Cell::Text(shop.into()))).unwrap();
    }
    let raw = given.raw();
    let bytes: Vec<u8> = all(&split, 0).concat().iter().flat_map(|number| number.to_ne_bytes()).collect();
    assert_eq!(codec.input_bytes(&raw, codec.asked(&raw).unwrap().as_ref()).unwrap(), [bytes]);
    // Too few rows; other windows than were trained on.
    let short = place.write("short.csv", "shop,day,sold,cost,open\na,2026-01-01,1,1,yes\nb,2026-01-01,1,1,yes\n");
    let error = read_rows(&short, &codec, false, &mut Unseen::default()).unwrap_err();
    assert!(
        format!("{error:#}")
            .contains("takes 2 rows of a series one after the other, and the longest of 2 series has 1"),
        "{error:#}"
    );
    let fitted = Some(Box::new(codec));
    let windows = Some(WindowsOptions { rows: 3, horizon: 1, stride: 1, series: Some("shop".into()) });
    let again = TableOptions { fitted, ..own };
    assert_eq!(all(&open(&again).unwrap().train, 0), all(&set.train, 0));
    let error = fault(&TableOptions { windows, ..again });
    assert!(
        error.contains("trained on `window = 2` with `horizon = 1`, and the configuration asks for `window = 3`"),
        "{error}"
    );
}

#[test]
fn series_that_make_no_windows_are_refused_with_the_reason() {
    let of = |content: &str, change: &dyn Fn(&mut TableOptions)| {
        let place = Place::new(content);
        let mut own = options(&place, &["sold"]);
        change(&mut own);
        fault(&own)
    };
    let nothing = |_: &mut TableOptions| ();
    let error = of(&format!("{SHOPS}a,2026-01-03,9,9,yes\n"), &nothing);
    assert!(
        error.contains(
            "row at line 6 and row at line 11 have the same `day` and the same `shop`: a series has one row at a time"
        ),
        "{error}"
    );
    let error = of(SHOPS, &|own| own.windows.as_mut().unwrap().series = None);
    assert!(error.contains("`series_column` names the column"), "{error}");
    let error = of(&format!("{SHOPS}a,,9,9,yes\n"), &nothing);
    assert!(error.contains("row at line 11: `day` is missing, and rows are ordered by it"), "{error}");
    let error = of(&SHOPS.replace("2026-01-0", "day "), &nothing);
    assert!(error.contains("`day` says the order of the rows"), "{error}");
    let error = of(SHOPS, &|own| own.windows.as_mut().unwrap().rows = 5);
    assert!(
        error.contains(
            "no window of 5 rows with the 1 row after it is for training: there are 2 series of at most 5 rows"
        ),
        "{error}"
    );
    let error = of(SHOPS, &|own| own.windows.as_mut().unwrap().series = Some("store".into()));
    assert!(error.contains("`series_column` names a column `store`"), "{error}");
    let category = Encoding::Category { most: 8, least: 1 };
    let error = of(SHOPS, &|own| own.rules.push(Rule { pattern: "day".into(), choice: Choice::Encode(category) }));
    assert!(error.contains("`day` says the order of the rows, and `columns` makes texts of its cells"), "{error}");
    let error = of(&SHOPS.replace("2026-01-0", "176000000000000000"), &nothing);
    assert!(error.contains("the last digits of which are not read"), "{error}");
    let hashed = Rule { pattern: "shop".into(), choice: Choice::Encode(Encoding::Hashed { buckets: 4 }) };
    let error = of(SHOPS, &|own| own.rules.push(hashed.clone()));
    assert!(error.contains("two series may have the same hash"), "{error}");
}

/// What is unusual of the series is said: those that are too short, and steps that are longer than most.
#[test]
fn short_series_and_long_steps_are_noted() {
    let place = Place::new(&format!("{SHOPS}a,2026-02-05,6,6,yes\nc,2026-01-01,7,7,yes\n"));
    let notes = open(&options(&place, &["sold"])).unwrap().notes.join("\n");
    assert!(notes.contains("1 of 3 series have fewer than 3 rows"), "{notes}");
    assert!(
        notes.contains("1 of 8 steps from row to row are longer than 1 day, the usual one, the longest 31 days"),
        "{notes}"
    );
    let notes = open(&options(&Place::new(SHOPS), &["sold"])).unwrap().notes;
    assert!(!notes.iter().any(|note| note.contains("steps")), "{notes:?}");
}

#[test]
fn the_model_takes_series_and_times_where_columns_name_them() {
    let place = Place::new(SHOPS);
    let mut own = options(&place, &["sold"]);
    let category = Encoding::Category { most: 8, least: 1 };
    let date = Encoding::Date { form: None, time_of_day: false };
    own.rules.push(Rule { pattern: "shop".into(), choice: Choice::Encode(category) });
    own.rules.push(Rule { pattern: "day".into(), choice: Choice::Encode(date) });
    let set = open(&own).unwrap();
    // Two shops, five numbers of a date, `sold`, `cost`, `open`.
    assert_eq!(set.spec.fields[0].shape.dims(), [2, 2 + 5 + 3]);
    assert!(set.spec.fields.iter().all(|field: &Field| field.lengths.is_empty()));
    assert_eq!(set.train.len(), 5);
}

/// Two machines, each in a state for six rows; `b` shakes ten times as much.
fn states() -> String {
    let rows = (0..12).map(|i| format!("{i},a,{i},{0}\n{i},b,{i}0,{0}\n", if i < 6 { "idle" } else { "runs" }));
    format!("t,machine,shakes,state\n{}", rows.collect::<String>())
}

#[test]
fn the_target_of_a_window_itself_is_learnt_where_nothing_is_behind_it() {
    let place = Place::new(&states());
    let plain = Encoding::Number { scaling: Scaling::None, fill: Fill::Zero, bins: 8 };
    let own = TableOptions {
        windows: Some(WindowsOptions { rows: 3, horizon: 0, stride: 3, series: Some("machine".into()) }),
        rules: vec![Rule { pattern: "shakes".into(), choice: Choice::Encode(plain) }],
        ..place.options("state")
    };
    let time = Division { time_column: Some("t".into()), ..own.division.clone() };
    let timed = TableOptions { division: time, ..own.clone() };
    let set = open(&timed).unwrap();
    let (train, fields) = (&set.train, &set.spec.fields);
    assert_eq!(fields[0].shape.dims(), [3, 1], "the state is learnt, and the model does not take it");
    assert_eq!(
        all(train, 0),
        [
            [0., 1., 2.],
            [0., 10., 20.],
            [3., 4., 5.],
            [30., 40., 50.],
            [6., 7., 8.],
            [60., 70., 80.],
            [9., 10., 11.],
            [90., 100., 110.]
        ]
    );
    let mut classes = Vec::new();
    (0..train.len()).for_each(|i| assert!(train.classes(i, 1, |class| classes.push(class))));
    assert_eq!(classes, [0, 0, 0, 0, 1, 1, 1, 1]);
    // A trained model answers for all windows, without the target, and where they begin may be another.
    let codec = TableCodec::of(&set.spec).unwrap();
    assert_eq!(TableCodec::read(&codec.written().unwrap()), Some(codec.clone()));
    let new = place.write("new.csv", "t,machine,shakes\n1,c,1\n2,c,2\n3,c,3\n4,c,4\n5,c,5\n6,c,6\n7,c,7\n1,d,1\n");
    let split = read_rows(&new, &codec, false, &mut Unseen::default()).unwrap();
    assert_eq!(all(&split, 0), [[1., 2., 3.], [4., 5., 6.]]);
    let again = TableOptions { fitted: Some(Box::new(codec.clone())), ..timed.clone() };
    assert_eq!(open(&again).unwrap().train.len(), 8);
    let mut each = again.clone();
    each.windows.as_mut().unwrap().stride = 1;
    assert_eq!(open(&each).unwrap().train.len(), 20);
    assert_eq!(codec.windows_by(&each).unwrap().stride, 1);
    // No row of a window of one part is of another: of ten windows each, two are between the parts.
    let mut held = TableOptions { fitted: None, ..each };
    held.division.hold_out = Some(HoldOut::Count(8));
    let set = open(&held).unwrap();
    assert_eq!((set.train.len(), set.val.len()), (2 * 6, 2 * 2));
    assert!(all(&set.train, 0).iter().flatten().all(|shakes| shakes % 10.0 < 8.0 && *shakes < 80.0));
    assert_eq!(all(&set.val, 0), [[8., 9., 10.], [80., 90., 100.], [9., 10., 11.], [90., 100., 110.]]);
    // A row without a target is of no part, and stands in windows.
    let place = Place::new("x,y\n1,\n2,\n3,30\n4,\n5,\n6,60\n");
    let windows = Some(WindowsOptions { rows: 3, horizon: 0, stride: 1, series: None });
    let rules = vec![Rule { pattern: "x".into(), choice: Choice::Encode(plain) }];
    let own = TableOptions { windows, rules, standardize_target: false, ..place.options("y") };
    let set = open(&own).unwrap();
    assert_eq!(
        (all(&set.train, 0).concat(), all(&set.train, 1).concat()),
        (vec![1., 2., 3., 4., 5., 6.], vec![30., 60.])
    );
}

/// Whole machines are held out, and each is so in one of the folds.
#[test]
fn groups_of_series_are_held_out_whole() {
    let rows: String = (1..5).flat_map(|m| (0..6).map(move |t| format!("{t},m{m},{m}{t}\n"))).collect();
    let place = Place::new(&format!("t,machine,y\n{rows}"));
    let own = place.options("y");
    let plain = Encoding::Number { scaling: Scaling::None, fill: Fill::Zero, bins: 8 };
    let machine = || Some("machine".to_owned());
    let own = TableOptions {
        windows: Some(WindowsOptions { rows: 2, horizon: 1, stride: 1, series: machine() }),
        rules: vec![Rule { pattern: "y".into(), choice: Choice::Encode(plain) }],
        standardize_target: false,
        division: Division {
            group_column: machine(),
            time_column: Some("t".into()),
            hold_out: Some(HoldOut::Fraction(0.25)),
            ..own.division.clone()
        },
        ..own
    };
    let machines = |split: &Split| {
        let mut all: Vec<u32> = all(split, 1).concat().iter().map(|y| *y as u32 / 10).collect();
        all.dedup();
        all
    };
    let set = open(&own).unwrap();
    assert_eq!((set.train.len(), set.val.len(), set.spec.fields[0].shape.dims()), (12, 4, &[2, 1][..]));
    assert_eq!((machines(&set.train).len(), machines(&set.val).len()), (3, 1));
    assert!(!machines(&set.train).contains(&machines(&set.val)[0]));
    let mut folds: Vec<u32> = Vec::new();
    for number in 0..4 {
        let division = Division { hold_out: None, fold: Some(Fold { number, of: 4 }), ..own.division.clone() };
        let set = open(&TableOptions { division, ..own.clone() }).unwrap();
        assert_eq!((set.train.len(), set.val.len()), (12, 4));
        folds.extend(machines(&set.val));
    }
    folds.sort_unstable();
    assert_eq!(folds, [1, 2, 3, 4]);
}

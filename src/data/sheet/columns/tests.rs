//! Files of pyarrow, pandas and polars (`scripts/golden/parquet_files.py`), whole and damaged.

use super::super::{FileKind, Form, Format, Limits, Sheet, kind_of};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LIMITS: Limits = Limits { file: 1 << 20, row: 1 << 20 };

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parquet").join(name)
}

fn sheet(path: &Path) -> Result<Sheet> {
    Sheet::open_all(path, |path| kind_of(path, Form::Cells(Format::default())), LIMITS)
}

/// All cells, column by column.
fn cells(sheet: &Sheet, wanted: &[usize]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut all: BTreeMap<String, Vec<String>> =
        wanted.iter().map(|at| (sheet.names()[*at].clone(), Vec::new())).collect();
    sheet.each_cells(wanted, |_, row| {
        for at in wanted {
            all.get_mut(&sheet.names()[*at]).unwrap().push(row[*at].to_owned());
        }
        Ok(())
    })?;
    Ok(all)
}

fn all_cells(path: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let sheet = sheet(path)?;
    cells(&sheet, &sheet.readable())
}

#[test]
fn every_type_is_written_as_in_a_text() {
    let expected: BTreeMap<String, Vec<String>> =
        serde_json::from_slice(&std::fs::read(golden("cells.json")).unwrap()).unwrap();
    assert_eq!(all_cells(&golden("types.parquet")).unwrap(), expected);
    let moments = all_cells(&golden("int96.parquet")).unwrap();
    assert_eq!((&moments["us"], &moments["ns"]), (&expected["us"], &expected["ns"]));
    let sheet = sheet(&golden("types.parquet")).unwrap();
    let kind = |name: &str| sheet.kinds().unwrap()[sheet.column(name).unwrap()].clone();
    for (names, expected) in [
        (&["int8", "uint64", "half", "double", "decimal32", "decimal128", "decimal256"][..], Kind::Number),
        (&["bool"], Kind::Truth),
        (&["text", "large", "view", "category", "uuid", "time32", "time64"], Kind::Text),
        (&["date32", "date64", "ms", "us", "ns", "s"], Kind::Date),
        (&["utc"], Kind::Utc),
        (&["nothing"], Kind::Nothing),
    ] {
        names.iter().for_each(|name| assert_eq!(kind(name), expected, "{name}"));
    }
}

#[test]
fn every_packing_and_encoding_has_the_cells_of_the_text() {
    let expected = all_cells(&golden("houses.csv")).unwrap();
    assert_eq!(expected["price"].len(), 300);
    for name in ["none", "snappy", "gzip", "zstd", "lz4", "pages", "deltas", "lengths", "polars", "pandas"] {
        assert_eq!(all_cells(&golden(&format!("{name}.parquet"))).unwrap(), expected, "{name}");
    }
    let required = all_cells(&golden("required.parquet")).unwrap();
    assert_eq!((&required["rooms"], &required["price"]), (&expected["rooms"], &expected["price"]));
    // Columns of the second file in another order.
    assert_eq!(all_cells(&golden("part-{1,2}.parquet")).unwrap(), expected);
    assert_eq!(all_cells(&golden("part-?.parquet")).unwrap(), expected);
    // What is not asked for is empty.
    let sheet = sheet(&golden("zstd.parquet")).unwrap();
    let (rooms, town) = (sheet.column("rooms").unwrap(), sheet.column("town").unwrap());
    sheet
        .each_cells(&[rooms], |_, row| {
            assert!(!row[rooms].is_empty() && row[town].is_empty());
            Ok(())
        })
        .unwrap();
}

#[test]
fn places_name_file_and_row() {
    let sheet = sheet(&golden("part-?.parquet")).unwrap();
    let mut last = String::new();
    sheet
        .each_cells(&[0], |place, _| {
            last = place.to_string();
            Ok(())
        })
        .unwrap();
    assert!(last.ends_with("part-2.parquet`, row 100"), "{last}");
}

#[test]
fn columns_that_cannot_be_read_are_errors() {
    let error = |name: &str| format!("{:#}", all_cells(&golden(name)).unwrap_err());
    assert!(error("brotli.parquet").contains("the column `x` is packed by Brotli"), "{}", error("brotli.parquet"));
    let nested = sheet(&golden("nested.parquet")).unwrap();
    assert_eq!(nested.names(), ["x", "tags", "place", "raw", "y"]);
    let names: Vec<&str> = nested.readable().into_iter().map(|at| nested.names()[at].as_str()).collect();
    assert_eq!(names, ["x", "y"]);
    for (name, what) in [("tags", "lists or structs"), ("place", "lists or structs"), ("raw", "bytes")] {
        let error = format!("{:#}", cells(&nested, &[nested.column(name).unwrap()]).unwrap_err());
        assert!(error.contains(&format!("the column `{name}`: it has ")) && error.contains(what), "{error}");
    }
    assert!(all_cells(&golden("none-at-all.parquet")).unwrap().values().all(Vec::is_empty));
    let folder = tempfile::tempdir().unwrap();
    for (content, part) in [
        (&b""[..], "is empty"),
        (b"PAR1", "is no Parquet file that can be read"),
        (b"a,b\n1,2\n3,4\n", "is a text, though its name ends with `.parquet`"),
        (b"\x15\0a,b\n1,2\n3,4\n", "is no Parquet file that can be read"),
        // Its footer would have gigabytes.
        (b"PAR1\xff\xff\xff\x7fPAR1", "is no Parquet file that can be read"),
    ] {
        let path = folder.path().join("t.parquet");
        std::fs::write(&path, content).unwrap();
        let error = format!("{:#}", all_cells(&path).unwrap_err());
        assert!(error.contains(part) && error.contains("t.parquet"), "{error}");
    }
    // Known by how it begins.
    std::fs::copy(golden("zstd.parquet"), folder.path().join("data")).unwrap();
    assert_eq!(kind_of(&folder.path().join("data"), Form::Objects), FileKind::Columns);
}

#[test]
fn files_of_one_table_are_alike() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| std::fs::copy(golden(from), folder.path().join(to)).unwrap();
    let error = |pattern: &str| format!("{:#}", sheet(&folder.path().join(pattern)).err().unwrap());
    copy("zstd.parquet", "a1.parquet");
    copy("required.parquet", "a2.parquet");
    assert!(error("a?.parquet").contains("a2.parquet` has no column `area`, which `"), "{}", error("a?.parquet"));
    copy("nested.parquet", "b1.parquet");
    copy("zstd.parquet", "b2.parquet");
    assert!(error("b?.parquet").contains("b2.parquet` has a column `rooms`, which `"), "{}", error("b?.parquet"));
    copy("houses.csv", "c2.csv");
    assert!(error("{a1.parquet,c2.csv}").contains("only one of them is Parquet"), "{}", error("{a1.parquet,c2.csv}"));
    let writer = |name: &str, rows: &str| std::fs::write(folder.path().join(name), rows).unwrap();
    writer("e1.csv", "a,b\n1,2\n");
    writer("e2.csv", "b,a\n4,3\n");
    let expected: BTreeMap<String, Vec<String>> =
        [("a", ["1", "3"]), ("b", ["2", "4"])].map(|(n, v)| (n.to_owned(), v.map(str::to_owned).to_vec())).into();
    assert_eq!(all_cells(&folder.path().join("e?.csv")).unwrap(), expected);
    writer("f1.jsonl", "{\"a\":1}\n");
    writer("f2.jsonl", "{\"b\":4,\"a\":3}\n");
    let cells = all_cells(&folder.path().join("f?.jsonl")).unwrap();
    assert_eq!(
        (&cells["a"][..], &cells["b"][..]),
        (&["1", "3"].map(str::to_owned)[..], &["", "4"].map(str::to_owned)[..])
    );
}

#[test]
fn types_of_several_files_go_together_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: Value| {
        let mut writer = ColumnWriter::new(&["x".to_owned()], std::slice::from_ref(&value)).unwrap();
        writer.add(vec![value]).unwrap();
        std::fs::write(folder.path().join(name), writer.finish().unwrap()).unwrap();
    };
    write("1.parquet", Value::Whole(1));
    write("2.parquet", Value::Double(1.5));
    write("3.parquet", Value::Text("2".into()));
    // Whole numbers and others are numbers alike.
    assert_eq!(all_cells(&folder.path().join("{1,2}.parquet")).unwrap()["x"], ["1", "1.5"]);
    let error = format!("{:#}", all_cells(&folder.path().join("{1,3}.parquet")).unwrap_err());
    assert!(error.contains("3.parquet`: the column `x` has texts, and that of `"), "{error}");
}

#[test]
fn what_is_written_is_read_again() {
    let missing = |of: Value| Value::Missing(Box::new(of));
    let names = ["text", "whole", "single", "double"].map(str::to_owned);
    // More than a group of rows.
    let rows = 70_000;
    let row = |at: i64| match at % 3 {
        0 => vec![
            missing(Value::Text(String::new())),
            missing(Value::Whole(0)),
            missing(Value::Single(0.0)),
            missing(Value::Double(0.0)),
        ],
        _ => vec![
            Value::Text(format!("\"{at}\", ü")),
            Value::Whole(-at),
            Value::Single(0.1 * at as f32),
            Value::Double(0.1 * at as f64),
        ],
    };
    let mut writer = ColumnWriter::new(&names, &row(0)).unwrap();
    let mut bytes = Vec::new();
    for at in 0..rows {
        writer.add(row(at)).unwrap();
        bytes.extend(writer.take());
    }
    assert!(bytes.len() > 1000, "nothing is handed out before the end");
    bytes.extend(writer.finish().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    std::fs::write(&path, bytes).unwrap();
    let cells = all_cells(&path).unwrap();
    for at in 0..rows {
        let as_text = |value: &Value| match value {
            Value::Single(number) => format!("{number:?}"),
            Value::Double(number) => format!("{number:?}"),
            other => other.text(),
        };
        let read: Vec<&str> = names.iter().map(|name| cells[name][at as usize].as_str()).collect();
        assert_eq!(read, row(at).iter().map(as_text).collect::<Vec<_>>());
    }
    let text = || Value::Text("x".into());
    assert!(ColumnWriter::new(&["a".into(), "a".into()], &[text(), text()]).is_err());
    assert!(ColumnWriter::new(&["a".into()], &[text()]).unwrap().add(vec![Value::Whole(1)]).is_err());
}

/// Reads what may be damaged: it has cells, or an error that names the file.
fn survives(path: &Path) {
    if let Err(error) = all_cells(path) {
        let error = format!("{error:#}");
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.parquet");
    for name in ["required.parquet", "nested.parquet"] {
        let whole = std::fs::read(golden(name)).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = format!("{:#}", all_cells(&path).unwrap_err());
            assert!(error.contains("cut.parquet"), "{length}: {error}");
        }
    }
}

/// A table may be of more files than a process may have open.
#[cfg(target_os = "linux")]
#[test]
fn a_file_is_open_only_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("one.parquet");
    let whole = std::fs::read(golden("required.parquet")).unwrap();
    std::fs::write(&path, &whole).unwrap();
    let columns = Columns::open(&path).unwrap();
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    assert_eq!(open.filter(|file| *file == path).count(), 0);
    columns.each(0, &[0], false, |_, _| Ok(())).unwrap();
    std::fs::write(&path, [whole, vec![0]].concat()).unwrap();
    let error = columns.each(0, &[0], false, |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("one.parquet` has changed since"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_do_no_harm(
        name in prop::sample::select(vec!["types", "snappy", "gzip", "zstd", "lz4", "pages", "deltas", "lengths", "polars", "int96"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged.parquet");
        let mut bytes = std::fs::read(golden(&format!("{name}.parquet"))).unwrap();
        for (at, byte, in_footer) in &changes {
            // The footer is a small part of the file, and says where all else is.
            let begin = if *in_footer { bytes.len() - bytes.len() / 4 } else { 0 };
            let at = begin + at.index(bytes.len() - begin);
            bytes[at] = *byte;
        }
        std::fs::write(&path, &bytes).unwrap();
        survives(&path);
    }
}

/// Rows that go into another file, with a column of its own after them.
#[test]
fn a_copy_has_the_types_and_values_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["types", "int96", "required", "zstd", "lz4", "gzip", "pages", "deltas", "lengths", "polars", "pandas"];
    for (name, every) in files.iter().flat_map(|name| [(name, 1), (name, 3)]) {
        let path = golden(&format!("{name}.parquet"));
        let expected = sheet(&path).unwrap();
        let (rows, own) = (all_cells(&path).unwrap(), folder.path().join("copy.parquet"));
        let count = rows.values().next().unwrap().len();
        let taken: Vec<usize> = (0..count).filter(|row| row % every == every - 1).collect();
        let said = |row: usize| vec![Value::Whole(row as i64)];
        let mut writer =
            ColumnWriter::behind(Some(Copied::open(&path).unwrap()), &["said".to_owned()], &said(0)).unwrap();
        // Twice, as if there were two files.
        taken.iter().for_each(|row| writer.add_behind(*row, said(*row)).unwrap());
        writer.go_on(Copied::open(&path).unwrap()).unwrap();
        taken.iter().for_each(|row| writer.add_behind(*row, said(*row)).unwrap());
        std::fs::write(&own, writer.finish().unwrap()).unwrap();

        let fields = Copied::open(&path).unwrap().fields().count();
        let copied = Copied::open(&own).unwrap();
        assert!(copied.fields().take(fields).eq(Copied::open(&path).unwrap().fields()), "{name}");
        let copy = sheet(&own).unwrap();
        assert_eq!(copy.names()[..fields], *expected.names(), "{name}");
        assert_eq!(copy.kinds().unwrap()[..fields], *expected.kinds().unwrap(), "{name}");
        let mut copied = all_cells(&own).unwrap();
        let twice: Vec<usize> = taken.iter().chain(&taken).copied().collect();
        let numbers: Vec<String> = twice.iter().map(usize::to_string).collect();
        assert_eq!(copied.remove("said").unwrap(), numbers, "{name}");
        for (column, cells) in rows {
            let cells: Vec<&String> = twice.iter().map(|row| &cells[*row]).collect();
            assert_eq!(copied[&column].iter().collect::<Vec<_>>(), cells, "{name}, {column}");
        }
    }
    let error = |result: Result<()>| format!("{:#}", result.unwrap_err());
    let nested = error(Copied::open(&golden("nested.parquet")).map(|_| ()));
    assert!(nested.contains("the column `tags` has lists or structs") && nested.contains("--keep-columns"), "{nested}");
    let mut writer = ColumnWriter::behind(
        Some(Copied::open(&golden("zstd.parquet")).unwrap()),
        &["said".to_owned()],
        &[Value::Whole(0)],
    )
    .unwrap();
    let other = error(writer.go_on(Copied::open(&golden("types.parquet")).unwrap()));
    assert!(other.contains("types.parquet` has other columns than `"), "{other}");
    assert!(error(writer.add_behind(300, vec![Value::Whole(0)])).contains("more rows than the file has"));
}

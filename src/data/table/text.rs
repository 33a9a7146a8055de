//! The text of a table: columns that have names, each once.

pub use super::super::sheet::Format;
use super::super::sheet::{COLUMN_ENDINGS, FileKind, Form, Limits, OBJECT_ENDINGS, Sheet, inner_ending, kind_of};
use anyhow::{Result, bail, ensure};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Largest table, and largest row.
const LIMITS: Limits = Limits { file: 1 << 40, row: 16 << 20 };
/// Most columns of a table.
const MAX_COLUMNS: usize = 100_000;

/// Whether a file has the name of a table, by its ending, which may have that of a packed file after it.
pub fn is_table_name(path: &Path) -> bool {
    let ending = inner_ending(path);
    ["csv", "tsv"].iter().chain(&OBJECT_ENDINGS).chain(&COLUMN_ENDINGS).any(|known| *known == ending)
}

/// Whether a file is a table: by its name, or because it begins as Parquet does.
pub fn is_table(path: &Path) -> bool {
    is_table_name(path) || is_parquet(path)
}

/// The form of the rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsAs {
    /// Cells with a separator between them.
    Cells,
    /// A JSON object on each line.
    Objects,
    /// Parquet.
    Columns,
}

impl RowsAs {
    /// That of a file, by its name or by how it begins.
    pub fn of(path: &Path) -> RowsAs {
        match kind_of(path, Form::Cells(Format::default())) {
            FileKind::Written(Form::Objects) => RowsAs::Objects,
            FileKind::Written(Form::Cells(_)) => RowsAs::Cells,
            FileKind::Columns => RowsAs::Columns,
        }
    }

    /// That of a text without a name, by how it begins.
    pub fn of_bytes(bytes: &[u8]) -> RowsAs {
        if bytes.trim_ascii_start().starts_with(b"{") { RowsAs::Objects } else { RowsAs::Cells }
    }
}

/// Whether a file is Parquet, by its name or by how it begins.
pub fn is_parquet(path: &Path) -> bool {
    kind_of(path, Form::Objects) == FileKind::Columns
}

/// Reads the table in `path`, or in all files that it stands for.
///
/// # Errors
/// The file cannot be read, or is no table; columns have no name, or two have the same; of several files one has other columns.
pub fn open(path: &Path, format: Format) -> Result<Sheet> {
    ensure!(
        !is_json(path),
        "`{}` would be read as CSV, and looks like JSON: a table of JSON has an object on each line, and a name that ends in .jsonl",
        path.display()
    );
    checked(Sheet::open_all(path, |path| kind_of(path, Form::Cells(format)), LIMITS)?)
}

/// Whether a file is JSON by its name and by how it begins.
fn is_json(path: &Path) -> bool {
    let mut begin = [0; 64];
    let mut read = || crate::files::open(path).ok()?.file.read(&mut begin).ok();
    inner_ending(path) == "json" && read().is_some() && matches!(begin.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// An error if `table`, which messages call `path`, has no rows.
pub fn expect_rows(table: &Sheet, path: &Path, rows: usize) -> Result<()> {
    let place = if table.has_cells() { " below the line that names its columns" } else { "" };
    ensure!(rows > 0, "`{}` has no rows{place}", path.display());
    Ok(())
}

/// Reads the table in bytes that are CSV, which messages call `path`.
///
/// # Errors
/// As [`open`].
pub fn of_bytes(path: &Path, bytes: Vec<u8>, format: Format) -> Result<Sheet> {
    checked(Sheet::of(path, bytes, Form::Cells(format), LIMITS)?)
}

/// Reads the table that came by standard input: JSON Lines, if it begins with an object, else CSV.
///
/// # Errors
/// As [`open`]; it is Parquet.
pub fn of_input(bytes: Vec<u8>, format: Format) -> Result<Sheet> {
    ensure!(!bytes.starts_with(b"PAR1"), "standard input is Parquet, which is read from files alone: name the file");
    let form = match RowsAs::of_bytes(&bytes) {
        RowsAs::Objects => Form::Objects,
        RowsAs::Cells | RowsAs::Columns => Form::Cells(format),
    };
    checked(Sheet::of(Path::new("-"), bytes, form, LIMITS)?)
}

/// Refuses columns without a name, and two of one name.
fn checked(sheet: Sheet) -> Result<Sheet> {
    let cells = sheet.has_cells();
    let path = sheet.path();
    let (place, columns) = (path.display(), sheet.names().len());
    let (help, line) = if cells { (": is `separator` right?", ", line 1") } else { ("", "") };
    ensure!(columns <= MAX_COLUMNS, "`{place}` has {columns} columns, and at most {MAX_COLUMNS} are read{help}");
    let mut seen = HashMap::new();
    for (at, name) in sheet.names().iter().enumerate() {
        ensure!(
            !name.is_empty(),
            "`{place}`{line}: column {} has no name{}",
            at + 1,
            match cells {
                true if at > 0 && at + 1 == columns =>
                    "; if each line ends with a separator, remove it, or leave the column out under a name",
                true => "; if the table has no line that names its columns, set `header = false`",
                false => "",
            }
        );
        if let Some(before) = seen.insert(name, at) {
            bail!("`{place}`{line}: columns {} and {} have the same name, `{name}`", before + 1, at + 1);
        }
    }
    Ok(sheet)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Format = Format { separator: None, header: true, quote: Some(b'"'), encoding: None };

    fn opened(content: &[u8], name: &str, format: Format) -> Result<Sheet> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        open(&path, format)
    }

    fn rows(text: &Sheet) -> Result<Vec<(u64, Vec<String>)>> {
        let mut all = Vec::new();
        text.each_cells(&text.readable(), |place, row| {
            all.push((place.line, row.iter().map(|cell| (*cell).to_owned()).collect()));
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn separators_quotes_and_marks_are_found() {
        for content in
            [&b"a,b\n1,\"x,y\"\n"[..], b"\xef\xbb\xbfa;b\r\n1;\"x,y\"\r\n", b"a\tb\n\n1\tx,y\n", b"a|b\n1|\"x,y\""]
        {
            let text = opened(content, "t.csv", AUTO).unwrap();
            assert_eq!(text.names(), ["a", "b"]);
            assert_eq!(rows(&text).unwrap()[0].1, ["1", "x,y"]);
        }
        let wide: Vec<u8> = "\u{feff}a,b\n1,ü\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(rows(&opened(&wide, "t.csv", AUTO).unwrap()).unwrap(), [(2, vec!["1".into(), "ü".into()])]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, b"a,b\n3,4\n").unwrap();
        let text = opened(&packed.finish().unwrap(), "t.csv.gz", AUTO).unwrap();
        assert_eq!(rows(&text).unwrap()[0].1, ["3", "4"]);
        let packed = ruzstd::encoding::compress_to_vec(&b"a,b\n3,4\n"[..], ruzstd::encoding::CompressionLevel::Fastest);
        assert_eq!(rows(&opened(&packed, "t.csv.zst", AUTO).unwrap()).unwrap()[0].1, ["3", "4"]);
        let text = opened(b"1,2\n3,4\n", "t.csv", Format { header: false, ..AUTO }).unwrap();
        assert_eq!((text.names(), rows(&text).unwrap().len()), (&["1".to_owned(), "2".to_owned()][..], 2));
    }

    #[test]
    fn other_quotes_and_encodings_are_read_as_the_options_say() {
        let single = Format { quote: Some(b'\''), ..AUTO };
        let cells = |content: &[u8], format| rows(&opened(content, "t.csv", format).unwrap()).unwrap().remove(0).1;
        assert_eq!(cells(b"a;'b;c'\n'1;''x''';\"2\n", single), ["1;'x'", "\"2"]);
        // Without quotes every line is a row, whatever is in it.
        let none = Format { quote: None, ..AUTO };
        let text = opened(b"a,b\n\"1,2\n3,x\" y\n", "t.csv", none).unwrap();
        assert_eq!(rows(&text).unwrap()[0].1, ["\"1", "2"]);
        assert_eq!(rows(&text).unwrap().len(), 2);
        let error = opened(b"a,b\n'1,2\n", "t.csv", single).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("line 2, column 1: a quote opens here"), "{error}");
        let western = Format { encoding: Some(encoding_rs::WINDOWS_1252), ..AUTO };
        assert_eq!(cells(b"a;b\ncaf\xe9;\x80\n", western), ["caf\u{e9}", "\u{20ac}"]);
    }

    #[test]
    fn objects_are_rows() {
        let content = b"{\"a\":1.50,\"b\":\" x \"}\n\n{\"c\":true,\"a\":null}\n";
        let text = opened(content, "t.jsonl", AUTO).unwrap();
        assert_eq!((text.names(), text.decimal(',')), (&["a", "b", "c"].map(str::to_owned)[..], '.'));
        let expected =
            [(1, ["1.5", "x", ""]), (3, ["", "", "true"])].map(|(line, row)| (line, row.map(str::to_owned).to_vec()));
        assert_eq!(rows(&text).unwrap(), expected);
    }

    #[test]
    fn faults_have_their_places() {
        let fault = |content: &[u8]| {
            let text = opened(content, "t.csv", AUTO);
            text.and_then(|text| rows(&text)).unwrap_err().to_string()
        };
        for (content, part) in [
            (&b""[..], "is empty"),
            (b"\n \n", "is empty"),
            (b"a,b\n1,2\n\"3,4\n5,6\n", "line 3, column 1: a quote opens here"),
            (b"a,b\n1,2,3\n", "line 2 has 3 cells, and the table has 2 columns"),
            (b"a,b\r\n1,2\r\n3\r\n", "line 3 has 1 cell, and the table has 2 columns"),
            (b"# mine\na,b\n1,2\n", "if `# mine` in line 1 names no column, remove that line"),
            (b"a,,b\n1,2,3\n", "column 2 has no name; if the table has no line"),
            (b"a,b,\n1,2,\n", "column 3 has no name; if each line ends with a separator"),
            (b",,b\n1,2,3\n", "column 1 has no name"),
            (b"sep=;\na;b\n1;2\n", "line 1 is `sep=;`, which a spreadsheet reads"),
            (b"a,b,a\n1,2,3\n", "columns 1 and 3 have the same name, `a`"),
            (b"a,b\n1,\xff\n", "line 2: the byte 0xff is not UTF-8"),
            (b"a,b\n1,\0\n", "line 2 has a zero byte"),
        ] {
            assert!(fault(content).contains(part), "{part}: {}", fault(content));
        }
        for (content, part) in [
            (&b"{\"a\":1}\n{\"a\":[1]}\n"[..], "line 2: `a` is a list or an object"),
            (b"{\"a\":1}\n{\"a\":1,}\n", "line 2, column 8: no JSON object"),
            (b"{}\n", "it has no columns"),
            (b"{\"\":1,\"b\":2}\n", "column 1 has no name"),
        ] {
            let error = opened(content, "t.ndjson", AUTO).and_then(|text| rows(&text)).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

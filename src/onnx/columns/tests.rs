//! Graphs of columns, computed here by plain loops: they give the numbers that the codecs give.

use crate::config;
use crate::data::table::{Cells, Codec, TableCodec, read_text};
use crate::onnx::tests::{dims, exported};
use crate::onnx::{Options, proto};
use crate::train::setup::input::describe;
use proto::DataType;
use std::collections::HashMap;
use std::fmt::Write as _;

const INSIDE: Options = Options { softmax: false, preprocess: true };

/// A value of the graph: a matrix, of which a list is one row.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    cells: Vec<Cell>,
}

#[derive(Clone, Debug)]
enum Cell {
    /// Also a truth: 1 or 0.
    Number(f64),
    Text(String),
}

impl Cell {
    fn number(&self) -> f64 {
        match self {
            Cell::Number(number) => *number,
            Cell::Text(text) => panic!("`{text}` is no number"),
        }
    }
}

impl Matrix {
    fn columns(&self) -> usize {
        self.cells.len() / self.rows
    }

    fn at(&self, row: usize, column: usize) -> &Cell {
        &self.cells[row.min(self.rows - 1) * self.columns() + column.min(self.columns() - 1)]
    }

    fn numbers(&self) -> Vec<f64> {
        self.cells.iter().map(Cell::number).collect()
    }

    /// What comes of the cells in each place of matrices of which some have one row or one column for all.
    fn each(operands: &[&Matrix], of: impl Fn(&[&Cell]) -> Cell) -> Matrix {
        let rows = operands.iter().map(|m| m.rows).max().unwrap();
        let columns = operands.iter().map(|m| m.columns()).max().unwrap();
        let fits = |m: &&Matrix| [1, rows].contains(&m.rows) && [1, columns].contains(&m.columns());
        assert!(operands.iter().all(fits));
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let cells = places.map(|(row, column)| of(&operands.iter().map(|m| m.at(row, column)).collect::<Vec<_>>()));
        Matrix { rows, cells: cells.collect() }
    }

    fn of_columns(rows: usize, columns: usize, of: impl Fn(usize, usize) -> Cell) -> Matrix {
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Matrix { rows, cells: places.map(|(row, column)| of(row, column)).collect() }
    }
}

fn constant(tensor: &proto::Tensor) -> Matrix {
    let data = tensor.raw_data.as_deref().unwrap_or_default();
    let cells = match tensor.data_type() {
        DataType::Int64 => data.as_chunks().0.iter().map(|b| Cell::Number(i64::from_le_bytes(*b) as f64)).collect(),
        DataType::Double => data.as_chunks().0.iter().map(|b| Cell::Number(f64::from_le_bytes(*b))).collect(),
        DataType::Float => data.as_chunks().0.iter().map(|b| Cell::Number(f32::from_le_bytes(*b).into())).collect(),
        DataType::String => {
            tensor.string_data.iter().map(|text| Cell::Text(String::from_utf8(text.clone()).unwrap())).collect()
        }
        other => panic!("{other:?}"),
    };
    Matrix { rows: 1, cells }
}

/// The result of a node.
fn computed(node: &proto::Node, operands: &[&Matrix]) -> Matrix {
    let attribute = |name: &str| node.attribute.iter().find(|attribute| attribute.name() == name);
    let one = |f: fn(f64) -> f64| Matrix::each(operands, |cells| Cell::Number(f(cells[0].number())));
    let two =
        |f: fn(f64, f64) -> f64| Matrix::each(operands, |cells| Cell::Number(f(cells[0].number(), cells[1].number())));
    let x = operands[0];
    match node.op_type() {
        "IsNaN" => one(|x| x.is_nan().into()),
        "Not" => one(|x| 1.0 - x),
        "Abs" => one(f64::abs),
        "Sign" => one(|x| if x == 0.0 { 0.0 } else { x.signum() }),
        "Neg" => one(|x| -x),
        "Log" => one(f64::ln),
        "Sqrt" => one(f64::sqrt),
        "Floor" => one(f64::floor),
        "Sin" => one(f64::sin),
        "Add" => two(|a, b| a + b),
        "Sub" => two(|a, b| a - b),
        "Mul" => two(|a, b| a * b),
        "Div" => two(|a, b| a / b),
        "Mod" => two(|a, b| a % b),
        "Max" => two(f64::max),
        "Min" => two(f64::min),
        "Equal" => two(|a, b| (a == b).into()),
        "Less" => two(|a, b| (a < b).into()),
        "LessOrEqual" => two(|a, b| (a <= b).into()),
        "Greater" => two(|a, b| (a > b).into()),
        "Clip" => {
            Matrix::each(operands, |cells| Cell::Number(cells[0].number().clamp(cells[1].number(), cells[2].number())))
        }
        "Where" => Matrix::each(operands, |cells| cells[if cells[0].number() == 1.0 { 1 } else { 2 }].clone()),
        "Cast" => Matrix::each(operands, |cells| match (attribute("to").unwrap().i(), cells[0]) {
            (1, cell) => Cell::Number((cell.number() as f32).into()),
            (11, Cell::Text(text)) => Cell::Number(text.parse().unwrap()),
            (11, cell) => cell.clone(),
            other => panic!("{other:?}"),
        }),
        "Concat" => {
            let columns: Vec<(&Matrix, usize)> =
                operands.iter().flat_map(|m| (0..m.columns()).map(move |column| (*m, column))).collect();
            Matrix::of_columns(x.rows, columns.len(), |row, at| columns[at].0.at(row, columns[at].1).clone())
        }
        "Slice" => {
            let [start, end, axis] = [1, 2, 3].map(|i| operands[i].numbers()[0] as usize);
            assert_eq!(axis, 1);
            Matrix::of_columns(x.rows, end - start, |row, at| x.at(row, start + at).clone())
        }
        "Gather" if attribute("axis").is_some_and(|axis| axis.i() == 1) => {
            let places = operands[1].numbers();
            Matrix::of_columns(x.rows, places.len(), |row, at| x.cells[row * x.columns() + places[at] as usize].clone())
        }
        "Gather" => Matrix::each(&operands[1..], |cells| x.cells[cells[0].number() as usize].clone()),
        "LabelEncoder" => {
            assert_eq!(node.domain(), "ai.onnx.ml");
            let keys = &attribute("keys_strings").unwrap().strings;
            let value = |at: Option<usize>| match (attribute("values_int64s"), at) {
                (Some(values), Some(at)) => values.ints[at] as f64,
                (Some(_), None) => attribute("default_int64").unwrap().i() as f64,
                (None, Some(at)) => attribute("values_floats").unwrap().floats[at].into(),
                (None, None) => attribute("default_float").unwrap().f().into(),
            };
            let distinct: std::collections::HashSet<_> = keys.iter().collect();
            assert_eq!(distinct.len(), keys.len(), "a key stands for one value");
            Matrix::each(operands, |cells| match cells[0] {
                Cell::Text(text) => Cell::Number(value(keys.iter().position(|key| key == text.as_bytes()))),
                other => panic!("{other:?} is no text"),
            })
        }
        other => panic!("{other}"),
    }
}

/// What the first layer is given.
fn features(graph: &proto::Graph, inputs: HashMap<String, Matrix>) -> Matrix {
    let mut known = inputs;
    known.extend(graph.initializer.iter().filter(|t| t.name().starts_with("constant/")).map(|t| {
        let matrix = constant(t);
        (t.name().to_owned(), matrix)
    }));
    let of_columns = graph.node.iter().take_while(|node| node.name().starts_with("columns/"));
    let mut last = String::new();
    for node in of_columns {
        let result = computed(node, &node.input.iter().map(|name| &known[name]).collect::<Vec<_>>());
        last.clone_from(&node.output[0]);
        known.insert(last.clone(), result);
    }
    known.remove(&last).unwrap()
}

/// A table of a trained model, with the layers after it.
struct Table {
    codec: TableCodec,
    model: proto::Model,
}

impl Table {
    fn new(data: &str, train: &str) -> Table {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.csv"), train).unwrap();
        let text = format!(
            "[data]\nsource = 'csv'\npath = '{}/train.csv'\ntarget = 'target'\n{data}\n\
             [model]\nlayers = [{{ type = 'linear', out_features = 1 }}]\n[loss]\ntype = 'mse'\n\
             [optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n",
            folder.path().display()
        );
        let experiment = config::load_str("table.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).experiment;
        let codec = TableCodec::of(&describe(&experiment).unwrap()).unwrap();
        let model = exported(&experiment, INSIDE).unwrap_or_else(|e| panic!("{e:?}"));
        Table { codec, model }
    }

    fn said(&self, key: &str) -> String {
        let entry = self.model.metadata_props.iter().find(|entry| entry.key() == key);
        entry.unwrap_or_else(|| panic!("{key}")).value().to_owned()
    }

    /// Each cell of `text` becomes what the codec makes of it; how many numbers there are.
    fn agrees_on(&self, text: &str) -> usize {
        let raw = read_text("new.csv", text.as_bytes().to_vec(), &self.codec, usize::MAX).unwrap();
        let wanted = self.codec.inputs(&raw).unwrap();
        let (rows, width) = (raw.rows(), self.codec.width());
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let lines: Vec<_> = lines.collect();
        let graph = self.model.graph.as_ref().unwrap();
        let mut inputs = HashMap::new();
        for ((places, column), input) in self.codec.placed().zip(&graph.input) {
            let of_sample = |row: usize| &wanted[row * width..][places.clone()];
            let matrix = match (column.codec(), &*raw.column(&column.name).unwrap()) {
                (Codec::Category { .. } | Codec::Boolean, _) => {
                    let at = header.iter().position(|name| *name == column.name).unwrap();
                    Matrix::of_columns(rows, 1, |row, _| Cell::Text(lines[row][at].to_owned()))
                }
                (Codec::Hashed { buckets, .. } | Codec::Text(crate::data::table::Words { buckets, .. }), cells) => {
                    let number = |row: usize, at: usize| match cells.is_missing(row as u32) {
                        true => f64::NAN,
                        false => of_sample(row)[at].into(),
                    };
                    Matrix::of_columns(rows, *buckets, |row, at| Cell::Number(number(row, at)))
                }
                (_, Cells::Numbers(values)) => Matrix::of_columns(rows, 1, |row, _| Cell::Number(values[row])),
                (codec, _) => panic!("{codec:?} reads texts"),
            };
            assert_eq!(dims(input)[1], matrix.columns().to_string(), "{}", column.name);
            inputs.insert(input.name().to_owned(), matrix);
        }
        let found = features(graph, inputs);
        assert_eq!((found.rows, found.columns()), (rows, width));
        for (row, line) in lines.iter().enumerate() {
            for (places, column) in self.codec.placed() {
                for place in places {
                    let (got, want) = (found.at(row, place).number() as f32, wanted[row * width + place]);
                    // Logarithms and sines are computed in another way.
                    let near = f32::EPSILON * want.abs().max(1.0);
                    let exact = !matches!(
                        column.codec(),
                        Codec::Standardize { log: true, .. } | Codec::Quantile { .. } | Codec::Date { .. }
                    );
                    let agrees = if exact { got == want } else { (got - want).abs() <= near };
                    assert!(agrees, "{}, place {place} of row {row}: {got} for {want}, {line:?}", column.name);
                }
            }
        }
        wanted.len()
    }
}

const COLUMNS: &str = "standardize_target = false\nvalidation_split = 0.25\n[data.columns]\n\
    standard = 'number'\nmean = { type = 'number', missing = 'mean' }\nplain = { type = 'number', scaling = 'none', missing = 'zero' }\n\
    log = { type = 'number', scaling = 'log' }\nquantile = { type = 'number', scaling = 'quantile' }\n\
    ties = { type = 'number', scaling = 'quantile' }\nbins = { type = 'number', scaling = 'piecewise_linear', bins = 4 }\n\
    few = { type = 'number', scaling = 'piecewise_linear', bins = 2 }\n\
    rare = { type = 'category', max_categories = 3, min_count = 2 }\nflag = 'boolean'\n\
    hashed = { type = 'category', hash_buckets = 5 }\nwords = { type = 'text', hash_buckets = 6 }\nmoment = { type = 'date', time_of_day = true }\n";
const HEADER: &str =
    "date,standard,mean,town,plain,log,rare,quantile,hashed,ties,bins,flag,few,words,moment,zeros,target\n";

/// Rows in which all columns have some cells that are missing, but for the first few.
fn rows(count: usize, new: bool) -> String {
    let mut text = HEADER.to_owned();
    for i in 0..count {
        let missing =
            |every: usize, cell: String| if i % every == every - 1 { ["", "NA", "?"][i % 3].into() } else { cell };
        let far = if new && i % 4 == 0 { 1e4 } else { 1.0 };
        let number = |step: usize, modulo: usize| ((i * step) % modulo) as f64 - modulo as f64 / 3.0;
        let towns = ["sea", "hill", "größe", "a b"];
        let town = if new && i % 5 == 0 { "moon" } else { towns[i * 7 % 4] };
        let rare = if i % 6 == 0 { format!("r{i}") } else { ["x", "y", "z"][i % 3].to_owned() };
        let flags: &[&str] =
            if new { &["TRUE", "yEs", "n", "False", "0", "1", "-2.5", "0.0"] } else { &["true", "False", "Yes", "no"] };
        let (month, day) = (1 + i * 5 % 12, 1 + i * 11 % 28);
        let cells = [
            format!("{}-{month:02}-{day:02}", 1890 + i * 37 % 250),
            format!("{}", far * number(17, 101)),
            missing(7, format!("{}", far * number(13, 97) * 0.1)),
            missing(9, town.to_owned()),
            missing(if new { 5 } else { usize::MAX }, format!("{}", number(3, 7) * 1e-3)),
            format!("{}", (far * number(29, 103)).powi(3) * 1e-4),
            missing(if new { 4 } else { usize::MAX }, rare),
            missing(10, format!("{}", far * number(31, 89))),
            missing(5, format!("u{}", i * 13 % 50)),
            missing(8, format!("{}", i * 5 % 4 + usize::from(far > 1.0) * 9)),
            missing(11, format!("{}", far * number(5, 31))),
            missing(6, flags[i * 3 % flags.len()].to_owned()),
            format!("{}", i % 2),
            missing(12, ["one two", "two three two", "", "four"][if i % 4 == 2 { 0 } else { i % 4 }].to_owned()),
            missing(13, format!("20{:02}-{month:02}-{day:02} 17:{:02}:30", i % 30, i % 60)),
            ["0.0", "-0.0", "1.5", "x"][i % 4].to_owned(),
            format!("{}", number(7, 11)),
        ];
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

#[test]
fn every_codec_is_in_the_graph() {
    let train = rows(120, false);
    let table = Table::new(COLUMNS, &train);
    let kinds: Vec<bool> = table.codec.columns.iter().map(|column| column.has_indicator()).collect();
    assert!(kinds.contains(&true) && kinds.contains(&false));
    assert_eq!(table.agrees_on(&train), 120 * table.codec.width());
    table.agrees_on(&rows(90, true));
    let graph = table.model.graph.as_ref().unwrap();
    // Columns of a kind are computed together.
    let nodes = |op: &str| graph.node.iter().filter(|node| node.op_type() == op).count();
    assert_eq!((nodes("LabelEncoder"), nodes("IsNaN"), nodes("Log"), nodes("Sin")), (4, 2, 2, 2));
}

/// Every year's first and last day, and its middle.
#[test]
fn all_years_are_known() {
    let header = "date,other,target\n";
    let table = Table::new(
        "validation_split = 0.5",
        &format!("{header}2024-02-29,1,1\n1970-01-01,2,2\n2001-01-02,4,3\n1999-12-31,3,4\n"),
    );
    let years =
        (0..=9999).map(|year| format!("{year:04}-01-01,1,1\n{year:04}-07-01 12:30:59.5,1,1\n{year:04}-12-31,1,1\n"));
    table.agrees_on(&years.fold(header.to_owned(), |text, year| text + &year));
}

/// Columns of which the training rows have nothing, or always the same.
#[test]
fn what_training_lacks_is_no_obstacle() {
    let header = "part,q,bins,town,empty,other,target\n";
    let train =
        format!("{header}train,3,3,,,1,1\ntrain,3,3,,,2,2\ntrain,3,3,,,4,3\nval,1,1,sea,7,3,4\nval,9,9,hill,8,3,4\n");
    let data = "split_column = 'part'\ncolumns = { q = { type = 'number', scaling = 'quantile' }, \
                bins = { type = 'number', scaling = 'piecewise_linear' }, empty = { type = 'number', scaling = 'quantile' } }";
    let table = Table::new(data, &train);
    assert_eq!(table.codec.columns.len(), 5, "{:?}", table.codec.columns);
    table.agrees_on(&train);
    // The other way round: nothing is missing, and a text has no place.
    let train = format!("{header}train,3,3,sea,1,1,1\ntrain,3,3,sea,2,2,2\nval,1,1,,,3,4\nval,9,9,hill,8,3,4\n");
    let table = Table::new(data, &train);
    assert!(table.codec.columns.iter().all(|column| !column.has_indicator()));
    table.agrees_on(&train);
}

/// What the file says of its inputs, and what they are called.
#[test]
fn inputs_have_the_names_of_columns() {
    let train = "output,0.weight,größe / m²,day,user,text,flag,target\nx,1,2.5,2024-01-01,a,good day,yes,1\ny,2,1.5,2024-01-02,b,bad day,no,2\n\
                 x,3,0.5,2024-01-03,c,no day,yes,3\n";
    let data = "validation_split = 0.3\ncolumns = { user = { type = 'category', hash_buckets = 3 }, text = { type = 'text', hash_buckets = 4, norm = 'none' } }";
    let table = Table::new(data, train);
    table.agrees_on(train);
    let graph = table.model.graph.as_ref().unwrap();
    let shown = |info: &proto::ValueInfo| {
        let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).unwrap();
        format!("{} {:?} {}", info.name(), tensor.elem_type(), dims(info).join(" "))
    };
    // A parameter has the name `0.weight`, and a column that of the output, which keeps it.
    assert_eq!(
        graph.input.iter().map(shown).collect::<Vec<_>>(),
        [
            "output_1 String batch 1",
            "0.weight_1 Double batch 1",
            "größe / m² Double batch 1",
            "day Double batch 1",
            "user Float batch 3",
            "text Float batch 4",
            "flag String batch 1",
        ]
    );
    assert_eq!(shown(&graph.output[0]), "output Float batch 1");
    assert_eq!(table.said("targets"), r#"["target"]"#);
    assert_eq!((table.said("preprocess").as_str(), table.said("output").as_str()), ("inside", "values"));
    assert!(table.model.metadata_props.iter().all(|entry| entry.key() != "columns"));
    let inputs: serde_json::Value = serde_json::from_str(&table.said("inputs")).unwrap();
    assert_eq!(
        inputs,
        serde_json::json!({
            "output_1": { "column": "output", "type": "category", "missing": "" },
            "0.weight_1": { "column": "0.weight", "type": "number", "missing": "NaN" },
            "größe / m²": { "column": "größe / m²", "type": "number", "missing": "NaN" },
            "day": { "column": "day", "type": "date", "missing": "NaN", "unit": "days since 1970-01-01" },
            "user": { "column": "user", "type": "hashed", "missing": "NaN", "buckets": 3, "plain": true },
            "text": { "column": "text", "type": "text", "missing": "NaN", "buckets": 4, "norm": "none", "alternate_sign": true },
            "flag": { "column": "flag", "type": "boolean", "missing": "" },
        })
    );
    let versions = |table: &Table| -> Vec<(String, i64)> {
        let sets = table.model.opset_import.iter();
        sets.map(|set| (set.domain().to_owned(), set.version())).collect()
    };
    assert_eq!(versions(&table), [(String::new(), 18), ("ai.onnx.ml".into(), 3)]);
    // Numbers need the operators of ONNX itself alone.
    let table = Table::new("validation_split = 0.5", "a,target\n1,1\n2,2\n3,3\n4,4\n");
    assert_eq!(versions(&table), [(String::new(), 18)]);
}

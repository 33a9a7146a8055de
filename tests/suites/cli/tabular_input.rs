//! Tables whose categories have vectors, and the table form of `validation_split`.

use super::support::Place;
use serde_json::Value;

const CONFIG: &str = r#"device = "cpu"
seed = 3
[data]
source = "csv"
path = "t.csv"
target = "y"
columns = { kind = { type = "category", embedding = 4 }, "*" = { type = "number", missing = "median", scaling = "none" } }
drop = ["id"]
validation_split = { fraction = 0.25, stratify = "kind" }
batch_size = 8
standardize_target = false
[model]
layers = ["tabular_input", { type = "linear", out_features = 8 }, "relu", { name = "out", type = "linear", out_features = 1 }]
[loss]
type = "mse"
[optimizer]
type = "adam"
lr = 0.01
[train]
epochs = 2
"#;

/// Sixteen rows of each of three kinds.
fn table() -> String {
    let row = |i: usize| format!("{i},{},{},{}\n", ["ash", "elm", "oak"][i % 3], (i * 7 % 11) as f32 / 4.0, i % 3 * 10);
    format!("id,kind,x,y\n{}", (0..48).map(row).collect::<String>())
}

fn place() -> Place {
    let place = Place::with(CONFIG);
    place.write("t.csv", table());
    place
}

/// A product as PyTorch's linear layer has it: `x · Wᵀ + b`.
fn linear(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let row = |(row, bias): (&[f32], &f32)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + bias;
    weight.chunks(x.len()).zip(bias).map(row).collect()
}

#[test]
fn categories_have_vectors_of_the_width_that_their_column_asks_for() {
    let place = place();
    let shown = place.ok("check c.toml").out;
    assert!(shown.contains("tabular_input") && shown.contains("[8, 5]"), "{shown}");
    place.ok("train c.toml --out r --quiet");
    place.ok("export r w.safetensors");
    let file = std::fs::read(place.path("w.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    let get = |name: &str| {
        let tensor = tensors.tensor(name).unwrap_or_else(|_| panic!("{name}: {:?}", tensors.names()));
        let numbers = tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>();
        (tensor.shape().to_vec(), numbers)
    };
    let (shape, vectors) = get("0.embeddings.0.weight");
    assert_eq!(shape, [3, 4], "as an `Embedding` of PyTorch has them");
    let [(_, w1), (_, b1), (_, w2), (_, b2)] = ["1.weight", "1.bias", "out.weight", "out.bias"].map(get);
    let answers: Value = serde_json::from_str(&place.ok("predict r t.csv --json").out).unwrap();
    for (i, answer) in answers.as_array().unwrap().iter().enumerate() {
        let row = [&[(i * 7 % 11) as f32 / 4.0], &vectors[i % 3 * 4..][..4]].concat();
        let hidden: Vec<f32> = linear(&row, &w1, &b1).iter().map(|x| x.max(0.0)).collect();
        let wanted = linear(&hidden, &w2, &b2)[0];
        let value = answer["values"][0].as_f64().unwrap() as f32;
        assert!((value - wanted).abs() < 1e-4 * wanted.abs().max(1.0), "row {i}: {value}, and {wanted} is right");
    }
    // Of a category without a width three texts have three numbers, and the layer is one of the first.
    place.write("usual.toml", CONFIG.replace(", embedding = 4", ""));
    let shown = place.ok("check usual.toml").out;
    assert!(shown.contains("[8, 4]"), "{shown}");
    let error =
        place.fails("check c.toml --set model.layers.1.type=tabular_input --unset model.layers.1.out_features", 2);
    assert!(error.contains("takes the columns of a table"), "{error}");
    let onnx = place.ok("export r r.onnx --preprocess");
    assert!(onnx.err.contains("wrote") || onnx.out.contains("wrote"), "{onnx:?}");
}

/// `validation_split` as a table is the same as its keys one by one.
#[test]
fn how_rows_are_held_out_may_stand_in_one_table() {
    let place = place();
    let printed = place.ok("check c.toml --print").out;
    for line in ["validation_split = 0.25", "stratify_column = \"kind\""] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    let shown = place.ok("data show c.toml").out;
    assert!(shown.contains("36 rows to train on, 12 to validate on"), "{shown}");
    let with = |split: &str| CONFIG.replace("{ fraction = 0.25, stratify = \"kind\" }", split);
    for (split, part) in [
        ("{ count = 6, group = \"kind\" }", "group_column = \"kind\""),
        ("{ count = 6, time = \"id\" }", "time_column = \"id\""),
    ] {
        place.write("o.toml", with(split));
        let printed = place.ok("check o.toml --print").out;
        assert!(printed.contains(part) && printed.contains("validation_split = 6"), "{printed}");
    }
    let printed = place.ok("check c.toml --print --set data.validation_split={count=3,time=\"id\"}").out;
    assert!(printed.contains("time_column = \"id\"") && !printed.contains("\nstratify_column"), "{printed}");
    for split in ["{ fraction = 0.25, shuffle = true }", "{ stratify = \"kind\" }", "{ fraction = 0.25, count = 6 }"] {
        place.write("o.toml", with(split));
        let error = place.fails("check o.toml", 2);
        assert!(error.contains("a table has `fraction` or `count`"), "{split}: {error}");
    }
    place.write("o.toml", with("{ fraction = 1.5, stratify = \"kind\" }"));
    let error = place.fails("check o.toml", 2);
    assert!(error.contains("validation_split") && error.contains("1.5"), "{error}");
}

//! The least of a configuration that still fails.

use toml::{Table, Value};

/// Takes away what is not needed for `fails` to hold, one thing after the other, until nothing more can go.
pub fn minimise(text: &str, fails: &dyn Fn(&str) -> bool) -> String {
    let mut least: Table = text.parse().expect("it was read before");
    loop {
        let smaller = candidates(&least).into_iter().find(|c| fails(&c.to_string()));
        match smaller {
            Some(smaller) => least = smaller,
            None => return least.to_string(),
        }
    }
}

/// The table with one thing less.
fn candidates(table: &Table) -> Vec<Table> {
    fewer(&Value::Table(table.clone()))
        .into_iter()
        .filter_map(|value| match value {
            Value::Table(table) => Some(table),
            _ => None,
        })
        .collect()
}

/// All values that have one element, one key or one level less. The larger part goes first.
fn fewer(value: &Value) -> Vec<Value> {
    let mut out = Vec::new();
    match value {
        Value::Array(items) => {
            for i in 0..items.len() {
                let mut rest = items.clone();
                rest.remove(i);
                out.push(Value::Array(rest));
                // A container's layers in place of the container.
                if let Some(inner) = items[i].get("layers").and_then(Value::as_array) {
                    let mut flat = items.clone();
                    flat.splice(i..=i, inner.iter().cloned());
                    out.push(Value::Array(flat));
                }
            }
            for (i, item) in items.iter().enumerate() {
                out.extend(fewer(item).into_iter().map(|less| {
                    let mut items = items.clone();
                    items[i] = less;
                    Value::Array(items)
                }));
            }
        }
        Value::Table(table) => {
            for key in table.keys() {
                let mut rest = table.clone();
                rest.remove(key);
                out.push(Value::Table(rest));
            }
            for (key, inner) in table {
                out.extend(fewer(inner).into_iter().map(|less| {
                    let mut table = table.clone();
                    table.insert(key.clone(), less);
                    Value::Table(table)
                }));
            }
        }
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes() {
        let text = "seed = 1\n[model]\nlayers = [\"relu\", { layers = [\"tanh\", { type = \"linear\", out_features = 3 }] }, \"elu\"]\n\
                    [train]\nepochs = 2\n";
        let fails = |text: &str| text.contains("tanh") && text.contains("[train]");
        let least: Table = minimise(text, &fails).parse().unwrap();
        let expected: Table = "model = { layers = [\"tanh\"] }\ntrain = {}".parse().unwrap();
        assert_eq!(least, expected);
    }
}

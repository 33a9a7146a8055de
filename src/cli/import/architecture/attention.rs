//! What a `config.json` says of the attention of Llama and its relatives: rotary positions and windows.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// The window of models whose `config.json` has no word of it, and the first layer of Qwen2 that has one.
const WINDOW: u64 = 4096;
const FIRST_WITH_WINDOW: u64 = 28;

/// Where rotary positions are described: `rope_scaling` or, as newer versions of transformers write it, `rope_parameters`. The first counts if both are there.
fn rope(keys: &Value) -> Option<(&'static str, &Value)> {
    let is_there = |value: &&Value| value.as_object().is_some_and(|keys| !keys.is_empty());
    let found = |key| Some((key, keys.get(key).filter(is_there)?));
    ["rope_scaling", "rope_parameters"].into_iter().find_map(found)
}

/// The base of the angles of rotary positions. That beside their scaling counts before that of the whole file.
pub(super) fn rope_theta(keys: &Value) -> Result<f64> {
    let beside = rope(keys).and_then(|(_, rope)| rope.get("rope_theta"));
    let Some(theta) = beside.or_else(|| keys.get("rope_theta")).filter(|theta| !theta.is_null()) else {
        return Ok(10_000.0);
    };
    let number = theta.as_f64().filter(|number| *number > 0.0);
    number.with_context(|| format!("`rope_theta` is {theta}, and a number above 0 is expected"))
}

/// How rotary positions are scaled.
pub(super) fn rope_scaling(keys: &Value) -> Result<Option<Value>> {
    let beside = rope(keys).and_then(|(_, rope)| rope.get("partial_rotary_factor"));
    let part = beside.or_else(|| keys.get("partial_rotary_factor")).filter(|part| !part.is_null());
    if let Some(part) = part.filter(|part| part.as_f64() != Some(1.0)) {
        bail!("`partial_rotary_factor` is {part}, and positions that turn all numbers of a head are known here");
    }
    let Some((key, scaling)) = rope(keys) else { return Ok(None) };
    if let Some((layers, _)) = scaling.as_object().into_iter().flatten().find(|(_, value)| value.is_object()) {
        bail!("`{key}` has angles of their own for layers of the type `{layers}`, and the same for all are known here");
    }
    let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str).unwrap_or("default");
    let needed: &[&str] = match kind {
        "default" => return Ok(None),
        "linear" => &["factor"],
        "llama3" => &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
        other => bail!("`{key}` has the type `{other}`, and default, linear and llama3 are known here"),
    };
    let mut found = json!({ "rope_type": kind });
    for name in needed {
        let own = scaling.get(name);
        let number = match *name {
            // Where the whole file has it, too, that one counts. Where nothing has it, the model was never made for longer texts.
            "original_max_position_embeddings" => {
                let whole = keys.get(name).filter(|number| !number.is_null());
                whole.or(own).or_else(|| keys.get("max_position_embeddings"))
            }
            _ => own,
        };
        let number = number.filter(|number| number.as_f64().is_some_and(|number| number > 0.0));
        found[*name] = number.with_context(|| format!("`{key}` has no `{name}` above 0"))?.clone();
    }
    Ok(Some(found))
}

/// How far each of the `layers` of a Mistral or a Qwen2 sees; `None`: as far as there are positions.
pub(super) fn windows(kind: &str, keys: &Value, layers: u64) -> Result<Vec<Option<u64>>> {
    let types = match keys.get("layer_types").filter(|types| !types.is_null()) {
        Some(types) => Some(of_layers(types, layers)?),
        None => None,
    };
    let whole = |key: &str, other: u64| match keys.get(key) {
        Some(value) => value.as_u64(),
        None => Some(other),
    };
    let window = whole("sliding_window", WINDOW);
    // Llama has no windows. Qwen2 has one only with `use_sliding_window`.
    let window = match kind {
        "mistral" => window,
        "qwen2" => window.filter(|_| keys.get("use_sliding_window").and_then(Value::as_bool) == Some(true)),
        _ => return Ok(vec![None; layers as usize]),
    };
    ensure!(window != Some(0), "`sliding_window` is 0, and a position sees itself at least");
    let first = whole("max_window_layers", FIRST_WITH_WINDOW).unwrap_or(FIRST_WITH_WINDOW);
    let types = types.unwrap_or_else(|| match kind {
        "qwen2" => (0..layers).map(|layer| window.is_some() && layer >= first).collect(),
        _ => vec![window.is_some(); layers as usize],
    });
    ensure!(
        window.is_some() || !types.contains(&true),
        "`layer_types` has `sliding_attention`, and there is no `sliding_window` that is used"
    );
    Ok(types.into_iter().map(|is_window| window.filter(|_| is_window)).collect())
}

/// Whether each layer has a window, as `layer_types` says.
fn of_layers(types: &Value, layers: u64) -> Result<Vec<bool>> {
    let list = types.as_array().with_context(|| format!("`layer_types` is {types}, and a list is expected"))?;
    ensure!(list.len() as u64 == layers, "`layer_types` has {} layers, and the model {layers}", list.len());
    let of_layer = |kind: &Value| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => bail!("`layer_types` has {kind}, and \"full_attention\" and \"sliding_attention\" are known here"),
    };
    list.iter().map(of_layer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_has_the_window_that_transformers_gives_it() {
        let [full, sliding] = ["full_attention", "sliding_attention"];
        let mixed = json!([sliding, full, sliding]);
        let all = |window| vec![window; 3];
        for (kind, keys, wanted) in [
            ("mistral", json!({ "sliding_window": 8 }), all(Some(8))),
            ("mistral", json!({ "sliding_window": null }), all(None)),
            ("mistral", json!({}), all(Some(4096))),
            ("mistral", json!({ "sliding_window": 8, "layer_types": [full, full, full] }), all(None)),
            ("mistral", json!({ "sliding_window": 8, "layer_types": mixed }), vec![Some(8), None, Some(8)]),
            ("qwen2", json!({ "sliding_window": 8 }), all(None)),
            ("qwen2", json!({ "sliding_window": 8, "use_sliding_window": true }), all(None)),
            (
                "qwen2",
                json!({ "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1 }),
                vec![None, Some(8), Some(8)],
            ),
            (
                "qwen2",
                json!({ "sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1, "layer_types": mixed }),
                vec![Some(8), None, Some(8)],
            ),
            ("llama", json!({ "sliding_window": 8, "layer_types": mixed }), all(None)),
        ] {
            assert_eq!(windows(kind, &keys, 3).unwrap(), wanted, "{kind} {keys}");
        }
        for (kind, keys, part) in [
            ("mistral", json!({ "sliding_window": 0 }), "`sliding_window` is 0"),
            ("mistral", json!({ "layer_types": [full] }), "has 1 layers, and the model 3"),
            ("mistral", json!({ "layer_types": [full, full, "linear"] }), "`layer_types` has \"linear\""),
            ("mistral", json!({ "layer_types": 7 }), "`layer_types` is 7"),
            (
                "qwen2",
                json!({ "sliding_window": 8, "layer_types": mixed }),
                "there is no `sliding_window` that is used",
            ),
        ] {
            assert!(windows(kind, &keys, 3).unwrap_err().to_string().contains(part), "{kind} {keys}");
        }
    }

    #[test]
    fn the_base_of_angles_is_the_one_beside_their_scaling() {
        for (keys, wanted) in [
            (json!({}), 10_000.0),
            (json!({ "rope_theta": 777.0 }), 777.0),
            (json!({ "rope_theta": 777.0, "rope_parameters": { "rope_theta": 5.0 } }), 5.0),
            (json!({ "rope_theta": 777.0, "rope_scaling": { "type": "linear", "factor": 2.0 } }), 777.0),
            (json!({ "rope_scaling": { "rope_theta": 4.0 }, "rope_parameters": { "rope_theta": 5.0 } }), 4.0),
            (json!({ "rope_scaling": null, "rope_parameters": { "rope_theta": 5.0 } }), 5.0),
        ] {
            assert_eq!(rope_theta(&keys).unwrap(), wanted, "{keys}");
        }
        assert!(rope_theta(&json!({ "rope_parameters": { "rope_theta": "x" } })).is_err());
        let part = json!({ "rope_parameters": { "rope_type": "default", "partial_rotary_factor": 0.5 } });
        assert!(rope_scaling(&part).unwrap_err().to_string().contains("`partial_rotary_factor` is 0.5"));
        assert!(rope_scaling(&json!({ "partial_rotary_factor": 1.0 })).unwrap().is_none());
        let llama3 = json!({ "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16 });
        let whole = json!({ "rope_scaling": llama3, "original_max_position_embeddings": 32 });
        assert_eq!(rope_scaling(&whole).unwrap().unwrap()["original_max_position_embeddings"], 32);
        // As transformers has it where nothing says it.
        let short = json!({ "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4 });
        let without = json!({ "rope_scaling": short, "max_position_embeddings": 64 });
        assert_eq!(rope_scaling(&without).unwrap().unwrap()["original_max_position_embeddings"], 64);
        let nothing = rope_scaling(&json!({ "rope_scaling": short })).unwrap_err().to_string();
        assert!(nothing.contains("has no `original_max_position_embeddings` above 0"), "{nothing}");
        let nested = json!({ "rope_parameters": { "full_attention": { "rope_type": "default" } } });
        assert!(rope_scaling(&nested).unwrap_err().to_string().contains("`full_attention`"));
    }
}

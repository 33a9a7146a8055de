//! Hyper-parameters as TensorBoard's page of them wants them: the messages of `plugins/hparams/plugin_data.proto`, as far as they are written.

use super::event::{Metadata, Plugin, Value};
use prost::Message;
use std::collections::BTreeMap;

/// The plugin's name, and the value by which it knows a run.
const PLUGIN: &str = "hparams";
const TAG: &str = "_hparams_/session_start_info";

/// A hyper-parameter: a number, a switch or a word.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Setting {
    #[prost(oneof = "Kind", tags = "2, 3, 4")]
    pub kind: Option<Kind>,
}

/// `google.protobuf.Value`, without lists and tables.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Word(String),
    #[prost(bool, tag = "4")]
    Switch(bool),
}

/// `SessionStartInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct SessionStart {
    #[prost(btree_map = "string, message", tag = "1")]
    settings: BTreeMap<String, Setting>,
    #[prost(double, tag = "5")]
    start_time: f64,
}

/// `HParamsPluginData`.
#[derive(Clone, PartialEq, prost::Message)]
struct PluginData {
    #[prost(message, optional, tag = "3")]
    session_start: Option<SessionStart>,
}

/// The hyper-parameters of a configuration: its numbers, switches and words by their keys (`optimizer.lr`), lists of these as one word. Layers
/// are none.
pub fn settings(config: &toml::Table) -> BTreeMap<String, Setting> {
    let mut found = BTreeMap::new();
    add(&mut found, "", config);
    found
}

fn add(found: &mut BTreeMap<String, Setting>, before: &str, table: &toml::Table) {
    for (key, value) in table {
        let key = format!("{before}{key}");
        let kind = match value {
            toml::Value::Table(table) => {
                add(found, &format!("{key}."), table);
                continue;
            }
            toml::Value::Integer(n) => Kind::Number(*n as f64),
            toml::Value::Float(n) => Kind::Number(*n),
            toml::Value::Boolean(is) => Kind::Switch(*is),
            toml::Value::String(word) => Kind::Word(word.clone()),
            toml::Value::Datetime(time) => Kind::Word(time.to_string()),
            toml::Value::Array(list) if list.iter().any(|value| value.is_table() || value.is_array()) => continue,
            list @ toml::Value::Array(_) => Kind::Word(list.to_string()),
        };
        found.insert(key, Setting { kind: Some(kind) });
    }
}

impl Value {
    /// That a run has begun, with these hyper-parameters.
    pub fn hparams(settings: BTreeMap<String, Setting>, start_time: f64) -> Value {
        let content = PluginData { session_start: Some(SessionStart { settings, start_time }) };
        let plugin = Plugin { name: PLUGIN.into(), content: content.encode_to_vec() };
        Value { tag: TAG.into(), content: None, metadata: Some(Metadata { plugin: Some(plugin) }) }
    }
}

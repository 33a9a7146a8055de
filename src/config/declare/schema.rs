//! Tables of the JSON Schema, from what is declared. What a table must have is kept apart from what it may have: where a file
//! extends another, what it must have may stand in that one.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::declaration::{Declaration, Rule};
use super::options::Options;

/// A table with these keys and no others.
#[derive(Debug, Clone, Default)]
pub struct Table {
    description: Option<Value>,
    title: Option<Value>,
    properties: Map<String, Value>,
    required: Vec<Value>,
    /// What holds wherever the table stands.
    always: Vec<Value>,
    /// What holds of a table that nothing lies under.
    whole: Vec<Value>,
}

impl Table {
    /// The table of some options.
    pub fn of<T: Options>(generator: &mut SchemaGenerator) -> Self {
        Self::from_declaration(T::declaration(generator))
    }

    /// The table of what has been declared.
    pub fn from_declaration(declaration: Declaration) -> Self {
        let mut table = Self { description: Some(declaration.about.into()), ..Self::default() };
        for option in declaration.options {
            if option.required {
                table.require(option.key);
            }
            table.add(option.key, option.schema);
        }
        for rule in declaration.rules {
            match rule {
                Rule::Excludes(a, b, _) | Rule::Conflicts(a, b, None, _) => {
                    table.add_always(json!({ "not": { "required": [a, b] } }))
                }
                Rule::ExcludesWithout(a, b, key, _) | Rule::Conflicts(a, b, Some(key), _) => {
                    let rule = json!({ "required": [a, b], "not": { "required": [key] } });
                    table.add_always(json!({ "not": rule }));
                }
                Rule::OneOf(a, b) => table.add_whole(json!({ "anyOf": [{ "required": [a] }, { "required": [b] }] })),
            }
        }
        let Value::Object(mut rules) = declaration.schema else { return table };
        let mut take = |keys: &[&str]| {
            let taken: Map<String, Value> =
                keys.iter().filter_map(|key| Some(((*key).to_owned(), rules.remove(*key)?))).collect();
            (!taken.is_empty()).then_some(Value::Object(taken))
        };
        table.always.extend(take(&["not"]));
        for keys in [&["anyOf"][..], &["if", "then", "else"], &["dependentSchemas"], &["dependentRequired"]] {
            table.whole.extend(take(keys));
        }
        table
    }

    /// The same with another description.
    pub fn described(mut self, description: &str) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds a key.
    pub fn add(&mut self, key: &str, schema: Value) {
        self.properties.insert(key.to_owned(), schema);
    }

    /// Adds something that holds of a table that nothing lies under.
    pub fn add_whole(&mut self, rule: Value) {
        self.whole.push(rule);
    }

    /// Adds something that holds wherever the table stands.
    pub fn add_always(&mut self, rule: Value) {
        self.always.push(rule);
    }

    /// Makes a key one that must be there.
    pub fn require(&mut self, key: &str) {
        self.required.push(key.into());
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.properties.keys()
    }

    /// The schemas of the keys, to be changed.
    pub fn properties_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.properties.values_mut()
    }

    /// Adds all of another table.
    pub fn join(&mut self, other: &Self) {
        self.properties.extend(other.properties.clone());
        self.required.extend(other.required.iter().cloned());
        self.always.extend(other.always.iter().cloned());
        self.whole.extend(other.whole.iter().cloned());
    }

    /// With the word that selects it.
    pub fn tagged(mut self, tag: &str, word: &str) -> Self {
        self.title = Some(word.into());
        self.add(tag, json!({ "const": word }));
        self.required.insert(0, tag.into());
        self
    }

    /// Its word, if it needs nothing besides.
    pub fn word_alone(&self, tag: &str) -> Option<&Value> {
        let alone = self.whole.is_empty() && self.required.iter().all(|key| key == tag);
        self.properties.get(tag).and_then(|schema| schema.get("const")).filter(|_| alone)
    }

    /// What it may have.
    pub fn loose(&self) -> Value {
        self.object(&[], self.always.clone())
    }

    /// What it must have besides, where nothing lies under it.
    pub fn strict(&self) -> Value {
        let mut rules = Map::new();
        put(&mut rules, "required", &self.required);
        put(&mut rules, "allOf", &self.whole);
        Value::Object(rules)
    }

    /// Both.
    pub fn whole(&self) -> Value {
        self.object(&self.required, self.always.iter().chain(&self.whole).cloned().collect())
    }

    fn object(&self, required: &[Value], rules: Vec<Value>) -> Value {
        let mut object = Map::new();
        object.insert("type".into(), "object".into());
        object.extend(self.title.clone().map(|title| ("title".into(), title)));
        object.extend(self.description.clone().map(|text| ("description".into(), text)));
        object.insert("properties".into(), self.properties.clone().into());
        put(&mut object, "required", required);
        put(&mut object, "allOf", &rules);
        object.insert("additionalProperties".into(), false.into());
        Value::Object(object)
    }
}

fn put(object: &mut Map<String, Value>, key: &str, list: &[Value]) {
    if !list.is_empty() {
        object.insert(key.into(), list.into());
    }
}

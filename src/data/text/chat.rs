//! The template by which a conversation becomes a text: what a model that was trained on conversations expects.
//!
//! Templates are Jinja's, in the dialect of <https://huggingface.co/docs/transformers/chat_templating>. They may come from any source: each has so much fuel, which
//! bounds its time and its memory.

use super::super::wrong_file::WrongFile;
use crate::files::{self, contained};
use anyhow::{Context, Result, anyhow};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};
use std::path::Path;

/// Largest file, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// Instructions of a template, and 64 bytes of what it makes: 64 MB.
const FUEL: u64 = 1_000_000;
/// Most spaces before a line.
const MAX_INDENT: usize = 64;
/// A text and an answer that no template has in its own words.
const SAID: [&str; 2] = ["runner says 31415926", "runner answers 27182818"];
/// The file of the tokenizer's settings.
const SETTINGS: &str = "tokenizer_config.json";
/// The file that has a template which is not in the file of the tokenizer's settings.
pub const BESIDE: &str = "chat_template.jinja";

/// A template, as a checkpoint has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chat {
    template: String,
    /// What texts begin with.
    #[serde(default)]
    bos: String,
    /// What they end with.
    #[serde(default)]
    eos: String,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who: `system`, `user`, `assistant`, or what the template knows besides.
    pub role: String,
    /// What.
    pub content: String,
}

impl Chat {
    /// That of a file: a `tokenizer_config.json`, which may have its template in a file beside it, or a template, whose tokens such a file beside
    /// it has.
    ///
    /// # Errors
    /// It cannot be read, or has no template that can.
    pub fn read(path: &Path) -> Result<Chat> {
        Chat::of_file(path).map_err(WrongFile::of("chat_template"))
    }

    fn of_file(path: &Path) -> Result<Chat> {
        let text = |path: &Path| {
            let bytes = files::read(path, MAX_FILE)?;
            String::from_utf8(bytes).map_err(|_| anyhow!("`{}` is not UTF-8", path.display()))
        };
        let own = text(path)?;
        let (file, chat) = if path.extension().is_some_and(|ending| ending == "json") {
            let keys: Value = serde_json::from_str(&own).with_context(|| format!("`{}` is no JSON", path.display()))?;
            let beside = path.with_file_name(BESIDE);
            let (file, template) = match template_of(&keys) {
                Some(template) => (path.to_owned(), template.to_owned()),
                None if files::is_there(&beside) => (beside.clone(), text(&beside)?),
                None => anyhow::bail!("`{}` has no `chat_template`", path.display()),
            };
            (file, Chat::with_tokens(template, &keys))
        } else {
            // The tokens of a template stand in the settings beside it, if there are any.
            let beside = path.with_file_name(SETTINGS);
            let keys = match files::is_there(&beside) {
                true => serde_json::from_str(&text(&beside)?)
                    .with_context(|| format!("`{}` is no JSON", beside.display()))?,
                false => Value::Null,
            };
            (path.to_owned(), Chat::with_tokens(own, &keys))
        };
        chat.check().with_context(|| format!("`{}`", file.display()))?;
        Ok(chat)
    }

    fn with_tokens(template: String, settings: &Value) -> Chat {
        let [bos, eos] = ["bos_token", "eos_token"].map(|key| token_of(settings, key));
        Chat { template, bos, eos }
    }

    /// Whether the template writes a question and its answer. One that refuses these messages may take others.
    pub fn says(&self) -> [bool; 2] {
        let messages = [("user", SAID[0]), ("assistant", SAID[1])]
            .map(|(role, content)| Message { role: role.to_owned(), content: content.to_owned() });
        self.whole(&messages).map_or([true; 2], |whole| SAID.map(|said| whole.contains(said)))
    }

    /// Whether a folder's `tokenizer_config.json` has a template, or one stands beside it.
    pub fn is_in(config: &Path) -> bool {
        let keys = files::read(config, MAX_FILE).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        keys.is_some_and(|keys| template_of(&keys).is_some() || files::is_there(&config.with_file_name(BESIDE)))
    }

    /// Looks whether the template can be read.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self) -> Result<()> {
        contained(|| Ok(environment()?.template_from_str(&without_marks(&self.template)).map(drop)?))
            .context("the chat template")
    }

    /// The token that ends what the model says, as text; empty, if it is not known.
    pub fn end(&self) -> &str {
        &self.eos
    }

    /// Bytes of the template.
    pub fn bytes(&self) -> usize {
        self.template.len()
    }

    /// A conversation as a text, which ends where the model is to answer.
    ///
    /// # Errors
    /// The template refuses it, or fails.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        self.rendered(messages, true)
    }

    /// A conversation as a text, which ends with its last message.
    ///
    /// # Errors
    /// As [`Chat::render`].
    pub fn whole(&self, messages: &[Message]) -> Result<String> {
        self.rendered(messages, false)
    }

    fn rendered(&self, messages: &[Message], answers: bool) -> Result<String> {
        let Chat { template, bos, eos } = self;
        contained(|| {
            let messages = minijinja::Value::from(Serde(messages));
            let known = context! { messages, add_generation_prompt => answers, bos_token => bos, eos_token => eos };
            Ok(environment()?.render_str(&without_marks(template), known)?)
        })
        .context("the model's chat template does not take these messages")
    }
}

fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    // As transformers has it.
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    let refuse = |why: String| Err::<minijinja::Value, Error>(Error::new(ErrorKind::InvalidOperation, why));
    environment.add_function("raise_exception", refuse);
    // Fuel does not count the spaces that these make.
    environment.add_filter("tojson", |value: &minijinja::Value, indent: Option<minijinja::Value>, keys: Kwargs| {
        let indent = indent.or(keys.get("indent")?).filter(|indent| !indent.is_none() && !indent.is_undefined());
        if keys.get::<Option<bool>>("ensure_ascii")? == Some(true) {
            return Err(Error::new(ErrorKind::InvalidOperation, "`ensure_ascii=true` is not known"));
        }
        keys.assert_all_used()?;
        within(indent.clone())?;
        as_json(value, indent.map(usize::try_from).transpose()?)
    });
    environment.add_filter(
        "indent",
        |value: String, width: Option<usize>, first: Option<bool>, blank: Option<bool>, keys: Kwargs| {
            let width = width.or(keys.get("width")?).unwrap_or(4);
            let [first, blank] = [(first, "first"), (blank, "blank")]
                .map(|(given, key)| given.or_else(|| keys.get(key).ok()).unwrap_or(false));
            keys.assert_all_used()?;
            within(Some(width.into()))?;
            let spaces = " ".repeat(width);
            let line = |(at, line): (usize, &str)| match at == 0 && !first || line.is_empty() && !blank {
                true => line.to_owned(),
                false => format!("{spaces}{line}"),
            };
            Ok(value.split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n"))
        },
    );
    Ok(environment)
}

/// A value as Python's `json.dumps` writes it with `ensure_ascii=False`, which is what transformers calls: a space behind each comma and colon, and no
/// character escaped for HTML.
fn as_json(value: &minijinja::Value, indent: Option<usize>) -> Result<String, Error> {
    struct Spaced;
    impl Formatter for Spaced {
        fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
            if first { Ok(()) } else { to.write_all(b", ") }
        }
        fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
            if first { Ok(()) } else { to.write_all(b", ") }
        }
        fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
            to.write_all(b": ")
        }
    }
    let mut text = Vec::new();
    match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent);
            let pretty = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut text, pretty))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut text, Spaced)),
    }
    .map_err(|why| Error::new(ErrorKind::InvalidOperation, format!("cannot write this as JSON: {why}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A template whose `{% generation %}`, by which transformers finds what the model is to learn, is a condition that holds.
fn without_marks(template: &str) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        text.push_str(before);
        let name = tag.trim_start_matches(['-', '+']).trim_start();
        let begin = &tag[..tag.len() - name.len()];
        let words = [("generation", "if true"), ("endgeneration", "endif")];
        let found = words.into_iter().find_map(|(word, stands_for)| {
            let behind = name.strip_prefix(word)?;
            behind.trim_start().trim_start_matches(['-', '+']).starts_with("%}").then_some((stands_for, behind))
        });
        rest = match found {
            Some((stands_for, behind)) => {
                text.push_str(begin);
                text.push_str(stands_for);
                behind
            }
            None => tag,
        };
    }
    text + rest
}

/// Refuses to put more spaces before a line than a text for people has.
fn within(indent: Option<minijinja::Value>) -> Result<(), Error> {
    match indent.filter(|indent| !indent.is_none() && !indent.is_undefined()) {
        Some(indent) if !usize::try_from(indent.clone()).is_ok_and(|indent| indent <= MAX_INDENT) => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("`indent` is {indent}, and a whole number up to {MAX_INDENT} is expected"),
        )),
        _ => Ok(()),
    }
}

/// The template among the settings of a tokenizer; of several that have names, the one that is called `default`.
fn template_of(keys: &Value) -> Option<&str> {
    match keys.get("chat_template")? {
        Value::String(template) => Some(template),
        Value::Array(several) => {
            let usual = several.iter().find(|one| one.get("name").is_some_and(|name| name == "default"))?;
            usual.get("template")?.as_str()
        }
        _ => None,
    }
}

/// A token among the settings of a tokenizer, which is a text, or an object with it.
fn token_of(keys: &Value, key: &str) -> String {
    let token = keys.get(key).and_then(|token| token.as_str().or_else(|| token.get("content")?.as_str()));
    token.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(template: &str) -> Chat {
        Chat { template: template.into(), bos: "<s>".into(), eos: "</s>".into() }
    }

    fn say(role: &str, content: &str) -> Message {
        Message { role: role.into(), content: content.into() }
    }

    /// SmolLM2's, with its way to put a system message in front.
    const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}\
        {% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

    #[test]
    fn conversations_become_texts() {
        let text = chat(CHATML).render(&[say("user", "Hi!")]).unwrap();
        assert_eq!(
            text,
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n"
        );
        // Methods of Python's, blocks on lines of their own, tokens.
        let mistral = "{{ bos_token }}\n{% for m in messages %}\n    {% if m.role == 'user' %}\n[INST] {{ m.content.strip() }} [/INST]\n    {% elif \
            m.role == 'assistant' %}\n{{ m['content'] + eos_token }}\n    {% else %}\n{{ raise_exception('Only user and assistant roles!') }}\n    \
            {% endif %}\n{% endfor %}";
        let said = [say("user", " a <b> "), say("assistant", "c"), say("user", "d")];
        assert_eq!(chat(mistral).render(&said).unwrap(), "<s>\n[INST] a <b> [/INST]\nc</s>\n[INST] d [/INST]\n");
        let refused = chat(mistral).render(&[say("system", "x")]).unwrap_err();
        assert!(format!("{refused:#}").contains("Only user and assistant roles!"), "{refused:#}");
    }

    #[test]
    fn templates_are_bounded_and_checked() {
        assert!(chat("{% for x %}").check().is_err());
        assert!(chat("{{ nothing.of.this() }}").render(&[]).is_err());
        let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
        let large = "{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}";
        // Each turn escapes what the one before it has escaped.
        let doubled = "{% set all = namespace(text='\"') %}{% for i in range(60) %}{% set all.text = all.text|tojson %}{% endfor %}";
        for template in [endless, large, doubled, "{{ 'a' * 100000000000 }}", "{% include 'x' %}"] {
            assert!(chat(template).render(&[]).is_err(), "{template}");
        }
    }

    #[test]
    fn files_have_templates_in_several_ways() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("tokenizer_config.json");
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let read = || Chat::read(&config).map(|chat| [chat.template, chat.bos, chat.eos]);
        put("tokenizer_config.json", r#"{"bos_token": "B", "eos_token": {"content": "E"}, "chat_template": "T"}"#);
        assert_eq!(read().unwrap(), ["T", "B", "E"]);
        put(
            "tokenizer_config.json",
            r#"{"chat_template": [{"name": "tool_use", "template": "U"}, {"name": "default", "template": "D"}]}"#,
        );
        assert_eq!(read().unwrap(), ["D", "", ""]);
        put("tokenizer_config.json", r#"{"eos_token": "E"}"#);
        assert!(!Chat::is_in(&config) && format!("{:#}", read().unwrap_err()).contains("has no `chat_template`"));
        put("chat_template.jinja", "J {{ eos_token }}");
        assert_eq!(read().unwrap(), ["J {{ eos_token }}", "", "E"]);
        assert!(Chat::is_in(&config));
        let alone = Chat::read(&folder.path().join("chat_template.jinja")).unwrap();
        assert_eq!(alone.render(&[]).unwrap(), "J E");
        put("tokenizer_config.json", r#"{"chat_template": "{% if %}"}"#);
        assert!(read().is_err());
        put("tokenizer_config.json", "[");
        assert!(!Chat::is_in(&config) && read().is_err());
    }

    /// As `apply_chat_template` of transformers has it.
    #[test]
    fn values_are_written_as_python_writes_them() {
        let said = |template: &str| chat(template).render(&[say("user", "<a> & 'ü'")]).unwrap();
        assert_eq!(said("{{ messages|tojson }}"), r#"[{"role": "user", "content": "<a> & 'ü'"}]"#);
        assert_eq!(
            said("{{ {'b': [1, none], 'a': 2.0}|tojson(indent=1) }}"),
            "{\n \"b\": [\n  1,\n  null\n ],\n \"a\": 2.0\n}"
        );
        assert_eq!(said("{% for k in {'zz': 1, 'the': 2, 'a': 1} %}{{ k }} {% endfor %}"), "zz the a ");
        assert_eq!(
            said("{%- for m in messages %}\n{% generation %}\nx{{ m.role }}{%- endgeneration -%}\n  y{% endfor %}"),
            "xusery"
        );
        assert_eq!(said("{% set generation = 1 %}{% if generation %}{{ generation }}{% endif %}"), "1");
    }

    /// What fuel does not count is limited by itself.
    #[test]
    fn indents_are_those_of_texts_for_people() {
        let said = |template: &str| chat(template).render(&[say("user", "a\n\nb")]);
        assert_eq!(said("{{ messages[0].content|indent(2) }}").unwrap(), "a\n\n  b");
        assert_eq!(said("{{ messages[0].content|indent(width=1, first=true, blank=true) }}").unwrap(), " a\n \n b");
        assert!(said("{{ messages|tojson(indent=2) }}").unwrap().contains("\n  {"));
        assert!(said("{{ messages|tojson }}").unwrap().starts_with("[{"));
        for much in [
            "messages|tojson(indent=2000000000)",
            "messages|tojson(99999999999)",
            "'a\\nb'|indent(2000000000)",
            "'a\\nb'|indent(width=65)",
        ] {
            let error = format!("{:#}", said(&format!("{{{{ {much} }}}}")).unwrap_err());
            assert!(error.contains("indent") && error.contains("64"), "{much}: {error}");
        }
    }
}

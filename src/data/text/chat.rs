//! The template by which a conversation becomes a text: what a model that was trained on conversations expects.
//!
//! Templates are Jinja's, in the dialect of <https://huggingface.co/docs/transformers/chat_templating>. They may come from any source: each has so much fuel, which
//! bounds its time and its memory.

use super::super::wrong_file::WrongFile;
use super::jinja::{self, Failed};
use crate::files::{self, contained};
use anyhow::{Context, Result, anyhow};
use chrono::{Local, NaiveDateTime};
use minijinja::context;
use minijinja::value::Serde;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Largest file, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// A text and an answer that no template has in its own words.
const SAID: [&str; 2] = ["runner says 31415926", "runner answers 27182818"];
/// How a moment is written in a checkpoint.
const MOMENT: &str = "%Y-%m-%dT%H:%M:%S";
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
    /// When the training began whose prompts it makes, where its texts have a date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<String>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who: `system`, `user`, `assistant`, or what the template knows besides.
    pub role: String,
    /// What.
    pub content: String,
    /// Whose it is among several of a role, if that is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Message {
    /// Of this role, without a name.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), name: None }
    }
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
        Chat { template, bos, eos, began: None }
    }

    /// The template with this moment as the one when its training began, if its texts have a date: the prompts of a run that goes on another day are the same.
    #[must_use]
    pub fn begun(mut self) -> Chat {
        let has_date = self.template.contains(jinja::NOW);
        self.began = has_date.then(|| Local::now().naive_local().format(MOMENT).to_string());
        self
    }

    /// Whether another one writes the same.
    pub fn is_like(&self, other: &Chat) -> bool {
        let of = |chat: &Chat| [&chat.template, &chat.bos, &chat.eos].map(String::clone);
        of(self) == of(other)
    }

    /// Whether the template writes a question and its answer. One that refuses these messages may take others.
    pub fn says(&self) -> [bool; 2] {
        let messages = [("user", SAID[0]), ("assistant", SAID[1])].map(|(role, content)| Message::new(role, content));
        self.learnt(&messages, false).map_or([true; 2], |whole| SAID.map(|said| whole.contains(said)))
    }

    /// Whether a folder's `tokenizer_config.json` has a template, or one stands beside it.
    pub fn is_in(config: &Path) -> bool {
        let keys = files::read(config, MAX_FILE).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        keys.is_some_and(|keys| template_of(&keys).is_some() || files::is_there(&config.with_file_name(BESIDE)))
    }

    /// Looks whether the template can be read, and takes one of the usual conversations. One may refuse others, as those with a system message.
    ///
    /// # Errors
    /// It cannot be read; it asks for a function, filter, test or method that there is not; it fails at every conversation without refusing one.
    pub fn check(&self) -> Result<()> {
        contained(|| Ok(jinja::check(&self.template)?)).context("the chat template")?;
        let mut failed = Vec::new();
        for roles in [&["user"][..], &["system", "user"], &["user", "assistant", "user"]] {
            let said = roles.iter().map(|role| Message::new(*role, SAID[0]));
            let said: Vec<Message> = said.collect();
            match contained(|| Ok(self.rendered(&said, true, now()))) {
                Ok(Ok(_) | Err(Failed::Refused(_))) => {}
                Ok(Err(Failed::Unknown(why))) => {
                    let what = "the chat template asks for something that is not known here: write it otherwise, or leave the template out";
                    return Err(why).context(what);
                }
                Ok(Err(Failed::Otherwise(why))) => failed.push(why.into()),
                Err(why) => failed.push(why),
            }
        }
        match failed.into_iter().nth(2) {
            Some(why) => Err(why.context("the chat template fails at every conversation")),
            None => Ok(()),
        }
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
        self.text(messages, true, now())
    }

    /// A conversation as a text, which ends where the model is to answer or, unless it `answers`, with its last message; as its training has it, if there is one.
    ///
    /// # Errors
    /// As [`Chat::render`].
    pub fn learnt(&self, messages: &[Message], answers: bool) -> Result<String> {
        let began = self.began.as_deref().and_then(|began| NaiveDateTime::parse_from_str(began, MOMENT).ok());
        self.text(messages, answers, began.unwrap_or_else(now))
    }

    fn text(&self, messages: &[Message], answers: bool, now: NaiveDateTime) -> Result<String> {
        contained(|| Ok(self.rendered(messages, answers, now)?))
            .context("the model's chat template does not take these messages")
    }

    fn rendered(&self, messages: &[Message], answers: bool, now: NaiveDateTime) -> Result<String, Failed> {
        let Chat { template, bos, eos, .. } = self;
        let messages = minijinja::Value::from(Serde(messages));
        // What transformers says of tools and documents where there are none.
        let (tools, documents) = ((), ());
        let known = context! { messages, tools, documents, add_generation_prompt => answers, bos_token => bos, eos_token => eos };
        jinja::render(template, known, now)
    }
}

fn now() -> NaiveDateTime {
    Local::now().naive_local()
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
        Chat { template: template.into(), bos: "<s>".into(), eos: "</s>".into(), began: None }
    }

    fn say(role: &str, content: &str) -> Message {
        Message::new(role, content)
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
        // A system message may be refused, and so may a question that is not answered.
        for refuses in [
            "{% if messages[0].role == 'system' %}{{ raise_exception('No system!') }}{% endif %}x",
            "{{ raise_exception('no') }}",
        ] {
            chat(refuses).check().unwrap();
        }
        // What the usual conversations do not come to, may be unknown.
        chat("{% if tools %}{{ tools|f }}{% endif %}").check().unwrap();
        for (template, named) in [
            ("{{ messages[0].content|wordings }}", "wordings"),
            ("{% if messages|length == 3 %}{{ strptime('x') }}{% endif %}", "strptime"),
            ("{% if messages[0].role == 'system' %}{{ messages[0].content.translate() }}{% endif %}", "translate"),
            ("{{ 1 if messages is odder }}", "odder"),
            ("{{ '%d' % messages[0].content }}", "fails at every conversation"),
        ] {
            let error = format!("{:#}", chat(template).check().unwrap_err());
            assert!(error.contains(named), "{template}: {error}");
        }
        let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
        let large = "{% set x = 'a' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}";
        // Each turn escapes what the one before it has escaped.
        let doubled = "{% set all = namespace(text='\"') %}{% for i in range(60) %}{% set all.text = all.text|tojson %}{% endfor %}";
        for template in [endless, large, doubled, "{{ 'a' * 100000000000 }}", "{% include 'x' %}"] {
            assert!(chat(template).render(&[]).is_err(), "{template}");
        }
    }

    /// A run that goes on another day has the prompts with which it began.
    #[test]
    fn dates_of_a_training_stay() {
        let mut dated = chat("{{ strftime_now('%Y-%m-%d') }}").begun();
        dated.began = Some("2001-02-03T04:05:06".into());
        let kept: Chat = serde_json::from_value(serde_json::to_value(&dated).unwrap()).unwrap();
        assert_eq!(kept.learnt(&[], true).unwrap(), "2001-02-03");
        assert_ne!(kept.render(&[]).unwrap(), "2001-02-03");
        assert!(kept.is_like(&chat("{{ strftime_now('%Y-%m-%d') }}")) && !kept.is_like(&chat("x")));
        assert_eq!(chat("x").begun(), chat("x"));
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

    #[test]
    fn what_is_not_there_is_none() {
        let said = |template: &str| chat(template).render(&[say("user", "x")]).unwrap();
        assert_eq!(said("{% if tools is not none or documents is not none %}T{% endif %}{{ tools }}"), "None");
        assert_eq!(said("{{ messages[0].name is defined }}"), "False");
        let named = Message { name: Some("Bob".into()), ..say("user", "x") };
        assert_eq!(
            chat("{{ messages[0].name }}{{ messages[0]|tojson }}").render(&[named]).unwrap(),
            "Bob{\"role\": \"user\", \"content\": \"x\", \"name\": \"Bob\"}"
        );
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
            "messages|tojson(false, 99999999999)",
            "'a\\nb'|indent(2000000000)",
            "'a\\nb'|indent(width=65)",
        ] {
            let error = format!("{:#}", said(&format!("{{{{ {much} }}}}")).unwrap_err());
            assert!(error.contains("indent") && error.contains("64"), "{much}: {error}");
        }
    }
}

//! Templates of Jinja as transformers renders them: its settings, what it adds, and what templates for Python count on.

use super::{dumps, python};
use chrono::NaiveDateTime;
use minijinja::machinery::{CompiledTemplate, Instruction, TemplateConfig, eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter};
use std::fmt;
use std::sync::Arc;

/// Instructions of a template, and 64 bytes of what it makes: 64 MB.
const FUEL: u64 = 1_000_000;
/// The function that writes the date.
pub(super) const NOW: &str = "strftime_now";
/// The filter that stands for Python's operator.
const PERCENT: &str = "%";

/// Why a template has made no text.
#[derive(Debug)]
pub(super) enum Failed {
    /// It refuses what it is given.
    Refused(Error),
    /// It asks for a function, a filter, a test or a method that there is not.
    Unknown(Error),
    Otherwise(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let raised = |error: &Error| std::error::Error::source(error).is_some_and(|source| source.is::<Raised>());
        match error.kind() {
            _ if raised(&error) => Failed::Refused(error),
            ErrorKind::UnknownFunction
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownMethod => Failed::Unknown(error),
            _ => Failed::Otherwise(error),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (Failed::Refused(error) | Failed::Unknown(error) | Failed::Otherwise(error)) = self;
        write!(f, "{error}")
    }
}

impl std::error::Error for Failed {}

/// The mark of errors that a template raises.
#[derive(Debug)]
struct Raised;

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "raised by the template")
    }
}

impl std::error::Error for Raised {}

/// Whether a template can be read.
///
/// # Errors
/// It cannot.
pub(super) fn check(template: &str) -> Result<(), Error> {
    compiled(&without_marks(template)).map(drop)
}

/// What a template makes of `known`; `now` is the date that it writes.
///
/// # Errors
/// It fails, or refuses what is known.
pub(super) fn render(template: &str, known: Value, now: NaiveDateTime) -> Result<String, Failed> {
    let source = without_marks(template);
    let template = compiled(&source)?;
    let (environment, mut text) = (environment(now), String::new());
    let out = &mut make_string_output(&mut text);
    eval(&environment, &template.instructions, known, &template.blocks, out, AutoEscape::None)?;
    Ok(text)
}

/// A template whose operator `%` formats texts, too, as Python's does.
fn compiled(source: &str) -> Result<CompiledTemplate<'_>, Error> {
    let config = TemplateConfig {
        // As transformers has it.
        syntax_config: SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?,
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    };
    let mut template = CompiledTemplate::new("template", source, &config)?;
    let mut at = 0;
    while let Some(instruction) = template.instructions.get_mut(at) {
        if matches!(instruction, Instruction::Rem) {
            // No place among the filters that are looked up once.
            *instruction = Instruction::ApplyFilter(PERCENT, Some(2), !0);
        }
        at += 1;
    }
    Ok(template)
}

fn environment(now: NaiveDateTime) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_unknown_method_callback(python::method);
    environment.set_fuel(Some(FUEL));
    environment.add_function("raise_exception", |why: String| {
        Err::<Value, Error>(Error::new(ErrorKind::InvalidOperation, why).with_source(Raised))
    });
    environment.add_function(NOW, move |state: &State, format: &str| python::strftime(state, now, format));
    environment.add_filter(PERCENT, python::percent);
    environment.add_filter("center", |state: &State, text: &str, width: Option<usize>| {
        python::center(state, text, width.unwrap_or(80), ' ')
    });
    environment.add_filter("truncate", python::truncate);
    environment.add_filter("wordcount", python::wordcount);
    // Fuel does not count the spaces that these make.
    environment.add_filter("tojson", dumps::tojson);
    environment.add_filter("e", python::escape);
    environment.add_filter("escape", python::escape);
    environment.add_filter("urlencode", python::urlencode);
    environment.set_formatter(|out, state, value| match f64::try_from(value.clone()) {
        Ok(number) if value.is_number() && !value.is_integer() => Ok(out.write_str(&dumps::float(number))?),
        _ => escape_formatter(out, state, value),
    });
    // Fuel does not count the spaces that this makes.
    environment.add_filter(
        "indent",
        |value: String, width: Option<usize>, first: Option<bool>, blank: Option<bool>, keys: Kwargs| {
            let width = width.or(keys.get("width")?).unwrap_or(4);
            let [first, blank] = [(first, "first"), (blank, "blank")]
                .map(|(given, key)| given.or_else(|| keys.get(key).ok()).unwrap_or(false));
            keys.assert_all_used()?;
            let width = dumps::spaces(width.into())?;
            let spaces = " ".repeat(width);
            let line = |(at, line): (usize, &str)| match at == 0 && !first || line.is_empty() && !blank {
                true => line.to_owned(),
                false => format!("{spaces}{line}"),
            };
            Ok(value.split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n"))
        },
    );
    environment
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

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::NaiveDate;
    use minijinja::context;

    fn made(template: &str) -> Result<String, Failed> {
        let now = NaiveDate::from_ymd_opt(2026, 3, 5).and_then(|day| day.and_hms_micro_opt(7, 8, 9, 42));
        render(template, context! { n => 7, text => "a b  c" }, now.unwrap())
    }

    /// Every line as Jinja 3.1 of Python 3 has it, `strftime_now` as transformers defines it.
    #[test]
    fn templates_are_rendered_as_in_python() {
        for (template, expected) in [
            ("{{ strftime_now('%d %b %Y') }}", "05 Mar 2026"),
            (
                "{{ strftime_now('%A, %-d %B %y, %H:%M:%S.%f, day %j, %I %p, 100%%') }}",
                "Thursday, 5 March 26, 07:08:09.000042, day 064, 07 AM, 100%",
            ),
            ("{{ 'a %s b %5.2f %d' % ('x', 1.5, n) }}", "a x b  1.50 7"),
            ("{{ '%s' % n }}{{ '<%s>' % text }}{{ '%(k)s!' % {'k': 1} }}{{ '%d%%' % 5 }}", "7<a b  c>1!5%"),
            (
                "{% macro f(x) %}{{ '[%s]' % x }}{% endmacro %}{{ f(1) }}{{ n % 4 }}{{ -n % 4 }}{{ n % -4 }}{{ -n % -4 }}{{ 7.5 % 2 }}{{ 8 % 3 }}",
                "[1]31-1-31.52",
            ),
            (
                "{{ 'one two three four'|truncate(12, false, '...', 0) }}|{{ 'abcdefgh'|truncate(5, true, leeway=0) }}|{{ 'abcdefgh'|truncate(5) }}",
                "one two...|ab...|abcdefgh",
            ),
            ("{{ 'the quick, brown_fox  jumps! 3'|wordcount }}", "5"),
            (
                "{{ 'a-b-c'.rsplit('-', 1) }}{{ text.rsplit() }}{{ text.rsplit(none, 1) }}{{ text.rsplit(maxsplit=1) }}",
                "['a-b', 'c']['a', 'b', 'c']['a b', 'c']['a b', 'c']",
            ),
            ("{{ 'a-b-c'.split('-', maxsplit=1) }}{{ 'a-b'.split(sep='-')[1] }}", "['a', 'b-c']b"),
            (
                "{{ 'a-b-c'.partition('-') }}{{ 'a-b-c'.rpartition('-')[0] }}{{ 'a'.rpartition('-') }}",
                "('a', '-', 'b-c')a-b('', '', 'a')",
            ),
            (
                "[{{ 'ab'.center(5) }}][{{ 'abc'.center(6, '*') }}][{{ 'ab'.ljust(4) }}][{{ 'ab'.rjust(4, '.') }}][{{ 'ab'|center(4) }}]",
                "[  ab ][*abc**][ab  ][..ab][ ab ]",
            ),
            (
                "{{ 'üb, b'.index('b') }}{{ 'üb, b'.rindex('b') }} {{ '-7'.zfill(4) }} {{ 'ab'.zfill(1) }} {{ 'aBß'.swapcase() }}",
                "14 -007 ab AbSS",
            ),
            ("{{ \"they're o'neil\".title() }}|{{ 'ab1c dE'.title() }}", "They'Re O'Neil|Ab1C De"),
            ("{{ '<a href=\"/x\">it\\'s & so</a>'|e }}", "&lt;a href=&#34;/x&#34;&gt;it&#39;s &amp; so&lt;/a&gt;"),
            ("{{ ('<b>'|e)|e }}{{ 5|escape }}", "&lt;b&gt;5"),
            ("{{ 'a b/ü?&'|urlencode }}", "a%20b/%C3%BC%3F%26"),
            (
                "{{ 1e16 }} {{ 1e-7 }} {{ 1e15 }} {{ 0.0001 }} {{ 1.5e300 }} {{ -2.0 }}",
                "1e+16 1e-07 1000000000000000.0 0.0001 1.5e+300 -2.0",
            ),
            ("{{ none }} {{ true }} {{ 7 // 2 }}", "None True 3"),
            ("{{ {'b': 'ü', 'a': [1e16, {}]}|tojson(sort_keys=true) }}", "{\"a\": [1e+16, {}], \"b\": \"ü\"}"),
            (
                "{{ {'b': 'ü😀', 'a': [1]}|tojson(ensure_ascii=true, separators=(',', ':')) }}",
                "{\"b\":\"\\u00fc\\ud83d\\ude00\",\"a\":[1]}",
            ),
            (
                "{{ {'b': [], 'a': [1, {}]}|tojson(indent=1, sort_keys=true) }}",
                "{\n \"a\": [\n  1,\n  {}\n ],\n \"b\": []\n}",
            ),
            ("{{ [1, 2]|tojson(false, none, [' ; ', '='], true) }}", "[1 ; 2]"),
            ("{{ 'abc'.removeprefix('a').removesuffix('c') }}", "b"),
        ] {
            assert_eq!(made(template).unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn what_python_is_not_asked_is_refused() {
        for template in
            ["{{ f(1) }}", "{{ text|f }}", "{{ 1 if text is f }}", "{{ text.f() }}", "{{ {}.f() }}", "{{ n.f() }}"]
        {
            assert!(matches!(made(template), Err(Failed::Unknown(_))), "{template}: {:?}", made(template));
        }
        assert!(matches!(made("{{ raise_exception('no') }}"), Err(Failed::Refused(_))));
        for template in [
            "{{ strftime_now('%Q') }}",
            "{{ 'a' % 1 % 2 }}{{ '%d' % 'x' }}",
            "{{ n % 'x' }}",
            "{{ n % 0 }}",
            "{{ text.rsplit('') }}",
            "{{ text.partition('') }}",
            "{{ text.index('z') }}",
            "{{ text.zfill(99999999999) }}",
            "{{ text|truncate(2) }}",
            "{{ [1]|tojson(separators=[',']) }}",
            "{{ [1]|tojson(separators=['a' * 100, ':']) }}",
            "{{ [1]|tojson(default=1) }}",
            "{{ text.center(99999999999) }}",
            "{{ text.ljust(99999999999) }}",
            "{{ '%99999999999d' % n }}",
        ] {
            assert!(matches!(made(template), Err(Failed::Otherwise(_))), "{template}: {:?}", made(template));
        }
    }
}

//! Whether there are colours, and whether what was written can be drawn over: decided here, for everything.

use super::Stream;
use super::listener::{listener, reaches_terminal};
use anstyle_query::{clicolor, clicolor_force, no_color, term_supports_color};
use console::Term;

/// What the environment asks for, and what the stream is.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    no_color: bool,
    force: bool,
    clicolor: Option<bool>,
    terminal: bool,
    capable: bool,
}

impl Wishes {
    /// `NO_COLOR` takes precedence, then `CLICOLOR_FORCE`, then `CLICOLOR=0`. Without these a terminal has colours
    /// unless it is `dumb`.
    fn color(self) -> bool {
        match self {
            Wishes { no_color: true, .. } => false,
            Wishes { force: true, .. } => true,
            Wishes { clicolor: Some(false), .. } => false,
            Wishes { terminal, capable, .. } => terminal && capable,
        }
    }
}

/// Whether text on `stream` is coloured.
pub fn color(stream: Stream) -> bool {
    if listener().is_some() {
        return false;
    }
    let wishes = Wishes {
        no_color: no_color(),
        // By its convention `0` is no wish.
        force: clicolor_force() && std::env::var_os("CLICOLOR_FORCE").is_some_and(|v| v != "0"),
        clicolor: clicolor(),
        terminal: stream.is_terminal(),
        capable: term_supports_color(),
    };
    wishes.color()
}

/// Whether lines on standard error can be drawn over, as progress bars do.
pub fn can_redraw() -> bool {
    reaches_terminal(Stream::Err) && term_supports_color()
}

/// Whether the environment says that there are more characters than those of ASCII: its locale is one of UTF-8.
pub fn unicode() -> bool {
    if cfg!(not(unix)) {
        return true;
    }
    // The first that is set decides, as POSIX has it.
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    locale.is_some_and(|locale| is_utf8(&locale))
}

fn is_utf8(locale: &str) -> bool {
    let charset =
        locale.split('@').next().and_then(|name| name.split_once('.')).map(|(_, charset)| charset.to_lowercase());
    charset.is_some_and(|charset| charset == "utf-8" || charset == "utf8")
}

/// Columns of the terminal behind `stream`, if there is one.
pub fn fitting(stream: Stream) -> Option<usize> {
    stream.is_terminal().then(|| width(stream))
}

/// Columns of the terminal behind `stream`; the classic 80 where there is none, or where it does not report them.
pub fn width(stream: Stream) -> usize {
    let term = match stream {
        Stream::Out => Term::stdout(),
        Stream::Err => Term::stderr(),
    };
    let columns =
        if stream.is_terminal() { term.size_checked().map(|(_, columns)| usize::from(columns)) } else { None };
    columns.filter(|columns| *columns > 0).unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_have_a_charset_or_none() {
        let flags = ["C.UTF-8", "de_DE.utf8@euro", "C", "POSIX", "de_DE.ISO-8859-1", "utf8"].map(is_utf8);
        assert_eq!(flags, [true, true, false, false, false, false]);
    }

    #[test]
    fn wishes_have_an_order() {
        let plain = Wishes { no_color: false, force: false, clicolor: None, terminal: true, capable: true };
        assert!(plain.color());
        assert!(Wishes { clicolor: Some(true), ..plain }.color());
        assert!(!Wishes { terminal: false, ..plain }.color());
        assert!(!Wishes { capable: false, ..plain }.color());
        assert!(!Wishes { clicolor: Some(false), ..plain }.color());
        let forced = Wishes { force: true, clicolor: Some(false), terminal: false, capable: false, ..plain };
        assert!(forced.color());
        assert!(!Wishes { no_color: true, ..forced }.color());
    }
}

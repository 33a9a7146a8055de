//! The texts of bodies, in whichever encoding: what `Content-Type` says, or what the model expects where that says nothing.

use super::refusal::Refusal;
use encoding_rs::{DecoderResult, Encoding, UTF_8};

/// Bytes that a byte of a body may become in UTF-8.
pub const GROWTH: usize = 3;

/// The encoding that a `Content-Type` names as its `charset`.
///
/// # Errors
/// It is none that is known.
pub fn of(content_type: &str) -> Result<Option<&'static Encoding>, Refusal> {
    let is_charset = |parameter: &str| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_owned())
    };
    let Some(label) = content_type.split(';').skip(1).find_map(is_charset) else { return Ok(None) };
    Encoding::for_label_no_replacement(label.as_bytes()).map(Some).ok_or_else(|| {
        let label: String = label.chars().take(40).collect();
        Refusal::other_type(format!("the charset `{label}` is not known: send the body in UTF-8"))
    })
}

/// Refuses another encoding than UTF-8 for JSON, which has no other.
///
/// # Errors
/// It is another one.
pub fn expect_utf8(encoding: Option<&'static Encoding>) -> Result<(), Refusal> {
    match encoding.filter(|encoding| *encoding != UTF_8) {
        Some(other) => Err(Refusal::other_type(format!("JSON is UTF-8, and `charset` says {}", other.name()))),
        None => Ok(()),
    }
}

/// Bytes as text, without the mark that may begin them: in the encoding that the mark says, else in this one.
///
/// # Errors
/// They are not in it: why, with the line.
pub fn text(bytes: &[u8], encoding: &'static Encoding) -> Result<String, String> {
    let (encoding, mark) = Encoding::for_bom(bytes).unwrap_or((encoding, 0));
    let bytes = &bytes[mark..];
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let most = decoder.max_utf8_buffer_length_without_replacement(bytes.len()).unwrap_or(bytes.len());
    let mut text = String::with_capacity(most);
    let (result, read) = decoder.decode_to_string_without_replacement(bytes, &mut text, true);
    let DecoderResult::Malformed(length, behind) = result else { return Ok(text) };
    let at = read.saturating_sub(usize::from(length) + usize::from(behind));
    let byte = bytes.get(at).copied().unwrap_or_default();
    Err(format!(
        "the body, line {}: the byte 0x{byte:02x} is not {}: send it in UTF-8, or say what it is with `charset` in `Content-Type`, as `text/csv; charset=windows-1252`",
        text.matches('\n').count() + 1,
        encoding.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charset_is_found_and_used() {
        for (given, name) in [
            ("text/csv", None),
            ("text/csv; header=present", None),
            ("text/csv; charset=utf-8", Some("UTF-8")),
            ("text/plain;header=x; Charset=\"ISO-8859-1\"", Some("windows-1252")),
        ] {
            assert_eq!(of(given).unwrap().map(Encoding::name), name, "{given}");
        }
        assert!(of("text/csv; charset=klingon").unwrap_err().reason.contains("`klingon` is not known"));
        assert!(expect_utf8(of("application/json; charset=latin1").unwrap()).is_err());
        let western = Encoding::for_label(b"latin1").unwrap();
        assert_eq!(text(b"s\xfc\xdf", western).unwrap(), "s\u{fc}\u{df}");
        assert_eq!(text("\u{feff}s\u{fc}".as_bytes(), western).unwrap(), "s\u{fc}");
        let error = text(b"a\nb\xe9\n", UTF_8).unwrap_err();
        assert!(error.contains("line 2: the byte 0xe9 is not UTF-8"), "{error}");
    }
}

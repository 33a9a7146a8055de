//! What a text is that is no configuration: its encoding, if that is not UTF-8, and its language, if that is not TOML.

/// Bytes that are looked at.
const PREFIX: usize = 4096;

/// What bytes that are not UTF-8 look like, and how they are converted; `None` for what is no text.
pub fn encoding(bytes: &[u8]) -> Option<String> {
    let how = |name: &str| {
        format!("save it as UTF-8 in the editor, or convert it: `iconv -f {name} -t UTF-8 OLD.toml > NEW.toml`")
    };
    let prefix = &bytes[..bytes.len().min(PREFIX)];
    let zeros = |from: usize| prefix.iter().skip(from).step_by(2).filter(|byte| **byte == 0).count();
    let half = prefix.len() / 2;
    let many = |zeros: usize, others: usize| half > 0 && zeros * 2 > half && others == 0;
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Some(format!("it is UTF-16, not UTF-8: {}", how("UTF-16")));
    }
    if many(zeros(1), zeros(0)) {
        return Some(format!("it looks like UTF-16 (little-endian), not UTF-8: {}", how("UTF-16LE")));
    }
    if many(zeros(0), zeros(1)) {
        return Some(format!("it looks like UTF-16 (big-endian), not UTF-8: {}", how("UTF-16BE")));
    }
    let at = std::str::from_utf8(bytes).err()?.valid_up_to();
    let controls = prefix.iter().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c));
    if controls {
        return None;
    }
    let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let byte = bytes[at];
    let letter = if byte >= 0xa0 { format!(", which is `{}` there", char::from(byte)) } else { String::new() };
    Some(format!(
        "it looks like Windows-1252 (or Latin-1), not UTF-8: line {line} has the byte {byte:#04x}{letter}; {}",
        how("WINDOWS-1252")
    ))
}

/// What a text looks like that is not TOML; `None` if it might be TOML with mistakes.
pub fn language(text: &str) -> Option<&'static str> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(200).collect();
    let first = *lines.first()?;
    let share = |is: &dyn Fn(&str) -> bool| lines.iter().filter(|line| is(line)).count() * 10 / lines.len();
    let commas = first.matches(',').count();
    let assigns = |line: &str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        line.contains('=') && !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-.\"'".contains(c))
    };
    let is_yaml = |line: &str| {
        let line = line.trim_start_matches("- ");
        line.split_once(':').is_some_and(|(key, rest)| {
            key.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c)) && (rest.is_empty() || rest.starts_with(' '))
        })
    };
    let is_code = |line: &str| {
        line.starts_with("import ")
            || line.starts_with("from ") && line.contains(" import ")
            || line.starts_with("def ") && line.ends_with(':')
    };
    Some(match () {
        () if first.starts_with("<?xml")
            || first.to_ascii_lowercase().starts_with("<!doctype")
            || first.starts_with("<html") =>
        {
            "XML or HTML"
        }
        () if first.starts_with('{') || first == "[" || first.starts_with("[{") => "JSON",
        () if lines.iter().any(|line| is_code(line)) => "Python",
        () if share(&assigns) >= 3 || share(&|line| line.starts_with('[') && line.ends_with(']')) >= 3 => return None,
        () if commas > 0 && share(&|line| line.matches(',').count() == commas && !line.contains(", ")) >= 9 => {
            "a table (CSV)"
        }
        () if first == "---" || share(&is_yaml) >= 5 => "YAML",
        () => "a text",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_known_by_their_bytes() {
        let utf16 = |text: &str, big: bool| -> Vec<u8> {
            text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
        };
        let text = "# größe\nseed = 1\n";
        let with_mark = [vec![0xff, 0xfe], utf16(text, false)].concat();
        let latin: Vec<u8> = text.chars().map(|c| c as u8).collect();
        for (bytes, part) in [
            (with_mark, "it is UTF-16"),
            (utf16(text, false), "-f UTF-16LE"),
            (utf16(text, true), "-f UTF-16BE"),
            (latin, "line 1 has the byte 0xf6, which is `ö` there"),
        ] {
            let message = encoding(&bytes).unwrap();
            assert!(message.contains(part) && message.contains("iconv"), "{message}");
        }
        for other in [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], b"\xff\xd8\xff\xe0\0\x10JFIF", "# größe".as_bytes()] {
            assert_eq!(encoding(other), None);
        }
    }

    #[test]
    fn languages_are_known_by_their_lines() {
        for (text, what) in [
            ("It was a bright cold day in April,\nand the clocks were striking thirteen.\n", Some("a text")),
            ("It is one line, and no more.\nHere is another, and that is all.\n", Some("a text")),
            ("{\n  \"a\": 1\n}", Some("JSON")),
            ("---\nmodel:\n  layers: 3\n", Some("YAML")),
            ("lr: 0.1\nepochs: 3\n", Some("YAML")),
            ("a,b,c\n1,2,3\n4,5,6\n", Some("a table (CSV)")),
            ("import torch\nx = 1\n", Some("Python")),
            ("<?xml version=\"1.0\"?>\n<a/>", Some("XML or HTML")),
            ("[data]\nsource = digits\nbatch_size = none\n", None),
            ("", None),
        ] {
            assert_eq!(language(text), what, "{text}");
        }
    }
}

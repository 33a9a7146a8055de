//! Pieces of HTML. Whatever comes from elsewhere passes [`escaped`].

use crate::terminal::is_hidden;

/// Text as HTML shows it, in elements and in attributes with double quotes. What the eye cannot see is written out.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_hidden(c) => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// JSON inside of a script: nothing in it ends that, or begins a comment of HTML.
pub fn json(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026").replace(is_hidden, " ")
}

/// A table with headers of rows and columns.
pub struct Table {
    caption: String,
    head: Vec<(String, bool)>,
    body: String,
}

impl Table {
    /// A table: what it is, and the names of its columns. Those that begin with `#` are of numbers.
    pub fn new(caption: &str, head: &[&str]) -> Table {
        let column = |name: &&str| match name.strip_prefix('#') {
            Some(name) => (name.to_owned(), true),
            None => ((*name).to_owned(), false),
        };
        Table { caption: caption.to_owned(), head: head.iter().map(column).collect(), body: String::new() }
    }

    /// Adds a row of texts, the first of which names it.
    pub fn row(&mut self, cells: &[String]) {
        self.row_of(cells.iter().map(|cell| escaped(cell)).collect());
    }

    /// Adds a row of HTML; the first cell has no tags.
    pub fn row_of(&mut self, cells: Vec<String>) {
        self.body += "<tr>";
        for (i, (cell, (_, number))) in cells.iter().zip(&self.head).enumerate() {
            let class = if *number { " class=\"n\"" } else { "" };
            self.body += &match i {
                // On a small screen paths and keys break where their parts do.
                0 => {
                    let cell =
                        ['/', '.', '_'].iter().fold(cell.clone(), |cell, c| cell.replace(*c, &format!("{c}<wbr>")));
                    format!("<th scope=\"row\"{class}>{cell}</th>")
                }
                _ => format!("<td{class}>{cell}</td>"),
            };
        }
        self.body += "</tr>\n";
    }

    /// The HTML. What is wider than the page can be moved, with the keyboard too.
    pub fn html(&self) -> String {
        let caption = escaped(&self.caption);
        let head: String = self
            .head
            .iter()
            .map(|(name, number)| {
                let class = if *number { " class=\"n\"" } else { "" };
                format!("<th scope=\"col\"{class}>{}</th>", escaped(name))
            })
            .collect();
        let body = &self.body;
        format!(
            "<div class=\"wide\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table><caption>{caption}</caption>\n\
             <thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
        )
    }
}

/// Bytes as the address of what they are.
pub fn data_url(kind: &str, bytes: &[u8]) -> String {
    format!("data:{kind};base64,{}", base64(bytes))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().enumerate().fold(0u32, |word, (i, byte)| word | u32::from(*byte) << (16 - 8 * i));
        for digit in 0..4 {
            match digit <= group.len() {
                true => out.push(DIGITS[(word >> (18 - 6 * digit)) as usize & 63] as char),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_elsewhere_is_taken_for_html() {
        let bad = "<script>alert('1')</script> & \"x\" \u{202e}";
        assert_eq!(escaped(bad), "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot; \\u{202e}");
        let text = json(&serde_json::json!({ "a": "</script><!--\u{202e}" }));
        assert!(!text.contains('<') && !text.contains('\u{202e}'), "{text}");
        let mut table = Table::new(bad, &["<b>", "#<i>"]);
        table.row(&["<u>".into(), "<s>".into()]);
        let html = table.html();
        assert!(["<script", "<b>", "<i>", "<u>", "<s>"].iter().all(|tag| !html.contains(tag)), "{html}");
    }

    #[test]
    fn bytes_are_written_in_base_64() {
        // Of RFC 4648, section 10.
        let list = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(list, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}

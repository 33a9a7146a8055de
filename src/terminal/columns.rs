//! Text in columns of a terminal.

/// Columns that a text takes: two for a character of East Asian scripts or a picture, none for an accent that is put on the
/// character before.
pub fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

fn width(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x200d | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe4f | 0xff00..=0xff60 => 2,
        0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// A text in exactly so many columns: filled with spaces, or cut, with dots where there is room for them.
pub fn fitted(text: &str, wide: usize) -> String {
    let fits = columns(text) <= wide;
    let dots = if fits || wide < 8 { "" } else { "..." };
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        if used + width(c) + dots.len() > wide {
            break;
        }
        used += width(c);
        out.push(c);
    }
    out.push_str(dots);
    out.push_str(&" ".repeat(wide - used - dots.len()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_takes_its_columns() {
        for text in ["", "cat", "a long name of a class", "名前名前名前", "e\u{301}te\u{301}"] {
            for wide in 0..25 {
                assert_eq!(columns(&fitted(text, wide)), wide, "{text} in {wide}");
            }
        }
        assert_eq!([fitted("abcdef", 4), fitted("abcdefghij", 8), fitted("名前名", 5)], ["abcd", "abcde...", "名前 "]);
    }
}

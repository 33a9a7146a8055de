//! Letters of three by five pixels.

/// Width and height of a letter.
pub const LETTER: [usize; 2] = [3, 5];

/// The rows of a letter, three bits each, the top one first; lower case is drawn as upper case.
fn rows(letter: char) -> u16 {
    match letter.to_ascii_uppercase() {
        ' ' => 0,
        '0' => 0o75557,
        '1' => 0o26227,
        '2' => 0o71747,
        '3' => 0o71317,
        '4' => 0o55711,
        '5' => 0o74717,
        '6' => 0o74757,
        '7' => 0o71122,
        '8' => 0o75757,
        '9' => 0o75717,
        'A' => 0o25755,
        'B' => 0o65656,
        'C' => 0o34443,
        'D' => 0o65556,
        'E' => 0o74647,
        'F' => 0o74644,
        'G' => 0o34553,
        'H' => 0o55755,
        'I' => 0o72227,
        'J' => 0o11152,
        'K' => 0o55655,
        'L' => 0o44447,
        'M' => 0o57755,
        'N' => 0o65555,
        'O' => 0o25552,
        'P' => 0o65644,
        'Q' => 0o25563,
        'R' => 0o65655,
        'S' => 0o34216,
        'T' => 0o72222,
        'U' => 0o55557,
        'V' => 0o55552,
        'W' => 0o55775,
        'X' => 0o55255,
        'Y' => 0o55222,
        'Z' => 0o71247,
        '-' => 0o00700,
        '_' => 0o00007,
        '.' => 0o00002,
        ',' => 0o00024,
        ':' => 0o02020,
        '/' => 0o11244,
        '%' => 0o51245,
        '+' => 0o02720,
        '&' => 0o25253,
        '(' => 0o12221,
        ')' => 0o42224,
        _ => 0o71202,
    }
}

/// Whether a letter has ink at a row and a column.
pub fn has_ink(letter: char, row: usize, column: usize) -> bool {
    let [width, height] = LETTER;
    let bit = (height - 1 - row) * width + (width - 1 - column);
    rows(letter) >> bit & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_distinct() {
        let all = " 0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.,:/%+&()?";
        let drawn: std::collections::HashSet<u16> = all.chars().map(rows).collect();
        assert_eq!(drawn.len(), all.len());
        let line = |row| [0, 1, 2].map(|column| has_ink('l', row, column));
        assert_eq!((line(0), line(4)), ([true, false, false], [true; 3]));
    }
}

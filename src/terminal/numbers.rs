//! Numbers and durations that keep to a width, whatever they are.

use std::time::Duration;

/// A number in at most `width` characters, of which 7 are enough, 8 where it is negative: `decimals` of them after the
/// point, fewer where they do not fit, a power of ten for what is huge or, where there are many decimals, tiny.
pub fn figure(value: f64, decimals: usize, width: usize) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_string();
    }
    let tiny = value != 0.0 && decimals >= 3 && value.abs() < 1.0 / 10f64.powi(decimals as i32 - 1);
    let huge = value.abs() >= 10f64.powi(width.saturating_sub(1).min(15) as i32);
    let fixed = (0..=decimals).rev().map(|d| format!("{value:.d$}")).filter(|_| !(tiny || huge));
    let powers = (0..=2).rev().map(|d| format!("{value:.d$e}"));
    let mut forms = fixed.chain(powers);
    forms.find(|text| text.len() <= width).unwrap_or_else(|| format!("{value:.0e}"))
}

/// A share of one in percent: `98.13 %`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return figure(share, 2, 7);
    }
    let text = format!("{:.2} %", 100.0 * share);
    // What is rounded to nothing is no less than it.
    if text == "-0.00 %" { text[1..].to_owned() } else { text }
}

/// Bytes as messages show them: `12.3 MiB`.
pub fn human_bytes(bytes: usize) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// A whole number with separators: `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 token`, `2 tokens`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A duration in two of its largest units: `45s`, `12m 30s`, `3h 05m`, `2d 04h`.
pub fn duration(seconds: f64) -> String {
    // A thousand years are enough, and infinity has no whole number.
    let s = Duration::from_secs_f64(seconds.clamp(0.0, 3.2e10)).as_secs_f64().round() as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        3600..86400 => format!("{}h {:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d {:02}h", s / 86400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "token")), ["0 tokens", "1 token", "2 tokens"]);
    }

    #[test]
    fn figures_keep_to_their_width() {
        let list = |values: &[f64], width| values.iter().map(|v| figure(*v, 5, width)).collect::<Vec<_>>().join(" ");
        assert_eq!(
            list(&[0.0, 0.22594, 2.302486, 12.5, 99999.4, 999999.6], 7),
            "0.00000 0.22594 2.30249 12.5000 99999.4 1000000"
        );
        assert_eq!(list(&[1e6, 1.5e10, 1.234e300, 3.4e38, f64::MAX], 7), "1.00e6 1.50e10 1.2e300 3.40e38 1.8e308");
        assert_eq!(
            list(&[1e-4, 0.00012345, 9.9e-5, 1e-300, f64::MIN_POSITIVE], 7),
            "0.00010 0.00012 9.90e-5 1e-300 2e-308"
        );
        assert_eq!(list(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.5], 7), "NaN inf -inf -1.5000");
        for exponent in -320..=308 {
            for digits in ["1", "1.5", "9.9999999", "-3.14159"] {
                let value: f64 = format!("{digits}e{exponent}").parse().unwrap();
                if value.is_infinite() {
                    continue;
                }
                for width in 7 + usize::from(value < 0.0)..12 {
                    let shown = figure(value, 5, width);
                    assert!(shown.len() <= width, "{value:e}: {shown}");
                    let back: f64 = shown.parse().unwrap();
                    assert!((back - value).abs() <= 0.5 * value.abs(), "{value:e}: {shown}");
                }
            }
        }
    }

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!([human_bytes(12), human_bytes(1536), human_bytes(3 << 30)].join(" "), "12 B 1.5 KiB 3.0 GiB");
    }

    #[test]
    fn durations_have_two_units() {
        let list: Vec<String> =
            [0.0, 59.4, 59.6, 750.0, 11_100.0, 187_200.0, -1.0, f64::MAX].map(duration).into_iter().collect();
        assert_eq!(list[..7].join(", "), "0s, 59s, 1m 00s, 12m 30s, 3h 05m, 2d 04h, 0s");
        assert!(list[7].ends_with('h') && list[7].len() < 16, "{}", list[7]);
        assert_eq!([percent(0.98126), percent(1.0), percent(f64::NAN)].join(", "), "98.13 %, 100.00 %, NaN");
        assert_eq!([percent(-1e-9), percent(-0.0), percent(-0.01)].join(", "), "0.00 %, 0.00 %, -1.00 %");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [thousands(0), thousands(999), thousands(1000), thousands(1_234_567)].join(" "),
            "0 999 1,000 1,234,567"
        );
    }
}

//! Text for people: widths, line breaks, figures, near names.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that a text takes in a monospaced font.
pub fn char_width(text: &str) -> usize {
    text.width()
}

/// The text, or its beginning and an ellipsis, in at most `width` columns.
pub fn shorten(text: &str, width: usize) -> String {
    if char_width(text) <= width {
        return text.into();
    }
    let mut taken = 0;
    let begin = text.chars().take_while(|c| {
        taken += c.width().unwrap_or(0);
        taken < width
    });
    begin.chain(['…']).collect()
}

/// The text, or an ellipsis and its end: of generated names the end tells most.
pub fn tail(text: &str, width: usize) -> String {
    let mut left = char_width(text);
    if left <= width {
        return text.into();
    }
    let rest = text.chars().skip_while(|c| {
        let skip = left >= width;
        left -= c.width().unwrap_or(0);
        skip
    });
    ['…'].into_iter().chain(rest).collect()
}

/// Lines of at most `width` columns, broken at spaces; a longer word is shortened.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        let word = shorten(word, width);
        match lines.last_mut() {
            Some(l) if char_width(l) + 1 + char_width(&word) <= width => {
                l.push(' ');
                l.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Whole items, with commas between them, on lines of at most `width` columns; a longer item is shortened.
pub fn flow(items: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for item in items {
        let item = shorten(item, width.saturating_sub(1));
        match lines.last_mut() {
            Some(l) if char_width(l) + 3 + char_width(&item) <= width => *l += &format!(", {item}"),
            Some(l) => {
                l.push(',');
                lines.push(item);
            }
            None => lines.push(item),
        }
    }
    lines
}

/// A count with four digits and a decimal prefix: `1.814 G`, `802.8 k`, `96`.
pub fn count(n: u64) -> String {
    quantity(n, "").trim_end().into()
}

/// A count with a unit: `1.814 GMAC`.
pub fn quantity(n: u64, unit: &str) -> String {
    let mut v = n as f64;
    let mut prefix = 0;
    while v >= 999.95 && prefix < 5 {
        v /= 1000.0;
        prefix += 1;
    }
    let digits = match v {
        _ if prefix == 0 => 0,
        v if v < 9.9995 => 3,
        v if v < 99.995 => 2,
        _ => 1,
    };
    format!("{v:.digits$} {}{unit}", ["", "k", "M", "G", "T", "P"][prefix])
}

/// Bytes with a unit: `3.4 MiB`.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut v = n as f64;
    let mut i = 0;
    while v >= 1024.0 && i + 1 < units.len() {
        v /= 1024.0;
        i += 1;
    }
    if i == 0 { format!("{n} B") } else { format!("{v:.1} {}", units[i]) }
}

/// A figure in decibels: `21.4 dB`, `exact` for equal tensors.
pub fn decibels(v: f64) -> String {
    if v == f64::INFINITY { "exact".into() } else { format!("{v:.1} dB") }
}

/// The character, or a replacement for one that XML does not admit.
pub fn printable(c: char) -> char {
    let bad = c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{fffe}' | '\u{ffff}');
    if bad { '\u{fffd}' } else { c }
}

/// The names nearest to one that is not among them, best first: at most three, none if all are far.
pub fn near<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<(f64, &str)> = names.into_iter().map(|n| (strsim::jaro_winkler(name, n), n)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    all.into_iter().filter(|(likeness, _)| *likeness >= 0.75).take(3).map(|(_, n)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_prefix() {
        let all = [0, 96, 999, 1000, 802_816, 999_999, 1_814_073_344, 300_774_272, 45_000_000].map(count);
        assert_eq!(all, ["0", "96", "999", "1.000 k", "802.8 k", "1.000 M", "1.814 G", "300.8 M", "45.00 M"]);
    }

    #[test]
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrap("float: its softmax is run in float", 16), ["float: its", "softmax is run", "in float"]);
        assert_eq!(shorten("conv2d", 4), "con…");
        assert_eq!(shorten("卷積層", 4), "卷…");
        assert_eq!([tail("conv2d", 4), tail("conv2d", 6), tail("卷積層", 4)], ["…v2d", "conv2d", "…層"]);
    }

    #[test]
    fn items_stay_whole() {
        let items = ["a = 1".to_string(), "b = 22".into(), "c = 333 + 444".into()];
        assert_eq!(flow(&items, 14), ["a = 1, b = 22,", "c = 333 + 444"]);
        assert_eq!(flow(&items, 8), ["a = 1,", "b = 22,", "c = 33…"]);
    }

    #[test]
    fn near_names_are_found() {
        assert_eq!(near("conv2", ["conv2d", "conv1d", "relu", "linear"]), ["conv2d", "conv1d"]);
        assert!(near("zzz", ["conv2d"]).is_empty());
    }
}

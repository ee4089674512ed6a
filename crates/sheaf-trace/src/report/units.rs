//! Points in time, shares and shortened texts as people read them.
pub(crate) use sheaf_log::units::{count, escaped, shown, size, time};

/// A point in time.
pub(crate) fn day(ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
        Err(_) => format!("{ns} ns since 1970"),
    }
}

/// `97 %`; 100 % are all, and 0 % none.
pub(crate) fn percent(part: impl Into<u128>, whole: impl Into<u128>) -> String {
    let (part, whole) = (part.into(), whole.into());
    let share = ratio(part, whole) * 100.0;
    match share {
        _ if part == 0 => "0 %".to_owned(),
        _ if part == whole => "100 %".to_owned(),
        share if share < 1.0 => "< 1 %".to_owned(),
        share if share > 99.0 => "> 99 %".to_owned(),
        share => format!("{share:.0} %"),
    }
}

/// A part of a whole; 0 of nothing.
pub(crate) fn ratio(part: impl Into<u128>, whole: impl Into<u128>) -> f64 {
    let whole = whole.into();
    if whole == 0 { 0.0 } else { part.into() as f64 / whole as f64 }
}

/// A text of at most so many characters, shortened in its middle.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    let length = text.chars().count();
    if length <= chars_max {
        return text.to_owned();
    }
    let kept = chars_max.saturating_sub(1);
    // The end of a path says more than its beginning.
    let (first, last) = (kept / 3, kept - kept / 3);
    let begin: String = text.chars().take(first).collect();
    let end: String = text.chars().skip(length - last).collect();
    format!("{begin}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_only_where_they_are() {
        assert_eq!(
            [(0u64, 9u64), (1, 999), (1, 3), (998, 999), (9, 9)].map(|(a, b)| percent(a, b)),
            ["0 %", "< 1 %", "33 %", "> 99 %", "100 %"]
        );
    }

    #[test]
    fn long_texts_are_shortened_in_their_middle() {
        assert_eq!(shortened("/scratch/user/file", 10), "/sc…r/file");
        assert_eq!(shortened("short", 10), "short");
    }
}

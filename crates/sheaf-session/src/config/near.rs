//! Names in messages: the one that was likely meant, and some of many.

/// The most names a message lists.
const NAMES_SHOWN_MAX: usize = 8;

/// Names in a message, of which there may be many.
pub fn some_of<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    let shown: Vec<&str> = names.take(NAMES_SHOWN_MAX).map(String::as_str).collect();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", shown.join(", "))
}

/// The known name that `name` was most likely meant to be, when one is close.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= distance_max || is_plural(name, candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn is_plural(a: &str, b: &str) -> bool {
    a.strip_suffix('s') == Some(b) || b.strip_suffix('s') == Some(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_close() {
        assert_eq!(nearest("host", ["hosts", "launch"]), Some("hosts"));
        assert_eq!(nearest("lunch", ["hosts", "launch"]), Some("launch"));
        assert_eq!(nearest("classs", ["classes", "lines"]), Some("classes"));
        assert_eq!(nearest("xyz", ["hosts", "launch"]), None);
    }
}

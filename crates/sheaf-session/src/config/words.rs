//! The words of `-w`, as `pdsh` has them: host sets, `^FILE`, `-HOSTSET`, `/REGEX/` and `-/REGEX/`.
//!
//! Words are joined by commas. `^FILE` stands for the hosts that a file lists, one a line.
//! `-HOSTSET` leaves hosts out, as `-x` does. `/REGEX/` keeps the hosts whose names it matches, and
//! `-/REGEX/` leaves them out; where no other word names hosts, they are chosen from the cluster's.
use super::hosts;
use crate::awaited::LocalWait;
use crate::choices::Choices;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::trust;
use regex::Regex;
use std::net::Ipv6Addr;
use std::path::Path;

/// The longest file of hosts, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Hosts are kept if their names match, or left out.
#[derive(Clone, Debug)]
pub(super) struct NameFilter {
    regex: Regex,
    keeps: bool,
}

impl NameFilter {
    /// Whether the host of this name is meant.
    pub fn admits(&self, name: &str) -> bool {
        self.regex.is_match(name) == self.keeps
    }
}

/// The choices with plain host sets, and the filters of names.
pub(super) fn expand(
    choices: &Choices,
    environment: &Environment,
) -> Result<(Choices, Vec<NameFilter>), SessionError> {
    let mut plain = Choices { on_hosts: Vec::new(), ..choices.clone() };
    let mut filters = Vec::new();
    for word in choices.on_hosts.iter().flat_map(|words| split(words)) {
        let (excluded, rest) = match word.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        let set = if let Some(file) = rest.strip_prefix('^') {
            listed(Path::new(file.trim()), environment)?
        } else if let Some(pattern) = pattern_of(rest) {
            let regex = Regex::new(pattern)
                .map_err(|error| SessionError::Hosts(format!("-w {word}: {error}")))?;
            filters.push(NameFilter { regex, keeps: !excluded });
            continue;
        } else {
            unbracketed(rest)
        };
        if excluded { &mut plain.exclude_hosts } else { &mut plain.on_hosts }.push(set);
    }
    Ok((plain, filters))
}

/// The regular expression of `/REGEX/`.
fn pattern_of(word: &str) -> Option<&str> {
    word.strip_prefix('/')?.strip_suffix('/').filter(|pattern| !pattern.is_empty())
}

/// The words between commas, outside of brackets and of regular expressions.
fn split(words: &str) -> Vec<&str> {
    let (mut all, mut start, mut depth, mut in_regex) = (Vec::new(), 0, 0u32, false);
    for (at, byte) in words.bytes().enumerate() {
        let begins = matches!(&words.as_bytes()[start..at], b"" | b"-");
        match byte {
            b'/' if begins => in_regex = true,
            // It ends with the slash in front of a comma, or of the end.
            b'/' if in_regex && matches!(words.as_bytes().get(at + 1), None | Some(b',')) => {
                in_regex = false;
            }
            _ if in_regex => {}
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                all.push(&words[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&words[start..]);
    all
}

/// The hosts that a file lists, as one host set.
fn listed(path: &Path, environment: &Environment) -> Result<String, SessionError> {
    let path = match &environment.working_directory {
        Ok(directory) => directory.join(path),
        Err(_) => path.to_owned(),
    };
    let _awaited = LocalWait::file(&path);
    let failed = |why: String| SessionError::Hosts(format!("-w ^FILE: {why}"));
    let text = trust::open_named(&path).and_then(|file| {
        use std::io::Read;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    });
    let set = hosts::lines(&text.map_err(|why| failed(why.text(&path)))?);
    if set.trim().is_empty() {
        return Err(failed(format!("{}: it lists no host", path.display())));
    }
    Ok(set)
}

/// A host set with IPv6 addresses out of their brackets, in which they stand in front of a colon.
pub(crate) fn unbracketed(set: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(set.len()), set);
    while let Some((before, inside)) = rest.split_once('[') {
        out += before;
        let address = inside.split_once(']').filter(|(address, _)| {
            let plain = address.split_once('%').map_or(*address, |(plain, _)| plain);
            plain.parse::<Ipv6Addr>().is_ok()
        });
        rest = match address {
            Some((address, after)) => {
                out += address;
                after
            }
            None => {
                out.push('[');
                inside
            }
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(words: &[&str]) -> (Vec<String>, Vec<String>, Vec<NameFilter>) {
        let on_hosts = words.iter().map(|&word| word.to_owned()).collect();
        let choices = Choices { on_hosts, ..Choices::default() };
        let (choices, filters) = expand(&choices, &Environment::default()).unwrap();
        (choices.on_hosts, choices.exclude_hosts, filters)
    }

    #[test]
    fn words_of_pdsh_are_hosts_exclusions_and_filters() {
        let (on, out, filters) = expanded(&["n[1-9,12],-n3,/^n[1-9,]$/", "-n[5-6],-/8/,@web!n1"]);
        assert_eq!(on, ["n[1-9,12]", "@web!n1"]);
        assert_eq!(out, ["n3", "n[5-6]"]);
        let admits = |name: &str| filters.iter().all(|filter| filter.admits(name));
        assert!(admits("n7") && !admits("n8") && !admits("n12"));
        let choices = Choices { on_hosts: vec!["/(/".to_owned()], ..Choices::default() };
        let error = expand(&choices, &Environment::default()).unwrap_err().to_string();
        assert!(error.starts_with("-w /(/: "), "{error}");
    }

    #[test]
    fn hosts_of_a_file_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, "n[1-3] # a rack\n\nm7\n").unwrap();
        let (on, out, _) = expanded(&[&format!("^{},-^{}", file.display(), file.display())]);
        assert_eq!((on.len(), &on), (1, &out));
        let set = sheaf_core::hostset::HostSet::parse(&on[0]).unwrap();
        assert_eq!(set.to_string(), "m7,n[1-3]");
        let choices = Choices { on_hosts: vec!["^/absent/f".to_owned()], ..Choices::default() };
        let error = expand(&choices, &Environment::default()).unwrap_err().to_string();
        assert!(error.starts_with("-w ^FILE: /absent/f: "), "{error}");
    }

    #[test]
    fn ipv6_addresses_lose_their_brackets() {
        for (set, plain) in [
            ("[::1]", "::1"),
            ("[fe80::1%eth0],n[1-3]", "fe80::1%eth0,n[1-3]"),
            ("n[1-3],[2001:db8::7]", "n[1-3],2001:db8::7"),
            ("[1-3]", "[1-3]"),
            ("n[1", "n[1"),
            ("", ""),
        ] {
            assert_eq!(unbracketed(set), plain);
        }
    }
}

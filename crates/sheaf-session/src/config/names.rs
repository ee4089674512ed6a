//! Names that are handed to `ssh`: of hosts, and of the user to log in as. One that begins with a
//! dash would be an option to it, and what a shell gives a meaning to may be run by its
//! `ProxyCommand`; it refuses both itself, host by host, as if these were down.

/// What no name has: a shell may be given it.
const SHELL: &str = "'`\"$;&<>|(){}\\";
/// What no name of a user has. A domain is put before it with a backslash.
const SHELL_OF_USERS: &str = "'`\"$;&<>|(){}";

/// Why nothing can be called so on a network, if it cannot.
pub fn host_problem(name: &str) -> Option<String> {
    // It stands in paths: of exports, and of what is copied from hosts and to them.
    let is_path = name.contains('/') || name == "." || name == "..";
    let path = is_path.then(|| "it is a path".to_owned());
    let why = problem(name, SHELL).or(path)?;
    let hint = if name.contains(char::is_whitespace) { "; hosts are joined by commas" } else { "" };
    Some(format!("{name:?} cannot be the name of a host: {why}{hint}"))
}

/// The name of a user, as an option's value.
///
/// # Errors
/// When ssh or a shell would read the name as something else.
pub fn user(name: &str) -> Result<String, String> {
    match problem(name, SHELL_OF_USERS) {
        Some(why) => Err(format!("a user cannot be called so: {why}")),
        None => Ok(name.to_owned()),
    }
}

fn problem(name: &str, shell: &str) -> Option<String> {
    let is_wrong = |c: &char| c.is_whitespace() || c.is_control() || shell.contains(*c);
    Some(match name.chars().find(is_wrong) {
        _ if name.is_empty() => "it is empty".to_owned(),
        _ if name.starts_with('-') => "it begins with a dash".to_owned(),
        Some(c) if c.is_control() => "it has a control character".to_owned(),
        Some(c) if c.is_whitespace() => "it has a blank".to_owned(),
        Some(c) => format!("it has a {c}"),
        None => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_user_names_unsafe_for_ssh_are_rejected() {
        for name in [
            "",
            "-oProxyCommand=x",
            "a b",
            "a\tb",
            "a\u{a0}b",
            "a\nb",
            "a;b",
            "$(x)",
            "`x`",
            "a\\b",
        ] {
            assert!(host_problem(name).is_some(), "{name:?}");
        }
        for name in ["n1", "n-1.example.org", "2001:db8::1", "a_b", "fe80::1%eth0", "über"] {
            assert_eq!(host_problem(name), None);
        }
        for name in ["", "-x", "x y", "x;y", "x\0"] {
            assert!(user(name).is_err(), "{name:?}");
        }
        for name in ["me", "me@REALM", "DOMAIN\\me", "svc-1"] {
            assert_eq!(user(name).as_deref(), Ok(name));
        }
    }
}

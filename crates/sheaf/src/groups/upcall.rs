//! Shell commands that answer questions about hosts: ClusterShell's group sources and `@command:`.
use super::GroupError;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// The most a command may answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Puts values in the place of `$NAME` and `${NAME}`; `$$` is a dollar, other names stay.
pub fn substitute(template: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let braced = rest.strip_prefix('{');
        let name_text = braced.unwrap_or(rest);
        let end = name_text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name_text.len());
        let (name, after) = name_text.split_at(end);
        let after = if braced.is_some() { after.strip_prefix('}') } else { Some(after) };
        let value = values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        match (value, after) {
            (Some(value), Some(after)) => {
                out.push_str(value);
                rest = after;
            }
            _ => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

/// Whether a name can be put into a command line without the shell reading it as anything else.
pub fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_alphanumeric() || "_-.+=%/".contains(c))
}

/// What a command prints, run by the shell; its errors go to our stderr.
pub fn run(command: &str, directory: &Path) -> Result<String, GroupError> {
    let failed = |why: String| GroupError(format!("command {command:?}: {why}"));
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut answer = Vec::new();
    let read = match child.stdout.take() {
        Some(stdout) => stdout.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer),
        None => Ok(0),
    };
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    read.map_err(|error| failed(error.to_string()))?;
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(failed(format!("answered more than {ANSWER_BYTES_MAX} bytes")));
    }
    if !status.success() {
        return Err(failed(format!("ended with {status}")));
    }
    String::from_utf8(answer).map_err(|_| failed("answered something that is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_the_rest_stays() {
        let values = [("GROUP", "web"), ("CFGDIR", "/etc")];
        let done = |template| substitute(template, &values);
        assert_eq!(
            done("sed -n 's/^$GROUP:\\(.*\\)$/\\1/p' ${CFGDIR}/g"),
            "sed -n 's/^web:\\(.*\\)$/\\1/p' /etc/g"
        );
        assert_eq!(done("$f $$GROUP ${GROUP $"), "$f $GROUP ${GROUP $");
        assert_eq!(done("$GROUPS"), "$GROUPS");
    }

    #[test]
    fn names_the_shell_would_read_are_not_plain() {
        assert!(is_plain("rack-1.a"));
        for name in ["a b", "$(id)", "a;b", "`id`", "-n", "a'b", "a*"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = run("exit 3", Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "command \"exit 3\": ended with exit status: 3");
        assert_eq!(run("echo n1; echo n2", Path::new("/")).unwrap(), "n1\nn2\n");
    }
}

//! How the program ends: exit codes, and the two kinds of error that choose one.
pub use sheaf_records::Exit;
use sheaf_session::SessionError;
pub use sheaf_session::io_text;

/// The exit codes in the words of help texts and manual pages.
pub const CODES: &[(Exit, &str)] = &[
    (Exit::Success, "all members answered (grep: and a line was selected)"),
    (Exit::Unmatched, "all answered, but nothing matched, or contents differ; or you said no"),
    (Exit::Usage, "the command line or the configuration is wrong"),
    (Exit::Unreachable, "there is no session, or no host answered"),
    (Exit::Partial, "partial: some members failed or were silent, or the command broke off"),
    (Exit::Interrupted, "interrupted: what had come until then was printed"),
];

/// An error that says how the program ends. With any other the command broke off, so that its
/// answer is not whole: exit 4.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The user asked for something that cannot be meant: exit 2.
    #[error("{0}")]
    Usage(String),
    /// There is no tree to ask: exit 3.
    #[error("{0}")]
    Unreachable(String),
    /// What has to be equal differs: exit 1.
    #[error("{0}")]
    Unmatched(String),
}

impl Stop {
    /// A usage error with this one-line text.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// An error that leaves no host to ask.
    pub fn unreachable(text: impl Into<String>) -> Self {
        Self::Unreachable(text.into())
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::Unmatched(_) => Exit::Unmatched,
        }
    }
}

/// The exit code an error leads to.
pub fn of_error(error: &anyhow::Error) -> Exit {
    let stop = |cause: &'_ (dyn std::error::Error + 'static)| -> Option<Exit> {
        // What a reader or writer wraps is no cause of its error.
        let within = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let within = within.and_then(|error| error.downcast_ref::<Stop>());
        let session = cause.downcast_ref::<SessionError>().and_then(of_session);
        cause.downcast_ref::<Stop>().or(within).map(Stop::exit).or(session)
    };
    error.chain().find_map(stop).unwrap_or(Exit::Partial)
}

fn of_session(error: &SessionError) -> Option<Exit> {
    match error {
        error if error.is_usage() => Some(Exit::Usage),
        error if error.is_unreachable() => Some(Exit::Unreachable),
        _ => None,
    }
}

/// An error and its causes on one line. A cause that the text before it tells already is not
/// repeated.
pub fn one_line(error: &anyhow::Error) -> String {
    sheaf_session::one_line(error.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn context_keeps_the_exit_code() {
        let error = Err::<(), _>(Stop::usage("bad")).context("while reading").unwrap_err();
        assert_eq!(of_error(&error), Exit::Usage);
        assert_eq!(of_error(&anyhow::anyhow!("other")), Exit::Partial);
    }

    #[test]
    fn no_cause_is_told_twice() {
        let error =
            anyhow::anyhow!("no link").context("no parent: no link").context("cannot serve");
        assert_eq!(one_line(&error), "cannot serve: no parent: no link");
    }
}

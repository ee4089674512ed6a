use sheaf_core::Errno;
use std::path::{Path, PathBuf};

/// Why a trace cannot be collected, stored or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The kernel says so of a file.
    #[error("{}: {}", path.display(), in_words(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: std::io::Error,
    },
    /// A file is no trace, or not a whole one.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Whoever writes a trace has removed its oldest parts while it was read.
    #[error(
        "{}: {parts} of its oldest parts were removed while it was read (--keep): what was in them \
         is not here",
        path.display()
    )]
    Removed {
        /// The trace.
        path: PathBuf,
        /// How many parts.
        parts: u64,
    },
}

/// As failures of hosts are told: with the name of the error in place of its number.
fn in_words(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |errno| Errno(errno).to_string())
}

/// The same of a text that a library has made of an error.
fn with_names(mut text: String) -> String {
    const NUMBER: &str = "(os error ";
    let mut from = 0;
    while let Some(at) = text[from..].find(NUMBER).map(|at| from + at) {
        let digits = at + NUMBER.len();
        let end = text[digits..].find(')').map(|end| digits + end);
        let named = end.and_then(|end| Some((end, text[digits..end].parse().ok()?)));
        if let Some((end, name)) = named.and_then(|(end, errno)| Some((end, Errno(errno).name()?)))
        {
            text.replace_range(at..=end, &format!("({name})"));
        }
        from = at + 1;
    }
    text
}

impl TraceError {
    /// Returns a function that makes [`TraceError::Io`] for `path` from an error of the kernel.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// [`TraceError::Damaged`] for `path`. Numbers of errors in `why` are replaced by their names.
    pub fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: with_names(why.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_have_their_names() {
        for (text, told) in [
            (
                "External: No space left on device (os error 28)",
                "External: No space left on device (ENOSPC)",
            ),
            ("a (os error 2), b (os error 13)", "a (ENOENT), b (EACCES)"),
            ("a (os error 99999), b (os error", "a (os error 99999), b (os error"),
            ("(os error )(os error 2", "(os error )(os error 2"),
        ] {
            assert_eq!(with_names(text.to_owned()), told);
        }
        let io = std::io::Error::from_raw_os_error(2);
        let told = TraceError::io(Path::new("x"))(io).to_string();
        assert_eq!(told, "x: No such file or directory (ENOENT)");
    }
}

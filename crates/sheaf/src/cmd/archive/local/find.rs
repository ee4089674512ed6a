//! Files of this machine that pass tests.
use super::ToldFiles;
use super::list::local_record;
use crate::output::{Output, printable};
use sheaf_archive::{
    FileFacts, FindExpression, FindFile, TreeVisitor, VisitedFile, WalkedDirectory, is_empty_in,
};
use sheaf_core::Errno;
use sheaf_core::files::Timestamp;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Finds files of this machine.
pub struct LocalFind {
    pub expression: Arc<FindExpression>,
    pub now: Timestamp,
    pub output: Output,
    /// The host that the files are on, if it is told.
    pub host: Option<String>,
}

impl TreeVisitor for LocalFind {
    type Piece = ToldFiles;

    fn facts(&self) -> FileFacts {
        if self.output.json { FileFacts::Status } else { self.expression.facts() }
    }

    fn visit(&self, piece: &mut ToldFiles, file: &VisitedFile<'_>) -> bool {
        let before = piece.text.len();
        if let Some(host) = self.host.as_ref().filter(|_| !self.output.json) {
            piece.text.extend_from_slice(host.as_bytes());
            piece.text.push(b':');
        }
        let from = piece.text.len();
        file.put_path(&mut piece.text);
        let mut ends = Vec::new();
        let mut told = self.test(&piece.text[from..], file, &mut ends);
        let is_plain = !self.output.json && !self.output.stdout_is_terminal;
        match &ends[..] {
            [end] if is_plain && told.is_ok() => piece.text.push(*end),
            [] if told.is_ok() => piece.text.truncate(before),
            ends => {
                let name = piece.text.split_off(before);
                let (host, path) = name.split_at(from - before);
                for end in ends {
                    let put = self.put(&mut piece.text, host, path, *end, file);
                    told = told.and(put);
                }
                if let Err(errno) = told {
                    piece.failed(path, errno);
                }
            }
        }
        file.depth < self.expression.depth_max
    }

    fn failed(&self, piece: &mut ToldFiles, directory: &WalkedDirectory, errno: Errno) {
        piece.failed_directory(directory, errno);
    }

    fn bytes(&self, piece: &ToldFiles) -> usize {
        piece.bytes()
    }
}

impl LocalFind {
    /// Tests a file; `ends` is as in [`FindExpression::test`].
    fn test(&self, path: &[u8], file: &VisitedFile<'_>, ends: &mut Vec<u8>) -> Result<(), Errno> {
        let status = match file.found {
            Some(Ok(found)) => Some(found),
            Some(Err(errno)) if self.facts() == FileFacts::Status || file.depth == 0 => {
                return Err(*errno);
            }
            _ => None,
        };
        let path = Path::new(OsStr::from_bytes(path));
        let found = FindFile::local(path, file.depth, file.kind, status);
        let mut is_empty = || is_empty_in(file.directory, file.name);
        self.expression.test(&found, self.now, &mut is_empty, ends)
    }

    /// Prints a file.
    fn put(
        &self,
        text: &mut Vec<u8>,
        host: &[u8],
        path: &[u8],
        end: u8,
        file: &VisitedFile<'_>,
    ) -> Result<(), Errno> {
        if self.output.json {
            let mut record = local_record(path, file)?;
            if let Some(host) = &self.host {
                record["host"] = host.as_str().into();
            }
            let written = self.output.records.write(text, record);
            return written.map_err(|error| Errno::from_io(&error));
        }
        text.extend_from_slice(host);
        if self.output.stdout_is_terminal && end == b'\n' {
            let shown = printable(&String::from_utf8_lossy(path));
            text.extend_from_slice(shown.as_bytes());
        } else {
            text.extend_from_slice(path);
        }
        text.push(end);
        Ok(())
    }
}

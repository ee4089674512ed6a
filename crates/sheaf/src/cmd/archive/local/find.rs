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
        match self.tell(&mut piece.text, from, file) {
            Ok(true) => {}
            Ok(false) => piece.text.truncate(before),
            Err(errno) => {
                let path = piece.text.split_off(from);
                piece.text.truncate(before);
                piece.failed(&path, errno);
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
    /// Tells of a file, whose path stands in the text, if it passes.
    fn tell(&self, text: &mut Vec<u8>, from: usize, file: &VisitedFile<'_>) -> Result<bool, Errno> {
        let status = match file.found {
            Some(Ok(found)) => Some(found),
            Some(Err(errno)) if self.facts() == FileFacts::Status || file.depth == 0 => {
                return Err(*errno);
            }
            _ => None,
        };
        let path = Path::new(OsStr::from_bytes(&text[from..]));
        let found = FindFile::local(path, file.depth, file.kind, status);
        let mut is_empty = || is_empty_in(file.directory, file.name);
        if !self.expression.passes(&found, self.now, &mut is_empty)? {
            return Ok(false);
        }
        if self.output.json {
            let path = text.split_off(from);
            let mut record = local_record(&path, file)?;
            if let Some(host) = &self.host {
                record["host"] = host.as_str().into();
            }
            self.output.records.write(text, record).map_err(|error| Errno::from_io(&error))?;
            return Ok(true);
        }
        if self.output.stdout_is_terminal && !self.expression.ends_with_nul {
            let path = text.split_off(from);
            let shown = printable(&String::from_utf8_lossy(&path));
            text.extend_from_slice(shown.as_bytes());
        }
        text.push(if self.expression.ends_with_nul { b'\0' } else { b'\n' });
        Ok(true)
    }
}

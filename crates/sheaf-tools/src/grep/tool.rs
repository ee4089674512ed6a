//! Grep at a leaf: one file a step.
use super::{Engine, GrepOptions, PathFilter};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{FileKind, Follow, Globbed, NameFilter, Walk, WalkOptions};
use sheaf_group::entry::Sink;
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Name of the tool.
pub(super) const NAME: &str = "grep";

/// Compiled engines kept for the next host of the same process.
const ENGINES_KEPT: usize = 8;

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Params {
    pub options: GrepOptions,
    /// Paths and patterns beneath the export.
    pub paths: Vec<String>,
}

/// Makes the tool known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(NAME, GrepTool::default());
}

type Pool = Arc<Mutex<Vec<(GrepOptions, Engine)>>>;

#[derive(Default)]
struct GrepTool {
    pool: Pool,
}

impl Tool for GrepTool {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let params: Params = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let options = params.options;
        let pooled = {
            let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            pool.iter().position(|(have, _)| *have == options).map(|at| pool.swap_remove(at).1)
        };
        let engine = match pooled {
            Some(engine) => engine,
            None => options.compile().map_err(|error| error.errno())?,
        };
        let engine = if options.template { engine.on_host(&[&host.name]) } else { engine };
        Ok(Box::new(Search {
            filter: options.path_filter().map_err(|error| error.errno())?,
            options,
            engine: Some(engine),
            pool: Arc::clone(&self.pool),
            patterns: params.paths.into(),
            files: VecDeque::new(),
            walk: None,
        }))
    }
}

struct Search {
    options: GrepOptions,
    filter: PathFilter,
    /// There until it goes back to the pool.
    engine: Option<Engine>,
    pool: Pool,
    patterns: VecDeque<String>,
    files: VecDeque<PathBuf>,
    walk: Option<Walk>,
}

impl Drop for Search {
    fn drop(&mut self) {
        // An engine with a template knows its host's name.
        if let Some(engine) = self.engine.take().filter(|_| !self.options.template) {
            let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
            if pool.len() < ENGINES_KEPT {
                pool.push((self.options.clone(), engine));
            }
        }
    }
}

impl Running for Search {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let answer = answer.entries_with(self.options.answer_form());
        if let Some(walk) = &mut self.walk {
            match walk.next() {
                Some(Ok(entry)) => {
                    let name = entry.path.as_os_str().as_bytes();
                    match entry.kind {
                        FileKind::Directory if entry.depth > 0 && !self.filter.enters(name) => {
                            walk.skip_dir()
                        }
                        // As grep -r does, devices and pipes that are only come across are left alone.
                        FileKind::File if entry.depth == 0 || self.filter.wants(name) => {
                            return self.search(&entry.path, answer, host);
                        }
                        _ => {}
                    }
                }
                Some(Err(error)) => answer.error(error.path.as_os_str().as_bytes(), error.errno),
                None => self.walk = None,
            }
            return Step::More;
        }
        if let Some(path) = self.files.pop_front() {
            // Of a path that cannot be looked at, the search says why.
            if self.options.recursive && host.export.stat(&path).is_ok_and(|metadata| metadata.is_dir()) {
                let options = WalkOptions {
                    follow: Follow::Start,
                    include: NameFilter::default(),
                    ..WalkOptions::default()
                };
                self.walk = Some(host.export.walk(&path, options));
                return Step::More;
            }
            return self.search(&path, answer, host);
        }
        let Some(pattern) = self.patterns.pop_front() else { return Step::Done };
        let Globbed { paths, errors } = host.export.expand(&pattern);
        errors.iter().for_each(|error| answer.error(error.path.as_os_str().as_bytes(), error.errno));
        self.files = paths.into();
        Step::More
    }
}

impl Search {
    fn search(&mut self, path: &Path, answer: &mut dyn Sink, host: &Host) -> Step {
        let name = path.as_os_str().as_bytes();
        let Some(engine) = &mut self.engine else { return Step::Done };
        match host.export.open_read(path) {
            Ok(file) => {
                if engine.search(&file, name, answer).is_break() {
                    return Step::Done;
                }
            }
            Err(errno) => answer.error(name, errno),
        }
        Step::More
    }
}

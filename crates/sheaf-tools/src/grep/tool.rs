//! Grep at a leaf: one file a step, long ones in several.
use super::aside::{Aside, AsideProgress};
use super::{Engine, GrepOptions, PathFilter};
use crate::paths::{AtWork, PerPath};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use sheaf_file::{FileKind, Follow, NameFilter, Walk, WalkOptions};
use sheaf_group::entry::{Answer, AnswerForm, Sink};
use sheaf_group::tool::{Host, Running, Tool, Tools};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

pub(super) const NAME: &str = "grep";

/// Compiled engines kept for the next host of the same process.
const ENGINES_KEPT: usize = 8;

/// A file of this length is searched in one step: however its lines are written into the answer,
/// they fit. Longer ones are searched aside, and so is what does not tell its length.
const AT_ONCE_BYTES: u64 = 8 << 20;

/// The same for a file that may have to be decompressed.
const AT_ONCE_COMPRESSED_BYTES: u64 = 4 << 10;

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GrepParams {
    pub options: GrepOptions,
    /// Paths and patterns beneath the export.
    pub paths: Vec<String>,
}

/// Makes the tool known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(NAME, GrepTool::default());
}

type EnginePool = Arc<Mutex<Vec<(GrepOptions, Engine)>>>;

#[derive(Default)]
struct GrepTool {
    pool: EnginePool,
}

impl Tool for GrepTool {
    fn only_reads(&self) -> bool {
        true
    }

    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let params: GrepParams = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let options = params.options;
        let pooled = {
            let mut pool = lock(&self.pool);
            pool.iter().position(|(have, _)| *have == options).map(|at| pool.swap_remove(at).1)
        };
        let engine = match pooled {
            Some(engine) => engine,
            None => options.compile().map_err(|error| error.errno())?,
        };
        let engine = if options.template { engine.on_host(&[&host.name]) } else { engine };
        let search = GrepSearch {
            filter: options.path_filter().map_err(|error| error.errno())?,
            options,
            engine: Some(engine),
            aside: None,
            pool: Arc::clone(&self.pool),
            walk: None,
            is_over: false,
        };
        Ok(Box::new(AtWork::new(Box::new(search), params.paths)))
    }
}

struct GrepSearch {
    options: GrepOptions,
    filter: PathFilter,
    /// There until it goes back to the pool, but while it searches aside.
    engine: Option<Engine>,
    aside: Option<Aside>,
    pool: EnginePool,
    walk: Option<Walk>,
    /// What is wanted of this host was found.
    is_over: bool,
}

impl Drop for GrepSearch {
    fn drop(&mut self) {
        // An engine with a template knows its host's name.
        if let Some(engine) = self.engine.take().filter(|_| !self.options.template) {
            let mut pool = lock(&self.pool);
            if pool.len() < ENGINES_KEPT {
                pool.push((self.options.clone(), engine));
            }
        }
    }
}

impl PerPath for GrepSearch {
    fn form(&self) -> AnswerForm {
        self.options.answer_form()
    }

    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        // Of a path that cannot be looked at, the search says why.
        if self.options.recursive && host.export.stat(path).is_ok_and(|metadata| metadata.is_dir())
        {
            let options = WalkOptions {
                follow: if self.options.follow { Follow::Always } else { Follow::Start },
                include: NameFilter::default(),
                ..WalkOptions::default()
            };
            self.walk = Some(host.export.walk(path, options));
            return Ok(());
        }
        self.search(path, answer, host)
    }

    fn is_under_way(&self) -> bool {
        self.aside.is_some() || self.walk.is_some()
    }

    fn go_on(&mut self, answer: &mut Answer, host: &Host) -> bool {
        if self.aside.is_some() {
            self.search_on(answer);
        } else {
            self.walk_on(answer, host);
        }
        self.is_under_way()
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

impl GrepSearch {
    /// The next of what lies below a directory.
    fn walk_on(&mut self, answer: &mut Answer, host: &Host) {
        let Some(walk) = &mut self.walk else { return };
        let entry = match walk.next() {
            Some(Ok(entry)) => entry,
            // A link to a directory it lies in: all that is there is searched already.
            Some(Err(error))
                if self.options.follow
                    && error.errno == Errno::LOOP
                    && host.export.stat(&error.path).is_ok_and(|metadata| metadata.is_dir()) =>
            {
                return;
            }
            Some(Err(error)) => {
                return answer.error(error.path.as_os_str().as_bytes(), error.errno);
            }
            None => {
                self.walk = None;
                return;
            }
        };
        let name = entry.path.as_os_str().as_bytes();
        let is_wanted = match entry.kind {
            FileKind::Directory if entry.depth > 0 && !self.filter.enters(name) => {
                walk.skip_dir();
                false
            }
            // As grep -r does, devices and pipes that are only come across are left alone.
            FileKind::File => entry.depth == 0 || self.filter.wants(name),
            // A link that leads nowhere: the search says so.
            FileKind::Symlink => self.options.follow && self.filter.wants(name),
            _ => false,
        };
        if !is_wanted {
            return;
        }
        // It is opened in the directory where it was found.
        let found = walk.open_ready(&entry);
        if let Err(errno) = found.and_then(|file| self.begin_file(file, name, answer, host)) {
            answer.error(name, errno);
        }
    }

    fn search(&mut self, path: &Path, answer: &mut dyn Sink, host: &Host) -> Result<(), Errno> {
        let file = host.export.open_ready(path)?;
        self.begin_file(file, path.as_os_str().as_bytes(), answer, host)
    }

    /// Searches a file, or begins to.
    fn begin_file(
        &mut self,
        file: File,
        name: &[u8],
        answer: &mut dyn Sink,
        host: &Host,
    ) -> Result<(), Errno> {
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.compile(host)?,
        };
        let metadata = file.metadata()?;
        let most = if self.options.decompress { AT_ONCE_COMPRESSED_BYTES } else { AT_ONCE_BYTES };
        if !metadata.is_file() || metadata.len() > most {
            self.aside = Some(Aside::start(engine, file, name)?);
            return Ok(());
        }
        let flow = engine.search(&file, name, answer);
        self.engine = Some(engine);
        self.is_over = flow.is_break();
        Ok(())
    }

    /// Goes on with the file that is searched aside.
    fn search_on(&mut self, answer: &mut dyn Sink) {
        let Some(mut aside) = self.aside.take() else { return };
        match aside.step(answer) {
            AsideProgress::More => self.aside = Some(aside),
            AsideProgress::Done(engine, flow) => {
                self.engine = Some(*engine);
                self.is_over = flow.is_break();
            }
            AsideProgress::Broken => self.is_over = true,
        }
    }

    fn compile(&self, host: &Host) -> Result<Engine, Errno> {
        let engine = self.options.compile().map_err(|error| error.errno())?;
        Ok(if self.options.template { engine.on_host(&[&host.name]) } else { engine })
    }
}

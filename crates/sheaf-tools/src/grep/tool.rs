//! Grep at a leaf: one file a step, long ones in several.
use super::aside::{Aside, AsideProgress};
use super::{Engine, GrepOptions, PathFilter};
use crate::paths::PathMembers;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{FileKind, Follow, Globbed, NameFilter, Walk, WalkOptions};
use sheaf_group::entry::{Answer, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Name of the tool.
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
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let params: GrepParams = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
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
        Ok(Box::new(GrepSearch {
            filter: options.path_filter().map_err(|error| error.errno())?,
            options,
            engine: Some(engine),
            aside: None,
            pool: Arc::clone(&self.pool),
            patterns: params.paths.into(),
            files: VecDeque::new(),
            members: PathMembers::default(),
            walk: None,
        }))
    }
}

struct GrepSearch {
    options: GrepOptions,
    filter: PathFilter,
    /// There until it goes back to the pool, but while it searches aside.
    engine: Option<Engine>,
    aside: Option<Aside>,
    pool: EnginePool,
    patterns: VecDeque<String>,
    files: VecDeque<PathBuf>,
    members: PathMembers,
    walk: Option<Walk>,
}

impl Drop for GrepSearch {
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

impl Running for GrepSearch {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let answer = answer.entries_with(self.options.answer_form());
        self.members.resume(answer);
        let step = self.next(answer, host);
        self.members.note(answer);
        if step == Step::Done {
            self.members.say(answer);
        }
        step
    }
}

impl GrepSearch {
    fn next(&mut self, answer: &mut Answer, host: &Host) -> Step {
        if self.aside.is_some() {
            return self.search_on(answer);
        }
        if let Some(walk) = &mut self.walk {
            match walk.next() {
                Some(Ok(entry)) => {
                    let name = entry.path.as_os_str().as_bytes();
                    match entry.kind {
                        FileKind::Directory if entry.depth > 0 && !self.filter.enters(name) => {
                            walk.skip_dir()
                        }
                        // As grep -r does, devices and pipes that are only come across are left
                        // alone.
                        FileKind::File if entry.depth == 0 || self.filter.wants(name) => {
                            return self.search(&entry.path, answer, host);
                        }
                        // A link that leads nowhere: the search says so.
                        FileKind::Symlink if self.options.follow && self.filter.wants(name) => {
                            return self.search(&entry.path, answer, host);
                        }
                        _ => {}
                    }
                }
                // A link to a directory it lies in: all that is there is searched already.
                Some(Err(error))
                    if self.options.follow
                        && error.errno == Errno::LOOP
                        && host
                            .export
                            .stat(&error.path)
                            .is_ok_and(|metadata| metadata.is_dir()) => {}
                Some(Err(error)) => answer.error(error.path.as_os_str().as_bytes(), error.errno),
                None => self.walk = None,
            }
            return Step::More;
        }
        if let Some(path) = self.files.pop_front() {
            self.members.begin(&path, answer);
            // Of a path that cannot be looked at, the search says why.
            if self.options.recursive
                && host.export.stat(&path).is_ok_and(|metadata| metadata.is_dir())
            {
                let options = WalkOptions {
                    follow: if self.options.follow { Follow::Always } else { Follow::Start },
                    include: NameFilter::default(),
                    ..WalkOptions::default()
                };
                self.walk = Some(host.export.walk(&path, options));
                return Step::More;
            }
            return self.search(&path, answer, host);
        }
        self.members.leave(answer);
        let Some(pattern) = self.patterns.pop_front() else { return Step::Done };
        let Globbed { paths, errors } = host.expand(&pattern);
        errors
            .iter()
            .for_each(|error| answer.error(error.path.as_os_str().as_bytes(), error.errno));
        self.files = paths.into();
        Step::More
    }

    fn search(&mut self, path: &Path, answer: &mut dyn Sink, host: &Host) -> Step {
        let name = path.as_os_str().as_bytes();
        let begun =
            host.export.open_ready(path).and_then(|file| self.begin(file, name, answer, host));
        begun.unwrap_or_else(|errno| {
            answer.error(name, errno);
            Step::More
        })
    }

    /// Searches a file, or begins to.
    fn begin(
        &mut self,
        file: File,
        name: &[u8],
        answer: &mut dyn Sink,
        host: &Host,
    ) -> Result<Step, Errno> {
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.compile(host)?,
        };
        let metadata = file.metadata()?;
        let most = if self.options.decompress { AT_ONCE_COMPRESSED_BYTES } else { AT_ONCE_BYTES };
        if !metadata.is_file() || metadata.len() > most {
            self.aside = Some(Aside::start(engine, file, name)?);
            return Ok(Step::More);
        }
        let flow = engine.search(&file, name, answer);
        self.engine = Some(engine);
        Ok(step_of(flow))
    }

    /// Goes on with the file that is searched aside.
    fn search_on(&mut self, answer: &mut dyn Sink) -> Step {
        let Some(mut aside) = self.aside.take() else { return Step::More };
        match aside.step(answer) {
            AsideProgress::More => {
                self.aside = Some(aside);
                Step::More
            }
            AsideProgress::Done(engine, flow) => {
                self.engine = Some(*engine);
                step_of(flow)
            }
            AsideProgress::Broken => Step::Done,
        }
    }

    fn compile(&self, host: &Host) -> Result<Engine, Errno> {
        let engine = self.options.compile().map_err(|error| error.errno())?;
        Ok(if self.options.template { engine.on_host(&[&host.name]) } else { engine })
    }
}

fn step_of(flow: ControlFlow<()>) -> Step {
    if flow.is_break() { Step::Done } else { Step::More }
}

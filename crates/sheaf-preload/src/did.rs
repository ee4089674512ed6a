//! What is written down of a call.
use sheaf_recorder::{IoLayer, IoOp};
use std::ffi::{c_char, c_int, c_void};

/// What a call was on.
#[derive(Debug, Clone, Copy)]
pub enum CallTarget {
    Nothing,
    Descriptor(c_int),
    /// A directory's descriptor, or that of the working one, and a path.
    Path(c_int, *const c_char),
    /// The same, and a second one: its directory's descriptor is what [`Did::bytes`] says, and it lies
    /// where [`Did::asked`] says.
    Paths(c_int, *const c_char),
    /// A path, and a text which lies there.
    PathAndText(c_int, *const c_char),
    /// A buffered file of the C library's.
    Stream(*mut c_void),
    /// Memory where a file is mapped.
    Memory(usize),
    /// A file whose number is known.
    Known(u64),
}

/// What is written down of a call.
#[derive(Debug, Clone, Copy)]
pub struct Did {
    pub target: CallTarget,
    pub asked: u64,
    pub bytes: u64,
    pub offset: Option<u64>,
    pub has_failed: bool,
    /// Why it has failed, where that is not what `errno` says; 0: it is.
    pub error: c_int,
    pub layer: IoLayer,
    /// Where the descriptor is after it.
    pub place: FilePlace,
    /// The descriptor that it opened as the target.
    pub opened: Option<c_int>,
    /// The file of MPI's that it opened as the target; 0: none.
    pub mpi_file: usize,
    pub is_skipped: bool,
    /// What it was, where its function does others, too.
    pub op: Option<IoOp>,
    /// The descriptor that a copy goes to.
    pub copied_to: Option<c_int>,
}

/// What a call does to the place of its descriptor in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePlace {
    Stays,
    /// It goes on behind what was moved.
    Follows,
    At(u64),
    /// What it opens is at the same place, and moves with it.
    Shared,
    Unknown,
}

/// The working directory, where a path is looked for from.
pub const AT_FDCWD: c_int = -100;

impl Did {
    const fn on(target: CallTarget) -> Self {
        Self {
            target,
            asked: 0,
            bytes: 0,
            offset: None,
            has_failed: false,
            error: 0,
            layer: IoLayer::Posix,
            place: FilePlace::Stays,
            opened: None,
            mpi_file: 0,
            is_skipped: false,
            op: None,
            copied_to: None,
        }
    }

    /// On an open file.
    pub const fn fd(fd: c_int) -> Self {
        Self::on(CallTarget::Descriptor(fd))
    }

    /// On a path.
    pub const fn path(path: *const c_char) -> Self {
        Self::on(CallTarget::Path(AT_FDCWD, path))
    }

    /// On a path below a directory.
    pub const fn path_at(directory: c_int, path: *const c_char) -> Self {
        Self::on(CallTarget::Path(directory, path))
    }

    /// On a path below a directory, and another one.
    pub fn paths(from: (c_int, *const c_char), to: (c_int, *const c_char)) -> Self {
        let mut did = Self::on(CallTarget::Paths(from.0, from.1));
        (did.bytes, did.asked) = (to.0 as u64, to.1 as u64);
        did
    }

    /// On a path below a directory, which is to say a text.
    pub fn path_and_text(path: (c_int, *const c_char), text: *const c_char) -> Self {
        let mut did = Self::on(CallTarget::PathAndText(path.0, path.1));
        did.asked = text as u64;
        did
    }

    /// On a buffered file.
    pub const fn stream(stream: *mut c_void) -> Self {
        let mut did = Self::on(CallTarget::Stream(stream));
        did.layer = IoLayer::Stdio;
        did
    }

    /// On memory where a file may be mapped.
    pub const fn memory(at: usize) -> Self {
        Self::on(CallTarget::Memory(at))
    }

    /// On a file whose number is known.
    pub const fn known(number: u64) -> Self {
        Self::on(CallTarget::Known(number))
    }

    /// Nothing that is I/O.
    pub const fn skip() -> Self {
        let mut did = Self::on(CallTarget::Nothing);
        did.is_skipped = true;
        did
    }

    /// On nothing that has a name.
    pub const fn nothing() -> Self {
        Self::on(CallTarget::Nothing)
    }

    /// A result below 0 is a failure.
    pub fn came(mut self, result: impl Into<i64>) -> Self {
        self.has_failed = result.into() < 0;
        self
    }

    /// Its result is the error itself, or 0: `errno` is not set.
    pub fn returned(mut self, error: c_int) -> Self {
        (self.has_failed, self.error) = (error != 0, error);
        self
    }

    /// So many bytes were asked for, and so many moved; below 0: a failure.
    pub fn moved(mut self, asked: usize, result: isize) -> Self {
        self.asked = asked as u64;
        self.has_failed = result < 0;
        self.bytes = result.max(0) as u64;
        self
    }

    /// From where the descriptor is.
    pub fn in_turn(mut self) -> Self {
        self.place = FilePlace::Follows;
        self
    }

    /// At an offset of the file; one below 0, which no file has, is not told.
    pub fn at(mut self, offset: i64) -> Self {
        self.offset = u64::try_from(offset).ok();
        self
    }

    pub fn place(mut self, place: FilePlace) -> Self {
        self.place = place;
        self
    }

    /// With so much asked for that is not moved: a length, a size.
    pub fn of(mut self, amount: i64) -> Self {
        self.asked = amount.max(0) as u64;
        self
    }

    /// It gave a descriptor for its target.
    pub fn opens(mut self, fd: c_int) -> Self {
        self.has_failed = fd < 0;
        self.opened = (fd >= 0).then_some(fd);
        self
    }

    /// It is on a lock of the file.
    pub fn on_lock(self) -> Self {
        self.is(IoOp::Lock)
    }

    /// It is this operation.
    pub fn is(mut self, op: IoOp) -> Self {
        self.op = Some(op);
        self
    }

    /// What it has moved went there.
    pub fn to(mut self, fd: c_int) -> Self {
        self.copied_to = Some(fd);
        self
    }

    pub fn failed_if(mut self, has_failed: bool) -> Self {
        self.has_failed = has_failed;
        self
    }
}

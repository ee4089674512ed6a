//! Which file a descriptor is, where it is in there, and what paths are called.
use crate::text::Text;
use crate::turn::{AT_FDCWD, FilePlace};
use sheaf_recorder::RingWriter;
use sheaf_recorder::sys::{self, KernelError};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

unsafe extern "C" {
    fn strnlen(text: *const c_char, most: usize) -> usize;
}

/// Descriptors of which the file and the place are kept; those beyond are looked up each time.
const DESCRIPTORS_MAX: usize = 1 << 16;
/// Names that are known to be told, by the last bits of their numbers.
const KNOWN_MAX: usize = 1 << 13;
const PATH_BYTES_MAX: usize = 4096;
/// What the kernel says of paths that are too long for it, or for the room that they have.
const ERANGE: i32 = 34;
const ENAMETOOLONG: i32 = 36;

/// No file is known.
const NO_FILE: u64 = 0;
/// Where it is in the file is not known.
const NO_PLACE: u64 = u64::MAX;

struct KnownDescriptor {
    file: AtomicU64,
    /// Inverted, so that memory that nobody has written says that it is not known.
    place: AtomicU64,
    /// Whether readers were told of the file's name, as it is called here: [`ROUND`] and one more.
    told: AtomicU32,
    /// One more than the descriptor that moves with it; 0: none does. [`MANY`] do that nobody here
    /// knows: where it is cannot be known until it is closed.
    twin: AtomicU32,
}

const MANY: u32 = u32::MAX;

impl KnownDescriptor {
    /// One of which nothing is known.
    const fn new() -> Self {
        Self {
            file: AtomicU64::new(NO_FILE),
            place: AtomicU64::new(!NO_PLACE),
            told: AtomicU32::new(0),
            twin: AtomicU32::new(0),
        }
    }
}

static DESCRIPTORS: [KnownDescriptor; DESCRIPTORS_MAX] =
    [const { KnownDescriptor::new() }; DESCRIPTORS_MAX];

/// The end of those that were ever known: what lies behind is in no memory, and is not looked at,
/// which would bring it there.
static DESCRIPTORS_END: AtomicUsize = AtomicUsize::new(0);

/// Numbers of names that readers were told, each mixed with the segment's [`ROUND`].
static TOLD: [AtomicU64; KNOWN_MAX] = [const { AtomicU64::new(0) }; KNOWN_MAX];

/// Differs from segment to segment of a process and of those that it was forked from.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// The number of the working directory's name, of which readers were told; [`NO_FILE`]: it is asked for.
static WORKING: AtomicU64 = AtomicU64::new(NO_FILE);
/// The round in which they were, and one more.
static WORKING_TOLD: AtomicU32 = AtomicU32::new(0);
/// How often the working directory has changed.
static WORKING_CHANGES: AtomicU32 = AtomicU32::new(0);
/// Threads have working directories of their own.
static HAS_MANY_WORKING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Where paths are put together: not on the stack, which may be a signal handler's small one.
    static ROOM: UnsafeCell<Text<PATH_BYTES_MAX>> = const { UnsafeCell::new(Text::new()) };
}

fn known(fd: c_int) -> Option<&'static KnownDescriptor> {
    usize::try_from(fd).ok().and_then(|fd| DESCRIPTORS.get(fd))
}

/// The file behind a descriptor.
#[inline]
pub fn of(fd: c_int, writer: &mut RingWriter<'_>) -> u64 {
    let Some(known) = known(fd) else { return if fd < 0 { NO_FILE } else { look_up(fd, writer) } };
    let file = known.file.load(Ordering::Relaxed);
    if file != NO_FILE {
        if known.told.load(Ordering::Relaxed) != round() {
            tell_again(fd, file, known, writer);
        }
        return file;
    }
    let file = look_up(fd, writer);
    set_file(fd, known, file);
    file
}

/// Readers could not be told what a file is called, for want of room: they are as soon as there is some, by what the
/// kernel calls it.
#[cold]
fn tell_again(fd: c_int, file: u64, known: &KnownDescriptor, writer: &mut RingWriter<'_>) {
    if !writer.has_name_room() {
        return;
    }
    let is_told = is_told(file)
        || with_room(|room| {
            room.fill(|bytes| read_descriptor(fd, bytes).map_or(0, <[u8]>::len))
                && writer.tell(file, room.as_bytes())
        });
    // What the kernel does not say now it does not say later.
    note_told(file);
    if is_told {
        known.told.store(round(), Ordering::Relaxed);
    }
}

fn set_file(fd: c_int, known: &KnownDescriptor, file: u64) {
    // What is not known is what memory says that nobody has written.
    if file != NO_FILE || known.file.load(Ordering::Relaxed) != NO_FILE {
        known.file.store(file, Ordering::Relaxed);
        known.told.store(if is_told(file) { round() } else { 0 }, Ordering::Relaxed);
        let end = fd as usize + 1;
        if DESCRIPTORS_END.load(Ordering::Relaxed) < end {
            DESCRIPTORS_END.fetch_max(end, Ordering::Relaxed);
        }
    }
}

/// Those that a file may be known of.
fn known_before(end: usize) -> &'static [KnownDescriptor] {
    &DESCRIPTORS[..end.min(DESCRIPTORS_END.load(Ordering::Relaxed))]
}

/// The file behind a descriptor, as far as it is known without the kernel.
pub fn remembered(fd: c_int) -> u64 {
    known(fd).map_or(NO_FILE, |known| known.file.load(Ordering::Relaxed))
}

/// The same of one that is about to be closed: as soon as it is, it may be another thread's.
pub fn left(fd: c_int) -> u64 {
    let file = remembered(fd);
    closed(fd);
    file
}

/// Asks the kernel: for what was open before, or was opened by calls that are not seen.
#[cold]
fn look_up(fd: c_int, writer: &mut RingWriter<'_>) -> u64 {
    with_room(|room| {
        let is_known = room.fill(|bytes| read_descriptor(fd, bytes).map_or(0, <[u8]>::len));
        if is_known { tell(room.as_bytes(), writer) } else { NO_FILE }
    })
}

/// Asks the kernel for all that may be wanted later: the working directory, and what is open.
pub fn look_up_all(writer: &mut RingWriter<'_>) {
    const LOOKED_UP_MAX: c_int = 256;
    let _ = working(writer);
    for fd in 0..LOOKED_UP_MAX {
        let _ = of(fd, writer);
    }
}

/// What the kernel says that a descriptor is.
fn read_descriptor(fd: c_int, into: &mut [u8]) -> Result<&[u8], KernelError> {
    let mut link = Text::<64>::new();
    link.push(b"/proc/self/fd/");
    link.push_number(fd.max(0) as u64);
    sys::read_link(link.as_c_str().unwrap_or_default(), into)
}

/// Where a descriptor is in its file, if that is known.
#[inline]
pub fn place(fd: c_int) -> Option<u64> {
    let place = !known(fd)?.place.load(Ordering::Relaxed);
    (place != NO_PLACE).then_some(place)
}

#[inline]
pub fn set_place(fd: c_int, place: Option<u64>) {
    if let Some(known) = known(fd) {
        let mut place = !place.unwrap_or(NO_PLACE);
        match known.twin.load(Ordering::Relaxed) {
            0 => {}
            MANY => place = !NO_PLACE,
            twin => DESCRIPTORS[twin as usize - 1].place.store(place, Ordering::Relaxed),
        }
        known.place.store(place, Ordering::Relaxed);
    }
}

/// A descriptor was opened that moves with another: of two each tells the other where it is, of more
/// it is not known.
pub fn share(old: c_int, new: c_int) {
    if old == new {
        return;
    }
    let ends = (known(old), known(new));
    match (ends, ends.0.map_or(0, |old| old.twin.load(Ordering::Relaxed))) {
        ((Some(known_old), Some(known_new)), 0) => {
            known_new.place.store(known_old.place.load(Ordering::Relaxed), Ordering::Relaxed);
            known_old.twin.store(new as u32 + 1, Ordering::Relaxed);
            known_new.twin.store(old as u32 + 1, Ordering::Relaxed);
        }
        ((known_old, known_new), twin) => {
            let third = twin.checked_sub(1).filter(|_| twin != MANY);
            let third = third.and_then(|third| DESCRIPTORS.get(third as usize));
            [known_old, known_new, third].into_iter().flatten().for_each(share_with_many);
        }
    }
}

/// Where it is cannot be known until it is closed.
fn share_with_many(known: &KnownDescriptor) {
    known.twin.store(MANY, Ordering::Relaxed);
    known.place.store(!NO_PLACE, Ordering::Relaxed);
}

/// A descriptor is closed: the one that moved with it does so alone.
fn part(known: &KnownDescriptor) {
    match known.twin.swap(0, Ordering::Relaxed) {
        0 | MANY => {}
        twin => DESCRIPTORS[twin as usize - 1].twin.store(0, Ordering::Relaxed),
    }
}

/// A descriptor is open now, on this file.
pub fn opened(fd: c_int, file: u64, place: FilePlace) {
    if let Some(known) = known(fd) {
        part(known);
        set_file(fd, known, file);
    }
    set_place(
        fd,
        match place {
            FilePlace::At(at) => Some(at),
            _ => None,
        },
    );
}

pub fn closed(fd: c_int) {
    opened(fd, NO_FILE, FilePlace::Unknown);
}

/// All descriptors from `first` to `last` are closed.
pub fn closed_between(first: u32, last: u32) {
    let known = known_before((last as usize).saturating_add(1));
    for known in known.get(first as usize..).unwrap_or_default() {
        if known.file.load(Ordering::Relaxed) != NO_FILE {
            part(known);
            known.file.store(NO_FILE, Ordering::Relaxed);
            known.place.store(!NO_PLACE, Ordering::Relaxed);
        }
    }
}

/// Where files are mapped, by the middle bits of the address; another there takes the place.
const MAPPED_MAX: usize = 1 << 12;
static MAPPED: [Mapped; MAPPED_MAX] =
    [const { Mapped { at: AtomicU64::new(0), file: AtomicU64::new(NO_FILE) } }; MAPPED_MAX];

struct Mapped {
    at: AtomicU64,
    file: AtomicU64,
}

fn mapping(at: usize) -> &'static Mapped {
    const PAGE_BITS: u32 = 12;
    &MAPPED[(at >> PAGE_BITS) % MAPPED_MAX]
}

/// A file lies in memory from there on.
pub fn map(at: usize, fd: c_int) {
    let mapping = mapping(at);
    mapping.file.store(remembered(fd), Ordering::Relaxed);
    mapping.at.store(at as u64, Ordering::Relaxed);
}

/// No file is there in memory any more.
pub fn unmap(at: usize) {
    mapping(at).at.store(0, Ordering::Relaxed);
}

/// The file that begins there in memory.
pub fn mapped(at: usize) -> u64 {
    if is_mapped(at) { mapping(at).file.load(Ordering::Relaxed) } else { NO_FILE }
}

/// Whether a file begins there in memory.
pub fn is_mapped(at: usize) -> bool {
    at != 0 && mapping(at).at.load(Ordering::Relaxed) == at as u64
}

/// Others move these descriptors from here on, too.
pub fn forget_places() {
    for known in known_before(DESCRIPTORS_MAX) {
        if known.file.load(Ordering::Relaxed) != NO_FILE {
            share_with_many(known);
        }
    }
}

/// Readers of another segment know none.
pub fn forget_names() {
    ROUND.fetch_add(1, Ordering::Relaxed);
    // A descriptor's name is told when it is used again.
    for known in known_before(DESCRIPTORS_MAX) {
        if known.file.load(Ordering::Relaxed) != NO_FILE {
            known.file.store(NO_FILE, Ordering::Relaxed);
        }
    }
}

/// The kernel reads no further, and what is behind may not even be there: told apart from others by
/// the number of what it has read.
struct TooLong(u64);

/// What the kernel has just read of a path, or would have. One that it could not read has made the
/// call fail with EFAULT, and then it is not read here.
fn read<'a>(path: *const c_char) -> Result<&'a [u8], TooLong> {
    // SAFETY: as above, up to the end of it, or to the most that the kernel takes.
    let len = unsafe { strnlen(path, PATH_BYTES_MAX) };
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(path.cast::<u8>(), len) };
    if len == PATH_BYTES_MAX { Err(TooLong(RingWriter::number_of(bytes))) } else { Ok(bytes) }
}

/// The number of the file that a path leads to: of the path from the root, as it is written.
pub fn named(directory: c_int, path: *const c_char, writer: &mut RingWriter<'_>) -> u64 {
    if path.is_null() {
        return NO_FILE;
    }
    let path = match read(path) {
        Ok(path) => path,
        Err(TooLong(number)) => {
            writer.lose_name();
            return number;
        }
    };
    if path.first() == Some(&b'/') {
        return with_plain(path, |path| tell(path, writer));
    }
    if path.is_empty() && directory >= 0 {
        return of(directory, writer);
    }
    match base(directory, writer) {
        Some(base) => with_plain(path, |path| tell_within(base, path, writer)),
        None => named_by_text(directory, path, writer),
    }
}

/// The same of one that was opened by it: a path that goes up (`..`) would be another name for each way there.
pub fn opened_as(
    directory: c_int,
    path: *const c_char,
    fd: c_int,
    writer: &mut RingWriter<'_>,
) -> u64 {
    let goes_up = |path: &[u8]| path.split(|byte| *byte == b'/').any(|part| part == b"..");
    if !path.is_null() && read(path).is_ok_and(goes_up) {
        let file = look_up(fd, writer);
        if file != NO_FILE {
            return file;
        }
    }
    named(directory, path, writer)
}

/// The number of the name that a directory has, if readers were told of that.
fn base(directory: c_int, writer: &mut RingWriter<'_>) -> Option<u64> {
    if directory == AT_FDCWD {
        return working(writer);
    }
    let known = known(directory)?;
    let file = of(directory, writer);
    (file != NO_FILE && known.told.load(Ordering::Relaxed) == round()).then_some(file)
}

/// The same of the working directory.
fn working(writer: &mut RingWriter<'_>) -> Option<u64> {
    if HAS_MANY_WORKING.load(Ordering::Relaxed) {
        return None;
    }
    let number = WORKING.load(Ordering::Acquire);
    if number != NO_FILE && WORKING_TOLD.load(Ordering::Relaxed) == round() {
        return Some(number);
    }
    let changes = WORKING_CHANGES.load(Ordering::Acquire);
    let number = with_room(|room| {
        let is_known = room.fill(|bytes| sys::working_directory(bytes).map_or(0, <[u8]>::len));
        if is_known { tell(room.as_bytes(), writer) } else { NO_FILE }
    });
    if number == NO_FILE || !is_told(number) {
        return None;
    }
    WORKING_TOLD.store(round(), Ordering::Relaxed);
    WORKING.store(number, Ordering::Release);
    if WORKING_CHANGES.load(Ordering::Acquire) != changes {
        // Another thread has changed it meanwhile.
        WORKING.store(NO_FILE, Ordering::Release);
    }
    Some(number)
}

/// The working directory is another one.
pub fn forget_working() {
    WORKING_CHANGES.fetch_add(1, Ordering::AcqRel);
    WORKING.store(NO_FILE, Ordering::Release);
}

/// From here on, threads may have working directories of their own.
pub fn expect_many_working() {
    HAS_MANY_WORKING.store(true, Ordering::Relaxed);
}

/// Does something with a path without what means nothing in it: `a//b`, `a/./b` and `a/b/` are `a/b`.
fn with_plain<T>(path: &[u8], act: impl FnOnce(&[u8]) -> T) -> T {
    let is_plain = !path.ends_with(b"/")
        && !path.starts_with(b"./")
        && !path.windows(2).any(|two| two == b"//" || two == b"/.");
    if is_plain || path == b"/" {
        return act(path);
    }
    with_room(|room| {
        push_plain(room, path);
        act(room.as_bytes())
    })
}

/// Adds such a path to what is there.
fn push_plain(room: &mut Text<PATH_BYTES_MAX>, path: &[u8]) {
    if path.starts_with(b"/") && room.as_bytes().is_empty() {
        room.push(b"/");
    }
    for part in path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
        if !matches!(room.as_bytes(), b"" | b"/") {
            room.push(b"/");
        }
        room.push(part);
    }
    if room.as_bytes().is_empty() {
        room.push(b".");
    }
}

/// The number of the name that a path from a directory has, of whose name readers were told.
fn tell_within(directory: u64, path: &[u8], writer: &mut RingWriter<'_>) -> u64 {
    if path == b"." {
        return directory;
    }
    let number = RingWriter::number_within(directory, path);
    if !is_told(number) && writer.tell_within(number, directory, path) {
        note_told(number);
    }
    number
}

/// The number of a path from a directory of which readers were not told.
fn named_by_text(directory: c_int, path: &[u8], writer: &mut RingWriter<'_>) -> u64 {
    with_room(|room| {
        let mut is_too_long = false;
        let is_known = room.fill(|bytes| {
            let read = if directory == AT_FDCWD {
                sys::working_directory(bytes)
            } else {
                read_descriptor(directory, bytes)
            };
            match read {
                Ok(name) => name.len(),
                Err(KernelError(error)) => {
                    is_too_long = matches!(error, ERANGE | ENAMETOOLONG);
                    0
                }
            }
        });
        if is_too_long {
            writer.lose_name();
            return RingWriter::number_of_parts([&directory.to_ne_bytes(), path]);
        }
        if !is_known {
            return tell(path, writer);
        }
        if room.as_bytes().len() + 1 + path.len() >= PATH_BYTES_MAX {
            // Told apart from others by its number alone.
            writer.lose_name();
            return RingWriter::number_of_parts([room.as_bytes(), b"/", path]);
        }
        push_plain(room, path);
        tell(room.as_bytes(), writer)
    })
}

/// The number of a text that a call was given.
pub fn text(text: *const c_char, writer: &mut RingWriter<'_>) -> u64 {
    if text.is_null() {
        return NO_FILE;
    }
    match read(text) {
        Ok(text) => tell(text, writer),
        Err(TooLong(number)) => {
            writer.lose_name();
            number
        }
    }
}

/// The number of a name, of which readers are told once.
fn tell(name: &[u8], writer: &mut RingWriter<'_>) -> u64 {
    let number = RingWriter::number_of(name);
    if !is_told(number) && writer.tell(number, name) {
        note_told(number);
    }
    number
}

/// The round, and one more.
fn round() -> u32 {
    ROUND.load(Ordering::Relaxed) + 1
}

/// Where it is noted that readers were told of a name, and how. Names that differ are as unlikely to be taken for
/// one here as anywhere by their numbers.
fn noted(number: u64) -> (&'static AtomicU64, u64) {
    let round = u64::from(ROUND.load(Ordering::Relaxed)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (&TOLD[number as usize % KNOWN_MAX], number ^ round)
}

/// Whether readers were told of a name, as far as that is remembered.
fn is_told(number: u64) -> bool {
    let (told, note) = noted(number);
    told.load(Ordering::Acquire) == note
}

fn note_told(number: u64) {
    let (told, note) = noted(number);
    told.store(note, Ordering::Release);
}

fn with_room<T>(act: impl FnOnce(&mut Text<PATH_BYTES_MAX>) -> T) -> T {
    ROOM.with(|room| {
        // SAFETY: a thread that records is busy, so that nobody else of it is here; and `act`
        // comes here no second time.
        let room = unsafe { &mut *room.get() };
        room.clear();
        act(room)
    })
}

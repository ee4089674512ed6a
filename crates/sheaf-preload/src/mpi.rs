//! MPI-IO: the calls of C, those of counts beyond 32 bits (`_c`), and those of Fortran, of MPICH and
//! its kin and of Open MPI alike.
//!
//! Neither's headers are used and neither is linked: what they are called with is passed on as it
//! came, in registers, and what is to be known of it is asked of the library that is there, by its
//! `PMPI_` functions, after a call has succeeded. Nothing is looked for before the first call.
//!
//! - A call that one of these makes itself (Fortran's are made of C's in MPICH) is part of it and not
//!   recorded; calls of the layers below, on the same thread, are, as nested ones.
//! - Bytes are those that the status tells; where the caller ignores it the call gets one of ours. Of
//!   calls that only begin (`i…`, `…_begin`) what they ask for is recorded, and what `…_end` tells.
//!   What becomes of a request is not seen, as `MPI_Wait` and its kin are not stood in for: the calls
//!   below tell.
//! - Offsets are recorded of calls that are given one (`…_at…`), as the byte in the file.
//! - MPI's errors have no numbers that all agree on: what failed says `EIO`. What a failed call asked
//!   for is not known, as its type may be none.
use crate::mpi_files;
use crate::real::find_mpi;
use crate::turn::{Did, TracedCall};
use sheaf_recorder::{IoLayer, IoOp};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;

/// A function of MPI's that is stood in for.
#[derive(Clone, Copy)]
struct MpiCall {
    op: IoOp,
    shape: MpiShape,
}

/// What a call is given, in this order; in Fortran each by its address, with the error behind.
#[derive(Clone, Copy)]
enum MpiShape {
    /// Communicator, name, mode, hints, where the file goes.
    Open,
    /// Where the file is.
    Close,
    /// Name, hints.
    Delete,
    /// File, offset if it has one, memory, count, type, and perhaps a status or a request.
    Moves { has_offset: bool, last: LastArgument },
    /// File, memory, status: what was begun is over.
    Ends,
    /// File, displacement, type of elements, type of the file, representation, hints.
    View,
    /// File, size.
    Sized,
    /// File, and so many more that say nothing here.
    Plain { more: usize },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastArgument {
    Status,
    Request,
    None,
}

const fn moves(op: IoOp, has_offset: bool, last: LastArgument) -> MpiCall {
    MpiCall { op, shape: MpiShape::Moves { has_offset, last } }
}

const fn plain(op: IoOp, more: usize) -> MpiCall {
    MpiCall { op, shape: MpiShape::Plain { more } }
}

const fn shaped(op: IoOp, shape: MpiShape) -> MpiCall {
    MpiCall { op, shape }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MpiLanguage {
    C,
    /// C, with counts of 64 bits.
    LargeC,
    Fortran,
}

/// The most that a call is given, with the length of a Fortran text.
const ARGUMENTS_MAX: usize = 8;
type Arguments = [usize; ARGUMENTS_MAX];
/// Any of them: who is given more than it takes does not look at it.
type AnyMpiCall =
    unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize) -> c_int;

/// A status of MPI's: they have 20 and 24 bytes.
#[repr(C, align(16))]
struct MpiStatus([u8; 256]);

/// Calls the function behind and records what came of it.
///
/// # Safety
/// As the function asks for.
#[inline(never)]
unsafe fn run(
    name: &'static CStr,
    found: &AtomicPtr<c_void>,
    call: MpiCall,
    language: MpiLanguage,
    mut args: Arguments,
) -> c_int {
    let real = find_mpi(name, found);
    if real.is_null() {
        if language == MpiLanguage::Fortran {
            // SAFETY: as our caller vouches for.
            unsafe { told_missing(args[call.shape.arguments()]) };
        }
        return crate::turn::missing();
    }
    // SAFETY: it is the function of this name, and takes no more than these.
    let real: AnyMpiCall = unsafe { std::mem::transmute(real) };
    let pass = |args: &Arguments| {
        let &[a, b, c, d, e, f, g, h] = args;
        // SAFETY: as our caller vouches for.
        unsafe { real(a, b, c, d, e, f, g, h) }
    };
    let Some(turn) = TracedCall::begin_around() else { return pass(&args) };
    let (mut status, mut error) = (MpiStatus([0; 256]), 0);
    if language == MpiLanguage::Fortran && args[call.shape.arguments()] == 0 {
        // In `mpi_f08` it may be left out.
        args[call.shape.arguments()] = &raw mut error as usize;
    }
    if let Some(at) = call.shape.status()
        && is_ignored(args[at], language)
    {
        args[at] = std::ptr::from_mut(&mut status) as usize;
    }
    let mut made = MadeCall { call, language, args, file: 0, has_failed: false };
    // SAFETY: as our caller vouches for; a file that is closed is none afterwards.
    let path = unsafe { made.look_before() };
    let begun = turn.now();
    let result = pass(&args);
    let ended = turn.now();
    turn.leave();
    // SAFETY: the call has been made with these.
    let did = unsafe { made.did(result, path.as_ref()) };
    turn.end(call.op, begun, ended, did);
    result
}

/// In Fortran an error is told there, if it is asked for.
unsafe fn told_missing(error: usize) {
    let error = error as *mut c_int;
    if !error.is_null() {
        // SAFETY: as our caller vouches for.
        unsafe { *error = -1 };
    }
}

type PathText = crate::text::Text<4096>;

impl MpiShape {
    /// Where a status is among the arguments.
    const fn status(self) -> Option<usize> {
        match self {
            Self::Moves { has_offset, last: Status } => Some(4 + has_offset as usize),
            Self::Ends => Some(2),
            _ => None,
        }
    }

    /// How many there are: a Fortran error is behind.
    const fn arguments(self) -> usize {
        match self {
            Self::Open => 5,
            Self::Close => 1,
            Self::Delete | Self::Sized => 2,
            Self::Moves { has_offset, last } => {
                4 + has_offset as usize + !matches!(last, LastArgument::None) as usize
            }
            Self::Ends => 3,
            Self::View => 6,
            Self::Plain { more } => 1 + more,
        }
    }
}

/// A call with what it was given.
struct MadeCall {
    call: MpiCall,
    language: MpiLanguage,
    args: Arguments,
    /// The file, as C has it.
    file: usize,
    has_failed: bool,
}

impl MadeCall {
    /// Finds the file; for a call that names one, gives the name.
    ///
    /// # Safety
    /// The arguments are those of the call.
    unsafe fn look_before(&mut self) -> Option<PathText> {
        // SAFETY: as our caller vouches for, in this function.
        unsafe {
            match self.call.shape {
                MpiShape::Open => return Some(self.path(1)),
                MpiShape::Delete => return Some(self.path(0)),
                MpiShape::Close if self.language != MpiLanguage::Fortran => {
                    let at = self.args[0] as *const usize;
                    self.file = if at.is_null() { 0 } else { *at };
                }
                _ => self.file = self.handle(0),
            }
        }
        None
    }

    /// The file at an argument, as C has it.
    unsafe fn handle(&self, at: usize) -> usize {
        if self.language != MpiLanguage::Fortran {
            return self.args[at];
        }
        // SAFETY: a Fortran file is an integer.
        unsafe { file_of_fortran(*(self.args[at] as *const c_int)) }
    }

    /// The name at an argument: in Fortran it is filled up with blanks, and its length is the last
    /// of all. What kind of file system it is may stand before it.
    unsafe fn path(&self, at: usize) -> PathText {
        const KINDS: [&[u8]; 8] =
            [b"ufs:", b"nfs:", b"xfs:", b"lustre:", b"gpfs:", b"panfs:", b"pvfs2:", b"testfs:"];
        let start = self.args[at] as *const c_char;
        let mut path = PathText::new();
        if start.is_null() {
            return path;
        }
        let mut name: &[u8] = if self.language == MpiLanguage::Fortran {
            let len = self.args[self.call.shape.arguments() + 1] as u32 as usize;
            // SAFETY: as our caller vouches for.
            unsafe { std::slice::from_raw_parts(start.cast(), len) }.trim_ascii_end()
        } else {
            // SAFETY: as above; it ends with a zero.
            unsafe { CStr::from_ptr(start) }.to_bytes()
        };
        if let Some(rest) = KINDS.iter().find_map(|kind| name.strip_prefix(*kind)) {
            name = rest;
        }
        path.push(name);
        path
    }

    /// # Safety
    /// The call has been made.
    unsafe fn did(&mut self, result: c_int, path: Option<&PathText>) -> Did {
        let error = match self.language {
            MpiLanguage::C | MpiLanguage::LargeC => result,
            // SAFETY: the call has put its error there.
            MpiLanguage::Fortran => unsafe {
                *(self.args[self.call.shape.arguments()] as *const c_int)
            },
        };
        self.has_failed = error != 0;
        let mut did = match path {
            Some(path) => Did::path(path.as_ptr()),
            None => Did::known(mpi_files::number_of(self.file)),
        };
        did.layer = IoLayer::Mpi;
        did.has_failed = self.has_failed;
        if self.has_failed {
            return did;
        }
        // SAFETY: the call has succeeded with these arguments.
        unsafe { self.add(&mut did) };
        did
    }

    /// What a call that succeeded did.
    unsafe fn add(&self, did: &mut Did) {
        // SAFETY: as our caller vouches for, in this function.
        unsafe {
            match self.call.shape {
                MpiShape::Open => {
                    let at = self.args[4];
                    did.mpi_file = if self.language == MpiLanguage::Fortran {
                        file_of_fortran(*(at as *const c_int))
                    } else {
                        *(at as *const usize)
                    };
                }
                MpiShape::Close => mpi_files::closed(self.file),
                MpiShape::Moves { has_offset, last } => {
                    let count = 2 + usize::from(has_offset);
                    let size = type_size(self.datatype(count + 1));
                    did.asked = (self.count(count).max(0) as u64).saturating_mul(size);
                    if has_offset {
                        did.offset = byte_offset(self.file, self.long(1));
                    }
                    match last {
                        Status => {
                            did.bytes = self.moved(self.datatype(count + 1)).unwrap_or(did.asked);
                        }
                        Request => {}
                        LastArgument::None => mpi_files::set_begun(self.file, did.asked),
                    }
                }
                MpiShape::Ends => {
                    did.asked = mpi_files::take_begun(self.file);
                    did.bytes = self.moved(None).unwrap_or(did.asked);
                }
                MpiShape::View => did.offset = u64::try_from(self.long(1)).ok(),
                MpiShape::Sized => did.asked = self.long(1).max(0) as u64,
                MpiShape::Delete | MpiShape::Plain { .. } => {}
            }
        }
    }

    unsafe fn count(&self, at: usize) -> i64 {
        let argument = self.args[at];
        match self.language {
            MpiLanguage::C => i64::from(argument as c_int),
            MpiLanguage::LargeC => argument as i64,
            // SAFETY: it is an integer there.
            MpiLanguage::Fortran => i64::from(unsafe { *(argument as *const c_int) }),
        }
    }

    /// An offset or a size: of 64 bits in both languages.
    unsafe fn long(&self, at: usize) -> i64 {
        let argument = self.args[at];
        if self.language == MpiLanguage::Fortran {
            // SAFETY: it is there.
            unsafe { *(argument as *const i64) }
        } else {
            argument as i64
        }
    }

    /// A type, as C has it.
    unsafe fn datatype(&self, at: usize) -> Option<usize> {
        let argument = self.args[at];
        if self.language != MpiLanguage::Fortran {
            return Some(argument);
        }
        // SAFETY: it is an integer there.
        Some(type_of_fortran(unsafe { *(argument as *const c_int) }))
    }

    /// The bytes that the status tells of; `None` where it cannot be asked.
    unsafe fn moved(&self, datatype: Option<usize>) -> Option<u64> {
        let status = self.args[self.call.shape.status()?];
        let mut own = MpiStatus([0; 256]);
        let status = if self.language == MpiLanguage::Fortran {
            let own = std::ptr::from_mut(&mut own) as usize;
            // SAFETY: it has been filled by the call.
            (unsafe { ask::status_f2c(status, own) }? == 0).then_some(own)?
        } else {
            status
        };
        let mut bytes: i64 = 0;
        if let Some(byte) = type_of_bytes() {
            // SAFETY: as above; the count is of 64 bits.
            let asked = unsafe { ask::elements(status, byte, &raw mut bytes as usize) };
            if asked == Some(0) && bytes >= 0 {
                return Some(bytes as u64);
            }
        }
        let mut items: c_int = 0;
        // SAFETY: as above.
        let asked = unsafe { ask::count(status, datatype?, &raw mut items as usize) };
        let size = type_size(datatype);
        (asked == Some(0) && items >= 0).then(|| (items as u64).saturating_mul(size))
    }
}

/// What is asked of the library that is there: `None` where it does not know the function.
mod ask {
    use crate::real::find_mpi_part;
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::AtomicPtr;

    macro_rules! ask {
        ($($name:ident($($arg:ident),*) -> $result:ty = $symbol:literal;)*) => {
            $(
                /// # Safety
                /// As MPI asks for.
                pub unsafe fn $name($($arg: usize),*) -> Option<$result> {
                    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                    let real = find_mpi_part($symbol, &FOUND)?;
                    let real: unsafe extern "C" fn($(ask!(@usize $arg)),*) -> $result =
                        // SAFETY: it is the function of this name.
                        unsafe { std::mem::transmute(real) };
                    // SAFETY: as our caller vouches for.
                    Some(unsafe { real($($arg),*) })
                }
            )*
        };
        (@usize $arg:ident) => { usize };
    }

    ask! {
        type_size(datatype, into) -> c_int = c"PMPI_Type_size_x";
        type_f2c(fortran) -> usize = c"PMPI_Type_f2c";
        file_f2c(fortran) -> usize = c"PMPI_File_f2c";
        status_f2c(fortran, into) -> c_int = c"PMPI_Status_f2c";
        elements(status, datatype, into) -> c_int = c"PMPI_Get_elements_x";
        count(status, datatype, into) -> c_int = c"PMPI_Get_count";
        byte_offset(file, offset, into) -> c_int = c"PMPI_File_get_byte_offset";
    }
}

/// A type's bytes; 0 where they cannot be told.
fn type_size(datatype: Option<usize>) -> u64 {
    let mut size: i64 = 0;
    // SAFETY: the type is one that a call has just succeeded with.
    let asked =
        datatype.and_then(|datatype| unsafe { ask::type_size(datatype, &raw mut size as usize) });
    if asked == Some(0) { size.max(0) as u64 } else { 0 }
}

/// In MPICH a type is the same integer in both languages.
fn type_of_fortran(fortran: c_int) -> usize {
    // SAFETY: as above.
    unsafe { ask::type_f2c(fortran as usize) }.unwrap_or(fortran as usize)
}

fn file_of_fortran(fortran: c_int) -> usize {
    // SAFETY: what is no file gives none.
    unsafe { ask::file_f2c(fortran as usize) }.unwrap_or(0)
}

/// `MPI_BYTE`: in Open MPI a variable of its own, in MPICH and its kin always the same number.
fn type_of_bytes() -> Option<usize> {
    const MPICH_BYTE: usize = 0x4c00_010d;
    static OPEN_MPI: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    static MPICH: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let of_open_mpi = crate::real::find_mpi_part(c"ompi_mpi_byte", &OPEN_MPI);
    of_open_mpi
        .map(|byte| byte as usize)
        .or_else(|| crate::real::find_mpi_part(c"MPIR_Dup_fn", &MPICH).map(|_| MPICH_BYTE))
}

/// The byte of a file where an offset is, which counts elements of its view.
fn byte_offset(file: usize, offset: i64) -> Option<u64> {
    let mut at: i64 = 0;
    // SAFETY: a call has just succeeded with them.
    let asked = unsafe { ask::byte_offset(file, offset as usize, &raw mut at as usize) };
    if asked == Some(0) { u64::try_from(at).ok() } else { None }
}

/// Whether this says that no status is wanted: 0 in Open MPI, 1 in MPICH; in Fortran a variable of
/// theirs.
fn is_ignored(status: usize, language: MpiLanguage) -> bool {
    const NO_ADDRESS_MAX: usize = 4095;
    if language != MpiLanguage::Fortran {
        return status <= NO_ADDRESS_MAX;
    }
    static TOLD: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    static NAMED: [AtomicPtr<c_void>; 4] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 4];
    const NAMES: [&CStr; 4] = [
        c"mpi_fortran_status_ignore_",
        c"mpi_fortran_status_ignore",
        c"mpi_fortran_status_ignore__",
        c"MPI_FORTRAN_STATUS_IGNORE",
    ];
    let told = crate::real::find_mpi_part(c"MPI_F_STATUS_IGNORE", &TOLD);
    // SAFETY: it is a variable that holds an address.
    let is_told = told.is_some_and(|told| unsafe { *told.cast::<usize>() } == status);
    let mut named = NAMES.iter().zip(&NAMED);
    is_told
        || named.any(|(name, found)| {
            crate::real::find_mpi_part(name, found).is_some_and(|at| at as usize == status)
        })
}

macro_rules! name_of {
    ($($part:expr),*) => {
        match CStr::from_bytes_with_nul(concat!($($part,)* "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name without a zero"),
        }
    };
}

/// A function with a name in one language.
macro_rules! stand_in {
    ($call:expr, $language:ident, [$($arg:ident)*] [$($none:literal)*], $($part:expr),*) => {
        const _: () = {
            #[unsafe(export_name = concat!($($part),*))]
            pub unsafe extern "C" fn stand_in($($arg: usize),*) -> c_int {
                static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
                const NAME: &CStr = name_of!($($part),*);
                const CALL: MpiCall = $call;
                // SAFETY: as our caller vouches for.
                unsafe { run(NAME, &FOUND, CALL, MpiLanguage::$language, [$($arg,)* $($none),*]) }
            }
        };
    };
}

/// Functions by the end of their names, in C and in Fortran as its compilers spell them; of those
/// that count there is one for large counts. `ompi_…_f` are what Open MPI's `mpi_f08` calls. MPICH's
/// calls those of C, but where no memory is passed, of which there is one more.
macro_rules! stand_ins {
    ($($name:ident $upper:ident $($more:ident)? = $call:expr;)*) => {
        $(
            stand_in!($call, C, [a b c d e f] [0 0], "MPI_File_", stringify!($name));
            $(stand_ins!(@more $name $more $call);)?
            stand_ins!(@fortran $call, "mpi_file_", stringify!($name));
            stand_ins!(@fortran $call, "mpi_file_", stringify!($name), "_");
            stand_ins!(@fortran $call, "mpi_file_", stringify!($name), "__");
            stand_ins!(@fortran $call, "MPI_FILE_", stringify!($upper));
            stand_ins!(@fortran $call, "ompi_file_", stringify!($name), "_f");
        )*
    };
    (@more $name:ident large $call:expr) => {
        stand_in!($call, LargeC, [a b c d e f] [0 0], "MPI_File_", stringify!($name), "_c");
    };
    (@more $name:ident f08 $call:expr) => {
        stand_ins!(@fortran $call, "mpi_file_", stringify!($name), "_f08_");
    };
    (@fortran $call:expr, $($part:expr),*) => {
        stand_in!($call, Fortran, [a b c d e f g h] [], $($part),*);
    };
}

use IoOp::{AsyncRead, AsyncWrite, Read, Seek, Wait, Write};
use LastArgument::{None as Nothing, Request, Status};

stand_ins! {
    open OPEN f08 = shaped(IoOp::Open, MpiShape::Open);
    close CLOSE f08 = shaped(IoOp::Close, MpiShape::Close);
    delete DELETE f08 = shaped(IoOp::Unlink, MpiShape::Delete);
    set_view SET_VIEW f08 = shaped(IoOp::SetView, MpiShape::View);
    set_size SET_SIZE f08 = shaped(IoOp::Truncate, MpiShape::Sized);
    preallocate PREALLOCATE f08 = shaped(IoOp::Allocate, MpiShape::Sized);
    sync SYNC f08 = plain(IoOp::Sync, 0);
    seek SEEK f08 = plain(Seek, 2);
    seek_shared SEEK_SHARED f08 = plain(Seek, 2);
    get_size GET_SIZE f08 = plain(IoOp::Stat, 1);

    read READ large = moves(Read, false, Status);
    read_all READ_ALL large = moves(Read, false, Status);
    read_shared READ_SHARED large = moves(Read, false, Status);
    read_ordered READ_ORDERED large = moves(Read, false, Status);
    read_at READ_AT large = moves(Read, true, Status);
    read_at_all READ_AT_ALL large = moves(Read, true, Status);
    write WRITE large = moves(Write, false, Status);
    write_all WRITE_ALL large = moves(Write, false, Status);
    write_shared WRITE_SHARED large = moves(Write, false, Status);
    write_ordered WRITE_ORDERED large = moves(Write, false, Status);
    write_at WRITE_AT large = moves(Write, true, Status);
    write_at_all WRITE_AT_ALL large = moves(Write, true, Status);

    iread IREAD large = moves(AsyncRead, false, Request);
    iread_all IREAD_ALL large = moves(AsyncRead, false, Request);
    iread_shared IREAD_SHARED large = moves(AsyncRead, false, Request);
    iread_at IREAD_AT large = moves(AsyncRead, true, Request);
    iread_at_all IREAD_AT_ALL large = moves(AsyncRead, true, Request);
    iwrite IWRITE large = moves(AsyncWrite, false, Request);
    iwrite_all IWRITE_ALL large = moves(AsyncWrite, false, Request);
    iwrite_shared IWRITE_SHARED large = moves(AsyncWrite, false, Request);
    iwrite_at IWRITE_AT large = moves(AsyncWrite, true, Request);
    iwrite_at_all IWRITE_AT_ALL large = moves(AsyncWrite, true, Request);

    read_all_begin READ_ALL_BEGIN large = moves(AsyncRead, false, Nothing);
    read_ordered_begin READ_ORDERED_BEGIN large = moves(AsyncRead, false, Nothing);
    read_at_all_begin READ_AT_ALL_BEGIN large = moves(AsyncRead, true, Nothing);
    write_all_begin WRITE_ALL_BEGIN large = moves(AsyncWrite, false, Nothing);
    write_ordered_begin WRITE_ORDERED_BEGIN large = moves(AsyncWrite, false, Nothing);
    write_at_all_begin WRITE_AT_ALL_BEGIN large = moves(AsyncWrite, true, Nothing);
    read_all_end READ_ALL_END = shaped(Wait, MpiShape::Ends);
    read_ordered_end READ_ORDERED_END = shaped(Wait, MpiShape::Ends);
    read_at_all_end READ_AT_ALL_END = shaped(Wait, MpiShape::Ends);
    write_all_end WRITE_ALL_END = shaped(Wait, MpiShape::Ends);
    write_ordered_end WRITE_ORDERED_END = shaped(Wait, MpiShape::Ends);
    write_at_all_end WRITE_AT_ALL_END = shaped(Wait, MpiShape::Ends);
}

//! The functions behind those of this library.
use crate::text::Text;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next definition behind this library's.
const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlopen(name: *const c_char, how: c_int) -> *mut c_void;
    fn dl_iterate_phdr(
        see: unsafe extern "C" fn(*const LoadedObject, usize, *mut c_void) -> c_int,
        with: *mut c_void,
    ) -> c_int;
}

/// A function of the C library's, or of another library that is preloaded behind this one.
pub struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    pub const fn of(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where it is; null where there is none.
    #[inline]
    pub fn find(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.look() } else { found }
    }

    #[cold]
    fn look(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let found = unsafe { dlsym(RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// A function of MPI's. Null where there is none: it is looked for again then.
#[inline]
pub fn find_mpi(name: &'static CStr, found: &AtomicPtr<c_void>) -> *mut c_void {
    let known = found.load(Ordering::Relaxed);
    if known.is_null() { look_for_mpi(name, found) } else { known }
}

/// What only one MPI has, perhaps: looked for once, when one is there.
pub fn find_mpi_part(name: &'static CStr, found: &AtomicPtr<c_void>) -> Option<*mut c_void> {
    const ABSENT: *mut c_void = usize::MAX as *mut c_void;
    let mut known = find_mpi(name, found);
    if known.is_null() {
        known = ABSENT;
        found.store(ABSENT, Ordering::Relaxed);
    }
    (known != ABSENT).then_some(known)
}

#[cold]
fn look_for_mpi(name: &'static CStr, found: &AtomicPtr<c_void>) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    let mut at = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
    if at.is_null() {
        at = look_in_loaded(name);
    }
    found.store(at, Ordering::Relaxed);
    at
}

/// What the loader tells of an object (`struct dl_phdr_info`), as far as it is looked at.
#[repr(C)]
struct LoadedObject {
    start: usize,
    name: *const c_char,
}

const OBJECTS_MAX: usize = 4;
const NAME_BYTES_MAX: usize = 512;

/// Names of loaded objects that may be MPI's.
struct MpiObjects {
    names: [Text<NAME_BYTES_MAX>; OBJECTS_MAX],
    count: usize,
}

/// An MPI that was loaded for one part of the program alone, as interpreters do with their modules,
/// is among what is loaded, and not where the next definition is looked for.
fn look_in_loaded(name: &CStr) -> *mut c_void {
    const LAZY: c_int = 1;
    const NO_LOAD: c_int = 4;
    let mut objects = MpiObjects { names: [const { Text::new() }; OBJECTS_MAX], count: 0 };
    // SAFETY: what is called takes this.
    unsafe { dl_iterate_phdr(note_mpi_object, (&raw mut objects).cast()) };
    for object in objects.names[..objects.count].iter().filter_map(Text::as_c_str) {
        // SAFETY: names end with zeros; an object that is there stays from here on.
        let at = unsafe {
            let handle = dlopen(object.as_ptr(), LAZY | NO_LOAD);
            if handle.is_null() { handle } else { dlsym(handle, name.as_ptr()) }
        };
        if !at.is_null() {
            return at;
        }
    }
    std::ptr::null_mut()
}

unsafe extern "C" fn note_mpi_object(
    object: *const LoadedObject,
    _: usize,
    into: *mut c_void,
) -> c_int {
    // SAFETY: the loader gives what it tells of, and what it was given.
    let (object, into) = unsafe { (&*object, &mut *into.cast::<MpiObjects>()) };
    if object.name.is_null() || into.count == OBJECTS_MAX {
        return 0;
    }
    // SAFETY: names end with a zero.
    let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    if last.starts_with(b"libmpi") {
        into.names[into.count].push(name);
        into.count += 1;
    }
    0
}

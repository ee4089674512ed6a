//! Filters in C++: functions with MRNet's signature, in shared objects.
//!
//! What includes `mrnet/MRNet.h` brings a function along that turns this library's calls into
//! those of the user's filter; see `mrnet/FilterAbi.h`. It catches exceptions.
#![allow(unsafe_code)]
use crate::wire::Parcel;
use bytes::Bytes;
use sheaf_core::Errno;
use sheaf_tree::filter::{FilterError, NodeInfo};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// `struct sheaf_mrnet_packet` of the header.
#[repr(C)]
struct PacketArgs {
    tag: i32,
    source: u32,
    data: *const u8,
    len: usize,
}

/// `struct sheaf_mrnet_call` of the header.
#[repr(C)]
struct Call {
    function: *mut c_void,
    state: *mut *mut c_void,
    stream: u32,
    packets: *const PacketArgs,
    packets_len: usize,
    params: *const u8,
    params_len: usize,
    rank: u32,
    children: u32,
    siblings: u32,
    descendants: u32,
    leaf_descendants: u32,
    root_distance: u32,
    max_leaf_distance: u32,
    context: *mut c_void,
    give: extern "C" fn(*mut c_void, c_int, i32, u32, *const u8, usize),
    fail: extern "C" fn(*mut c_void, *const c_char),
}

type Trampoline = unsafe extern "C" fn(*const Call) -> c_int;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// Resolve functions when they are called: filters may use some that only front ends have.
const RTLD_LAZY: c_int = 1;

/// One filter at one node, for one stream.
pub struct Native {
    run: Trampoline,
    get_state: Option<Trampoline>,
    function: *mut c_void,
    state_function: *mut c_void,
    state: *mut c_void,
    format: String,
    params: Vec<u8>,
    info: NodeInfo,
}

// SAFETY: the pointers lead to code, and to the filter's own state, which one thread at a time
// uses: the node calls a filter under its lock.
unsafe impl Send for Native {}

/// What a call gives.
#[derive(Default)]
struct Given {
    out: Vec<Parcel>,
    back: Vec<Parcel>,
    error: Option<String>,
}

extern "C" fn give(context: *mut c_void, back: c_int, tag: i32, source: u32, data: *const u8, len: usize) {
    // SAFETY: `context` is the `Given` that `call` has passed, which nobody else uses meanwhile.
    let given = unsafe { &mut *context.cast::<Given>() };
    let packet = if len == 0 {
        Bytes::new()
    } else {
        // SAFETY: the trampoline gives a packet's bytes and their number.
        Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(data, len) })
    };
    let list = if back == 0 { &mut given.out } else { &mut given.back };
    list.push(Parcel { tag, source, packet });
}

extern "C" fn fail(context: *mut c_void, message: *const c_char) {
    // SAFETY: as in `give`; the message is a text.
    let (given, message) = unsafe { (&mut *context.cast::<Given>(), CStr::from_ptr(message)) };
    given.error = Some(message.to_string_lossy().into_owned());
}

fn broken(message: impl Into<String>) -> FilterError {
    FilterError::new(Errno::NOSYS, message)
}

impl Native {
    /// Loads a filter.
    ///
    /// # Errors
    /// When there is no such library or function, or it was not built with `mrnet/MRNet.h`.
    pub fn load(path: &str, function: &str, params: &[u8], info: &NodeInfo) -> Result<Self, FilterError> {
        let text = |text: &str| CString::new(text).map_err(|_| broken("a name has a zero byte"));
        let file = text(path)?;
        // SAFETY: loading a library runs its initialisers; the user asked for that. It is never
        // unloaded, since its state may hold pointers into it.
        let library = unsafe { dlopen(file.as_ptr(), RTLD_LAZY) };
        if library.is_null() {
            // SAFETY: after a failure there is a text.
            let why = unsafe { CStr::from_ptr(dlerror()) }.to_string_lossy().into_owned();
            return Err(broken(format!("cannot load {path}: {why}")));
        }
        let symbol = |name: &str| -> Result<*mut c_void, FilterError> {
            let name = text(name)?;
            // SAFETY: the library is open and the name is a text.
            Ok(unsafe { dlsym(library, name.as_ptr()) })
        };
        let missing = |name: &str| broken(format!("{path} has no {name}"));
        let address = symbol(function)?;
        if address.is_null() {
            return Err(missing(function));
        }
        let trampoline = |name: &str| -> Result<Option<Trampoline>, FilterError> {
            let address = symbol(name)?;
            // SAFETY: functions of these names have this type: the header defines them.
            Ok((!address.is_null())
                .then(|| unsafe { std::mem::transmute::<*mut c_void, Trampoline>(address) }))
        };
        let run = trampoline("sheaf_mrnet_run")?
            .ok_or_else(|| broken(format!("{path} was not built with mrnet/MRNet.h")))?;
        let state_function = symbol(&format!("{function}_get_state"))?;
        let get_state = if state_function.is_null() { None } else { trampoline("sheaf_mrnet_state")? };
        let format = symbol(&format!("{function}_format_string"))?.cast::<*const c_char>();
        let format = if format.is_null() {
            String::new()
        } else {
            // SAFETY: MRNet's filters define it as a `const char *` to a text.
            unsafe { CStr::from_ptr(*format) }.to_string_lossy().into_owned()
        };
        let (params, info) = (params.to_vec(), info.clone());
        let state = std::ptr::null_mut();
        Ok(Self { run, get_state, function: address, state_function, state, format, params, info })
    }

    /// Runs the filter on these packets.
    ///
    /// # Errors
    /// A packet of another format than the filter's, or what it has thrown.
    pub fn run(
        &mut self,
        packets: &[Parcel],
        out: &mut Vec<Parcel>,
        back: &mut Vec<Parcel>,
    ) -> Result<(), FilterError> {
        for parcel in packets {
            self.check(&parcel.packet)?;
        }
        let mut given = self.call(self.run, self.function, packets);
        if let Some(error) = given.error.take() {
            return Err(FilterError::new(Errno::BADMSG, error));
        }
        out.append(&mut given.out);
        back.append(&mut given.back);
        Ok(())
    }

    /// What the filter has kept, as a packet.
    pub fn state(&mut self) -> Option<Vec<u8>> {
        let given = self.call(self.get_state?, self.state_function, &[]);
        given.out.into_iter().next().map(|parcel| parcel.packet.to_vec())
    }

    /// Refuses a packet that is not of the format the filter names.
    fn check(&self, packet: &[u8]) -> Result<(), FilterError> {
        let have = packet.split_first().and_then(|(&len, rest)| rest.get(..usize::from(len)));
        let have = have.map(String::from_utf8_lossy).unwrap_or_default();
        let same = |a: &str, b: &str| a.split_whitespace().eq(b.split_whitespace());
        if self.format.trim().is_empty() || same(&have, &self.format) {
            return Ok(());
        }
        let message = format!("a packet of the format {have:?} came to a filter of {:?}", self.format);
        Err(FilterError::new(Errno::BADMSG, message))
    }

    fn call(&mut self, trampoline: Trampoline, function: *mut c_void, packets: &[Parcel]) -> Given {
        let args = |parcel: &Parcel| PacketArgs {
            tag: parcel.tag,
            source: parcel.source,
            data: parcel.packet.as_ptr(),
            len: parcel.packet.len(),
        };
        let packets: Vec<PacketArgs> = packets.iter().map(args).collect();
        let mut given = Given::default();
        let (info, place) = (&self.info, self.info.place);
        let call = Call {
            function,
            state: &raw mut self.state,
            stream: info.stream,
            packets: packets.as_ptr(),
            packets_len: packets.len(),
            params: self.params.as_ptr(),
            params_len: self.params.len(),
            rank: info.rank,
            children: info.children,
            siblings: place.siblings,
            descendants: place.descendants,
            leaf_descendants: info.leaves,
            root_distance: info.depth,
            max_leaf_distance: place.height,
            context: (&raw mut given).cast(),
            give,
            fail,
        };
        // SAFETY: the trampoline is of the user's library, which stays loaded; all that the call
        // points to lives until it returns.
        if unsafe { trampoline(&raw const call) } != 0 && given.error.is_none() {
            given.error = Some("the filter failed".to_owned());
        }
        given
    }
}

//! Modules that are shared objects. Their code runs in the node's own process: what it breaks is
//! broken, which is why WebAssembly is the kind to prefer for code that is not trusted.
#![allow(unsafe_code)]

use super::fork;
use super::guest::{Guest, GuestPacket, SentByGuest};
use super::hold::{self, NativeTurn};
use crate::filter::{Emit, FilterError, NodeInfo};
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use sheaf_core::Errno;
use sheaf_core::filter_abi::{
    ABI, AbiCall as RawCall, AbiNode as RawNode, AbiPacket as RawPacket, EntryPoint, Function,
};
use std::ffi::{OsStr, c_char, c_void};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

type Trampoline = unsafe extern "C" fn(*mut RawCall, *mut c_void, *const c_char) -> i32;

/// A shared object that has been linked into this process, for as long as that lives.
pub(super) struct Library {
    // Never unloaded: threads and destructors that its code has registered must stay callable.
    loaded: ManuallyDrop<Loaded>,
    trampoline: Option<Trampoline>,
}

fn broken(message: impl Into<String>) -> FilterError {
    FilterError::new(Errno::NOEXEC, message)
}

/// Links a shared object that is in memory into this process.
pub(super) fn link_bytes(bytes: &[u8]) -> Result<Loaded, FilterError> {
    let failed = |error: std::io::Error| {
        let errno = Errno(error.raw_os_error().unwrap_or(Errno::IO.0));
        FilterError::new(errno, format!("cannot keep the module in memory: {error}"))
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("sheaf-filter", flags).map_err(|error| failed(error.into()))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).map_err(failed)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&file, seals).map_err(|error| failed(error.into()))?;
    let loaded = link_file(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref())?;
    // Kept open, so that no later library is found under the same name.
    std::mem::forget(file);
    Ok(loaded)
}

/// Links a shared object into this process.
pub(super) fn link_file(path: &Path) -> Result<Loaded, FilterError> {
    if cfg!(target_feature = "crt-static") {
        return Err(broken("this program is linked statically and can load no shared object"));
    }
    // SAFETY: linking runs the constructors of the library. Whoever may load filters, or install
    // something beside this program, may run code in this process; that is what a native filter is.
    unsafe { Loaded::open(Some::<&OsStr>(path.as_ref()), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        // What the linker says is the source of what is said first.
        let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
        broken(format!("the shared object cannot be linked: {why}"))
    })
}

/// Whether a 64-bit ELF file has all bytes of the segments that it says are to be loaded: the
/// linker maps what is not there too, and whoever looks at it is ended by `SIGBUS`. What is no such
/// file is for the linker to refuse.
fn is_whole(bytes: &[u8]) -> bool {
    const LOAD: u32 = 1;
    let u16_at = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if bytes.get(4) != Some(&2) {
        return true;
    }
    let check = || -> Option<bool> {
        let (table, size) = (usize::try_from(u64_at(32)?).ok()?, usize::from(u16_at(54)?));
        for number in 0..usize::from(u16_at(56)?) {
            let segment = table.checked_add(number * size)?;
            segment.checked_add(40)?;
            let end = u64_at(segment + 8)?.checked_add(u64_at(segment + 32)?)?;
            if u32_at(segment)? == LOAD && end > bytes.len() as u64 {
                return Some(false);
            }
        }
        Some(true)
    };
    check().unwrap_or(false)
}

impl Library {
    pub fn load(bytes: &[u8]) -> Result<Self, FilterError> {
        fork::watch()
            .and_then(|()| hold::watch())
            .map_err(|error| FilterError::new(Errno::from_io(&error), error.to_string()))?;
        if !is_whole(bytes) {
            return Err(broken("the shared object is cut off"));
        }
        let loaded = link_bytes(bytes)?;
        let mut library = Self { loaded: ManuallyDrop::new(loaded), trampoline: None };
        match library.symbol("sheaf_filter_abi") {
            Some(abi) => {
                // SAFETY: the header gives this symbol the type `uint32_t (void)`.
                let version = unsafe {
                    let abi: unsafe extern "C" fn() -> u32 = std::mem::transmute(abi);
                    abi()
                };
                if version != ABI {
                    return Err(broken(format!(
                        "the module has filter interface {version}, this node {ABI}"
                    )));
                }
            }
            None => {
                let trampoline = library.symbol("sheaf_mrnet_trampoline").ok_or_else(|| {
                    broken("the shared object has no sheaf_filter_abi: it is no module of filters")
                })?;
                // SAFETY: the header gives this symbol the type `sheaf_trampoline`.
                library.trampoline =
                    Some(unsafe { std::mem::transmute::<*mut c_void, Trampoline>(trampoline) });
            }
        }
        Ok(library)
    }

    fn symbol(&self, name: &str) -> Option<*mut c_void> {
        // SAFETY: only the address is taken; how it is used is said where that happens.
        let symbol = unsafe { self.loaded.get::<*mut c_void>(name) }.ok()?;
        let address = symbol.into_raw();
        (!address.is_null()).then_some(address)
    }

    /// An instance of a function for one stream at one node.
    pub fn instance(
        &self,
        function: &str,
        params: &[u8],
        info: &NodeInfo,
    ) -> Result<Native, FilterError> {
        let wave = self.symbol(function).ok_or_else(|| {
            FilterError::new(Errno::NOSYS, format!("the module has no function {function:?}"))
        })?;
        let named = |suffix: &str| self.symbol(&format!("{function}{suffix}"));
        let calls = match self.trampoline {
            None => {
                let companion = |entry: EntryPoint| named(entry.suffix()).map(NativeCall::direct);
                let [create, destroy] = [EntryPoint::Create, EntryPoint::Destroy].map(companion);
                let [state, absorb] = [EntryPoint::State, EntryPoint::Absorb].map(companion);
                [Some(NativeCall::direct(wave)), create, destroy, state, absorb]
            }
            Some(trampoline) => {
                // SAFETY: by the header such a module's NAME_format_string is a `const char *`.
                let format = named("_format_string")
                    .map_or(ptr::null(), |at| unsafe { *at.cast::<*const c_char>() });
                let through = |symbol| NativeCall::Through { trampoline, symbol, format };
                let wave = Some(through(wave));
                [wave, None, wave, named("_get_state").map(through), wave]
            }
        };
        let mut native = Native {
            calls,
            params: aligned(params),
            params_len: params.len(),
            node: node(info),
            state: ptr::null_mut(),
            instance: fork::name_instance(),
            called: called(function, info.rank),
        };
        if native.has(EntryPoint::Create) {
            native.call(EntryPoint::Create, Emit::Partial, &[])?;
        }
        Ok(native)
    }
}

// SAFETY: a loaded library is code and addresses; nothing of it belongs to a thread.
unsafe impl Send for Library {}
// SAFETY: as above; its methods only look symbols up.
unsafe impl Sync for Library {}

/// How an entry is called.
#[derive(Clone, Copy)]
enum NativeCall {
    Direct(Function),
    Through {
        trampoline: Trampoline,
        symbol: *mut c_void,
        format: *const c_char,
    },
    /// The engine's, which copies what it is given.
    Engine(Function),
}

impl NativeCall {
    fn direct(symbol: *mut c_void) -> Self {
        // SAFETY: the header gives functions that streams name, and their companions, this type.
        Self::Direct(unsafe { std::mem::transmute::<*mut c_void, Function>(symbol) })
    }
}

/// What a filter is told of its node.
pub(super) fn node(info: &NodeInfo) -> RawNode {
    RawNode {
        rank: info.rank,
        stream: info.stream,
        depth: info.depth,
        height: info.place.height,
        nearest_leaf: info.place.nearest_leaf,
        children: info.children,
        siblings: info.place.siblings,
        descendants: info.place.descendants,
        leaves: info.leaves,
    }
}

/// What a function is asked.
pub(super) struct AskedFilter<'a> {
    pub entry: EntryPoint,
    pub emit: Emit,
    pub packets: &'a [RawPacket],
    pub params: &'a [u8],
    pub node: &'a RawNode,
    pub state: *mut c_void,
}

/// What it has left.
pub(super) struct Left {
    pub state: *mut c_void,
    pub reserved: u32,
}

impl<'a> AskedFilter<'a> {
    pub fn new(entry: EntryPoint) -> Self {
        const NOWHERE: &RawNode = &RawNode {
            rank: 0,
            stream: 0,
            depth: 0,
            height: 0,
            nearest_leaf: 0,
            children: 0,
            siblings: 0,
            descendants: 0,
            leaves: 0,
        };
        let state = ptr::null_mut();
        Self { entry, emit: Emit::Partial, packets: &[], params: &[], node: NOWHERE, state }
    }

    fn raw(&self, sent: &mut SentByGuest) -> RawCall {
        RawCall {
            abi: ABI,
            entry: self.entry as u32,
            emit: u32::from(self.emit == Emit::Result),
            reserved: 0,
            inputs: self.packets.as_ptr(),
            inputs_len: self.packets.len(),
            params: self.params.as_ptr(),
            params_len: self.params.len(),
            node: self.node,
            state: self.state,
            host: ptr::from_mut(sent).cast(),
            output: host_output,
            reply: host_reply,
            fail: host_fail,
        }
    }

    /// # Safety
    /// The function has to be one that may be called so.
    pub unsafe fn call(&self, function: Function) -> Result<Left, FilterError> {
        let mut sent = SentByGuest::default();
        let mut raw = self.raw(&mut sent);
        // SAFETY: promised by the caller; all that `raw` points to lives until the call returns.
        let status = unsafe { function(&raw mut raw) };
        let (state, reserved) = (raw.state, raw.reserved);
        // Who only begins sends nothing.
        sent.outcome(status)?;
        Ok(Left { state, reserved })
    }
}

/// A copy that begins on a multiple of 8.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    // One more, so that even nothing has an address of its own.
    words.chain([0]).collect()
}

/// One instance.
pub(super) struct Native {
    /// By [`EntryPoint`].
    calls: [Option<NativeCall>; 5],
    params: Vec<u64>,
    params_len: usize,
    node: RawNode,
    state: *mut c_void,
    /// Its name among all instances of this process.
    instance: u64,
    /// What it is, for people.
    called: Arc<str>,
}

fn called(function: &str, rank: u32) -> Arc<str> {
    format!("the filter {function:?} at node {rank}").into()
}

impl Native {
    /// An instance that the engine has opened, with these companions (bits by [`EntryPoint`]).
    pub fn of_engine(
        call: Function,
        companions: u32,
        state: *mut c_void,
        params: &[u8],
        node: RawNode,
    ) -> Self {
        // The engine is told of the end whether or not the guest wants to be.
        let there = companions | 1 << EntryPoint::Destroy as u32;
        let calls = EntryPoint::ALL
            .map(|entry| (there >> entry as u32 & 1 == 1).then_some(NativeCall::Engine(call)));
        let (params, params_len) = (aligned(params), params.len());
        let called = called("(WebAssembly)", node.rank);
        let instance = fork::name_instance();
        Self { calls, params, params_len, node, state, instance, called }
    }
}

// SAFETY: the state belongs to the guest, which is called by one thread at a time; the interface
// does not promise it the same thread each time.
unsafe impl Send for Native {}

impl Guest for Native {
    fn has(&self, entry: EntryPoint) -> bool {
        self.calls[entry as usize].is_some()
    }

    fn set_params(&mut self, params: &[u8]) {
        (self.params, self.params_len) = (aligned(params), params.len());
    }

    fn call(
        &mut self,
        entry: EntryPoint,
        emit: Emit,
        inputs: &[GuestPacket],
    ) -> Result<SentByGuest, FilterError> {
        let Some(call) = self.calls[entry as usize] else { return Ok(SentByGuest::default()) };
        let copies: Vec<Vec<u64>> = match call {
            NativeCall::Engine(_) => Vec::new(),
            _ => inputs.iter().map(|packet| aligned(&packet.data)).collect(),
        };
        let packets = inputs.iter().enumerate().map(|(at, packet)| {
            let data = copies.get(at).map_or(packet.data.as_ptr(), |copy| copy.as_ptr().cast());
            raw_packet(packet, data)
        });
        let packets: Vec<RawPacket> = packets.collect();
        let mut sent = SentByGuest::default();
        let asked = AskedFilter {
            entry,
            emit,
            packets: &packets,
            params: &[],
            node: &self.node,
            state: self.state,
        };
        let mut raw = asked.raw(&mut sent);
        (raw.params, raw.params_len) = (self.params.as_ptr().cast(), self.params_len);
        let process = rustix::process::getpid();
        let turn = NativeTurn::begin(&self.called);
        // SAFETY: all that `raw` points to lives until the call returns; the function has the type
        // that the header demands of it.
        let status = unsafe {
            match call {
                NativeCall::Direct(function) | NativeCall::Engine(function) => {
                    function(&raw mut raw)
                }
                NativeCall::Through { trampoline, symbol, format } => {
                    trampoline(&raw mut raw, symbol, format)
                }
            }
        };
        drop(turn);
        self.state = raw.state;
        if rustix::process::getpid() != process {
            fork::end_copy(self.instance);
        }
        if let Some(error) = fork::told(self.instance) {
            return Err(error);
        }
        sent.outcome(status)
    }
}

fn raw_packet(packet: &GuestPacket, data: *const u8) -> RawPacket {
    RawPacket {
        data,
        len: packet.data.len(),
        tag: packet.tag,
        child: packet.child,
        rank: packet.rank,
        raw: u32::from(packet.raw),
        clock_offset_ns: packet.clock_offset_ns,
        clock_error_ns: packet.clock_error_ns,
    }
}

/// The bytes that a guest points to.
///
/// # Safety
/// `len` bytes are readable at `data`, unless `len` is 0, and stay so while the result is used.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(data, len) }
}

unsafe extern "C" fn host_output(host: *mut c_void, tag: i32, data: *const u8, len: usize) -> i32 {
    // SAFETY: `host` is the `Sent` of the call under way, which uses it only through these three.
    let sent = unsafe { &mut *host.cast::<SentByGuest>() };
    // SAFETY: the header asks the guest for `len` readable bytes.
    sent.output(tag, unsafe { bytes(data, len) })
}

unsafe extern "C" fn host_reply(host: *mut c_void, tag: i32, data: *const u8, len: usize) -> i32 {
    // SAFETY: as in `host_output`.
    let sent = unsafe { &mut *host.cast::<SentByGuest>() };
    // SAFETY: as in `host_output`.
    sent.reply(tag, unsafe { bytes(data, len) })
}

unsafe extern "C" fn host_fail(host: *mut c_void, text: *const c_char, len: usize) {
    // SAFETY: as in `host_output`.
    let sent = unsafe { &mut *host.cast::<SentByGuest>() };
    // SAFETY: as in `host_output`.
    sent.fail(unsafe { bytes(text.cast(), len) });
}

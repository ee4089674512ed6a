//! `sheaf_filter.h` in Rust: what a node and the code of a user's filter tell each other, and how a
//! node speaks to the engine that runs WebAssembly, which is a shared object of its own.
//!
//! Only the layout is here. Who calls says at the call why it may.
use std::ffi::{c_char, c_void};

/// The version of `sheaf_filter.h`.
pub const ABI: u32 = 1;

/// What a filter's function is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum EntryPoint {
    /// To combine a wave.
    Wave = 0,
    /// To begin.
    Create = 1,
    /// To end.
    Destroy = 2,
    /// For what another node needs to take over.
    State = 3,
    /// To take over.
    Absorb = 4,
}

impl EntryPoint {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Wave, Self::Create, Self::Destroy, Self::State, Self::Absorb];

    /// The companion of a function that answers for it is called so.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Wave => "",
            Self::Create => "_create",
            Self::Destroy => "_destroy",
            Self::State => "_state",
            Self::Absorb => "_absorb",
        }
    }
}

/// `sheaf_packet`.
#[derive(Debug)]
#[repr(C)]
pub struct AbiPacket {
    /// Its bytes.
    pub data: *const u8,
    /// How many.
    pub len: usize,
    /// Its tag.
    pub tag: i32,
    /// The child it came from, counted from 0.
    pub child: u32,
    /// That child's rank.
    pub rank: u32,
    /// 1: a leaf's own data.
    pub raw: u32,
    /// The child's clock less this node's.
    pub clock_offset_ns: i64,
    /// By how much that may be off.
    pub clock_error_ns: u64,
}

/// `sheaf_node`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says what each is")]
pub struct AbiNode {
    pub rank: u32,
    pub stream: u32,
    pub depth: u32,
    pub height: u32,
    pub nearest_leaf: u32,
    pub children: u32,
    pub siblings: u32,
    pub descendants: u32,
    pub leaves: u32,
}

/// Takes a packet from a filter.
pub type TakeFn = unsafe extern "C" fn(*mut c_void, i32, *const u8, usize) -> i32;
/// Takes the reason of a failure.
pub type Fail = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
/// A filter's function.
pub type Function = unsafe extern "C" fn(*mut AbiCall) -> i32;

/// `sheaf_call`.
#[derive(Debug)]
#[repr(C)]
pub struct AbiCall {
    /// [`ABI`].
    pub abi: u32,
    /// An [`EntryPoint`].
    pub entry: u32,
    /// 1: outputs are for the user, at the root.
    pub emit: u32,
    /// 0; to an [`AbiEngine`] see there.
    pub reserved: u32,
    /// The packets.
    pub inputs: *const AbiPacket,
    /// How many.
    pub inputs_len: usize,
    /// What the stream was opened with.
    pub params: *const u8,
    /// Bytes of it.
    pub params_len: usize,
    /// The node.
    pub node: *const AbiNode,
    /// The function's own.
    pub state: *mut c_void,
    /// What the three functions want back.
    pub host: *mut c_void,
    /// Takes an output.
    pub output: TakeFn,
    /// Takes a packet for the members below.
    pub reply: TakeFn,
    /// Takes the reason of a failure.
    pub fail: Fail,
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<AbiPacket>() == 48);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<AbiCall>() == 96);
const _: () = assert!(size_of::<AbiNode>() == 36);

/// The version of [`AbiEngine`].
pub const ENGINE_ABI: u32 = 2;

/// The function of the engine's shared object that gives its [`AbiEngine`], a [`GiveEngine`].
pub const ENGINE_SYMBOL: &str = "sheaf_wasm_engine";

/// See [`ENGINE_SYMBOL`]. What it points to lives as long as the process.
pub type GiveEngine = unsafe extern "C" fn() -> *const AbiEngine;

/// What one call of a guest may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineBounds {
    /// Steps of about an instruction.
    pub steps_max: u64,
    /// Milliseconds.
    pub time_max_ms: u64,
}

impl EngineBounds {
    /// As they travel: two numbers, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.steps_max.to_le_bytes());
        bytes[8..].copy_from_slice(&self.time_max_ms.to_le_bytes());
        bytes
    }

    /// What [`Self::to_bytes`] has made.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self { steps_max: word(0)?, time_max_ms: word(8)? })
    }
}

/// What runs WebAssembly: three functions that are called as a filter's is. Each returns 0, or an
/// errno after it has said why by `fail`; none of them unwinds, and any thread may call them,
/// though no two at once for one instance.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AbiEngine {
    abi: u32,
    compile: Function,
    open: Function,
    call: Function,
}

impl AbiEngine {
    /// An engine of this version.
    ///
    /// # Safety
    /// The functions have to do what the methods of the same names say.
    #[must_use]
    #[expect(unsafe_code, reason = "it is for the caller to promise what the functions do")]
    pub const unsafe fn new(compile: Function, open: Function, call: Function) -> Self {
        Self { abi: ENGINE_ABI, compile, open, call }
    }

    /// Its version. What is behind the other fields of another one is not known.
    #[must_use]
    pub const fn abi(&self) -> u32 {
        self.abi
    }

    /// Makes a module, which stays for ever and may be used by several threads at once: `params`
    /// are its bytes, and `state` is the module afterwards.
    #[must_use]
    pub const fn compile(&self) -> Function {
        self.compile
    }

    /// Makes an instance of a function: `state` is the module and the instance afterwards, the
    /// first input is the function's name, the second what each call may take ([`EngineBounds`]);
    /// `params` and `node` are the stream's. In `reserved` it leaves which companions there are, as
    /// bits by the number of their [`EntryPoint`].
    #[must_use]
    pub const fn open(&self) -> Function {
        self.open
    }

    /// Calls an instance, which `state` is, as the header says. [`EntryPoint::Destroy`] frees it,
    /// whether or not there is a companion. Inputs and parameters need not be aligned.
    #[must_use]
    pub const fn call(&self) -> Function {
        self.call
    }
}

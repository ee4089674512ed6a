//! Modules that are WebAssembly: they reach nothing but their own memory and the three functions
//! of `sheaf_filter.h`, and every call of one ends within a bound.
use super::guest::{ABI, Entry, Guest, Packet, Sent};
use crate::filter::{Emit, FilterError, NodeInfo};
use sheaf_core::Errno;
use std::sync::OnceLock;
use wasmtime::{
    Caller, Config, Engine, Extern, Instance, InstancePre, Linker, Memory, Module, Store, StoreLimits,
    StoreLimitsBuilder, Trap, TypedFunc,
};

mod wasi;

/// The most memory of one instance: one stream at one node.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// The most elements of its tables.
const TABLE_ELEMENTS_MAX: usize = 1 << 16;
/// Stack of a call.
const STACK_BYTES_MAX: usize = 512 << 10;
/// Steps (about one per instruction) that each call has, and more for each byte of its inputs,
/// up to a bound that ends a loop before the neighbours take the node for dead.
const FUEL_MIN: u64 = 1 << 28;
const FUEL_PER_BYTE: u64 = 1 << 8;
const FUEL_MAX: u64 = 1 << 31;

/// The compiler and its settings, made when the first module needs it.
fn engine() -> Result<&'static Engine, FilterError> {
    static ENGINE: OnceLock<Result<Engine, FilterError>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            // The process may have signal handlers of its own, and memory limits: checks are
            // compiled in instead of reserving address space and catching faults.
            .signals_based_traps(false)
            .memory_reservation(0)
            .memory_reservation_for_growth(1 << 20)
            .memory_guard_size(0)
            .max_wasm_stack(STACK_BYTES_MAX);
        Engine::new(&config)
            .map_err(|error| FilterError::new(Errno::NOSYS, format!("no WebAssembly here: {error:#}")))
    });
    engine.as_ref().map_err(Clone::clone)
}

/// A module's machine code.
pub(super) struct Compiled {
    linked: InstancePre<Host>,
}

/// What a guest's calls of the node work on.
struct Host {
    limits: StoreLimits,
    sent: Sent,
}

fn broken(message: impl Into<String>) -> FilterError {
    FilterError::new(Errno::NOEXEC, message)
}

impl Compiled {
    pub fn compile(bytes: &[u8]) -> Result<Self, FilterError> {
        let engine = engine()?;
        let module = Module::from_binary(engine, bytes)
            .map_err(|error| broken(format!("the WebAssembly module is not valid: {error:#}")))?;
        let linked = link(engine, &module)
            .map_err(|error| broken(format!("the WebAssembly module cannot be linked: {error:#}")))?;
        Ok(Self { linked })
    }

    /// An instance of a function for one stream at one node.
    pub fn instance(&self, function: &str, params: &[u8], info: &NodeInfo) -> Result<Wasm, FilterError> {
        if !self
            .linked
            .module()
            .exports()
            .any(|export| export.name() == function && export.ty().func().is_some())
        {
            return Err(FilterError::new(Errno::NOSYS, format!("the module has no function {function:?}")));
        }
        let mut wasm = Wasm {
            linked: self.linked.clone(),
            function: function.to_owned(),
            params: params.to_vec(),
            info: info.clone(),
            live: None,
        };
        wasm.start()?;
        Ok(wasm)
    }
}

fn link(engine: &Engine, module: &Module) -> wasmtime::Result<InstancePre<Host>> {
    let mut linker = Linker::new(engine);
    let out_of_memory = || wasmtime::Error::msg("the filter points outside of its memory");
    linker.func_wrap(
        "sheaf",
        "output",
        move |mut caller: Caller<'_, Host>, tag: i32, data: u32, len: u32| {
            let (bytes, host) = guest_bytes(&mut caller, data, len).ok_or_else(out_of_memory)?;
            wasmtime::Result::Ok(host.sent.output(tag, bytes))
        },
    )?;
    linker.func_wrap(
        "sheaf",
        "reply",
        move |mut caller: Caller<'_, Host>, tag: i32, data: u32, len: u32| {
            let (bytes, host) = guest_bytes(&mut caller, data, len).ok_or_else(out_of_memory)?;
            wasmtime::Result::Ok(host.sent.reply(tag, bytes))
        },
    )?;
    linker.func_wrap("sheaf", "fail", move |mut caller: Caller<'_, Host>, data: u32, len: u32| {
        let (bytes, host) = guest_bytes(&mut caller, data, len).ok_or_else(out_of_memory)?;
        host.sent.fail(bytes);
        wasmtime::Result::Ok(())
    })?;
    wasi::link(&mut linker)?;
    // Whatever else a library would like to have, it must do without when it runs.
    linker.define_unknown_imports_as_traps(module)?;
    linker.instantiate_pre(module)
}

fn guest_bytes<'a>(
    caller: &'a mut Caller<'_, Host>,
    data: u32,
    len: u32,
) -> Option<(&'a [u8], &'a mut Host)> {
    let memory = caller.get_export("memory").and_then(Extern::into_memory)?;
    let (bytes, host) = memory.data_and_store_mut(caller);
    let bytes = bytes.get(data as usize..)?.get(..len as usize)?;
    Some((bytes, host))
}

/// One instance. When a call traps its memory is not to be trusted any more, so the next call gets
/// a new one, without the state of the old.
pub(super) struct Wasm {
    linked: InstancePre<Host>,
    function: String,
    params: Vec<u8>,
    info: NodeInfo,
    live: Option<Live>,
}

struct Live {
    store: Store<Host>,
    memory: Memory,
    alloc: TypedFunc<u32, u32>,
    free: TypedFunc<u32, ()>,
    /// By [`Entry`].
    entries: [Option<TypedFunc<u32, i32>>; 5],
    state: u32,
}

impl Wasm {
    fn start(&mut self) -> Result<&mut Live, FilterError> {
        if self.live.is_none() {
            let mut live = Live::new(&self.linked, &self.function)
                .map_err(|error| explain("the WebAssembly module cannot start", Errno::NOEXEC, &error))?;
            if live.entries[Entry::Create as usize].is_some() {
                live.call(Entry::Create, Emit::Partial, &[], &self.params, &self.info)?;
            }
            self.live = Some(live);
        }
        Ok(self.live.as_mut().expect("it has just been made"))
    }
}

impl Guest for Wasm {
    fn has(&self, entry: Entry) -> bool {
        self.live.as_ref().is_some_and(|live| live.entries[entry as usize].is_some())
    }

    fn set_params(&mut self, params: &[u8]) {
        self.params = params.to_vec();
    }

    fn call(&mut self, entry: Entry, emit: Emit, inputs: &[Packet]) -> Result<Sent, FilterError> {
        self.start()?;
        let Some(live) = self.live.as_mut() else { return Ok(Sent::default()) };
        let outcome = live.call(entry, emit, inputs, &self.params, &self.info);
        if live.poisoned() {
            self.live = None;
        }
        outcome
    }
}

impl Live {
    fn new(linked: &InstancePre<Host>, function: &str) -> wasmtime::Result<Self> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MEMORY_BYTES_MAX)
            .table_elements(TABLE_ELEMENTS_MAX)
            .instances(1)
            .memories(1)
            .tables(8)
            .build();
        let mut store = Store::new(linked.module().engine(), Host { limits, sent: Sent::default() });
        store.limiter(|host| &mut host.limits);
        store.set_fuel(FUEL_MIN)?;
        let instance = linked.instantiate(&mut store)?;
        if let Some(initialize) = instance.get_func(&mut store, "_initialize") {
            initialize.typed::<(), ()>(&store)?.call(&mut store, ())?;
        }
        let abi: TypedFunc<(), u32> = instance.get_typed_func(&mut store, "sheaf_filter_abi")?;
        let version = abi.call(&mut store, ())?;
        if version != ABI {
            let message = format!("the module has filter interface {version}, this node {ABI}");
            return Err(wasmtime::Error::msg(message));
        }
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| wasmtime::Error::msg("the module exports no memory"))?;
        let alloc = instance.get_typed_func(&mut store, "sheaf_alloc")?;
        let free = instance.get_typed_func(&mut store, "sheaf_free")?;
        let entries = [Entry::Wave, Entry::Create, Entry::Destroy, Entry::State, Entry::Absorb]
            .map(|entry| typed(&instance, &mut store, &format!("{function}{}", entry.suffix())));
        let [wave, create, destroy, state, absorb] = entries;
        let entries = [wave?, create?, destroy?, state?, absorb?];
        Ok(Self { store, memory, alloc, free, entries, state: 0 })
    }

    fn call(
        &mut self,
        entry: Entry,
        emit: Emit,
        inputs: &[Packet],
        params: &[u8],
        info: &NodeInfo,
    ) -> Result<Sent, FilterError> {
        let Some(function) = self.entries[entry as usize].clone() else { return Ok(Sent::default()) };
        let mut image = Image::new(entry, emit, inputs, params, info, self.state);
        self.store.data_mut().sent = Sent::default();
        let fuel = FUEL_MIN.saturating_add(image.len() as u64 * FUEL_PER_BYTE).min(FUEL_MAX);
        let status = self.run(&function, &mut image, fuel);
        let sent = std::mem::take(&mut self.store.data_mut().sent);
        match status {
            Ok(status) => sent.outcome(status),
            Err(error) => {
                // What would be left is in an unknown state.
                self.entries = Default::default();
                Err(explain("the filter broke down", Errno::FAULT, &error))
            }
        }
    }

    fn run(&mut self, function: &TypedFunc<u32, i32>, image: &mut Image, fuel: u64) -> wasmtime::Result<i32> {
        self.store.set_fuel(fuel)?;
        let at = self.alloc.call(&mut self.store, image.len() as u32)?;
        if at == 0 || at % 8 != 0 {
            return Err(wasmtime::Error::msg(format!("it has no room for a wave of {} bytes", image.len())));
        }
        self.memory.write(&mut self.store, at as usize, image.relocated(at))?;
        let status = function.call(&mut self.store, at)?;
        let mut state = [0; 4];
        self.memory.read(&self.store, at as usize + Image::STATE_AT, &mut state)?;
        self.state = u32::from_le_bytes(state);
        self.free.call(&mut self.store, at)?;
        Ok(status)
    }

    fn poisoned(&self) -> bool {
        self.entries[Entry::Wave as usize].is_none()
    }
}

fn typed(
    instance: &Instance,
    store: &mut Store<Host>,
    name: &str,
) -> wasmtime::Result<Option<TypedFunc<u32, i32>>> {
    instance.get_func(&mut *store, name).map(|function| function.typed(&*store)).transpose()
}

/// Says what a trap means to the user of a stream.
fn explain(what: &str, otherwise: Errno, error: &wasmtime::Error) -> FilterError {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => {
            FilterError::new(Errno::TIMEDOUT, format!("{what}: it did not end within its bound of steps"))
        }
        Some(trap) => FilterError::new(Errno::FAULT, format!("{what}: {trap}")),
        None => FilterError::new(otherwise, format!("{what}: {error:#}")),
    }
}

/// One call as it stands in the guest's memory: `sheaf_call`, `sheaf_node`, the packets, and their
/// bytes, with the layout that C has on a machine of 32 bits. Pointers are relative until
/// [`Image::relocated`].
struct Image {
    bytes: Vec<u8>,
    pointers: Vec<usize>,
}

impl Image {
    const STATE_AT: usize = 36;
    const CALL_BYTES: usize = 40;
    const NODE_BYTES: usize = 40;
    const PACKET_BYTES: usize = 40;

    fn new(entry: Entry, emit: Emit, inputs: &[Packet], params: &[u8], info: &NodeInfo, state: u32) -> Self {
        let packets_at = Self::CALL_BYTES + Self::NODE_BYTES;
        let mut data_at = packets_at + inputs.len() * Self::PACKET_BYTES;
        let params_at = data_at;
        data_at += params.len().next_multiple_of(8);
        let total =
            data_at + inputs.iter().map(|packet| packet.data.len().next_multiple_of(8)).sum::<usize>();
        let mut image = Self { bytes: Vec::with_capacity(total + 8), pointers: vec![16, 24, 32] };
        let (packets, params_len) = (inputs.len() as u32, params.len() as u32);
        image.words(&[ABI, entry as u32, u32::from(emit == Emit::Result), 0, packets_at as u32, packets]);
        image.words(&[params_at as u32, params_len, Self::CALL_BYTES as u32, state]);
        let place = info.place;
        image.words(&[info.rank, info.stream, info.depth, place.height, place.nearest_leaf]);
        image.words(&[info.children, place.siblings, place.descendants, info.leaves, 0]);
        for packet in inputs {
            image.pointers.push(image.bytes.len());
            image.words(&[data_at as u32, packet.data.len() as u32, packet.tag.cast_unsigned()]);
            image.words(&[packet.child, packet.rank, u32::from(packet.raw)]);
            image.bytes.extend_from_slice(&packet.clock_offset_ns.to_le_bytes());
            image.bytes.extend_from_slice(&packet.clock_error_ns.to_le_bytes());
            data_at += packet.data.len().next_multiple_of(8);
        }
        image.data(params);
        inputs.iter().for_each(|packet| image.data(&packet.data));
        image
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
    }

    fn data(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, for the address where they will stand.
    fn relocated(&mut self, base: u32) -> &[u8] {
        for at in std::mem::take(&mut self.pointers) {
            if let Some(pointer) = self.bytes[at..].first_chunk_mut::<4>() {
                *pointer = u32::from_le_bytes(*pointer).wrapping_add(base).to_le_bytes();
            }
        }
        &self.bytes
    }
}

//! Modules that are WebAssembly: they reach nothing but their own memory and the three functions
//! of `sheaf_filter.h`, and every call of one ends within a bound.
use crate::{RunFailure, bytes, clock, inputs};
use sheaf_core::Errno;
use sheaf_core::filter_abi::{ABI, AbiCall, AbiNode, AbiPacket, EngineBounds, EntryPoint, TakeFn};
use std::ptr;
use std::sync::OnceLock;
use wasmtime::{
    Caller, Config, Engine, Extern, InstancePre, Linker, Memory, Module, Store, StoreLimits,
    StoreLimitsBuilder, Trap, TypedFunc,
};

/// The most memory of one instance: one stream at one node.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// The most elements of its tables.
const TABLE_ELEMENTS_MAX: usize = 1 << 16;
/// Stack of a call.
const STACK_BYTES_MAX: usize = 512 << 10;
/// Steps (about one per instruction) that each call has, and more for each byte of its inputs,
/// up to the bound that is set.
const FUEL_MIN: u64 = 1 << 28;
const FUEL_PER_BYTE: u64 = 1 << 8;

/// The compiler and its settings, made when the first module needs it.
fn engine() -> Result<&'static Engine, RunFailure> {
    static ENGINE: OnceLock<Result<Engine, RunFailure>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            .epoch_interruption(true)
            // The process may have signal handlers of its own, and memory limits: checks are
            // compiled in instead of reserving address space and catching faults.
            .signals_based_traps(false)
            .memory_reservation(0)
            .memory_reservation_for_growth(1 << 20)
            .memory_guard_size(0)
            .max_wasm_stack(STACK_BYTES_MAX);
        Engine::new(&config).inspect(clock::keep_for).map_err(|error| {
            RunFailure::new(Errno::NOSYS, format!("no WebAssembly here: {error:#}"))
        })
    });
    engine.as_ref().map_err(Clone::clone)
}

/// A module's machine code.
pub(crate) struct CompiledGuest {
    linked: InstancePre<WasmHost>,
}

/// What a guest's calls of the node work on.
pub(crate) struct WasmHost {
    limits: StoreLimits,
    /// The call under way, whose caller takes what the guest sends; null before the first one.
    call: *const AbiCall,
    /// The guest only begins, and there is nobody yet to whom it could send.
    begins: bool,
}

// SAFETY: `call` is only followed during that call, by the thread that makes it.
unsafe impl Send for WasmHost {}

impl WasmHost {
    fn send(&self, take: impl Fn(&AbiCall) -> TakeFn, tag: i32, bytes: &[u8]) -> i32 {
        // SAFETY: it is null, or the call under way, which the node keeps until it returns.
        let Some(call) = unsafe { self.call.as_ref() }.filter(|_| !self.begins) else { return 0 };
        // SAFETY: `host` is what the node wants back; the bytes live until it returns.
        unsafe { take(call)(call.host, tag, bytes.as_ptr(), bytes.len()) }
    }

    fn fail(&self, text: &[u8]) {
        // SAFETY: as in `send`.
        if let Some(call) = unsafe { self.call.as_ref() } {
            // SAFETY: as in `send`.
            unsafe { (call.fail)(call.host, text.as_ptr().cast(), text.len()) };
        }
    }
}

fn broken(message: impl Into<String>) -> RunFailure {
    RunFailure::new(Errno::NOEXEC, message)
}

impl CompiledGuest {
    pub fn compile(bytes: &[u8]) -> Result<Self, RunFailure> {
        let engine = engine()?;
        let module = Module::from_binary(engine, bytes)
            .map_err(|error| broken(format!("the WebAssembly module is not valid: {error:#}")))?;
        let linked = link(engine, &module).map_err(|error| {
            broken(format!("the WebAssembly module cannot be linked: {error:#}"))
        })?;
        Ok(Self { linked })
    }
}

fn link(engine: &Engine, module: &Module) -> wasmtime::Result<InstancePre<WasmHost>> {
    let mut linker = Linker::new(engine);
    let out_of_memory = || wasmtime::Error::msg("the filter points outside of its memory");
    linker.func_wrap(
        "sheaf",
        "output",
        move |mut caller: Caller<'_, WasmHost>, tag: i32, data: u32, len: u32| {
            let (bytes, host) = guest_bytes(&mut caller, data, len).ok_or_else(out_of_memory)?;
            wasmtime::Result::Ok(host.send(|call| call.output, tag, bytes))
        },
    )?;
    linker.func_wrap(
        "sheaf",
        "reply",
        move |mut caller: Caller<'_, WasmHost>, tag: i32, data: u32, len: u32| {
            let (bytes, host) = guest_bytes(&mut caller, data, len).ok_or_else(out_of_memory)?;
            wasmtime::Result::Ok(host.send(|call| call.reply, tag, bytes))
        },
    )?;
    linker.func_wrap(
        "sheaf",
        "fail",
        move |mut caller: Caller<'_, WasmHost>, data: u32, len: u32| {
            let (bytes, host) = guest_bytes(&mut caller, data, len).ok_or_else(out_of_memory)?;
            host.fail(bytes);
            wasmtime::Result::Ok(())
        },
    )?;
    crate::wasi::link(&mut linker)?;
    // Whatever else a library would like to have, it must do without when it runs.
    linker.define_unknown_imports_as_traps(module)?;
    linker.instantiate_pre(module)
}

/// What a guest points to in its memory.
pub(crate) fn guest_bytes<'a>(
    caller: &'a mut Caller<'_, WasmHost>,
    data: u32,
    len: u32,
) -> Option<(&'a [u8], &'a mut WasmHost)> {
    let memory = caller.get_export("memory").and_then(Extern::into_memory)?;
    let (bytes, host) = memory.data_and_store_mut(caller);
    let bytes = bytes.get(data as usize..)?.get(..len as usize)?;
    Some((bytes, host))
}

/// One instance: one stream at one node. When a call traps its memory is not to be trusted any
/// more, so the next wave gets a new one, without the state of the old.
pub(crate) struct Instance {
    linked: InstancePre<WasmHost>,
    function: String,
    bounds: EngineBounds,
    live: Option<Live>,
}

struct Live {
    store: Store<WasmHost>,
    memory: Memory,
    alloc: TypedFunc<u32, u32>,
    free: TypedFunc<u32, ()>,
    /// By [`EntryPoint`].
    entries: [Option<TypedFunc<u32, i32>>; 5],
    state: u32,
    bounds: EngineBounds,
}

/// What a call has of its bounds.
trait Spend {
    /// The steps for inputs of this length.
    fn fuel(&self, input_bytes: usize) -> u64;
    /// Lets the store begin a call.
    fn begin(&self, store: &mut Store<WasmHost>, fuel: u64) -> wasmtime::Result<()>;
}

impl Spend for EngineBounds {
    fn fuel(&self, input_bytes: usize) -> u64 {
        FUEL_MIN.saturating_add(input_bytes as u64 * FUEL_PER_BYTE).min(self.steps_max)
    }

    fn begin(&self, store: &mut Store<WasmHost>, fuel: u64) -> wasmtime::Result<()> {
        store.set_epoch_deadline(clock::ticks(self.time_max_ms));
        store.set_fuel(fuel)
    }
}

impl Instance {
    /// An instance of `function`, and which companions that has.
    pub fn open(
        module: &CompiledGuest,
        function: &str,
        bounds: EngineBounds,
        call: &AbiCall,
    ) -> Result<(Self, u32), RunFailure> {
        let is_it = |name: &str, is_function: bool| is_function && name == function;
        let mut exports = module.linked.module().exports();
        if !exports.any(|export| is_it(export.name(), export.ty().func().is_some())) {
            return Err(RunFailure::new(
                Errno::NOSYS,
                format!("the module has no function {function:?}"),
            ));
        }
        let linked = module.linked.clone();
        let mut instance = Self { linked, function: function.to_owned(), bounds, live: None };
        let live = instance.start(call)?;
        let companions =
            EntryPoint::ALL.into_iter().filter(|&entry| live.entries[entry as usize].is_some());
        let bits = companions.fold(0, |bits, entry| bits | 1 << entry as u32);
        Ok((instance, bits))
    }

    fn start(&mut self, call: &AbiCall) -> Result<&mut Live, RunFailure> {
        if self.live.is_none() {
            let what = "the WebAssembly module cannot start";
            let mut live =
                Live::new(&self.linked, &self.function, self.bounds).map_err(|error| {
                    explain(what, Errno::NOEXEC, (self.bounds.fuel(0), self.bounds), &error)
                })?;
            if live.entries[EntryPoint::Create as usize].is_some() {
                let status = live.call(EntryPoint::Create, call)?;
                if status != 0 {
                    return Err(RunFailure { errno: Errno(status), message: None });
                }
            }
            self.live = Some(live);
        }
        Ok(self.live.as_mut().expect("it has just been made"))
    }

    /// What the function, or its companion, returns; one that is not there gives nothing.
    pub fn call(&mut self, call: &AbiCall) -> Result<i32, RunFailure> {
        let Some(entry) = EntryPoint::ALL.into_iter().find(|&entry| entry as u32 == call.entry)
        else {
            return Err(RunFailure::new(Errno::INVAL, format!("there is no entry {}", call.entry)));
        };
        // Only a wave is worth starting anew for: nothing else is left to ask a new one for.
        if entry == EntryPoint::Wave {
            self.start(call)?;
        }
        let Some(live) = self.live.as_mut() else { return Ok(0) };
        let outcome = live.call(entry, call);
        if outcome.is_err() {
            self.live = None;
        }
        outcome
    }
}

impl Live {
    fn new(
        linked: &InstancePre<WasmHost>,
        function: &str,
        bounds: EngineBounds,
    ) -> wasmtime::Result<Self> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MEMORY_BYTES_MAX)
            .table_elements(TABLE_ELEMENTS_MAX)
            .instances(1)
            .memories(1)
            .tables(8)
            .build();
        let mut store = Store::new(
            linked.module().engine(),
            WasmHost { limits, call: ptr::null(), begins: true },
        );
        store.limiter(|host| &mut host.limits);
        bounds.begin(&mut store, bounds.fuel(0))?;
        let _running = clock::wind();
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
        let entries = EntryPoint::ALL
            .map(|entry| typed(&instance, &mut store, &format!("{function}{}", entry.suffix())));
        let [wave, create, destroy, state, absorb] = entries;
        let entries = [wave?, create?, destroy?, state?, absorb?];
        Ok(Self { store, memory, alloc, free, entries, state: 0, bounds })
    }

    /// Calls what answers for `entry`; an error leaves this in an unknown state.
    fn call(&mut self, entry: EntryPoint, call: &AbiCall) -> Result<i32, RunFailure> {
        let Some(function) = self.entries[entry as usize].clone() else { return Ok(0) };
        let mut image = Image::new(entry, call, self.state);
        let host = self.store.data_mut();
        (host.call, host.begins) = (call, entry == EntryPoint::Create);
        let fuel = self.bounds.fuel(image.len());
        let status = self.run(&function, &mut image, fuel);
        self.store.data_mut().call = ptr::null();
        status.map_err(|error| {
            explain("the filter broke down", Errno::FAULT, (fuel, self.bounds), &error)
        })
    }

    fn run(
        &mut self,
        function: &TypedFunc<u32, i32>,
        image: &mut Image,
        fuel: u64,
    ) -> wasmtime::Result<i32> {
        self.bounds.begin(&mut self.store, fuel)?;
        let _running = clock::wind();
        let at = self.alloc.call(&mut self.store, image.len() as u32)?;
        if at == 0 || at % 8 != 0 {
            return Err(wasmtime::Error::msg(format!(
                "it has no room for a wave of {} bytes",
                image.len()
            )));
        }
        self.memory.write(&mut self.store, at as usize, image.relocated(at))?;
        let status = function.call(&mut self.store, at)?;
        let mut state = [0; 4];
        self.memory.read(&self.store, at as usize + Image::STATE_AT, &mut state)?;
        self.state = u32::from_le_bytes(state);
        self.free.call(&mut self.store, at)?;
        Ok(status)
    }
}

fn typed(
    instance: &wasmtime::Instance,
    store: &mut Store<WasmHost>,
    name: &str,
) -> wasmtime::Result<Option<TypedFunc<u32, i32>>> {
    instance.get_func(&mut *store, name).map(|function| function.typed(&*store)).transpose()
}

/// Says what a trap means to the user of a stream. `fuel` is what the call had.
fn explain(
    what: &str,
    otherwise: Errno,
    (fuel, bounds): (u64, EngineBounds),
    error: &wasmtime::Error,
) -> RunFailure {
    let late = |bound: String| {
        RunFailure::new(Errno::TIMEDOUT, format!("{what}: it did not end within {bound}"))
    };
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => late(format!(
            "its bound of work, {fuel} steps (filter_steps_max is {})",
            bounds.steps_max
        )),
        Some(Trap::Interrupt) => {
            late(format!("its bound of time, {} ms (filter_time_max)", bounds.time_max_ms))
        }
        Some(trap) => RunFailure::new(Errno::FAULT, format!("{what}: {trap}")),
        // What is around the cause are the places in the module's code, one a line.
        None => RunFailure::new(otherwise, format!("{what}: {}", error.root_cause())),
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

    fn new(entry: EntryPoint, call: &AbiCall, state: u32) -> Self {
        // SAFETY: what a call points to lives as long as it.
        let (packets, params) = unsafe { (inputs(call), bytes(call.params, call.params_len)) };
        // Who begins gets no packets, whatever wave made it begin.
        let packets = if entry == EntryPoint::Create { &[] } else { packets };
        // SAFETY: as above; it is null or a node.
        let node = unsafe { call.node.as_ref() }.copied().unwrap_or_default();
        let packets_at = Self::CALL_BYTES + Self::NODE_BYTES;
        let mut data_at = packets_at + packets.len() * Self::PACKET_BYTES;
        let params_at = data_at;
        data_at += params.len().next_multiple_of(8);
        let total =
            data_at + packets.iter().map(|packet| packet.len.next_multiple_of(8)).sum::<usize>();
        let mut image = Self { bytes: Vec::with_capacity(total + 8), pointers: vec![16, 24, 32] };
        let (count, params_len) = (packets.len() as u32, params.len() as u32);
        image.words(&[ABI, entry as u32, call.emit, 0, packets_at as u32, count]);
        image.words(&[params_at as u32, params_len, Self::CALL_BYTES as u32, state]);
        image.node(&node);
        for packet in packets {
            image.pointers.push(image.bytes.len());
            image.words(&[data_at as u32, packet.len as u32, packet.tag.cast_unsigned()]);
            image.words(&[packet.child, packet.rank, packet.raw]);
            image.bytes.extend_from_slice(&packet.clock_offset_ns.to_le_bytes());
            image.bytes.extend_from_slice(&packet.clock_error_ns.to_le_bytes());
            data_at += packet.len.next_multiple_of(8);
        }
        image.data(params);
        // SAFETY: as above.
        packets
            .iter()
            .for_each(|packet: &AbiPacket| image.data(unsafe { bytes(packet.data, packet.len) }));
        image
    }

    fn node(&mut self, node: &AbiNode) {
        self.words(&[node.rank, node.stream, node.depth, node.height, node.nearest_leaf]);
        self.words(&[node.children, node.siblings, node.descendants, node.leaves, 0]);
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

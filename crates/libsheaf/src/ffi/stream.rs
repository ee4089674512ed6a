//! Streams, packets and events.
use super::*;
use crate::meter::{CONTEXTS, MeterRecord};

/// Any stream, in place of one.
const ANY: u32 = u32::MAX;

/// `struct sheaf_open` of the header.
#[repr(C)]
pub struct OpenArgs {
    members: *const u32,
    members_len: usize,
    filter: *const c_char,
    params: *const u8,
    params_len: usize,
    down: *const c_char,
    down_params: *const u8,
    down_params_len: usize,
    sync: u32,
    sync_ms: u32,
    measured: c_int,
    about: *const u8,
    about_len: usize,
}

/// `struct sheaf_message` of the header.
#[repr(C)]
pub struct Received {
    stream: u32,
    tag: i32,
    source: u32,
    data: *const u8,
    len: usize,
    message: Message,
}

/// `struct sheaf_event` of the header.
#[repr(C)]
pub struct EventArgs {
    class: u32,
    kind: u32,
    rank: u32,
    parent: u32,
    stream: u32,
    text: *const c_char,
}

/// A number for a stream that will be opened; 0 at a back end.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_new(net: *const Net) -> u32 {
    // SAFETY: the caller's promise.
    match unsafe { net.as_ref() } {
        Some(Net::Front(front)) => front.new_id(),
        _ => 0,
    }
}

/// Opens (or opens anew, with other options) the stream `id`.
///
/// # Safety
/// `net` is a handle that was not freed; `open` and what it points to are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_open(
    net: *const Net,
    id: u32,
    open: *const OpenArgs,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(net), Some(open)) = (unsafe { net.as_ref() }, unsafe { open.as_ref() }) else {
        return failed(&Error::usage("no network or no options"));
    };
    // SAFETY: the caller's promise covers what the structure points to.
    status(unsafe { options(open) }.and_then(|open| net.front()?.open_as(id, &open)))
}

/// # Safety
/// What `open` points to is valid.
unsafe fn options(open: &OpenArgs) -> Result<front::OpenRequest, Error> {
    let sync = match open.sync {
        0 => Sync::WaitForAll,
        1 => Sync::TimeOut(Duration::from_millis(open.sync_ms.into())),
        2 => Sync::DontWait,
        other => return Err(Error::usage(format!("there is no synchronisation {other}"))),
    };
    // SAFETY: this function's own condition.
    unsafe {
        Ok(front::OpenRequest {
            members: bytes(open.members, open.members_len).to_vec(),
            filter: text(open.filter)?.to_owned(),
            params: bytes(open.params, open.params_len).to_vec(),
            down: arg::option(open.down)?.unwrap_or_default().to_owned(),
            down_params: bytes(open.down_params, open.down_params_len).to_vec(),
            measured: open.measured != 0,
            sync,
            about: bytes(open.about, open.about_len).to_vec(),
        })
    }
}

/// Gives the user's filters of a stream other parameters, upwards or (with `down`) downwards.
///
/// # Safety
/// `net` is a handle that was not freed; `params` has the length given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_params(
    net: *const Net,
    id: u32,
    down: c_int,
    params: *const u8,
    params_len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (net, params) = unsafe { (net.as_ref(), bytes(params, params_len)) };
    let net = net.ok_or_else(|| Error::usage("no network"));
    status(net.and_then(|net| net.front()?.set_params(id, down != 0, params)))
}

/// Sends a shared object to every node, and writes the name by which streams call its `function`.
///
/// # Safety
/// `net` is a handle that was not freed; `path` and `function` are texts; `len` bytes can be
/// written at `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_filter_load(
    net: *const Net,
    path: *const c_char,
    function: *const c_char,
    name: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let loaded =
        unsafe { net.as_ref() }.ok_or_else(|| Error::usage("no network")).and_then(|net| {
            // SAFETY: the caller's promise.
            let (path, function) = unsafe { (text(path)?, text(function)?) };
            net.front()?.load_filter(std::path::Path::new(path), function)
        });
    status(loaded.and_then(|loaded| {
        if name.is_null() || loaded.len() >= len {
            return Err(Error::usage("there is no room for the name of the filter"));
        }
        // SAFETY: the name and a zero byte fit into the `len` bytes that the caller gives.
        unsafe {
            std::ptr::copy_nonoverlapping(loaded.as_ptr(), name.cast::<u8>(), loaded.len());
            *name.add(loaded.len()) = 0;
        }
        Ok(())
    }))
}

/// Calls `visit` with what each node has measured of a stream, or of any.
///
/// # Safety
/// `net` is a handle that was not freed; `visit` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_measure(
    net: *const Net,
    id: u32,
    timeout_ms: u32,
    visit: extern "C" fn(*mut c_void, *const Measured),
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let net = unsafe { net.as_ref() }.ok_or_else(|| Error::usage("no network"));
    let timeout = Duration::from_millis(timeout_ms.into());
    status(net.and_then(|net| net.front()?.measure(id, timeout)).map(|records| {
        records.iter().for_each(|record| visit(context, &Measured::of(record)));
    }))
}

/// `struct sheaf_measured` of the header.
#[repr(C)]
pub struct Measured {
    rank: u32,
    packets: [u64; CONTEXTS],
    bytes: [u64; CONTEXTS],
    filter_s: f64,
    user_s: f64,
    system_s: f64,
    waited_s: f64,
    virtual_kb: u64,
    resident_kb: u64,
}

impl Measured {
    fn of(record: &MeterRecord) -> Self {
        let seconds = |nanoseconds: u64| Duration::from_nanos(nanoseconds).as_secs_f64();
        Self {
            rank: record.rank,
            packets: record.packets,
            bytes: record.bytes,
            filter_s: seconds(record.filter_ns),
            user_s: seconds(record.user_ns),
            system_s: seconds(record.system_ns),
            waited_s: seconds(record.waited_ns),
            virtual_kb: record.virtual_kb,
            resident_kb: record.resident_kb,
        }
    }
}

/// Closes a stream at this end.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_close(net: *const Net, id: u32) {
    // SAFETY: the caller's promise.
    match unsafe { net.as_ref() } {
        Some(Net::Front(front)) => front.close(id),
        Some(Net::Back(back)) => back.close(id),
        None => {}
    }
}

/// Whether a stream is there and not closed.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_is_open(net: *const Net, id: u32) -> c_int {
    reactor::keep();
    // SAFETY: the caller's promise.
    unsafe { net.as_ref() }.is_some_and(|net| net.inbox().is_open(id)).into()
}

/// Sends a packet: down, to all members or those of the ranks given, or up.
///
/// # Safety
/// `net` is a handle that was not freed; `data` and `ranks` have the lengths given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_send(
    net: *const Net,
    id: u32,
    tag: i32,
    data: *const u8,
    len: usize,
    ranks: *const u32,
    ranks_len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let (packet, ranks) = unsafe { (bytes(data, len), bytes(ranks, ranks_len)) };
    // SAFETY: the caller's promise.
    status(match unsafe { net.as_ref() } {
        Some(Net::Front(front)) => front.send(id, tag, packet, ranks),
        Some(Net::Back(back)) => back.send(id, tag, packet),
        None => Err(Error::usage("no network")),
    })
}

/// Takes the next packet of a stream, or of any: 1 with `packet` set, 0 when none came in time,
/// -1 when none can come, or a filter failed in the place of this one.
///
/// # Safety
/// `net` is a handle that was not freed; `packet` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_recv(
    net: *const Net,
    id: u32,
    timeout_ms: i64,
    packet: *mut *mut Received,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(net), Some(packet)) = (unsafe { net.as_ref() }, unsafe { packet.as_mut() }) else {
        return failed(&Error::usage("no network, or nowhere to put a packet"));
    };
    let stream = (id != ANY).then_some(id);
    match net.inbox().take(stream, front::deadline(timeout_ms)) {
        Ok(Some(message)) => {
            if let Net::Back(back) = net {
                back.taken(&message);
            }
            let (data, len) = (message.packet.as_ptr(), message.packet.len());
            let (stream, tag, source) = (message.stream, message.tag, message.source);
            *packet = Box::into_raw(Box::new(Received { stream, tag, source, data, len, message }));
            1
        }
        Ok(None) => 0,
        Err(InboxEnd::Session) => failed(&Error::new(ErrorCode::Ended, "the session is over")),
        Err(InboxEnd::Stream) => failed(&Error::no_stream(id)),
        Err(InboxEnd::Lost(why)) => failed(&Error::new(ErrorCode::Filter, why)),
    }
}

/// Frees a packet.
///
/// # Safety
/// `packet` came from [`sheaf_recv`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_message_free(packet: *mut Received) {
    if !packet.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
        let packet = unsafe { Box::from_raw(packet) };
        drop(packet.message);
    }
}

/// Whether a packet waits, on a stream or on any.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_has_packet(net: *const Net, id: u32) -> c_int {
    // SAFETY: the caller's promise.
    let has = unsafe { net.as_ref() }.is_some_and(|net| net.inbox().has((id != ANY).then_some(id)));
    if !has {
        reactor::keep();
    }
    has.into()
}

/// The descriptor that is readable when packets of a stream have come; -1 when there is none.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_fd(net: *const Net, id: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { net.as_ref() }.and_then(|net| net.inbox().signal(id)).unwrap_or(-1)
}

/// Makes it unreadable until the next packet, or closes it.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_fd_clear(net: *const Net, id: u32, close: c_int) {
    // SAFETY: the caller's promise.
    if let Some(net) = unsafe { net.as_ref() } {
        net.inbox().clear_signal(id, close != 0);
    }
}

/// Calls `visit` with the members and the description of a stream that a back end knows; -1 when
/// it does not know it.
///
/// # Safety
/// `net` is a handle that was not freed; `visit` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_about(
    net: *const Net,
    id: u32,
    visit: extern "C" fn(*mut c_void, *const u32, usize, *const u8, usize),
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(Net::Back(back)) = (unsafe { net.as_ref() }) else {
        return failed(&Error::usage("only a back end is told of streams"));
    };
    let Some(described) = back.described(id) else { return failed(&Error::no_stream(id)) };
    let (members, about) = (&described.members, &described.about);
    visit(context, members.as_ptr(), members.len(), about.as_ptr(), about.len());
    0
}

/// Takes the oldest event: 1, or 0 when there is none. Its text is valid until the next call on
/// this thread.
///
/// # Safety
/// `net` is a handle that was not freed; `event` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_event_next(net: *const Net, event: *mut EventArgs) -> c_int {
    thread_local! {
        static TEXT: RefCell<CString> = RefCell::default();
    }
    // SAFETY: the caller's promise.
    let (Some(net), Some(into)) = (unsafe { net.as_ref() }, unsafe { event.as_mut() }) else {
        return 0;
    };
    let Some(next) = net.events().next() else {
        reactor::keep();
        return 0;
    };
    TEXT.with_borrow_mut(|text| {
        *text = CString::new(next.text.replace('\0', "?")).unwrap_or_default();
        *into = event_args(&next, text);
    });
    1
}

fn event_args(event: &EventDescriptor, text: &CString) -> EventArgs {
    let &EventDescriptor { class, kind, rank, parent, stream, .. } = event;
    EventArgs { class, kind, rank, parent, stream, text: text.as_ptr() }
}

/// How many events wait; drops them with `clear`.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_event_count(net: *const Net, clear: c_int) -> usize {
    reactor::keep();
    // SAFETY: the caller's promise.
    unsafe { net.as_ref() }.map_or(0, |net| {
        let pending = net.events().pending();
        if clear != 0 {
            net.events().clear();
        }
        pending
    })
}

/// The descriptor that is readable when an event of the class has happened.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_event_fd(net: *const Net, class: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { net.as_ref() }.and_then(|net| net.events().signal(class)).unwrap_or(-1)
}

/// Makes it unreadable until the next event, or closes it.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_event_fd_clear(net: *const Net, class: u32, close: c_int) {
    // SAFETY: the caller's promise.
    if let Some(net) = unsafe { net.as_ref() } {
        net.events().clear_signal(class, close != 0);
    }
}

/// A pointer of the caller's that its own function gets back.
struct StreamContext(*mut c_void);

// SAFETY: the library only hands the pointer back; the header says that the function is called on
// another thread.
unsafe impl Send for StreamContext {}
// SAFETY: as above.
unsafe impl std::marker::Sync for StreamContext {}

impl StreamContext {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Calls `hook` with `context` for every event from now on, on a thread of the library's.
///
/// # Safety
/// `net` is a handle that was not freed; `hook` may be called from another thread with `context`
/// until the session is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_event_hook(
    net: *const Net,
    hook: extern "C" fn(*mut c_void, *const EventArgs),
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(net) = (unsafe { net.as_ref() }) else { return failed(&Error::usage("no network")) };
    let context = StreamContext(context);
    let call = move |event: &EventDescriptor| {
        let text = CString::new(event.text.replace('\0', "?")).unwrap_or_default();
        hook(context.get(), &event_args(event, &text));
    };
    status(net.events().set_hook(Box::new(call)).map_err(Error::from))
}

/// Waits up to `timeout_ms` until the front end has opened stream `id` here.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_stream_wait(net: *const Net, id: u32, timeout_ms: u32) -> c_int {
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
    // SAFETY: the caller's promise.
    unsafe { net.as_ref() }.is_some_and(|net| net.inbox().wait_open(id, deadline)).into()
}

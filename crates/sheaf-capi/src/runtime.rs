//! The one thread that drives the links of this process's front ends, and how other threads wait.
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use tokio::runtime::{Builder, Handle};

/// The runtime's handle; its thread starts with the first call.
///
/// # Errors
/// When the thread or the runtime cannot be made.
pub fn handle() -> io::Result<Handle> {
    static IO: OnceLock<Mutex<Option<Handle>>> = OnceLock::new();
    let mut slot = IO.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*slot {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let drive = move || {
        crate::ffi::signal::block_broken_pipes();
        runtime.block_on(std::future::pending::<()>());
    };
    thread::Builder::new().name("sheaf-io".to_owned()).spawn(drive)?;
    *slot = Some(handle.clone());
    Ok(handle)
}

/// Runs `future` on the runtime's thread and waits for it here.
///
/// # Errors
/// When there is no runtime, or the future panicked.
pub fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
    let (tell, hear) = tokio::sync::oneshot::channel();
    handle()?.spawn(async move {
        let _ = tell.send(future.await);
    });
    block_on(hear).map_err(|_| io::Error::other("a task of the tree ended early"))
}

struct Parker(Thread);

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` on this thread, which sleeps in between.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Parker(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

//! Tasks of the runtime.
use std::pin::Pin;
use tokio::task::JoinHandle;

/// Spawns a task as a boxed future. The runtime's code for a task is made once for each type of future, and is
/// more than many of the futures are: so all that give the same have one type.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let boxed: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    tokio::spawn(boxed)
}

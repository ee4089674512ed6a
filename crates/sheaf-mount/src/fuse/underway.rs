//! Requests that are under way, which the kernel may interrupt.
use super::View;
use sheaf_core::lock;
use std::sync::Arc;
use tokio::sync::Notify;

/// A request that is under way until this is dropped.
pub(super) struct UnderWay<R> {
    view: Arc<View<R>>,
    unique: u64,
    /// Ends its wait for a lock.
    pub told: Option<Arc<Notify>>,
}

impl<R> UnderWay<R> {
    pub fn new(view: &Arc<View<R>>, unique: u64, is_of_lock: bool) -> Self {
        let told = is_of_lock.then(Arc::<Notify>::default);
        lock(&view.under_way).insert(unique, told.clone());
        Self { view: view.clone(), unique, told }
    }
}

impl<R> Drop for UnderWay<R> {
    fn drop(&mut self) {
        lock(&self.view.under_way).remove(&self.unique);
    }
}

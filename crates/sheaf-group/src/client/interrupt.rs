//! Interrupts: the user does not want to wait any longer, and may change their mind.
use tokio::sync::watch;

/// Counts interrupts and their ends; while it is odd, the session is interrupted.
pub(super) struct Interrupts(watch::Sender<u64>);

/// Somebody who can be interrupted, from one moment on.
pub(super) struct Interruptible {
    now: watch::Receiver<u64>,
    begun: u64,
}

fn is_interrupted(count: u64) -> bool {
    count % 2 == 1
}

impl Interrupts {
    pub fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub fn interrupt(&self) {
        self.0.send_if_modified(|count| !is_interrupted(*count) && step(count));
    }

    pub fn resume(&self) {
        self.0.send_if_modified(|count| is_interrupted(*count) && step(count));
    }

    pub fn is_interrupted(&self) -> bool {
        is_interrupted(*self.0.borrow())
    }

    pub fn begin(&self) -> Interruptible {
        let now = self.0.subscribe();
        let begun = *now.borrow();
        Interruptible { now, begun }
    }
}

fn step(count: &mut u64) -> bool {
    *count += 1;
    true
}

impl Interruptible {
    /// Waits until there is an interrupt, or there has been one since this began.
    pub async fn interrupted(&mut self) {
        let begun = self.begun;
        if self.now.wait_for(|count| is_interrupted(*count) || *count != begun).await.is_err() {
            // The session is gone, and with it everybody who could interrupt it.
            std::future::pending::<()>().await;
        }
    }
}

//! The teller of what becomes of a session's hosts while a command works in it.
use sheaf_core::RangeSet;
use sheaf_group::Client;
use sheaf_tree::Notice;
use sheaf_tree::seldom::Seldom;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Tells beside the command, and is ended with it.
pub struct Narrator {
    task: JoinHandle<()>,
    over: oneshot::Sender<()>,
}

impl Narrator {
    pub fn begin(client: Client) -> Self {
        let (over, is_over) = oneshot::channel::<()>();
        let task = sheaf_tree::task::spawn(async move {
            let mut telling = pin!(narrate(client));
            tokio::select! {
                () = &mut telling => return,
                _ = is_over => {}
            }
            // A command can be done before this has had its turn.
            poll_fn(|cx| {
                let _ = telling.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
        });
        Self { task, over }
    }

    /// Tells what has happened so far, and nothing more.
    pub async fn end(self) {
        // Who tells waits for nothing any more: it ends in its next turn.
        let _ = self.over.send(());
        if let Err(error) = self.task.await {
            tracing::error!("what became of hosts is not told: {error}");
        }
    }
}

/// Says what becomes of hosts, as long as this is polled.
async fn narrate(client: Client) {
    let fold = |leaves: &RangeSet| client.fold(leaves);
    let network = client.network();
    let begun = Instant::now();
    let ready = async {
        if let Some(leaves) = network.ready(Duration::MAX).await {
            let (all, colon) = (fold(&leaves), if leaves.is_empty() { "" } else { ": " });
            let (count, of) = (leaves.len(), network.leaf_count());
            tracing::info!("{count} of {of} hosts run{colon}{all}");
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            tracing::debug!("they have joined within {ms:.1} ms");
        }
    };
    let events = async {
        let (mut seen, mut warned) = (0, Seldom::default());
        loop {
            for notice in network.notices_from(&mut seen).await {
                match notice {
                    Notice::Lost { leaves, cause, .. } => {
                        tracing::warn!("lost {}: {cause}", fold(&leaves))
                    }
                    Notice::Joined { leaves, .. } => tracing::info!("back: {}", fold(&leaves)),
                    Notice::Left { leaves, .. } => tracing::info!("{} has left", fold(&leaves)),
                    Notice::FilterFailed { by, message, .. } => {
                        warned.warn(by, &format!("a filter failed: {message}"));
                    }
                    Notice::Garbled { leaves, .. } => {
                        tracing::warn!("an answer of {} does not decode", fold(&leaves))
                    }
                    Notice::StateLost { by, rank, service } => {
                        warned
                            .warn(by, &format!("lost what service {service} kept at node {rank}"));
                    }
                    other => tracing::debug!("{other:?}"),
                }
            }
        }
    };
    tokio::join!(ready, events);
}

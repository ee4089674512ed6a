//! Taps of services at a node, held so that one that panics, or keeps too much, harms nobody else.
use super::{Passing, STATE_BYTES_MAX, ServicePlace, Services, Site, Tap};
use crate::filter::FilterError;
use crate::proto::SharedTap;
use sheaf_core::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

impl Services {
    /// The taps of a node that is no leaf, by their services.
    pub(crate) fn taps(&self, place: &ServicePlace) -> Vec<(String, SharedTap)> {
        let ServicePlace { leaf, rank, host, configs } = place;
        let made = self.providers.iter().filter_map(|(name, provider)| {
            let config = configs.get(name).map_or(&[][..], |config| config);
            let tap = provider.tap(&Site { leaf: *leaf, rank: *rank, host, config })?;
            let guarded = Guarded { service: name.clone(), tap: Some(tap) };
            Some((name.clone(), Arc::new(Mutex::new(guarded)) as SharedTap))
        });
        made.collect()
    }
}

struct Guarded {
    service: String,
    /// `None` once it has panicked.
    tap: Option<Box<dyn Tap>>,
}

impl Guarded {
    fn call<T>(&mut self, act: impl FnOnce(&mut dyn Tap) -> T) -> Option<T> {
        let tap = self.tap.as_mut()?;
        let done = catch_unwind(AssertUnwindSafe(|| act(&mut **tap))).ok();
        if done.is_none() {
            tracing::error!(service = self.service, "a tap has panicked, and sees nothing more");
            self.drop_it();
        }
        done
    }

    fn drop_it(&mut self) {
        let broken = self.tap.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(broken)));
    }

    /// Drops it if it keeps more than it could ever give away.
    fn drop_too_large(&mut self) {
        let Some(bytes) = self.call(|tap| tap.bytes()).filter(|bytes| *bytes > STATE_BYTES_MAX)
        else {
            return;
        };
        tracing::error!(
            service = self.service,
            bytes,
            "a tap keeps more than {STATE_BYTES_MAX} bytes, and sees nothing more"
        );
        self.drop_it();
    }
}

impl Tap for Guarded {
    fn passing(&mut self, passing: &Passing<'_>) {
        self.call(|tap| tap.passing(passing));
        self.drop_too_large();
    }

    fn bytes(&self) -> usize {
        self.tap.as_ref().map_or(0, |tap| tap.bytes())
    }

    fn is_spent(&self) -> bool {
        self.tap.is_none()
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        self.call(|tap| tap.state()).flatten()
    }

    fn absorb(&mut self, from: u32, state: &[u8]) -> Result<(), FilterError> {
        let broken = || FilterError::new(Errno::NOTRECOVERABLE, "the service has panicked");
        let absorbed = self.call(|tap| tap.absorb(from, state)).unwrap_or_else(|| Err(broken()));
        self.drop_too_large();
        absorbed
    }
}

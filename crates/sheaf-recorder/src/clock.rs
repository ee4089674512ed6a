//! The clock of records: the processor's counter where it runs at one rate on all processors, else
//! the kernel's.
use crate::sys;

/// Which clock it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockKind {
    /// The processor's counter: ticks of a length that a reader finds out.
    Counter = 1,
    /// `CLOCK_MONOTONIC_RAW`, in ns.
    Monotonic = 2,
}

impl ClockKind {
    pub(crate) fn of(number: u32) -> Option<Self> {
        [Self::Counter, Self::Monotonic].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Reads a clock that never goes back on one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceClock(ClockKind);

impl TraceClock {
    /// The best one that this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self(if has_steady_counter() { ClockKind::Counter } else { ClockKind::Monotonic })
    }

    /// That of a kind.
    #[must_use]
    pub fn of(kind: ClockKind) -> Self {
        Self(kind)
    }

    /// Which it is.
    #[must_use]
    pub fn kind(self) -> ClockKind {
        self.0
    }

    /// What it shows.
    #[inline]
    #[must_use]
    pub fn now(self) -> u64 {
        match self.0 {
            ClockKind::Counter => counter(),
            ClockKind::Monotonic => sys::clock_ns(sys::CLOCK_MONOTONIC_RAW),
        }
    }

    /// What it shows, and the time of day in ns at the same moment: the pair read within the
    /// shortest time of a few.
    #[must_use]
    pub fn pair(self) -> (u64, u64) {
        let pairs = (0..5).map(|_| {
            let before = self.now();
            let day = sys::clock_ns(sys::CLOCK_REALTIME);
            let after = self.now();
            (after.wrapping_sub(before), before + after.wrapping_sub(before) / 2, day)
        });
        let (_, now, day) = pairs.min().expect("five pairs");
        (now, day)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    #[expect(unsafe_code, reason = "reads a counter, which every processor of this kind has")]
    // SAFETY: every processor of this kind has the counter.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

/// Whether the counter runs at one rate whatever the processor does (Intel SDM 17.17.1).
#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    use std::arch::x86_64::__cpuid;
    const EXTENDED: u32 = 0x8000_0000;
    __cpuid(EXTENDED).eax >= EXTENDED + 7 && __cpuid(EXTENDED + 7).edx & (1 << 8) != 0
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn counter() -> u64 {
    let now: u64;
    #[expect(unsafe_code, reason = "reads a counter, which Linux lets every process read")]
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack));
    }
    now
}

#[cfg(target_arch = "aarch64")]
fn has_steady_counter() -> bool {
    true
}

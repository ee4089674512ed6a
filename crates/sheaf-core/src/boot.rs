//! Which machine this is, until it is started anew.
use std::sync::OnceLock;

/// A new one for each boot. Containers of one kernel share it.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's own identifier, which is read once; `None` where `/proc` is not mounted.
#[must_use]
pub fn boot_id() -> Option<u128> {
    static MACHINE: OnceLock<Option<u128>> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        let text = std::fs::read_to_string(BOOT_ID).ok()?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
    })
}

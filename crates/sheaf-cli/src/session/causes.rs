//! Why hosts were silent, in the words of reports.
use crate::output::{Report, Silence, Silent};
use sheaf_core::{Errno, RangeSet};
use sheaf_session::Gone;
use std::time::Duration;

/// Of hosts that have not come so far, which nobody could ask anything.
pub fn not_come(is_attach: bool) -> Silence {
    let why = if is_attach { "it has not joined yet" } else { "it is being started" };
    Silence::Down(Some(why.to_owned()))
}

/// Names why hosts were silent: what the tree noticed first of each since it was last there, else
/// what the wave says.
pub fn add(report: &mut Report, errno: Errno, leaves: &RangeSet, gone: &[Gone], timeout: Duration) {
    let mut rest = leaves.clone();
    for gone in gone {
        let told = rest.intersection(&gone.leaves);
        if !told.is_empty() {
            rest = rest.difference(&told);
            let cause = gone.cause.clone();
            let why = if gone.is_down() {
                Silence::Down(Some(cause))
            } else {
                Silence::Unserved(gone.errno, cause)
            };
            report.silent.push(Silent { leaves: told, why });
        }
    }
    if !rest.is_empty() {
        let why = match errno {
            Errno::TIMEDOUT => Silence::NoAnswer(timeout),
            Errno::CANCELED => Silence::Cancelled,
            _ => Silence::Down(None),
        };
        report.silent.push(Silent { leaves: rest, why });
    }
}

//! What it costs that an operation could be observed, and that it is.
//!
//! `cargo bench -p sheaf-core --bench observer`.
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sheaf_core::observer::{self, Begun, Ending, Layer, Observer};
use std::sync::Arc;

/// A clock has a resolution, so operations are timed by the thousand.
const OPERATIONS: u64 = 1000;

fn main() {
    divan::main();
}

/// Takes no notice.
struct Idle;

impl Observer for Idle {
    fn begins(&self, begun: &Begun<'_>) -> u64 {
        black_box(begun).asked
    }

    fn ends(&self, mark: u64, ending: Ending) {
        black_box((mark, ending));
    }
}

fn observe(asked: u64) {
    let begun = || Begun { asked, offset: Some(asked), ..Begun::new("file.read", Layer::File) };
    let observed = observer::observe(begun);
    observed.end(|| Ending::done(black_box(asked)));
}

/// What the loop itself takes.
#[divan::bench]
fn nothing(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(OPERATIONS))
        .bench(|| (0..OPERATIONS).for_each(|at| _ = black_box(at)));
}

#[divan::bench]
fn no_observer(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(OPERATIONS))
        .bench(|| (0..OPERATIONS).for_each(|at| observe(black_box(at))));
}

#[divan::bench]
fn idle_observer(bencher: Bencher<'_, '_>) {
    observer::set(Arc::new(Idle));
    bencher
        .counter(ItemsCount::new(OPERATIONS))
        .bench(|| (0..OPERATIONS).for_each(|at| observe(black_box(at))));
    observer::take();
}

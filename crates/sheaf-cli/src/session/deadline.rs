//! `--timeout` bounds the whole command, whatever hangs: standard input from which nothing comes, a
//! command that lists hosts, a pipe that nobody reads, a disk of this machine.
use crate::exit::Exit;
use crate::output::tell;
use sheaf_session::awaited;
use sheaf_session::groups::upcall;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long after its deadline a command is ended whatever it does.
const GRACE: Duration = Duration::from_millis(900);

/// What was to be done in time is done.
static LIFTED: AtomicBool = AtomicBool::new(false);

/// Ends the program if it is not over soon after this time. Operations end by themselves at the
/// deadline, and say who has not answered; this is for all that can hang beside them.
pub fn watch(timeout: Option<Duration>) {
    let Some(timeout) = timeout else { return };
    let (end, seconds) = (Instant::now() + timeout + GRACE, timeout.as_secs_f64());
    let wait = move || {
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        if LIFTED.load(Ordering::Relaxed) {
            return;
        }
        let why = awaited::now().map(|what| format!("; it waits for {what}")).unwrap_or_default();
        // They would keep what this program has open, such as a pipe that somebody reads to its
        // end.
        upcall::end_all();
        // Standard error may be what hangs: it has a moment, and then the program ends all the
        // same.
        let tell = move || {
            tell(format_args!("sheaf: not done within {seconds} s, as --timeout asks{why}"));
            std::process::exit(Exit::Partial as i32);
        };
        // Where there is no thread for it, the exit code has to tell.
        let _ = std::thread::Builder::new().name("sheaf-late".to_owned()).spawn(tell);
        std::thread::sleep(Duration::from_millis(50));
        std::process::exit(Exit::Partial as i32);
    };
    // Without the thread the command is bounded as far as hosts are concerned.
    if let Err(error) = std::thread::Builder::new().name("sheaf-timeout".to_owned()).spawn(wait) {
        tracing::warn!(%error, "no thread to watch over --timeout");
    }
}

/// The program stays from now on, as long as it likes: a session that runs.
pub fn lift() {
    LIFTED.store(true, Ordering::Relaxed);
}

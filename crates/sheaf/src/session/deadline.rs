//! `--timeout` bounds the whole command, whatever hangs: a pipe that nobody reads, a disk of this machine.
use crate::config::Config;
use crate::exit::Exit;
use std::io::Write;
use std::time::{Duration, Instant};

/// How long the processes of a command have to end once its time is over.
pub const END_TIME: Duration = Duration::from_millis(700);

/// How long after its deadline a command is ended whatever it does.
const GRACE: Duration = Duration::from_millis(900);

/// Ends the program if it is not over soon after its deadline. Operations end by themselves at the
/// deadline, and say who has not answered; this is for all that can hang beside them.
pub fn watch(config: &Config) {
    let Some(deadline) = config.deadline else { return };
    let seconds = config.timeout.value.as_secs_f64();
    let wait = move || {
        std::thread::sleep((deadline + GRACE).saturating_duration_since(Instant::now()));
        // Standard error may be what hangs: it has a moment, and then the program ends all the same.
        std::thread::spawn(move || {
            let _ = writeln!(std::io::stderr(), "sheaf: not done within {seconds} s, as --timeout asks");
            std::process::exit(Exit::Partial as i32);
        });
        std::thread::sleep(Duration::from_millis(50));
        std::process::exit(Exit::Partial as i32);
    };
    // Without the thread the command is bounded as far as hosts are concerned.
    if let Err(error) = std::thread::Builder::new().name("sheaf-timeout".to_owned()).spawn(wait) {
        tracing::warn!(%error, "no thread to watch over --timeout");
    }
}

//! `mrnet_commnode`: an inner node of a tree that `libsheaf.so` starts.
use sheaf_tree::launch;
use sheaf_tree::service::{LeafHandle, Service, ServiceError, Services};
use std::io::IsTerminal;
use std::process::ExitCode;

/// An inner node has no leaf's work to do.
struct Nothing;

impl Services for Nothing {
    fn start(&self, _: u32, _: &str, _: &[u8], _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let cause = "an inner node was started in place of a back end".to_owned();
        Err(ServiceError { errno: sheaf_core::Errno::NOSYS, cause })
    }
}

fn main() -> ExitCode {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        eprintln!("mrnet_commnode: is started by the node above it, not by hand");
        return ExitCode::from(2);
    }
    let link = match rustix::io::fcntl_dupfd_cloexec(&stdin, 3) {
        Ok(link) => link,
        Err(error) => return fail(&error),
    };
    // The link is only closed when no copy of it is left.
    match std::fs::File::open("/dev/null") {
        Ok(null) => drop(rustix::stdio::dup2_stdin(&null)),
        Err(error) => return fail(&error),
    }
    match launch::serve(link, &sheaf_capi::filter::registry(), &Nothing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("mrnet_commnode: {error}");
    ExitCode::FAILURE
}

//! `mrnet_commnode`: an inner node of a tree that `libsheaf.so` starts.
use sheaf_tree::launch;
use std::io::IsTerminal;
use std::process::ExitCode;

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
    let registry = sheaf_capi::filter::registry(&Default::default());
    match launch::serve(link, &registry, &sheaf_capi::hub::Hubs(registry.clone())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("mrnet_commnode: {error}");
    ExitCode::FAILURE
}

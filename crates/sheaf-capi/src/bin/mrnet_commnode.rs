//! `mrnet_commnode`: an inner node of a tree that `libsheaf.so` starts.
//!
//! Its parent starts it with the link on standard input; on another host ssh starts it as
//! `serve --invited`, and that process the node itself, as `serve --detached`.
use sheaf_capi::BACK_ENDS;
use sheaf_capi::filter::registry;
use sheaf_capi::hub::Hubs;
use sheaf_tree::launch::{self, Invited, Login};
use sheaf_tree::service::Services;
use std::process::ExitCode;

fn main() -> ExitCode {
    let stdin = std::io::stdin();
    if !launch::is_launch_channel(&stdin).unwrap_or(false) {
        eprintln!("mrnet_commnode: is started by the node above it, not by hand");
        return ExitCode::from(2);
    }
    let word = std::env::args().nth(2).unwrap_or_default();
    if word == "--invited" {
        // sshd tells where the login came from: there the node above can be reached.
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        return match launch::invited(stdin, &Login::of(&connection), &["serve", "--detached"]) {
            Ok(Invited::Done(None)) => ExitCode::SUCCESS,
            // It has said why.
            Ok(Invited::Done(Some(code))) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
            Ok(Invited::Here(linked)) => launch::serve_here(linked, &services())
                .map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS),
            Err(error) => fail(&error),
        };
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
    let services = services();
    let served = if word == "--detached" {
        launch::leave_session()
            .map_err(Into::into)
            .and_then(|()| launch::serve_invited(link, &services))
    } else {
        launch::serve(link, &services)
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn services() -> Services {
    let registry = registry(&Default::default());
    Services::new(registry.clone()).with(BACK_ENDS, Hubs(registry))
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    let mut text = format!("mrnet_commnode: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    eprintln!("{text}");
    ExitCode::FAILURE
}

//! An inner node of a tree that a front end has started: all that its program does.
//!
//! Its parent starts it with the link on standard input; on another host ssh starts it as
//! `serve --invited`, and that process the node itself, as `serve --detached`.
use crate::HUBS;
use crate::error::{Error, ErrorCode};
use crate::filter::registry;
use crate::hub::Hubs;
use sheaf_tree::launch::{self, Invited, Login};
use sheaf_tree::service::Services;

/// Is the node until its session ends. `args` are the program's, without its name; gives what its
/// process ends with.
///
/// # Errors
/// [`ErrorCode::Usage`] when no tree has started this process; [`ErrorCode::Launch`].
pub fn run(args: impl Iterator<Item = String>) -> Result<u8, Error> {
    let stdin = std::io::stdin();
    if !launch::is_launch_channel(&stdin).unwrap_or(false) {
        return Err(Error::usage("is started by the node above it, not by hand"));
    }
    let mut args = args;
    let word = args.nth(1).unwrap_or_default();
    if word == "--invited" {
        // sshd tells where the login came from: there the node above can be reached.
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        return match launch::invited(stdin, &Login::of(&connection), &["serve", "--detached"]) {
            Ok(Invited::Done(None)) => Ok(0),
            // It has said why.
            Ok(Invited::Done(Some(code))) => Ok(u8::try_from(code).unwrap_or(1)),
            Ok(Invited::Here(linked)) => {
                launch::serve_here(linked, &services()).map(|()| 0).map_err(|error| failed(&error))
            }
            Err(error) => Err(failed(&error)),
        };
    }
    let link = launch::take_stdin().map_err(|error| failed(&error))?;
    let services = services();
    let served = if word == "--detached" {
        launch::leave_session()
            .map_err(Into::into)
            .and_then(|()| launch::serve_invited(link, &services))
    } else {
        launch::serve(link, &services)
    };
    served.map(|()| 0).map_err(|error| failed(&error))
}

fn services() -> Services {
    Services::new(registry(&Default::default())).with(HUBS, Hubs)
}

fn failed(error: &dyn std::error::Error) -> Error {
    Error::new(ErrorCode::Launch, crate::error::chain(error))
}

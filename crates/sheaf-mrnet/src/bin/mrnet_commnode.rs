//! `mrnet_commnode`: an inner node of a tree, under the name that users of MRNet know.
use std::process::ExitCode;

fn main() -> ExitCode {
    match libsheaf::node::run(std::env::args().skip(1)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mrnet_commnode: {}", error.message);
            ExitCode::from(error.exit_code())
        }
    }
}

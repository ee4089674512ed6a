//! `sheaf-node`: an inner node of a tree that `libsheaf.so` starts.
use std::process::ExitCode;

fn main() -> ExitCode {
    match libsheaf::node::run(std::env::args().skip(1)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("sheaf-node: {}", error.message);
            ExitCode::from(error.exit_code())
        }
    }
}

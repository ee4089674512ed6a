//! Mounts the files of a host at a directory, for as long as a program runs there. Needs FUSE.
//!
//!     cargo run --example mounted_view -- n2 cat etc/hostname    of 4 servers inside this process
//!
//! The program runs with the mounted files as its working directory; an absolute path is that of this
//! machine.
use sheaf::mount::{HostRemotes, MountOptions, Mounted, ViewForbids};
use sheaf::{Environment, Session};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long a host may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mounted_view: {}", sheaf::one_line(&*error));
            sheaf::exit_code(&*error)
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [host, program, arguments @ ..] = &words[..] else {
        return Err("say: mounted_view HOST PROGRAM…".into());
    };
    let session = Session::builder(&Environment::of_this_process()).embedded(4).start().await?;
    let client = session.client();
    let leaf = client.leaf(host).ok_or_else(|| format!("there is no host {host}"))?;

    // Each call of a program on a file below becomes a request to the server of the host.
    let remote = HostRemotes::new(client.network(), PATIENCE)?.host(leaf);
    let point = tempfile::tempdir()?;
    let options = MountOptions {
        source: format!("sheaf:{host}"),
        for_all: false,
        forbids: ViewForbids { writes: true, programs: false },
    };
    let mounted = Mounted::new(Arc::new(remote), point.path(), &options)?;
    let status = tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(point.path())
        .status()
        .await?;
    // Dropped, it is not mounted any more.
    drop(mounted);
    session.end().await;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {status}").into()),
    }
}

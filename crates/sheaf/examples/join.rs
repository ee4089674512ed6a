//! Joins a session that `sheaf up` has started, and asks its hosts how they are.
//!
//!     sheaf up --processes 8 --session lab
//!     cargo run --example join -- lab
//!     sheaf down lab
use sheaf::tools::about::about;
use sheaf::{Environment, Session};
use std::error::Error;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("join: {}", sheaf::one_line(&*error));
            sheaf::exit_code(&*error)
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("say which session: join NAME")?;
    // Only this user's sessions are there, and only this user is let in.
    let session = Session::join(&Environment::of_this_process(), &name).await?;
    println!("{}: {} hosts: {}", session.name(), session.topology().leaves_len(), session.hosts());

    let client = session.client();
    let (servers, outcome) = about(client, &client.network().everyone()).await?;
    for (leaf, server) in servers {
        let host = client.host(leaf).unwrap_or_default();
        println!("{host}: process {}, {} KiB", server.pid, server.rss_bytes / 1024);
    }
    for (errno, leaves) in &outcome.silent {
        println!("{}: {errno}", client.fold(leaves));
    }
    // It goes on without us.
    session.end().await;
    Ok(())
}

//! Opens one file of many hosts as a group, reads all of them at once, and prints the average of a
//! column.
//!
//!     cargo run --example group_read                      64 servers inside this process
//!     cargo run --example group_read -- n[1-4]:/proc/loadavg
//!     cargo run --example group_read -- :/proc/loadavg lab     the running session `lab`
use sheaf::group::Value;
use sheaf::group::message::DataAggregation;
use sheaf::{Environment, Session};
use std::error::Error;
use std::process::ExitCode;

/// The first bytes of each file, which its numbers are in.
const BYTES: u64 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("group_read: {}", sheaf::one_line(&*error));
            sheaf::exit_code(&*error)
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap_or_else(|| "/proc/loadavg".to_owned());
    let environment = Environment::of_this_process();
    let session = match words.next() {
        Some(name) => Session::join(&environment, &name).await?,
        None => Session::builder(&environment).embedded(64).start().await?,
    };

    // Every host opens its file, in one step, or nobody does.
    let target = session.address(&address)?;
    let group = session.client().gopenat(&target.members, &target.path, 0, 0).await?;
    // Every host reads; what goes up the tree is a sum and a count.
    let average =
        DataAggregation::by_name("average", &[1], 1 << 20, 0).ok_or("no such aggregation")?;
    let reading = group.read(BYTES, average).await?;
    if let Value::Numbers(numbers) = &reading.value {
        for at in numbers {
            println!("average of column {}: {} ({} files)", at.column, at.number, at.count);
        }
    }
    // A member that fails is no error of the call: its outcome says who did.
    let outcome = &reading.outcome;
    println!("{} of {} read {} bytes", outcome.status.count, group.size(), reading.status);
    for (errno, leaves) in &outcome.silent {
        println!("silent: {}: {errno}", session.client().fold(leaves));
    }
    group.close().await?;
    session.end().await;
    Ok(())
}

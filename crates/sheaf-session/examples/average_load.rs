//! Averages the load of all hosts, and names each host that did not answer with the reason.
//!
//!     cargo run -p sheaf-session --example average_load            8 servers inside this process
//!     cargo run -p sheaf-session --example average_load -- lab     the session that `sheaf up lab` started
use sheaf_session::group::Value;
use sheaf_session::group::flags::{O_BESTEFFORT, O_PARTIAL};
use sheaf_session::group::message::DataAggregation;
use sheaf_session::{Environment, Session, one_line};
use std::error::Error;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match average_load().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("average_load: {}", one_line(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn average_load() -> Result<(), Box<dyn Error>> {
    let environment = Environment::of_this_process();
    let session = match std::env::args().nth(1) {
        Some(name) => Session::join(&environment, &name).await?,
        None => Session::builder(&environment).embedded(8).start().await?,
    };
    let client = session.client();
    let target = session.address(":/proc/loadavg")?;
    // The group opens although a host is dead, and a read returns what the others have.
    let flags = O_BESTEFFORT | O_PARTIAL;
    let group = client.gopenat(&target.members, &target.path, flags, 0).await?;
    let average = DataAggregation::by_name("average", &[1], 1 << 20, 0).ok_or("no average")?;
    let reading = group.read(64, average).await?;
    if let Value::Numbers(numbers) = &reading.value {
        println!("average of {} hosts: {}", numbers[0].count, numbers[0].number);
    }
    for outcome in [group.opened(), &reading.outcome] {
        client.failures(outcome).iter().for_each(|line| eprintln!("{line}"));
    }
    group.close().await?;
    session.end().await;
    Ok(())
}

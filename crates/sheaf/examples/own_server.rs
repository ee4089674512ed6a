//! A program whose servers are processes: started with "serve" it is a node of the tree, and else
//! it starts them and asks. Each says how many processes its host runs; the tree adds them up.
//!
//!     cargo run --example own_server 16         16 server processes of this machine
use sheaf::core::Errno;
use sheaf::tree::packet::{PacketValue, pack, unpack};
use sheaf::tree::service::{Blocking, Caller, ServiceRequest, Services, Site, Worker};
use sheaf::tree::{Sync, launch};
use sheaf::{Environment, Session};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

struct Count;

impl Worker for Count {
    fn request(&mut self, _: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        let entries = std::fs::read_dir("/proc").map_err(|error| Errno::from_io(&error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let processes = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).count();
        pack(&[PacketValue::U64(processes as u64)]).map_err(|_| Errno::BADMSG)
    }
}

/// What every node can do: all that a server of Sheaf does, and this. It is the same in all processes,
/// so all of them call it.
fn services() -> Services {
    let open = |_: &Site<'_>, _: &Caller| -> Result<Box<dyn Worker>, Errno> { Ok(Box::new(Count)) };
    sheaf::services(&Environment::of_this_process()).with("processes", Blocking::new(open))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("own_server: {}", sheaf::one_line(&*error));
            sheaf::exit_code(&*error)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        // A node has a runtime of its own: this is called before there is another.
        Some("serve") => Ok(launch::serve(launch::take_stdin()?, &services())?),
        count => tokio::runtime::Runtime::new()?.block_on(ask(count.unwrap_or("16").parse()?)),
    }
}

async fn ask(servers: u32) -> Result<(), Box<dyn Error>> {
    let session = Session::builder(&Environment::of_this_process())
        .processes(servers)
        .program(std::env::current_exe()?, ["serve"])
        .services(services())
        .start()
        .await?;
    let network = session.client().network();
    let stream = network.open("processes", network.everyone(), "sum", b"%uld", Sync::WaitForAll);
    stream.send(0, b"", Some(Duration::from_secs(10))).await;
    let answer = stream.recv().await;
    println!("{} of {} hosts answered", answer.coverage.ok.len(), network.leaf_count());
    for (errno, hosts) in &answer.coverage.failed {
        println!("{} hosts failed: {errno}", hosts.len());
    }
    if let Some(sum) = answer.payload {
        println!("processes in all: {:?}", unpack(&sum)?);
    }
    session.end().await;
    Ok(())
}

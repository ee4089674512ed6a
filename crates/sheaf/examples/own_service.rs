//! A service of one's own: every host says how busy it is, and a filter of one's own keeps the
//! busiest host on the way up, so that one answer arrives however many hosts there are.
//!
//!     cargo run --example own_service            64 servers inside this process
use sheaf::core::Errno;
use sheaf::tree::Sync;
use sheaf::tree::filter::{Accumulator, Emit, Filter, FilterError, Input};
use sheaf::tree::service::{Blocking, Caller, ServiceRequest, Site, Worker};
use sheaf::{Environment, Session};
use std::process::ExitCode;
use std::time::Duration;

/// What one host does for one stream. It may block: each stream has a thread when it needs one.
struct Load(String);

impl Worker for Load {
    /// Answers "LOAD HOST".
    fn request(&mut self, _: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        let text = std::fs::read_to_string("/proc/loadavg").map_err(|why| Errno::from_io(&why))?;
        let load = text.split(' ').next().ok_or(Errno::ILSEQ)?;
        Ok(format!("{load} {}", self.0).into_bytes())
    }
}

/// Keeps the answer with the highest load, at every node of the tree.
struct Busiest;

impl Filter for Busiest {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Best(None))
    }
}

struct Best(Option<(f64, String)>);

impl Accumulator for Best {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let text = String::from_utf8_lossy(input.payload).into_owned();
        let load = text.split(' ').next().and_then(|load| load.parse().ok());
        let load: f64 = load.ok_or_else(|| FilterError::new(Errno::BADMSG, "this is no load"))?;
        if self.0.as_ref().is_none_or(|(best, _)| load > *best) {
            self.0 = Some((load, text));
        }
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        out.extend(self.0.take().map(|(_, text)| text.into_bytes()).unwrap_or_default());
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = run().await else { return ExitCode::SUCCESS };
    eprintln!("own_service: {}", sheaf::one_line(&*error));
    sheaf::exit_code(&*error)
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let open = |site: &Site<'_>, _: &Caller| -> Result<Box<dyn Worker>, Errno> {
        Ok(Box::new(Load(site.host.to_owned())))
    };
    let session = Session::builder(&Environment::of_this_process())
        .embedded(64)
        .service("load", Blocking::new(open))
        .filter("busiest", |_| Ok(Box::new(Busiest)))
        .start()
        .await?;
    let network = session.client().network();
    let stream = network.open("load", network.everyone(), "busiest", b"", Sync::WaitForAll);
    stream.send(0, b"", Some(Duration::from_secs(10))).await;
    let answer = stream.recv().await;
    // Who answered is as much of the result as what was said.
    println!("{} of {} hosts answered", answer.coverage.ok.len(), network.leaf_count());
    println!("the busiest: {}", String::from_utf8_lossy(&answer.payload.unwrap_or_default()));
    session.end().await;
    Ok(())
}

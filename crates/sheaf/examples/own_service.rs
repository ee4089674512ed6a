//! A service of one's own: every host says how busy it is, and a filter of one's own keeps the
//! busiest host on the way up, so that one answer arrives however many hosts there are.
//!
//!     cargo run --example own_service            64 servers inside this process
use sheaf::core::Errno;
use sheaf::tree::Sync;
use sheaf::tree::filter::{Accumulator, Emit, Filter, FilterError, Input};
use sheaf::tree::service::{Blocking, Caller, ServiceRequest, Site, Worker};
use sheaf::{Environment, Session};
use std::time::Duration;

/// What one host does for one stream. It may block: each stream has a thread when it needs one.
struct Load {
    host: String,
}

impl Worker for Load {
    /// Answers "LOAD HOST".
    fn request(&mut self, _: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        let text =
            std::fs::read_to_string("/proc/loadavg").map_err(|error| Errno::from_io(&error))?;
        let load = text.split(' ').next().ok_or(Errno::ILSEQ)?;
        Ok(format!("{load} {}", self.host).into_bytes())
    }
}

/// Keeps the answer with the highest load, at every node of the tree.
struct Busiest;

impl Filter for Busiest {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Best(None))
    }
}

struct Best(Option<(f64, Vec<u8>)>);

impl Accumulator for Best {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let number = std::str::from_utf8(input.payload)
            .ok()
            .and_then(|text| text.split(' ').next()?.parse().ok());
        let load: f64 = number.ok_or_else(|| FilterError::new(Errno::BADMSG, "this is no load"))?;
        if self.0.as_ref().is_none_or(|(best, _)| load > *best) {
            self.0 = Some((load, input.payload.to_vec()));
        }
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        out.extend(self.0.take().map(|(_, text)| text).unwrap_or_default());
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let open = |site: &Site<'_>, _: &Caller| {
        Ok(Box::new(Load { host: site.host.to_owned() }) as Box<dyn Worker>)
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
    if let Some(busiest) = answer.payload {
        println!("the busiest: {}", String::from_utf8_lossy(&busiest));
    }
    session.end().await;
    Ok(())
}

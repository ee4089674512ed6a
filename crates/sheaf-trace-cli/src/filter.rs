//! Which operations are kept, for commands that record and those that take from hosts.
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::Stop;
use sheaf_trace::served::RowFilter;

/// Which operations are kept: those that all of these let through.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Keep operations on these paths alone: *, ** and ? as in a shell
    #[arg(long, value_name = "PATTERN")]
    pub path: Vec<String>,

    /// Keep these operations alone: open, read, write, stat, ...
    #[arg(long, value_name = "NAME")]
    pub op: Vec<String>,

    /// Keep operations of these layers alone: posix, stdio, mpi-io, ...
    #[arg(long, value_name = "NAME")]
    pub layer: Vec<String>,

    /// Keep operations that took at least so many microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub min_us: u32,

    /// Keep one of N operations of those, at random
    #[arg(long, value_name = "1/N", value_parser = sample)]
    pub sample: Option<u32>,
}

impl FilterArgs {
    /// The filter that they are.
    pub fn filter(&self) -> Result<RowFilter> {
        let filter = RowFilter {
            paths: self.path.clone(),
            ops: self.op.clone(),
            layers: self.layer.clone(),
            duration_ns: i64::from(self.min_us) * 1000,
            sample: self.sample.unwrap_or(0),
        };
        filter.check().map_err(Stop::usage)?;
        Ok(filter)
    }
}

/// `1/N`.
fn sample(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("1/").and_then(|number| number.parse().ok());
    number.filter(|number| *number > 0).ok_or("say 1/N, as 1/100".to_owned())
}

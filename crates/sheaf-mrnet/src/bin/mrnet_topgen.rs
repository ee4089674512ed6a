//! `mrnet_topgen`: writes a topology file for a shape and a list of hosts.
use libsheaf::topgen::{HostCounts, TopologyRequest, hosts, make};
use std::io::Read;
use std::process::ExitCode;

const HELP: &str = "\
usage: mrnet_topgen -t SHAPE [options]

  -t, --topology SHAPE   b:F^D or b:FxFxF  balanced: fan-outs of the levels
                         k:K@N             k-nomial, of N nodes
                         g:N:N,N:KxN       generic: children of each node, level by level
  -h, --hosts FILE       hosts of all nodes (default: standard input)
  -b, --behosts FILE     hosts of the back ends alone, together with:
  -c, --cphosts FILE     hosts of the inner nodes
  -p, --procs N          processes on each host that names no number of its own (default 1)
  -q, --beprocs N        the same for -b
  -r, --cpprocs N        the same for -c
  -f, --fehost HOST      where the front end runs (default: this host)
  -o, --out FILE         the topology file (default: standard output)
      --help             this text

A list of hosts holds HOST and HOST:N, separated by white space; # starts a comment.
";

#[derive(Default)]
struct TopgenOptions {
    shape: String,
    all: Option<String>,
    back_ends: Option<String>,
    inner: Option<String>,
    processes: [Option<u32>; 3],
    front: Option<String>,
    out: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match read(words).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("mrnet_topgen: {message}");
            ExitCode::from(2)
        }
    }
}

fn read(words: Vec<String>) -> Result<TopgenOptions, String> {
    let mut options = TopgenOptions::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                (name.to_owned(), Some(value.to_owned()))
            }
            _ => (word, None),
        };
        let value =
            attached.or_else(|| words.next()).ok_or_else(|| format!("{name} needs a value"))?;
        let number =
            || value.parse::<u32>().map_err(|_| format!("{value:?} is no number of processes"));
        match &name[..] {
            "-t" | "--topology" => options.shape = value,
            "-h" | "--hosts" => options.all = Some(value),
            "-b" | "--behosts" => options.back_ends = Some(value),
            "-c" | "--cphosts" => options.inner = Some(value),
            "-p" | "--procs" => options.processes[0] = Some(number()?),
            "-q" | "--beprocs" => options.processes[1] = Some(number()?),
            "-r" | "--cpprocs" => options.processes[2] = Some(number()?),
            "-f" | "--fehost" => options.front = Some(value),
            "-o" | "--out" => options.out = Some(value),
            other => return Err(format!("there is no option {other}; see --help")),
        }
    }
    if options.shape.is_empty() {
        return Err("the shape is missing: -t b:4^2; see --help".to_owned());
    }
    if options.back_ends.is_some() != options.inner.is_some() {
        return Err("-b and -c go together".to_owned());
    }
    Ok(options)
}

fn list(file: Option<&str>, processes: Option<u32>) -> Result<HostCounts, String> {
    let text = match file {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?,
        None => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| format!("standard input: {error}"))?;
            text
        }
    };
    hosts(&text, processes.unwrap_or(1)).map_err(|error| error.message)
}

fn run(options: TopgenOptions) -> Result<(), String> {
    let [all, back_ends, inner] = options.processes;
    let (hosts, inner) = match &options.back_ends {
        Some(file) => {
            (list(Some(file), back_ends.or(all))?, list(options.inner.as_deref(), inner.or(all))?)
        }
        None => (list(options.all.as_deref(), all)?, HostCounts::new()),
    };
    let here = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let front = options.front.unwrap_or_else(here);
    let text = make(&TopologyRequest { shape: options.shape, front, hosts, inner })
        .map_err(|error| error.message)?;
    match options.out {
        None => print!("{text}"),
        Some(path) => std::fs::write(&path, text).map_err(|error| format!("{path}: {error}"))?,
    }
    Ok(())
}

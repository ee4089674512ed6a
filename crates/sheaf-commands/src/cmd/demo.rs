//! `sheaf demo`: a guided tour on servers of this machine.
use anyhow::{Context, Result, bail};
use clap::Args;
use sheaf_cli::exit::{self, Exit};
use sheaf_cli::leftovers::demo::{directory_of, mark};
use sheaf_cli::options::GlobalArgs;
use sheaf_file::{Mode, OFlags};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A guided tour on servers of this machine
///
/// It changes nothing outside a temporary directory.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct DemoArgs {
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=4_096))]
    pub servers: u32,

    /// Only make the tour's files, in this new directory, and leave them there
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub files: Option<PathBuf>,

    /// Print the commands, and run none
    #[arg(long)]
    pub dry_run: bool,
}

/// A command of the tour: what it shows, and its words after the options that make the hosts.
struct DemoStop {
    says: &'static str,
    words: &'static [&'static str],
}

const TOUR: &[DemoStop] = &[
    DemoStop {
        says: "One search over every host; equal lines are printed once, for all hosts that have \
               them:",
        words: &["grep", "-n", "udp", ":/etc/services"],
    },
    DemoStop {
        says: "Which hosts have which configuration? The contents fall into classes:",
        words: &["cat", "@all:/etc/app.conf"],
    },
    DemoStop { says: "The same file by digest:", words: &["sha", "@all:/etc/app.conf"] },
    DemoStop {
        says: "A number from every host, averaged on the way back:",
        words: &["read", "--aggregate", "average", "--column", "1", ":/proc/loadavg"],
    },
    DemoStop {
        says: "A file to the hosts, sent once along each edge of the tree and put in place whole:",
        words: &["cp", "{dir}/new.conf", "@all:/etc/app.conf"],
    },
    DemoStop { says: "Now all have the same:", words: &["cat", "@all:/etc/app.conf"] },
    DemoStop {
        says: "And so it looks when a host's file is missing: the others answer, the exit code is \
               4:",
        words: &["stat", "-c", "%s %n", "n[1-4]:/etc/only-on-n1"],
    },
];

/// Gives the tour.
pub fn run(args: &DemoArgs, global: &GlobalArgs) -> Result<Exit> {
    if let Some(dir) = &args.files {
        fs::create_dir(dir).map_err(|error| {
            let advice = if error.kind() == std::io::ErrorKind::AlreadyExists {
                ": --files makes a directory: name one that is not there yet"
            } else {
                ""
            };
            exit::Stop::usage(exit::io_text(dir, &error) + advice)
        })?;
        // A link that takes its place is not followed.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::open(dir, flags, Mode::empty())
            .with_context(|| dir.display().to_string())?;
        furnish(Path::new(&format!("/proc/self/fd/{}", made.as_raw_fd())), args.servers)
            .with_context(|| dir.display().to_string())?;
        if !global.quiet {
            let (dir, last) = (dir.display(), args.servers);
            sheaf_cli::output::tell(format_args!(
                "made n1 to n{last} in {dir}; when done: rm -r {dir}"
            ));
        }
        return Ok(Exit::Success);
    }
    let place = DemoHost::new(args.dry_run)?;
    if !args.dry_run {
        furnish(&place.path, args.servers)?;
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let export = format!("{}/%h", place.path.display());
    let mut out = sheaf_cli::output::stdout();
    for stop in TOUR {
        let words: Vec<String> = stop
            .words
            .iter()
            .map(|word| word.replace("{dir}", &place.path.display().to_string()))
            .collect();
        if !global.quiet {
            writeln!(out, "\n# {}", stop.says)?;
        }
        writeln!(
            out,
            "$ sheaf --embedded {} --export '{export}' {}",
            args.servers,
            quoted(&words)
        )?;
        out.flush()?;
        if args.dry_run {
            continue;
        }
        let status = Command::new(&program)
            .args(["--embedded", &args.servers.to_string(), "--export", &export])
            .args(&words)
            .status()
            .context("cannot run this program again")?;
        let as_told = [Exit::Success, Exit::Partial].map(|exit| Some(exit as i32));
        if !as_told.contains(&status.code()) {
            bail!("that should have worked ({status})");
        }
    }
    if !args.dry_run && !global.quiet {
        let servers = args.servers;
        writeln!(
            out,
            "\n# The files of this tour are removed now. Files that stay, to try the commands \
             with:\n$ sheaf demo --files sheaf-demo --servers {servers}\n\
             $ sheaf --embedded {servers} --export 'sheaf-demo/%h' ls :/"
        )?;
    }
    Ok(Exit::Success)
}

fn quoted(words: &[String]) -> String {
    let plain = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
    let quote = |word: &String| if plain(word) { word.clone() } else { format!("'{word}'") };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A temporary directory that goes with the tour.
struct DemoHost {
    path: PathBuf,
    /// What marks the directory that was made.
    made: Option<fs::File>,
}

impl DemoHost {
    fn new(dry_run: bool) -> Result<Self> {
        let path = directory_of(&std::env::temp_dir(), std::process::id());
        if !dry_run {
            fs::create_dir(&path).with_context(|| path.display().to_string())?;
        }
        let made = (!dry_run).then(|| mark(&path)).transpose();
        let made = made.with_context(|| path.display().to_string())?;
        Ok(Self { path, made })
    }
}

impl Drop for DemoHost {
    fn drop(&mut self) {
        if self.made.is_some() {
            // What cannot be removed is the system's to clear away.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Gives each host a small root directory; some differ.
fn furnish(dir: &Path, servers: u32) -> Result<()> {
    for n in 1..=servers {
        let root = dir.join(format!("n{n}"));
        fs::create_dir_all(root.join("etc"))?;
        fs::create_dir_all(root.join("proc"))?;
        let extra = if n % 10 == 7 { "tftp\t\t69/udp\n" } else { "" };
        fs::write(
            root.join("etc/services"),
            format!("domain\t\t53/tcp\ndomain\t\t53/udp\nntp\t\t123/udp\n{extra}"),
        )?;
        let version = if n % 16 == 3 { 1 } else { 2 };
        fs::write(root.join("etc/app.conf"), format!("version = {version}\nport = 8080\n"))?;
        fs::write(root.join("proc/loadavg"), format!("0.{:02} 0.10 0.05 1/100 4242\n", n % 100))?;
    }
    fs::write(dir.join("n1/etc/only-on-n1"), "here\n")?;
    fs::write(dir.join("new.conf"), "version = 3\nport = 8080\n")?;
    Ok(())
}

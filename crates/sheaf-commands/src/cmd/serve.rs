//! `sheaf serve`: a server or an inner node, started by the node above it.
use anyhow::{Context, Result};
use clap::Args;
use sheaf_cli::exit::{self, Exit, Stop};
use sheaf_cli::output::{printable, tell};
use sheaf_cli::session;
use sheaf_tree::launch::attach::{self, EnrolError, Token};
use sheaf_tree::launch::{self, Invitation, Invited, Login, ServeError};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Serve this host's files for a session
///
/// The node above starts this and gives it everything it needs on standard
/// input; with --join it asks a session to be taken in. It reads no file of
/// configuration: which files it serves is said where the session is started
/// (sheaf up --export).
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct ServeArgs {
    /// Join the session whose enrolment listens there
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    pub join: Option<String>,

    /// The token of the session; - is standard input
    #[arg(long, value_name = "FILE", requires = "join")]
    pub token_file: Option<PathBuf>,

    /// Join as this host, not by the name of this machine
    #[arg(long, value_name = "NAME", requires = "join")]
    pub host: Option<String>,

    /// Try for so long, where no session listens yet
    #[arg(long, value_name = "SECONDS", requires = "join", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=86_400))]
    pub retry: u32,

    /// Started by srun, which says why its job ends
    #[arg(long, hide = true, requires = "join")]
    pub step: bool,

    /// Started over a channel that ends: take the invitation, start the node, and end
    #[arg(long, hide = true)]
    pub invited: bool,

    /// Where the node above is, when sudo has removed it from the environment
    #[arg(long, hide = true, requires = "invited", value_name = "ADDRESS")]
    pub parent: Option<String>,

    /// The node that --invited starts
    #[arg(long, hide = true, conflicts_with = "invited")]
    pub detached: bool,

    /// A node beside the server of a host that has joined, which ends with it
    #[arg(long, hide = true, conflicts_with_all = ["invited", "detached"])]
    pub beside: bool,
}

/// Serves until the node above is gone.
pub fn run(args: &ServeArgs) -> Result<Exit> {
    launch::leave_keyring();
    launch::ignore_size_limit();
    // Whoever joins at a terminal goes with it.
    if args.join.is_none() || File::open("/dev/tty").is_err() {
        launch::ignore_hangup();
    }
    if let (Some(address), Some(file)) = (&args.join, &args.token_file) {
        return join(address, file, args);
    }
    let stdin = std::io::stdin();
    if !launch::is_launch_channel(&stdin).context("standard input")? {
        let text =
            "serve is started by the node above it, not by hand; start a session with: sheaf up";
        return Err(Stop::usage(text).into());
    }
    if args.invited {
        return invited(&stdin, args.parent.as_deref());
    }
    if args.detached {
        launch::leave_session().context("no session of processes of its own")?;
    }
    if args.beside {
        launch::end_with_parent().context("no end with the server")?;
    }
    sheaf_session::raise_descriptor_limit();
    let link = launch::take_stdin().context("standard input")?;
    let serve = if args.detached { launch::serve_invited } else { launch::serve };
    let servers = session::Serving::default();
    let served = serve(link, &servers.services());
    servers.settle(session::UNDO_TIME);
    match served {
        // The node above ended before it said what to do: there is nobody to tell.
        Err(ServeError::Link(error)) if error.kind() == ErrorKind::UnexpectedEof => {
            Ok(Exit::Partial)
        }
        // Or it does not answer on its own machine, and says itself who has not come: the command's
        // standard error is not for this process.
        Err(ServeError::Link(error))
            if !args.detached && !args.beside && is_parents_end(error.kind()) =>
        {
            Ok(Exit::Partial)
        }
        served => Ok(served.map(|()| Exit::Success)?),
    }
}

fn is_parents_end(kind: ErrorKind) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotConnected, TimedOut,
    };
    matches!(
        kind,
        BrokenPipe
            | ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | NotConnected
            | TimedOut
    )
}

/// Asks a session to be taken in, and serves until it ends.
fn join(address: &str, file: &Path, args: &ServeArgs) -> Result<Exit> {
    let token =
        read_token(file)?.parse::<Token>().map_err(|error| Stop::usage(error.to_string()))?;
    // Slurm's name for this host may be another than its own.
    let slurm = std::env::var("SLURMD_NODENAME").ok();
    let host = args.host.clone().or(slurm).unwrap_or_else(sheaf_session::config::own_name);
    sheaf_session::raise_descriptor_limit();
    let invitations = enrol(address, &token, &host, Duration::from_secs(args.retry.into()))?;
    let servers = session::Serving::default();
    let how = (&["serve", "--beside"][..], args.step);
    let served = launch::serve_host(invitations, how, &servers.services());
    servers.settle(session::UNDO_TIME);
    match served {
        Err(ServeError::Refused(why)) => {
            Err(Stop::usage(format!("the session refuses this host: {}", printable(&why))).into())
        }
        served => Ok(served.map(|()| Exit::Success)?),
    }
}

/// The pause before a session is asked again, at first; doubled each time, up to the second.
const ENROL_PAUSE: Duration = Duration::from_millis(250);
const ENROL_PAUSE_MAX: Duration = Duration::from_secs(4);

/// Asks until the session takes this host in, as long as that may help: for `patience` where none
/// is there.
fn enrol(address: &str, token: &Token, host: &str, patience: Duration) -> Result<Vec<Invitation>> {
    let (begun, mut pause, mut told) = (Instant::now(), ENROL_PAUSE, false);
    let mut tries = 0u32;
    loop {
        let error = match attach::enrol(address, token, host) {
            Ok(invitations) => return Ok(invitations),
            Err(error) => error,
        };
        let patience = match &error {
            EnrolError::NotYet { patience, .. } => *patience,
            error if error.retry_can_help() => patience,
            _ => Duration::ZERO,
        };
        let left = patience.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(refused(error).into());
        }
        let text = exit::one_line(&anyhow::Error::new(error));
        if !told {
            tell(format_args!(
                "sheaf: {text}; it is tried for {} s",
                patience.as_secs_f32().ceil()
            ));
            told = true;
        }
        // Hosts that were started together do not come together each time.
        let wait = pause.mul_f64(0.5 + fastrand::f64()).min(left);
        tries += 1;
        tracing::info!("try {tries}: {text}; again in {:.1} s", wait.as_secs_f32());
        std::thread::sleep(wait);
        pause = (pause * 2).min(ENROL_PAUSE_MAX);
    }
}

/// Why this host does not join: no session is there, or it is not for this host.
fn refused(error: EnrolError) -> Stop {
    match &error {
        EnrolError::Nobody(_) => {
            Stop::unreachable(format!("{error}; it has ended, or has not begun"))
        }
        EnrolError::Over(_) => Stop::unreachable(error.to_string()),
        EnrolError::Stranger(_) => Stop::usage(format!(
            "{error}, which has ended perhaps: sheaf token makes one for the session that runs \
             there"
        )),
        EnrolError::Io(..) if error.retry_can_help() => {
            Stop::unreachable(exit::one_line(&anyhow::Error::new(error)))
        }
        _ => Stop::usage(exit::one_line(&anyhow::Error::new(error))),
    }
}

/// The first line of a file; nothing that is secret is printed when it is something else.
fn read_token(file: &Path) -> Result<String> {
    const TOKEN_BYTES_MAX: u64 = 4 << 10;
    let mut line = String::new();
    if file.as_os_str() == "-" {
        BufReader::new(sheaf_cli::stdio::StandardInput::new().take(TOKEN_BYTES_MAX))
            .read_line(&mut line)
            .context("standard input")?;
    } else {
        let failed = |error| Stop::usage(exit::io_text(file, &error));
        let opened = File::open(file).map_err(failed)?;
        sheaf_cli::secret::check_reader(file, &opened)?;
        BufReader::new(opened.take(TOKEN_BYTES_MAX)).read_line(&mut line).map_err(failed)?;
    }
    Ok(line)
}

/// Goes to the user's home, as sshd does. The script of the launch starts the program in the cache's
/// directory, by a relative name.
fn leave_cache() {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    if home.is_none_or(|home| std::env::set_current_dir(home).is_err())
        && let Err(error) = std::env::set_current_dir("/")
    {
        tracing::warn!(%error, "the server stays in the directory of its program");
    }
}

/// Takes an invitation, and ends with the code of the node that was started with it.
fn invited(stdin: &std::io::Stdin, parent: Option<&str>) -> Result<Exit> {
    leave_cache();
    // sshd tells where the login came from: there the node above can be reached.
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let login = Login::of(&connection);
    let login =
        Login { parent: parent.filter(|parent| !parent.is_empty()).or(login.parent), ..login };
    match launch::invited(stdin, &login, &["serve", "--detached"])? {
        Invited::Done(None) => Ok(Exit::Success),
        // It has said why.
        Invited::Done(Some(code)) => std::process::exit(code),
        Invited::Here(linked) => {
            sheaf_session::raise_descriptor_limit();
            let servers = session::Serving::default();
            let served = launch::serve_here(linked, &servers.services());
            servers.settle(session::UNDO_TIME);
            Ok(served.map(|()| Exit::Success)?)
        }
    }
}

//! `sheaf token`: a token with which hosts join a running session.
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::Records;
use sheaf_cli::secret::{check_place, write_secret};
use sheaf_cli::session;
use sheaf_records::Token;
use sheaf_session::{Environment, SessionError, Sessions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Make a token with which a host joins a running session
#[derive(Args, Debug)]
#[command(after_help = "\
Hosts join with sheaf serve --join HOST:PORT --token-file FILE. Whoever has a
token can take a host's place, so keep it where only its user can read it.

Examples:
  sheaf token pods --output token
  sheaf token pods | ssh n7 sheaf serve --join head:7440 --token-file -")]
pub struct TokenArgs {
    /// The session, as with --session
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub name: Option<String>,

    /// How often it can be used
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: u32,

    /// Write it to this file, which only its user can read, not to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Makes one.
pub fn run(args: &TokenArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = session::named(args.name.as_ref(), global)?;
    let file = args.output.as_deref().filter(|path| path.as_os_str() != "-");
    // A token that cannot be written down is not made.
    file.map_or(Ok(()), check_place)?;
    session::check_cluster(&name, global)?;
    let environment = Environment::of_this_process();
    let issued = Sessions::named(&environment, &name, Some("sheaf token"), "")
        .and_then(|sessions| sessions.token(&name, args.uses));
    if let Err(SessionError::Absent(_)) = &issued
        && let Some(refusal) = session::elsewhere::refusal(args.name.as_deref(), "token", global)?
    {
        return Err(refusal.into());
    }
    let issued = issued?;
    if let Some(path) = file {
        write_secret(path, &format!("{}\n", issued.token))?;
    }
    let mut out = sheaf_cli::output::stdout();
    if global.json {
        let token = file.is_none().then(|| issued.token.clone());
        let (join, uses) = (issued.join.clone(), u64::from(args.uses));
        Records::new(global).write(&mut out, &Token { token, join, uses })?;
    } else if file.is_none() {
        writeln!(out, "{}", issued.token)?;
    }
    if !global.quiet && !global.json {
        let file = file.unwrap_or(Path::new("FILE"));
        sheaf_cli::output::tell(format_args!(
            "join with: sheaf serve --join {} --token-file {}",
            issued.join,
            file.display()
        ));
    }
    Ok(Exit::Success)
}

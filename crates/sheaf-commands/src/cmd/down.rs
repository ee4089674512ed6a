//! `sheaf down`: a session ended.
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::Records;
use sheaf_cli::session;
use sheaf_records::Ended;
use sheaf_session::config::{ConfigFile, some_of};
use sheaf_session::{Environment, Sessions};
use std::time::Instant;

/// End a session that `sheaf up` started
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf down lab
  sheaf down --all")]
pub struct DownArgs {
    /// The session, as with --session
    #[arg(value_name = "SESSION", conflicts_with_all = ["session", "all"])]
    pub name: Option<String>,

    /// End every session of this user
    #[arg(long)]
    pub all: bool,
}

/// Ends the session.
pub fn run(args: &DownArgs, global: &GlobalArgs) -> Result<Exit> {
    let environment = Environment::of_this_process();
    let sessions = Sessions::of(&environment);
    if args.all {
        return end_all(&environment, global);
    }
    let name = match session::named(args.name.as_ref(), global) {
        Ok(name) => name,
        // Which cluster is the default does not matter to whoever has to name a session.
        Err(error) => {
            let running = sessions.running()?;
            let is_unchosen = ConfigFile::find(global.config.as_deref(), &environment)?
                .is_unchosen()
                && global.cluster.is_none();
            if running.is_empty() || !is_unchosen {
                return Err(error);
            }
            let names = some_of(running.iter());
            return Err(Stop::usage(format!(
                "say which session: sheaf down NAME; running: {names}"
            ))
            .into());
        }
    };
    session::check_cluster(&name, global)?;
    // Of several of the name the one of this environment is meant.
    let place = match sessions.is_running(&name) {
        true => sessions.clone(),
        false => Sessions::named(&environment, &name, Some("sheaf down"), "")?,
    };
    if end(&place, &name)? {
        told(&name, global)?;
        // Whoever has named none may have meant another.
        if args.name.is_none() && global.session.is_none() && !global.quiet && !global.json {
            sheaf_cli::output::tell(format_args!("session {name} has ended"));
        }
        return Ok(Exit::Success);
    }
    Sessions::check_ended(&environment, &name)?;
    if let Some(refusal) = session::elsewhere::refusal(args.name.as_deref(), "down", global)? {
        return Err(refusal.into());
    }
    // Without any session, the name of the default one is of no use to a user who named none.
    let is_named = args.name.is_some() || global.session.is_some() || global.cluster.is_some();
    if !is_named && sessions.running()?.is_empty() && !sessions.log(&name).exists() {
        return Err(Stop::unreachable("no session is running; sheaf up starts one").into());
    }
    Err(sessions.absent(&name, Some("sheaf down")).into())
}

/// Ends all sessions of this user.
fn end_all(environment: &Environment, global: &GlobalArgs) -> Result<Exit> {
    if let Some(cluster) = &global.cluster {
        let text = format!(
            "--all ends the sessions of every cluster: leave out --cluster {cluster}, or name \
             one: sheaf down NAME"
        );
        return Err(Stop::usage(text).into());
    }
    let mut exit = Exit::Success;
    for (place, name) in Sessions::all(environment)? {
        let ended = end(&place, &name);
        // One whose socket was removed runs still.
        let ended = ended.and_then(|is_ended| match is_ended {
            true => Ok(true),
            false => Ok(Sessions::check_ended(environment, &name).map(|()| false)?),
        });
        match ended {
            Ok(true) => told(&name, global)?,
            Ok(false) => {}
            // The others are ended all the same.
            Err(why) => {
                exit = Exit::Partial;
                sheaf_cli::output::tell(format_args!("sheaf: session {name} was not ended: {why}"));
            }
        }
    }
    Ok(exit)
}

/// Ends a session; whether one was running.
fn end(sessions: &Sessions, name: &str) -> Result<bool> {
    let (begun, process) = (Instant::now(), sessions.process(name)?);
    let has_ended = sessions.end(name)?;
    if let (true, Some(process)) = (has_ended, process) {
        let seconds = begun.elapsed().as_secs_f64();
        tracing::info!("session {name} has ended: process {process}, in {seconds:.3} s");
    }
    Ok(has_ended)
}

fn told(name: &str, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = Ended { session: name.to_owned() };
        Records::new(global).write(&mut sheaf_cli::output::stdout(), &record)?;
    }
    Ok(())
}

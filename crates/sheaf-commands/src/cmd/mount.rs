//! `sheaf mount` and `sheaf umount`: the files of all hosts under one directory.
pub mod fstab;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_cli::session::{Intent, Opening};
use sheaf_mount::{
    AddressQuestion, AllView, GroupsView, HostRemote, HostRemotes, IdMapError, MountedView,
    ShownIds, TakeAwayError, ViewError, ViewForbids, ViewHost, ViewParts, take_away,
};
use sheaf_session::address::Purpose;
use sheaf_session::config::Launch;
use sheaf_session::{Environment, Session, Sessions};
use sheaf_tree::Notice;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// A host that does not answer within this is down, unless less is said by --timeout.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often a view without hosts looks whether its session has some for others.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The longest time for which names and attributes are kept.
const NAMES_KEPT_MAX: Duration = Duration::from_secs(3600);
/// Addresses whose meaning is asked for, at a time.
const ADDRESSES_WAITING_MAX: usize = 16;
/// The longest file of rules; more rules than that has are refused.
const IDMAP_BYTES_MAX: u64 = 1 << 20;
/// What the process in the background says when all is mounted, and by what it knows that it is that one.
const READY: &str = "mounted";
const ANNOUNCE: &str = "SHEAF_MOUNT_ANNOUNCE";

/// Mount the files of all hosts under one directory
///
/// POINT/hosts/H is what host H exports, and each call of a program there is
/// done on H, as the user who makes it: what one host writes all others see.
/// As root for all users, else for yourself. POINT/all is the merge of all
/// hosts, and what is made in POINT/groups are groups of files. With HOST:PATH,
/// POINT is this one directory of this host.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, allow_missing_positional = true)]
#[command(after_help = "\
Examples:
  sheaf mount /sheaf                           # of the session of this host
  sheaf mount --session lab --read-only ~/lab
  sheaf mount n7:/var/log /mnt/log             # one directory of one host
  sheaf umount /sheaf")]
pub struct MountArgs {
    /// Mount only this directory of this host
    #[arg(value_name = "HOST:PATH")]
    pub directory: Option<OsString>,

    /// An empty directory
    #[arg(value_name = "POINT")]
    pub point: PathBuf,

    /// Nothing can be written
    #[arg(long)]
    pub read_only: bool,

    /// No program in it can be run
    #[arg(long)]
    pub no_exec: bool,

    /// Ask the owner of a file at each read, and have no bytes lent by it
    #[arg(long)]
    pub no_lease: bool,

    /// Keep names and attributes of files for this many seconds (0: ask at each look)
    ///
    /// Changes made through any view of the session are seen at once. Changes that
    /// programs of the owner make themselves, not through a view, are seen within
    /// this time. New files and contents are always seen at once. As actimeo of NFS.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, hide_default_value = true)]
    pub attribute_cache: f64,

    /// Let programs map files of hosts for reading (MAP_SHARED)
    ///
    /// That is possible for files that nobody writes to when they are opened, and
    /// not with --no-lease. The kernel keeps pages of such files, so a read during
    /// a later change may return parts of two versions.
    #[arg(long)]
    pub mmap: bool,

    /// Let write return before the host of the file has the bytes, if nobody else has the file open
    ///
    /// Programs that open the file on any host wait until the bytes have come, and so
    /// do fsync and close. Until then other hosts may see an older size. An error (a
    /// full disk, a lost host) is reported by a later write, fsync or close. If the
    /// server or mount process of this host is killed, such bytes are lost.
    #[arg(long, conflicts_with = "no_lease")]
    pub write_behind: bool,

    /// Where absolute symbolic links of hosts lead
    #[arg(long, value_enum, value_name = "RULE", default_value_t = MountLinks::Inside)]
    pub links: MountLinks,

    /// Map users and groups: u:HOSTUID:LOCALUID,g:HOSTGID:LOCALGID,..., or a FILE of such rules
    ///
    /// Requests carry the ids of the hosts, and files show the ids of this
    /// machine. An id without a rule stays as it is, unless a rule gives its
    /// number to another id: then it is nobody (65534). Own files are not mapped.
    #[arg(long, value_name = "RULES")]
    pub idmap: Option<String>,

    /// Show files of hosts with uid=N, gid=N and permission bits by umask=OCTAL
    ///
    /// As on a file system without owners, each file shows this owner and group,
    /// and the bits 777 without those of umask. What a caller may do is decided
    /// by the real owner, group and bits.
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,

    /// Show block devices of hosts as files that can be read, as their permissions allow
    #[arg(long)]
    pub devices: bool,

    /// Stay in the foreground, and take it away when interrupted
    #[arg(short, long)]
    pub foreground: bool,
}

/// Where absolute links lead.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountLinks {
    /// Resolve each link within the export of its host
    Inside,
    /// Keep the text of each link: it leads to this machine
    Keep,
}

/// Take a view away that sheaf mount has mounted
#[derive(Args, Debug)]
pub struct UmountArgs {
    /// The directory
    #[arg(value_name = "POINT")]
    pub point: PathBuf,
}

/// Why a view is over.
enum ViewOver {
    Done(Exit),
    /// The session runs and has given this process up, which had stood still.
    GivenUp,
}

/// Mounts the view.
pub fn mount(args: &MountArgs, global: &GlobalArgs) -> Result<Exit> {
    let mut announces = std::env::var_os(ANNOUNCE).is_some();
    if !args.foreground && !announces {
        return in_background(args);
    }
    let (ids, mut begun) = (ids(args)?, None);
    loop {
        let mut opening = Opening::begin(global)?;
        let intent = if args.directory.is_some() { Intent::ViewOfOne } else { Intent::View };
        opening.begin_to(intent)?;
        check(&opening, global)?;
        opening.lift_deadline();
        let patience = ANSWER_MAX.min(opening.config().timeout.value);
        let over = opening.run(async |session, _, _| {
            any_host(session, patience).await?;
            // A later session of this name may have other hosts and another export.
            if *begun.get_or_insert_with(|| session.identity()) != session.identity() {
                return Err(
                    Stop::unreachable("the session has ended, and another one has begun").into()
                );
            }
            let mut remotes = remotes(session, patience, args)?.with_ids(ids.clone());
            let (asks, asked) = tokio::sync::mpsc::channel(ADDRESSES_WAITING_MAX);
            let point = args.point.canonicalize().map_err(|error| no_point(&args.point, &error))?;
            // The owners would refuse each change.
            let writes = args.read_only || !session.rights().may_write;
            let forbids = ViewForbids { writes, programs: args.no_exec };
            let view = if let Some(directory) = &args.directory {
                let (source, remote) = one_host(session, remotes, directory).await?;
                MountedView::of_one(&args.point, source, Arc::new(remote), forbids)
            } else {
                by_own_server(session, &mut remotes).await;
                let hosts = hosts(session, &remotes).await?;
                let groups = GroupsView::new(session.client(), &point, asks);
                let groups = if writes { groups.read_only() } else { groups };
                let parts = ViewParts { hosts, all: AllView::new(session.client()), groups };
                MountedView::new(&args.point, parts, forbids)
            };
            let view = view.map_err(not_there)?;
            if announces {
                let mut out = std::io::stdout();
                writeln!(out, "{READY}").and_then(|()| out.flush()).context("nobody waits")?;
            }
            Ok(keep(view, session, asked, global).await)
        })?;
        match over {
            ViewOver::Done(exit) => return Ok(exit),
            ViewOver::GivenUp => {
                tracing::warn!("the session had given this view up: mounted again")
            }
        }
        announces = false;
    }
}

/// Refuses what is no session, or not all of it.
fn check(opening: &Opening, global: &GlobalArgs) -> Result<()> {
    let is_of_itself = matches!(opening.config().launch(), Launch::Embedded);
    if !opening.is_joined() && global.embedded.is_none() && is_of_itself {
        return Err(no_session());
    }
    if opening.is_joined() && !(global.on_hosts.is_empty() && global.exclude_hosts.is_empty()) {
        let why = "a view has all hosts of its session: -w and -x leave none out";
        return Err(Stop::usage(why).into());
    }
    Ok(())
}

/// Refuses a session of this command alone of which no host has come: nothing starts the hosts later.
async fn any_host(session: &Session, patience: Duration) -> Result<()> {
    let network = session.client().network();
    if !session.is_own() || network.ready(patience).await.is_some_and(|ready| !ready.is_empty()) {
        return Ok(());
    }
    let why = |notice: Notice| match notice {
        Notice::Lost { leaves, cause, .. } => {
            let hosts: Vec<_> =
                leaves.iter().filter_map(|leaf| session.client().host(leaf)).collect();
            Some(format!("{}: {cause}", hosts.join(", ")))
        }
        _ => None,
    };
    let why: Vec<String> = network.notices().into_iter().filter_map(why).collect();
    let why = if why.is_empty() { "none has come in time".to_owned() } else { why.join("; ") };
    Err(Stop::unreachable(format!("there is no host to mount: {}", printable(&why))).into())
}

/// How owners and permission bits are shown.
fn ids(args: &MountArgs) -> Result<ShownIds> {
    let wrong = |error: IdMapError| Stop::usage(printable(&error.to_string()));
    let (mut uid, mut gid, mut umask) = (None, None, None);
    for option in &args.options {
        let number = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
        let known = match option.split_once('=') {
            Some(("uid", id)) => number(id).map(|id| uid = Some(id)),
            Some(("gid", id)) => number(id).map(|id| gid = Some(id)),
            Some(("umask", mask)) => {
                umask = Some(mask);
                Some(())
            }
            _ => None,
        };
        if known.is_none() {
            let why = "there are uid=N, gid=N and umask=OCTAL";
            return Err(Stop::usage(format!("-o {}: {why}", printable(option))).into());
        }
    }
    let rules = match args.idmap.as_deref() {
        Some(rules) if rules.starts_with(['u', 'g']) && rules[1..].starts_with(':') => {
            rules.to_owned()
        }
        Some(file) => {
            let (mut text, most) = (String::new(), IDMAP_BYTES_MAX);
            let read = File::open(file).and_then(|file| file.take(most).read_to_string(&mut text));
            read.map_err(|error| {
                let errno = sheaf_core::Errno::from_io(&error);
                Stop::usage(format!(
                    "--idmap {}: {errno}: a file of rules, or u:HOSTUID:LOCALUID,...",
                    printable(file)
                ))
            })?;
            text
        }
        None => String::new(),
    };
    let ids = ShownIds::of_map(&rules).map_err(wrong)?.with_owner(uid, gid);
    match umask {
        Some(mask) => Ok(ids.with_umask(mask).map_err(wrong)?),
        None => Ok(ids),
    }
}

/// How long names and attributes are kept.
fn names_kept(args: &MountArgs) -> Result<Duration> {
    let time = Duration::try_from_secs_f64(args.attribute_cache).ok();
    time.filter(|time| *time <= NAMES_KEPT_MAX).ok_or_else(|| {
        let most = NAMES_KEPT_MAX.as_secs();
        Stop::usage(format!("--attribute-cache {}: not 0 to {most}", args.attribute_cache)).into()
    })
}

/// How the hosts of a session are asked.
fn remotes(session: &Session, patience: Duration, args: &MountArgs) -> Result<HostRemotes> {
    let mut remotes = HostRemotes::new(session.client().network(), patience)?;
    if args.no_lease {
        remotes = remotes.without_loans();
    }
    remotes = remotes.with_names_kept(names_kept(args)?);
    if args.mmap {
        remotes = remotes.with_maps();
    }
    if args.write_behind {
        remotes = remotes.with_writes_behind();
    }
    if args.devices {
        remotes = remotes.with_devices();
    }
    if args.links == MountLinks::Inside {
        let point = args.point.canonicalize().map_err(|error| no_point(&args.point, &error))?;
        remotes = remotes.with_links_within(&point);
    }
    Ok(remotes)
}

/// The server of the host that this process is on has links of its own to others.
async fn by_own_server(session: &Session, remotes: &mut HostRemotes) {
    if let Some(own) = session.gate().and_then(|host| session.client().leaf(host))
        && let Err(error) = remotes.by_own_server(own).await
    {
        tracing::warn!(%error, "requests go by the root of the session");
    }
}

/// One directory of one host, and what it is called.
async fn one_host(
    session: &Session,
    remotes: HostRemotes,
    directory: &OsStr,
) -> Result<(String, HostRemote)> {
    let said = printable(&directory.to_string_lossy());
    let target = session.address_for(directory, Purpose::Name("mount"))?;
    let (client, members) = (session.client(), &target.members);
    let leaf = match (members.len(), members.first()) {
        (1, Some(leaf)) => leaf,
        _ => return Err(Stop::usage(format!("{said}: a directory of one host is mounted")).into()),
    };
    let name = client.host(leaf).unwrap_or_default();
    let path = Path::new(OsStr::from_bytes(target.path.as_bytes()));
    let export = remotes.host(leaf).export().await;
    let export = export.map_err(|errno| no_export(session, &name, errno))?;
    let top = path.strip_prefix(&export).unwrap_or(path);
    if session.gate() == Some(&*name) {
        let own = export.join(top.strip_prefix("/").unwrap_or(top));
        let own = printable(&own.to_string_lossy());
        let why = format!("{said}: {name} is this host: mount --bind {own} mounts it");
        return Err(Stop::usage(why).into());
    }
    let remotes = remotes.with_top(top.strip_prefix("/").unwrap_or(top));
    let mut remotes = remotes.map_err(|errno| Stop::usage(format!("{said}: {errno}")))?;
    by_own_server(session, &mut remotes).await;
    let remote = remotes.host(leaf);
    remote.check().await.map_err(|errno| Stop::usage(format!("{said}: {errno}")))?;
    Ok((format!("{name}:{}", path.display()), remote))
}

/// Why a host does not say what it exports.
fn no_export(session: &Session, name: &str, errno: sheaf_core::Errno) -> Stop {
    if session.is_guest() && errno == sheaf_core::Errno::PERM {
        let text = "this session is root's, who mounts views of it, for all users of a host: views of a user's own \
                    are of sessions of its own";
        return Stop::usage(text);
    }
    Stop::unreachable(format!("{name}: what it exports is not known: {errno}"))
}

/// The hosts of a session, by their names.
async fn hosts(
    session: &Session,
    remotes: &HostRemotes,
) -> Result<Vec<(String, ViewHost<HostRemote>)>> {
    let client = session.client();
    let mut hosts = Vec::new();
    for leaf in client.network().everyone().iter() {
        let name = client.host(leaf).unwrap_or_default();
        // The host that this process is on has its own files without anybody between.
        let remote = remotes.host(leaf);
        let host = match session.gate() == Some(&*name) {
            true => {
                let export = remote.export().await;
                ViewHost::Own(export.map_err(|errno| no_export(session, &name, errno))?)
            }
            false => ViewHost::Remote(Arc::new(remote)),
        };
        hosts.push((name, host));
    }
    match hosts.is_empty() {
        true => Err(Stop::unreachable("there is no host to mount".to_owned()).into()),
        false => Ok(hosts),
    }
}

/// Stays as long as the view does.
async fn keep(
    mut view: MountedView,
    session: &Session,
    mut asked: Receiver<AddressQuestion>,
    global: &GlobalArgs,
) -> ViewOver {
    let (client, mut looked) = (session.client(), Instant::now());
    loop {
        tokio::select! {
            () = view.ended() => return ViewOver::Done(Exit::Success),
            Some(question) = asked.recv() => {
                let found = session.address_for(question.text(), Purpose::Change("add"));
                question.answer(found.map_err(|error| error.to_string()));
            }
            () = client.network().ended() => {
                output::tell(format_args!("sheaf: the session has ended"));
                return ViewOver::Done(Exit::Unreachable);
            }
            () = tokio::time::sleep(Duration::from_millis(200)) => {
                if client.is_interrupted() {
                    return ViewOver::Done(Exit::Success);
                }
                // Nobody is there by this process's link: others may see them all the same.
                let is_alone = !session.is_own() && client.network().present() == 0;
                if is_alone && looked.elapsed() > LOOK_AGAIN {
                    looked = Instant::now();
                    if sheaf_cli::session::has_hosts(global, &session.identity()).await {
                        return ViewOver::GivenUp;
                    }
                }
            }
        }
    }
}

/// A view of this machine alone is nobody's wish.
fn no_session() -> anyhow::Error {
    let running = Sessions::of(&Environment::of_this_process()).running();
    let running = match running.as_deref() {
        Ok([]) => "sheaf up starts one".to_owned(),
        Ok(names) => format!("--session says which: {}", printable(&names.join(", "))),
        Err(error) => error.to_string(),
    };
    Stop::unreachable(format!("there is no session of this host to mount: {running}")).into()
}

fn no_point(point: &Path, error: &std::io::Error) -> anyhow::Error {
    let (said, errno) = (printable(&point.to_string_lossy()), sheaf_core::Errno::from_io(error));
    let is_absent = error.kind() == std::io::ErrorKind::NotFound;
    let why = match is_absent {
        // The address of a directory stands in the place of the mount point.
        true if said.contains(":/") => {
            format!("no mount point is named: sheaf mount {said} POINT mounts it at POINT")
        }
        true => format!("{errno}: mkdir makes it"),
        false => errno.to_string(),
    };
    Stop::usage(format!("{said}: {why}")).into()
}

fn not_there(error: ViewError) -> anyhow::Error {
    match error {
        ViewError::Point { .. } => Stop::usage(error.to_string()).into(),
        error => error.into(),
    }
}

/// Has another process do it, and waits until all is mounted.
fn in_background(args: &MountArgs) -> Result<Exit> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut command = Command::new(program);
    let called: Vec<OsString> = std::env::args_os().collect();
    let words = fstab::words(&called).and_then(Result::ok).unwrap_or(called);
    command.args(&words[1..]).env(ANNOUNCE, "1").stdin(Stdio::null());
    // Whoever reads what this command says is not kept waiting by what stays.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("no process can be started")?;
    let mut errors = child.stderr.take().context("its standard error was asked for")?;
    let telling = std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
    let mut said = BufReader::new(child.stdout.take().context("its output was asked for")?);
    // With --json there are records of notes before it, or of an error in its place.
    let (mut line, mut out) = (String::new(), output::stdout());
    while said.read_line(&mut line)? > 0 {
        if line.trim_end() == READY {
            out.flush()?;
            return Ok(Exit::Success);
        }
        out.write_all(line.as_bytes())?;
        line.clear();
    }
    out.flush()?;
    let status = child.wait()?;
    // Its servers end with it, and then all is told.
    drop(telling.join());
    match status.code() {
        // What is wrong it has said itself.
        Some(code) => std::process::exit(code),
        None => {
            bail!("{}: its process has ended ({status})", printable(&args.point.to_string_lossy()))
        }
    }
}

/// Takes the view away.
pub fn umount(args: &UmountArgs, _: &GlobalArgs) -> Result<Exit> {
    let point = absolute(&args.point)?;
    let said = || printable(&args.point.to_string_lossy());
    match take_away(&point) {
        Ok(()) => Ok(Exit::Success),
        Err(TakeAwayError::Stays(error)) => Err(error).with_context(said),
        Err(error) => Err(Stop::usage(format!("{}: {error}", said())).into()),
    }
}

/// The path of a directory that may not answer: only the directory above it is looked at, and where a link leads.
fn absolute(point: &Path) -> Result<PathBuf> {
    let said = || printable(&point.to_string_lossy());
    let mut point = point.to_owned();
    for _ in 0..LINKS_MAX {
        let (Some(above), Some(name)) = (point.parent(), point.file_name()) else {
            return point.canonicalize().with_context(said);
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let above = above.canonicalize().with_context(said)?;
        // Of a directory the kernel says by itself that it is no link.
        match above.join(name).read_link() {
            Ok(target) => point = above.join(target),
            Err(_) => return Ok(above.join(name)),
        }
    }
    Err(rustix::io::Errno::LOOP).with_context(said)
}

/// Links that lead to a directory at most, as for the kernel.
const LINKS_MAX: usize = 40;

//! `sheaf status --mounts`: what the views of this host have done, and which calls of programs hang in them.
use anyhow::{Context, Result};
use sheaf_cli::exit::Exit;
use sheaf_cli::output::{Nobody, Output, Report, printable, stdout, tell};
use sheaf_core::Errno;
use sheaf_mount::{MountOfView, MountStatistics, mounts_of_views};
use sheaf_records::{Mount, MountDone, StuckCall};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long the processes that answer for views may take, all together.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// A call that has waited for longer hangs.
const STUCK: Duration = Duration::from_secs(1);

/// Shows the views.
pub fn show(output: &Output) -> Result<Exit> {
    let mounts = mounts_of_views().context("the system does not list its mounts")?;
    let asked: Vec<(MountOfView, Receiver<_>)> =
        mounts.into_iter().map(|mount| (mount.clone(), ask(mount))).collect();
    if asked.is_empty() && !output.json && !output.quiet {
        tell("no view is mounted on this host; mount one with: sheaf mount POINT");
    }
    let (mut out, mut exit) = (stdout(), Exit::Success);
    let (deadline, mut view) = (Instant::now() + ANSWER_MAX, None);
    for (mount, answer) in asked {
        let left = deadline.saturating_duration_since(Instant::now());
        // A thread that hangs ends with this process.
        let found = answer.recv_timeout(left).unwrap_or(Err(Errno::TIMEDOUT));
        if found.is_err() {
            exit = Exit::Partial;
        }
        let calls = found.as_ref().map_or_else(|_| Vec::new(), |found| stuck(&mount, found));
        let record = record(&mount, found);
        if output.json {
            output.records.write(&mut out, &record)?;
            calls.iter().try_for_each(|call| output.records.write(&mut out, call))?;
            continue;
        }
        // A view of one directory has no parts.
        if record.part.is_empty() {
            writeln!(out, "{}: {}", printable(&record.view), described(&record))?;
        } else {
            if view.as_ref() != Some(&record.view) {
                writeln!(out, "{}", printable(&record.view))?;
            }
            writeln!(out, "  {}: {}", printable(&record.part), described(&record))?;
        }
        view = Some(record.view.clone());
        for call in &calls {
            writeln!(out, "    {}", described_call(call))?;
        }
    }
    if output.json {
        let mut summary = Report::default().record(&Nobody);
        summary.exit = exit;
        output.records.write(&mut out, &summary)?;
    }
    out.flush()?;
    Ok(exit)
}

/// Asks the process that answers for a mount, which may not do so.
fn ask(mount: MountOfView) -> Receiver<Result<MountStatistics, Errno>> {
    let (tell, told) = channel();
    let asks = move || {
        // Nobody waits any more.
        drop(tell.send(MountStatistics::of(&mount.view.join(&mount.part))));
    };
    // Without a thread there is no answer, as the channel is closed.
    drop(std::thread::Builder::new().spawn(asks));
    told
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn record(mount: &MountOfView, found: Result<MountStatistics, Errno>) -> Mount {
    let why = |errno: Errno| match errno {
        Errno::TIMEDOUT => "the process that answers for it does not answer".to_owned(),
        Errno::PERM => format!("user {} has mounted it", mount.user),
        Errno::BADMSG => "another version of sheaf has mounted it".to_owned(),
        errno => errno.to_string(),
    };
    let (done, error) = match found {
        Ok(found) => (Some(done(&found)), None),
        Err(errno) => (None, Some(why(errno))),
    };
    let (view, part, user) = (text(&mount.view), text(&mount.part), mount.user.into());
    Mount { view, part, user, error, done }
}

fn done(found: &MountStatistics) -> MountDone {
    let (leased_files, leased_bytes) = found.leases;
    MountDone {
        requests: found.requests,
        answered: found.latencies.iter().sum(),
        half_within_us: found.latency_us(0.5),
        most_within_us: found.latency_us(0.99),
        leased_files,
        leased_bytes,
        lock_owners: found.locks,
        under_way: found.under_way,
    }
}

/// The calls that hang.
fn stuck(mount: &MountOfView, found: &MountStatistics) -> Vec<StuckCall> {
    let hangs = |call: &&sheaf_mount::StuckCall| Duration::from_millis(call.since_ms) >= STUCK;
    let shown = |call: &sheaf_mount::StuckCall| {
        let pid = call.process;
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        let name = call.name.as_ref().map(|name| String::from_utf8_lossy(name).into_owned());
        StuckCall {
            view: text(&mount.view),
            part: text(&mount.part),
            operation: call.operation.clone(),
            pid: pid.into(),
            program: program.map(|program| program.trim_end().to_owned()),
            user: call.user.into(),
            file: open_file(pid, &mount.view).map(|file| text(&file)).or(name),
            seconds: Duration::from_millis(call.since_ms).as_secs_f64(),
        }
    };
    found.calls.iter().filter(hangs).map(shown).collect()
}

/// The file of the system call that a thread is in, if its first argument is a descriptor of a file of the view.
fn open_file(thread: u32, view: &Path) -> Option<PathBuf> {
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    let first = call.split_ascii_whitespace().nth(1)?.strip_prefix("0x")?;
    let descriptor = i32::from_str_radix(first, 16).ok()?;
    let file = std::fs::read_link(format!("/proc/{thread}/fd/{descriptor}")).ok()?;
    file.as_os_str().as_bytes().starts_with(view.as_os_str().as_bytes()).then_some(file)
}

fn described(mount: &Mount) -> String {
    let Some(done) = &mount.done else {
        return printable(mount.error.as_deref().unwrap_or_default());
    };
    let mut parts = vec![count(done.requests, "request")];
    if let (Some(half), Some(most)) = (done.half_within_us, done.most_within_us) {
        let asked = count(done.answered, "answer");
        parts.push(format!("{asked} of the owner, half within {half} us, 99 % within {most} us"));
    }
    if done.leased_files > 0 {
        let files = count(done.leased_files, "file");
        parts.push(format!("{} bytes of {files} leased", done.leased_bytes));
    }
    if done.lock_owners > 0 {
        parts.push(count(done.lock_owners, "lock owner"));
    }
    if done.under_way > 0 {
        parts.push(format!("{} under way", done.under_way));
    }
    parts.join(", ")
}

fn described_call(call: &StuckCall) -> String {
    let program = call.program.as_ref().map(|program| format!(" ({})", printable(program)));
    let file = call.file.as_ref().map(|file| format!(" on {}", printable(file)));
    let (program, file) = (program.unwrap_or_default(), file.unwrap_or_default());
    let StuckCall { operation, pid, user, seconds, .. } = call;
    format!("{operation}{file} by process {pid}{program} of user {user} waits for {seconds:.1} s")
}

fn count(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

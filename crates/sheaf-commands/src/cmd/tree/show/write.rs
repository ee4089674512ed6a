//! The state of a tree as a table that fits a terminal, and as JSON.
use super::state::{Health, NodeRow, TreeState};
use sheaf_cli::notices;
use sheaf_cli::output::Records;
use sheaf_core::hostset::HostSet;
use sheaf_records::{
    LastError, Node, NodeLink, NodeReport, NodeStream, PeerLink, RunningTree, Tree, Truncated,
};
use sheaf_session::Session;
use sheaf_tree::topology::{Page, Role};
use std::fmt::Write as _;
use std::io::Write;

/// Characters of a name in the table, at least: 80 columns have room for so many.
const NAME_CHARS: usize = 22;
/// The characters of a line of the table beside the name.
const FIGURES_CHARS: usize = 58;
/// Where a name begins.
const INDENT: usize = 6;
/// The most lines about errors, and about what happened, at the end.
const ENDING_LINES_MAX: usize = 5;

/// The table and what is to be said beneath it.
pub fn text(state: &TreeState, session: &Session, name: &str, page: Page) -> String {
    let answered = state.rows.iter().filter(|row| row.report.is_some()).count();
    let mut out = format!("tree {name}: {answered} of {} nodes answer", state.rows.len());
    let torpid: HostSet = state
        .rows
        .iter()
        .filter(|row| row.health.is_torpid())
        .map(|row| row.host.clone())
        .collect();
    if !torpid.is_empty() {
        let _ = write!(out, "; torpid: {torpid}");
    }
    let ending = ending(state, session);
    let lines_of = |text: &String| text.chars().count().div_ceil(page.columns.max(1)).max(1);
    // Title, heading, ending, and the prompt that follows.
    let below = ending.iter().map(lines_of).sum::<usize>();
    let widest = page.columns.saturating_sub(FIGURES_CHARS).max(NAME_CHARS);
    let groups = fold(state, page.rows.saturating_sub(3 + below).max(3), widest);
    let names = groups.iter().map(|group| name_of(group).chars().count());
    // One long name does not widen the table, it has a line of its own.
    let width = names.filter(|name| *name <= widest).max().unwrap_or(0).max(NAME_CHARS);
    let _ = writeln!(
        out,
        "\n{:>5} {:<width$} {:<7} {:>6} {:>7} {:>6} {:>6} {:>6} {:>6}",
        "RANK", "NODE", "STATE", "SINCE", "RTT", "IN", "OUT", "QUEUED", "CREDIT"
    );
    for group in groups {
        let _ = writeln!(out, "{}", line(&group, width));
    }
    for line in ending {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Rows that are told of in one line: each its own while there is room, then the usual ones of a
/// level together, and at last those that are not. A name that is longer than `widest` takes a line
/// more.
fn fold(state: &TreeState, room: usize, widest: usize) -> Vec<Vec<&NodeRow>> {
    let long = state.rows.iter().filter(|row| row.host.chars().count() > widest).count();
    if state.rows.len() + long <= room {
        return state.rows.iter().map(|row| vec![row]).collect();
    }
    let mut groups: Vec<Vec<&NodeRow>> = Vec::new();
    let bad = state.rows.iter().filter(|row| row.health != Health::Up).count();
    let key = |row: &NodeRow| (row.depth, row.role == Role::Leaf, row.health);
    // A level has at most two lines of those that are up: its inner nodes' and its leaves'.
    let apart =
        bad + 2 * (state.rows.iter().map(|row| row.depth).max().unwrap_or(0) as usize + 1) <= room;
    for row in &state.rows {
        let group = groups.iter_mut().find(|group| key(group[0]) == key(row));
        match group.filter(|_| row.health == Health::Up || !apart) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The host of a line, or the hosts.
fn name_of(group: &[&NodeRow]) -> String {
    match group {
        [one] => one.host.clone(),
        all => all.iter().map(|row| row.host.clone()).collect::<HostSet>().to_string(),
    }
}

/// A line with its name in `width` characters, or with a longer one above its figures.
fn line(group: &[&NodeRow], width: usize) -> String {
    let (first, mut name) = (group[0], name_of(group));
    let rank = match group.len() {
        1 => first.rank.to_string(),
        count => format!("×{count}"),
    };
    if name.chars().count() > width {
        name += &format!("\n{:1$}", "", INDENT + width);
    }
    let since =
        group.iter().filter_map(|row| row.since_ms()).min().map_or("-".to_owned(), duration);
    let mut trips: Vec<u64> = group.iter().filter_map(|row| row.round_trip_ns()).collect();
    trips.sort_unstable();
    let trip = trips.get(trips.len() / 2).map_or("-".to_owned(), |ns| round_trip(*ns));
    let (read, written) =
        group.iter().map(|row| row.bytes()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let queued = group.iter().map(|row| row.queued_bytes()).sum();
    let credit =
        group.iter().filter_map(|row| row.credit_bytes()).min().map_or("-".to_owned(), size);
    format!(
        "{rank:>5} {name:<width$} {:<7} {since:>6} {trip:>7} {:>6} {:>6} {:>6} {credit:>6}",
        first.health.word(),
        size(read),
        size(written),
        size(queued),
    )
}

/// Torpid nodes, the newest errors, what happened, and how many leaves run.
fn ending(state: &TreeState, session: &Session) -> Vec<String> {
    let mut lines = Vec::new();
    for row in state.rows.iter().filter(|row| row.health.is_torpid()).take(ENDING_LINES_MAX) {
        let Some((by, link)) = &row.link else { continue };
        lines.push(format!(
            "torpid: {} (node {}) is {}: heard {} ago by node {by}, {} wait for it",
            row.host,
            row.rank,
            row.health.word(),
            duration(link.heard_ms),
            size(link.queued_bytes),
        ));
    }
    let mut errors: Vec<_> = state
        .rows
        .iter()
        .filter_map(|row| Some((row, row.report.as_ref()?.last_error.as_ref()?)))
        .collect();
    errors.sort_by_key(|(_, error)| error.ago_ms);
    for (row, error) in errors.into_iter().take(ENDING_LINES_MAX) {
        let ago = duration(error.ago_ms);
        lines.push(format!("error: node {} ({}), {ago} ago: {}", row.rank, row.host, error.text));
    }
    let events: Vec<String> =
        state.notices.iter().rev().filter_map(|notice| notices::text(notice, session, 1)).collect();
    lines.extend(events.iter().take(ENDING_LINES_MAX).rev().cloned());
    if events.len() > ENDING_LINES_MAX {
        lines.push(format!(
            "and {} events before (sheaf status --json has all)",
            events.len() - ENDING_LINES_MAX
        ));
    }
    lines.extend(notices::started_from_here(&state.notices, session));
    lines.extend(state.links_line());
    lines.extend(state.peers_lines());
    if state.dropped > 0 {
        lines.push(format!("{} reports were dropped on the way for want of room", state.dropped));
    }
    let leaves = || state.rows.iter().filter(|row| row.role == Role::Leaf);
    let up = leaves().filter(|row| row.health == Health::Up).count();
    lines.push(format!("{up} of {} leaves are up", leaves().count()));
    lines
}

/// A line for each node, each event, and the tree.
pub fn json(
    state: &TreeState,
    session: &Session,
    records: Records,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    for row in &state.rows {
        records.write(out, &node_record(row, state))?;
    }
    for notice in &state.notices {
        notices::write(notice, session, None, records, out)?;
    }
    let named = |wanted: &dyn Fn(Health) -> bool| {
        let hosts: HostSet = state
            .rows
            .iter()
            .filter(|row| wanted(row.health))
            .map(|row| row.host.clone())
            .collect();
        hosts.to_string()
    };
    let leaves_up =
        state.rows.iter().filter(|row| row.role == Role::Leaf && row.health == Health::Up).count();
    let running = RunningTree {
        exit: state.exit(),
        running: leaves_up as u64,
        answered: state.rows.iter().filter(|row| row.report.is_some()).count() as u64,
        torpid: named(&Health::is_torpid),
        lost: named(&|health| health == Health::Lost),
        left: named(&|health| health == Health::Left),
        silent: named(&|health| health == Health::Silent),
        reports_dropped: u64::from(state.dropped),
    };
    let planned = super::super::plan::describe(session.topology());
    records.write(out, &Tree { running: Some(running), ..planned })
}

fn node_record(row: &NodeRow, state: &TreeState) -> Node {
    let role = match row.role {
        Role::Root => sheaf_records::Role::Root,
        Role::Inner => sheaf_records::Role::Inner,
        Role::Leaf => sheaf_records::Role::Leaf,
    };
    let link = row.link.as_ref().map(|(by, link)| NodeLink {
        parent: u64::from(*by),
        state: link.state.word().to_owned(),
        since_ms: link.since_ms,
        heard_ms: link.heard_ms,
        local: link.local,
        via: row.carrier().map(str::to_owned),
        round_trip_ns: link.round_trip.map(|trip| trip.smoothed_ns),
        round_trip_least_ns: link.round_trip.map(|trip| trip.least_ns),
        clock_offset_ns: link.clock.map(|clock| clock.offset_ns),
        clock_error_ns: link.clock.map(|clock| clock.error_ns),
        bytes_in: link.bytes_in,
        bytes_out: link.bytes_out,
        frames_in: link.frames_in,
        queued_bytes: link.queued_bytes,
        streams_waiting: u64::from(link.streams_waiting),
        reconnects: u64::from(link.reconnects),
    });
    Node {
        rank: u64::from(row.rank),
        host: row.host.clone(),
        role,
        depth: u64::from(row.depth),
        state: row.health.word().to_owned(),
        torpid: row.health.is_torpid(),
        since_ms: row.since_ms(),
        queued_bytes: row.queued_bytes(),
        link,
        report: row.report.as_ref().map(|report| report_fields(report, state)),
    }
}

fn report_fields(report: &sheaf_tree::status::NodeReport, state: &TreeState) -> NodeReport {
    let last_error = match &report.last_error {
        None => LastError::None,
        Some(error) => LastError::Error {
            ago_ms: error.ago_ms,
            errno: error.errno.name().map(str::to_owned),
            text: error.text.clone(),
        },
    };
    let peers = report.peers.iter().map(|peer| PeerLink {
        host: state.host_of(peer.leaf).to_owned(),
        through_tree: peer.through_tree.clone(),
    });
    let streams = report.streams.iter().map(|stream| NodeStream {
        id: u64::from(stream.id),
        members: stream.members,
        window_bytes: stream.window_bytes,
        credit_up_bytes: stream.credit_up_bytes,
        credit_down_bytes: stream.credit_down_bytes,
        waves_open: u64::from(stream.waves_open),
        kept_bytes: stream.kept_bytes,
    });
    NodeReport {
        pid: u64::from(report.pid),
        uptime_ms: report.uptime_ms,
        last_error,
        doors: report.doors.iter().cloned().collect(),
        peers: peers.collect(),
        peers_taken: u64::from(report.peers_taken),
        streams: streams.collect(),
        truncated: Truncated {
            links: u64::from(report.links_more),
            streams: u64::from(report.streams_more),
        },
    }
}

/// At most six characters.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["", "K", "M", "G", "T", "P"] {
        if value < 999.5 || unit == "P" {
            return if unit.is_empty() || value >= 99.95 {
                format!("{value:.0}{unit}")
            } else {
                format!("{value:.1}{unit}")
            };
        }
        value /= 1024.0;
    }
    String::new()
}

/// At most six characters.
fn duration(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1}s", ms as f64 / 1e3),
        10_000..120_000 => format!("{}s", ms / 1000),
        120_000..7_200_000 => format!("{}m", ms / 60_000),
        7_200_000..172_800_000 => format!("{}h", ms / 3_600_000),
        _ => format!("{}d", ms / 86_400_000),
    }
}

fn round_trip(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{}µs", ns / 1000),
        10_000_000..10_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                assert!(size(value).chars().count() <= 6, "{value}: {}", size(value));
            }
        }
        assert_eq!((size(0), size(1023), size(1536)), ("0".into(), "1.0K".into(), "1.5K".into()));
        for ms in [0, 9_999, 119_999, 7_199_999, 172_799_999, 8_640_000_000] {
            assert!(duration(ms).chars().count() <= 6, "{}", duration(ms));
        }
        assert_eq!((round_trip(45_000), round_trip(12_000_000)), ("45µs".into(), "12ms".into()));
    }
}

//! What is known of each node: the plan, its own report, and its parent's word on the link to it.
use sheaf_cli::exit::Exit;
use sheaf_core::RangeSet;
use sheaf_core::hostset::HostSet;
use sheaf_tree::Notice;
use sheaf_tree::status::{LinkReport, NodeReport, ReportedLink, Survey, Via};
use sheaf_tree::topology::{Role, Topology};
use std::collections::BTreeMap;

/// A client's own node, which is none of the tree's.
const CLIENT: u32 = u32::MAX;

/// The name by which nodes count introductions that they refuse.
const REFUSED_TOKEN: &str = "introduction";

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Up,
    /// It has not connected yet.
    Waiting,
    /// It does not answer, and its parent knows no reason.
    Silent,
    /// It misses heartbeats.
    Late,
    /// What waits for it does not move.
    Stuck,
    Lost,
    /// It has left the session as planned.
    Left,
}

impl Health {
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Waiting => "waiting",
            Self::Silent => "silent",
            Self::Late => "late",
            Self::Stuck => "stuck",
            Self::Lost => "lost",
            Self::Left => "left",
        }
    }

    pub fn is_torpid(self) -> bool {
        matches!(self, Self::Late | Self::Stuck)
    }

    /// For pictures; `None` is the usual colour.
    fn color(self) -> Option<&'static str> {
        match self {
            Self::Up => None,
            Self::Waiting | Self::Left => Some("#999999"),
            Self::Silent | Self::Late | Self::Stuck => Some("#d68910"),
            Self::Lost => Some("#c0392b"),
        }
    }
}

/// One node.
pub struct NodeRow {
    pub rank: u32,
    /// Its number among the leaves, if it is one.
    pub leaf: Option<u32>,
    pub host: String,
    pub role: Role,
    pub depth: u32,
    pub health: Health,
    /// The link from its parent, and the parent's rank.
    pub link: Option<(u32, LinkReport)>,
    /// The rank of the parent that the plan has for it.
    pub planned: Option<u32>,
    pub report: Option<NodeReport>,
}

impl NodeRow {
    /// Bytes that its parent has read from it and written to it; of the root, those of all its
    /// children.
    pub fn bytes(&self) -> (u64, u64) {
        match (&self.link, &self.report) {
            (Some((_, link)), _) => (link.bytes_in, link.bytes_out),
            (None, Some(report)) => {
                let children = report.links.iter().filter(|link| link.child.is_some());
                children.fold((0, 0), |(read, written), link| {
                    (read + link.bytes_in, written + link.bytes_out)
                })
            }
            (None, None) => (0, 0),
        }
    }

    /// Bytes that wait in it, and for it at its parent.
    pub fn queued_bytes(&self) -> u64 {
        let inside = self.report.as_ref().map_or(0, |report| report.queued_bytes);
        inside + self.link.as_ref().map_or(0, |(_, link)| link.queued_bytes)
    }

    /// The least credit left on any of its streams, towards the root or the leaves.
    pub fn credit_bytes(&self) -> Option<u64> {
        let streams = self.report.iter().flat_map(|report| &report.streams);
        streams.map(|stream| stream.credit_up_bytes.min(stream.credit_down_bytes)).min()
    }

    /// What carries its link.
    pub fn carrier(&self) -> Option<&'static str> {
        let (by, link) = self.link.as_ref()?;
        let is_relayed = link.via == Via::Ssh && *by == 0 && self.planned != Some(0);
        Some(if is_relayed { "ssh through the root" } else { link.via.word() })
    }

    pub fn round_trip_ns(&self) -> Option<u64> {
        self.link.as_ref()?.1.round_trip.map(|trip| trip.smoothed_ns)
    }

    /// Since when it is as it is: its link, or the root's process.
    pub fn since_ms(&self) -> Option<u64> {
        let link = self.link.as_ref().map(|(_, link)| link.since_ms);
        link.or(self.report.as_ref().map(|report| report.uptime_ms))
    }
}

/// The whole tree, by rank.
pub struct TreeState {
    pub rows: Vec<NodeRow>,
    pub notices: Vec<Notice>,
    pub dropped: u32,
}

impl TreeState {
    pub fn new(topology: &Topology, survey: Survey, notices: Vec<Notice>) -> Self {
        let Survey { reports, dropped, .. } = survey;
        let left = left(&notices);
        let rows = topology.nodes().map(|node| {
            let rank = node.rank();
            let report = reports.iter().find(|report| report.rank == rank).cloned();
            let link = if rank == 0 { None } else { best_link(&reports, rank) };
            let health = match (&link, &report) {
                (_, Some(_)) if rank == 0 => Health::Up,
                (Some((_, link)), report) => match link.state {
                    ReportedLink::Up if report.is_none() => Health::Silent,
                    ReportedLink::Up => Health::Up,
                    ReportedLink::Waiting => Health::Waiting,
                    ReportedLink::Late => Health::Late,
                    ReportedLink::Stuck => Health::Stuck,
                    ReportedLink::Lost
                        if node.leaf_index().is_some_and(|leaf| left.contains(leaf)) =>
                    {
                        Health::Left
                    }
                    ReportedLink::Lost => Health::Lost,
                },
                (None, Some(_)) => Health::Up,
                (None, None) => Health::Silent,
            };
            let (host, role, depth) = (node.host(), node.role(), node.depth());
            let planned = node.parent().map(|parent| parent.rank());
            let leaf = node.leaf_index();
            NodeRow { rank, leaf, host, role, depth, health, link, planned, report }
        });
        Self { rows: rows.collect(), notices, dropped }
    }

    /// Leaves that have not come yet, or whose place is below a node that has not.
    pub fn waiting(&self) -> RangeSet {
        let (mut ranks, mut leaves) = (RangeSet::new(), RangeSet::new());
        // Parents come before their children.
        for row in &self.rows {
            let is_unknown = row.link.is_none() && row.report.is_none();
            let is_below = row.planned.is_some_and(|above| ranks.contains(above));
            if row.health == Health::Waiting || (is_unknown && is_below) {
                ranks.insert(row.rank);
                row.leaf.into_iter().for_each(|leaf| leaves.insert(leaf));
            }
        }
        leaves
    }

    /// Each host, and what carries its link to another one; for those of one machine, the link of
    /// any node.
    pub fn carriers(&self) -> BTreeMap<&str, &'static str> {
        let mut carriers = BTreeMap::new();
        for row in self.rows.iter().filter(|row| matches!(row.health, Health::Up | Health::Late)) {
            let (Some((by, _)), Some(carrier)) = (&row.link, row.carrier()) else { continue };
            let at = self.rows.binary_search_by_key(by, |row| row.rank).ok();
            let leaves_host = at.is_some_and(|at| self.rows[at].host != row.host);
            if leaves_host || !carriers.contains_key(row.host.as_str()) {
                carriers.insert(row.host.as_str(), carrier);
            }
        }
        carriers
    }

    /// The same in one line, hosts folded; nothing where all nodes are in one process.
    pub fn links_line(&self) -> Option<String> {
        let mut hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (host, carrier) in self.carriers() {
            hosts.entry(carrier).or_default().push(host.to_owned());
        }
        if hosts.keys().all(|carrier| *carrier == Via::Inside.word()) {
            return None;
        }
        if let (1, Some(carrier)) = (hosts.len(), hosts.keys().next()) {
            return Some(format!("links: {carrier}"));
        }
        let fold = |hosts: Vec<String>| hosts.into_iter().collect::<HostSet>().to_string();
        let told: Vec<String> = hosts
            .into_iter()
            .map(|(carrier, hosts)| format!("{carrier} {}", fold(hosts)))
            .collect();
        Some(format!("links: {}", told.join("; ")))
    }

    /// Links from host to host: how many, and which of them go through the tree and why, with the
    /// tokens that were refused; nothing where there are none.
    pub fn peers_lines(&self) -> Vec<String> {
        let (mut begun, mut refused) = (0, 0);
        let mut through: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for (row, report) in self.rows.iter().filter_map(|row| Some((row, row.report.as_ref()?))) {
            begun += report.peers.len();
            for peer in &report.peers {
                let Some(cause) = &peer.through_tree else { continue };
                through.entry(cause).or_default().push((&row.host, self.host_of(peer.leaf)));
            }
            let tokens = report.doors.iter().filter(|(name, _)| name == REFUSED_TOKEN);
            refused += tokens.map(|(_, count)| count).sum::<u64>();
        }
        let mut lines = Vec::new();
        if begun > 0 {
            let relayed: usize = through.values().map(Vec::len).sum();
            let tail =
                if relayed == 0 { String::new() } else { format!(", {relayed} through the tree") };
            lines.push(format!("peer links: {begun}{tail}"));
        }
        for (cause, pairs) in through {
            let fold = |hosts: &mut dyn Iterator<Item = &str>| {
                hosts.map(str::to_owned).collect::<HostSet>().to_string()
            };
            let from = fold(&mut pairs.iter().map(|(from, _)| *from));
            let to = fold(&mut pairs.iter().map(|(_, to)| *to));
            lines.push(format!("{from} to {to} through the tree: {cause}"));
        }
        if refused > 0 {
            let links = if refused == 1 { "peer link was" } else { "peer links were" };
            lines.push(format!(
                "{refused} {links} refused: the introduction was used, late or another's"
            ));
        }
        lines
    }

    /// The host of a leaf.
    pub fn host_of(&self, leaf: u32) -> &str {
        let row = self.rows.iter().find(|row| row.leaf == Some(leaf));
        row.map_or("?", |row| row.host.as_str())
    }

    /// How a command that shows it ends: a node that is not up makes it partial.
    pub fn exit(&self) -> Exit {
        let is_well = self.rows.iter().all(|row| row.health == Health::Up);
        if is_well { Exit::Success } else { Exit::Partial }
    }

    pub fn color(&self, rank: u32) -> Option<&'static str> {
        let at = self.rows.binary_search_by_key(&rank, |row| row.rank).ok()?;
        self.rows[at].health.color()
    }
}

/// Leaves that have left as planned and not come back.
fn left(notices: &[Notice]) -> RangeSet {
    let mut left = RangeSet::new();
    for notice in notices {
        match notice {
            Notice::Left { leaves, .. } => left.union_with(leaves),
            Notice::Joined { leaves, .. } => left = left.difference(leaves),
            _ => {}
        }
    }
    left
}

/// What a node says of its link to `rank`; of several, one that is up.
fn best_link(reports: &[NodeReport], rank: u32) -> Option<(u32, LinkReport)> {
    let of_tree = reports.iter().filter(|report| report.rank != CLIENT);
    let links = of_tree.flat_map(|report| report.links.iter().map(move |link| (report.rank, link)));
    let links = links.filter(|(_, link)| link.child == Some(rank));
    links
        .min_by_key(|(_, link)| link.state != ReportedLink::Up)
        .map(|(by, link)| (by, link.clone()))
}

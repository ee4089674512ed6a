//! The tree as text that fits a screen.
use super::{NodeRef, Role, Topology};
use std::ops::Range;

/// The room for a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Characters in a line.
    pub columns: usize,
    /// Lines, at least 4 of which are used when there is that much to draw.
    pub rows: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// Children of one node as they are drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DrawnItem {
    /// Neighbouring leaves: their positions.
    Leaves(Range<u32>),
    /// One inner node.
    Inner(u32),
    /// Inner nodes (and leaves among them) left out: positions, and how many inner nodes.
    Elided(Range<u32>, u32),
}

struct DrawnRow {
    left: String,
    count: String,
    hosts: String,
}

impl Topology {
    /// Draws the tree: one line for each inner node with its leaves folded, as many levels as fit
    /// on the page, the middle of a long row of siblings left out.
    ///
    /// ```
    /// use sheaf_proto::topology::{Names, Page, Placement, Spec, Topology};
    /// let hosts: Names = (1..=16).map(|n| format!("n{n}")).collect();
    /// let tree = Topology::build(&Spec::parse("1x2x8")?, "login", hosts, Placement::LeafHosts)?;
    /// assert_eq!(tree.draw(Page::default()), "\
    /// 16 leaves, 2 inner nodes (11.1 %), depth 2, fan-out 2-8 (average 6.0)
    ///
    /// login     16 leaves  n[1-16]
    /// ├─ n1 #1   8 leaves  n[1-8]
    /// └─ n9 #2   8 leaves  n[9-16]
    /// ");
    /// # Ok::<(), sheaf_proto::topology::TopologyError>(())
    /// ```
    #[must_use]
    pub fn draw(&self, page: Page) -> String {
        let mut rows = vec![self.row(String::new(), self.root())];
        // The statistics, a blank line and the root take three.
        self.expand(0, page.rows.saturating_sub(3).max(1), "", &mut rows);
        let left = rows.iter().map(|row| row.left.chars().count()).max().unwrap_or(0);
        let count = rows.iter().map(|row| row.count.chars().count()).max().unwrap_or(0);
        let mut out = format!("{}\n\n", cut(self.stats().to_string(), page.columns));
        for row in rows {
            let line = format!("{:left$}  {:>count$}  {}", row.left, row.count, row.hosts);
            out.push_str(cut(line, page.columns).trim_end());
            out.push('\n');
        }
        out
    }

    /// Children of a node: inner ones one by one, neighbouring leaves together, at most
    /// `items_max` (of at least 3) of them.
    pub(super) fn items(&self, position: u32, items_max: usize) -> Vec<DrawnItem> {
        let mut items: Vec<DrawnItem> = Vec::new();
        for at in self.nodes[position as usize].child_positions() {
            match items.last_mut() {
                _ if self.nodes[at as usize].children > 0 => items.push(DrawnItem::Inner(at)),
                Some(DrawnItem::Leaves(range)) => range.end = at + 1,
                _ => items.push(DrawnItem::Leaves(at..at + 1)),
            }
        }
        let items_max = items_max.max(3);
        if items.len() > items_max {
            let tail = (items_max / 6).max(1);
            let head = items_max - 1 - tail;
            let cut = head..items.len() - tail;
            let inner = items[cut.clone()]
                .iter()
                .filter(|item| matches!(item, DrawnItem::Inner(_)))
                .count();
            let elided = items[cut.start].positions().start..items[cut.end - 1].positions().end;
            items.splice(cut, [DrawnItem::Elided(elided, inner as u32)]);
        }
        items
    }

    /// Lines below a node that shows all there is, counted up to `limit`.
    fn need(&self, position: u32, limit: usize) -> usize {
        let mut need = 0;
        if position > 0 && self.is_lowest(position) {
            return 0;
        }
        for item in self.items(position, usize::MAX) {
            need += 1;
            if let DrawnItem::Inner(at) = item {
                need += self.need(at, limit - need.min(limit));
            }
            if need > limit {
                break;
            }
        }
        need
    }

    /// Whether all its children are leaves: then its own line says all about them.
    fn is_lowest(&self, position: u32) -> bool {
        self.nodes[position as usize]
            .child_positions()
            .all(|at| self.nodes[at as usize].children == 0)
    }

    fn expand(&self, position: u32, budget: usize, indent: &str, rows: &mut Vec<DrawnRow>) {
        let items = self.items(position, budget);
        let mut left = budget.saturating_sub(items.len());
        let last = items.len().saturating_sub(1);
        for (at, item) in items.into_iter().enumerate() {
            let (branch, more) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let branch = format!("{indent}{branch}");
            match item {
                DrawnItem::Inner(child) => {
                    rows.push(self.row(branch, NodeRef { tree: self, position: child }));
                    let need = self.need(child, left);
                    // One line below a node says little; then its own line has to do.
                    let grant = need.min(left);
                    if need > 0 && (grant == need || grant >= 3) {
                        let before = rows.len();
                        self.expand(child, grant, &format!("{indent}{more}"), rows);
                        left = left.saturating_sub(rows.len() - before);
                    }
                }
                DrawnItem::Leaves(range) => rows.push(self.leaves_row(branch, range)),
                DrawnItem::Elided(range, inner) => {
                    let what = if inner == 1 { "more inner node" } else { "more inner nodes" };
                    let (count, hosts) = self.leaves_text(range);
                    rows.push(DrawnRow {
                        left: format!("{indent}⋮  {inner} {what}"),
                        count,
                        hosts,
                    });
                }
            }
        }
    }

    fn row(&self, branch: String, node: NodeRef<'_>) -> DrawnRow {
        let (count, hosts) = self.leaves_text(node.position..node.position + 1);
        let left = match node.role() {
            Role::Root => format!("{branch}{}", node.host()),
            _ => format!("{branch}{} #{}", node.host(), node.rank()),
        };
        DrawnRow { left, count, hosts }
    }

    fn leaves_row(&self, branch: String, range: Range<u32>) -> DrawnRow {
        let (count, hosts) = self.leaves_text(range.clone());
        if range.len() == 1 {
            return DrawnRow {
                left: format!("{branch}{hosts}"),
                count: "leaf".to_owned(),
                hosts: String::new(),
            };
        }
        DrawnRow { left: format!("{branch}leaves"), count, hosts }
    }

    /// How many leaves lie below these neighbours, and their hosts.
    pub(super) fn leaves_text(&self, positions: Range<u32>) -> (String, String) {
        let first = self.nodes[positions.start as usize].leaves_start;
        let end = self.nodes[positions.end as usize - 1].leaves_end;
        let noun = if end - first == 1 { "leaf" } else { "leaves" };
        (format!("{} {noun}", end - first), self.fold_leaves(first..end))
    }
}

impl DrawnItem {
    fn positions(&self) -> Range<u32> {
        match self {
            Self::Leaves(range) | Self::Elided(range, _) => range.clone(),
            Self::Inner(at) => *at..*at + 1,
        }
    }
}

/// A line of at most `columns` characters, with a sign when something is missing.
pub(super) fn cut(line: String, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line;
    }
    line.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

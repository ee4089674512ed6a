//! The tree as DOT (all of it) and as SVG (folded, to look at).
use super::draw::{DrawnItem, cut};
use super::{NodeRef, Role, Topology};
use std::fmt::Write as _;

/// Siblings drawn in one SVG; more are folded in the middle.
const SVG_SIBLINGS_MAX: usize = 9;
/// Levels drawn below the root.
const SVG_LEVELS_MAX: u32 = 4;
/// Characters of a label.
const LABEL_CHARS_MAX: usize = 40;

const ROW_PX: usize = 24;
const COLUMN_PX: usize = 210;
const MARGIN_PX: usize = 16;

impl Topology {
    /// The whole tree in Graphviz' language: `dot -Tpdf`.
    #[must_use]
    pub fn to_dot(&self) -> String {
        self.to_dot_with(&|_| None)
    }

    /// [`Topology::to_dot`] with nodes coloured by rank (`#rrggbb`), where there is a colour.
    #[must_use]
    pub fn to_dot_with(&self, color: &dyn Fn(u32) -> Option<&'static str>) -> String {
        let mut out =
            String::from("digraph sheaf {\n  rankdir=LR;\n  node [shape=box, fontsize=10];\n");
        for node in self.nodes() {
            let shape = if node.role() == Role::Leaf { ", shape=ellipse" } else { "" };
            let host = node.host().replace('\\', "\\\\").replace('"', "\\\"");
            let fill =
                color(node.rank()).map(|color| format!(", style=filled, fillcolor=\"{color}\""));
            let fill = fill.unwrap_or_default();
            let _ = writeln!(
                out,
                "  {} [label=\"{host}\\n#{}\"{shape}{fill}];",
                node.rank(),
                node.rank()
            );
        }
        for node in self.nodes() {
            for child in node.children() {
                let _ = writeln!(out, "  {} -> {};", node.rank(), child.rank());
            }
        }
        out.push_str("}\n");
        out
    }

    /// A picture of the tree, from left to right, with leaves and long rows of siblings folded.
    #[must_use]
    pub fn to_svg(&self) -> String {
        self.to_svg_with(&|_| None)
    }

    /// [`Topology::to_svg`] with nodes coloured by rank (`#rrggbb`), where there is a colour; what
    /// is folded has the colour of the first node in it that has one.
    #[must_use]
    pub fn to_svg_with(&self, color: &dyn Fn(u32) -> Option<&'static str>) -> String {
        let mut picture = Picture { tree: self, color, body: String::new(), rows: 0, columns: 1 };
        picture.node(0, 0);
        let (width, height) = (
            2 * MARGIN_PX + picture.columns * COLUMN_PX,
            2 * MARGIN_PX + (picture.rows.max(1) + 1) * ROW_PX,
        );
        let title = escape(&self.stats().to_string());
        let y = height - MARGIN_PX;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n<title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}\
             <text x=\"{MARGIN_PX}\" y=\"{y}\" fill=\"#666\">{title}</text>\n</svg>\n",
            picture.body
        )
    }
}

struct Picture<'a> {
    tree: &'a Topology,
    color: &'a dyn Fn(u32) -> Option<&'static str>,
    body: String,
    /// Rows used so far.
    rows: usize,
    columns: usize,
}

impl Picture<'_> {
    /// Draws a node and what is below it; gives the height of its middle.
    fn node(&mut self, position: u32, level: u32) -> usize {
        let node = NodeRef { tree: self.tree, position };
        let items = if level < SVG_LEVELS_MAX {
            self.tree.items(position, SVG_SIBLINGS_MAX)
        } else {
            Vec::new()
        };
        let below: Vec<usize> = items.into_iter().map(|item| self.item(item, level + 1)).collect();
        let y = match (below.first(), below.last()) {
            (Some(first), Some(last)) => (first + last) / 2,
            _ => self.next_row(),
        };
        for child_y in below {
            self.edge(level, y, child_y);
        }
        let rank = format!(" #{}", node.rank());
        let (color, rank) =
            if node.role() == Role::Root { ("#b03a2e", "") } else { ("#1f618d", &rank[..]) };
        let color = (self.color)(node.rank()).unwrap_or(color);
        self.label(level, y, color, &format!("{}{rank}", node.host()));
        y
    }

    fn item(&mut self, item: DrawnItem, level: u32) -> usize {
        let colors = |positions: std::ops::Range<u32>| {
            let rank = |position| NodeRef { tree: self.tree, position }.rank();
            positions.map(rank).find_map(|rank| (self.color)(rank))
        };
        let (label, color) = match item {
            DrawnItem::Inner(position) => return self.node(position, level),
            DrawnItem::Leaves(range) => {
                let (count, hosts) = self.tree.leaves_text(range.clone());
                (format!("{hosts} · {count}"), colors(range).unwrap_or("#1e8449"))
            }
            DrawnItem::Elided(range, inner) => {
                let (count, _) = self.tree.leaves_text(range.clone());
                (format!("… {inner} more inner nodes · {count}"), colors(range).unwrap_or("#888"))
            }
        };
        let y = self.next_row();
        self.label(level, y, color, &label);
        y
    }

    fn next_row(&mut self) -> usize {
        self.rows += 1;
        MARGIN_PX + self.rows * ROW_PX - ROW_PX / 2
    }

    fn edge(&mut self, level: u32, y: usize, child_y: usize) {
        let (from, to) = (self.x(level), self.x(level + 1));
        let middle = to - COLUMN_PX / 4;
        let _ = writeln!(
            self.body,
            "<path d=\"M{from} {y}H{}C{middle} {y} {middle} {child_y} {to} {child_y}\" fill=\"none\" stroke=\"#bbb\"/>",
            from + COLUMN_PX / 2,
        );
    }

    fn label(&mut self, level: u32, y: usize, color: &str, text: &str) {
        self.columns = self.columns.max(level as usize + 1);
        let text = escape(&cut(text.to_owned(), LABEL_CHARS_MAX));
        let x = self.x(level);
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"4\" fill=\"{color}\"/><text x=\"{}\" y=\"{}\" stroke=\"white\" \
             stroke-width=\"3\" paint-order=\"stroke\">{text}</text>",
            x + 8,
            y + 4,
        );
    }

    fn x(&self, level: u32) -> usize {
        MARGIN_PX + level as usize * COLUMN_PX
    }
}

/// Text for XML. Control characters, which XML cannot carry, become question marks.
fn escape(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

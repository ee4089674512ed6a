//! MRNet's topology files: `host:n => host:n host:n … ;`, one parent in each statement.
use super::{NODES_MAX, Role, Topology, TopologyError};
use rustc_hash::FxHashMap;
use std::fmt::Write as _;

/// Where printed statements are broken.
const LINE_BYTES: usize = 100;

impl Topology {
    /// Reads a topology file. `#` starts a comment; `host:n ;` is a node without children; all
    /// nodes must make one tree, whose root may stand anywhere.
    ///
    /// ```
    /// use sheaf_proto::topology::Topology;
    /// let tree = Topology::from_file("login:0 => n1:0 n2:0 ; n2:0 => n3:0 n4:0 ; # two levels")?;
    /// assert_eq!(tree.stats().to_string(), "3 leaves, 1 inner node (25.0 %), depth 2, fan-out 2");
    /// assert_eq!(tree.leaf_hosts().to_string(), "n[1,3-4]");
    /// # Ok::<(), sheaf_proto::topology::TopologyError>(())
    /// ```
    ///
    /// # Errors
    /// [`TopologyError::File`] with line and column.
    pub fn from_file(text: &str) -> Result<Self, TopologyError> {
        let mut parser =
            Parser { tokens: FileTokens { rest: text, line: 1, column: 1 }, ..Parser::default() };
        while parser.statement()? {}
        parser.tree()
    }

    /// The tree as a topology file. `n` counts the nodes on one host.
    #[must_use]
    pub fn to_file(&self) -> String {
        let mut on_host: FxHashMap<String, u32> = FxHashMap::default();
        let names: Vec<String> = self
            .nodes()
            .map(|node| {
                let host = node.host();
                let count = on_host.entry(host.clone()).or_default();
                *count += 1;
                format!("{host}:{}", *count - 1)
            })
            .collect();
        let mut out = String::new();
        for node in self.nodes().filter(|node| node.role() != Role::Leaf) {
            let mut line = out.len();
            out.push_str(&names[node.position as usize]);
            if node.children().len() > 0 {
                out.push_str(" =>");
            }
            for child in node.children() {
                let name = &names[child.position as usize];
                if out.len() + name.len() + 3 > line + LINE_BYTES {
                    line = out.len() + 1;
                    out.push_str("\n   ");
                }
                let _ = write!(out, " {name}");
            }
            out.push_str(" ;\n");
        }
        out
    }
}

/// Where something stands in the text.
#[derive(Debug, Clone, Copy, Default)]
struct FilePosition {
    line: usize,
    column: usize,
}

impl FilePosition {
    fn error(self, message: impl Into<String>) -> TopologyError {
        TopologyError::File { line: self.line, column: self.column, message: message.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileToken<'a> {
    Name(&'a str),
    Arrow,
    End,
}

impl std::fmt::Display for FileToken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileToken::Name(name) => write!(f, "{name:?}"),
            FileToken::Arrow => f.write_str("\"=>\""),
            FileToken::End => f.write_str("\";\""),
        }
    }
}

#[derive(Default)]
struct FileTokens<'a> {
    rest: &'a str,
    line: usize,
    column: usize,
}

impl<'a> FileTokens<'a> {
    /// The next token and where it starts; none at the end of the text.
    fn next(&mut self) -> (Option<FileToken<'a>>, FilePosition) {
        loop {
            let blank = self.rest.find(|c: char| !c.is_whitespace()).unwrap_or(self.rest.len());
            self.take(blank);
            if !self.rest.starts_with('#') {
                break;
            }
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
        let at = FilePosition { line: self.line, column: self.column };
        let token = match self.rest.as_bytes() {
            [] => return (None, at),
            [b';', ..] => {
                self.take(1);
                FileToken::End
            }
            [b'=', b'>', ..] => {
                self.take(2);
                FileToken::Arrow
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '#' | '=');
                let end = self.rest.find(ends).unwrap_or(self.rest.len());
                // A lone `=` ends the name before its first character. Taken as a name, it is
                // reported.
                FileToken::Name(self.take(end.max(1)))
            }
        };
        (Some(token), at)
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        match taken.rfind('\n') {
            None => self.column += taken.chars().count(),
            Some(newline) => {
                self.line += taken.matches('\n').count();
                self.column = 1 + taken[newline + 1..].chars().count();
            }
        }
        taken
    }
}

#[derive(Default)]
struct Parser<'a> {
    tokens: FileTokens<'a>,
    by_name: FxHashMap<(&'a str, u32), u32>,
    nodes: Vec<FileNode<'a>>,
}

struct FileNode<'a> {
    host: &'a str,
    number: u32,
    /// Where it is first mentioned.
    at: FilePosition,
    /// Where it is somebody's child.
    child_at: Option<FilePosition>,
    /// Where its own statement is, and its children there.
    own_at: Option<FilePosition>,
    children: Vec<u32>,
}

impl<'a> Parser<'a> {
    /// Reads `parent => child… ;` or `node ;`; false at the end of the text.
    fn statement(&mut self) -> Result<bool, TopologyError> {
        let (token, at) = self.tokens.next();
        let parent = match token {
            None => return Ok(false),
            Some(FileToken::Name(name)) => self.node(name, at)?,
            Some(other) => {
                return Err(at.error(format!("a statement starts with host:n, not {other}")));
            }
        };
        if let Some(before) = self.nodes[parent as usize].own_at {
            let name = self.name(parent);
            return Err(
                at.error(format!("{name} already has a statement, on line {}", before.line))
            );
        }
        self.nodes[parent as usize].own_at = Some(at);
        match self.tokens.next() {
            (Some(FileToken::End), _) => Ok(true),
            (Some(FileToken::Arrow), _) => self.children(parent).map(|()| true),
            (Some(other), at) => Err(at.error(format!("expected \"=>\" or \";\", not {other}"))),
            (None, at) => Err(at.error("the file ends before the \";\" of a statement")),
        }
    }

    fn children(&mut self, parent: u32) -> Result<(), TopologyError> {
        loop {
            let (token, at) = self.tokens.next();
            match token {
                Some(FileToken::Name(name)) => {
                    let child = self.node(name, at)?;
                    if let Some(before) = self.nodes[child as usize].child_at.replace(at) {
                        let name = self.name(child);
                        let message =
                            format!("{name} already has a parent, on line {}", before.line);
                        return Err(at.error(message));
                    }
                    self.nodes[parent as usize].children.push(child);
                }
                Some(FileToken::End) if self.nodes[parent as usize].children.is_empty() => {
                    return Err(at.error("no child follows the \"=>\""));
                }
                Some(FileToken::End) => return Ok(()),
                Some(FileToken::Arrow) => {
                    return Err(at.error("a second \"=>\"; is a \";\" missing before it?"));
                }
                None => return Err(at.error("the file ends before the \";\" of a statement")),
            }
        }
    }

    fn node(&mut self, name: &'a str, at: FilePosition) -> Result<u32, TopologyError> {
        let (host, number) = name
            .rsplit_once(':')
            .filter(|(host, number)| {
                !host.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
            .and_then(|(host, number)| Some((host, number.parse().ok()?)))
            .ok_or_else(|| at.error(format!("expected host:n, not {name:?}")))?;
        if self.nodes.len() >= NODES_MAX as usize {
            return Err(TopologyError::TooManyNodes);
        }
        if host.len() > super::NAME_BYTES_MAX {
            return Err(
                at.error(format!("a host name has at most {} bytes", super::NAME_BYTES_MAX))
            );
        }
        let next = self.nodes.len() as u32;
        let index = *self.by_name.entry((host, number)).or_insert(next);
        if index == next {
            let (child_at, own_at, children) = (None, None, Vec::new());
            self.nodes.push(FileNode { host, number, at, child_at, own_at, children });
        }
        Ok(index)
    }

    fn name(&self, node: u32) -> String {
        let node = &self.nodes[node as usize];
        format!("{}:{}", node.host, node.number)
    }

    fn tree(self) -> Result<Topology, TopologyError> {
        let mut roots =
            (0..self.nodes.len() as u32).filter(|&at| self.nodes[at as usize].child_at.is_none());
        let Some(root) = roots.next() else {
            return Err(match self.nodes.first() {
                None => FilePosition { line: 1, column: 1 }.error("the file names no node"),
                Some(first) => first.at.error("every node has a parent: there is no root"),
            });
        };
        if let Some(second) = roots.next() {
            let message = format!("{} is not connected to {}", self.name(second), self.name(root));
            return Err(self.nodes[second as usize].at.error(message));
        }
        let mut order = vec![root];
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            order.extend(&self.nodes[node as usize].children);
            next += 1;
        }
        // Every node except the root has a parent, so nodes that were not reached form a circle.
        if order.len() < self.nodes.len() {
            let mut reached = vec![false; self.nodes.len()];
            order.iter().for_each(|&node| reached[node as usize] = true);
            let cut_off = reached.iter().position(|reached| !reached).unwrap_or(0);
            let message = format!("{} is its own ancestor", self.name(cut_off as u32));
            return Err(self.nodes[cut_off].at.error(message));
        }
        self.build(&order)
    }

    fn build(&self, order: &[u32]) -> Result<Topology, TopologyError> {
        let counts: Vec<u32> =
            order.iter().map(|&node| self.nodes[node as usize].children.len() as u32).collect();
        let hosts: Vec<&str> = order.iter().map(|&node| self.nodes[node as usize].host).collect();
        Topology::of(&counts, &hosts)
    }
}

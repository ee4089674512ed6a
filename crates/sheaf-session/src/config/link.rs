//! What joins the nodes of a tree.
use std::fmt;
use std::str::FromStr;

/// How nodes are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChoice {
    /// To other hosts TCP with TLS, and where that does not get through the ssh connections that
    /// start them; on one machine unix sockets.
    Auto,
    /// The ssh connections that start nodes.
    Ssh,
    /// TCP that anybody who may look at the machine's traffic can read.
    Tcp,
    /// TCP with TLS.
    Tls,
    /// Sockets of one machine.
    Unix,
}

impl LinkChoice {
    /// Every way there is, by its name.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("ssh", Self::Ssh),
        ("tcp", Self::Tcp),
        ("tls", Self::Tls),
        ("unix", Self::Unix),
    ];
}

impl fmt::Display for LinkChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, link)| link == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for LinkChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        super::launch::one_of(text, &Self::NAMES)
    }
}

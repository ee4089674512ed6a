//! Answers of hosts.
use crate::text::Base64;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io;

/// One answer of a set of hosts: grep, cat, ls, stat, du, sha, read, and -v of commands that change
/// files.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "entry")]
pub struct Entry {
    /// The hosts, folded.
    pub hosts: String,
    /// The number of hosts.
    pub count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<Base64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<Base64>,
    /// grep: the kind of the result. stat: the kind of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// grep -n.
    #[cfg_attr(test, schemars(range(min = 1)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
    /// grep -c: the number of selected lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected: Option<u64>,
    /// grep -A, -B, -C: a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<BlockLine>>,
    /// cat: the offset in the content at which this part begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// cat: whether this part is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<bool>,
    /// ls: the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<Base64>,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_base64: Option<Base64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// ls: rwxr-xr-x with the kind in front. stat: octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u64>,
    /// Bytes. du: the disk space of the file, or with --apparent-size its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// du -c: the size is the sum of all.
    #[cfg_attr(test, schemars(extend("const" = true)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_block: Option<u64>,
    /// The time of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accessed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub born: Option<String>,
    /// stat -f.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// sha -c: whether the digest is that of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    #[serde(flatten)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Numbers>,
}

/// The file system of a file. Numbers of blocks are multiples of fundamental_block_bytes.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct FileSystem {
    /// Hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fundamental_block_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_free: Option<u64>,
    /// Blocks that an unprivileged user can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_available: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
}

/// The bytes of the line that match. The line feed is not counted.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Match {
    pub start: u64,
    pub end: u64,
}

/// A line of a block.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct BlockLine {
    #[cfg_attr(test, schemars(range(min = 1)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<Base64>,
    pub selected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
}

/// The numbers of read, and the places at which they are.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Numbers {
    /// read: the numbers.
    pub numbers: Vec<ExactNumber>,
    /// read: the places of the numbers, and the hosts without a number there.
    pub places: Vec<Place>,
}

/// A place with a number, and the hosts without a number there.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Place {
    pub line: u64,
    pub column: u64,
    pub number: ExactNumber,
    /// The text of the line that all files share, without its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub members: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_hosts: Option<String>,
}

/// An algorithm of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, schemars(inline))]
pub enum Algorithm {
    Sha256,
    Sha512,
    Blake3,
}

/// grep --stats.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "stats")]
pub struct Stats {
    pub searches: u64,
    pub searches_with_match: u64,
    pub matched_lines: u64,
    pub bytes_searched: u64,
}

/// grep --stats.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "costs")]
pub struct Costs {
    /// Seconds until the first request.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub init_s: f64,
    /// Seconds until the last answer.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub read_s: f64,
    /// Bytes that the root received.
    pub root_bytes: u64,
}

/// The device of a file: stat: the device that contains it. ls: the two numbers of a device file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
#[serde(untagged)]
pub enum Device {
    Number(u64),
    Numbers(String),
}

/// A number with all its digits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ExactNumber {
    Integer(i128),
    Float(f64),
    /// A number that JSON does not have.
    NotFinite(String),
}

impl Numbers {
    /// The numbers as JSON. A [`serde_json::Value`] has no integers of 128 bits.
    ///
    /// # Errors
    /// Those of `serde_json`.
    pub fn to_json(&self) -> serde_json::Result<String> {
        exact_json(self)
    }
}

fn exact_json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, ShortFloats))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Writes whole floats without a fraction.
struct ShortFloats;

impl Formatter for ShortFloats {
    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let text = format!("{value:?}");
        writer.write_all(text.strip_suffix(".0").unwrap_or(&text).as_bytes())
    }
}

#[cfg(test)]
impl schemars::JsonSchema for ExactNumber {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "exact_number".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Exact: integers of up to 128 bits. A number that is not finite is a string.",
            "type": ["number", "string"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_every_digit() {
        for (number, text) in [
            (ExactNumber::Integer(123_456_789_012_345), "123456789012345"),
            (ExactNumber::Integer(i128::MAX), "170141183460469231731687303715884105727"),
            (ExactNumber::Float(0.1 + 0.2), "0.30000000000000004"),
            (ExactNumber::Float(1e300), "1e300"),
            (ExactNumber::Float(2.0), "2"),
            (ExactNumber::Float(-0.5), "-0.5"),
            (ExactNumber::NotFinite("inf".to_owned()), "\"inf\""),
        ] {
            assert_eq!(exact_json(&number).unwrap(), text);
        }
    }
}

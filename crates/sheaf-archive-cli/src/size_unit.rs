//! Units that sizes are written in, as `du` and `ls` of GNU have them.
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use sheaf_cli::size;
use sheaf_tools::report::human;

/// How sizes are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeUnit {
    /// As 4.0K, 234M, 2.1G.
    Human,
    /// In units of so many bytes, rounded up, with a text behind the number.
    Blocks { bytes: u64, suffix: String },
}

impl SizeUnit {
    /// Units of so many bytes.
    pub const fn blocks(bytes: u64) -> Self {
        Self::Blocks { bytes, suffix: String::new() }
    }

    /// Writes a number of bytes.
    pub fn format(&self, bytes: u64) -> String {
        match self {
            Self::Human => human::size(bytes),
            Self::Blocks { bytes: unit, suffix } => format!("{}{suffix}", bytes.div_ceil(*unit)),
        }
    }

    /// Reads what stands behind `-B`: a unit alone is written behind each number, too.
    fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && "human-readable".starts_with(text) {
            return Ok(Self::Human);
        }
        let is_unit = text.starts_with(|letter: char| letter.is_ascii_alphabetic());
        let bytes = size::bytes(&if is_unit { format!("1{text}") } else { text.to_owned() })?;
        if bytes == 0 {
            return Err("sizes cannot be in units of 0 bytes".to_owned());
        }
        let suffix = match text.chars().next().filter(|_| is_unit) {
            None => String::new(),
            Some(letter) => {
                let is_small = bytes == 1000;
                let letter = letter.to_ascii_uppercase();
                let letter = if is_small { 'k' } else { letter };
                format!("{letter}{}", &text[1..])
            }
        };
        Ok(Self::Blocks { bytes, suffix })
    }
}

/// The unit of `du`: the last of the options for it says which.
#[derive(Debug)]
pub struct UsageUnit {
    pub unit: SizeUnit,
    /// `-b` was given, also where it is not the last.
    pub is_apparent: bool,
    /// The option that says the unit, if it is one that is not `-h`, `-b` or `-k`.
    pub odd: Option<&'static str>,
}

/// The options that say a unit, and what they are without a value.
const UNITS: [(&str, SizeUnit); 4] = [
    ("human_readable", SizeUnit::Human),
    ("bytes", SizeUnit::blocks(1)),
    ("kib", SizeUnit::blocks(1 << 10)),
    ("mib", SizeUnit::blocks(1 << 20)),
];

impl Args for UsageUnit {
    fn augment_args(command: Command) -> Command {
        let flag = |id: &'static str, short, help: &'static str| {
            Arg::new(id).short(short).action(ArgAction::SetTrue).overrides_with(id).help(help)
        };
        let parse = |text: &str| SizeUnit::parse(text);
        command
            .arg(flag("human_readable", 'h', "Sizes as 4.0K, 234M, 2.1G").long("human-readable"))
            .arg(flag("bytes", 'b', "Sizes of contents in bytes").long("bytes"))
            .arg(flag("kib", 'k', "Sizes in KiB, as they are without it"))
            .arg(flag("mib", 'm', "Sizes in MiB"))
            .arg(
                Arg::new("block_size")
                    .short('B')
                    .long("block-size")
                    .value_name("SIZE")
                    .value_parser(parse)
                    .overrides_with("block_size")
                    .help("Sizes in units of SIZE: 512, 4K, 1MB, or M, which is written, too"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for UsageUnit {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let place = |id: &str| {
            let is_given = matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
            is_given.then(|| matches.indices_of(id)?.max()).flatten()
        };
        let flags = UNITS.into_iter().map(|(id, unit)| (place(id), (id, unit)));
        let of_size = matches.get_one::<SizeUnit>("block_size").cloned();
        let of_size = of_size.map(|unit| (place("block_size"), ("block_size", unit)));
        let last = flags.chain(of_size).filter(|(place, _)| place.is_some());
        let (id, unit) = last
            .max_by_key(|(place, _)| *place)
            .map_or(("", SizeUnit::blocks(1 << 10)), |(_, last)| last);
        let odd = match id {
            "mib" => Some("-m"),
            "block_size" => Some("--block-size"),
            _ => None,
        };
        Ok(Self { unit, is_apparent: place("bytes").is_some(), odd })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads a threshold of `du`: sizes from it on, or with `-` before it up to it.
pub fn threshold(text: &str) -> Result<i64, String> {
    let (is_most, number) = match text.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, text),
    };
    let bytes = i64::try_from(size::bytes(number)?).map_err(|error| error.to_string())?;
    match (is_most, bytes) {
        (true, 0) => Err("nothing is that small".to_owned()),
        (true, _) => Ok(-bytes),
        (false, _) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_du() {
        for (text, bytes, written) in [
            ("1", 91_000, "91000"),
            ("512", 513, "2"),
            ("K", 4097, "5K"),
            ("k", 4097, "5K"),
            ("KB", 4097, "5kB"),
            ("kB", 4097, "5kB"),
            ("MiB", 1, "1MiB"),
            ("MB", 1_000_001, "2MB"),
            ("1M", 0, "0"),
            ("h", 4096, "4.0K"),
        ] {
            assert_eq!(SizeUnit::parse(text).unwrap().format(bytes), written, "{text}");
        }
        for wrong in ["", "0", "x", "1x", "10M5", "-1"] {
            assert!(SizeUnit::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!((threshold("4K"), threshold("-4K")), (Ok(4096), Ok(-4096)));
        assert!(threshold("-0").is_err() && threshold("").is_err() && threshold("--1").is_err());
    }
}

//! What a library of tapes is like, and what was done in it.
use std::time::Duration;

/// A library of tapes. The times are about those of LTO-9, on a tape that is one line: a real one goes
/// to and fro, so that what is far away by its number may lie near.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TapeSettings {
    /// Bytes that a cartridge has.
    pub cartridge_bytes: u64,
    /// Drives.
    pub drives: usize,
    /// How long it takes to fetch a cartridge and load it.
    pub load: Duration,
    /// How long it takes to put back one that is rewound.
    pub unload: Duration,
    /// How long it takes to begin to move.
    pub start: Duration,
    /// How long it takes to move past a GB.
    pub pass_gb: Duration,
    /// Bytes a second that are read or written.
    pub rate: u64,
    /// How much of these times is waited: with 0 nothing, and they are only counted.
    pub time_scale: f64,
    /// How long it is waited, really, for others who ask for the cartridge that is loaded.
    pub gather: Duration,
    /// Bytes of objects that were recalled and are kept on the disk meanwhile.
    pub stage_bytes: u64,
}

impl Default for TapeSettings {
    fn default() -> Self {
        Self {
            cartridge_bytes: 18_000_000_000_000,
            drives: 2,
            load: Duration::from_secs(25),
            unload: Duration::from_secs(25),
            start: Duration::from_secs(2),
            pass_gb: Duration::from_micros(5600),
            rate: 400_000_000,
            time_scale: 0.0,
            gather: Duration::from_millis(20),
            stage_bytes: 10_000_000_000,
        }
    }
}

impl TapeSettings {
    /// What a file of lines `name value` says; other names and values are none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut settings = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(' ')?;
            let number = || value.parse().ok();
            let time =
                || value.parse().ok().and_then(|time| Duration::try_from_secs_f64(time).ok());
            match name {
                "cartridge_bytes" => {
                    settings.cartridge_bytes = number().filter(|bytes| *bytes > 0)?
                }
                "drives" => settings.drives = value.parse().ok().filter(|drives| *drives > 0)?,
                "load_seconds" => settings.load = time()?,
                "unload_seconds" => settings.unload = time()?,
                "start_seconds" => settings.start = time()?,
                "seconds_per_gb_passed" => settings.pass_gb = time()?,
                "bytes_per_second" => settings.rate = number().filter(|rate| *rate > 0)?,
                "time_scale" => {
                    let is_scale = |scale: &f64| (0.0..=1.0).contains(scale);
                    settings.time_scale = value.parse().ok().filter(is_scale)?;
                }
                "gather_seconds" => settings.gather = time()?,
                "stage_bytes" => settings.stage_bytes = number()?,
                _ => return None,
            }
        }
        Some(settings)
    }

    /// As lines that [`TapeSettings::parse`] reads.
    pub(super) fn text(&self) -> String {
        format!(
            "cartridge_bytes {}\ndrives {}\nload_seconds {}\nunload_seconds {}\nstart_seconds {}\n\
             seconds_per_gb_passed {}\nbytes_per_second {}\ntime_scale {}\ngather_seconds {}\n\
             stage_bytes {}\n",
            self.cartridge_bytes,
            self.drives,
            self.load.as_secs_f64(),
            self.unload.as_secs_f64(),
            self.start.as_secs_f64(),
            self.pass_gb.as_secs_f64(),
            self.rate,
            self.time_scale,
            self.gather.as_secs_f64(),
            self.stage_bytes,
        )
    }

    /// How long it takes to move past so many bytes.
    pub(super) fn moving(&self, bytes: u64) -> Duration {
        self.start + self.pass_gb.mul_f64(bytes as f64 / 1e9)
    }

    /// How long it takes to read or write them.
    pub(super) fn streaming(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate as f64)
    }
}

/// What was done in a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapeCounters {
    /// Cartridges that were loaded.
    pub mounts: u64,
    /// Times that a tape was moved to where something is.
    pub seeks: u64,
    /// Times that one was moved back: to its begin, or to something before where it was.
    pub rewinds: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// How long drives were busy, all together and unscaled.
    pub busy: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_lines() {
        let settings = TapeSettings { drives: 7, time_scale: 0.25, ..TapeSettings::default() };
        assert_eq!(TapeSettings::parse(&settings.text()), Some(settings));
        assert_eq!(TapeSettings::parse(""), Some(TapeSettings::default()));
        for text in ["drives", "drives 0", "drives x", "time_scale 2", "load_seconds -1", "x 1"] {
            assert_eq!(TapeSettings::parse(text), None, "{text}");
        }
    }
}

//! The `[tuning]` section: every setting once, with its bounds.
use super::Sourced;

/// What is known of one setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name in `[tuning]`.
    pub name: &'static str,
    /// The least value.
    pub min: u64,
    /// The greatest.
    pub max: u64,
}

macro_rules! settings {
    ($($(#[doc = $what:literal])+ $name:ident = $default:literal, $min:literal..=$max:literal;)*) => {
        /// The limits and intervals of a tree.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $($(#[doc = $what])+ pub $name: Sourced<u64>,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($name: Sourced::default($default),)* }
            }
        }

        /// Every setting, in the order they are shown.
        pub const SETTINGS: &[Setting] = &[
            $(Setting { name: stringify!($name), min: $min, max: $max },)*
        ];

        impl Settings {
            /// The setting of this name.
            pub fn get(&self, name: &str) -> Option<&Sourced<u64>> {
                match name { $(stringify!($name) => Some(&self.$name),)* _ => None }
            }

            /// The setting of this name, to be changed.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut Sourced<u64>> {
                match name { $(stringify!($name) => Some(&mut self.$name),)* _ => None }
            }
        }
    };
}

settings! {
    /// How long a host may take to answer before it counts as silent; `--timeout` goes before it.
    timeout_ms = 30_000, 10..=86_400_000;
    /// How long a node may take to start and join.
    start_timeout_ms = 30_000, 100..=3_600_000;
    /// Pause between two heartbeats of an idle link.
    heartbeat_ms = 500, 20..=60_000;
    /// Heartbeats missed in a row before a link counts as lost.
    heartbeats_lost_max = 12, 2..=100;
    /// Bytes of one stream under way on one link.
    window_bytes = 1_048_576, 65_536..=67_108_864;
    /// Bytes a concatenating read may bring to the root.
    concatenate_bytes_max = 67_108_864, 1_024..=17_179_869_184;
    /// How long a connection of ssh may take.
    ssh_connect_timeout_ms = 10_000, 1_000..=600_000;
    /// How long a host may take from the beginning until the user is logged in.
    ssh_login_timeout_ms = 20_000, 1_000..=600_000;
    /// How often a connection of ssh that failed is tried again.
    ssh_retries = 1, 0..=20;
    /// Connections of ssh that one node makes at a time.
    ssh_starts_max = 32, 1..=1_024;
    /// Pause before a lost host is started again, when ssh starts hosts; 0 for never.
    relaunch_ms = 5_000, 0..=3_600_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_bounds() {
        let tuning = Settings::default();
        for setting in SETTINGS {
            let default = tuning.get(setting.name).unwrap().value;
            assert!((setting.min..=setting.max).contains(&default), "{}", setting.name);
        }
    }
}

//! Times as options of `sheaf trace` have them: numbers, of which the option says the unit.
use std::time::Duration;

/// What people write behind numbers, and how many seconds each is.
const UNITS: [(&str, f64); 9] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("min", 60.0),
    ("sec", 1.0),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];
/// The longest time that is waited for, in seconds: a year.
const SECONDS_MAX: f64 = 31_536_000.0;
/// The longest that an operation is slow from, in ms: a day.
const SLOW_MAX_MS: f64 = 86_400_000.0;

/// Parses how long something goes on, in seconds: `60`, `0.5`, and `0`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = number(text, "seconds", 1.0)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds <= SECONDS_MAX => Ok(time),
        _ => Err(format!("it has to be from 0 to {SECONDS_MAX} seconds")),
    }
}

/// Parses a time of operations, in milliseconds: `200`, `0.5`.
pub fn milliseconds(text: &str) -> Result<Duration, String> {
    let ms = number(text, "milliseconds", 1e-3)?;
    let time = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    if time.is_zero() || ms > SLOW_MAX_MS {
        return Err(format!("it has to be more than 0 and at most {SLOW_MAX_MS} milliseconds"));
    }
    Ok(time)
}

/// A number; where a unit is behind it, what to write in place of that.
fn number(text: &str, unit: &str, unit_s: f64) -> Result<f64, String> {
    if let Some(number) = text.parse::<f64>().ok().filter(|number| number.is_finite()) {
        return Ok(number);
    }
    let of = |(name, seconds): &(&str, f64)| {
        Some(text.strip_suffix(name)?.trim().parse::<f64>().ok()? * seconds)
    };
    let meant = UNITS.iter().find_map(of).filter(|seconds| seconds.is_finite());
    let meant = meant.map(|seconds| format!(": write {}", rounded(seconds / unit_s)));
    Err(format!("it has to be a number of {unit}, without a unit{}", meant.unwrap_or_default()))
}

/// Without what binary fractions add: nobody writes more than nine places.
fn rounded(number: f64) -> f64 {
    const PLACES: f64 = 1e9;
    (number * PLACES).round() / PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_refused_with_what_to_write() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert_eq!(milliseconds("0.5"), Ok(Duration::from_micros(500)));
        let told =
            |meant: &str| Err(format!("it has to be a number of seconds, without a unit{meant}"));
        for (text, meant) in [
            ("2s", ": write 2"),
            ("500ms", ": write 0.5"),
            ("1.5h", ": write 5400"),
            ("x", ""),
            ("nan", ""),
        ] {
            assert_eq!(seconds(text), told(meant));
        }
        let told = "it has to be a number of milliseconds, without a unit: write 2000";
        assert_eq!(milliseconds("2s"), Err(told.to_owned()));
        for text in ["-1", "1e300"] {
            assert_eq!(seconds(text), Err("it has to be from 0 to 31536000 seconds".to_owned()));
        }
        for text in ["-5", "0", "1e300", "86400001"] {
            let told = "it has to be more than 0 and at most 86400000 milliseconds";
            assert_eq!(milliseconds(text), Err(told.to_owned()));
        }
    }
}

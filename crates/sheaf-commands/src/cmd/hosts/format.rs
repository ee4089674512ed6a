//! The small languages of `--output-format` and `--separator`.
use anyhow::{Result, bail};

/// A format such as `%s-ib0` or `%-12s`: text around one conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostsFormat {
    before: String,
    conversion: Conversion,
    after: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    numeric: bool,
}

/// The widest a value is padded to.
const WIDTH_MAX: usize = 4096;

impl HostsFormat {
    /// Reads a format. `%s` is the value, `%d` a count, `%%` a percent sign.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut before, mut after, mut found) = (String::new(), String::new(), None);
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            let side = if found.is_some() { &mut after } else { &mut before };
            match char {
                '%' if chars.next_if_eq(&'%').is_some() => side.push('%'),
                '%' if found.is_some() => {
                    bail!("output format '{text}' has more than one conversion")
                }
                '%' => found = Some(conversion(&mut chars, text)?),
                char => side.push(char),
            }
        }
        let Some(conversion) = found else { bail!("output format '{text}' has no %s") };
        Ok(Self { before, conversion, after })
    }

    /// Whether it changes nothing.
    pub fn is_plain(&self) -> bool {
        self.before.is_empty() && self.after.is_empty() && self.conversion == Conversion::default()
    }

    /// The text with a name or a set put in.
    pub fn name(&self, value: &str) -> Result<String> {
        if self.conversion.numeric {
            bail!("the output format wants a number; use %s");
        }
        let cut: String = match self.conversion.precision {
            Some(chars) => value.chars().take(chars).collect(),
            None => value.to_owned(),
        };
        Ok(self.around(&cut, ' '))
    }

    /// The text with a count put in.
    pub fn count(&self, value: usize) -> Result<String> {
        if !self.conversion.numeric {
            return self.name(&value.to_string());
        }
        let digits = self.conversion.precision.unwrap_or(1).min(WIDTH_MAX);
        let sign = if self.conversion.plus { "+" } else { "" };
        let fill = if self.conversion.zeros && !self.conversion.left { '0' } else { ' ' };
        Ok(self.around(&format!("{sign}{value:0digits$}"), fill))
    }

    fn around(&self, value: &str, fill: char) -> String {
        let missing = self.conversion.width.saturating_sub(value.chars().count());
        let padding: String = std::iter::repeat_n(fill, missing).collect();
        let Self { before, after, .. } = self;
        match (self.conversion.left, value.strip_prefix('+').filter(|_| fill == '0')) {
            (true, _) => format!("{before}{value}{padding}{after}"),
            (false, Some(digits)) => format!("{before}+{padding}{digits}{after}"),
            (false, None) => format!("{before}{padding}{value}{after}"),
        }
    }
}

fn conversion(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    text: &str,
) -> Result<Conversion> {
    let mut conversion = Conversion::default();
    while let Some(flag) = chars.next_if(|char| "-0+ #".contains(*char)) {
        match flag {
            '-' => conversion.left = true,
            '0' => conversion.zeros = true,
            '+' => conversion.plus = true,
            _ => {}
        }
    }
    conversion.width = number(chars);
    if chars.next_if_eq(&'.').is_some() {
        conversion.precision = Some(number(chars));
    }
    match chars.next() {
        // The zero flag pads numbers only.
        Some('s') => conversion.zeros = false,
        Some('d' | 'i' | 'u') => conversion.numeric = true,
        Some(other) => bail!("output format '{text}': unknown conversion '%{other}'"),
        None => bail!("output format '{text}' ends within a conversion"),
    }
    Ok(conversion)
}

/// The digits that come next, as far as a width goes.
fn number(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> usize {
    let mut value = 0;
    while let Some(digit) = chars.peek().and_then(|char| char.to_digit(10)) {
        value = (value * 10 + digit as usize).min(WIDTH_MAX);
        chars.next();
    }
    value
}

/// A separator with its escapes, such as `\n` and `\t`, replaced. An unknown escape stays.
pub fn separator(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('a') => out.push('\x07'),
            Some('b') => out.push('\x08'),
            Some('f') => out.push('\x0c'),
            Some('v') => out.push('\x0b'),
            Some(quoted @ ('\\' | '\'' | '"')) => out.push(quoted),
            Some('\n') => {}
            Some('x') => out.push(code(&mut chars, 2, 16, text)?),
            Some('u') => out.push(code(&mut chars, 4, 16, text)?),
            Some('U') => out.push(code(&mut chars, 8, 16, text)?),
            Some(digit @ '0'..='7') => {
                let mut value = digit as u32 - '0' as u32;
                for _ in 0..2 {
                    let Some(next) = chars.peek().and_then(|char| char.to_digit(8)) else { break };
                    value = value * 8 + next;
                    chars.next();
                }
                out.extend(char::from_u32(value));
            }
            Some(other) => out.extend(['\\', other]),
            None => bail!("separator '{text}' ends with a backslash"),
        }
    }
    Ok(out)
}

fn code(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    digits: usize,
    radix: u32,
    text: &str,
) -> Result<char> {
    let code: String = chars.take(digits).collect();
    let value = u32::from_str_radix(&code, radix).ok().filter(|_| code.chars().count() == digits);
    match value.and_then(char::from_u32) {
        Some(char) => Ok(char),
        None => bail!("separator '{text}' has a malformed escape"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_python_does() {
        let name = |format: &str| HostsFormat::parse(format).unwrap().name("n12").unwrap();
        assert_eq!(name("%s"), "n12");
        assert_eq!(name("<%s>%%"), "<n12>%");
        assert_eq!(name("%-5s|"), "n12  |");
        assert_eq!(name("%05s|"), "  n12|");
        assert_eq!(name("%.2s"), "n1");
        let count = |format: &str| HostsFormat::parse(format).unwrap().count(7).unwrap();
        assert_eq!(
            ["%s", "%05d", "%+d", "%+04d", "%-4d|", "%.3d", "%3s"].map(count),
            ["7", "00007", "+7", "+007", "7   |", "007", "  7"]
        );
    }

    #[test]
    fn bad_formats_are_errors() {
        for format in ["", "x", "%s%s", "%", "%q", "%5"] {
            assert!(HostsFormat::parse(format).is_err(), "{format}");
        }
        assert!(HostsFormat::parse("%d").unwrap().name("n1").is_err());
    }

    #[test]
    fn separators_know_escapes() {
        assert_eq!(separator(r"\n\t,\x41\101\0\\\q").unwrap(), "\n\t,AA\0\\\\q");
        assert!(
            separator("\\").is_err() && separator(r"\x1").is_err() && separator(r"\ud800").is_err()
        );
    }
}

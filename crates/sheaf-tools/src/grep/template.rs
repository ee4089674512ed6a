//! Holes for what only tells hosts apart, so that lines equal but for it become equal.
use regex::bytes::Regex;
use std::fmt::Write;

/// Replaces host-specific parts of lines by `{host}` `{uuid}` `{mac}` `{time}` `{ip}` `{pid}`
/// `{hex}` and `{num}`, in this order of preference where several would fit. `{hex}` is a word of at
/// least 8 hexadecimal digits, letters among them.
///
/// A number is replaced where it stands for itself, not as the tail of a name: `eth0` stays.
///
/// ```
/// use sheaf_tools::grep::Template;
/// let template = Template::new(&["n17.example", "n17"]);
/// let mut line = Vec::new();
/// template.apply(b"Jan  2 03:04:05 n17 sshd[812]: 10.0.0.9 port 4711 on eth0", &mut line);
/// assert_eq!(line, b"{time} {host} sshd[{pid}]: {ip} port {num} on eth0");
/// ```
#[derive(Clone, Debug)]
pub struct Template {
    holes: Regex,
}

const MONTH: &str = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)";
const CLOCK: &str = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?";
const OCTET: &str = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)";
const DIGIT: &str = "[0-9A-Fa-f]";
/// The shortest word of hexadecimal digits that is a hole: 32 bits.
const HEX_DIGITS_MIN: usize = 8;
const HEXTET: &str = "[0-9A-Fa-f]{1,4}";
/// Nothing that continues a word may stand in front or behind.
const FROM: &str = r"\b{start-half}";
const TO: &str = r"\b{end-half}";

impl Template {
    /// The template of a host with these names. Of a full name the first label is one, too.
    #[must_use]
    pub fn new(hosts: &[&str]) -> Self {
        let short = |name: &&'_ str| name.split('.').next().is_some_and(is_label);
        let labels =
            hosts.iter().filter(|name| short(name)).filter_map(|name| name.split('.').next());
        let mut hosts: Vec<&str> =
            hosts.iter().copied().chain(labels).filter(|name| !name.is_empty()).collect();
        // The longest name first, lest a short one hide it.
        hosts.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
        let mut regex = String::from("(?-u)");
        if !hosts.is_empty() {
            let names: Vec<String> = hosts.iter().map(|name| regex::escape(name)).collect();
            let _ = write!(regex, "{FROM}(?P<host>{}){TO}|", names.join("|"));
        }
        let _ =
            write!(regex, "{FROM}(?P<uuid>{DIGIT}{{8}}-(?:{DIGIT}{{4}}-){{3}}{DIGIT}{{12}}){TO}|");
        let _ = write!(regex, "{FROM}(?P<mac>(?:{DIGIT}{{2}}[:-]){{5}}{DIGIT}{{2}}){TO}|");
        let zone = r"(?:Z|[+-]\d{2}:?\d{2})";
        let iso = format!(r"\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{CLOCK}{zone}?)?");
        let syslog = format!(r"{MONTH} [ \d]\d {CLOCK}");
        let web = format!(r"\d{{2}}/{MONTH}/\d{{4}}:{CLOCK}(?: {zone})?");
        let some = format!("{HEXTET}(?::{HEXTET}){{0,6}}");
        let six = format!("(?:{HEXTET}:){{7}}{HEXTET}|{some}::(?:{some})?|::{some}");
        let _ = write!(regex, "{FROM}(?P<time>{iso}|{syslog}|{web}|{CLOCK}){TO}");
        let _ = write!(regex, r"|{FROM}(?P<ip>(?:{OCTET}\.){{3}}{OCTET}|{six}){TO}");
        let _ =
            write!(regex, r"|\[(?P<pid>\d+)\]|{FROM}(?:[Pp]id|PID)[ =:]{{1,2}}(?P<named_pid>\d+)");
        let hex = format!("[0-9]+[A-Fa-f]{DIGIT}*|[A-Fa-f]+[0-9]{DIGIT}*");
        let _ = write!(regex, "|{FROM}(?P<hex>{hex}){TO}");
        let _ = write!(regex, r"|{FROM}(?P<num>0[xX][0-9A-Fa-f]+|\d+(?:\.\d+)?)");
        let holes =
            Regex::new(&regex).expect("the pieces above are regular and host names are escaped");
        Self { holes }
    }

    /// Appends `line` with its holes to `out`.
    pub fn apply(&self, line: &[u8], out: &mut Vec<u8>) {
        const HOLES: [(&str, &[u8]); 9] = [
            ("host", b"{host}"),
            ("uuid", b"{uuid}"),
            ("mac", b"{mac}"),
            ("time", b"{time}"),
            ("ip", b"{ip}"),
            ("pid", b"{pid}"),
            ("named_pid", b"{pid}"),
            ("hex", b"{hex}"),
            ("num", b"{num}"),
        ];
        let mut done = 0;
        for found in self.holes.captures_iter(line) {
            let hole = HOLES.iter().find_map(|&(name, hole)| Some((found.name(name)?, hole)));
            let Some((part, hole)) = hole else { continue };
            let (mut hole, mut end) = (hole, part.end());
            if found.name("hex").is_some() && part.len() < HEX_DIGITS_MIN {
                // A number with a unit behind it, or a word.
                let digits =
                    part.as_bytes().iter().take_while(|byte| byte.is_ascii_digit()).count();
                if digits == 0 {
                    continue;
                }
                (hole, end) = (b"{num}", part.start() + digits);
            }
            out.extend_from_slice(&line[done..part.start()]);
            out.extend_from_slice(hole);
            done = end;
        }
        out.extend_from_slice(&line[done..]);
    }
}

/// Whether this is a name, and not a part of an address: that would be in many lines.
fn is_label(label: &str) -> bool {
    label.bytes().any(|byte| !byte.is_ascii_digit()) && !label.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(line: &str) -> String {
        let mut out = Vec::new();
        Template::new(&["n1", "n1.example.com"]).apply(line.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn holes_are_where_hosts_differ() {
        for (line, expected) in [
            ("2024-05-06T07:08:09.123Z boot", "{time} boot"),
            ("2024-05-06 07:08:09,5 boot", "{time} boot"),
            ("[06/May/2024:07:08:09 +0200] GET", "[{time}] GET"),
            ("up 12:34:56", "up {time}"),
            ("from 192.168.1.255:80", "from {ip}:{num}"),
            ("from fe80::1 and ::1 and 2001:db8::", "from {ip} and {ip} and {ip}"),
            ("std::vector<int> at 0xdeadBEEF", "std::vector<int> at {num}"),
            ("n1.example.com n1 n12 xn1", "{host} {host} n12 xn1"),
            ("cron[1]: pid=77 PID 8 pids", "cron[{pid}]: pid={pid} PID {pid} pids"),
            ("MemFree: 123456 kB 1.5 12ms md5 sda1", "MemFree: {num} kB {num} {num}ms md5 sda1"),
            ("root=UUID=0f6e1a3c-9d2b-4c5d-8e7f-00112233aabb ro", "root=UUID={uuid} ro"),
            ("eth0 52:54:00:12:34:56 and 52-54-00-AB-cd-ef", "eth0 {mac} and {mac}"),
            ("commit 3f2a9c1b77 id DEADBEEF01", "commit {hex} id {hex}"),
            ("5d 12b4 face2 1e5 deadbeef facade", "{num}d {num}b4 face2 {num}e5 deadbeef facade"),
            ("20240506 12345678.5", "{num} {num}"),
            ("", ""),
        ] {
            assert_eq!(apply(line), expected);
        }
    }

    #[test]
    fn first_label_of_a_full_name_is_the_host() {
        let apply = |host: &str, line: &str| {
            let mut out = Vec::new();
            Template::new(&[host]).apply(line.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        let line = "Jan  2 03:04:01 db1 kernel: db1.example.com db12";
        assert_eq!(apply("db1.example.com", line), "{time} {host} kernel: {host} db12");
        assert_eq!(apply("10.0.0.9", "10 of 10.0.0.9"), "{num} of {host}");
    }

    #[test]
    fn odd_host_names_are_taken_literally() {
        let mut out = Vec::new();
        Template::new(&["", "a.b", "(*"]).apply(b"a.b axb (*", &mut out);
        assert_eq!(out, b"{host} axb {host}");
    }
}

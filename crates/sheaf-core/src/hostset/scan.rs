//! Taking an expression apart: operands, the operators between them, and the parts of an operand.
use super::numberset::NumberSet;
use super::pattern::{AXES_MAX, HostPattern, PatternBuilder};
use super::sweep::SetOp;
use super::{HOSTS_MAX, ParseError, shown};

/// One operand with the operator in front of it; of the first, the union.
pub(super) struct Operand<'t> {
    pub(super) op: SetOp,
    pub(super) at: usize,
    parts: Vec<ScanPart<'t>>,
}

/// A stretch of an operand.
#[derive(Clone, Copy)]
struct ScanPart<'t> {
    text: &'t str,
    at: usize,
    /// Whether it stood between brackets.
    in_brackets: bool,
}

/// Reads operands from left to right.
pub(super) struct Scanner<'t> {
    text: &'t str,
    at: usize,
    started: bool,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, started: false }
    }

    /// The next operand, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Operand<'t>>, ParseError> {
        self.skip_spaces();
        let mut op = SetOp::Union;
        let mut wanted_by = None;
        if let Some((found, char)) = self.peek().and_then(|char| Some((operator(char)?, char))) {
            if !self.started {
                return Err(missing_operand(self.at, char));
            }
            op = found;
            wanted_by = Some((self.at, char));
            self.at += 1;
            self.skip_spaces();
        }
        self.started = true;
        let start = self.at;
        let parts = self.parts()?;
        if !parts.is_empty() {
            return Ok(Some(Operand { op, at: start, parts }));
        }
        match wanted_by {
            Some((at, char)) => Err(missing_operand(at, char)),
            None => Ok(None),
        }
    }

    fn parts(&mut self) -> Result<Vec<ScanPart<'t>>, ParseError> {
        let mut parts = Vec::new();
        let mut start = self.at;
        loop {
            let char = self.peek();
            let ends = char.is_none_or(|char| operator(char).is_some());
            if ends || char == Some('[') {
                // Blanks around an operand stand for nothing; those within belong to the name.
                let text = &self.text[start..self.at];
                let text = if ends { text.trim_end() } else { text };
                if !text.is_empty() {
                    parts.push(ScanPart { text, at: start, in_brackets: false });
                }
            }
            match char {
                _ if ends => return Ok(parts),
                Some('[') => {
                    parts.push(self.brackets()?);
                    start = self.at;
                }
                Some(']') => return Err(ParseError::new(self.at, "']' without '['")),
                other => self.at += other.map_or(0, char::len_utf8),
            }
        }
    }

    fn brackets(&mut self) -> Result<ScanPart<'t>, ParseError> {
        let open = self.at;
        let inner = &self.text[open + 1..];
        let Some(len) = inner.find(']') else {
            return Err(ParseError::new(open, "'[' without ']'"));
        };
        if let Some(nested) = inner[..len].find('[') {
            return Err(ParseError::new(open + 1 + nested, "'[' within brackets"));
        }
        self.at = open + len + 2;
        Ok(ScanPart { text: &inner[..len], at: open + 1, in_brackets: true })
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }
}

fn operator(char: char) -> Option<SetOp> {
    match char {
        ',' => Some(SetOp::Union),
        '!' => Some(SetOp::Difference),
        '&' => Some(SetOp::Intersection),
        '^' => Some(SetOp::Xor),
        _ => None,
    }
}

fn missing_operand(at: usize, operator: char) -> ParseError {
    ParseError::new(at, format!("'{operator}' needs a host set on both sides"))
}

impl Operand<'_> {
    pub(super) fn is_group(&self) -> bool {
        self.parts.first().is_some_and(|part| !part.in_brackets && part.text.starts_with('@'))
    }

    pub(super) fn is_wildcard(&self) -> bool {
        self.parts.iter().any(|part| !part.in_brackets && part.text.contains(['*', '?']))
    }

    /// The products of ranges that the operand names. It is one, unless ranges go below zero:
    /// the minus sign is then part of the name.
    pub(super) fn products(&self) -> Result<Vec<(HostPattern, Vec<NumberSet>)>, ParseError> {
        let mut builders = vec![(PatternBuilder::default(), Vec::new())];
        let mut hosts = 1u64;
        for (at, part) in self.parts.iter().enumerate() {
            if !part.in_brackets {
                let text = self.text_between_numbers(at);
                for (builder, axes) in &mut builders {
                    builder.scan(text, |number| axes.push(NumberSet::single(number)));
                }
                continue;
            }
            if builders.iter().any(|(builder, _)| builder.dims() >= AXES_MAX) {
                return Err(ParseError::new(
                    part.at,
                    format!("more than {AXES_MAX} numbers in a name"),
                ));
            }
            let axis = self.axis(at)?;
            hosts = hosts.saturating_mul(axis.len());
            if hosts > HOSTS_MAX {
                return Err(ParseError::new(part.at, format!("more than {HOSTS_MAX} hosts")));
            }
            builders = with_axis(builders, axis);
        }
        Ok(builders.into_iter().map(|(builder, axes)| (builder.finish(), axes)).collect())
    }

    /// A text part without the digits that belong to the brackets beside it.
    fn text_between_numbers(&self, at: usize) -> &str {
        let mut text = self.parts[at].text;
        if at > 0 {
            text = text.trim_start_matches(|char: char| char.is_ascii_digit());
        }
        if at + 1 < self.parts.len() {
            text = text.trim_end_matches(|char: char| char.is_ascii_digit());
        }
        text
    }

    /// The numbers of a bracket, with the digits that touch it: `n1[2-3]` is `n[12-13]`.
    fn axis(&self, at: usize) -> Result<NumberSet, ParseError> {
        let part = self.parts[at];
        let before = at.checked_sub(1).map_or("", |before| self.parts[before].text);
        let after = self.parts.get(at + 1);
        let behind = after.map_or("", |after| after.text);
        let tail =
            &behind[..behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len()];
        let touches_next = after.is_some_and(|after| after.in_brackets)
            || (!behind.is_empty() && tail.len() == behind.len() && at + 2 < self.parts.len());
        if touches_next {
            let next = self.parts
                [if after.is_some_and(|after| after.in_brackets) { at + 1 } else { at + 2 }];
            return Err(ParseError::new(next.at - 1, "brackets need text between them"));
        }
        let head = &before[before.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
        let in_place = |error: ParseError| error.shifted(part.at);
        let near = |error: ParseError| ParseError::new(part.at, error.problem());
        let tailed;
        let mut set = if tail.is_empty() {
            NumberSet::parse(part.text).map_err(in_place)?
        } else {
            tailed =
                with_tail(part.text, tail).map_err(|problem| ParseError::new(part.at, problem))?;
            NumberSet::parse(&tailed).map_err(near)?
        };
        if !head.is_empty() {
            let headed =
                with_head(&set, head).map_err(|problem| ParseError::new(part.at, problem))?;
            set = NumberSet::parse(&headed).map_err(near)?;
        }
        Ok(set)
    }
}

/// Puts the digits behind a bracket to each end of its ranges, which then count in tens, hundreds,
/// …
fn with_tail(inner: &str, tail: &str) -> Result<String, String> {
    let mut out = String::new();
    for element in inner.split(',').map(str::trim) {
        if element.contains('/') {
            return Err(format!("digits after a range with a step: '{}'", shown(element)));
        }
        if element.starts_with('-') {
            return Err(format!("digits beside a negative number: '{}'", shown(element)));
        }
        if element.is_empty() {
            return Err("empty range".into());
        }
        if !out.is_empty() {
            out.push(',');
        }
        match element.split_once('-') {
            Some((from, to)) => {
                let zeros = "0".repeat(tail.len());
                out.push_str(&format!("{}{tail}-{}{tail}/1{zeros}", from.trim(), to.trim()));
            }
            None => out.push_str(&format!("{element}{tail}")),
        }
    }
    Ok(out)
}

/// Puts the digits before a bracket in front of each end of its ranges.
fn with_head(set: &NumberSet, head: &str) -> Result<String, String> {
    let mut out = String::new();
    let text = set.to_string();
    for element in text.split(',') {
        if element.starts_with('-') {
            return Err(format!("digits beside a negative number: '{}'", shown(element)));
        }
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(head);
        out.push_str(&element.replace('-', &format!("-{head}")));
    }
    Ok(out)
}

type Product = (PatternBuilder, Vec<NumberSet>);

fn with_axis(builders: Vec<Product>, axis: NumberSet) -> Vec<Product> {
    let (below, above) = axis.split_signs();
    let mut out = Vec::with_capacity(builders.len());
    for (builder, axes) in builders {
        for (numbers, sign) in [(&below, "-"), (&above, "")] {
            if !numbers.is_empty() {
                let (mut builder, mut axes) = (builder.clone(), axes.clone());
                builder.text(sign);
                builder.number();
                axes.push(numbers.clone());
                out.push((builder, axes));
            }
        }
    }
    out
}

//! Brackets in patterns of `fnmatch`, where nothing is an error.
use super::name::{CharComparison, NameToken, read_class_name};
use std::iter::Peekable;
use std::str::Chars;

/// What a bracket of which the rest comes stands for. One that is not closed is an ordinary character and
/// takes nothing, but where it ends within a range it is met by nothing.
pub(super) fn read(chars: &mut Peekable<Chars<'_>>, compared: CharComparison) -> NameToken {
    let mut bracket =
        Bracket { rest: chars.clone(), compared, ranges: Vec::new(), named: Vec::new() };
    let negated = bracket.rest.next_if(|char| matches!(char, '!' | '^')).is_some();
    match bracket.read() {
        BracketEnd::Closed => {
            *chars = bracket.rest;
            NameToken::Class { negated, ranges: bracket.ranges, named: bracket.named }
        }
        BracketEnd::Open => NameToken::Literal('['),
        BracketEnd::Wrong => NameToken::Nothing,
    }
}

enum BracketEnd {
    Closed,
    Open,
    Wrong,
}

struct Bracket<'a> {
    rest: Peekable<Chars<'a>>,
    compared: CharComparison,
    ranges: Vec<(char, char)>,
    named: Vec<usize>,
}

impl Bracket<'_> {
    fn read(&mut self) -> BracketEnd {
        let mut is_first = true;
        loop {
            let Some(char) = self.rest.next() else { return BracketEnd::Open };
            let from = match (char, self.rest.peek()) {
                (']', _) if !is_first => return BracketEnd::Closed,
                ('[', Some(':')) => match read_class_name(&mut self.rest) {
                    Ok(Some(class)) => {
                        self.named.push(class);
                        is_first = false;
                        continue;
                    }
                    Ok(None) => '[',
                    Err(_) => return BracketEnd::Wrong,
                },
                ('[', Some(&kind @ ('=' | '.'))) => {
                    let Some(char) = self.symbol(kind) else { return BracketEnd::Wrong };
                    if kind == '=' {
                        self.ranges.push((char, char));
                        is_first = false;
                        continue;
                    }
                    char
                }
                ('\\', None) => return BracketEnd::Wrong,
                ('\\', _) => self.rest.next().map_or('\\', |char| self.compared.fold(char)),
                (char, _) => self.compared.fold(char),
            };
            is_first = false;
            match self.end_of_range(from) {
                Some(to) => self.ranges.push((from, to)),
                None => return BracketEnd::Wrong,
            }
        }
    }

    /// What a range that begins here ends with: itself, where it is none.
    fn end_of_range(&mut self, from: char) -> Option<char> {
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('-') || ahead.peek() == Some(&']') {
            return Some(from);
        }
        self.rest = ahead;
        let to = self.rest.next()?;
        let to = match (to, self.rest.peek()) {
            ('\\', _) => self.rest.next(),
            ('[', Some('.')) => self.symbol('.'),
            _ => Some(to),
        };
        to.map(|char| self.compared.fold(char))
    }

    /// The one character of `[=x=]` or `[.x.]`, of which the kind comes next.
    fn symbol(&mut self, kind: char) -> Option<char> {
        self.rest.next();
        let char = self.rest.next()?;
        (self.rest.next() == Some(kind) && self.rest.next() == Some(']')).then_some(char)
    }
}

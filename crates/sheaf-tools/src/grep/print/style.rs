//! The colours of a terminal.
use anstyle::{AnsiColor, Style};
use std::io::{self, Write};

/// How one part of a line looks.
#[derive(Clone, Copy)]
pub struct Paint(Style);

impl Paint {
    pub fn write(self, out: &mut dyn Write, text: &[u8]) -> io::Result<()> {
        if self.0.is_plain() {
            return out.write_all(text);
        }
        write!(out, "{}", self.0.render())?;
        out.write_all(text)?;
        write!(out, "{}", self.0.render_reset())
    }
}

/// The looks of all parts, those that users of ripgrep know.
#[derive(Clone, Copy)]
pub struct Styles {
    pub hosts: Paint,
    pub path: Paint,
    pub number: Paint,
    pub matched: Paint,
    pub mark: Paint,
}

impl Styles {
    pub fn new(color: bool) -> Self {
        let paint = |style: Style| Paint(if color { style } else { Style::new() });
        Self {
            hosts: paint(AnsiColor::Cyan.on_default()),
            path: paint(AnsiColor::Magenta.on_default()),
            number: paint(AnsiColor::Green.on_default()),
            matched: paint(AnsiColor::Red.on_default().bold()),
            mark: paint(Style::new()),
        }
    }
}

//! How far a copy is: a bar on a terminal, a line now and then elsewhere.
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sheaf_cli::output::Output;
use sheaf_tools::cp::Progress;
use std::time::{Duration, Instant};

/// Time between lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows progress on standard error.
pub enum Display {
    Nothing,
    Bar(ProgressBar),
    Lines(Instant),
}

impl Display {
    /// What fits the streams. `wanted`: also where standard error is no terminal.
    pub fn new(output: &Output, wanted: bool) -> Self {
        if output.stderr_is_terminal && !output.quiet {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(style("{bytes} {bytes_per_sec} {msg}"));
            Self::Bar(bar)
        } else if wanted {
            Self::Lines(Instant::now())
        } else {
            Self::Nothing
        }
    }

    /// Shows how far it is.
    pub fn show(&mut self, progress: Progress) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => {
                sheaf_cli::output::wipe();
                if let Some(total) = progress.bytes_total
                    && bar.length() != Some(total)
                {
                    bar.set_length(total);
                    bar.set_style(style(
                        "[{bar:30}] {bytes} of {total_bytes} {bytes_per_sec} {eta} {msg}",
                    ));
                }
                bar.set_position(progress.bytes);
                bar.set_message(files(progress));
            }
            Self::Lines(last) => {
                if last.elapsed() >= LINE_INTERVAL {
                    *last = Instant::now();
                    sheaf_cli::output::tell(format_args!("sheaf: {}", line(progress)));
                }
            }
        }
    }

    /// Clears the bar away.
    pub fn end(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn files(progress: Progress) -> String {
    match progress.files {
        0 => String::new(),
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    }
}

fn line(progress: Progress) -> String {
    let bytes = HumanBytes(progress.bytes);
    let of =
        progress.bytes_total.map(|total| format!(" of {}", HumanBytes(total))).unwrap_or_default();
    format!("{bytes}{of} {}", files(progress)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_is_known() {
        let progress = Progress { files: 2, bytes: 3 << 20, bytes_total: Some(6 << 20) };
        assert_eq!(line(progress), "3.00 MiB of 6.00 MiB 2 files");
        assert_eq!(line(Progress { bytes: 5, ..Progress::default() }), "5 B");
        let _ = style("[{bar:30}] {bytes} of {total_bytes} {bytes_per_sec} {eta} {msg}");
    }
}

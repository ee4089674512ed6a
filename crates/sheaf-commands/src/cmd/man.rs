//! `sheaf man`: the manual pages, one for each command.
use anyhow::{Result, anyhow};
use clap::Args;
use sheaf_cli::companion::Companion;
use sheaf_cli::companion::describe::with_companions;
use sheaf_cli::exit::{self, CODES, Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::tell;
use sheaf_file::{FoundFile, Mode};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Write the manual pages into a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The directory, made if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Writes the pages.
pub fn run(args: &ManArgs, global: &GlobalArgs) -> Result<Exit> {
    check_is_no_page(&args.directory)?;
    let (command, lacking) = with_companions(crate::cli::command())?;
    for companion in lacking {
        let Companion { program, command, .. } = companion;
        tell(format_args!("sheaf: {program} is not installed: no pages of sheaf {command}"));
    }
    let mut command = command.disable_help_subcommand(true);
    let mut write = || {
        let mode = Mode::from_raw_mode(0o777);
        let made = sheaf_file::make_directories(&args.directory, (mode, mode))
            .map_err(|errno| std::io::Error::from_raw_os_error(errno.0))?;
        command.build();
        // A link that takes the place of a directory that was made is not followed.
        let made = made.map(FoundFile::into_descriptor);
        let here = made.as_ref().map(|made| format!("/proc/self/fd/{}", made.as_raw_fd()));
        pages(&command, here.as_deref().map_or(&args.directory, Path::new))
    };
    let count = write().map_err(|error| failure(&args.directory, &error))?;
    if !global.quiet {
        tell(format_args!("{count} pages written to {}", args.directory.display()));
    }
    Ok(Exit::Success)
}

/// Why there are no pages; a file in place of the directory is an error of the command line.
fn failure(directory: &Path, error: &std::io::Error) -> anyhow::Error {
    let text = exit::io_text(directory, error);
    match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            Stop::usage(format!("{text}: man writes its pages into a directory")).into()
        }
        _ => anyhow!(text),
    }
}

/// Refuses what was meant as `man grep` is: the page of a command.
fn check_is_no_page(directory: &Path) -> Result<(), Stop> {
    let command = crate::cli::command();
    let Some(name) = directory.to_str().filter(|name| command.find_subcommand(name).is_some())
    else {
        return Ok(());
    };
    if directory.exists() {
        return Ok(());
    }
    Err(Stop::usage(format!(
        "{name}: man writes all pages into a directory; sheaf help {name} shows what there is of \
         {name} (a directory of that name is ./{name})"
    )))
}

/// Writes the page of `command` and those of the commands below it; returns how many.
fn pages(command: &clap::Command, directory: &Path) -> std::io::Result<u32> {
    let mut count = 1;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        count += pages(below, directory)?;
    }
    let program = concat!("sheaf ", env!("CARGO_PKG_VERSION"));
    // In place of an empty date roff takes what is behind it for the date.
    let page = clap_mangen::Man::new(command.clone()).source(program).date(" ");
    let mut text = Vec::new();
    page.render(&mut text)?;
    // The page of the program itself has them in its last section.
    if command.get_bin_name().is_some_and(|name| name.contains(' ')) {
        text.extend_from_slice(exit_status().as_bytes());
    }
    replace(&directory.join(page.get_filename()), &with_dots(text, command))?;
    Ok(count)
}

/// Puts a file in the place of whatever is there: a link is not followed, and no pipe written to.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let new = path.with_file_name(sheaf_file::temp_name());
    let written = std::fs::File::create_new(&new).and_then(|mut file| file.write_all(text));
    written.and_then(|()| std::fs::rename(&new, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}

/// Says of what may be given several times that it may be, as the help does.
fn with_dots(page: Vec<u8>, command: &clap::Command) -> Vec<u8> {
    let Ok(mut text) = String::from_utf8(page.clone()) else { return page };
    let takes_many =
        |arg: &&clap::Arg| arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    for arg in command.get_positionals().filter(takes_many) {
        for name in arg.get_value_names().unwrap_or_default() {
            for end in [']', '>'] {
                let once = format!("\\fI{name}\\fR{end}");
                text = text.replace(&once, &format!("{once}..."));
            }
        }
    }
    text.into_bytes()
}

/// The section that says what exit codes mean.
fn exit_status() -> String {
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    for (exit, meaning) in CODES {
        text += &format!(".TP\n{}\n{meaning}\n", *exit as u8);
    }
    text
}

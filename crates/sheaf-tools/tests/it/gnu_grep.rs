//! The engine against GNU grep on random files and options.
use proptest::prelude::*;
use sheaf_tools::entry::{Answer, EntryKind, Merged, block_lines};
use sheaf_tools::grep::{GrepOptions, GrepOutput};
use std::io::Write;
use std::process::Command;

const PATTERNS: &[&str] =
    &["a", "ab", "a.", "^a", "b$", "a*b", "[ab]+", "", "^$", "A b", "é", "x", "a\nb"];
const WORDS: &[&str] = &["a", "ab", "b", "A", "é", "x"];

/// What GNU grep prints of one file called `f`, made from the entries.
fn rendered(merged: &Merged) -> Vec<u8> {
    let mut out = Vec::new();
    let mut blocks = 0;
    for found in merged.sorted() {
        let number = found.entry.number;
        let mut line = |mark: char, number: Option<u64>, text: &[u8]| {
            if let Some(number) = number {
                write!(out, "{number}{mark}").unwrap();
            }
            out.extend_from_slice(text);
            out.push(b'\n');
        };
        match found.entry.kind {
            EntryKind::Line | EntryKind::Part => line(':', number, found.entry.text),
            EntryKind::Count => line(':', None, found.entry.text),
            EntryKind::Path => line(':', None, b"f"),
            EntryKind::Binary => line(':', None, b"grep: f: binary file matches"),
            EntryKind::Block => {
                if blocks > 0 {
                    line('-', None, b"--");
                }
                blocks += 1;
                for (at, (selected, text)) in (0u64..).zip(block_lines(found.entry.text)) {
                    line(if selected { ':' } else { '-' }, number.map(|first| first + at), text);
                }
            }
            other => unreachable!("sorted() leaves errors out, and there is no {other:?}"),
        }
    }
    out
}

fn gnu(options: &GrepOptions, file: &[u8]) -> (Vec<u8>, i32) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), file).unwrap();
    let mut grep = Command::new("grep");
    grep.current_dir(dir.path()).env("LC_ALL", "C.UTF-8").arg(if options.fixed {
        "-F"
    } else {
        "-E"
    });
    let flags = [
        (options.word, "-w"),
        (options.line, "-x"),
        (options.ignore_case, "-i"),
        (options.invert, "-v"),
        (options.number, "-n"),
        (options.text, "-a"),
        (options.output == GrepOutput::Parts, "-o"),
        (options.output == GrepOutput::Count, "-c"),
        (options.output == GrepOutput::PathsWith, "-l"),
        (options.output == GrepOutput::PathsWithout, "-L"),
        (options.output == GrepOutput::Quiet, "-q"),
    ];
    grep.args(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag));
    if let Some(max) = options.lines_max {
        grep.arg(format!("-m{max}"));
    }
    if options.has_context() {
        grep.args([format!("-A{}", options.after), format!("-B{}", options.before)]);
    }
    for pattern in &options.patterns {
        grep.arg("-e").arg(pattern);
    }
    let output = grep.arg("f").output().expect("GNU grep is installed");
    // GNU says on standard error that a binary file matches, behind all else of the file.
    ([output.stdout, output.stderr].concat(), output.status.code().unwrap())
}

fn ours(options: &GrepOptions, file: &[u8]) -> (Vec<u8>, i32) {
    let mut answer = Answer::new(options.answer_form());
    let _ = options.compile().unwrap().search_reader(file, b"f", &mut answer);
    let mut merged = Merged::new();
    merged.fold_raw(0, &answer.into_bytes()).unwrap();
    assert!(merged.errors().is_empty());
    let printed = if options.is_silent() { Vec::new() } else { rendered(&merged) };
    (printed, i32::from(!options.has_selected(&merged)))
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let line = proptest::string::string_regex("[abA é-]{0,6}").unwrap();
    let nul = prop_oneof![9 => Just(false), 1 => Just(true)];
    (proptest::collection::vec(line, 0..24), any::<bool>(), nul, any::<proptest::sample::Index>())
        .prop_map(|(lines, ended, nul, at)| {
            let mut file = lines.join("\n").into_bytes();
            if ended && !file.is_empty() {
                file.push(b'\n');
            }
            if nul && !file.is_empty() {
                let at = at.index(file.len());
                if file[at].is_ascii() {
                    file[at] = 0;
                }
            }
            file
        })
}

fn options() -> impl Strategy<Value = GrepOptions> {
    let output = prop_oneof![
        8 => Just(GrepOutput::Lines),
        4 => Just(GrepOutput::Parts),
        2 => Just(GrepOutput::Count),
        1 => Just(GrepOutput::PathsWith),
        1 => Just(GrepOutput::PathsWithout),
        1 => Just(GrepOutput::Quiet),
    ];
    let flags = proptest::array::uniform7(prop_oneof![2 => Just(false), 1 => Just(true)]);
    let patterns = proptest::collection::vec(any::<proptest::sample::Index>(), 0..3);
    let lines_max = proptest::option::weighted(0.4, 0u64..4);
    (output, flags, patterns, lines_max, 0u32..4, 0u32..4).prop_map(
        |(output, flags, patterns, lines_max, before, after)| {
            let [fixed, mut word, line, ignore_case, invert, number, mut text] = flags;
            // What -o with -v says is the exit status alone, also of a binary file.
            text |= invert && output == GrepOutput::Parts;
            // With -o, -w and -x together GNU prints an empty line behind each match.
            word &= !(line && output == GrepOutput::Parts);
            let pool = if word { WORDS } else { PATTERNS };
            let mut patterns: Vec<String> =
                patterns.iter().map(|at| at.get(pool).to_string()).collect();
            if output == GrepOutput::Parts {
                // Of several patterns GNU shows the longest match, this engine the first.
                patterns.truncate(1);
                patterns.retain(|pattern| !pattern.contains('\n'));
            }
            // GNU does not even look at files that -v with an empty pattern can select nothing of.
            patterns.retain(|pattern| !(invert && pattern.is_empty()));
            if patterns.is_empty() {
                patterns.push("a".to_owned());
            }
            GrepOptions {
                patterns,
                fixed,
                word,
                line,
                ignore_case,
                invert,
                output,
                lines_max,
                number,
                before,
                after,
                text,
                each: true,
                ..GrepOptions::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_gnu_grep(options in options(), file in file()) {
        let (expected, expected_code) = gnu(&options, &file);
        let (got, code) = ours(&options, &file);
        prop_assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected));
        // To GNU a line that matches only with nothing is selected, though -o shows nothing of it;
        // and -L succeeds when a line is selected, not when a path is shown.
        let shows_what_it_means = options.output != GrepOutput::Parts || !expected.is_empty();
        if shows_what_it_means && options.output != GrepOutput::PathsWithout {
            prop_assert_eq!(code, expected_code);
        }
    }
}

#[test]
fn no_pattern_selects_nothing() {
    for (invert, lines) in [(false, 0), (true, 2)] {
        let options = GrepOptions { invert, output: GrepOutput::Count, ..GrepOptions::default() };
        assert_eq!(ours(&options, b"a\n\n").0, format!("{lines}\n").into_bytes());
    }
}

#[test]
fn directory_is_an_error_of_its_path() {
    let options = GrepOptions { patterns: vec!["a".to_owned()], ..GrepOptions::default() };
    let mut answer = Answer::new(options.answer_form());
    let dir = std::fs::File::open("/").unwrap();
    assert!(options.compile().unwrap().search(&dir, b"/", &mut answer).is_continue());
    let mut merged = Merged::new();
    merged.fold_raw(0, &answer.into_bytes()).unwrap();
    assert_eq!(merged.errors()[0].errno, sheaf_core::Errno::ISDIR);
}

#[test]
fn line_too_long_is_an_error_and_not_a_full_memory() {
    let options = GrepOptions { patterns: vec!["a".to_owned()], ..GrepOptions::default() };
    let mut answer = Answer::new(options.answer_form());
    let endless = std::io::Read::take(std::io::repeat(b'x'), 1 << 40);
    assert!(
        options.compile().unwrap().search_reader(endless, b"/endless", &mut answer).is_continue()
    );
    let mut merged = Merged::new();
    merged.fold_raw(0, &answer.into_bytes()).unwrap();
    assert_eq!(merged.errors()[0].errno, sheaf_core::Errno::MSGSIZE);
}

#[test]
fn quiet_ends_the_search_on_the_host() {
    let options = GrepOptions {
        patterns: vec!["a".to_owned()],
        output: GrepOutput::Quiet,
        ..GrepOptions::default()
    };
    let mut answer = Answer::new(options.answer_form());
    let mut engine = options.compile().unwrap();
    assert!(engine.search_reader(&b"b\n"[..], b"f", &mut answer).is_continue());
    assert!(engine.search_reader(&b"a\n"[..], b"f", &mut answer).is_break());
}

#[test]
fn options_travel() {
    let options = GrepOptions {
        patterns: vec!["a".to_owned()],
        lines_max: Some(3),
        include: vec!["*.log".to_owned()],
        ..GrepOptions::default()
    };
    let wire = postcard::to_allocvec(&options).unwrap();
    assert_eq!(postcard::from_bytes::<GrepOptions>(&wire).unwrap(), options);
}

//! `sheaf trace`: what is said of command lines that are wrong, and what to type instead.
use sheaf_testing::home::Home;

/// Each line of arguments, with what it ends with and says.
fn check(home: &Home, lines: &[(&str, i32, &str)]) {
    for (line, code, says) in lines {
        let run = home.run(&line.split(' ').collect::<Vec<_>>());
        let said = (run.code, run.stdout.as_str(), run.stderr.as_str());
        assert_eq!(said, (Some(*code), "", format!("sheaf: {says}\n").as_str()), "{line}");
    }
}

#[test]
fn numbers_with_units_are_refused_with_what_to_write() {
    let slow = "invalid value '{}' for '--slow-ms <MS>': ";
    let slow = |value: &str, why: &str| {
        slow.replace("{}", value) + why + "; see sheaf trace record --help"
    };
    let home = Home::new();
    check(
        &home,
        &[
            (
                "trace record --flight --slow-ms -5 -- true",
                2,
                &slow("-5", "it has to be more than 0 and at most 86400000 milliseconds"),
            ),
            (
                "trace record --flight --slow-ms 2s -- true",
                2,
                &slow("2s", "it has to be a number of milliseconds, without a unit: write 2000"),
            ),
            (
                "trace serve -o s --for 1.5h",
                2,
                "invalid value '1.5h' for '--for <SECONDS>': it has to be a number of seconds, without a \
                 unit: write 5400; see sheaf trace serve --help",
            ),
            (
                "trace serve -o s --keep 20",
                2,
                "invalid value '20' for '--keep <SIZE>': it has to be 4K at least, as no part is smaller \
                 than that; did you mean 20G? see sheaf trace serve --help",
            ),
        ],
    );
    let run = home.run(&["trace", "record", "--flight", "--slow-ms", "0.5", "--", "true"]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn missing_or_extra_trace_arguments_are_named() {
    check(
        &Home::new(),
        &[
            (
                "trace report --html x.trace",
                2,
                "the TRACE is missing: x.trace was taken for the page, whose name --html says: sheaf trace \
                 report --html page.html x.trace; see sheaf trace report --help",
            ),
            (
                "trace report a b",
                2,
                "b is one word too many: trace report takes one TRACE; see sheaf trace report --help",
            ),
            (
                "trace export --to csv x x.csv",
                2,
                "x.csv is one word too many: trace export takes one TRACE and writes to standard output, \
                 or with -o x.csv to a file; see sheaf trace export --help",
            ),
            (
                "trace export csv x",
                2,
                "--to says the form: sheaf trace export --to csv x; see sheaf trace export --help",
            ),
            (
                "trace export --format csv x",
                2,
                "trace export has no option --format; --to FORM says the form: --to perfetto, --to csv or \
                 --to darshan; see sheaf trace export --help",
            ),
            (
                "trace record --slow-ms 0.5 -- true",
                2,
                "--slow-ms is for a flight recorder: sheaf trace record --flight --slow-ms MS -- COMMAND; \
                 see sheaf trace record --help",
            ),
            (
                "trace record -o x",
                2,
                "the COMMAND is missing that is to be recorded: sheaf trace record -- COMMAND; see sheaf \
                 trace record --help",
            ),
            (
                "trace record --for 2s -- true",
                2,
                "trace record has no option --for; it ends with COMMAND, which timeout ends: sheaf trace \
                 record -- timeout 60 COMMAND; see sheaf trace record --help",
            ),
            (
                "record -- true",
                2,
                "there is no command record: sheaf trace record -- COMMAND records the I/O of a program",
            ),
            (
                "report x",
                2,
                "there is no command report: sheaf trace report tells what a trace shows",
            ),
            (
                "trace help report",
                2,
                "trace has no command help: sheaf help trace report; see sheaf trace --help",
            ),
        ],
    );
}

#[test]
fn invalid_trace_arguments_are_refused_with_a_hint() {
    let home = Home::new();
    check(
        &home,
        &[
            (
                "trace record -w n1 -- true",
                2,
                "-w is for work on many hosts, and trace record works on this machine alone; sheaf trace \
                 serve takes from many what sheaf trace record --served runs there",
            ),
            (
                "--embedded 2 trace report x",
                2,
                "--embedded is for work on many hosts, and trace report works on this machine alone",
            ),
            (
                "--timeout 2 trace record -- true",
                2,
                "--timeout does not end COMMAND: sheaf trace record -- timeout SECONDS COMMAND does",
            ),
            (
                "trace recover nope",
                2,
                "nope is no trace that sheaf trace record has begun: there is nothing of that name; say its \
                 directory, as NAME.trace",
            ),
            (
                "trace snapshot 4711",
                2,
                "4711 is no directory: say that of the recorder, as NAME.flight; a recorder whose number is \
                 4711 makes a snapshot on kill -USR1 4711",
            ),
            ("trace report nope", 2, "nope is no trace: there is nothing of that name"),
            (
                "trace record --buffers /nope -- true",
                2,
                "no buffers can be made (--buffers): /nope: No such file or directory (ENOENT)",
            ),
        ],
    );
    // A program that does nothing, and nothing that could be done again.
    assert_eq!(home.run(&["trace", "record", "--quiet", "-o", "x", "--", "true"]).code, Some(0));
    check(&home, &[("trace replay x again", 1, "x has no operation: nothing was done")]);
    for line in ["trace report x/trace.json", "trace export --to CSV x/trace.json"] {
        let run = home.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    }
}

//! What a leaf's search and a node's merge cost.
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use sheaf_core::RangeSet;
use sheaf_tools::entry::{Answer, AnswerForm, Entry, EntryKind, Merged, Sink};
use sheaf_tools::grep::{GrepOptions, GrepOutput};
use std::fmt::Write as _;
use std::io::{Seek, SeekFrom, Write};

fn main() {
    divan::main();
}

/// Lines as in `/etc/services`, 559 KB of them.
fn services() -> String {
    let mut text = String::new();
    for port in 1u32.. {
        let protocol = if port % 2 == 0 { "tcp" } else { "udp" };
        let _ =
            writeln!(text, "service-{port:<8} {}/{protocol}   # the service at {port}", port / 2);
        if text.len() >= 559_000 {
            break;
        }
    }
    text
}

fn options(pattern: &str) -> GrepOptions {
    GrepOptions { patterns: vec![pattern.to_owned()], ..GrepOptions::default() }
}

fn search(bencher: Bencher<'_, '_>, options: &GrepOptions) {
    let mut file = tempfile::tempfile().expect("a temporary directory");
    file.write_all(services().as_bytes()).expect("room for 559 KB");
    let len = file.metadata().expect("an open file").len();
    let mut engine = options.compile().expect("a valid pattern");
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        file.seek(SeekFrom::Start(0)).expect("a plain file");
        let mut answer = Answer::new(options.answer_form());
        let _ = engine.search(&file, b"/etc/services", &mut answer);
        answer.into_bytes()
    });
}

#[divan::bench(args = ["udp", "service-4711 ", "absent", "[0-9]+/udp"])]
fn search_559_kb(bencher: Bencher<'_, '_>, pattern: &str) {
    search(bencher, &options(pattern));
}

#[divan::bench]
fn search_559_kb_numbered(bencher: Bencher<'_, '_>) {
    search(bencher, &GrepOptions { number: true, ..options("udp") });
}

#[divan::bench]
fn search_559_kb_counted(bencher: Bencher<'_, '_>) {
    search(bencher, &GrepOptions { output: GrepOutput::Count, ..options("udp") });
}

#[divan::bench]
fn search_proc_meminfo(bencher: Bencher<'_, '_>) {
    let options = options("MemFree");
    let mut engine = options.compile().expect("a valid pattern");
    bencher.bench_local(|| {
        let file = std::fs::File::open("/proc/meminfo").expect("Linux");
        let mut answer = Answer::new(options.answer_form());
        let _ = engine.search(&file, b"/proc/meminfo", &mut answer);
        answer.into_bytes()
    });
}

#[divan::bench]
fn compile() -> sheaf_tools::grep::Engine {
    options(black_box("udp")).compile().expect("a valid pattern")
}

/// An answer of 9,000 lines, about 368 KB; `own` makes every tenth line the leaf's own.
fn answer(own: u32) -> Vec<u8> {
    let mut answer = Answer::new(AnswerForm::default());
    answer.path(b"/etc/services");
    for line in 0..9000 {
        let tag = if line % 10 == 0 { own } else { 0 };
        let text = format!("service-{line:08} {line:6}/udp   # {tag}");
        let _ = answer.entry(Entry::new(EntryKind::Line, text.as_bytes()));
    }
    answer.into_bytes()
}

#[divan::bench]
fn merge_one_class_of_1024_leaves(bencher: Bencher<'_, '_>) {
    let (answer, leaves) = (answer(0), RangeSet::full(1024));
    bencher.bench_local(|| {
        let mut merged = Merged::new();
        merged.fold_raw_set(&leaves, &answer).expect("a valid answer");
        let mut partial = Vec::new();
        merged.encode_partial(&mut partial);
        partial
    });
}

#[divan::bench]
fn merge_32_answers_that_differ_in_a_tenth(bencher: Bencher<'_, '_>) {
    let answers: Vec<_> = (0..32).map(answer).collect();
    bencher.bench_local(|| {
        let mut merged = Merged::new();
        for (leaf, answer) in (0..).zip(&answers) {
            merged.fold_raw(leaf, answer).expect("a valid answer");
        }
        let mut partial = Vec::new();
        merged.encode_partial(&mut partial);
        partial
    });
}

#[divan::bench]
fn merge_32_partials_that_differ_in_a_tenth(bencher: Bencher<'_, '_>) {
    let partials: Vec<_> = (0..32)
        .map(|leaf| {
            let (mut merged, mut partial) = (Merged::new(), Vec::new());
            merged.fold_raw(leaf, &answer(leaf)).expect("a valid answer");
            merged.encode_partial(&mut partial);
            partial
        })
        .collect();
    bencher.bench_local(|| {
        let mut merged = Merged::new();
        for partial in &partials {
            merged.fold_partial(partial).expect("a valid partial");
        }
        merged.len()
    });
}

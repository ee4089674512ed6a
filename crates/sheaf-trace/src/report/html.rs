//! A report as one HTML page that needs nothing else.
use crate::report::data::{
    AccessPattern, FileData, HeatData, HeatRow, IoSums, OpClass, ReportData, SizeBucket,
    SlowOperation,
};
use crate::report::findings::Finding;
use crate::report::html_page::{SCRIPT, STYLE};
use crate::report::text::share_of;
use crate::report::units::{count, day, percent, ratio, shortened, shown, size, time};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::fmt::Write;

/// Rows of a table; the others are in the JSON.
const ROWS_MAX: usize = 200;
/// Shades of a heat map.
const SHADES: usize = 8;
/// How high a row of a heat map is, in pixels.
const HEAT_ROW_PX: usize = 12;
/// How much of a path is in a cell.
const PATH_CHARS_MAX: usize = 160;

impl ReportData {
    /// One page with all of it, which needs no network and no script, and has itself as JSON in
    /// the element `report`. Texts of the trace are only ever text in it.
    #[must_use]
    pub fn to_html(&self) -> String {
        // `<` is in strings alone, where it may be written so: no text ends the element.
        let json = self.to_json().replace('<', "\\u003c");
        let waits = "Longest waits for pipes, sockets and terminals";
        let page = html! {
            (DOCTYPE) "\n"
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "I/O report" }
                    style { (PreEscaped(STYLE)) }
                }
                "\n"
                body {
                    main {
                        "\n"
                        (head(self))
                        (findings(self))
                        (time_split(self))
                        (heat(&self.heat))
                        (histograms(self))
                        (layers(self))
                        (operations(self))
                        (files(self))
                        (directories(self))
                        (processes(self))
                        (hosts(self))
                        (slowest(self, "Slowest operations", &self.slowest))
                        (slowest(self, waits, &self.slowest_streams))
                        (failures(self))
                        (lost(self))
                        (removed(self))
                        @if !self.notes.is_empty() {
                            (title("Not in this report", ""))
                            ul { @for note in &self.notes { li class="" { (text(note)) } } }
                        }
                    }
                    "\n"
                    script type="application/json" id="report" { (PreEscaped(json)) }
                    "\n"
                    script { (PreEscaped(SCRIPT)) }
                }
            }
            "\n"
        };
        page.into_string()
    }

    /// All of it as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and lists have a form in JSON")
    }
}

/// A cell of a table.
enum HtmlCell {
    /// What it is sorted by, and how it is shown.
    Number(u128, String),
    Text(String),
    Path(String),
    Chart(Markup),
}

fn number(value: impl Into<u128>) -> HtmlCell {
    let value = value.into();
    HtmlCell::Number(value, count(value))
}

fn bytes(value: u128) -> HtmlCell {
    HtmlCell::Number(value, size(value))
}

fn ns(value: impl Into<u128>) -> HtmlCell {
    let value = value.into();
    HtmlCell::Number(value, time(value))
}

/// A bar of a share.
fn bar(part: u128, whole: u128) -> HtmlCell {
    let width = format!("{:.2}%", ratio(part, whole) * 100.0);
    HtmlCell::Chart(html! {
        svg class="bar" role="img" {
            title { (percent(part, whole)) }
            rect class="box" width=(width) height="10" {}
        }
    })
}

/// Text of a trace. Control characters are shown, and `maud` escapes the others.
fn text(text: &str) -> Markup {
    html! { (shown(text)) }
}

/// A paragraph of a class.
fn paragraph(class: &str, sentence: &str) -> Markup {
    html! { p class=(class) { (text(sentence)) } }
}

fn title(title: &str, what: &str) -> Markup {
    html! {
        "\n"
        h2 class="" { (text(title)) }
        @if !what.is_empty() { (paragraph("soft small", what)) }
    }
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<HtmlCell>>, all: u64) -> Markup {
    let rows: Vec<_> = rows.take(ROWS_MAX).collect();
    let shown = rows.len() as u64;
    let head_class = |at: usize| {
        let is_number = rows.first().is_some_and(|row| matches!(row[at], HtmlCell::Number(..)));
        if is_number { "n" } else { "" }
    };
    html! {
        div class="scroll" {
            table class="sorts" {
                thead {
                    tr {
                        @for (at, head) in heads.iter().enumerate() {
                            th class=(head_class(at)) { (text(head)) }
                        }
                    }
                }
                tbody {
                    "\n"
                    @for row in &rows {
                        tr { @for one in row { (cell(one)) } }
                        "\n"
                    }
                }
            }
        }
        @if all > shown { (paragraph("soft small", &format!("and {} more", count(all - shown)))) }
    }
}

fn cell(cell: &HtmlCell) -> Markup {
    match cell {
        HtmlCell::Number(value, said) => html! { td class="n" data-v=(value) { (text(said)) } },
        HtmlCell::Text(said) => html! { td class="" { (text(said)) } },
        HtmlCell::Path(path) => {
            html! { td class="path" { (text(&shortened(path, PATH_CHARS_MAX))) } }
        }
        HtmlCell::Chart(chart) => html! { td { (chart) } },
    }
}

fn tile(value: &str, what: &str) -> Markup {
    html! {
        div class="tile" {
            b class="" { (text(value)) }
            span class="soft small" { (text(what)) }
        }
    }
}

fn head(data: &ReportData) -> Markup {
    html! {
        header {
            h1 { "I/O report" }
            @if let Some(span) = data.span {
                (paragraph("soft", &format!("{}, {} long", day(span.first_ns), time(span.length_ns()))))
            }
            @if let Some(run) = &data.run { (paragraph("soft", &run.sentence())) }
            @if let Some(share) = data.share_of_run() { (paragraph("soft", &share)) }
            div class="tiles" {
                (tile(&count(data.rows), "operations"))
                (tile(&size(data.totals.read.bytes + data.totals.copy.bytes), "read"))
                (tile(&size(data.totals.write.bytes + data.totals.copy.bytes), "written"))
                (tile(&time(data.io_time_ns()), "time in I/O, of all threads"))
                (tile(&count(data.files_total), "files"))
                (tile(&count(data.processes_total), "processes"))
                (tile(&count(data.programs_total), "programs"))
                (tile(&count(data.hosts.len() as u64), "hosts"))
                (tile(&count(data.totals.all.failed), "failed"))
                (tile(&count(data.lost.count), "lost"))
                @if data.unwritten > 0 { (tile(&count(data.unwritten), "not stored")) }
                @if data.removed.parts > 0 { (tile(&count(data.removed.operations), "removed")) }
            }
        }
    }
}

fn findings(data: &ReportData) -> Markup {
    html! {
        (title("Findings", ""))
        @if data.findings.is_empty() {
            div class="finding none" { (text(&nothing_found(data))) }
        }
        @for finding in &data.findings {
            @let word = finding.severity.word();
            div class={ "finding " (word) } {
                span class="word" { (text(word)) }
                (paragraph("", &finding.sentence))
                @if let Some(cost) = data.cost_of(finding) { (paragraph("", &cost)) }
                (paragraph("soft", &finding.advice))
                @if !finding.evidence.is_empty() {
                    details { summary { "Evidence" } (evidence(finding)) }
                }
            }
        }
    }
}

/// The sentence of a report without findings, as one that stands alone.
fn nothing_found(data: &ReportData) -> String {
    let text = data.without_findings();
    let (first, rest) = text.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}

fn evidence(finding: &Finding) -> Markup {
    let rows = finding.evidence.iter().map(|evidence| {
        vec![
            number(evidence.count),
            number(evidence.of),
            HtmlCell::Text(evidence.unit.clone()),
            ns(evidence.time_ns),
            HtmlCell::Path(evidence.subject.clone()),
        ]
    });
    let all = finding.evidence.len() as u64 + finding.evidence_beyond;
    table(&["count", "of", "what", "time", "where"], rows, all)
}

fn time_split(data: &ReportData) -> Markup {
    let totals = &data.totals;
    let kinds: [(&str, &IoSums); 8] = [
        ("read", &totals.read),
        ("write", &totals.write),
        ("copy", &totals.copy),
        ("metadata", &totals.metadata),
        ("sync", &totals.sync),
        ("other", &totals.other),
        ("process", &totals.process),
        ("stream", &totals.stream),
    ];
    let what = "Of operations that are not within another one, all threads together. Where \
                processes begin and end, and what a pipe, a socket or a terminal is waited for, \
                is no time of files.";
    let parts: Vec<(&str, u128)> =
        kinds[..5].iter().map(|(kind, sums)| (*kind, sums.time_ns)).collect();
    html! {
        (title("Where the time went", what))
        (stacked(&parts, "wide", 18, None))
        div class="key" {
            @for (kind, sums) in kinds.iter().filter(|(_, sums)| sums.count > 0) {
                span {
                    svg { rect class=(kind) width="10" height="10" {} }
                    (text(&share_sentence(data, kind, sums)))
                }
            }
        }
    }
}

fn share_sentence(data: &ReportData, kind: &str, sums: &IoSums) -> String {
    let share = share_of(data, kind, sums);
    format!("{kind} {share} · {} · {}×", time(sums.time_ns), count(sums.count))
}

fn heat(heat: &HeatData) -> Markup {
    let has = |of: fn(&HeatRow) -> &Vec<u128>| {
        heat.rows.iter().any(|row| of(row).iter().any(|bytes| *bytes > 0))
    };
    let rows = |of: fn(&HeatRow) -> &Vec<u128>| -> Vec<(&str, &Vec<u128>)> {
        heat.rows.iter().map(|row| (row.label.as_str(), of(row))).collect()
    };
    let what = format!(
        "Each column is {} long, each row a {}; the darker, the more bytes (by the root of \
         the amount).",
        time(heat.bin_ns),
        heat.by
    );
    html! {
        @if !heat.rows.is_empty() { (title("Bytes over time", &what)) }
        @if has(|row| &row.read_bytes) {
            (heat_map(heat, "Read", "read", &rows(|row| &row.read_bytes)))
        }
        @if has(|row| &row.written_bytes) {
            (heat_map(heat, "Written", "write", &rows(|row| &row.written_bytes)))
        }
    }
}

fn heat_map(heat: &HeatData, title: &str, class: &str, rows: &[(&str, &Vec<u128>)]) -> Markup {
    let bins = rows.iter().map(|(_, bins)| bins.len()).max().unwrap_or(0);
    let most = rows.iter().flat_map(|(_, bins)| bins.iter()).copied().max().unwrap_or(0);
    let sums: Vec<u128> = (0..bins)
        .map(|bin| rows.iter().map(|(_, bins)| bins.get(bin).copied().unwrap_or(0)).sum())
        .collect();
    let peak = sums.iter().copied().max().unwrap_or(0);
    let per_second =
        |bytes: u128| size(bytes.saturating_mul(1_000_000_000) / u128::from(heat.bin_ns.max(1)));
    let what = format!(
        "{title}: at most {}/s in all, {}/s of one {}",
        per_second(peak),
        per_second(most),
        heat.by
    );
    let length = u128::from(heat.bin_ns) * bins as u128;
    html! {
        h3 class="" { (text(&what)) }
        div class="card" {
            div class="heat" {
                ol { li { "all" } }
                (area(&sums, peak, class))
                ol { @for (label, _) in rows { li class="" { (text(label)) } } }
                (shades(rows, bins, most, class))
                span {}
                div class="axis" {
                    span { "0" }
                    span class="" { (text(&time(length / 2))) }
                    span class="" { (text(&time(length))) }
                }
            }
        }
    }
}

fn histograms(data: &ReportData) -> Markup {
    html! {
        (title("Sizes", "What successful reads and writes asked for."))
        div class="two" {
            div { (histogram("Reads", &data.read_sizes)) }
            div { (histogram("Writes", &data.write_sizes)) }
        }
    }
}

fn histogram(title: &str, buckets: &[SizeBucket]) -> Markup {
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let rows = buckets.iter().map(|bucket| {
        vec![
            HtmlCell::Number(bucket.from.into(), sizes(bucket)),
            number(bucket.count),
            bar(bucket.count.into(), most.into()),
        ]
    });
    html! {
        h3 class="" { (text(&format!("{title}: {}", count(all)))) }
        @if !buckets.is_empty() { (table(&["size", "count", ""], rows, buckets.len() as u64)) }
    }
}

fn layers(data: &ReportData) -> Markup {
    let what = "Nested operations happen within one of a layer above: their bytes and time \
                are in no other sum.";
    let rows = data.layers.iter().map(|layer| {
        vec![
            HtmlCell::Text(layer.layer.clone()),
            number(layer.outermost.count),
            ns(layer.outermost.time_ns),
            number(layer.nested.count),
            ns(layer.nested.time_ns),
            bytes(layer.read_bytes),
            bytes(layer.written_bytes),
        ]
    });
    let heads = ["layer", "outermost", "time", "nested", "time nested", "read", "written"];
    html! {
        (title("Layers", what))
        (table(&heads, rows, data.layers.len() as u64))
    }
}

fn operations(data: &ReportData) -> Markup {
    let all = data.operations.iter().map(|op| op.sums.time_ns).max().unwrap_or(0);
    let rows = data.operations.iter().map(|op| {
        vec![
            HtmlCell::Text(format!("{} {}", op.layer, op.op)),
            HtmlCell::Text(class_word(op.class).to_owned()),
            number(op.sums.count),
            number(op.nested),
            number(op.sums.failed),
            bytes(op.sums.bytes),
            ns(op.sums.time_ns),
            bar(op.sums.time_ns, all),
            ns(op.sums.time_ns / u128::from(op.sums.count.max(1))),
            ns(op.sums.longest_ns),
        ]
    });
    let heads =
        ["operation", "for", "count", "nested", "failed", "bytes", "time", "", "mean", "longest"];
    html! {
        (title("Operations", "With those that are nested."))
        (table(&heads, rows, data.operations.len() as u64))
    }
}

fn files(data: &ReportData) -> Markup {
    let what = "Order and alignment are of reads and writes in the layer next to the file \
                system: green goes on where the one before ended, blue has one stride, yellow \
                goes on further ahead, red goes back.";
    let most = data.files.iter().map(FileData::time_ns).max().unwrap_or(0);
    let rows = data.files.iter().map(|file| {
        let (reads, writes) = match file.lowest_access() {
            Some(access) => (access.reads.clone(), access.writes.clone()),
            None => Default::default(),
        };
        let placed = reads.placed + writes.placed;
        let aligned = reads.aligned + writes.aligned;
        let share = if placed > 0 { percent(aligned, placed) } else { "–".to_owned() };
        vec![
            HtmlCell::Path(file.path.clone()),
            ns(file.time_ns()),
            bar(file.time_ns(), most),
            number(file.reads.count),
            bytes(file.reads.bytes),
            number(file.writes.count),
            bytes(file.writes.bytes),
            number(file.other.count),
            order(&[&reads, &writes]),
            HtmlCell::Number((ratio(aligned, placed) * 1e6) as u128, share),
            number(file.processes),
            number(file.hosts),
        ]
    });
    let heads = [
        "file",
        "time",
        "",
        "reads",
        "read",
        "writes",
        "written",
        "other",
        "order",
        "aligned",
        "processes",
        "hosts",
    ];
    html! {
        (title("Files", what))
        (table(&heads, rows, data.files_total))
    }
}

fn directories(data: &ReportData) -> Markup {
    let most = data.directories.iter().map(|directory| directory.time_ns()).max();
    let rows = data.directories.iter().map(|directory| {
        vec![
            HtmlCell::Path(directory.path.clone()),
            ns(directory.time_ns()),
            bar(directory.time_ns(), most.unwrap_or(0)),
            number(directory.files),
            bytes(directory.reads.bytes),
            bytes(directory.writes.bytes),
            number(directory.other.count),
            number(directory.missing),
        ]
    });
    let heads = ["directory", "time", "", "files", "read", "written", "other", "not there"];
    html! {
        (title("Directories", "What was done to what lies right in them."))
        (table(&heads, rows, data.directories.len() as u64 + data.directories_beyond))
    }
}

fn processes(data: &ReportData) -> Markup {
    let most = data.processes.iter().map(|process| process.time_ns()).max().unwrap_or(0);
    let rows = data.processes.iter().map(|process| {
        vec![
            HtmlCell::Text(process.host.clone()),
            HtmlCell::Number(process.pid.unsigned_abs().into(), process.pid.to_string()),
            ns(process.time_ns()),
            bar(process.time_ns(), most),
            number(process.reads.count),
            bytes(process.reads.bytes),
            number(process.writes.count),
            bytes(process.writes.bytes),
            number(process.other.count),
            number(process.streams.count),
            HtmlCell::Path(process.command.clone()),
        ]
    });
    let heads = [
        "host", "process", "time", "", "reads", "read", "writes", "written", "other", "streams",
        "command",
    ];
    html! {
        (title("Processes", ""))
        (table(&heads, rows, data.programs_total))
    }
}

fn hosts(data: &ReportData) -> Markup {
    let rows = data.hosts.iter().map(|host| {
        vec![
            HtmlCell::Text(host.host.clone()),
            number(host.processes),
            ns(host.reads.time_ns + host.writes.time_ns + host.other.time_ns),
            number(host.reads.count),
            bytes(host.reads.bytes),
            number(host.writes.count),
            bytes(host.writes.bytes),
            number(host.other.count),
            number(host.streams.count),
        ]
    });
    let heads =
        ["host", "processes", "time", "reads", "read", "writes", "written", "other", "streams"];
    html! {
        (title("Hosts", ""))
        (table(&heads, rows, data.hosts.len() as u64))
    }
}

fn slowest(data: &ReportData, heading: &str, slowest: &[SlowOperation]) -> Markup {
    if slowest.is_empty() {
        return html! {};
    }
    let begin = data.span.map_or(0, |span| span.first_ns);
    let rows = slowest.iter().map(|slow| {
        let offset = slow.offset.map_or("–".to_owned(), |offset| offset.to_string());
        vec![
            ns(slow.duration_ns),
            HtmlCell::Number(
                slow.time_ns.abs_diff(begin).into(),
                format!("+ {}", time(slow.time_ns.abs_diff(begin))),
            ),
            HtmlCell::Text(format!("{} {}", slow.layer, slow.op)),
            bytes(slow.bytes.into()),
            HtmlCell::Number(slow.offset.unwrap_or(0).unsigned_abs().into(), offset),
            HtmlCell::Text(format!("{} {}", slow.host, slow.pid)),
            HtmlCell::Path(slow.path.clone()),
        ]
    });
    let heads = ["took", "at", "operation", "bytes", "offset", "process", "file"];
    html! {
        (title(heading, ""))
        (table(&heads, rows, slowest.len() as u64))
    }
}

fn failures(data: &ReportData) -> Markup {
    if data.failures.is_empty() {
        return html! {};
    }
    let rows = data.failures.iter().map(|failure| {
        vec![
            number(failure.count),
            ns(failure.time_ns),
            HtmlCell::Text(format!("{} {}", failure.layer, failure.op)),
            HtmlCell::Text(failure.name.clone()),
            HtmlCell::Path(failure.examples.join(", ")),
        ]
    });
    let heads = ["count", "time", "operation", "why", "for example"];
    html! {
        (title("Failures", "With those that are nested."))
        (table(&heads, rows, data.failures.len() as u64))
    }
}

fn lost(data: &ReportData) -> Markup {
    if data.lost.ranges == 0 {
        return html! {};
    }
    let what = format!("{} in all: there was no room for them.", count(data.lost.count));
    let rows = data.lost.biggest.iter().map(|range| {
        vec![
            number(range.count),
            HtmlCell::Text(day(range.from_ns)),
            ns(range.to_ns.abs_diff(range.from_ns)),
            HtmlCell::Text(format!("{} {}", range.host, range.pid)),
        ]
    });
    html! {
        (title("Lost operations", &what))
        (table(&["count", "from", "within", "process"], rows, data.lost.ranges))
    }
}

fn removed(data: &ReportData) -> Markup {
    html! {
        @if data.removed.parts > 0 { (title("Removed operations", &data.removed.sentence())) }
    }
}

fn class_word(class: OpClass) -> &'static str {
    match class {
        OpClass::Read => "read",
        OpClass::Write => "write",
        OpClass::Copy => "copy",
        OpClass::Metadata => "metadata",
        OpClass::Sync => "sync",
        OpClass::Other => "other",
        OpClass::Process => "process",
        OpClass::Stream => "stream",
    }
}

/// A moment as date and time.
fn sizes(bucket: &SizeBucket) -> String {
    match bucket.from {
        0 => "0 B".to_owned(),
        from => format!("{} –", size(from)),
    }
}

/// Shares side by side.
fn stacked(parts: &[(&str, u128)], class: &str, height: u32, title: Option<&str>) -> Markup {
    let all: u128 = parts.iter().map(|(_, part)| part).sum();
    let mut left = 0.0;
    html! {
        svg class=(class) height=(height) role="img" {
            @if let Some(title) = title { title { (text(title)) } }
            @for (part_class, part) in parts.iter().filter(|(_, part)| *part > 0) {
                @let (x, width) = (left, ratio(*part, all) * 100.0);
                @let () = left += width;
                rect class=(part_class) x=(format!("{x:.3}%")) width=(format!("{width:.3}%"))
                    height=(height) {}
            }
        }
    }
}

/// In what order a file was accessed.
fn order(patterns: &[&AccessPattern]) -> HtmlCell {
    let sum = |of: fn(&AccessPattern) -> u64| -> u128 {
        patterns.iter().map(|pattern| u128::from(of(pattern))).sum()
    };
    let placed = sum(|pattern| pattern.placed);
    if placed == 0 {
        return HtmlCell::Text("–".to_owned());
    }
    let parts = [
        ("f0", "consecutive", sum(|pattern| pattern.consecutive)),
        ("f1", "strided", sum(|pattern| pattern.strided)),
        ("f2", "forward", sum(|pattern| pattern.forward)),
        ("f3", "backward", sum(|pattern| pattern.backward)),
        ("f4", "first or unknown", sum(|pattern| pattern.first + pattern.unclassified)),
    ];
    let title: Vec<String> = parts
        .iter()
        .filter(|(_, _, part)| *part > 0)
        .map(|(_, word, part)| format!("{word} {}", percent(*part, placed)))
        .collect();
    let parts = parts.map(|(class, _, part)| (class, part));
    HtmlCell::Chart(stacked(&parts, "bar", 10, Some(&title.join(", "))))
}

/// Sums over time as an area.
fn area(sums: &[u128], peak: u128, class: &str) -> Markup {
    let mut path = String::from("M0 100");
    for (bin, sum) in sums.iter().enumerate() {
        let top = 100.0 - ratio(*sum, peak) * 100.0;
        write!(path, "V{top:.1}H{}", bin + 1).expect("a string takes all");
    }
    path.push_str("V100Z");
    html! {
        svg viewBox={ "0 0 " (sums.len().max(1)) " 100" } height="60" preserveAspectRatio="none" role="img" {
            path class=(class) d=(path) {}
        }
    }
}

/// The cells of a heat map, those of one shade in one path.
fn shades(rows: &[(&str, &Vec<u128>)], bins: usize, most: u128, class: &str) -> Markup {
    let mut paths = vec![String::new(); SHADES + 1];
    for (row, (_, cells)) in rows.iter().enumerate() {
        let shade = |bytes: u128| match bytes {
            0 => 0,
            bytes => ((ratio(bytes, most).sqrt() * SHADES as f64).ceil() as usize).clamp(1, SHADES),
        };
        let mut bin = 0;
        while bin < cells.len() {
            let of = shade(cells[bin]);
            let same = cells[bin..].iter().take_while(|bytes| shade(**bytes) == of).count();
            write!(paths[of], "M{bin} {row}h{same}v.9h-{same}z").expect("a string takes all");
            bin += same;
        }
    }
    let opacity = |shade: usize| format!("{:.2}", 0.12 + 0.88 * shade as f64 / SHADES as f64);
    let view_box = format!("0 0 {} {}", bins.max(1), rows.len().max(1));
    let height = rows.len() * HEAT_ROW_PX;
    html! {
        svg viewBox=(view_box) height=(height) preserveAspectRatio="none" role="img" {
            @for (shade, path) in paths.iter().enumerate().skip(1).filter(|(_, path)| !path.is_empty()) {
                path class=(class) fill-opacity=(opacity(shade)) d=(path) {}
            }
        }
    }
}

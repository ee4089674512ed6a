//! A report as one HTML page that needs nothing else.
use crate::report::data::{
    AccessPattern, FileData, HeatData, IoSums, OpClass, ReportData, SizeBucket, SlowOperation,
};
use crate::report::html_page::{SCRIPT, STYLE};
use crate::report::text::share_of;
use crate::report::units::{count, day, percent, ratio, shortened, shown, size, time};
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
        let mut page = HtmlPage::default();
        page.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
        page.raw("<title>I/O report</title><style>");
        page.raw(STYLE);
        page.raw("</style></head>\n<body><main>\n");
        page.head(self);
        page.findings(self);
        page.time_split(self);
        page.heat(&self.heat);
        page.histograms(self);
        page.layers(self);
        page.operations(self);
        page.files(self);
        page.directories(self);
        page.processes(self);
        page.hosts(self);
        page.slowest(self, "Slowest operations", &self.slowest);
        let title = "Longest waits for pipes, sockets and terminals";
        page.slowest(self, title, &self.slowest_streams);
        page.failures(self);
        page.lost(self);
        page.removed(self);
        if !self.notes.is_empty() {
            page.title("Not in this report", "");
            page.raw("<ul>");
            self.notes.iter().for_each(|note| page.element("li", "", note));
            page.raw("</ul>");
        }
        page.raw("</main>\n<script type=\"application/json\" id=\"report\">");
        // `<` is in strings alone, where it may be written so: no text ends the element.
        page.raw(&self.to_json().replace('<', "\\u003c"));
        page.raw("</script>\n<script>");
        page.raw(SCRIPT);
        page.raw("</script></body></html>\n");
        page.out
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
    /// HTML of our own.
    Chart(String),
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
    let width = ratio(part, whole) * 100.0;
    HtmlCell::Chart(format!(
        "<svg class=\"bar\" role=\"img\"><title>{}</title>\
         <rect class=\"box\" width=\"{width:.2}%\" height=\"10\"/></svg>",
        percent(part, whole)
    ))
}

#[derive(Default)]
struct HtmlPage {
    out: String,
}

impl HtmlPage {
    fn raw(&mut self, html: &str) {
        self.out.push_str(html);
    }

    /// The one way for texts of a trace into the page.
    fn text(&mut self, text: &str) {
        for c in shown(text).chars() {
            match c {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                c => self.out.push(c),
            }
        }
    }

    fn element(&mut self, tag: &str, class: &str, text: &str) {
        write!(self.out, "<{tag} class=\"{class}\">").expect("a string takes all");
        self.text(text);
        write!(self.out, "</{tag}>").expect("a string takes all");
    }

    fn title(&mut self, title: &str, what: &str) {
        self.raw("\n");
        self.element("h2", "", title);
        if !what.is_empty() {
            self.element("p", "soft small", what);
        }
    }

    fn table(&mut self, heads: &[&str], rows: impl Iterator<Item = Vec<HtmlCell>>, all: u64) {
        self.raw("<div class=\"scroll\"><table class=\"sorts\"><thead><tr>");
        let rows: Vec<_> = rows.take(ROWS_MAX).collect();
        for (at, head) in heads.iter().enumerate() {
            let is_number = rows.first().is_some_and(|row| matches!(row[at], HtmlCell::Number(..)));
            self.element("th", if is_number { "n" } else { "" }, head);
        }
        self.raw("</tr></thead><tbody>\n");
        let shown = rows.len() as u64;
        for row in rows {
            self.raw("<tr>");
            for cell in row {
                match cell {
                    HtmlCell::Number(value, text) => {
                        write!(self.out, "<td class=\"n\" data-v=\"{value}\">")
                            .expect("a string takes all");
                        self.text(&text);
                        self.raw("</td>");
                    }
                    HtmlCell::Text(text) => self.element("td", "", &text),
                    HtmlCell::Path(text) => {
                        self.element("td", "path", &shortened(&text, PATH_CHARS_MAX));
                    }
                    HtmlCell::Chart(html) => {
                        self.raw("<td>");
                        self.raw(&html);
                        self.raw("</td>");
                    }
                }
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>");
        if all > shown {
            self.element("p", "soft small", &format!("and {} more", count(all - shown)));
        }
    }

    fn tile(&mut self, value: &str, what: &str) {
        self.raw("<div class=\"tile\">");
        self.element("b", "", value);
        self.element("span", "soft small", what);
        self.raw("</div>");
    }

    fn head(&mut self, data: &ReportData) {
        self.raw("<header><h1>I/O report</h1>");
        if let Some(span) = data.span {
            let text = format!("{}, {} long", day(span.first_ns), time(span.length_ns()));
            self.element("p", "soft", &text);
        }
        if let Some(run) = &data.run {
            self.element("p", "soft", &run.sentence());
        }
        self.raw("<div class=\"tiles\">");
        self.tile(&count(data.rows), "operations");
        self.tile(&size(data.totals.read.bytes), "read");
        self.tile(&size(data.totals.write.bytes), "written");
        self.tile(&time(data.io_time_ns()), "time in I/O, of all threads");
        self.tile(&count(data.files_total), "files");
        self.tile(&count(data.processes_total), "processes");
        self.tile(&count(data.programs_total), "programs");
        self.tile(&count(data.hosts.len() as u64), "hosts");
        self.tile(&count(data.totals.all.failed), "failed");
        self.tile(&count(data.lost.count), "lost");
        if data.unwritten > 0 {
            self.tile(&count(data.unwritten), "not stored");
        }
        if data.removed.parts > 0 {
            self.tile(&count(data.removed.operations), "removed");
        }
        self.raw("</div></header>");
    }

    fn findings(&mut self, data: &ReportData) {
        self.title("Findings", "");
        if data.findings.is_empty() {
            let text = data.without_findings();
            let (first, rest) = text.split_at(1);
            let text = format!("{}{rest}.", first.to_uppercase());
            self.element("div", "finding none", &text);
        }
        for finding in &data.findings {
            let word = finding.severity.word();
            write!(self.out, "<div class=\"finding {word}\">").expect("a string takes all");
            self.element("span", "word", word);
            self.element("p", "", &finding.sentence);
            if let Some(cost) = data.cost_of(finding) {
                self.element("p", "", &cost);
            }
            self.element("p", "soft", &finding.advice);
            if !finding.evidence.is_empty() {
                self.raw("<details><summary>Evidence</summary>");
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
                self.table(&["count", "of", "what", "time", "where"], rows, all);
                self.raw("</details>");
            }
            self.raw("</div>");
        }
    }

    fn time_split(&mut self, data: &ReportData) {
        let totals = &data.totals;
        let kinds: [(&str, &IoSums); 7] = [
            ("read", &totals.read),
            ("write", &totals.write),
            ("metadata", &totals.metadata),
            ("sync", &totals.sync),
            ("other", &totals.other),
            ("process", &totals.process),
            ("stream", &totals.stream),
        ];
        let what = "Of operations that are not within another one, all threads together. Where \
                    processes begin and end, and what a pipe, a socket or a terminal is waited for, \
                    is no time of files.";
        self.title("Where the time went", what);
        let parts: Vec<(&str, u128)> =
            kinds[..5].iter().map(|(kind, sums)| (*kind, sums.time_ns)).collect();
        let chart = stacked(&parts, "wide", 18);
        self.raw(&chart);
        self.raw("<div class=\"key\">");
        for (kind, sums) in kinds.iter().filter(|(_, sums)| sums.count > 0) {
            write!(
                self.out,
                "<span><svg><rect class=\"{kind}\" width=\"10\" height=\"10\"/></svg>"
            )
            .expect("a string takes all");
            let share = share_of(data, kind, sums);
            self.text(&format!("{kind} {share} · {} · {}×", time(sums.time_ns), count(sums.count)));
            self.raw("</span>");
        }
        self.raw("</div>");
    }

    fn heat(&mut self, heat: &HeatData) {
        let has = |of: fn(&crate::report::data::HeatRow) -> &Vec<u128>| {
            heat.rows.iter().any(|row| of(row).iter().any(|bytes| *bytes > 0))
        };
        let what = format!(
            "Each column is {} long, each row a {}; the darker, the more bytes (by the root of \
             the amount).",
            time(heat.bin_ns),
            heat.by
        );
        if !heat.rows.is_empty() {
            self.title("Bytes over time", &what);
        }
        if has(|row| &row.read_bytes) {
            let rows = heat.rows.iter().map(|row| (row.label.as_str(), &row.read_bytes));
            self.heat_map(heat, "Read", "read", rows.collect());
        }
        if has(|row| &row.written_bytes) {
            let rows = heat.rows.iter().map(|row| (row.label.as_str(), &row.written_bytes));
            self.heat_map(heat, "Written", "write", rows.collect());
        }
    }

    fn heat_map(
        &mut self,
        heat: &HeatData,
        title: &str,
        class: &str,
        rows: Vec<(&str, &Vec<u128>)>,
    ) {
        let bins = rows.iter().map(|(_, bins)| bins.len()).max().unwrap_or(0);
        let most = rows.iter().flat_map(|(_, bins)| bins.iter()).copied().max().unwrap_or(0);
        let sums: Vec<u128> = (0..bins)
            .map(|bin| rows.iter().map(|(_, bins)| bins.get(bin).copied().unwrap_or(0)).sum())
            .collect();
        let peak = sums.iter().copied().max().unwrap_or(0);
        let per_second = |bytes: u128| {
            size(bytes.saturating_mul(1_000_000_000) / u128::from(heat.bin_ns.max(1)))
        };
        self.element(
            "h3",
            "",
            &format!(
                "{title}: at most {}/s in all, {}/s of one {}",
                per_second(peak),
                per_second(most),
                heat.by
            ),
        );
        self.raw("<div class=\"card\"><div class=\"heat\"><ol><li>all</li></ol>");
        self.raw(&area(&sums, peak, class));
        self.raw("<ol>");
        rows.iter().for_each(|(label, _)| self.element("li", "", label));
        self.raw("</ol>");
        self.raw(&shades(&rows, bins, most, class));
        self.raw("<span></span><div class=\"axis\"><span>0</span>");
        let length = u128::from(heat.bin_ns) * bins as u128;
        self.element("span", "", &time(length / 2));
        self.element("span", "", &time(length));
        self.raw("</div></div></div>");
    }

    fn histograms(&mut self, data: &ReportData) {
        self.title("Sizes", "What successful reads and writes asked for.");
        self.raw("<div class=\"two\">");
        for (title, buckets) in [("Reads", &data.read_sizes), ("Writes", &data.write_sizes)] {
            self.raw("<div>");
            let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
            self.element("h3", "", &format!("{title}: {}", count(all)));
            let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
            let rows = buckets.iter().map(|bucket| {
                vec![
                    HtmlCell::Number(bucket.from.into(), sizes(bucket)),
                    number(bucket.count),
                    bar(bucket.count.into(), most.into()),
                ]
            });
            if !buckets.is_empty() {
                self.table(&["size", "count", ""], rows, buckets.len() as u64);
            }
            self.raw("</div>");
        }
        self.raw("</div>");
    }

    fn layers(&mut self, data: &ReportData) {
        let what = "Nested operations happen within one of a layer above: their bytes and time \
                    are in no other sum.";
        self.title("Layers", what);
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
        self.table(&heads, rows, data.layers.len() as u64);
    }

    fn operations(&mut self, data: &ReportData) {
        self.title("Operations", "With those that are nested.");
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
        let heads = [
            "operation",
            "for",
            "count",
            "nested",
            "failed",
            "bytes",
            "time",
            "",
            "mean",
            "longest",
        ];
        self.table(&heads, rows, data.operations.len() as u64);
    }

    fn files(&mut self, data: &ReportData) {
        let what = "Order and alignment are of reads and writes in the layer next to the file \
                    system: green goes on where the one before ended, blue has one stride, yellow \
                    goes on further ahead, red goes back.";
        self.title("Files", what);
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
        self.table(&heads, rows, data.files_total);
    }

    fn directories(&mut self, data: &ReportData) {
        self.title("Directories", "What was done to what lies right in them.");
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
        self.table(&heads, rows, data.directories.len() as u64 + data.directories_beyond);
    }

    fn processes(&mut self, data: &ReportData) {
        self.title("Processes", "");
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
            "host", "process", "time", "", "reads", "read", "writes", "written", "other",
            "streams", "command",
        ];
        self.table(&heads, rows, data.programs_total);
    }

    fn hosts(&mut self, data: &ReportData) {
        self.title("Hosts", "");
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
        self.table(&heads, rows, data.hosts.len() as u64);
    }

    fn slowest(&mut self, data: &ReportData, title: &str, slowest: &[SlowOperation]) {
        if slowest.is_empty() {
            return;
        }
        self.title(title, "");
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
        self.table(&heads, rows, slowest.len() as u64);
    }

    fn failures(&mut self, data: &ReportData) {
        if data.failures.is_empty() {
            return;
        }
        self.title("Failures", "With those that are nested.");
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
        self.table(&heads, rows, data.failures.len() as u64);
    }

    fn lost(&mut self, data: &ReportData) {
        if data.lost.ranges == 0 {
            return;
        }
        let what = format!("{} in all: there was no room for them.", count(data.lost.count));
        self.title("Lost operations", &what);
        let rows = data.lost.biggest.iter().map(|range| {
            vec![
                number(range.count),
                HtmlCell::Text(day(range.from_ns)),
                ns(range.to_ns.abs_diff(range.from_ns)),
                HtmlCell::Text(format!("{} {}", range.host, range.pid)),
            ]
        });
        self.table(&["count", "from", "within", "process"], rows, data.lost.ranges);
    }

    fn removed(&mut self, data: &ReportData) {
        if data.removed.parts > 0 {
            self.title("Removed operations", &data.removed.sentence());
        }
    }
}

fn class_word(class: OpClass) -> &'static str {
    match class {
        OpClass::Read => "read",
        OpClass::Write => "write",
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
fn stacked(parts: &[(&str, u128)], class: &str, height: u32) -> String {
    let all: u128 = parts.iter().map(|(_, part)| part).sum();
    let mut out = format!("<svg class=\"{class}\" height=\"{height}\" role=\"img\">");
    let mut left = 0.0;
    for (part_class, part) in parts.iter().filter(|(_, part)| *part > 0) {
        let width = ratio(*part, all) * 100.0;
        write!(
            out,
            "<rect class=\"{part_class}\" x=\"{left:.3}%\" width=\"{width:.3}%\" \
             height=\"{height}\"/>"
        )
        .expect("a string takes all");
        left += width;
    }
    out.push_str("</svg>");
    out
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
    let chart = stacked(&parts.map(|(class, _, part)| (class, part)), "bar", 10);
    let title = format!("<title>{}</title>", title.join(", ").replace('<', "&lt;"));
    HtmlCell::Chart(chart.replacen("role=\"img\">", &format!("role=\"img\">{title}"), 1))
}

/// Sums over time as an area.
fn area(sums: &[u128], peak: u128, class: &str) -> String {
    let mut path = String::from("M0 100");
    for (bin, sum) in sums.iter().enumerate() {
        let top = 100.0 - ratio(*sum, peak) * 100.0;
        write!(path, "V{top:.1}H{}", bin + 1).expect("a string takes all");
    }
    format!(
        "<svg viewBox=\"0 0 {} 100\" height=\"60\" preserveAspectRatio=\"none\" role=\"img\">\
         <path class=\"{class}\" d=\"{path}V100Z\"/></svg>",
        sums.len().max(1)
    )
}

/// The cells of a heat map, those of one shade in one path.
fn shades(rows: &[(&str, &Vec<u128>)], bins: usize, most: u128, class: &str) -> String {
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
    let mut out = format!(
        "<svg viewBox=\"0 0 {} {}\" height=\"{}\" preserveAspectRatio=\"none\" role=\"img\">",
        bins.max(1),
        rows.len().max(1),
        rows.len() * HEAT_ROW_PX
    );
    for (shade, path) in paths.iter().enumerate().skip(1).filter(|(_, path)| !path.is_empty()) {
        let opacity = 0.12 + 0.88 * shade as f64 / SHADES as f64;
        write!(out, "<path class=\"{class}\" fill-opacity=\"{opacity:.2}\" d=\"{path}\"/>")
            .expect("a string takes all");
    }
    out.push_str("</svg>");
    out
}

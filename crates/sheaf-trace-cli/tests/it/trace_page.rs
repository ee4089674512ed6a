//! The page of `sheaf trace report --html`, in a browser.
use crate::trace::TraceHome as _;
use sheaf_testing::home::Home;
use std::path::{Path, PathBuf};
use std::process::Command;

const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Notes what goes wrong from the beginning on.
const BEFORE: &str = "<script>var wrong = [];
addEventListener('error', event => wrong.push(event.message));
</script>";

/// Sorts each table by each column, and says what was found in the title.
const AFTER: &str = "<script>
for (const table of document.querySelectorAll('table')) {
  const rows = table.tBodies[0].rows.length;
  for (const head of table.tHead.rows[0].cells) { head.click(); head.click(); }
  if (table.tBodies[0].rows.length !== rows) wrong.push('a table has lost rows');
}
const tiles = {};
for (const tile of document.querySelectorAll('.tile'))
  tiles[tile.textContent.replace(tile.querySelector('b').textContent, '').trim()] =
    tile.querySelector('b').textContent;
parent.document.title = 'FOUND' + JSON.stringify({ wrong, tiles,
  inner: innerWidth, scroll: document.documentElement.scrollWidth,
  fetched: performance.getEntriesByType('resource').length,
  report: document.getElementById('report').textContent,
  tables: document.querySelectorAll('table').length }) + 'END';
</script>";

fn browser() -> Option<PathBuf> {
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places)
        .flat_map(|place| BROWSERS.map(|name| place.join(name)))
        .find(|path| path.exists())
}

/// The page as a window of this width has it, and what the browser complained of.
fn shown(browser: &Path, home: &Home, page: &Path, width: u32) -> (serde_json::Value, String) {
    let mut command = Command::new("timeout");
    command.arg("120").arg(browser).current_dir(home.path()).env("HOME", home.path());
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"]);
    command.arg(format!("--user-data-dir={}", home.path().join("profile").display()));
    // A window is never as narrow as a phone, and a frame is.
    let name = page.file_name().unwrap().to_str().unwrap();
    let frame =
        format!("<title></title><iframe src={name} width={width} height=900 frameborder=0>");
    let frame = home.write("frame.html", &format!("<!DOCTYPE html>{frame}</iframe>"));
    command.args(["--allow-file-access-from-files", "--window-size=1400,1000"]);
    let output = command.arg("--dump-dom").arg(format!("file://{}", frame.display())).output();
    let output = output.unwrap();
    let (dom, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let found = dom.split_once("<title>FOUND").and_then(|(_, rest)| rest.split_once("END</title>"));
    let (found, _) = found.unwrap_or_else(|| panic!("nothing was found: {said}\n{dom}"));
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let console = said.lines().filter(|line| line.contains("CONSOLE"));
    (serde_json::from_str(&found).unwrap(), console.collect())
}

fn with_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// On a laptop and on a phone, without a network: nothing is wider than the window, nothing fails,
/// and the numbers are those of `--json`.
#[test]
fn page_is_whole_in_a_browser() {
    let Some(browser) = browser() else {
        return sheaf_testing::skipped("no Chromium is installed");
    };
    let home = Home::new();
    let long = "x".repeat(200);
    let script = format!(
        "dd if=/dev/zero of=small bs=512 count=1000 status=none; mkdir '{long}'; \
         cat small >'{long}/<b>&amp; y'; cat absent; for i in 1 2 3; do cat small >/dev/null; done; true"
    );
    assert_eq!(home.record(&["sh", "-c", &script]).code, Some(0));
    let json = home.run(&["trace", "report", "--json", "the.trace"]);
    let record: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let report = &record["report"];
    assert_eq!(home.run(&["trace", "report", "--html", "page.html", "the.trace"]).code, Some(0));
    let page = std::fs::read_to_string(home.path().join("page.html")).unwrap();
    let (head, rest) = page.split_once("<head>").unwrap();
    let (body, end) = rest.rsplit_once("</body>").unwrap();
    let page = home.write("page.html", &format!("{head}<head>{BEFORE}{body}{AFTER}</body>{end}"));
    for width in [1280_u32, 390] {
        let (found, console) = shown(&browser, &home, &page, width);
        assert_eq!(console, "", "{width}");
        assert_eq!(found["wrong"], serde_json::json!([]), "{width}");
        assert_eq!(found["fetched"], 0, "{width}");
        assert_eq!(found["inner"], width);
        let scroll = found["scroll"].as_u64().unwrap();
        assert!(scroll <= width.into(), "{scroll} of {width}");
        // As text: numbers of 64 bits are none of the browser's.
        let within: serde_json::Value =
            serde_json::from_str(found["report"].as_str().unwrap()).unwrap();
        assert!(within == *report, "{width}");
        assert!(found["tables"].as_u64() > Some(5), "{found}");
        let tile = |name: &str| found["tiles"][name].as_str().unwrap_or_default().to_owned();
        let whole = |at: &str| with_thousands(report.pointer(at).unwrap().as_u64().unwrap());
        assert_eq!(tile("operations"), whole("/rows"));
        assert_eq!(tile("files"), whole("/files_total"));
        assert_eq!(tile("processes"), whole("/processes_total"));
        assert_eq!(tile("failed"), whole("/totals/all/failed"));
        assert_eq!(tile("lost"), whole("/lost/count"));
    }
}

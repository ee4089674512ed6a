//! The frame of a report's page: its style, and the script that sorts tables.

/// A calm page in one column that a laptop and a phone can show, by day and by night.
pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fbfbfa; --card: #fff; --ink: #1d2126; --soft: #5b6470;
  --line: #dfe2e6; --read: #2f6fb5; --write: #c2611f; --meta: #6b5aa8; --sync: #a8324a;
  --other: #7d8894; --good: #2e7d55; --warn: #b7791f; --grave: #b3261e; --bar: #b9cde4; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --card: #1c2026; --ink: #dfe3e8;
  --soft: #97a1ad; --line: #303740; --read: #6ea8e8; --write: #e89a5a; --meta: #a898e0;
  --sync: #e0788c; --other: #8f9aa6; --good: #6cc097; --warn: #e0b060; --grave: #f0857c;
  --bar: #34506f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 20px 24px 60px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 34px 0 8px; }
h3 { font-size: 13px; margin: 14px 0 4px; color: var(--soft); font-weight: 600; }
p { margin: 4px 0; overflow-wrap: anywhere; } .soft { color: var(--soft); } .small { font-size: 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); gap: 8px;
  margin: 14px 0; }
.tile, .finding, .card { background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: 8px 12px; }
.tile b { display: block; font-size: 18px; font-weight: 600; font-variant-numeric: tabular-nums; }
.finding { border-left: 4px solid var(--soft); margin: 8px 0; overflow-wrap: anywhere; }
.finding.grave { border-left-color: var(--grave); }
.finding.warning { border-left-color: var(--warn); }
.finding.note { border-left-color: var(--other); }
.finding .word { font-size: 11px; text-transform: uppercase; letter-spacing: .05em;
  color: var(--soft); }
.none { border-left-color: var(--good); }
details { margin-top: 4px; } summary { cursor: pointer; color: var(--soft); font-size: 12px; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px;
  background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: 12.5px; }
th, td { padding: 3px 10px; text-align: left; white-space: nowrap; border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; }
.js thead th { cursor: pointer; } tbody tr:hover { background: var(--paper); }
.path { font-family: ui-monospace, 'SF Mono', Menlo, Consolas, monospace; font-size: 12px;
  white-space: normal; overflow-wrap: anywhere; min-width: 220px; }
svg { display: block; } svg.bar { width: 90px; height: 10px; } svg.wide { width: 100%; }
.bar .box { fill: var(--bar); } .read { fill: var(--read); } .write { fill: var(--write); }
.metadata { fill: var(--meta); } .sync { fill: var(--sync); } .other { fill: var(--other); }
.process, .stream { fill: var(--line); } .f0 { fill: var(--good); } .f1 { fill: var(--read); }
.f2 { fill: var(--warn); } .f3 { fill: var(--grave); } .f4 { fill: var(--line); }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 12px; margin: 6px 0; }
.key svg { width: 10px; height: 10px; display: inline-block; margin-right: 5px; }
.heat { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0 8px; }
.heat ol { list-style: none; margin: 0; padding: 0; font-size: 10px; color: var(--soft);
  max-width: 150px; } .heat li { height: 12px; line-height: 12px; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.heat svg { width: 100%; background: var(--paper); }
.axis { display: flex; justify-content: space-between; font-size: 11px; color: var(--soft); }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(290px, 1fr)); gap: 12px; }
@media (max-width: 600px) { main { padding: 14px 12px 40px; } .heat ol { max-width: 84px; }
  th, td { padding: 3px 7px; } .path { min-width: 180px; } }
";

/// Sorts a table by the column whose head is clicked; the page is whole without it.
pub(crate) const SCRIPT: &str = "
document.documentElement.classList.add('js');
for (const head of document.querySelectorAll('table.sorts thead th')) {
  head.addEventListener('click', () => {
    const body = head.closest('table').tBodies[0], at = head.cellIndex;
    const value = row => { const cell = row.cells[at];
      return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v); };
    const up = head.dataset.up = head.dataset.up === '1' ? '0' : '1';
    const rows = Array.from(body.rows).sort((a, b) => { const x = value(a), y = value(b);
      const order = typeof x === 'number' && typeof y === 'number' ? y - x
        : String(x).localeCompare(String(y));
      return up === '1' ? order : -order; });
    body.append(...rows);
  });
}
";

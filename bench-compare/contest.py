"""Contestants, their interleaved rounds, and the table of what came out."""

import dataclasses
import json
import statistics
import sys
import typing

import measure


@dataclasses.dataclass
class Contestant:
    """One way to do the job of a contest."""

    name: str
    command: typing.Any  # a list, or a string for the shell
    keep: bool = False  # keep the output, for `read`
    env: dict = None
    background: tuple = ()
    before: typing.Callable = None  # called before every run, outside the clock
    check: typing.Callable = None  # given the sample; returns what is wrong, or None
    read: typing.Callable = None  # given the sample; returns its own metrics
    exits: tuple = (0,)


@dataclasses.dataclass
class Contest:
    """What is measured: one metric, compared over several contestants."""

    name: str
    contestants: list
    baseline: str
    metric: str = "wall_s"
    goal: str = ""
    columns: tuple = ("cpu_s", "out_bytes")
    also: dict = dataclasses.field(default_factory=dict)  # more metrics of the same turns, and their goals


class Harness:
    """Runs contests and writes every sample as a JSON line, every contest as a table."""

    def __init__(self, rounds, contestant_s_max, timeout_s, out):
        self.rounds, self.contestant_s_max, self.timeout_s = rounds, contestant_s_max, timeout_s
        self.out = out

    def emit(self, record):
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def _round(self, contest, contestant, number):
        if contestant.before:
            contestant.before()
        sample = measure.run(contestant.command, timeout_s=self.timeout_s, keep=contestant.keep,
                             env=contestant.env, background=contestant.background)
        wrong = None
        if sample.exit_code not in contestant.exits:
            wrong = f"exit {sample.exit_code}: {sample.stderr.strip()[-200:]}"
        elif contestant.check:
            wrong = contestant.check(sample)
        if not wrong and contestant.read:
            sample.metrics = contestant.read(sample)
        if not wrong and value(sample, contest.metric) is None:
            wrong = f"its output does not give {contest.metric}"
        self.emit({"kind": "sample", "contest": contest.name, "contestant": contestant.name,
                   "round": number, "wrong": wrong, **sample.as_dict()})
        return sample, wrong

    def run(self, contest):
        """Interleaves the contestants: A B C, C B A, …, so that none gains by its place in a turn; one that fails
        or is slow drops out. Returns the samples."""
        samples = {c.name: [] for c in contest.contestants}
        failed = {}
        for number in range(self.rounds):
            for contestant in contest.contestants[::-1 if number % 2 else 1]:
                name = contestant.name
                spent = sum(s.wall_s for s in samples[name])
                if name in failed or spent > self.contestant_s_max:
                    continue
                sample, wrong = self._round(contest, contestant, number)
                if wrong:
                    failed[name] = wrong
                    print(f"{contest.name}: {name}: {wrong}", file=sys.stderr)
                else:
                    samples[name].append(sample)
        self._report(contest, samples, failed)
        for metric, goal in contest.also.items():
            self._report(dataclasses.replace(contest, metric=metric, goal=goal, columns=(), also={}), samples, failed)
        return samples

    def _report(self, contest, samples, failed):
        base = [value(s, contest.metric) for s in samples[contest.baseline]] \
            if contest.baseline in samples else []
        rows = []
        for contestant in contest.contestants:
            name = contestant.name
            values = [value(s, contest.metric) for s in samples[name]]
            if None in values:  # one of `also` that this contestant does not have
                values = []
            row = {"kind": "result", "contest": contest.name, "contestant": name,
                   "metric": contest.metric, "baseline": contest.baseline, "n": len(values),
                   "command": command_text(contestant.command), "failed": failed.get(name)}
            if values and name not in failed:
                row.update(median=statistics.median(values), min=min(values), max=max(values))
                row.update({c: median_of(samples[name], c) for c in contest.columns})
                pairs = [v / b for v, b in zip(values, base) if b]  # b may be None: a metric of `also`
                if pairs:
                    row.update(ratio=statistics.median(pairs), ratio_min=min(pairs), ratio_max=max(pairs))
                row["linger_s_max"] = max(s.linger_s for s in samples[name])
                row["leftovers"] = sum(s.leftovers for s in samples[name])
            rows.append(row)
            self.emit(row)
        self._emit_pairs(contest, rows)
        print_table(contest, rows)

    def _emit_pairs(self, contest, rows):
        done = [r for r in rows if "median" in r]
        ratios = {f"{a['contestant']} / {b['contestant']}": a["median"] / b["median"]
                  for a in done for b in done if a is not b and b["median"]}
        self.emit({"kind": "ratios", "contest": contest.name, "metric": contest.metric,
                   "of_medians": ratios})


def value(sample, metric):
    """A metric of a sample: one of the contestant's own, or of the harness."""
    if metric in sample.metrics:
        return sample.metrics[metric]
    return getattr(sample, metric, None)


def median_of(samples, metric):
    values = [v for v in (value(s, metric) for s in samples) if isinstance(v, (int, float))]
    return statistics.median(values) if values else None


def command_text(command):
    if isinstance(command, str):
        return command
    text = " ".join(command[:24])
    return text if len(command) <= 24 else f"{text} … ({len(command)} words)"


def human(number):
    if number is None:
        return "–"
    if isinstance(number, float) and not number.is_integer() and abs(number) < 1e5:
        return f"{number:.4g}"
    return f"{number:,.0f}"


def cell(text):
    return text.replace("|", "\\|")


def print_table(contest, rows):
    goal = f" (goal {contest.goal})" if contest.goal else ""
    print(f"\n### {contest.name}: {contest.metric}{goal}\n")
    head = ["contestant", "n", "median", "min", "max", f"× {contest.baseline}", "spread of ×",
            *contest.columns]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        if "median" not in row:
            why = f"failed: {row['failed'].splitlines()[0]}" if row["failed"] else "not run"
            print(f"| {cell(row['contestant'])} | 0 | {cell(why)} |" + " |" * (len(head) - 3))
            continue
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else "–"
        spread = f"{row['ratio_min']:.2f}–{row['ratio_max']:.2f}" if "ratio" in row else "–"
        cells = [cell(row["contestant"]), str(row["n"]), human(row["median"]), human(row["min"]),
                 human(row["max"]), ratio, spread, *(human(row.get(c)) for c in contest.columns)]
        print("| " + " | ".join(cells) + " |")
    sys.stdout.flush()

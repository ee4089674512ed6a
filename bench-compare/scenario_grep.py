"""`grep` over many servers' files against local searchers and parallel shells."""

import functools
import shlex

import data
import sheaf as sheaf_numbers
from contest import Contest, Contestant

PROCESS_SERVERS_MAX = 256  # more server processes than this do not fit beside the rest
OWN = ("init_s", "read_s", "root_bytes", "leaf_cpu_s")


def _exactly(size):
    def check(sample):
        if sample.out_bytes != size:
            return f"printed {sample.out_bytes} bytes, not {size}"
        return None
    return check


def _between(low, high):
    def check(sample):
        if not low <= sample.out_bytes <= high:
            return f"printed {sample.out_bytes} bytes, not {low} to {high}"
        return None
    return check


class Job:
    """One search: what for, where the rivals find each server's file, what must come out."""

    def __init__(self, name, pattern, count, local_paths, per_host, sheaf_path, export, folded_bytes):
        self.name, self.pattern, self.count = name, pattern, count
        self.local_paths, self.per_host = local_paths, per_host
        self.sheaf_path, self.export, self.folded_bytes = sheaf_path, export, folded_bytes

    def rivals(self):
        hosts = f"n[1-{self.count}]"
        search = f"grep {self.pattern} {self.per_host}"
        # Folded output has one header of a few lines over what one server prints.
        folded = _between(self.folded_bytes, self.folded_bytes + 400)
        pdsh = f"pdsh -R exec -f 64 -w {shlex.quote(hosts)} {search} | dshbak -c"
        return [
            Contestant("GNU grep", ["grep", self.pattern, *self.local_paths]),
            Contestant("ripgrep", ["rg", "--no-config", "--color=never", "-NH", self.pattern,
                                   *self.local_paths]),
            Contestant("pdsh | dshbak -c", pdsh, check=folded),
            Contestant("clush -b", ["clush", "-R", "exec", "-f", "64", "-w", hosts, "-b", search],
                       check=folded),
        ]

    def ours(self, sheaf, session, background):
        if not sheaf.exists:
            return []
        read = functools.partial(sheaf_numbers.numbers, wanted=OWN)
        prefix = len(f"n[1-{self.count}]:{self.sheaf_path}:")
        lines = self.lines()
        check = _exactly(self.folded_bytes + lines * prefix)
        words = ("grep", self.pattern, self.sheaf_path, "--stats")
        found = []
        for engine in ("embedded", "processes"):
            if engine == "processes" and self.count > PROCESS_SERVERS_MAX:
                continue
            command = sheaf.command(*words, servers=self.count, engine=engine, export=self.export)
            found.append(Contestant(f"sheaf --{engine}", command, read=read, check=check))
        if session:
            found.append(Contestant("sheaf, session", sheaf.command(*words, session=session),
                                    read=read, check=check, background=background))
        return found

    def lines(self):
        return 1 if self.name.startswith("meminfo") else data.services()[1]


def _jobs(directory, count):
    data.services_exports(directory, count)
    paths = [f"{directory}/n{i}/services" for i in range(1, count + 1)]
    yield Job(f"services-udp × {count}", "udp", count, paths, f"{directory}/%h/services",
              "/services", directory, data.SERVICES_UDP_BYTES)
    with open("/proc/meminfo", "rb") as meminfo:
        total = next(len(line) for line in meminfo if line.startswith(b"MemTotal"))
    yield Job(f"meminfo-Total × {count}", "MemTotal", count, ["/proc/meminfo"] * count,
              "/proc/meminfo", "/proc/meminfo", None, total)


def contests(sheaf, options):
    for count in options.servers or (256, 1024):
        for job in _jobs(options.directory, count):
            engine = "processes" if count <= PROCESS_SERVERS_MAX else "embedded"
            with sheaf.session(f"bench-{count}", servers=count, engine=engine,
                               export=job.export) as (session, background):
                yield Contest(f"grep {job.name}",
                              job.ours(sheaf, session, background) + job.rivals(),
                              baseline="GNU grep",
                              columns=("cpu_s", "out_bytes", *OWN, "rss_max_kb"))

"""What carries a link to another host: ssh against TCP with TLS, and both against ssh by itself.

One server behind one sshd of this scenario's own, on this machine: round trips of the tree's bench
and 64 MiB downwards; beside them a program that does the same over a bare ssh connection.
"""

import pathlib
import sys

from contest import Contest, Contestant
from scenario_launch import Hosts
from sheaf import numbers

ROUNDS = 1000
BYTES = 64 << 20
BARE = pathlib.Path(__file__).resolve().parent / "bare_ssh.py"


def _bare(hosts, metric, what, count):
    line = [sys.executable, str(BARE), what, str(count), "ssh", "-F", str(hosts.ssh_config), "n1"]
    return Contestant("bare ssh", line, keep=True, env=hosts.environment(),
                      read=lambda sample: numbers(sample, [metric]))


def _sheaf(sheaf, hosts, link, metric, words):
    line = [sheaf.binary, "--config", str(hosts.sheaf_config), "-C", "flat", "--link", link,
            "tree", "bench", "--json", *words]
    return Contestant(f"sheaf {link}", line, keep=True, env=hosts.environment(),
                      read=lambda sample: numbers(sample, [metric]))


def contests(sheaf, options):
    if not sheaf.exists:
        return
    hosts = Hosts(options.directory, 1)
    try:
        hosts.start()
        for name, metric, bare, words in (
                ("link rtt", "median_us", ("rtt", ROUNDS), ("rtt", "--rounds", str(ROUNDS))),
                ("link 64 MiB", "median_s", ("bulk", BYTES), ("bcast", "--bytes", str(BYTES)))):
            ours = [_sheaf(sheaf, hosts, link, metric, words) for link in ("ssh", "tls")]
            yield Contest(name, [_bare(hosts, metric, *bare), *ours], baseline="bare ssh", metric=metric)
    except OSError as error:
        print(f"links: {error}", file=sys.stderr)
    finally:
        hosts.stop()

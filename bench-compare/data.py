"""The files that are searched and copied: deterministic, so every run works on the same bytes."""

import pathlib
import random

# The paper's /etc/services has 559,563 bytes, and its `grep udp` over 1,024
# servers printed 376.897 MB, which is 368,063 bytes of each.
SERVICES_BYTES = 559_563
SERVICES_UDP_BYTES = 368_063
PORTS = 65_535
LINE_BYTES_MIN = 40

_SYLLABLES = ("net ser port link log data mail ftp rpc sync auth cast key map node disk time bus "
              "name file core grid chat game host wave trap fax meter").split()
_WORDS = ("protocol service manager control remote system network access agent server client "
          "message transfer secure monitor gateway directory licence discovery exchange").split()


def _line(rng, port, protocol):
    name = "-".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(1, 3)))
    comment = " ".join(rng.choice(_WORDS) for _ in range(rng.randint(2, 5)))
    return f"{name:<15} {f'{port}/{protocol}':<15} # {comment}\n"


def _lines(rng, protocol, total_bytes):
    """Lines of one protocol, of exactly so many bytes: the last one is cut or padded to fit."""
    lines, used, port = [], 0, 0
    while used < total_bytes:
        port += rng.randint(1, 9)
        line = _line(rng, port, protocol)
        left = total_bytes - used
        if left < len(line) + 2 * LINE_BYTES_MIN:
            line = line.rstrip("\n").ljust(left - 1, "x")[:left - 1] + "\n"
            if len(line) != left:
                raise AssertionError("the last line does not fit")
        lines.append((port, protocol, line))
        used += len(line)
    if port > PORTS:
        raise AssertionError("more lines than ports")
    return lines


def services():
    """A services file of the size and share of udp lines that the paper's has."""
    rng = random.Random(20031115)
    lines = _lines(rng, "tcp", SERVICES_BYTES - SERVICES_UDP_BYTES)
    lines += _lines(rng, "udp", SERVICES_UDP_BYTES)
    text = "".join(line for _, _, line in sorted(lines, key=lambda entry: entry[:2]))
    udp = [line for line in text.splitlines(keepends=True) if "udp" in line]
    assert len(text) == SERVICES_BYTES and sum(map(len, udp)) == SERVICES_UDP_BYTES
    assert len(set(udp)) == len(udp)
    return text.encode(), len(udp)


def noise(size):
    """Bytes that no file system or link can shrink."""
    return random.Random(size).randbytes(size)


def exports(directory, count):
    """One directory per server, named as Sheaf names them; what `--export DIR/%h` serves."""
    directory = pathlib.Path(directory)
    for number in range(1, count + 1):
        (directory / f"n{number}").mkdir(parents=True, exist_ok=True)
    return directory


def services_exports(directory, count):
    """A copy of the services file in every server's directory, each with blocks of its own."""
    content, udp_lines = services()
    exports(directory, count)
    for number in range(1, count + 1):
        path = pathlib.Path(directory) / f"n{number}" / "services"
        if not path.exists() or path.stat().st_size != len(content):
            path.write_bytes(content)
    return udp_lines


if __name__ == "__main__":
    import sys

    sys.stdout.buffer.write(services()[0])

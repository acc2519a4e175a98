"""Servers of the replication benches: processes on loopback, each with its configuration and data in a directory of its own."""
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARIX = os.environ.get("LARIX", str(ROOT / "target/dist/larix"))
SLAPD = os.environ.get("SLAPD", "/usr/sbin/slapd")
START_SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None, use_errno=True)


def ends_with_parent():
    """In a child that must not outlive the bench, however that ends: SIGTERM when its parent is gone (PR_SET_PDEATHSIG)."""
    LIBC.prctl(1, signal.SIGTERM)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_port(process, port, name, log):
    """Until a process that was just started listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    sys.exit(f"{name} does not start: {log.read_text()[-2000:]}")


def suffix(name):
    return f"dc={name},dc=com"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def generate(work, counts):
    """An LDIF of subscribers for each database."""
    files = {}
    for name, count in counts.items():
        run(LARIX, "load", "generate", "subscribers", "--entries", count, "--out", work / "subscribers")
        text = (work / "subscribers/subscribers.ldif").read_text()
        files[name] = work / f"{name}.ldif"
        files[name].write_text(text.replace("dc=subscribers,dc=com", suffix(name)).replace("dc: subscribers", f"dc: {name}"))
    return files


class Server:
    """One process. It provides its databases, or follows those of `provider`. `logged`: by access logs, and it keeps one itself."""

    def __init__(self, kind, place, server_id, names, provider=None, more=(), logged=False):
        self.kind, self.place, self.port, self.process, self.names = kind, place, free_port(), None, list(names)
        place.mkdir()
        lines = [f"include {place.parent}/subscribers/schema/{name}.schema"
                 for name in ("core", "cosine", "inetorgperson", "nis")]
        if SLAPD == "/usr/sbin/slapd" and kind == "slapd":
            lines += ["modulepath /usr/lib/ldap", "moduleload back_mdb", "moduleload back_monitor", "moduleload syncprov"]
        lines += [f"serverID {server_id}"] if provider is None else []
        delta = ""
        if logged:
            (place / "log.db").mkdir()
            lines += ["database mdb", "suffix cn=log", f'rootdn "cn=admin,{suffix(self.names[0])}"', f"directory {place / 'log.db'}",
                      "maxsize 68719476736", "index objectClass,entryCSN,entryUUID,reqStart,reqDN eq", "limits users size=unlimited",
                      "overlay syncprov", "syncprov-nopresent TRUE", "syncprov-reloadhint TRUE"]
            delta = ' logbase="cn=log" logfilter="(&(objectClass=auditWriteObject)(reqResult=0))" syncdata=accesslog'
        for number, name in enumerate(self.names, 1):
            (place / name).mkdir()
            lines += ["database mdb", f'suffix "{suffix(name)}"', f'rootdn "cn=admin,{suffix(name)}"', "rootpw secret",
                      f"directory {place / name}", "maxsize 68719476736", "index objectClass eq", "index uid eq",
                      "index telephoneNumber eq", "index entryCSN,entryUUID eq", "limits users size=unlimited", *more]
            if provider is None:
                lines += ["overlay syncprov", "syncprov-sessionlog 100000"]
            else:
                lines += [f'syncrepl rid={number:03} provider=ldap://127.0.0.1:{provider.port}/ searchbase="{suffix(name)}"'
                          f' bindmethod=simple binddn="cn=admin,{suffix(name)}" credentials=secret'
                          f' type=refreshAndPersist retry="1 +"{delta}']
            if logged:
                lines += ["overlay accesslog", "logdb cn=log", "logops writes", "logsuccess TRUE"]
        lines += ["database monitor", f'rootdn "cn=admin,{suffix(self.names[0])}"']
        self.configuration = place / "slapd.conf"
        self.configuration.write_text("\n".join(lines) + "\n")

    def load(self, name, ldif):
        tool = [LARIX, "add"] if self.kind == "larix" else [SLAPD, "-Tadd"]
        run(*tool, "-q", "-f", self.configuration, "-b", suffix(name), "-l", ldif)

    def start(self):
        program = [LARIX, "serve"] if self.kind == "larix" else [SLAPD]
        with open(self.place / "log", "w") as log:
            self.process = subprocess.Popen(
                [*program, "-f", str(self.configuration), "-h", f"ldap://127.0.0.1:{self.port}/", "-d", "16384"],
                stdout=log, stderr=log, preexec_fn=ends_with_parent)
        wait_for_port(self.process, self.port, self.kind, self.place / "log")

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None

    def log(self):
        return (self.place / "log").read_text()

    def search(self, name, *arguments):
        return run(LARIX, "search", "-H", f"ldap://127.0.0.1:{self.port}/", "-D", f"cn=admin,{suffix(name)}", "-w", "secret",
                   "-x", "-LLL", "-o", "ldif_wrap=no", *arguments)

    def context(self, name):
        base = ["-b", suffix(name), "-s", "base", "contextCSN"]
        done = subprocess.run([LARIX, "search", "-H", f"ldap://127.0.0.1:{self.port}/", "-x", "-LLL", *base],
                              capture_output=True, text=True)
        return sorted(line for line in done.stdout.splitlines() if line.startswith("contextCSN"))

    def content(self, name):
        """The entries in the order of their names, attributes in the order of theirs."""
        text = self.search(name, "-E", "pr=1000/noprompt", "-b", suffix(name), "*", "entryUUID", "entryCSN")
        entries = [block.split("\n") for block in text.split("\n\n")]
        entries = [sorted(line for line in entry if line and not line.startswith(("#", "control:"))) for entry in entries]
        return sorted(entry for entry in entries if entry)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self, reset=False):
        """Megabytes of its own memory: now, and of all that is resident at most since the last reset."""
        if reset:
            pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines if line.startswith(("RssAnon", "VmHWM"))}
        return sizes["RssAnon"], sizes["VmHWM"]

    def check(self, name, other, *flags):
        """The command that compares the two."""
        urls = [f"ldap://127.0.0.1:{server.port}" for server in (self, other)]
        return [LARIX, "replica", "check", "-x", "-D", f"cn=admin,{suffix(name)}", "-w", "secret", "-b", suffix(name), *flags, *urls]

    def equal(self, name, other):
        """What `larix replica check` says of the two."""
        done = subprocess.run(self.check(name, other), capture_output=True, text=True)
        lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return done.returncode == 0, [line for line in lines if line.startswith(("equal", "not equal"))] or lines[-1:]


def in_step(provider, consumer):
    return all(provider.context(name) == consumer.context(name) != [] for name in provider.names)


def wait_in_step(provider, consumer, seconds, meanwhile=lambda: None):
    begin = time.monotonic()
    while not in_step(provider, consumer):
        if time.monotonic() - begin > seconds:
            return None
        meanwhile()
        time.sleep(0.1)
    return time.monotonic() - begin


def drive(server, name, workload, rate, seconds, *more):
    """Load from several connections, in a process of its own."""
    file = server.place.parent / f"{server.place.name}-{name}-{time.monotonic_ns()}.toml"
    file.write_text(workload)
    command = [LARIX, "load", "run", "--workload", str(file), "--server", f"127.0.0.1:{server.port}",
               "-D", f"cn=admin,{suffix(name)}", "-w", "secret", "--connections", "4", "--seconds", str(seconds),
               "--warm-up", "0", "--process", str(server.process.pid), "--json", *more]
    if rate > 0:
        command += ["--rate", str(max(1, round(rate)))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(process):
    out, error = process.communicate()
    if not out.startswith("{"):
        sys.exit(f"larix load: {error}")
    return json.loads(out)


class Process:
    """One server, target or proxy, that listens on a port of its own."""

    def __init__(self, name, place, command, configuration, file="server.conf"):
        self.name, self.port, self.place = name, free_port(), place
        place.mkdir()
        path = place / file
        path.write_text(configuration.replace("@PORT@", str(self.port)))
        words = [str(word).replace("@FILE@", str(path)).replace("@PORT@", str(self.port)) for word in command]
        with open(place / "log", "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, preexec_fn=ends_with_parent)
        wait_for_port(self.process, self.port, name, place / "log")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cpu_seconds(self):
        """Of the process and of those that it has begun (haproxy works in a child)."""
        return sum(cpu_seconds(pid) for pid in self.family())

    def own_kilobytes(self):
        found = 0
        for pid in self.family():
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                found += int(line.split()[1]) if line.startswith("RssAnon") else 0
        return found

    def family(self):
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def serve(kind):
    """The command of a server that Process starts."""
    return [*([LARIX, "serve"] if kind == "larix" else [SLAPD]), "-f", "@FILE@", "-h", "ldap://127.0.0.1:@PORT@/", "-d", "0"]


def schemas(site):
    """Lines for the schemas of a generated directory."""
    return [f"include {site / 'schema' / name}.schema" for name in ("core", "cosine", "inetorgperson", "nis")]


def modules(kind, *names):
    if kind == "slapd" and SLAPD == "/usr/sbin/slapd":
        return ["modulepath /usr/lib/ldap", *(f"moduleload {name}" for name in names)]
    return []


# The generated directory `people`.
PEOPLE = "dc=example,dc=com"
PEOPLE_ADMIN = f"cn=admin,{PEOPLE}"
BUSY = 51


def people_conf(site, data=None, backend="mdb", kind="larix"):
    """The generated slapd.conf, with its entries in another place: a directory, or what the lines of `backend` name."""
    name, *more = backend.splitlines()
    lines = [*modules(kind, "back_mdb"), "loglevel 0"]
    for line in (site / "slapd.conf").read_text().splitlines():
        if line.startswith("database mdb"):
            lines += [f"database {name}", *more]
        elif line.startswith("directory"):
            lines += [f"directory {data}"] if data else []
        elif data or not line.startswith("maxsize"):
            lines.append(line)
    if data:
        data.mkdir()
    return "\n".join(lines) + "\n"


def drive_people(server, work, entries, connections, seconds, *more):
    """Load on the directory `people`. The report also has the operations for a second of the server's own CPU, and how many were answered busy."""
    before = server.cpu_seconds()
    command = [LARIX, "load", "run", work, "--directory", "people", "--entries", entries, "-D", PEOPLE_ADMIN, "-w", "secret", "--server",
               f"127.0.0.1:{server.port}", "--connections", connections, "--seconds", seconds, "--warm-up", 0, "--sample", 0,
               "--process", server.process.pid, "--json", *more]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    said = json.loads(done.stdout) if done.stdout.startswith("{") else {"failures": [["none", 0]]}
    # lloadd answers busy when all of its connections are in use at that moment: such answers are counted, and shown.
    said["busy"] = sum(count for code, count in said["failures"] if code == BUSY)
    if any(code != BUSY for code, _ in said["failures"]) or (done.returncode != 0 and said["busy"] == 0):
        sys.exit(f"{server.name}: {done.stderr.strip()} {done.stdout.strip()}")
    said["per_own_second"] = (said["operations"] - said["busy"]) / max(server.cpu_seconds() - before, 1 / TICKS)
    return said


def ber(tag, *parts):
    body = b"".join(parts)
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + body


def text(value, tag=0x04):
    return ber(tag, value.encode())


def message(number, operation):
    return ber(0x30, ber(0x02, number.to_bytes(4, "big")), operation)


class Client:
    """A connection that is bound, with one request at a time."""

    def __init__(self, port, dn, password):
        self.connection = socket.create_connection(("127.0.0.1", port), 30)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = 0
        self.ask(ber(0x60, ber(0x02, b"\3"), text(dn), text(password, 0x80)))

    def ask(self, operation):
        """The whole answer: its last message has the result code, an enumeration of one byte."""
        self.number += 1
        self.connection.sendall(message(self.number, operation))
        answer = b""
        while b"\x0a\x01" not in answer[-400:]:
            received = self.connection.recv(65536)
            if not received:
                raise ConnectionError("the server closed the connection")
            answer += received
        return answer

    def replace(self, dn, attribute, value):
        """Whether it was done."""
        change = ber(0x30, ber(0x0a, b"\2"), ber(0x30, text(attribute), ber(0x31, text(value))))
        return b"\x0a\x01\x00" in self.ask(ber(0x66, text(dn), ber(0x30, change)))

    def read(self, dn, attribute):
        """The answer to a search for one attribute of an entry, as bytes."""
        return self.ask(ber(0x63, text(dn), ber(0x0a, b"\0"), ber(0x0a, b"\0"), ber(0x02, b"\0"), ber(0x02, b"\0"), ber(0x01, b"\0"),
                            text("objectClass", 0x87), ber(0x30, text(attribute))))

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
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        sys.exit(f"{self.kind} does not start: {self.log()[-2000:]}")

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

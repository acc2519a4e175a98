"""One `larix serve` of a generated mail directory, and load on it: for benches of what other work costs those who ask."""
import json
import pathlib
import signal
import subprocess
import sys
import threading

from servers import LARIX, TICKS, ends_with_parent, free_port, run

START_STEPS = 600


class MailServer:
    """The accounts are loaded from the LDIF of `larix load generate mail`, which goes with that."""

    def __init__(self, folder, entries, database_lines=""):
        run(LARIX, "load", "generate", "mail", "--entries", entries, "--out", folder)
        self.entries, self.configuration, self.port = entries, folder / "slapd.conf", free_port()
        text = self.configuration.read_text()
        self.configuration.write_text(text + "\n" + database_lines + "\n")
        run(LARIX, "add", "-q", "-f", self.configuration, "-l", folder / "mail.ldif")
        (folder / "mail.ldif").unlink()
        self.start()

    def start(self):
        self.process = subprocess.Popen([LARIX, "serve", "-f", self.configuration, "-h", f"ldap://127.0.0.1:{self.port}/", "-d", "0"],
                                        stderr=subprocess.DEVNULL, preexec_fn=ends_with_parent)
        for _ in range(START_STEPS):
            done = subprocess.run([LARIX, "search", "-x", "-H", f"ldap://127.0.0.1:{self.port}/", "-b", "", "-s", "base", "1.1"],
                                  capture_output=True)
            if done.returncode == 0:
                return
            if self.process.poll() is not None:
                sys.exit("the server ended")
            threading.Event().wait(0.1)
        sys.exit("the server does not answer")

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def load(self, what, seconds, *more):
        """A run of the generator, to be waited for by `finished`."""
        command = [LARIX, "load", "run", what, "--server", f"127.0.0.1:{self.port}", "--entries", str(self.entries),
                   "--seconds", str(seconds), "--json", *map(str, more)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=ends_with_parent)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Loop:
    """A command, again and again, until it is over; `before` each time something else."""

    def __init__(self, command, before=lambda: None):
        self.command, self.before = [str(part) for part in command], before
        self.over, self.count, self.process = threading.Event(), 0, None
        self.thread = threading.Thread(target=self.go)
        self.thread.start()

    def go(self):
        while not self.over.is_set():
            self.before()
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ends_with_parent)
            if self.process.wait() == 0:
                self.count += 1

    def end(self):
        """Answers how often the command has succeeded."""
        self.over.set()
        if self.process:
            self.process.terminate()
        self.thread.join()
        return self.count


def finished(process):
    """What a run of the generator has measured."""
    out, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(errors.strip() or out.strip())
    return json.loads(out)

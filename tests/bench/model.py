"""Clients that change and read a `database kv` through all of its nodes, and a model of what they know of it.

A change is "there" or "away" when its answer says so, and "unknown" when it may have been made or not. At the end of a round everything
that is known has to be so at every node, and nothing is there that no client has sent.

What each kind of change shows: counters, whose increment comes with a value, show one that is lost, or made in part, and the answer to
the second of two shows one that is made twice. The sum, which is only incremented, shows lost, doubled and refused ones by its value.
Registers, which one client replaces, show what was refused or overwritten by an older value. Of a rename without an answer, the entry
has one of its two names.
"""
import random
import sys
import threading
import time

import ldap

BASE, ADMIN = "dc=example,dc=com", "cn=admin,dc=example,dc=com"
CLIENTS = 6
SECONDS_HEARD = 3
DEVICE = [b"device", b"extensibleObject"]
# A word of each answer but 80 whose change may have been made.
UNKNOWN = "unknown"
# What a node that is not strict shows of its own client's change while it has no engine to ask.
OWN_MISSED = "does not show a client's own change"


def until(what, reached, seconds=120):
    end = time.monotonic() + seconds
    while not (result := reached()):
        if time.monotonic() > end:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.2)
    return result


def connect(url, seconds=60):
    connection = ldap.initialize(url)
    connection.set_option(ldap.OPT_NETWORK_TIMEOUT, 3)
    connection.set_option(ldap.OPT_TIMEOUT, seconds)
    connection.set_option(ldap.OPT_REFERRALS, 0)
    connection.simple_bind_s(ADMIN, "secret")
    return connection


class Node:
    """What a client is promised of a node's reads: `bound` in seconds, 0 with `strict`, none with `session`."""

    def __init__(self, url, bound=0):
        self.url, self.bound = url, bound


class Known:
    """A change or an entry of the model: its state, and since when, through which node and by which client it was acknowledged."""

    def __init__(self, state, since=0, url=None, client=None):
        self.state, self.since, self.url, self.client = state, since, url, client


class Round:
    """Clients, and what they know. `nodes` are nodes, `restart` starts one anew by its place among them."""

    def __init__(self, nodes, label, restart, pause=0.01):
        self.nodes, self.restart, self.pause = nodes, restart, pause
        self.lock, self.ended = threading.Lock(), threading.Event()
        # The values that a register may have.
        self.known, self.registers = {}, {}
        # Renames without an answer: both names.
        self.renames = []
        self.acknowledged, self.slowest, self.wrong = [time.monotonic()], 0, []
        # Reads that show less than was promised.
        self.old_reads = []
        self.label, self.counters = label, [f"{label}-{number}" for number in range(3)]
        # How many increments were acknowledged, and how many have no answer.
        self.sum, self.summed = f"{label}-sum", {"there": 0, "unknown": 0}
        until("a node that writes", self.begin)
        self.threads = [threading.Thread(target=self.run, args=(f"{label}-c{number}",), daemon=True) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def begin(self):
        for node in self.nodes:
            try:
                connection = connect(node.url, 10)
                if not connection.compare_s(BASE, "o", b"Example"):
                    continue
            except ldap.NO_SUCH_OBJECT:
                pass
            except ldap.LDAPError:
                continue
            entries = [(BASE, {"objectClass": [b"dcObject", b"organization"], "dc": [b"example"], "o": [b"Example"]})]
            entries += [(f"cn={name},{BASE}", {"objectClass": DEVICE, "cn": [name.encode()], "uidNumber": [b"0"]})
                        for name in [*self.counters, self.sum]]
            try:
                for dn, entry in entries:
                    try:
                        connection.add_s(dn, list(entry.items()))
                    except ldap.ALREADY_EXISTS:
                        pass
                return True
            except (ldap.REFERRAL, ldap.LDAPError):
                pass
        return False

    def run(self, name):
        try:
            self.client(name)
        except Exception as error:
            self.wrong.append(f"{name} has ended: {error!r}")

    def client(self, name):
        connections, chance, own, seen = {}, random.Random(name), [], {}
        register = f"{name}-r"
        entry = [("objectClass", DEVICE), ("cn", [register.encode()]), ("uidNumber", [b"0"])]
        while not self.change(connections, chance, name, {("", register): ("away", "there")},
                              lambda to: to.add_s(f"cn={register},{BASE}", entry)):
            # A name that may be there is not added again.
            register += "r"
            entry[1] = ("cn", [register.encode()])
            if self.ended.wait(0.2):
                return
        self.registers[register] = {0}
        for number in range(sys.maxsize):
            if self.ended.wait(self.pause):
                return
            counter, key, kind = chance.choice(self.counters), f"{name}-{number}", chance.random()
            if kind < 0.35:
                self.read(connections, chance, name, counter, register, seen)
            elif kind < 0.5:
                change = [(ldap.MOD_INCREMENT, "uidNumber", [b"1"]), (ldap.MOD_ADD, "description", [key.encode()])]
                self.change(connections, chance, name, {(counter, key): ("away", "there")},
                            lambda to: to.modify_s(f"cn={counter},{BASE}", change))
            elif kind < 0.6:
                change = [(ldap.MOD_INCREMENT, "uidNumber", [b"1"])]
                made = self.change(connections, chance, name, {}, lambda to: to.modify_s(f"cn={self.sum},{BASE}", change))
                with self.lock:
                    self.summed["there"] += made == 1
                    self.summed["unknown"] += made is None
            elif kind < 0.7:
                change = [(ldap.MOD_REPLACE, "uidNumber", [str(number).encode()])]
                made = self.change(connections, chance, name, {}, lambda to: to.modify_s(f"cn={register},{BASE}", change))
                if made != 0:
                    # A change without an answer may be made, and the value from before may stay.
                    self.registers[register] = {number} | (set() if made else self.registers[register])
            elif kind < 0.85 or not own:
                entry = [("objectClass", [b"device"]), ("cn", [key.encode()])]
                if self.change(connections, chance, name, {("", key): ("away", "there")},
                               lambda to: to.add_s(f"cn={key},{BASE}", entry)):
                    own.append(key)
            elif kind < 0.93:
                gone = own.pop(chance.randrange(len(own)))
                self.change(connections, chance, name, {("", gone): ("there", "away")}, lambda to: to.delete_s(f"cn={gone},{BASE}"))
            else:
                gone = own.pop(chance.randrange(len(own)))
                made = self.change(connections, chance, name, {("", gone): ("there", "away"), ("", key): ("away", "there")},
                                   lambda to: to.rename_s(f"cn={gone},{BASE}", f"cn={key}"))
                if made:
                    own.append(key)
                elif made is None:
                    self.renames.append((gone, key))

    def change(self, connections, chance, client, keys, send_to):
        """1: it was acknowledged, 0: it was refused, None: nobody knows. `keys`: what has which state before it and after it."""
        with self.lock:
            self.known.update({key: Known("unknown") for key in keys})
        url, began, at = chance.choice(self.nodes).url, time.monotonic(), 0
        for _ in range(3):
            try:
                to = connections.get(url) or connections.setdefault(url, connect(url))
            except ldap.LDAPError:
                break
            try:
                send_to(to)
                at = 1
            except ldap.REFERRAL as referral:
                url = "ldap://" + referral.args[0]["info"].split("ldap://")[1].split("/")[0]
                continue
            except (ldap.SERVER_DOWN, ldap.TIMEOUT):
                connections.pop(url, None)
                at = None
            except ldap.LDAPError as error:
                if UNKNOWN in error.args[0].get("info", "") or error.args[0].get("result") == 80:
                    at = None
                elif not isinstance(error, (ldap.UNAVAILABLE, ldap.BUSY, ldap.ADMINLIMIT_EXCEEDED)):
                    at = None
                    self.wrong.append(f"{list(keys)} through {url}: {error}")
            break
        with self.lock:
            now = time.monotonic()
            if at is not None:
                self.known.update({key: Known(states[at], now, url, client) for key, states in keys.items()})
            self.slowest = max(self.slowest, now - began)
            if at == 1:
                self.acknowledged.append(now)
        return at

    def read(self, connections, chance, client, counter, register, seen):
        node = chance.choice(self.nodes)
        with self.lock:
            began, least = time.monotonic(), self.summed["there"]
            there = [(value.encode(), known) for (name, value), known in self.known.items() if name == counter and known.state == "there"]
            refused = {value.encode() for (name, value), known in self.known.items() if name == counter and known.state == "away"}
        promised = {value for value, known in there if node.bound is not None and known.since + node.bound <= began}
        own = {value for value, known in there if known.client == client and known.url == node.url}
        before = seen.setdefault((node.url, counter), set())
        try:
            to = connections.get(node.url) or connections.setdefault(node.url, connect(node.url))
            entry = read_entry(to, counter)
            set_to, summed = [read_entry(to, name) if node.bound == 0 else None for name in (register, self.sum)]
        except ldap.SERVER_DOWN:
            connections.pop(node.url, None)
        except ldap.NO_SUCH_OBJECT:
            if node.bound == 0 or before:
                self.old_reads.append(f"{node.url} does not show {counter}, {register} or {self.sum}")
        except ldap.LDAPError:
            pass
        else:
            shown = set(entry.get("description", []))
            if promised - shown:
                self.old_reads.append(f"{node.url} shows {len(promised - shown)} acknowledged values of {counter} too few")
            elif own - shown:
                self.old_reads.append(f"{node.url} {OWN_MISSED} of {counter}")
            if before - shown:
                self.old_reads.append(f"{node.url} does not show {len(before - shown)} values of {counter} any more")
            if refused & shown:
                self.wrong.append(f"{node.url} shows {len(refused & shown)} refused values of {counter}")
            if int(entry["uidNumber"][0]) != len(shown):
                self.wrong.append(f"{node.url} shows a half of a change of {counter}")
            if set_to and int(set_to["uidNumber"][0]) not in self.registers[register]:
                self.old_reads.append(f"{node.url} shows another value of {register}")
            if summed and int(summed["uidNumber"][0]) < least:
                self.old_reads.append(f"{node.url} shows an old value of {self.sum}")
            before |= shown

    def finish(self):
        """For how long no change was acknowledged, until clients change again."""
        try:
            until("changes", lambda: time.monotonic() - self.acknowledged[-1] < 0.5 and not self.ended.wait(3), 180)
        finally:
            self.ended.set()
        for thread in self.threads:
            thread.join()
        times = sorted(self.acknowledged)
        return max((after - before for before, after in zip(times, times[1:])), default=0)

    def unknown(self):
        return sum(known.state == "unknown" for known in self.known.values())

    def compare(self, patience=20):
        """The entries of each node, by its URL. What differs from the model, or between nodes, is noted. Nodes that are not strict have
        the time of a lease to hear of the last changes."""
        views = {}
        for node in sorted(self.nodes, key=lambda node: node.bound != 0):
            try:
                views[node.url] = view(node.url, patience)
                end = time.monotonic() + SECONDS_HEARD
                while node.bound != 0 and views[node.url] != next(iter(views.values())) and time.monotonic() < end:
                    views[node.url] = view(node.url, patience)
            except ldap.LDAPError as error:
                self.wrong.append(f"{node.url} answers nothing until it is restarted: {error}")
                self.restart(self.nodes.index(node))
        for url, entries in views.items():
            self.wrong += [f"{url}: {what}" for what in self.differences(entries)]
        if any(entries != next(iter(views.values())) for entries in views.values()):
            self.wrong.append("the nodes differ")
        return views

    def differences(self, entries):
        """What of the entries of a node is not as the clients know it."""
        def entry(name):
            return entries.get(f"cn={name},{BASE}".lower(), {})

        def value(name):
            """None: it has none, or is not there."""
            found = entry(name).get("uidNumber")
            return int(found[0]) if found else None

        for (counter, name), known in self.known.items():
            is_there = name.encode() in entry(counter).get("description", []) if counter else bool(entry(name))
            if known.state in ("there", "away") and is_there != (known.state == "there"):
                yield f"{name} has to be {known.state}"
        for one, other in self.renames:
            if bool(entry(one)) == bool(entry(other)):
                yield f"{one} was renamed to {other}, and {'both are' if entry(one) else 'neither is'} there"
        for counter in self.counters:
            values = entry(counter).get("description", [])
            if value(counter) != len(values):
                yield f"{counter} is {value(counter)}, and has {len(values)} values"
            if unsent := [name for name in values if (counter, name.decode()) not in self.known]:
                yield f"{counter} has values that nobody sent: {unsent[:3]}"
        least, most = self.summed["there"], self.summed["there"] + self.summed["unknown"]
        if not least <= (value(self.sum) or 0) <= most:
            yield f"{self.sum} is {value(self.sum)}, and was incremented {least} to {most} times"
        for register, values in self.registers.items():
            if value(register) not in values:
                yield f"{register} is {value(register)}, and not one of {sorted(values)}"
        own = {f"cn={name},{BASE}".lower() for name in [*self.counters, self.sum, *(name for counter, name in self.known if not counter)]}
        if unsent := [dn for dn in entries if dn.startswith(f"cn={self.label}-".lower()) and dn not in own]:
            yield f"entries that nobody sent: {unsent[:3]}"


def read_entry(connection, name):
    found = [entry for dn, entry in connection.search_s(f"cn={name},{BASE}", ldap.SCOPE_BASE) if dn]
    if not found:
        raise ldap.NO_SUCH_OBJECT({"info": "success without the entry"})
    return found[0]


def view(url, patience=20):
    """All entries below the suffix, values sorted."""
    end = time.monotonic() + patience
    while True:
        try:
            found = connect(url, 30).search_s(BASE, ldap.SCOPE_SUBTREE, "(objectClass=*)", ["*", "entryUUID", "entryCSN", "modifiersName"])
            return {dn.lower(): {name: sorted(values) for name, values in entry.items()} for dn, entry in found}
        except ldap.LDAPError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)

"""Clients that change and read a `database kv` through all of its nodes, and a model of what they know of it.

A change is "there" or "away" when its answer says so, and "unknown" when it may have been made or not. At the end of a round everything
that is known has to be so at every node.
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
        self.known, self.registers = {}, {}
        self.acknowledged, self.slowest, self.wrong = [time.monotonic()], 0, []
        self.counters = [f"{label}-{number}" for number in range(3)]
        until("a node that writes", self.begin)
        self.threads = [threading.Thread(target=self.client, args=(f"{label}-c{number}",)) for number in range(CLIENTS)]
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
                        for name in self.counters]
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
        self.registers[register] = [0, 0]
        for number in range(sys.maxsize):
            if self.ended.wait(self.pause):
                return
            counter, key, kind = chance.choice(self.counters), f"{name}-{number}", chance.random()
            if kind < 0.35:
                self.read(connections, chance, name, counter, register, seen)
            elif kind < 0.6:
                change = [(ldap.MOD_INCREMENT, "uidNumber", [b"1"]), (ldap.MOD_ADD, "description", [key.encode()])]
                self.change(connections, chance, name, {(counter, key): ("away", "there")},
                            lambda to: to.modify_s(f"cn={counter},{BASE}", change))
            elif kind < 0.7:
                self.registers[register][1] = number
                change = [(ldap.MOD_REPLACE, "uidNumber", [str(number).encode()])]
                if self.change(connections, chance, name, {}, lambda to: to.modify_s(f"cn={register},{BASE}", change)):
                    self.registers[register][0] = number
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
                if self.change(connections, chance, name, {("", gone): ("there", "away"), ("", key): ("away", "there")},
                               lambda to: to.rename_s(f"cn={gone},{BASE}", f"cn={key}")):
                    own.append(key)

    def change(self, connections, chance, client, keys, send_to):
        """Whether it was acknowledged. `keys`: what has which state before it and after it."""
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
        return at == 1

    def read(self, connections, chance, client, counter, register, seen):
        node = chance.choice(self.nodes)
        with self.lock:
            began = time.monotonic()
            there = [(value.encode(), known) for (name, value), known in self.known.items() if name == counter and known.state == "there"]
        promised = {value for value, known in there if node.bound is not None and known.since + node.bound <= began}
        own = {value for value, known in there if known.client == client and known.url == node.url}
        try:
            to = connections.get(node.url) or connections.setdefault(node.url, connect(node.url))
            entry = to.search_s(f"cn={counter},{BASE}", ldap.SCOPE_BASE)[0][1]
            is_strict = node.bound == 0
            set_to = to.search_s(f"cn={register},{BASE}", ldap.SCOPE_BASE)[0][1]["uidNumber"][0] if is_strict else None
        except ldap.SERVER_DOWN:
            connections.pop(node.url, None)
        except ldap.LDAPError:
            pass
        else:
            shown = set(entry.get("description", []))
            before = seen.setdefault((node.url, counter), set())
            if promised - shown:
                self.wrong.append(f"{node.url} shows {len(promised - shown)} acknowledged values of {counter} too few")
            elif own - shown:
                self.wrong.append(f"{node.url} {OWN_MISSED} of {counter}")
            if before - shown:
                self.wrong.append(f"{node.url} does not show {len(before - shown)} values of {counter} any more")
            if int(entry["uidNumber"][0]) != len(shown):
                self.wrong.append(f"{node.url} shows a half of a change of {counter}")
            if is_strict and int(set_to) < self.registers[register][0]:
                self.wrong.append(f"{node.url} shows an old value of {register}")
            before |= shown

    def finish(self):
        """For how long no change was acknowledged, until clients change again."""
        until("changes", lambda: time.monotonic() - self.acknowledged[-1] < 0.5 and not self.ended.wait(3), 180)
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
            for (counter, value), known in self.known.items():
                entry = entries.get(f"cn={counter or value},{BASE}")
                is_there = entry is not None and (not counter or value.encode() in entry.get("description", []))
                if known.state in ("there", "away") and is_there != (known.state == "there"):
                    self.wrong.append(f"{url}: {value} has to be {known.state}")
            for counter in self.counters:
                entry = entries[f"cn={counter},{BASE}"]
                if int(entry["uidNumber"][0]) != len(entry.get("description", [])):
                    self.wrong.append(f"{url}: {counter} was incremented twice")
            for register, (least, most) in self.registers.items():
                value = int(entries[f"cn={register},{BASE}"]["uidNumber"][0])
                if not least <= value <= most:
                    self.wrong.append(f"{url}: {register} is {value}, and was set to {least} to {most}")
        if any(entries != next(iter(views.values())) for entries in views.values()):
            self.wrong.append("the nodes differ")
        return views


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

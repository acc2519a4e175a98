"""python-ldap against a directory that `run` has made: StartTLS, ldaps, SASL, paging, changes."""

import sys

import ldap
import ldap.modlist
import ldap.sasl
from ldap.controls import SimplePagedResultsControl

plain, secure, folder = sys.argv[1:]
ANN = "uid=ann,ou=people,dc=example,dc=com"
PASSWORD = "ann's password"
ldap.set_option(ldap.OPT_X_TLS_CACERTFILE, folder + "/ca.pem")
ldap.set_option(ldap.OPT_X_TLS_REQUIRE_CERT, ldap.OPT_X_TLS_DEMAND)


def connect(url, start_tls=True):
    connection = ldap.initialize(url)
    if start_tls and url.startswith("ldap:"):
        connection.start_tls_s()
    return connection


for url in (plain, secure):
    connection = connect(url)
    connection.simple_bind_s(ANN, PASSWORD)
    assert connection.whoami_s() == "dn:" + ANN
    assert connection.search_s(ANN, ldap.SCOPE_BASE)[0][1]["mail"] == [b"ann@example.com"]
    connection.unbind_s()
    print("simple bind over", url)

for mechanism in ("PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"):
    answers = {ldap.sasl.CB_AUTHNAME: "ann", ldap.sasl.CB_PASS: PASSWORD, ldap.sasl.CB_USER: ""}
    connection = connect(plain)
    connection.sasl_interactive_bind_s("", ldap.sasl.sasl(answers, mechanism))
    assert connection.whoami_s() == "dn:" + ANN, connection.whoami_s()
    print("SASL", mechanism)
    answers[ldap.sasl.CB_PASS] = "wrong"
    try:
        connect(plain).sasl_interactive_bind_s("", ldap.sasl.sasl(answers, mechanism))
        sys.exit(mechanism + " takes a wrong password")
    except ldap.INVALID_CREDENTIALS:
        pass

admin = connect(secure)
admin.simple_bind_s("cn=admin,dc=example,dc=com", "secret")
for n in range(25):
    dn = f"cn=python{n},ou=people,dc=example,dc=com"
    entry = {"objectClass": [b"person"], "cn": [b"python%d" % n], "sn": [b"x"]}
    admin.add_s(dn, ldap.modlist.addModlist(entry))
found, cookie = [], b""
while True:
    page = SimplePagedResultsControl(True, size=10, cookie=cookie)
    message = admin.search_ext("ou=people,dc=example,dc=com", ldap.SCOPE_ONELEVEL, "(cn=python*)", serverctrls=[page])
    _, entries, _, controls = admin.result3(message)
    found += entries
    cookie = controls[0].cookie
    if not cookie:
        break
assert len(found) == 25
for dn, _ in found:
    admin.delete_s(dn)
print("adds, pages and deletes")

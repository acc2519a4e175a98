// go-ldap against a directory that `run` has made: StartTLS, ldaps, EXTERNAL by certificate, paging, changes.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/go-ldap/ldap/v3"
)

const (
	ann      = "uid=ann,ou=people,dc=example,dc=com"
	password = "ann's password"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func ensure(fine bool, what string) {
	if !fine {
		panic(what)
	}
}

func main() {
	plain, secure, folder := os.Args[1], os.Args[2], os.Args[3]
	pem, err := os.ReadFile(folder + "/ca.pem")
	check(err)
	roots := x509.NewCertPool()
	ensure(roots.AppendCertsFromPEM(pem), "no certificate in ca.pem")
	config := &tls.Config{RootCAs: roots, ServerName: "localhost"}

	startTLS := func(config *tls.Config) *ldap.Conn {
		connection, err := ldap.DialURL("ldap://" + plain)
		check(err)
		check(connection.StartTLS(config))
		return connection
	}
	ldaps, err := ldap.DialURL("ldaps://"+secure, ldap.DialWithTLSConfig(config))
	check(err)
	for name, connection := range map[string]*ldap.Conn{"StartTLS": startTLS(config), "ldaps": ldaps} {
		err := connection.Bind(ann, "wrong")
		ensure(ldap.IsErrorWithCode(err, ldap.LDAPResultInvalidCredentials), "a wrong password works")
		check(connection.Bind(ann, password))
		who, err := connection.WhoAmI(nil)
		check(err)
		ensure(who.AuthzID == "dn:"+ann, who.AuthzID)
		fmt.Println("simple bind over", name)
	}

	pair, err := tls.LoadX509KeyPair(folder+"/ann.pem", folder+"/ann.key")
	check(err)
	external := startTLS(&tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: []tls.Certificate{pair}})
	check(external.ExternalBind())
	who, err := external.WhoAmI(nil)
	check(err)
	ensure(who.AuthzID == "dn:"+ann, who.AuthzID)
	fmt.Println("SASL EXTERNAL by certificate")

	check(ldaps.Bind("cn=admin,dc=example,dc=com", "secret"))
	for n := 0; n < 25; n++ {
		add := ldap.NewAddRequest(fmt.Sprintf("cn=go%d,ou=people,dc=example,dc=com", n), nil)
		add.Attribute("objectClass", []string{"person"})
		add.Attribute("sn", []string{"x"})
		check(ldaps.Add(add))
	}
	request := ldap.NewSearchRequest("ou=people,dc=example,dc=com", ldap.ScopeSingleLevel, ldap.NeverDerefAliases, 0, 0, false,
		"(cn=go*)", []string{"cn"}, nil)
	found, err := ldaps.SearchWithPaging(request, 10)
	check(err)
	ensure(len(found.Entries) == 25, "not all entries were found")
	for _, entry := range found.Entries {
		check(ldaps.Del(ldap.NewDelRequest(entry.DN, nil)))
	}
	changed, err := ldaps.PasswordModify(ldap.NewPasswordModifyRequest(ann, "", password))
	check(err)
	ensure(changed.GeneratedPassword == "", "a password was made up")
	fmt.Println("adds, pages, deletes, password modify")
}

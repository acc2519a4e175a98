module larix-interop

go 1.22

require github.com/go-ldap/ldap/v3 v3.4.8

require (
	github.com/Azure/go-ntlmssp v0.0.0-20221128193559-754e69321358 // indirect
	github.com/go-asn1-ber/asn1-ber v1.5.5 // indirect
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/crypto v0.21.0 // indirect
)

//! `{K5KEY}` (overlay smbk5pwd): the key of a Heimdal principal is the password of its entry.

use larix_testkit::Kind;
use larix_tests::client::run;
use larix_tests::running::Running;

/// What the test needs of Heimdal's hdb.schema, and an account.
const BODY: &str = "attributetype ( 1.3.6.1.4.1.5322.10.1.1 NAME 'krb5PrincipalName'
  EQUALITY caseExactIA5Match SINGLE-VALUE SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 )
attributetype ( 1.3.6.1.4.1.5322.10.1.2 NAME 'krb5KeyVersionNumber'
  EQUALITY integerMatch SINGLE-VALUE SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )
attributetype ( 1.3.6.1.4.1.5322.10.1.5 NAME 'krb5KDCFlags' EQUALITY integerMatch SINGLE-VALUE SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )
attributetype ( 1.3.6.1.4.1.5322.10.1.9 NAME 'krb5PasswordEnd'
  EQUALITY generalizedTimeMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.5322.10.1.10 NAME 'krb5Key' SYNTAX 1.3.6.1.4.1.1466.115.121.1.5 )
objectclass ( 1.3.6.1.4.1.5322.10.2.1 NAME 'krb5Principal' SUP top AUXILIARY MUST krb5PrincipalName )
objectclass ( 1.3.6.1.4.1.5322.10.2.2 NAME 'krb5KDCEntry'
  SUP krb5Principal AUXILIARY MUST krb5KeyVersionNumber MAY ( krb5PasswordEnd $ krb5KDCFlags $ krb5Key ) )
database mdb
suffix dc=example,dc=com
rootdn cn=admin,dc=example,dc=com
rootpw secret
directory @DATA@
access to attrs=userPassword by self =xw by anonymous auth by * none
access to attrs=krb5Key by * none
access to * by * read
overlay smbk5pwd
smbk5pwd-enable krb5
";

const ANN: &str = "uid=ann,dc=example,dc=com";

#[test]
fn a_key_lets_its_principal_in() {
    let entries = format!(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n\n\
         dn: {ANN}\nobjectClass: inetOrgPerson\nobjectClass: krb5KDCEntry\nuid: ann\ncn: Ann\nsn: Archer\n\
         krb5PrincipalName: ann@EXAMPLE.COM\nkrb5KeyVersionNumber: 1\n\n"
    );
    let running = Running::start(Kind::Larix, BODY, &entries);
    let mut client = running.client();
    for (request, expected) in [
        ("as cn=admin,dc=example,dc=com secret".to_owned(), "=> 0"),
        (format!("modify {ANN}\n  replace userPassword: annpw"), "=> 0"),
        (format!("modify {ANN}\n  replace userPassword: {{K5KEY}}"), "=> 0"),
        (format!("as {ANN} annpw"), "=> 0"),
        (format!("as {ANN} wrong"), "=> 49"),
        (format!("as {ANN} {{K5KEY}}"), "=> 49"),
        // Rules for the key are for those who ask for it.
        (format!("as {ANN} annpw"), "=> 0"),
        (format!("passwd {ANN} old=annpw new=other"), "=> 53"),
        (format!("passwd {ANN} new=other"), "=> 0"),
        (format!("as {ANN} annpw"), "=> 49"),
        (format!("as {ANN} other"), "=> 0"),
    ] {
        let answer = run(&mut client, &request);
        assert!(answer.starts_with(expected), "{request}: {answer}");
    }
}

//! Configurations as they are found in public: small ones with the keywords and attributes that images, distributions and automation set.
//! `docs/public-configurations.md` has the table.

use larix_testkit::{Kind, Server, Site};
use larix_tests::client::Client;
use larix_tests::replicas::ask;

const ADMIN: &str = "cn=admin,dc=example,dc=com";

/// slapd.conf, behind the usual schema.
const FILES: &[(&str, &str)] = &[
    (
        "iRedMail",
        r#"
disallow bind_anon
require LDAPv3
loglevel 0
access to attrs="userPassword,employeeNumber"
    by anonymous auth
    by self write
    by dn.exact="cn=reader,dc=example,dc=com" read
    by users none
access to dn.regex="ou=([^,]+),o=domains,dc=example,dc=com$"
    by anonymous auth
    by self write
    by dn.regex="mail=[^,]+@$1,o=admins,dc=example,dc=com$" write
    by dn.regex="mail=[^,]+@$1,ou=Users,ou=$1,o=domains,dc=example,dc=com$" read
    by users none
access to dn="cn=reader,dc=example,dc=com"
    by anonymous auth
    by self write
    by users none
access to dn.subtree="o=domains,dc=example,dc=com"
    by anonymous auth
    by users read
access to *
    by anonymous auth
    by self write
    by users read
database monitor
access to dn="cn=monitor"
    by dn.exact="cn=admin,dc=example,dc=com" read
    by * none
database mdb
suffix dc=example,dc=com
directory @DATA@
rootdn cn=admin,dc=example,dc=com
rootpw secret
sizelimit unlimited
maxsize 2147483648
checkpoint 128 3
mode 0700
index objectclass,entryCSN,entryUUID eq
index uidNumber,gidNumber,uid,memberUid,loginShell eq,pres
index ou,cn,mail,surname,givenname,telephoneNumber,displayName eq,pres,sub
index nisMapName,nisMapEntry eq,pres,sub
index member,uniqueMember eq,pres
"#,
    ),
    (
        "Univention, without its own modules",
        r#"
allow bind_v2 update_anon
sizelimit 400000
idletimeout 360
attributeoptions "lang-" "entry-"
modulepath /usr/lib/ldap
moduleload back_mdb.so
moduleload ppolicy.so
moduleload lastbind.la
moduleload refint.so
moduleload syncprov.so
moduleload constraint.so
moduleload accesslog.so
moduleload dds.so
database monitor
access to * by dn.exact="cn=admin,dc=example,dc=com" read by * none
database mdb
suffix "dc=example,dc=com"
overlay ppolicy
ppolicy_default "cn=default,cn=ppolicy,dc=example,dc=com"
overlay lastbind
lastbind-precision 3600
overlay refint
refint_attributes uniqueMember
overlay syncprov
syncprov-checkpoint 100 10
maxsize 2147483648
threads 16
tool-threads 1
checkpoint 0 1
envflags nosync
index objectClass,uidNumber,gidNumber,uniqueMember eq
index uid,cn pres,eq,sub
limits users time.soft=unlimited time.hard=unlimited
rootdn "cn=admin,dc=example,dc=com"
rootpw secret
directory "@DATA@"
lastmod on
add_content_acl on
overlay constraint
constraint_attribute uidNumber regex ^[^0]+[0-9]*$
constraint_attribute gidNumber regex ^[^0]+[0-9]*$
overlay dds
dds-max-ttl 1d
dds-min-ttl 10s
dds-default-ttl 1h
database mdb
suffix "cn=translog"
directory "@DATA@/translog"
maxsize 2147483648
envflags nosync
checkpoint 0 1
limits dn.children=cn=peercred,cn=external,cn=auth time=unlimited size=unlimited size.prtotal=unlimited size.pr=unlimited
access to *
    by sockname="PATH=/var/run/slapd/ldapi" write
    by users read
    by * none
"#,
    ),
];

/// What is added to a new server by way of cn=config, whose main database is `{1}mdb`.
const ENTRIES: &[(&str, &[&str])] = &[
    (
        "osixia",
        &[
            "modify \"cn=module{0},cn=config\"\n  add olcModuleLoad: memberof",
            "add \"olcOverlay={0}memberof,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcMemberOf\n  \
             olcOverlay: {0}memberof\n  olcMemberOfDangling: ignore\n  olcMemberOfRefInt: TRUE\n  \
             olcMemberOfGroupOC: groupOfUniqueNames\n  olcMemberOfMemberAD: uniqueMember\n  olcMemberOfMemberOfAD: memberOf",
            "modify \"cn=module{0},cn=config\"\n  add olcModuleLoad: refint",
            "add \"olcOverlay={1}refint,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcRefintConfig\n  \
             olcOverlay: {1}refint\n  olcRefintAttribute: owner\n  olcRefintAttribute: manager\n  olcRefintAttribute: uniqueMember\n  \
             olcRefintAttribute: member\n  olcRefintAttribute: memberOf",
            "modify \"cn=module{0},cn=config\"\n  add olcModuleLoad: syncprov",
            "add \"olcOverlay=syncprov,olcDatabase={0}config,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcSyncProvConfig\n  olcOverlay: syncprov",
            "add \"olcOverlay=syncprov,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcSyncProvConfig\n  olcOverlay: syncprov",
        ],
    ),
    (
        "Bitnami",
        &[
            "modify \"cn=config\"\n  add olcDisallows: bind_anon",
            "add \"cn=module,cn=config\"\n  objectClass: olcModuleList\n  cn: module\n  olcModulePath: /opt/openldap/lib\n  \
             olcModuleLoad: ppolicy.so",
            "add \"olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcPPolicyConfig\n  \
             olcOverlay: {0}ppolicy",
            "modify \"olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config\"\n  add olcPPolicyHashCleartext: TRUE",
            "modify \"olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config\"\n  add olcPPolicyUseLockout: TRUE",
            "modify \"olcDatabase={-1}frontend,cn=config\"\n  add olcPasswordHash: {SSHA}",
            "modify \"olcDatabase={1}mdb,cn=config\"\n  add olcDbIndex: entryCSN eq\n  add olcDbIndex: entryUUID eq",
            "add \"olcDatabase=mdb,cn=config\"\n  objectClass: olcDatabaseConfig\n  objectClass: olcMdbConfig\n  olcDatabase: mdb\n  \
             olcDbDirectory: @DATA@/log\n  olcSuffix: cn=accesslog\n  olcRootDN: cn=admin,cn=accesslog\n  olcRootPW: secret\n  \
             olcDbIndex: default eq\n  olcDbIndex: entryCSN,objectClass,reqEnd,reqResult,reqStart",
            "add \"olcOverlay=accesslog,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcAccessLogConfig\n  olcOverlay: accesslog\n  olcAccessLogDB: cn=accesslog\n  olcAccessLogOps: writes\n  \
             olcAccessLogSuccess: TRUE\n  olcAccessLogPurge: 07+00:00 01+00:00\n  olcAccessLogOld: (objectClass=*)\n  \
             olcAccessLogOldAttr: objectClass",
            "add \"olcOverlay=syncprov,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcSyncProvConfig\n  olcOverlay: syncprov\n  olcSpCheckpoint: 100 10\n  olcSpSessionLog: 100",
        ],
    ),
    (
        "georchestra",
        &[
            "add \"cn=groupofmembers,cn=schema,cn=config\"\n  objectClass: olcSchemaConfig\n  cn: groupofmembers\n  \
             olcObjectClasses: ( 1.3.6.1.4.1.5322.13.1.1 NAME 'groupOfMembers' SUP top STRUCTURAL MUST cn \
             MAY ( member $ description $ ou ) )",
            "add \"cn=module,cn=config\"\n  objectClass: olcModuleList\n  cn: module\n  olcModulePath: /usr/lib/ldap\n  \
             olcModuleLoad: lastbind\n  olcModuleLoad: ppolicy\n  olcModuleLoad: /usr/lib/ldap/memberof.la",
            "add \"olcOverlay=memberof,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcMemberOf\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcConfig\n  objectClass: top\n  olcOverlay: memberof\n  olcMemberOfDangling: ignore\n  \
             olcMemberOfRefInt: TRUE\n  olcMemberOfGroupOC: groupOfMembers\n  olcMemberOfMemberAD: member\n  olcMemberOfMemberOfAD: memberOf",
            "add \"olcOverlay=lastbind,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcLastBindConfig\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcConfig\n  objectClass: top\n  olcOverlay: lastbind\n  olcLastBindPrecision: 14400",
            "add \"olcOverlay=ppolicy,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcPPolicyConfig\n  \
             olcOverlay: ppolicy\n  olcPPolicyDefault: cn=default,dc=example,dc=com\n  olcPPolicyHashCleartext: FALSE\n  \
             olcPPolicyForwardUpdates: FALSE\n  olcPPolicyUseLockout: FALSE",
        ],
    ),
    (
        "DebOps",
        &[
            "modify \"cn=module{0},cn=config\"\n  add olcModuleLoad: syncprov | ppolicy | unique | memberof | refint | auditlog | \
             constraint | back_monitor | lastbind | autogroup",
            "add \"olcOverlay={0}syncprov,olcDatabase={0}config,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcSyncProvConfig\n  olcOverlay: {0}syncprov",
            "add \"olcOverlay={0}syncprov,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcSyncProvConfig\n  olcOverlay: {0}syncprov",
            "add \"olcOverlay={1}ppolicy,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcPPolicyConfig\n  \
             olcOverlay: {1}ppolicy",
            "add \"olcOverlay={2}unique,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcUniqueConfig\n  \
             olcOverlay: {2}unique",
            "add \"olcOverlay={3}memberof,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcMemberOf\n  \
             olcOverlay: {3}memberof",
            "add \"olcOverlay={4}memberof,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcMemberOf\n  \
             olcOverlay: {4}memberof",
            "add \"olcOverlay={5}refint,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcRefintConfig\n  \
             olcOverlay: {5}refint",
            "add \"olcOverlay={6}auditlog,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcAuditLogConfig\n  olcOverlay: {6}auditlog",
            "add \"olcOverlay={7}constraint,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcConstraintConfig\n  olcOverlay: {7}constraint",
            "add \"olcOverlay={8}autogroup,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcAutomaticGroups\n  olcOverlay: {8}autogroup",
            "add \"olcOverlay={9}lastbind,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
             objectClass: olcLastBindConfig\n  olcOverlay: {9}lastbind",
            "modify \"olcOverlay={2}unique,olcDatabase={1}mdb,cn=config\"\n  add olcUniqueURI: ldap:///dc=example,dc=com?uidNumber?sub | \
             ldap:///dc=example,dc=com?mail?sub | ldap:///ou=People,dc=example,dc=com?uid?sub",
            "modify \"olcOverlay={4}memberof,olcDatabase={1}mdb,cn=config\"\n  replace olcMemberOfRefInt: TRUE\n  \
             replace olcMemberOfGroupOC: organizationalRole\n  replace olcMemberOfMemberAD: roleOccupant\n  \
             replace olcMemberOfMemberOfAD: memberOf",
            "modify \"olcOverlay={5}refint,olcDatabase={1}mdb,cn=config\"\n  add olcRefintAttribute: member | memberOf | uniqueMember | \
             manager | owner | roleOccupant | seeAlso | secretary | documentAuthor",
            "modify \"olcOverlay={6}auditlog,olcDatabase={1}mdb,cn=config\"\n  add olcAuditlogFile: @DATA@/audit.ldif",
            "modify \"olcOverlay={7}constraint,olcDatabase={1}mdb,cn=config\"\n  \
             add olcConstraintAttribute: jpegPhoto size 524288 | userPassword count 5 | employeeNumber regex ^[[:digit:]]+$",
            "modify \"olcOverlay={8}autogroup,olcDatabase={1}mdb,cn=config\"\n  add olcAGattrSet: groupOfURLs memberURL member\n  \
             add olcAGmemberOfAd: memberOf",
            "modify \"olcOverlay={9}lastbind,olcDatabase={1}mdb,cn=config\"\n  add olcLastBindPrecision: 86400",
            "modify \"olcDatabase={-1}frontend,cn=config\"\n  add olcPasswordHash: {CRYPT}",
            "modify \"cn=config\"\n  add olcPasswordCryptSaltFormat: $6$rounds=100001$%.16s\n  add olcIdleTimeout: 900\n  \
             add olcWriteTimeout: 900\n  add olcLocalSSF: 128\n  add olcSaslSecProps: noanonymous,minssf=0",
            "modify \"cn=config\"\n  add olcAuthzRegexp: uid=([^,]*),cn=[^,]*,cn=auth uid=$1,ou=People,dc=example,dc=com",
        ],
    ),
    (
        "puppet-openldap",
        &[
            "modify \"cn=module{0},cn=config\"\n  add olcModuleLoad: memberof",
            "add \"olcOverlay=memberof,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcMemberOf\n  \
             olcOverlay: memberof",
            "modify \"olcOverlay={0}memberof,olcDatabase={1}mdb,cn=config\"\n  add olcMemberOfGroupOC: groupOfNames",
            "modify \"olcDatabase={1}mdb,cn=config\"\n  add olcLimits: dn.exact=\"cn=admin,dc=example,dc=com\" size=unlimited",
        ],
    ),
    (
        "Zimbra",
        &[
            "modify \"cn=module{0},cn=config\"\n  add olcModuleLoad: noopsrch.la | syncprov.la | accesslog.la | unique.la",
            "add \"olcOverlay=noopsrch,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  olcOverlay: noopsrch",
            "add \"olcOverlay=unique,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcUniqueConfig\n  \
             olcOverlay: unique\n  olcUniqueURI: ldap:///?uid?sub?(objectClass=account)",
        ],
    ),
];

/// Overlays that configurations of Univention name: its own modules, which the server does not have.
const REFUSED: &[&str] = &["translog", "k5pwd", "pwd_scheme_kinit", "shadowbind", "inchain"];

fn folders(site: &Site) {
    for folder in ["data", "data/translog", "data/log"] {
        std::fs::create_dir_all(site.path().join(folder)).expect("a folder");
    }
}

#[test]
fn files_start_unchanged() {
    for (name, text) in FILES {
        let site = Site::new(Kind::Larix, text);
        folders(&site);
        let server = site.start().unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let mut client = Client::connect(server.address);
        assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n", "{name}");
        let add = "add \"dc=example,dc=com\"\n  objectClass: domain\n  dc: example";
        assert_eq!(ask(&mut client, add), "=> 0\n", "{name}");
        assert!(server.stop(), "{name}");
    }
}

#[test]
fn entries_of_the_configuration_are_taken_and_come_again() {
    for (name, steps) in ENTRIES {
        let site = Site::new(
            Kind::Larix,
            &format!(
                "include @SCHEMA@/dyngroup.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
                 database config\nrootdn {ADMIN}\n\
                 database mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\nindex objectClass eq\n"
            ),
        );
        folders(&site);
        let directory = site.path().join("slapd.d");
        std::fs::create_dir(&directory).expect("a folder");
        let mut convert = Kind::Larix.tool("test");
        let output = convert.arg("-f").arg(site.configuration()).arg("-F").arg(&directory).output();
        assert!(output.expect("the tool starts").status.success(), "{name}");
        let start =
            || Server::start(Kind::Larix, &directory).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let server = start();
        let mut client = Client::connect(server.address);
        assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n", "{name}");
        let data = site.path().join("data").display().to_string();
        for step in *steps {
            let step = step.replace("@DATA@", &data);
            assert_eq!(ask(&mut client, &step), "=> 0\n", "{name}: {step}");
        }
        assert!(server.stop(), "{name}");
        // From what it wrote.
        assert!(start().stop(), "{name}");
    }
}

#[test]
fn what_others_have_written_is_refused_by_its_name() {
    for overlay in REFUSED {
        let database = "database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@\n";
        let site = Site::new(Kind::Larix, &format!("{database}overlay {overlay}\n"));
        let output =
            Kind::Larix.tool("test").arg("-uf").arg(site.configuration()).output().expect("the tool starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(&format!("overlay {overlay}")), "{text}");
    }
}

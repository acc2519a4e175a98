//! The mail directory: accounts as a large mail system keeps them, some 2 KB each, and the index lines it asks for.

use std::io::{self, Write};

use super::names;
use super::random::Random;

pub(super) const SCHEMA: &str = include_str!("../../schema/mail.schema");

pub(super) const INDEX_LINES: [&str; 29] = [
    "objectClass eq",
    "entryUUID eq",
    "entryCSN eq",
    "cn pres,eq,sub",
    "uid pres,eq",
    "zimbraForeignPrincipal eq",
    "zimbraYahooId eq",
    "zimbraId eq",
    "zimbraVirtualHostname eq",
    "zimbraVirtualIPAddress eq",
    "zimbraMailDeliveryAddress eq,sub",
    "zimbraAuthKerberos5Realm eq",
    "zimbraMailForwardingAddress eq",
    "zimbraMailCatchAllAddress eq,sub",
    "zimbraMailHost eq",
    "zimbraShareInfo sub",
    "zimbraMailTransport eq",
    "zimbraMailAlias eq,sub",
    "zimbraACE sub",
    "zimbraDomainName eq,sub",
    "mail pres,eq,sub",
    "zimbraCalResSite eq,sub",
    "givenName pres,eq,sub",
    "displayName pres,eq,sub",
    "sn pres,eq,sub",
    "zimbraCalResRoom eq,sub",
    "zimbraCalResCapacity eq",
    "zimbraCalResBuilding eq,sub",
    "zimbraCalResFloor eq,sub",
];

const DOMAIN: &str = "zre-ldap001.eng.vmware.com";
const PEOPLE: &str = "ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";

/// The preferences that every account of the described site carried, value by value.
const ZIMLET_PROPERTIES: [&str; 9] = [
    "com_zimbra_social:social_pref_trendsPopularIsOn:true",
    "com_zimbra_social:social_pref_tweetmemePopularIsOn:true",
    "com_zimbra_social:social_pref_cardWidthList:400px",
    "com_zimbra_social:social_pref_showTweetAlertsOn:true",
    "com_zimbra_social:social_pref_toolbarButtonOn:true",
    "com_zimbra_social:social_pref_numberofTweetsToReturn:50",
    "com_zimbra_social:social_pref_numberofTweetsSearchesToReturn:50",
    "com_zimbra_social:social_alertUpdateTime:1316134506914",
    "com_zimbra_social:social_pref_SocialMailUpdateOn:true",
];

pub(super) fn write_ldif(entries: u64, random: &mut Random, out: &mut impl Write) -> io::Result<()> {
    write_tree(out)?;
    for number in 1..=entries {
        write_account(number, random, out)?;
    }
    Ok(())
}

fn write_tree(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "dn: cn=zimbra\nobjectClass: organizationalRole\ncn: zimbra\n")?;
    let mut dn = String::new();
    for label in ["com", "vmware", "eng"] {
        dn = if dn.is_empty() { format!("dc={label}") } else { format!("dc={label},{dn}") };
        writeln!(
            out,
            "dn: {dn}\nobjectClass: organization\nobjectClass: dcObject\no: {label} domain\ndc: {label}\n"
        )?;
    }
    writeln!(
        out,
        "dn: dc=zre-ldap001,{dn}\nobjectClass: organization\nobjectClass: dcObject\nobjectClass: zimbraDomain\n\
         objectClass: amavisAccount\no: {DOMAIN} domain\ndc: zre-ldap001\nzimbraDomainType: local\n\
         zimbraDomainStatus: active\nzimbraId: cb9a3147-0884-4e5a-9a89-bedbf147a171\n\
         zimbraCreateTimestamp: 20130419225322Z\nzimbraDomainName: {DOMAIN}\nzimbraMailStatus: enabled\n\
         zimbraACE: c9c110d7-5631-46ff-9ea2-9988b57b7f92 grp +domainAdminConsoleRights\n"
    )?;
    writeln!(
        out,
        "dn: cn=groups,dc=zre-ldap001,{dn}\nobjectClass: organizationalRole\ncn: groups\n\
         description: dynamic groups base\n"
    )?;
    writeln!(out, "dn: {PEOPLE}\nobjectClass: organizationalRole\nou: people\ncn: people\n")
}

fn write_account(number: u64, random: &mut Random, out: &mut impl Write) -> io::Result<()> {
    let (given, surname) = names::person(random);
    let (password, id) = (random.alphanumeric(12), random.uuid());
    let (password_time, logon_time) = (random.generalized_time(), random.generalized_time());
    let host = format!("mbs{:02}-zcs.vmware.com", random.below(10));
    let address = format!("user.{number}@{DOMAIN}");
    writeln!(
        out,
        "dn: uid=user.{number},{PEOPLE}\nobjectClass: top\nobjectClass: person\nobjectClass: organizationalPerson\n\
         objectClass: inetOrgPerson\nobjectClass: amavisAccount\nobjectClass: zimbraAccount\n\
         givenName: {given}\nsn: {surname}\ncn: {given} {surname}\nuid: user.{number}\nmail: {address}\n\
         userPassword: {password}\nzimbraMailDeliveryAddress: {address}\nzimbraId: {id}\n\
         displayName: {given} {surname}\nzimbraMailAlias: {address}\nzimbraPasswordModifiedTime: {password_time}\n\
         zimbraPrefReplyToAddress: {address}\nzimbraPrefReadingPaneEnabled: TRUE\n\
         zimbraAllowFromAddress: user.{number}@vmware.com"
    )?;
    for property in ZIMLET_PROPERTIES {
        writeln!(out, "zimbraZimletUserProperties: {property}")?;
    }
    writeln!(
        out,
        "zimbraZimletUserProperties: com_zimbra_social:social_emailLastUpdateDate:2011/9/15\n\
         zimbraZimletUserProperties: com_zimbra_social:social_pref_dontShowWelcomeScreenOn:false\n\
         zimbraZimletUserProperties: com_zimbra_social:social_pref_diggPopularIsOn:true\n\
         zimbraZimletUserProperties: com_zimbra_social:social_pref_autoShortenURLOn:true\n\
         zimbraMailHost: {host}\nzimbraMailStatus: enabled\nzimbraMailTransport: lmtp:{host}:7025\n\
         zimbraAccountStatus: active\nzimbraPrefSkin: carbon\n\
         zimbraPrefSortOrder: BDLV:,CAL:,CLV:,CNS:,CNSRC:,CNTGT:,CV:,TKL:,TV:,TV-main:dateDesc\n\
         zimbraLastLogonTimestamp: {logon_time}\n"
    )
}

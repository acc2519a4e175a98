//! Access rules: text, canonical text, and the answers of what compiles, sets among them.
#![no_main]

use std::sync::{Arc, LazyLock};

use larix_engine::access::{
    AccessPolicy, AccessRule, AccessTarget, EntryFacts, Item, ItemKind, Privilege, Quoting, Subject, Verdict,
};
use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema, SchemaBuilder};
use libfuzzer_sys::fuzz_target;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let mut builder = SchemaBuilder::system();
    builder.add_bundled("core").expect("core");
    Arc::new(builder.build())
});

/// An entry whose every attribute names the requester.
struct Loop;

impl EntryFacts for Loop {
    fn visit(&self, _: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        let _ = visit(b"cn=a,dc=b");
    }

    fn matches(&self, _: &BoundFilter) -> Match {
        Match::True
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let rules: Vec<AccessRule> = text.lines().filter_map(|line| AccessRule::parse(line).ok()).collect();
    for rule in &rules {
        // A quotation mark within a value cannot be written in an olcAccess value.
        if let Ok(again) = AccessRule::parse_quoted(&rule.to_string(), Quoting::Ldif)
            && !rule.text.contains(['"', '\\'])
        {
            assert_eq!((&again.what, &again.by), (&rule.what, &rule.by), "{rule}");
        }
    }
    let Ok(policy) = AccessPolicy::new(Arc::clone(&SCHEMA), None, &rules, &[]) else { return };
    let _ = policy.never_matching(&[]);
    let dn = NormalDn::from_normal("cn=a,dc=b");
    let target = AccessTarget { dn: &dn, entry: &Loop };
    for subject in [Subject::default(), Subject::default().bound_as(dn.clone(), "cn=a,dc=b")] {
        let granted = policy.check(&subject, &target, Item::Entry, Privilege::Read);
        assert_eq!(policy.explain(&subject, &target, Item::Entry, Privilege::Read).granted, granted);
        match policy.verdict(&subject, Some(&dn), ItemKind::Entry, Privilege::Read) {
            Verdict::Granted => assert!(granted, "{text}"),
            Verdict::Denied => assert!(!granted, "{text}"),
            Verdict::PerEntry | Verdict::PerValue => {}
        }
    }
});

//! One entry: what the remote server has of it, and over it what is stored here.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use larix_backend::memory_tree::OneByOne;
use larix_engine::entry::{Entry, EntryAttribute};
use larix_proto::encode::EntryEncoder;
use larix_proto::{ControlBuf, MessageId, SearchResultEntry};
use larix_schema::{AttributeDescription, Schema};

use super::split::Mentioned;

/// An entry as clients see it: an attribute that is stored here has its values from here, all others are the remote server's.
#[derive(Debug)]
pub(super) struct Overlaid<'a> {
    dn: &'a str,
    attributes: Vec<OneAttribute<'a>>,
}

#[derive(Debug)]
struct OneAttribute<'a> {
    name: Cow<'a, str>,
    /// None of one that the schema does not know.
    description: Option<AttributeDescription>,
    values: Vec<&'a [u8]>,
    is_local: bool,
}

/// What of a stored entry is laid over: nothing that servers keep of entries, and of glue not that it is glue.
pub(super) fn laid_over<'e>(
    schema: &'e Schema,
    local: &'e Entry,
) -> impl Iterator<Item = &'e EntryAttribute> {
    let object_class =
        |attribute: &&EntryAttribute| schema.attribute(attribute.description.attribute).oid == OBJECT_CLASS;
    let is_glue = local
        .attributes
        .iter()
        .find(object_class)
        .is_some_and(|classes| classes.values.iter().any(|class| class.eq_ignore_ascii_case(b"glue")));
    local.attributes.iter().filter(move |attribute| {
        let is_kept_by_servers = schema.attribute(attribute.description.attribute).no_user_modification;
        let is_of_glue = is_glue && object_class(attribute);
        !(is_kept_by_servers || is_of_glue || attribute.values.is_empty())
    })
}

/// `objectClass` (RFC 4512 section 3.3).
const OBJECT_CLASS: &str = "2.5.4.0";

impl<'a> Overlaid<'a> {
    pub(super) fn new(schema: &'a Schema, remote: &SearchResultEntry<'a>, local: Option<&'a Entry>) -> Self {
        let over: HashMap<&AttributeDescription, &EntryAttribute> = local
            .into_iter()
            .flat_map(|local| laid_over(schema, local))
            .map(|own| (&own.description, own))
            .collect();
        let own = |attribute: &'a EntryAttribute| OneAttribute {
            name: Cow::Owned(attribute.description.to_text(schema)),
            description: Some(attribute.description.clone()),
            values: attribute.values.iter().map(Vec::as_slice).collect(),
            is_local: true,
        };
        let mut attributes = Vec::new();
        let mut placed: HashSet<&AttributeDescription> = HashSet::new();
        for attribute in remote.attributes.iter() {
            let description = schema.describe(attribute.description).ok();
            match description.as_ref().and_then(|description| over.get(description)) {
                // The server may name it twice.
                Some(here) if placed.insert(&here.description) => attributes.push(own(here)),
                Some(_) => {}
                None => attributes.push(OneAttribute {
                    name: Cow::Borrowed(attribute.description),
                    description,
                    values: attribute.values.iter().collect(),
                    is_local: false,
                }),
            }
        }
        // As in OpenLDAP, what only this server has comes last.
        let rest = local.into_iter().flat_map(|local| laid_over(schema, local));
        attributes.extend(rest.filter(|own| !placed.contains(&own.description)).map(own));
        Self { dn: remote.dn, attributes }
    }

    /// The same for filters: what the schema knows of it.
    pub(super) fn entry(&self) -> Entry {
        let mut entry = Entry::new(self.dn);
        entry.attributes = self
            .attributes
            .iter()
            .filter_map(|attribute| {
                let values = attribute.values.iter().map(|value| value.to_vec()).collect();
                Some(EntryAttribute::new(attribute.description.clone()?, values))
            })
            .collect();
        entry
    }

    /// Appends the message.
    pub(super) fn write(
        &self,
        selection: &EntrySelection<'_>,
        (message, controls): (MessageId, &[ControlBuf]),
        out: &mut Vec<u8>,
    ) {
        let mut encoder = EntryEncoder::begin(out, message, self.dn);
        for attribute in self.attributes.iter().filter(|attribute| selection.has(attribute)) {
            let is_requested = |value: &&&[u8]| match &attribute.description {
                Some(description) => selection.search.selects_value(selection.schema, description, value),
                // A filter of values is not true of what the schema does not know.
                None => !selection.search.is_about_values(),
            };
            let mut values = attribute.values.iter().filter(is_requested).peekable();
            // Types alone are those of the attributes, as in OpenLDAP.
            if values.peek().is_none() && selection.search.is_about_values() && !selection.types_only {
                continue;
            }
            encoder.begin_attribute(&attribute.name);
            if !selection.types_only {
                values.for_each(|value| encoder.value(value));
            }
            encoder.end_attribute();
        }
        encoder.finish(controls);
    }
}

/// What the client wants of entries.
#[derive(Debug)]
pub(super) struct EntrySelection<'a> {
    pub(super) schema: &'a Schema,
    pub(super) search: &'a OneByOne,
    /// The client's own list.
    pub(super) names: &'a [String],
    /// What the remote server was asked for beside that: what the filter is about.
    pub(super) mentioned: &'a Mentioned,
    pub(super) types_only: bool,
}

impl EntrySelection<'_> {
    fn has(&self, attribute: &OneAttribute<'_>) -> bool {
        match &attribute.description {
            Some(description) if self.search.selects(self.schema, description) => true,
            _ if attribute.is_local => false,
            // What the schema does not know may be one of all that are asked for.
            None if self.names.is_empty() || self.names.iter().any(|name| name == "*") => true,
            // The remote server may know more names than this one: what it answers was asked for, by the client or for the filter.
            _ => self.is_named(attribute) || !self.is_extra(attribute),
        }
    }

    fn is_named(&self, attribute: &OneAttribute<'_>) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(&attribute.name))
    }

    fn is_extra(&self, attribute: &OneAttribute<'_>) -> bool {
        self.mentioned.names_it(attribute.description.as_ref(), &attribute.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larix_engine::budget::RequestLimits;
    use larix_engine::controls::RequestControls;
    use larix_proto::{DerefAliases, FilterBuf, Message, Request, Response, Scope, client};

    fn schema() -> Schema {
        let mut builder = larix_schema::SchemaBuilder::system();
        ["core", "cosine", "inetorgperson"].iter().for_each(|name| builder.add_bundled(name).unwrap());
        builder.build()
    }

    type Given<'a> = &'a [(&'a str, &'a [&'a str])];

    /// The entry as it goes to a client that asks for these attributes, `name: value` and sorted by nothing.
    fn seen(
        remote: Given<'_>,
        local: Given<'_>,
        names: &[&str],
        filter: &str,
        types_only: bool,
    ) -> Vec<String> {
        seen_by(remote, local, names, filter, types_only, &RequestControls::default())
    }

    fn seen_by(
        remote: Given<'_>,
        local: Given<'_>,
        names: &[&str],
        filter: &str,
        types_only: bool,
        controls: &RequestControls,
    ) -> Vec<String> {
        let schema = schema();
        let mut message = Vec::new();
        let mut encoder = EntryEncoder::begin(&mut message, MessageId(7), "cn=x,o=x");
        for (name, values) in remote {
            encoder.begin_attribute(name);
            values.iter().for_each(|value| encoder.value(value.as_bytes()));
            encoder.end_attribute();
        }
        encoder.finish(&[]);
        let mut entry = Entry::new("cn=x,o=x");
        for (name, values) in local {
            let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
            entry.attributes.push(EntryAttribute::new(schema.describe(name).unwrap(), values));
        }
        let filter = FilterBuf::parse(filter).unwrap();
        let mut request = Vec::new();
        let search = client::Search {
            base: "o=x",
            scope: Scope::Subtree,
            deref: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only,
            filter: filter.as_filter(),
            attributes: names,
        };
        client::search(&mut request, MessageId(7), &search, &[]);
        let Ok(Message { request: Request::Search(request), .. }) = Message::decode(&request) else {
            panic!()
        };
        let limits = RequestLimits::default();
        let one_by_one = OneByOne::new(&schema, &limits, &request, controls, MessageId(7)).unwrap();
        let mentioned = Mentioned::of(&schema, filter.as_filter());
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let selection = EntrySelection {
            schema: &schema,
            search: &one_by_one,
            names: &names,
            mentioned: &mentioned,
            types_only,
        };
        let decoded = Response::decode_message(&message).unwrap();
        let Response::Entry(remote) = decoded.response else { panic!() };
        let mut out = Vec::new();
        Overlaid::new(&schema, &remote, Some(&entry)).write(&selection, (MessageId(7), &[]), &mut out);
        let Response::Entry(shown) = Response::decode_message(&out).unwrap().response else { panic!() };
        let one = |attribute: larix_proto::Attribute<'_>| {
            let values: Vec<_> =
                attribute.values.iter().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
            format!("{}: {}", attribute.description, values.join(" "))
        };
        shown.attributes.iter().map(one).collect()
    }

    #[test]
    fn values_here_stand_in_the_place_of_others() {
        let remote: Given<'_> =
            &[("cn", &["x"]), ("SN", &["there", "too"]), ("sn;lang-en", &["en"]), ("unknownHere", &["u"])];
        let every = "(objectClass=*)";
        let local: Given<'_> = &[("sn", &["here"]), ("mail", &["m@x"])];
        assert_eq!(
            seen(remote, local, &[], every, false),
            ["cn: x", "sn: here", "sn;lang-en: en", "unknownHere: u", "mail: m@x"]
        );
        // What was not asked for is not added.
        assert_eq!(seen(&[("cn", &["x"])], local, &["cn"], every, false), ["cn: x"]);
        assert_eq!(seen(&[], local, &["1.1"], every, false), Vec::<String>::new());
        assert_eq!(seen(&[("cn", &["x"])], local, &["name"], every, false), ["cn: x", "sn: here"]);
        assert_eq!(seen(&[("sn", &["x"])], local, &["sn", "mail"], every, true), ["sn: ", "mail: "]);
        // What only the filter asks for goes no further; what the client names does, known or not.
        let remote: Given<'_> = &[("cn", &["x"]), ("uid", &["y"]), ("unknownHere", &["u"])];
        let filter = "(&(uid=y)(unknownHere=u))";
        assert_eq!(seen(remote, &[], &["cn"], filter, false), ["cn: x"]);
        assert_eq!(seen(&remote[1..], &[], &["unknownhere"], filter, false), ["unknownHere: u"]);
        assert_eq!(seen(remote, &[], &["*"], filter, false), ["cn: x", "uid: y", "unknownHere: u"]);
    }

    /// The remote server is asked for whole entries, so that the filter can be judged on them.
    #[test]
    fn matched_values_are_those_of_both() {
        let filters = ["(sn=a*)", "(mail=*)"].map(|filter| FilterBuf::parse(filter).unwrap());
        let controls = RequestControls::default().with(|values| values.matched_values = Some(filters.into()));
        let remote: Given<'_> = &[("sn", &["a", "b"]), ("cn", &["x"]), ("unknownHere", &["u"])];
        let local: Given<'_> = &[("mail", &["m@x"]), ("initials", &["i"])];
        let every = "(objectClass=*)";
        assert_eq!(seen_by(remote, local, &[], every, false, &controls), ["sn: a", "mail: m@x"]);
        let types = seen_by(&remote[..2], local, &["sn", "cn", "initials"], every, true, &controls);
        assert_eq!(types, ["sn: ", "cn: ", "initials: "]);
    }

    #[test]
    fn what_servers_keep_is_the_remote_one_s() {
        let remote: Given<'_> = &[("objectClass", &["person"]), ("structuralObjectClass", &["person"])];
        let glue: Given<'_> =
            &[("objectClass", &["top", "glue"]), ("structuralObjectClass", &["glue"]), ("cn", &["c"])];
        let every = "(objectClass=*)";
        assert_eq!(
            seen(remote, glue, &["*", "+"], every, false),
            ["objectClass: person", "structuralObjectClass: person", "cn: c"]
        );
        let classes: Given<'_> = &[("objectClass", &["person", "uidObject"])];
        assert_eq!(seen(remote, classes, &["objectClass"], every, false)[0], "objectClass: person uidObject");
    }

    /// A server that sends an attribute twice shows it once here.
    #[test]
    fn attributes_that_come_twice() {
        let remote: Given<'_> = &[("sn", &["a"]), ("SN", &["b"])];
        let shown = seen(remote, &[("sn", &["here"])], &[], "(objectClass=*)", false);
        assert_eq!(shown, ["sn: here"]);
    }
}

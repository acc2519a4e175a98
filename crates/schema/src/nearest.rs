//! Which of several that have suffixes holds a name.

use crate::dn::NormalDn;

/// The choice of who holds a name: of those with suffixes above it the one with the longest, and of equals the first.
#[derive(Copy, Clone, Debug)]
pub struct NearestSuffix<'n> {
    name: &'n NormalDn,
    /// A suffix that is the name itself counts.
    at: bool,
    /// Suffixes with more RDNs than this count; `None`: all.
    beyond: Option<usize>,
}

impl<'n> NearestSuffix<'n> {
    /// At the name, or above it.
    pub fn of(name: &'n NormalDn) -> Self {
        Self { name, at: true, beyond: None }
    }

    /// Above the name, and not at it.
    pub fn above(name: &'n NormalDn) -> Self {
        Self { name, at: false, beyond: None }
    }

    /// Nearer than a suffix of so many RDNs.
    #[must_use]
    pub fn beyond(self, depth: usize) -> Self {
        Self { beyond: Some(depth), ..self }
    }

    /// How many RDNs the longest of one holder's suffixes has that counts.
    pub fn depth<'s>(&self, suffixes: impl IntoIterator<Item = &'s NormalDn>) -> Option<usize> {
        let counts = |suffix: &&NormalDn| {
            self.name.is_within(suffix) && (self.at || self.name.depth() > suffix.depth())
        };
        let depths = suffixes.into_iter().filter(counts).map(NormalDn::depth);
        depths.max().filter(|depth| self.beyond.is_none_or(|beyond| *depth > beyond))
    }

    /// The holder, and how many RDNs its suffix has; `depth` tells what [`Self::depth`] says of one.
    pub fn among<T>(
        &self,
        holders: impl IntoIterator<Item = T>,
        depth: impl Fn(&Self, &T) -> Option<usize>,
    ) -> Option<(usize, T)> {
        let mut nearest: Option<(usize, T)> = None;
        for holder in holders {
            let Some(found) = depth(self, &holder) else { continue };
            if nearest.as_ref().is_none_or(|(depth, _)| found > *depth) {
                nearest = Some((found, holder));
            }
        }
        nearest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_holds_a_name() {
        let dn = |text: &str| NormalDn::from_normal(text);
        let holders = [
            ("root", vec![dn("")]),
            ("one", vec![dn("dc=a"), dn("ou=x,ou=b,dc=a")]),
            ("glued", vec![dn("ou=b,dc=a")]),
            ("again", vec![dn("ou=b,dc=a")]),
        ];
        let chosen = |nearest: NearestSuffix<'_>| {
            let found = nearest.among(&holders, |nearest, (_, suffixes)| nearest.depth(suffixes));
            found.map(|(depth, (name, _))| (*name, depth))
        };
        for (name, at, above) in [
            ("cn=y,dc=a", Some(("one", 1)), Some(("one", 1))),
            ("dc=a", Some(("one", 1)), Some(("root", 0))),
            ("cn=y,ou=b,dc=a", Some(("glued", 2)), Some(("glued", 2))),
            ("ou=b,dc=a", Some(("glued", 2)), Some(("one", 1))),
            ("cn=y,ou=x,ou=b,dc=a", Some(("one", 3)), Some(("one", 3))),
            ("dc=c", Some(("root", 0)), Some(("root", 0))),
            ("", Some(("root", 0)), None),
        ] {
            let name = dn(name);
            assert_eq!(chosen(NearestSuffix::of(&name)), at, "{name}");
            assert_eq!(chosen(NearestSuffix::above(&name)), above, "{name}");
        }
        let name = dn("cn=y,ou=b,dc=a");
        assert_eq!(chosen(NearestSuffix::of(&name).beyond(1)), Some(("glued", 2)));
        assert_eq!(chosen(NearestSuffix::of(&name).beyond(2)), None);
    }
}

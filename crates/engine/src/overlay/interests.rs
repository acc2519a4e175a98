//! Which hooks an overlay uses, and the overlays of a database with what they use together.

use std::fmt;
use std::ops::{BitOr, BitOrAssign, Deref};
use std::sync::Arc;

use super::Overlay;

/// The hooks that an overlay uses. The union over all overlays of a database is computed once per
/// configuration: an unused hook costs a test of one bit.
#[derive(Copy, Clone, Default, PartialEq, Eq)]
pub struct Interests(u32);

impl Interests {
    /// None: it says something of the configuration, and nothing of operations.
    pub const NONE: Self = Self(0);
    /// [`Overlay::prepare`]
    pub const PREPARE: Self = Self(1);
    /// [`Overlay::authentication`]
    pub const BIND: Self = Self(1 << 1);
    /// [`Overlay::answering`]
    pub const ANSWER: Self = Self(1 << 2);
    /// [`Overlay::back_link`]
    pub const BACK_LINK: Self = Self(1 << 3);
    /// [`Overlay::computed`]
    pub const COMPUTE: Self = Self(1 << 4);
    /// [`Overlay::shown`]
    pub const SHOW: Self = Self(1 << 5);

    /// [`Overlay::committed`]
    pub const COMMITTED: Self = Self(1 << 6);
    /// [`Overlay::tick`]
    pub const TICK: Self = Self(1 << 7);
    /// No hook: entries of the class dynamicObject (RFC 2589) are at home in the database.
    pub const DYNAMIC_OBJECTS: Self = Self(1 << 8);
    /// [`Overlay::second_factor`]
    pub const SECOND_FACTOR: Self = Self(1 << 9);

    /// [`Overlay::password_keys`]
    pub const PASSWORD_KEY: Self = Self(1 << 10);

    const NAMES: [(Self, &'static str); 11] = [
        (Self::PREPARE, "prepare"),
        (Self::BIND, "bind"),
        (Self::ANSWER, "answer"),
        (Self::BACK_LINK, "back link"),
        (Self::COMPUTE, "compute"),
        (Self::SHOW, "show"),
        (Self::COMMITTED, "committed"),
        (Self::TICK, "tick"),
        (Self::DYNAMIC_OBJECTS, "dynamic objects"),
        (Self::SECOND_FACTOR, "second factor"),
        (Self::PASSWORD_KEY, "password key"),
    ];

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `hook` is wanted.
    pub const fn has(self, hook: Self) -> bool {
        self.0 & hook.0 == hook.0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Interests {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl BitOrAssign for Interests {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.and(other);
    }
}

impl fmt::Debug for Interests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(hook, _)| self.has(*hook)).map(|(_, name)| name);
        f.debug_set().entries(names).finish()
    }
}

/// The overlays in front of a database, in the order of the configuration. Those without interests are left out.
#[derive(Clone, Debug, Default)]
pub struct Overlays {
    stack: Vec<Arc<dyn Overlay>>,
    interests: Interests,
}

impl Overlays {
    pub fn push(&mut self, overlay: Arc<dyn Overlay>) {
        let interests = overlay.interests();
        if !interests.is_empty() {
            self.interests |= interests;
            self.stack.push(overlay);
        }
    }

    /// Whether any of them uses this hook.
    pub fn want(&self, hook: Interests) -> bool {
        self.interests.has(hook)
    }

    /// Those that use this hook, in their order.
    pub fn at(&self, hook: Interests) -> impl DoubleEndedIterator<Item = &Arc<dyn Overlay>> {
        let stack = if self.want(hook) { self.stack.as_slice() } else { &[] };
        stack.iter().filter(move |overlay| overlay.interests().has(hook))
    }

    /// Those that see committed changes or have ticks, each with the name under which its place in the change log is remembered.
    pub fn beside_operations(&self) -> Vec<(String, Arc<dyn Overlay>)> {
        let mut all: Vec<(String, Arc<dyn Overlay>)> = Vec::new();
        let has = |overlay: &Arc<dyn Overlay>, hook| overlay.interests().has(hook);
        let beside =
            |overlay: &&Arc<dyn Overlay>| has(overlay, Interests::COMMITTED) || has(overlay, Interests::TICK);
        for overlay in self.stack.iter().filter(beside) {
            let same = all.iter().filter(|(_, other)| other.name() == overlay.name()).count();
            let name = match same {
                0 => overlay.name().to_owned(),
                number => format!("{}/{number}", overlay.name()),
            };
            all.push((name, Arc::clone(overlay)));
        }
        all
    }
}

impl Deref for Overlays {
    type Target = [Arc<dyn Overlay>];

    fn deref(&self) -> &Self::Target {
        &self.stack
    }
}

impl FromIterator<Arc<dyn Overlay>> for Overlays {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Overlay>>>(overlays: I) -> Self {
        let mut all = Self::default();
        overlays.into_iter().for_each(|overlay| all.push(overlay));
        all
    }
}

impl From<Vec<Arc<dyn Overlay>>> for Overlays {
    fn from(overlays: Vec<Arc<dyn Overlay>>) -> Self {
        overlays.into_iter().collect()
    }
}

//! The flags of `notify-keyspace-events`.

/// A class of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventClass(u16);

const FLAG_LETTERS: [(char, u16); 13] = [
    ('g', 1),
    ('$', 1 << 1),
    ('l', 1 << 2),
    ('s', 1 << 3),
    ('h', 1 << 4),
    ('z', 1 << 5),
    ('x', 1 << 6),
    ('e', 1 << 7),
    ('t', 1 << 8),
    ('d', 1 << 9),
    ('n', 1 << 10),
    ('K', 1 << 11),
    ('E', 1 << 12),
];
const MISSES: u16 = 1 << 13;
const ALL_CLASSES: u16 = (1 << 10) - 1;

impl EventClass {
    pub(crate) const GENERIC: Self = Self(1);
    pub(crate) const TEXT: Self = Self(1 << 1);
    pub(crate) const LIST: Self = Self(1 << 2);
    pub(crate) const SET: Self = Self(1 << 3);
    pub(crate) const HASH: Self = Self(1 << 4);
    pub(crate) const ZSET: Self = Self(1 << 5);
    pub(crate) const EXPIRED: Self = Self(1 << 6);
    pub(crate) const STREAM: Self = Self(1 << 8);
    pub(crate) const NEW: Self = Self(1 << 10);
}

/// The enabled classes and channels of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFlags(u16);

impl EventFlags {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.chars().try_fold(Self::default(), |flags, letter| {
            let bits = match letter {
                'A' => ALL_CLASSES,
                'm' => MISSES,
                _ => FLAG_LETTERS.iter().find(|(known, _)| *known == letter)?.1,
            };
            Some(Self(flags.0 | bits))
        })
    }

    /// Returns the flags in the order of Redis, in which `A` hides `n`.
    pub(crate) fn print(self) -> String {
        let (classes, channels) = FLAG_LETTERS.split_at(11);
        let on = |letters: &[(char, u16)]| -> String {
            letters.iter().filter(|(_, bit)| self.0 & bit != 0).map(|(letter, _)| letter).collect()
        };
        let classes = if self.0 & ALL_CLASSES == ALL_CLASSES { "A".to_owned() } else { on(classes) };
        let misses = if self.0 & MISSES != 0 { "m" } else { "" };
        format!("{classes}{}{misses}", on(channels))
    }

    pub(crate) fn has(self, class: EventClass) -> bool {
        self.0 & class.0 != 0
    }

    /// Returns whether `__keyspace@0__:<key>` is on.
    pub(crate) fn by_key(self) -> bool {
        self.0 & (1 << 11) != 0
    }

    /// Returns whether `__keyevent@0__:<event>` is on.
    pub(crate) fn by_event(self) -> bool {
        self.0 & (1 << 12) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_in_the_servers_order() {
        for (set, shown) in
            [("Ex", "xE"), ("KEA", "AKE"), ("gKx$", "g$xK"), ("KEAnm", "AKEm"), ("", ""), ("nEg", "gnE")]
        {
            assert_eq!(EventFlags::parse(set).map(EventFlags::print).as_deref(), Some(shown));
        }
        assert_eq!(EventFlags::parse("q"), None);
    }
}

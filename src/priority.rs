//! Which topics of a listener go first.

/// How much of a listener's places a topic gets while others have due work, too. See [`Topic::priority`].
///
/// [`Topic::priority`]: crate::Topic::priority
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Six places for each three of a normal topic and each one of a low one.
    High,
    /// Three places for each six of a high topic and each one of a low one.
    #[default]
    Normal,
    /// One place for each six of a high topic and each three of a normal one.
    Low,
}

impl Priority {
    /// Its places, in proportion to those of others.
    pub(crate) const fn weight(self) -> usize {
        match self {
            Self::High => 6,
            Self::Normal => 3,
            Self::Low => 1,
        }
    }

    /// How far its turn moves on with each place: the less, the sooner it is the topic's turn again.
    pub(crate) const fn stride(self) -> u64 {
        match self {
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_twice_the_weight_goes_half_as_far() {
        let all = [Priority::High, Priority::Normal, Priority::Low];
        assert_eq!(all.map(|priority| priority.weight() as u64 * priority.stride()), [6; 3]);
        assert_eq!(all.map(Priority::weight), [6, 3, 1]);
    }
}

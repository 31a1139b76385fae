//! Random ids, chosen by the client.
//!
//! Never counters: a counter repeats after a failover and would let a stale
//! ack through.

use std::fmt;

macro_rules! random_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(#[doc(hidden)] pub [u8; 8]);

        impl $name {
            /// A new id from the thread's random generator.
            pub fn random() -> Self {
                Self(rand::random())
            }

            /// The id as it stands in Redis.
            pub fn as_bytes(&self) -> &[u8; 8] {
                &self.0
            }

            /// Reads an id as it stands in Redis; `None` unless it has 8 bytes.
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", u64::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

random_ids! {
    /// Names one arming of a key, from the arm to its end.
    ArmingId;
    /// Names one claim; everything its holder does later is checked against it. By default nobody's.
    #[derive(Default)]
    Token;
    /// Names one cancel call, so that its repeat gives the first one's answer.
    CancelId;
    /// Names one replay call, so that its repeat gives the first one's answer.
    ReplayId;
    /// Names one call that destroys a topic by force, and all that go on with it.
    DestroyId;
    /// Names one call that gives a topic another number of partitions, and all that go on with it.
    RepartitionId;
    /// Names one claiming task of one listener.
    SlotId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_differ() {
        let id = ArmingId::random();
        assert_eq!(ArmingId::from_bytes(id.as_bytes()), Some(id));
        assert_ne!(id, ArmingId::random());
        assert_eq!(Token::from_bytes(b"short"), None);
    }

    #[test]
    fn ids_are_shown_as_sixteen_digits() {
        assert_eq!(ArmingId([0, 0, 0, 0, 0, 0, 1, 0xab]).to_string(), "00000000000001ab");
    }
}

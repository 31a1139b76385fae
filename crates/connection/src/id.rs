//! Random IDs, chosen by the client.
//!
//! The IDs are not counters. A counter can return to a used value after a failover, and Redis would then accept a stale ack.

use std::fmt;

macro_rules! random_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(#[doc(hidden)] pub [u8; 8]);

        impl $name {
            /// Returns a new ID from the thread's random generator.
            pub fn random() -> Self {
                Self(rand::random())
            }

            /// Returns the bytes that Redis stores.
            pub fn as_bytes(&self) -> &[u8; 8] {
                &self.0
            }

            /// Reads the bytes that Redis stores. Returns `None` unless there are exactly 8.
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
    /// The ID of one arming of a key, from the arm to its end.
    ArmingId;
    /// The ID of one claim. Redis checks every later call for the claimed timer against it. The default is the token of no
    /// claim.
    #[derive(Default)]
    Token;
    /// The ID of one cancel call. A repeat of the call with this ID gets the answer of the first.
    CancelId;
    /// The ID of one replay call. A repeat of the call with this ID gets the answer of the first.
    ReplayId;
    /// The ID of one forced destruction of a topic. All calls that continue it have the same ID.
    DestroyId;
    /// The ID of one repartition of a topic. All calls that continue it have the same ID.
    RepartitionId;
    /// The ID of one claiming task of one listener.
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

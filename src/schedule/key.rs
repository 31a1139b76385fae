//! How callers name a timer.

use bytes::Bytes;

use crate::error::Result;
use crate::schedule::Schedule;
use crate::topic::TopicConfig;

/// A whole key, as it stands in Redis; it must match the topic's pattern.
#[derive(Clone, Debug)]
pub struct Key<K>(pub K);

/// What names a timer of a topic: the values of the pattern's captures in their
/// order (an array, slice or vector), or a whole [`Key`].
pub trait KeyArgs {
    #[doc(hidden)]
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes>;
}

pub(crate) mod private {
    /// Keeps the trait's method out of reach.
    #[derive(Clone, Copy, Debug)]
    pub struct Scope<'a> {
        pub(crate) config: &'a super::TopicConfig,
        pub(crate) namespace: &'a str,
    }
}

impl<K: AsRef<[u8]>> KeyArgs for Key<K> {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        scope.config.check_key(scope.namespace, self.0.as_ref())?;
        Ok(Bytes::copy_from_slice(self.0.as_ref()))
    }
}

impl<V: AsRef<[u8]>> KeyArgs for [V] {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        let key = scope.config.pattern.build(self.iter().map(AsRef::as_ref))?;
        scope.config.check_key(scope.namespace, &key)?;
        Ok(key.into())
    }
}

impl<V: AsRef<[u8]>, const N: usize> KeyArgs for [V; N] {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        self[..].key(scope)
    }
}

impl<V: AsRef<[u8]>> KeyArgs for Vec<V> {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        self[..].key(scope)
    }
}

impl<A: KeyArgs + ?Sized> KeyArgs for &A {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        (**self).key(scope)
    }
}

impl Schedule {
    /// The key that `args` name in a topic.
    pub(crate) fn key_of(&self, config: &TopicConfig, args: &impl KeyArgs) -> Result<Bytes> {
        args.key(private::Scope { config, namespace: self.client.prefix() })
    }
}

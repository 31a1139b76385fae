//! How callers name a timer.

use bytes::Bytes;

use super::Schedule;
use crate::error::Result;
use crate::topic::Shape;

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
        pub(crate) shape: &'a super::Shape,
        pub(crate) namespace: &'a str,
    }
}

impl<K: AsRef<[u8]>> KeyArgs for Key<K> {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        scope.shape.check_key(scope.namespace, self.0.as_ref())?;
        Ok(Bytes::copy_from_slice(self.0.as_ref()))
    }
}

impl<V: AsRef<[u8]>> KeyArgs for [V] {
    fn key(&self, scope: private::Scope<'_>) -> Result<Bytes> {
        let key = scope.shape.pattern.build(self.iter().map(AsRef::as_ref))?;
        scope.shape.check_key(scope.namespace, &key)?;
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
    pub(crate) fn key_of(&self, shape: &Shape, args: &impl KeyArgs) -> Result<Bytes> {
        args.key(private::Scope { shape, namespace: &self.namespace })
    }
}

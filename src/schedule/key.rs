//! How callers name a timer.

use bytes::Bytes;

use crate::error::Result;
use crate::topic::Shape;

/// A whole key, as it stands in Redis; it must match the topic's pattern.
#[derive(Clone, Debug)]
pub struct Key<K>(pub K);

/// What names a timer of a topic: the values of the pattern's captures in their
/// order (an array, slice or vector), or a whole [`Key`].
pub trait KeyArgs {
    #[doc(hidden)]
    fn key(&self, shape: private::ShapeRef<'_>) -> Result<Bytes>;
}

pub(crate) mod private {
    /// Keeps the trait's method out of reach.
    #[derive(Clone, Copy, Debug)]
    pub struct ShapeRef<'a>(pub(crate) &'a super::Shape);
}

impl<K: AsRef<[u8]>> KeyArgs for Key<K> {
    fn key(&self, shape: private::ShapeRef<'_>) -> Result<Bytes> {
        shape.0.check_key(self.0.as_ref())?;
        Ok(Bytes::copy_from_slice(self.0.as_ref()))
    }
}

impl<V: AsRef<[u8]>> KeyArgs for [V] {
    fn key(&self, shape: private::ShapeRef<'_>) -> Result<Bytes> {
        let key = shape.0.pattern.build(self.iter().map(AsRef::as_ref))?;
        shape.0.check_key(&key)?;
        Ok(key.into())
    }
}

impl<V: AsRef<[u8]>, const N: usize> KeyArgs for [V; N] {
    fn key(&self, shape: private::ShapeRef<'_>) -> Result<Bytes> {
        self[..].key(shape)
    }
}

impl<V: AsRef<[u8]>> KeyArgs for Vec<V> {
    fn key(&self, shape: private::ShapeRef<'_>) -> Result<Bytes> {
        self[..].key(shape)
    }
}

impl<A: KeyArgs + ?Sized> KeyArgs for &A {
    fn key(&self, shape: private::ShapeRef<'_>) -> Result<Bytes> {
        (**self).key(shape)
    }
}

/// The key that `args` name in a topic.
pub(super) fn key_of(shape: &Shape, args: &impl KeyArgs) -> Result<Bytes> {
    args.key(private::ShapeRef(shape))
}

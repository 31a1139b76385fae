//! The values of keys.

mod fields;
mod members;
mod scan_map;
mod stream;
mod zset;

use std::collections::VecDeque;

use bytes::Bytes;

pub(crate) use fields::HashFields;
pub(crate) use members::Members;
pub(crate) use scan_map::ScanMap;
pub(crate) use stream::Stream;
pub(crate) use zset::{Bound, Zset};

/// An estimate of the memory of an element in addition to its bytes. In Redis it depends on the allocator.
pub(crate) const ELEMENT_OVERHEAD_BYTES: usize = 48;

#[derive(Clone, Debug, Default)]
pub(crate) struct List(pub(crate) VecDeque<Bytes>);

/// The value of a key. A key without elements does not exist, except for strings and streams.
#[derive(Clone, Debug)]
pub(crate) enum StoredValue {
    Text(Bytes),
    Hash(HashFields),
    Zset(Zset),
    List(List),
    Set(Members),
    Stream(Stream),
}

impl StoredValue {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Zset(_) => "zset",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Stream(_) => "stream",
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) | Self::Stream(_) => false,
            Self::Hash(fields) => fields.len() == 0,
            Self::Zset(zset) => zset.len() == 0,
            Self::List(List(items)) => items.is_empty(),
            Self::Set(members) => members.len() == 0,
        }
    }

    /// Returns an estimate of the memory in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Text(bytes) => bytes.len(),
            Self::Hash(fields) => fields.size(),
            Self::Zset(zset) => zset.size(),
            Self::List(List(items)) => items.iter().map(|item| item.len() + ELEMENT_OVERHEAD_BYTES).sum(),
            Self::Set(members) => members.size(),
            Self::Stream(stream) => stream.len() * 2 * ELEMENT_OVERHEAD_BYTES,
        }
    }

    pub(crate) fn encoding(&self) -> &'static str {
        match self {
            Self::Text(bytes) if crate::number::integer(bytes).is_some() => "int",
            Self::Text(bytes) if bytes.len() <= 44 => "embstr",
            Self::Text(_) => "raw",
            Self::Hash(fields) => {
                if fields.is_compact() {
                    "listpack"
                } else {
                    "hashtable"
                }
            }
            Self::Zset(zset) => {
                if zset.is_compact() {
                    "listpack"
                } else {
                    "skiplist"
                }
            }
            Self::List(_) => "quicklist",
            Self::Set(_) => "hashtable",
            Self::Stream(_) => "stream",
        }
    }
}

/// A type of value, for functions that accept only this type.
pub(crate) trait Typed: Sized {
    fn of(value: &mut StoredValue) -> Option<&mut Self>;
    fn empty() -> StoredValue;
}

macro_rules! typed {
    ($($variant:ident($type:ty)),*) => {$(
        impl Typed for $type {
            fn of(value: &mut StoredValue) -> Option<&mut Self> {
                if let StoredValue::$variant(inner) = value { Some(inner) } else { None }
            }

            fn empty() -> StoredValue {
                StoredValue::$variant(Self::default())
            }
        }
    )*};
}

typed!(Text(Bytes), Hash(HashFields), Zset(Zset), List(List), Set(Members), Stream(Stream));

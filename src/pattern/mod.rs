//! Structured key patterns: what a topic's keys look like.
//!
//! A Redis key such as `app:trans:notice:1615283234` is read as *segments* separated by `:`.
//! A [`Pattern`] says what each segment must be, names the ones worth knowing, and works both ways:
//! it takes a key apart ([`Pattern::matches`]) and puts one together ([`Pattern::build`]).
//! A [`Router`] finds the most specific of many patterns.
//!
//! ```
//! use keylapse::Pattern;
//!
//! let notice = Pattern::new("app:trans:notice:{id:[0-9]+}")?;
//!
//! let captures = notice.matches(b"app:trans:notice:1615283234").ok_or("no match")?;
//! assert_eq!(captures.get_str("id"), Some("1615283234"));
//! assert_eq!(notice.build(["1615283234"])?, b"app:trans:notice:1615283234");
//!
//! assert!(!notice.is_match(b"app:trans:notice:abc"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Grammar
//!
//! ```text
//! pattern  = segment *( ":" segment )        at most 32 segments and 1024 bytes
//! segment  = literal | capture               a capture is always a whole segment
//! literal  = 1*( char | "{{" | "}}" )        char: any but ":", "{", "}"
//! capture  = "{" name "}"                    one segment
//!          | "{" name ":" regex "}"          one segment that the whole of the regex matches
//!          | "{" name ".." "}"               all remaining segments, at least one; only at the end
//! name     = ( letter | "_" ) *( letter | digit | "_" )        ASCII; no name twice
//! ```
//!
//! **Keys** are bytes. They need not be UTF-8, nothing is normalised, case matters, and newlines,
//! NULs and the rest are bytes like any other. No segment of a matching key is ever empty: `a::b`,
//! `a:` and the empty key match no pattern.
//!
//! **Literals** match the UTF-8 bytes of the text and all of the segment: `images` does not take
//! `imagesfoo`. `{{` and `}}` stand for single braces. `*` and `?` have no meaning inside a
//! literal. A segment that is nothing but `*`, `**`, `?` or something in angle brackets is refused,
//! because whoever writes `app:*:id` or `app:<id>` meant a capture; `{any:\*}` matches the
//! character itself.
//!
//! **Regular expressions** have the syntax of the [`regex`] crate, byte flavour: Unicode classes
//! unless switched off by `(?-u)`. They see one segment at a time, hence never a `:` and never
//! nothing; an expression that could match nothing else is refused. Their own braces must balance,
//! as in `[0-9]{2,3}`; a single one is escaped, also inside a class: `\{[^\}]+\}`. They are limited
//! in size (1 MiB compiled), which mostly concerns repeated Unicode classes: `\w{64}` is too large,
//! `[A-Za-z0-9_]{64}` is tiny.
//!
//! **Control characters** may not occur anywhere in a pattern. A regular expression can match them
//! by an escape, such as `\x00`.
//!
//! | pattern | matches | does not match |
//! | --- | --- | --- |
//! | `app:{id}` | `app:7`, `app:a.b` | `app:`, `app:7:x`, `App:7` |
//! | `app:{id:[0-9]+}` | `app:7` | `app:7a`, `app:x` |
//! | `app:{rest..}` | `app:7`, `app:7:x:y` | `app`, `app:7::y` |
//! | `app:{{u1}}:cart` | `app:{u1}:cart` | `app:u1:cart` |
//! | `app:{tag:\{[^\}]+\}}:cart` | `app:{u1}:cart`, `app:{u2}:cart` | `app:u1:cart` |
//!
//! # Which pattern wins
//!
//! **Compare two patterns segment by segment from the left: a literal is more specific than a
//! regular expression, that than a plain capture, that than a rest. The first difference decides.**
//! The order of registration never matters. Two patterns without such a difference are told apart
//! only by what they match; if there is a key that both match, [`Router::insert`] refuses the
//! second one and names both, and the key.

mod build;
mod captures;
mod conflict;
mod error;
mod excerpt;
mod expression;
mod kind;
mod language;
#[cfg(any(test, fuzzing))]
pub(crate) mod oracle;
mod overlap;
mod parse;
mod prefix;
mod router;
mod segment;
mod shape;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

pub use captures::Captures;
pub use conflict::PatternConflict;
pub use error::PatternError;
pub use kind::PatternErrorKind;
pub use router::Router;

use segment::{Capture, SEPARATOR, Segment, Takes};

/// What the keys of a topic look like; see the [module documentation](self) for the grammar.
///
/// Cloning is cheap: clones share one compiled form. Two patterns are equal if their sources are,
/// so `{a}` and `{b}` differ although they match the same keys.
///
/// ```
/// use keylapse::Pattern;
///
/// let pattern: Pattern = "orders:{region}:{id:[0-9]{1,10}}".parse()?;
/// assert!(pattern.is_match(b"orders:eu:42"));
/// assert_eq!(pattern.to_string(), "orders:{region}:{id:[0-9]{1,10}}");
/// # Ok::<(), keylapse::PatternError>(())
/// ```
#[derive(Clone)]
pub struct Pattern(Arc<Compiled>);

struct Compiled {
    source: Box<str>,
    segments: Vec<Segment>,
    prefix: String,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// If the source does not follow the [grammar](self#grammar). The error carries the source,
    /// says where in it the trouble is, and what to write instead:
    ///
    /// ```
    /// use keylapse::Pattern;
    ///
    /// let error = Pattern::new("app:*:id").unwrap_err();
    /// assert_eq!(error.pattern(), "app:*:id");
    /// assert_eq!(error.offset(), 4);
    /// assert_eq!(
    ///     error.to_string(),
    ///     "pattern `app:*:id`, byte 4: not a capture: `*`; write `{name}` for one segment, \
    ///      `{name..}` for all that remain, `{name:regex}` to match the characters themselves",
    /// );
    /// ```
    pub fn new(source: &str) -> Result<Self, PatternError> {
        let segments = parse::parse(source)?;
        Ok(Self(Arc::new(Compiled { source: source.into(), prefix: prefix::of(&segments), segments })))
    }

    /// The source, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0.source
    }

    /// The names of the captures, from left to right: the order in which [`build`](Self::build)
    /// takes values.
    ///
    /// ```
    /// let pattern = keylapse::Pattern::new("app:{region}:{id:[0-9]+}")?;
    /// assert!(pattern.capture_names().eq(["region", "id"]));
    /// # Ok::<(), keylapse::PatternError>(())
    /// ```
    pub fn capture_names(&self) -> impl Iterator<Item = &str> {
        self.captures().map(|(_, capture)| &*capture.name)
    }

    /// Takes a key apart, if it matches.
    ///
    /// The captures own a copy of the key and outlive both it and the pattern. Where the answer is
    /// all that is needed, [`is_match`](Self::is_match) copies nothing.
    ///
    /// ```
    /// let cart = keylapse::Pattern::new("shop:cart:{user}:{path..}")?;
    /// let captures = cart.matches(b"shop:cart:7:items:\xff").ok_or("no match")?;
    /// assert_eq!(captures.get_str("user"), Some("7"));
    /// assert_eq!(captures.get("path"), Some(&b"items:\xff"[..]));
    /// assert!(cart.matches(b"shop:cart:7").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matches(&self, key: &[u8]) -> Option<Captures> {
        self.is_match(key).then(|| Captures::of_matching(self.clone(), key))
    }

    /// Whether a key matches, without copying anything.
    ///
    /// The time this takes is linear in the length of the key.
    ///
    /// ```
    /// let image = keylapse::Pattern::new("images:{id}")?;
    /// assert!(image.is_match(b"images:7"));
    /// assert!(!image.is_match(b"imagesfoo:7"));
    /// # Ok::<(), keylapse::PatternError>(())
    /// ```
    pub fn is_match(&self, key: &[u8]) -> bool {
        let mut parts = segment::split(key);
        for segment in self.segments() {
            if let Segment::Capture(Capture { takes: Takes::Rest, .. }) = segment {
                return parts.next().is_some_and(|part| !part.is_empty())
                    && parts.all(|part| !part.is_empty());
            }
            if !parts.next().is_some_and(|part| segment.accepts(part)) {
                return false;
            }
        }
        parts.next().is_none()
    }

    fn segments(&self) -> &[Segment] {
        &self.0.segments
    }

    /// The captures, each with the number of its segment.
    fn captures(&self) -> impl DoubleEndedIterator<Item = (usize, &Capture)> {
        let numbered = self.segments().iter().enumerate();
        numbered.filter_map(|(at, segment)| Some((at, segment.as_capture()?)))
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(source: &str) -> Result<Self, PatternError> {
        Self::new(source)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.as_str()).finish()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

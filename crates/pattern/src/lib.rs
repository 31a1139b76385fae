//! Patterns for the keys of a topic.
//!
//! A Redis key such as `app:trans:notice:1615283234` consists of *segments* separated by `:`. A [`Pattern`] constrains each
//! segment and names some of them. [`Pattern::matches`] returns the named parts of a key, and [`Pattern::build`] builds a
//! key from them. A [`Router`] finds the most specific of many patterns.
//!
//! ```
//! # mod keylapse { pub use keylapse_pattern as pattern; }
//! use keylapse::pattern::Pattern;
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
//! **Keys** are bytes. They need not be UTF-8, are not normalised, and are case-sensitive. Newlines, NULs and other control
//! characters are ordinary bytes. A segment of a matching key is never empty: `a::b`, `a:` and the empty key match no
//! pattern.
//!
//! **Literals** match a whole segment, by the UTF-8 bytes of their text: `images` does not match `imagesfoo`. `{{` and `}}`
//! mean single braces. `*` and `?` have no meaning inside a literal. A segment that is only `*`, `**`, `?` or a text in
//! angle brackets is refused, because `app:*:id` or `app:<id>` probably means a capture. `{any:\*}` matches the character
//! itself.
//!
//! **Regular expressions** have the syntax of [`regex::bytes`], with Unicode classes unless `(?-u)` turns them off. They
//! match one segment, which never contains a `:` and is never empty. An expression that matches no segment is refused. Their
//! braces must balance, as in `[0-9]{2,3}`; a single brace is escaped, also in a class: `\{[^\}]+\}`. The compiled
//! expression is limited to 1 MiB, which mostly affects repeated Unicode classes: `\w{64}` is too large, `[A-Za-z0-9_]{64}`
//! is tiny.
//!
//! **Control characters** are not allowed in a pattern. A regular expression can match them with an escape such as `\x00`.
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
//! **Patterns are compared segment by segment from the left. A literal is more specific than a regular expression, a regular
//! expression than a plain capture, and a plain capture than a rest. The first difference decides.** The order of
//! registration never matters. Two patterns without such a difference must not match a common key: [`Router::insert`]
//! refuses the second one, and its error names both patterns and a common key.

mod error;
#[doc(hidden)]
pub mod escape;
#[cfg(test)]
mod oracle;
mod overlap;
mod parse;
mod router;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

pub use error::{PatternConflict, PatternError, PatternErrorKind};
pub use router::Router;

use crate::escape::excerpt;
use parse::{SEPARATOR, Segment, split};

/// A pattern for keys. The [module documentation](self) has the grammar.
///
/// Cloning is cheap, as clones share the compiled form. Patterns with equal sources are equal: `{a}` and `{b}` differ,
/// although they match the same keys.
///
/// ```
/// # mod keylapse { pub use keylapse_pattern as pattern; }
/// use keylapse::pattern::Pattern;
///
/// let pattern: Pattern = "orders:{region}:{id:[0-9]{1,10}}".parse()?;
/// assert!(pattern.is_match(b"orders:eu:42"));
/// assert_eq!(pattern.to_string(), "orders:{region}:{id:[0-9]{1,10}}");
/// # Ok::<(), keylapse::pattern::PatternError>(())
/// ```
#[derive(Clone)]
pub struct Pattern(Arc<CompiledPattern>);

struct CompiledPattern {
    source: Box<str>,
    segments: Vec<Segment>,
    prefix: String,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// The source does not follow the [grammar](self#grammar). The error has the source, the offset of the invalid part, and
    /// advice:
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// use keylapse::pattern::Pattern;
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
        let literals = segments.iter().take_while(|segment| segment.is_literal());
        let mut prefix = literals.map(|literal| &*literal.text).collect::<Vec<_>>().join(":");
        if !prefix.is_empty() && !segments.iter().all(Segment::is_literal) {
            prefix.push(':');
        }
        Ok(Self(Arc::new(CompiledPattern { source: source.into(), segments, prefix })))
    }

    /// Returns the source of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0.source
    }

    /// Returns the names of the captures from left to right, which is also the order of the values for
    /// [`build`](Self::build).
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// let pattern = keylapse::pattern::Pattern::new("app:{region}:{id:[0-9]+}")?;
    /// assert!(pattern.capture_names().eq(["region", "id"]));
    /// # Ok::<(), keylapse::pattern::PatternError>(())
    /// ```
    pub fn capture_names(&self) -> impl Iterator<Item = &str> {
        self.segments().iter().filter(|segment| !segment.is_literal()).map(|capture| &*capture.text)
    }

    /// Returns the captured parts of a key, or `None` if the key does not match.
    ///
    /// The captures own a copy of the key, and borrow neither the key nor the pattern. [`is_match`](Self::is_match) copies
    /// nothing.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// let cart = keylapse::pattern::Pattern::new("shop:cart:{user}:{path..}")?;
    /// let captures = cart.matches(b"shop:cart:7:items:\xff").ok_or("no match")?;
    /// assert_eq!(captures.get_str("user"), Some("7"));
    /// assert_eq!(captures.get("path"), Some(&b"items:\xff"[..]));
    /// assert!(cart.matches(b"shop:cart:7").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matches(&self, key: &[u8]) -> Option<Captures> {
        self.is_match(key).then(|| Captures { pattern: self.clone(), key: key.into() })
    }

    /// Returns whether a key matches. Copies nothing, and takes time linear in the length of the key.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// let image = keylapse::pattern::Pattern::new("images:{id}")?;
    /// assert!(image.is_match(b"images:7"));
    /// assert!(!image.is_match(b"imagesfoo:7"));
    /// # Ok::<(), keylapse::pattern::PatternError>(())
    /// ```
    pub fn is_match(&self, key: &[u8]) -> bool {
        let fitting = self.parts(key).take_while(|(segment, part)| segment.fault(part).is_none());
        fitting.count() == self.segments().len()
    }

    /// Builds a key from one value for each capture, in the order of [`capture_names`](Self::capture_names).
    ///
    /// The key always matches the pattern, and [`matches`](Self::matches) returns the same values.
    ///
    /// # Errors
    ///
    /// There are too few or too many values, or a value is invalid: it is empty or has an empty segment, it contains a `:`
    /// for a capture of one segment, or the regular expression does not match it.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// use keylapse::pattern::{Pattern, PatternErrorKind};
    ///
    /// let cart = Pattern::new("shop:{region:[a-z]+}:{path..}")?;
    /// assert_eq!(cart.build(["eu", "cart:7"])?, b"shop:eu:cart:7");
    ///
    /// let kind = |values: &[&str]| cart.build(values).map_err(|error| error.kind());
    /// assert_eq!(kind(&["eu"]), Err(PatternErrorKind::MissingValue));
    /// assert_eq!(kind(&["eu", "cart:"]), Err(PatternErrorKind::EmptyValue));
    /// assert_eq!(kind(&["EU", "cart"]), Err(PatternErrorKind::ValueMismatch));
    /// # Ok::<(), keylapse::pattern::PatternError>(())
    /// ```
    pub fn build<V: AsRef<[u8]>>(
        &self,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Vec<u8>, PatternError> {
        let mut values = values.into_iter();
        let mut key = Vec::new();
        for segment in self.segments() {
            if !key.is_empty() {
                key.push(SEPARATOR);
            }
            if segment.is_literal() {
                key.extend_from_slice(segment.text.as_bytes());
                continue;
            }
            let refuse = |kind, given: &str| {
                let detail = format!("`{{{}}}`{given}", segment.text);
                PatternError::new(self.as_str(), kind, segment.offset, detail)
            };
            let value = values.next().ok_or_else(|| refuse(PatternErrorKind::MissingValue, ""))?;
            if let Some(kind) = segment.fault(value.as_ref()) {
                return Err(refuse(kind, &format!(" given `{}`", excerpt(value.as_ref()))));
            }
            key.extend_from_slice(value.as_ref());
        }
        if values.next().is_some() {
            let (kind, detail) =
                (PatternErrorKind::SurplusValue, format!("{} expected", self.capture_names().count()));
            return Err(PatternError::new(self.as_str(), kind, self.as_str().len(), detail));
        }
        debug_assert!(self.is_match(&key));
        Ok(key)
    }

    /// Returns the prefix of every matching key: the leading literal segments, and the `:` after them if other segments
    /// follow.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// use keylapse::pattern::Pattern;
    ///
    /// let prefix = |source: &str| Pattern::new(source).map(|p| p.literal_prefix().to_owned());
    /// assert_eq!(prefix("app:trans:{id}:x")?, "app:trans:");
    /// assert_eq!(prefix("app:config")?, "app:config");
    /// assert_eq!(prefix("{app}:config")?, "");
    /// # Ok::<(), keylapse::pattern::PatternError>(())
    /// ```
    pub fn literal_prefix(&self) -> &str {
        &self.0.prefix
    }

    /// Returns the default name of a topic with this pattern: the leading literal segments joined by `.`.
    ///
    /// Returns `None` if the pattern begins with a capture, or if the name would contain other characters than
    /// `A-Z a-z 0-9 _ . -`.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// use keylapse::pattern::Pattern;
    ///
    /// let name = |source: &str| Pattern::new(source).map(|p| p.default_name());
    /// assert_eq!(name("app:trans:notice:{id}")?.as_deref(), Some("app.trans.notice"));
    /// assert_eq!(name("{app}:notice")?, None);
    /// assert_eq!(name("café:{id}")?, None);
    /// # Ok::<(), keylapse::pattern::PatternError>(())
    /// ```
    pub fn default_name(&self) -> Option<String> {
        let name = self.literal_prefix().trim_end_matches(':').replace(':', ".");
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        (!name.is_empty() && name.chars().all(allowed)).then_some(name)
    }

    fn segments(&self) -> &[Segment] {
        &self.0.segments
    }

    /// Returns the segments of the pattern, each with the part of the key at its position.
    fn parts<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = (&'a Segment, &'a [u8])> {
        self.segments().iter().zip(split(key, self.segments().len()))
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

/// A key that matches a pattern, with access to the captured parts.
///
/// The value owns the key, and cloning is cheap. It stores only the key and the pattern, as the position of a capture
/// follows from the pattern.
///
/// ```
/// # mod keylapse { pub use keylapse_pattern as pattern; }
/// let pattern = keylapse::pattern::Pattern::new("app:{region}:{id}")?;
/// let captures = pattern.matches(b"app:eu:\xff").ok_or("no match")?;
///
/// assert_eq!(captures.get_str("region"), Some("eu"));
/// assert_eq!(captures.get("id"), Some(&b"\xff"[..]));
/// assert_eq!(captures.get_str("id"), None); // not UTF-8
/// assert!(captures.iter().eq([("region", &b"eu"[..]), ("id", &b"\xff"[..])]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Captures {
    pattern: Pattern,
    /// A key that `pattern` matches.
    key: Arc<[u8]>,
}

impl Captures {
    /// Returns the whole key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the pattern that matches the key.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Returns the part of the key for the capture with this name, or `None` if the pattern has no such capture.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find_map(|(its, value)| (its == name).then_some(value))
    }

    /// Returns the part of the key for the capture with this name. `None` if there is no such capture, or the part is not
    /// UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|bytes| str::from_utf8(bytes).ok())
    }

    /// Returns the part of the key for a capture by its index from the left, starting at 0.
    ///
    /// ```
    /// # mod keylapse { pub use keylapse_pattern as pattern; }
    /// let pattern = keylapse::pattern::Pattern::new("app:{region}:x:{id}")?;
    /// let captures = pattern.matches(b"app:eu:x:7").ok_or("no match")?;
    /// assert_eq!(captures.get_index(1), Some(&b"7"[..]));
    /// assert_eq!(captures.get_index(2), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_index(&self, index: usize) -> Option<&[u8]> {
        self.iter().nth(index).map(|(_, value)| value)
    }

    /// Returns the names of the captures with their parts of the key, from left to right. [`Pattern::build`] returns the
    /// same key for these parts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let parts = self.pattern.parts(&self.key);
        parts.filter(|(segment, _)| !segment.is_literal()).map(|(segment, part)| (&*segment.text, part))
    }
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in self.iter() {
            map.entry(&name, &format_args!("`{}`", excerpt(value)));
        }
        map.finish()
    }
}

//! The URL of a webhook: fixed, or built from captures and fields of the payload.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;
use url::{Host, Url};

use super::targets::HostAllowlist;
use crate::occurrence::{Occurrence, OccurrenceValue};

/// Bytes that are percent-encoded in a path or a query: all but the unreserved ones (RFC 3986, 2.3).
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A URL such as `https://shop.example/hooks/{id}` or `{payload.url}`.
#[derive(Clone, Debug)]
pub(crate) enum Template {
    Fixed(Url),
    Built(Built),
}

/// A URL with names in braces.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    parts: Vec<UrlPart>,
    /// The hosts that the URL may lead to.
    targets: HostAllowlist,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum UrlPart {
    Text(String),
    Capture(String),
    Field(String),
}

impl Template {
    /// Reads a URL. If it has names in braces, it may lead to these hosts only.
    pub(crate) fn read(text: &str, hosts: &[String]) -> Result<Self, String> {
        let parts = parts_of(text)?;
        if let [UrlPart::Text(fixed)] = &parts[..] {
            return check(fixed).map(Self::Fixed);
        }
        if hosts.is_empty() {
            return Err("a URL with {…} in it needs `hosts`, the hosts that it may lead to".to_owned());
        }
        let built = Built { parts, targets: HostAllowlist::read(hosts)? };
        built.check().map(|()| Self::Built(built))
    }

    /// Returns the captures in the URL.
    pub(crate) fn captures(&self) -> impl Iterator<Item = &str> {
        let parts = match self {
            Self::Fixed(_) => &[][..],
            Self::Built(built) => &built.parts,
        };
        parts.iter().filter_map(|part| match part {
            UrlPart::Capture(name) => Some(name.as_str()),
            _ => None,
        })
    }

    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Returns all hosts that the URL may lead to.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        match self {
            Self::Fixed(url) => url.host().map(|host| host.to_owned()).into_iter().collect(),
            Self::Built(built) => built.targets.hosts().collect(),
        }
    }

    /// Returns the URL for an occurrence.
    pub(crate) fn url(&self, of: &Occurrence) -> Result<Url, String> {
        match self {
            Self::Fixed(url) => Ok(url.clone()),
            Self::Built(built) => built.url(of),
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(url) => url.fmt(f),
            Self::Built(built) => built.parts.iter().try_for_each(|part| match part {
                UrlPart::Text(fixed) => f.write_str(fixed),
                UrlPart::Capture(name) => write!(f, "{{{name}}}"),
                UrlPart::Field(name) => write!(f, "{{payload.{name}}}"),
            }),
        }
    }
}

impl Built {
    /// Refuses a URL that can lead to none of its hosts, whatever the values are.
    fn check(&self) -> Result<(), String> {
        if let Some(UrlPart::Capture(_)) = self.parts.first() {
            return Err(
                "a URL begins with https:// or with a field of the payload, as in {payload.url}".to_owned()
            );
        }
        let with = |other| {
            let sample = |at: usize| if at == 0 { "https://shop.example/" } else { other };
            check(&self.filled(|at, _| Ok(sample(at).into()))?)
        };
        let (one, another) = (with("1")?, with("2")?);
        let leads_to = |url: &Url| (url.host().map(|host| host.to_owned()), url.port());
        let is_chosen =
            matches!(self.parts.first(), Some(UrlPart::Field(_))) || leads_to(&one) != leads_to(&another);
        match is_chosen {
            false => self.targets.check(&one),
            true if self.fits_a_host() => Ok(()),
            true => Err("the URL can lead to no host of `hosts`, whatever the values in it are".to_owned()),
        }
    }

    /// Returns whether one of the hosts matches the text before the first name in braces and the text after the last.
    fn fits_a_host(&self) -> bool {
        let text = self.filled(|_, _| Ok("\0".into())).unwrap_or_default().to_ascii_lowercase();
        let Some((scheme, rest)) = text.split_once("://") else { return true };
        let host = rest.split(['/', '\\', '?', '#', ':']).next().unwrap_or_default();
        // These hosts can be written in another way than they are listed, so they are checked at each call.
        scheme.contains('\0')
            || !host.is_ascii()
            || host.starts_with('[')
            || match (host.split_once('\0'), host.rsplit_once('\0')) {
                (Some((before, _)), Some((_, behind))) => self
                    .targets
                    .any(|host| host.strip_prefix(before).is_some_and(|rest| rest.ends_with(behind))),
                _ => self.targets.any(|listed| listed == host),
            }
    }

    fn url(&self, of: &Occurrence) -> Result<Url, String> {
        let payload = of.object();
        let value = |part| value(part, of, &payload);
        // A field at the beginning holds scheme and host, which are checked below.
        let url =
            self.filled(|at, part| Ok(if at == 0 { value(part)?.into() } else { escaped(value(part)?) }))?;
        let plain =
            self.filled(|at, part| if at == 0 { value(part).map(Cow::from) } else { Ok("1".into()) })?;
        let (url, plain) = (check(&url)?, check(&plain)?);
        // No value may lead to another path than the one in the file: `..` could, however it is encoded.
        if shape(&url) != shape(&plain) || climbs(url.path()) {
            return Err(
                "a value in the URL has a part `.` or `..`, which could lead to another path".to_owned()
            );
        }
        self.targets.check(&url).map(|()| url)
    }

    /// Joins the parts, with the results of `fill` for the names in braces.
    fn filled<'a>(
        &'a self,
        fill: impl Fn(usize, &'a UrlPart) -> Result<Cow<'a, str>, String>,
    ) -> Result<String, String> {
        let text = |(at, part): (usize, &'a UrlPart)| match part {
            UrlPart::Text(fixed) => Ok(fixed.into()),
            named => fill(at, named),
        };
        self.parts.iter().enumerate().map(text).collect()
    }
}

fn value<'a>(
    part: &'a UrlPart,
    of: &'a Occurrence,
    payload: &'a BTreeMap<String, String>,
) -> Result<&'a str, String> {
    let (found, name) = match part {
        UrlPart::Text(fixed) => return Ok(fixed),
        UrlPart::Capture(name) => (of.captures.get(name), Cow::from(name)),
        UrlPart::Field(name) => (payload.get(name), format!("payload.{name}").into()),
    };
    found.map(String::as_str).ok_or_else(|| format!("the timer has no {name}, which the URL needs"))
}

fn escaped(value: &str) -> Cow<'static, str> {
    utf8_percent_encode(value, &ENCODED).to_string().into()
}

/// Returns the parts of a URL that a value must not change.
fn shape(url: &Url) -> (&str, Option<usize>, bool, bool) {
    let segments = url.path_segments().map(Iterator::count);
    (url.scheme(), segments, url.query().is_some(), url.fragment().is_some())
}

/// Returns whether a receiver that decodes the path, once or repeatedly, finds a part `.` or `..` in it.
fn climbs(path: &str) -> bool {
    let dots = |part: &[u8]| {
        // Some receivers ignore the text after a `;`.
        let name = part.split(|byte| *byte == b';').next();
        matches!(name, Some(b"." | b".."))
    };
    decoded(path).split(|byte| matches!(byte, b'/' | b'\\')).any(dots)
}

/// Percent-decodes a text until nothing is left to decode.
fn decoded(text: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        plain.push(byte);
        while let Some(encoded) = last_encoded(&plain) {
            plain.truncate(plain.len() - 3);
            plain.push(encoded);
        }
    }
    plain
}

fn last_encoded(bytes: &[u8]) -> Option<u8> {
    let [.., b'%', high, low] = bytes else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn check(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("invalid URL: {error}"))?;
    let names_host = text.split_once("://").is_some_and(|(_, rest)| !rest.starts_with(['/', '\\', '?', '#']));
    match url.scheme() {
        // The parser would read a host from the path, which the author of the URL did not mean.
        "http" | "https" if !names_host => Err("the URL has no host".to_owned()),
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            Err("a URL with a name or password in it is refused: use `headers`".to_owned())
        }
        "http" | "https" => Ok(url),
        other => Err(format!("the URL begins with {other}:, but only http: and https: are supported")),
    }
}

fn parts_of(text: &str) -> Result<Vec<UrlPart>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err("a { in the URL is not closed".to_owned());
        };
        if !before.is_empty() {
            parts.push(UrlPart::Text(before.to_owned()));
        }
        parts.push(match name.strip_prefix("payload.") {
            _ if name.is_empty() => return Err("{} in the URL names nothing".to_owned()),
            Some(field) => UrlPart::Field(field.to_owned()),
            None => UrlPart::Capture(name.to_owned()),
        });
        rest = behind;
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(UrlPart::Text(rest.to_owned()));
    }
    Ok(parts)
}

impl Occurrence {
    /// Returns the strings and numbers of a payload that is a JSON object, or the fields of a hash.
    fn object(&self) -> BTreeMap<String, String> {
        match &self.value {
            OccurrenceValue::Bytes(bytes) => fields(bytes),
            OccurrenceValue::Fields(fields) => {
                fields.texts().map(|(name, value)| (name.into(), value.into())).collect()
            }
            OccurrenceValue::Dump(_) | OccurrenceValue::Unknown => BTreeMap::new(),
        }
    }
}

/// Returns strings, and numbers as they were written. If a name occurs twice, the last value counts, as in most parsers.
fn fields(json: &[u8]) -> BTreeMap<String, String> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(json).unwrap_or_default();
    let plain = |raw: &RawValue| match raw.get().as_bytes() {
        [b'"', ..] => serde_json::from_str(raw.get()).ok(),
        [b'-' | b'0'..=b'9', ..] => Some(raw.get().to_owned()),
        _ => None,
    };
    fields.into_iter().filter_map(|(name, raw)| Some((name, plain(raw)?))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts() -> Vec<String> {
        ["shop.example", "127.0.0.1:8080"].map(str::to_owned).into()
    }

    fn template(text: &str) -> Template {
        Template::read(text, &hosts()).expect(text)
    }

    fn of(value: &str) -> Occurrence {
        let payload = serde_json::json!({ "a": value }).to_string();
        let captures = [("a".to_owned(), value.to_owned())].into();
        Occurrence { value: OccurrenceValue::Bytes(payload.into()), captures, ..Occurrence::for_tests() }
    }

    #[test]
    fn values_are_told_as_they_are() {
        for (text, value, leads_to) in [
            ("https://shop.example/hooks/{a}", "42", "https://shop.example/hooks/42"),
            (
                "https://shop.example/hooks/{a}/call?of={payload.a}",
                "a b&c=d",
                "https://shop.example/hooks/a%20b%26c%3Dd/call?of=a%20b%26c%3Dd",
            ),
            ("https://shop.example/{a}", "x/y?y#z", "https://shop.example/x%2Fy%3Fy%23z"),
            ("https://shop.example/{a}", "@:\\%2f", "https://shop.example/%40%3A%5C%252f"),
            ("https://shop.example/{a}", "...", "https://shop.example/..."),
            (
                "https://shop.example/{a}",
                ".well-known/x..y/1.",
                "https://shop.example/.well-known%2Fx..y%2F1.",
            ),
            ("https://shop.example/x?of={a}", "../y", "https://shop.example/x?of=..%2Fy"),
            ("https://{a}/", "SHOP.example", "https://shop.example/"),
            ("{payload.a}", "http://127.0.0.1:8080/x?y", "http://127.0.0.1:8080/x?y"),
            (
                "{payload.a}?for=https://other.example",
                "http://shop.example",
                "http://shop.example/?for=https://other.example",
            ),
            ("{payload.a}/{a}", "http://shop.example", "http://shop.example/http%3A%2F%2Fshop.example"),
        ] {
            assert_eq!(
                template(text).url(&of(value)).map(String::from).as_deref(),
                Ok(leads_to),
                "{text} {value}"
            );
        }
    }

    #[test]
    fn numbers_stand_in_the_url_as_they_were_written() {
        let template = template("https://shop.example/x?of={payload.a}");
        for (payload, stands) in [
            (r#"{"a":1.10}"#, "1.10"),
            (r#"{"a":1234567890123456789012345}"#, "1234567890123456789012345"),
            (r#"{"a":100000000000000000.01}"#, "100000000000000000.01"),
            (r#"{"a":1e400}"#, "1e400"),
            (r#"{"a":-0}"#, "-0"),
            // The last of two values counts, as in most parsers.
            (r#"{"a":1,"a":2.0}"#, "2.0"),
            (r#" { "b": {"a": 3}, "a" : "1.10" } "#, "1.10"),
            (r#"{"b":"\ud800","a":1}"#, "1"),
        ] {
            let of = Occurrence { value: OccurrenceValue::Bytes(payload.into()), ..Occurrence::for_tests() };
            let url = template.url(&of).map(String::from);
            assert_eq!(url, Ok(format!("https://shop.example/x?of={stands}")), "{payload}");
        }
    }

    #[test]
    fn values_that_lead_elsewhere_are_refused() {
        for (text, value, said) in [
            ("https://shop.example/hooks/{a}/call", "..", "another path"),
            ("https://shop.example/hooks/.{a}", ".", "another path"),
            ("https://shop.example/hooks/{a}", "../admin", "another path"),
            ("https://shop.example/hooks/{a}", "./admin", "another path"),
            ("https://shop.example/hooks/{a}", "x/..", "another path"),
            ("https://shop.example/hooks/{a}/y", "x/../../z", "another path"),
            ("https://shop.example/hooks/{a}", "..\\admin", "another path"),
            ("https://shop.example/hooks/{a}", "%2e%2e%2fadmin", "another path"),
            ("https://shop.example/hooks/{a}", "%2E./admin", "another path"),
            ("https://shop.example/hooks/{a}", "%252e%25252e%252525252fadmin", "another path"),
            ("https://shop.example/hooks/{a}", "%%32%65./admin", "another path"),
            ("https://shop.example/hooks/{a}", "..;/admin", "another path"),
            ("https://shop.example/hooks/..{a}", "/admin", "another path"),
            ("https://shop.example/hooks/{a}.{a}", "/./", "another path"),
            ("{payload.a}", "http://shop.example/..%2fadmin", "another path"),
            ("https://{a}/", "evil.example", "not among `hosts`"),
            ("https://{a}shop.example/", "x@", "invalid URL"),
            ("https://shop.example{a}/", ".evil.example", "not among `hosts`"),
            ("https://shop.example{a}/", ":22", "invalid URL"),
            ("https://shop.example:{a}/", "22", "not among `hosts`"),
            ("{payload.a}", "http://shop.example:22/", "not among `hosts`"),
            ("{payload.a}", "http://shop.example@evil.example/", "name or password"),
            ("{payload.a}", "http:///shop.example/", "no host"),
            ("{payload.a}", "http://127.0.0.1:8080:80/", "invalid URL"),
            ("{payload.b}", "http://shop.example/", "no payload.b"),
        ] {
            let said_of = template(text).url(&of(value)).expect_err(value);
            assert!(said_of.contains(said), "{text} {value}: {said_of}");
        }
    }

    #[test]
    fn what_can_never_lead_anywhere_is_refused_at_once() {
        for (text, said) in [
            ("{a}", "begins with"),
            ("ftp://shop.example/{a}", "only http: and https:"),
            ("https://evil.example/{a}", "not among `hosts`"),
            ("https://shop.example/{}", "names nothing"),
            ("https://shop.example/{a", "not closed"),
            ("https://shop.example:{a", "not closed"),
            ("https://[{a}]/", "invalid URL"),
            ("https://api.{a}.example/", "no host of `hosts`"),
            ("https://{a}.evil.example/x/{a}", "no host of `hosts`"),
            ("https://evil.example{a}/", "no host of `hosts`"),
            ("https://evil.example:{a}/", "no host of `hosts`"),
            ("https://shop.{a}.{a}.shop.example/", "no host of `hosts`"),
        ] {
            let error = Template::read(text, &hosts()).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        /// The value is a capture, or comes from the payload.
        #[test]
        fn no_value_leads_to_a_host_that_is_not_listed(
            place in 0..6usize,
            value in r#"([a-z0-9]{0,3}[./:@?#%\\{}\[\] \t\r\n-]{0,2}){0,4}|https?:[/\\]{0,3}[a-z.@:0-9#?\\\t]{0,20}|\PC{0,20}"#,
        ) {
            let text = [
                "https://shop.example/{a}/x", "https://shop.example/x?y={payload.a}", "https://{a}/x", "https://{a}.example/x",
                "{payload.a}", "{payload.a}/{a}",
            ][place];
            let Ok(url) = template(text).url(&of(&value)) else { return Ok(()) };
            let host = (url.host_str().unwrap_or_default(), url.port());
            prop_assert!([("shop.example", None), ("127.0.0.1", Some(8080))].contains(&host), "{url}");
            prop_assert!(url.username().is_empty() && url.password().is_none(), "{url}");
            if place < 2 {
                let path: Vec<_> = url.path_segments().into_iter().flatten().collect();
                prop_assert_eq!((path.len(), path.last()), if place == 0 { (2, Some(&"x")) } else { (1, Some(&"x")) });
                prop_assert_eq!((url.query().is_some(), url.fragment()), (place == 1, None));
            }
        }
    }
}

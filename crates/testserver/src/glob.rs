//! Glob patterns: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal character.

/// Returns whether the pattern matches the whole text.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (pattern, text);
    // The pattern after the last star, and the text that the star has not matched yet.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = at {
            if rest.is_empty() {
                return true;
            }
            star = Some((rest, from));
            at = rest;
            continue;
        }
        if at.is_empty() && from.is_empty() {
            return true;
        }
        if let Some((rest, tail)) = one(at, from) {
            (at, from) = (rest, tail);
            continue;
        }
        let Some((rest, [_, tail @ ..])) = star else { return false };
        star = Some((rest, tail));
        (at, from) = (rest, tail);
    }
}

/// Matches one byte of the text, and returns the rest of pattern and text.
fn one<'a>(pattern: &'a [u8], text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (&byte, tail) = text.split_first()?;
    let (matched, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', literal, rest @ ..] => (*literal == byte, rest),
        [literal, rest @ ..] => (*literal == byte, rest),
    };
    matched.then_some((rest, tail))
}

/// Matches a byte against a class, and returns the pattern after it. A class without `]` extends to the end.
fn class(mut at: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = at.first() == Some(&b'^');
    if negated {
        at = &at[1..];
    }
    let mut found = false;
    loop {
        at = match at {
            [] => break,
            [b']', rest @ ..] => {
                at = rest;
                break;
            }
            [b'\\', literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
            [low, b'-', high, rest @ ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
        };
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_what_the_server_says() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[", "a", false),
            ("[a", "a", true),
            ("abc", "ab", false),
            ("ab", "abc", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}

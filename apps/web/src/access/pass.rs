//! Grants: tokens with their names, rights and topics.

use std::collections::HashSet;

use crate::access::{AccessError, Role, Token};

/// Maximum characters of a name, as for topics.
const LONGEST: usize = 128;
/// Maximum tokens, because each request is compared with all of them.
const MAX_TOKENS: usize = 256;
/// The format of a token file.
const ADVICE: &str =
    "a token file has one token, or lines of NAME, `act` or `read`, TOKEN, and TOPICs if it is not for all";

/// A token with its name, right and topics.
#[derive(Debug)]
pub(crate) struct TokenGrant {
    /// The name in the log.
    pub(crate) name: Box<str>,
    pub(super) token: Token,
    pub(crate) role: Role,
    /// Names of topics, or prefixes that end with `*`. If empty, the token is for all topics.
    topics: Vec<Box<str>>,
}

impl TokenGrant {
    pub(super) fn new(name: &str, token: Token, role: Role) -> Self {
        Self { name: name.into(), token, role, topics: Vec::new() }
    }

    /// Reads a text: a single token, which gets this name and role, or one line for each token.
    pub(super) fn read_all(text: &str, name: &str, role: Role) -> Result<Vec<Self>, AccessError> {
        if !text.trim().contains(char::is_whitespace) {
            return Ok(vec![Self::new(name, Token::new(text)?, role)]);
        }
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let passes = lines.map(|(at, line)| {
            let pass = Self::read(line, role);
            pass.map_err(|AccessError(why)| AccessError(format!("line {}: {why}", at + 1)))
        });
        let passes = passes.collect::<Result<Vec<_>, _>>()?;
        if passes.is_empty() {
            return Err(AccessError(format!("no token found: {ADVICE}")));
        }
        Ok(passes)
    }

    fn read(line: &str, most: Role) -> Result<Self, AccessError> {
        // An error quotes nothing of the line, because any word may be a token.
        let bad = |why: &str| AccessError(format!("{why}: {ADVICE}"));
        let mut words = line.split_whitespace();
        let (Some(name), Some(right), Some(token)) = (words.next(), words.next(), words.next()) else {
            return Err(bad("a line needs a name, a right and a token"));
        };
        if !is_plain(name) {
            return Err(bad(
                "the name is too long, or has characters other than letters, digits, `-`, `_` and `.`",
            ));
        }
        let role = match right {
            "read" => Role::Read,
            "act" if most == Role::Act => Role::Act,
            "act" => {
                return Err(AccessError(
                    "the right `act` is not allowed here: this file is for tokens with the right `read`"
                        .to_owned(),
                ));
            }
            _ => return Err(bad("the second word is neither `act` nor `read`")),
        };
        let token = Token::new(token)?;
        let topics = words.map(Box::from).collect::<Vec<Box<str>>>();
        let is_topic = |topic: &str| topic == "*" || is_plain(topic.strip_suffix('*').unwrap_or(topic));
        if !topics.iter().all(|topic| is_topic(topic)) {
            return Err(bad("a topic is a name, or a prefix and `*`"));
        }
        Ok(Self { topics, ..Self::new(name, token, role) })
    }

    /// Checks the number of tokens, and that no name or token occurs twice.
    pub(super) fn check<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Result<(), AccessError> {
        if all.clone().count() > MAX_TOKENS {
            return Err(AccessError(format!("more than {MAX_TOKENS} tokens: remove some")));
        }
        let (mut names, mut tokens) = (HashSet::new(), HashSet::new());
        for Self { name, token, .. } in all {
            if !names.insert(name) {
                return Err(AccessError(format!("two tokens have the name {name}: rename one")));
            }
            if !tokens.insert(token.bytes()) {
                return Err(AccessError(format!("the token of {name} occurs twice: make a new one")));
            }
        }
        Ok(())
    }

    /// Returns whether the token is for the topic with this name.
    pub(crate) fn is_for(&self, topic: &str) -> bool {
        let is = |one: &str| match one.strip_suffix('*') {
            Some(beginning) => topic.starts_with(beginning),
            None => topic == one,
        };
        self.is_for_all() || self.topics.iter().any(|one| is(one))
    }

    /// Returns whether the token is for all topics.
    pub(crate) fn is_for_all(&self) -> bool {
        self.topics.is_empty()
    }
}

/// Returns whether this can be the name of a token or a topic.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn a_file_has_one_token_or_a_line_for_each() {
        for text in [ONE, &format!("  {ONE}\n\n")] {
            let [pass] = &TokenGrant::read_all(text, "token", Role::Act).unwrap()[..] else {
                panic!("{text}")
            };
            assert_eq!((&*pass.name, pass.role, pass.is_for_all()), ("token", Role::Act, true));
        }
        let text = format!("# who  may  with\nshop act {ONE} order.* cart\n\n  board\tread  {OTHER}\r\n");
        let [shop, board] = &TokenGrant::read_all(&text, "token", Role::Act).unwrap()[..] else {
            panic!("{text}")
        };
        assert_eq!(
            (&*shop.name, shop.role, &*board.name, board.role),
            ("shop", Role::Act, "board", Role::Read)
        );
        for (topic, is_for) in
            [("order.unpaid", true), ("order.", true), ("cart", true), ("carts", false), ("order", false)]
        {
            assert_eq!((shop.is_for(topic), board.is_for(topic)), (is_for, true), "{topic}");
        }
    }

    #[test]
    fn what_a_file_cannot_mean_is_refused_without_a_token_in_the_words() {
        for (text, words) in [
            (format!("shop act {ONE}\nshop"), "line 2"),
            (format!("{ONE}\n{OTHER}"), "line 1"),
            (format!("{ONE} act shop"), "line 1: the token has 4 bytes"),
            (format!("shop admin {ONE}"), "`read`"),
            ("shop act short".to_owned(), "32"),
            (format!("shop act {ONE} or*der"), "a topic is"),
            (format!("sh/op act {ONE}"), "letters"),
            ("# nothing\n# at all".to_owned(), "no token"),
        ] {
            let error = TokenGrant::read_all(&text, "token", Role::Act).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains(ONE), "{error}");
        }
        let acts = format!("shop act {ONE}");
        assert!(
            TokenGrant::read_all(&acts, "read-token", Role::Read).unwrap_err().to_string().contains("`read`")
        );
    }
}

//! Those who may come in: by which token, what they may do, and to which topics.

use std::collections::HashSet;

use crate::access::{AccessError, Role, Token};

/// Characters of a name, as of a topic's.
const LONGEST: usize = 128;
/// Tokens in a file: each request is compared with all of them.
const MOST: usize = 256;
/// How a file is written.
const ADVICE: &str =
    "a file has one token, or lines of NAME, `act` or `look`, TOKEN, and the TOPICs it is for if not all";

/// Somebody who may come in, by a token.
#[derive(Debug)]
pub(crate) struct Pass {
    /// As the log names it.
    pub(crate) name: Box<str>,
    pub(super) token: Token,
    pub(crate) role: Role,
    /// Names of topics, or beginnings of them with `*` behind; none: all topics.
    topics: Vec<Box<str>>,
}

impl Pass {
    pub(super) fn new(name: &str, token: Token, role: Role) -> Self {
        Self { name: name.into(), token, role, topics: Vec::new() }
    }

    /// Those of a text: a token by itself, which has this name and role, or a line for each.
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
            return Err(AccessError(format!("there is no token: {ADVICE}")));
        }
        Ok(passes)
    }

    fn read(line: &str, most: Role) -> Result<Self, AccessError> {
        // Nothing of a line that cannot be read is shown: any word may be a token.
        let bad = |why: &str| AccessError(format!("{why}: {ADVICE}"));
        let mut words = line.split_whitespace();
        let (Some(name), Some(right), Some(token)) = (words.next(), words.next(), words.next()) else {
            return Err(bad("a name, a right and a token are needed"));
        };
        if !is_plain(name) {
            return Err(bad("the name has others than letters, digits, `-`, `_` and `.`, or is too long"));
        }
        let role = match right {
            "look" => Role::Read,
            "act" if most == Role::Act => Role::Act,
            "act" => return Err(AccessError("it may act, and this file is for those who look".to_owned())),
            _ => return Err(bad("the second word is neither `act` nor `look`")),
        };
        let token = Token::new(token)?;
        let topics = words.map(Box::from).collect::<Vec<Box<str>>>();
        let is_topic = |topic: &str| topic == "*" || is_plain(topic.strip_suffix('*').unwrap_or(topic));
        if !topics.iter().all(|topic| is_topic(topic)) {
            return Err(bad("a topic is a name, or the beginning of one and `*`"));
        }
        Ok(Self { topics, ..Self::new(name, token, role) })
    }

    /// Checks all that are there together.
    pub(super) fn check<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Result<(), AccessError> {
        if all.clone().count() > MOST {
            return Err(AccessError(format!("there are more than {MOST} tokens")));
        }
        let (mut names, mut tokens) = (HashSet::new(), HashSet::new());
        for Self { name, token, .. } in all {
            if !names.insert(name) {
                return Err(AccessError(format!("two tokens are named {name}")));
            }
            if !tokens.insert(token.bytes()) {
                return Err(AccessError(format!("the token of {name} is another's, too")));
            }
        }
        Ok(())
    }

    /// Returns whether it is for the topic of this name.
    pub(crate) fn is_for(&self, topic: &str) -> bool {
        let is = |one: &str| match one.strip_suffix('*') {
            Some(beginning) => topic.starts_with(beginning),
            None => topic == one,
        };
        self.is_for_all() || self.topics.iter().any(|one| is(one))
    }

    /// Returns whether it is for all that there is.
    pub(crate) fn is_for_all(&self) -> bool {
        self.topics.is_empty()
    }
}

/// Returns whether this can be a name, of a token or a topic.
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
            let [pass] = &Pass::read_all(text, "token", Role::Act).unwrap()[..] else { panic!("{text}") };
            assert_eq!((&*pass.name, pass.role, pass.is_for_all()), ("token", Role::Act, true));
        }
        let text = format!("# who  may  with\nshop act {ONE} order.* cart\n\n  board\tlook  {OTHER}\r\n");
        let [shop, board] = &Pass::read_all(&text, "token", Role::Act).unwrap()[..] else { panic!("{text}") };
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
            (format!("{ONE} act shop"), "line 1: it has 4 bytes"),
            (format!("shop admin {ONE}"), "`look`"),
            ("shop act short".to_owned(), "32"),
            (format!("shop act {ONE} or*der"), "a topic is"),
            (format!("sh/op act {ONE}"), "letters"),
            ("# nothing\n# at all".to_owned(), "no token"),
        ] {
            let error = Pass::read_all(&text, "token", Role::Act).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains(ONE), "{error}");
        }
        let acts = format!("shop act {ONE}");
        assert!(Pass::read_all(&acts, "read-token", Role::Read).unwrap_err().to_string().contains("look"));
    }
}

//! Finds the request of each reply.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{faults::Fault, frame::Frame};

/// The unanswered requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    pending: VecDeque<Pending>,
    is_resp3: bool,
    has_subscribed: bool,
}

#[derive(Debug)]
struct Pending {
    expects: Expects,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expects {
    Reply,
    /// A reply that switches the protocol, unless it is an error.
    Switch {
        to_resp3: bool,
    },
    /// The confirmations of a command such as SUBSCRIBE or UNSUBSCRIBE: one for each channel, or one error for all. `of` is
    /// `None` for a command without channels, which applies to an unknown number of channels.
    Confirmations {
        seen: usize,
        of: Option<usize>,
    },
}

impl Dialogue {
    /// Adds a request that goes to the server, and the fault for its reply.
    pub(super) fn sent(&mut self, words: &[Bytes], fault: Option<Fault>) {
        let expects = Expects::answers_to(words);
        self.has_subscribed |= matches!(expects, Expects::Confirmations { .. });
        self.pending.push_back(Pending { expects, fault });
    }

    /// Returns the fault for this frame, if it answers a request with a fault.
    pub(super) fn received(&mut self, frame: &Frame) -> Option<Fault> {
        match self.kind(frame) {
            Kind::Message => None,
            Kind::Confirmation => self.confirmed(),
            Kind::Reply => self.replied(frame.is_error()),
        }
    }

    /// RESP2 has no pushes. After a subscription the first word of an array decides. This is safe, because a subscribed
    /// client can send hardly any other commands.
    fn kind(&self, frame: &Frame) -> Kind {
        let may_be_push = frame.is_push() || (self.has_subscribed && !self.is_resp3);
        match frame.first_word() {
            Some(word) if may_be_push && is_subscription(word) => Kind::Confirmation,
            Some(b"message" | b"pmessage" | b"smessage") if may_be_push => Kind::Message,
            _ if frame.is_push() => Kind::Message,
            _ => Kind::Reply,
        }
    }

    fn confirmed(&mut self) -> Option<Fault> {
        let front = self.pending.front_mut()?;
        // Otherwise the server has ended the subscription itself, for example because a slot has moved.
        let Expects::Confirmations { seen, of } = &mut front.expects else { return None };
        *seen += 1;
        let fault = front.fault.take();
        if *of == Some(*seen) {
            self.pending.pop_front();
        }
        fault
    }

    fn replied(&mut self, is_error: bool) -> Option<Fault> {
        while let Some(pending) = self.pending.pop_front() {
            match pending.expects {
                // The confirmations of this command are complete, so the reply answers the next request.
                Expects::Confirmations { seen, .. } if seen > 0 || !is_error => {}
                Expects::Switch { to_resp3 } if !is_error => {
                    self.is_resp3 = to_resp3;
                    return pending.fault;
                }
                _ => return pending.fault,
            }
        }
        None
    }
}

enum Kind {
    Reply,
    Confirmation,
    Message,
}

impl Expects {
    fn answers_to(words: &[Bytes]) -> Self {
        let Some((name, arguments)) = words.split_first() else { return Self::Reply };
        if is_subscription(name) {
            return Self::Confirmations { seen: 0, of: Some(arguments.len()).filter(|count| *count > 0) };
        }
        match arguments.first() {
            Some(version) if name.eq_ignore_ascii_case(b"HELLO") => Self::Switch { to_resp3: version == "3" },
            None if name.eq_ignore_ascii_case(b"RESET") => Self::Switch { to_resp3: false },
            _ => Self::Reply,
        }
    }
}

fn is_subscription(word: &[u8]) -> bool {
    const STEMS: [&[u8]; 2] = [b"SUBSCRIBE", b"UNSUBSCRIBE"];
    let without_kind = match word.split_first() {
        Some((b'P' | b'p' | b'S' | b's', rest)) if !word.eq_ignore_ascii_case(STEMS[0]) => rest,
        _ => word,
    };
    STEMS.iter().any(|stem| without_kind.eq_ignore_ascii_case(stem))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::proxy::faults::Then;

    fn frame(bytes: &[u8]) -> Frame {
        Frame::take(&mut BytesMut::from(bytes)).expect("well-formed").expect("complete")
    }

    /// Adds a request. A fault marks the request whose reply the test searches.
    fn send(dialogue: &mut Dialogue, request: &str, marked: bool) {
        let words: Vec<Bytes> =
            request.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        dialogue.sent(&words, marked.then_some(Fault::Lost(Then::Close)));
    }

    fn is_marked(dialogue: &mut Dialogue, reply: &str) -> bool {
        dialogue.received(&frame(reply.as_bytes())).is_some()
    }

    /// Asserts that `marked` is the reply to the last of the requests, and that `others` are not.
    fn assert_answers(requests: &[&str], others: &[&str], marked: &str) -> Dialogue {
        let mut dialogue = Dialogue::default();
        for (place, request) in requests.iter().enumerate() {
            send(&mut dialogue, request, place + 1 == requests.len());
        }
        for other in others {
            assert!(!is_marked(&mut dialogue, other), "{other:?}");
        }
        assert!(is_marked(&mut dialogue, marked), "{marked:?}");
        dialogue
    }

    fn push(words: &[&str]) -> String {
        list('>', words)
    }

    fn list(tag: char, words: &[&str]) -> String {
        let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let count = words.matches('$').count();
        format!("{tag}{count}\r\n{words}")
    }

    #[test]
    fn replies_answer_requests_in_order() {
        let others = ["-ERR wrong\r\n", &push(&["message", "c", "m"])];
        let mut dialogue = assert_answers(&["GET a", "INCR n"], &others, ":1\r\n");
        assert!(!is_marked(&mut dialogue, ":2\r\n"), "nothing was asked");
    }

    #[test]
    fn resp3_confirmations_are_no_replies() {
        let confirmed = [["subscribe", "a", "1"], ["subscribe", "b", "2"]].map(|words| push(&words));
        let others = ["%1\r\n+proto\r\n:3\r\n", &confirmed[0], &confirmed[1]];
        assert_answers(&["HELLO 3", "SUBSCRIBE a b", "INCR n"], &others, ":1\r\n");
    }

    #[test]
    fn a_list_of_odd_words_is_still_a_reply_in_resp3() {
        let others = ["%1\r\n+proto\r\n:3\r\n", &push(&["subscribe", "a", "1"])];
        let requests = ["HELLO 3", "SUBSCRIBE a", "LRANGE l 0 -1"];
        assert_answers(&requests, &others, &list('*', &["message", "a", "b"]));
    }

    #[test]
    fn resp2_messages_are_no_replies() {
        let others = [["subscribe", "a", "1"], ["message", "a", "m"]].map(|words| list('*', &words));
        assert_answers(&["SUBSCRIBE a", "PING"], &[&others[0], &others[1]], &list('*', &["pong", ""]));
    }

    #[test]
    fn a_refused_subscription_has_one_error_for_its_reply() {
        assert_answers(&["SSUBSCRIBE a b", "INCR n"], &["-NOPERM\r\n"], ":1\r\n");
    }

    #[test]
    fn unsubscribing_from_all_is_confirmed_an_unknown_number_of_times() {
        let confirmed = [["unsubscribe", "a", "1"], ["unsubscribe", "b", "0"]].map(|words| push(&words));
        let others = ["%0\r\n", &confirmed[0], &confirmed[1]];
        assert_answers(&["HELLO 3", "UNSUBSCRIBE", "INCR n"], &others, "-ERR wrong type\r\n");
    }

    #[test]
    fn a_confirmation_can_be_lost_like_a_reply() {
        assert_answers(&["SUBSCRIBE a"], &[], &list('*', &["subscribe", "a", "1"]));
    }
}

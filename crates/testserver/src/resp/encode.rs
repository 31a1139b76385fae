//! The encoding of replies.

use bytes::{BufMut, BytesMut};

use crate::number;
use crate::reply::RedisReply;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

pub(crate) fn encode(reply: &RedisReply, protocol: Protocol, out: &mut BytesMut) {
    let is_resp3 = protocol == Protocol::Resp3;
    match reply {
        RedisReply::Nil => out.put_slice(if is_resp3 { b"_\r\n" } else { b"$-1\r\n" }),
        RedisReply::Int(number) => line(out, b':', number.to_string().as_bytes()),
        RedisReply::Status(word) => line(out, b'+', one_line(word).as_bytes()),
        RedisReply::Error(text) => line(out, b'-', one_line(text.trim_end_matches(['\r', '\n'])).as_bytes()),
        RedisReply::Verbatim(bytes) if is_resp3 => {
            line(out, b'=', (bytes.len() + 4).to_string().as_bytes());
            out.put_slice(b"txt:");
            out.put_slice(bytes);
            out.put_slice(b"\r\n");
        }
        RedisReply::Bulk(bytes) | RedisReply::Verbatim(bytes) => bulk(out, bytes),
        RedisReply::Array(items) => sequence(out, b'*', items, protocol),
        RedisReply::Set(items) => sequence(out, if is_resp3 { b'~' } else { b'*' }, items, protocol),
        RedisReply::Push(items) => sequence(out, if is_resp3 { b'>' } else { b'*' }, items, protocol),
        RedisReply::Map(pairs) => {
            let count = if is_resp3 { pairs.len() } else { 2 * pairs.len() };
            line(out, if is_resp3 { b'%' } else { b'*' }, count.to_string().as_bytes());
            for (key, value) in pairs {
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        RedisReply::Double(number) if is_resp3 => line(out, b',', number::print(*number).as_bytes()),
        RedisReply::Double(number) => bulk(out, number::print(*number).as_bytes()),
        RedisReply::Boolean(flag) if is_resp3 => out.put_slice(if *flag { b"#t\r\n" } else { b"#f\r\n" }),
        RedisReply::Boolean(flag) => line(out, b':', if *flag { b"1" } else { b"0" }),
    }
}

fn sequence(out: &mut BytesMut, kind: u8, items: &[RedisReply], protocol: Protocol) {
    line(out, kind, items.len().to_string().as_bytes());
    for item in items {
        encode(item, protocol, out);
    }
}

fn bulk(out: &mut BytesMut, bytes: &[u8]) {
    line(out, b'$', bytes.len().to_string().as_bytes());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

fn line(out: &mut BytesMut, kind: u8, content: &[u8]) {
    out.reserve(content.len() + 3);
    out.put_u8(kind);
    out.put_slice(content);
    out.put_slice(b"\r\n");
}

/// Replaces line breaks with spaces, because they would end the reply.
fn one_line(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], " ").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(reply: &RedisReply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        encode(reply, protocol, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn what_only_resp3_has_is_written_otherwise_in_resp2() {
        for (reply, in_2, in_3) in [
            (RedisReply::Nil, "$-1\r\n", "_\r\n"),
            (RedisReply::Double(0.5), "$3\r\n0.5\r\n", ",0.5\r\n"),
            (RedisReply::Boolean(true), ":1\r\n", "#t\r\n"),
            (
                RedisReply::Map(vec![(RedisReply::Int(1), RedisReply::Int(2))]),
                "*2\r\n:1\r\n:2\r\n",
                "%1\r\n:1\r\n:2\r\n",
            ),
            (RedisReply::Push(vec![RedisReply::bulk("a")]), "*1\r\n$1\r\na\r\n", ">1\r\n$1\r\na\r\n"),
            (RedisReply::Set(vec![]), "*0\r\n", "~0\r\n"),
        ] {
            assert_eq!(bytes(&reply, Protocol::Resp2), in_2);
            assert_eq!(bytes(&reply, Protocol::Resp3), in_3);
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(bytes(&RedisReply::Error("ERR a\r\nb".into()), Protocol::Resp2), "-ERR a  b\r\n");
    }
}

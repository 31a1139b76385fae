//! What an answer of the server, or the lack of one, means.
//!
//! Answers are read by their codes only: the texts differ between Redis and Valkey and
//! between versions.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use redis::RedisError;

use crate::error::{Error, ErrorKind, Redirect};
use crate::escape::{plain, text_of};

/// A way out where the end is not in sight.
pub const DESTROYING_ADVICE: &str = "; if whoever began that is gone, call Console::destroy or `keylapse destroy` again: it goes on, or opens the topic";

/// What else could be done beside changing back what somebody has changed with care.
const PARTITIONS_ADVICE: &str = "; use the same number of partitions everywhere: if the topic was repartitioned, \
     restart this program with `.partitions(…)` as it says there";

/// Where a command is not known.
const UNKNOWN_ADVICE: &str = "; keylapse needs it: a proxy or a service in between may refuse it (connect without), or the \
     server is older than Redis 7.0 or Valkey 7.2";

/// Part of what a server answers where the user may not use a database.
pub const NO_DATABASE: &str = "permissions to access database";

/// Parts of what a server answers that has no such database.
const DATABASES_END: &str = "DB index is out of range";
const NO_DATABASES: &str = "SELECT is not allowed in cluster mode";

/// Where nobody answers: what `redis` and the system call that.
const NOT_RESOLVED: &str = "failed to lookup address";

/// Where the user may use some databases alone.
const DATABASE_ADVICE: &str = "; the URL selects it (0 where it says none), and the user's ACL does not grant it: name \
     another at the URL's end, as in /3, or grant this one with db=";

/// The same for a topic that gets another number of partitions.
pub const REPARTITIONING_ADVICE: &str = "; if whoever began that is gone, call Console::repartition or `keylapse partitions` again with the same number: it goes on";

/// An [`Error`] for what `redis` reports, with advice.
pub fn classify(doing: &str, error: &RedisError) -> Error {
    use {ErrorKind as K, redis::ErrorKind as R};
    if let Some(own) = carried(error) {
        return Error::new(own.kind(), format!("{doing}: {own}"));
    }
    let said = plain(&text_of(error), 200);
    let (kind, what) = match (error.code(), error.kind()) {
        (Some(code), _) => {
            let (kind, advice) = by_code(code, error);
            let detail = plain(error.detail().unwrap_or_default(), 200);
            (kind, format!("{} {detail}{advice}", plain(code, 40)))
        }
        _ if error.is_timeout() => (K::Timeout, "the server did not answer in time".into()),
        (None, R::AuthenticationFailed) => (
            K::Auth,
            "the server refused the user or password; check the URL, KEYLAPSE_REDIS_PASSWORD and the ACL"
                .into(),
        ),
        (None, R::Parse) if is_cut_off(error) => {
            (K::Unreachable, "the connection was closed in the middle of an answer".into())
        }
        (None, R::Parse) => {
            let advice = "what answers there does not speak Redis' protocol; check host and port";
            (K::Unsupported, format!("{advice} ({said})"))
        }
        (None, R::Io) => (K::Unreachable, format!("{said}{}", advice_of_the_way(error))),
        (None, R::InvalidClientConfig) => (K::Invalid, said),
        _ => (K::Server, said),
    };
    Error::new(kind, format!("{doing}: {what}")).with_code(error.code()).with_redirect(redirect(error))
}

/// Returns advice for where there is no way to a server.
fn advice_of_the_way(error: &RedisError) -> &'static str {
    if error.is_connection_refusal() {
        "; nothing listens there: is the server running, and are host and port right?"
    } else if text_of(error).contains(NOT_RESOLVED) {
        "; the name of the host does not resolve on this machine: is it spelt right?"
    } else {
        ""
    }
}

/// Returns whether the server has no database of the number that was selected.
pub fn is_of_no_database(error: &Error) -> bool {
    let said = error.to_string();
    error.kind() == ErrorKind::Unsupported
        && [DATABASES_END, NO_DATABASES].iter().any(|one| said.contains(one))
}

/// Returns whether the server, or what stands before it, does not know the command.
pub fn is_of_unknown_command(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported && error.to_string().contains(UNKNOWN_ADVICE)
}

/// Returns whether the line closed in the middle of an answer: `redis` (1.8.1) reports that as bytes that it cannot read, and only
/// its words tell.
pub(super) fn is_cut_off(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Parse
        && error.detail().is_some_and(|said| said.contains("end of input"))
}

/// The same of a call in this database, which is named where the user may not use it: the URL selects it, and the server
/// does not say which it is.
pub(super) fn classify_in(db: i64, doing: &str, error: &RedisError) -> Error {
    if is_of_database(error) {
        return classify(&format!("{doing} in database {db}"), error);
    }
    classify(doing, error)
}

/// Returns whether the user may not use the database that was selected, or not select it. Valkey has such users since 9.1.
pub(super) fn is_of_database(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(NO_DATABASE))
}

fn redirect(error: &RedisError) -> Option<Redirect> {
    let (to, slot) = error.redirect_node()?;
    Some(Redirect { once: error.code() == Some("ASK"), slot, to: to.into() })
}

/// The same for a connection that never stood: a server without room says so and
/// hangs up, and mostly only the latter is seen.
pub(super) fn classify_refusal(doing: &str, error: &RedisError) -> Error {
    if !error.is_connection_dropped() || error.is_connection_refusal() {
        return classify(doing, error);
    }
    let said = plain(&text_of(error), 200);
    let message = format!("{doing}: the server hung up ({said}); has it reached its maxclients?");
    Error::new(ErrorKind::Unreachable, message)
}

fn by_code(code: &str, error: &RedisError) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match code {
        "OOM" => (K::OutOfMemory, "; raise maxmemory or remove data: what is armed still runs"),
        "READONLY" => (K::ReadOnly, "; this is a replica: connect to the primary"),
        "NOREPLICAS" | "MASTERDOWN" => (K::ReadOnly, ""),
        "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" => (K::Unavailable, ""),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            (K::Unsupported, "; this is a cluster: its URL begins with redis+cluster://")
        }
        "MISCONF" => (K::Unavailable, "; the server cannot save to disk and refuses writes"),
        "NOAUTH" | "WRONGPASS" => {
            (K::Auth, "; check user and password, of the URL or of KEYLAPSE_REDIS_PASSWORD")
        }
        "NOPERM" | "ERR" if is_of_database(error) => (K::Permission, DATABASE_ADVICE),
        "DENIED" => (K::Permission, "; the server is in protected mode: give its users passwords"),
        "NOPERM" => (K::Permission, "; compare the user's ACL with the one in redis.conf"),
        "WRONGTYPE" => (K::WrongType, ""),
        "PARTITIONS" => (K::Partitions, PARTITIONS_ADVICE),
        "WIREVERSION" => (K::WireVersion, "; use the same version of keylapse everywhere"),
        "DESTROYING" => (K::Destroying, DESTROYING_ADVICE),
        "REPARTITIONING" => (K::Repartitioning, REPARTITIONING_ADVICE),
        "ATTACHED" => (K::Conflict, "; a timer is armed by writing its key"),
        // As Envoy says it.
        "unsupported" | "invalid" => (K::Unsupported, UNKNOWN_ADVICE),
        "ERR" => by_text(error.detail().unwrap_or_default()),
        _ => (K::Server, ""),
    }
}

/// The few cases for which servers have no code of their own.
fn by_text(detail: &str) -> (ErrorKind, &'static str) {
    if detail.contains("ACL failure") || detail.contains("executing the script can't") {
        (ErrorKind::Permission, "; compare the user's ACL with the one in redis.conf")
    } else if detail.contains("Error compiling script") {
        (ErrorKind::Unsupported, "; keylapse needs Redis 7.0 or Valkey 7.2 or newer")
    } else if detail.contains("unknown command") {
        (ErrorKind::Unsupported, UNKNOWN_ADVICE)
    } else if detail.contains(NO_DATABASES) {
        (ErrorKind::Unsupported, "; this cluster has database 0 alone: leave the database out")
    } else if detail.contains(DATABASES_END) {
        (
            ErrorKind::Unsupported,
            "; it has fewer databases: name another, or raise `databases`, of a cluster `cluster-databases`",
        )
    } else if detail.contains("max number of clients") {
        (ErrorKind::Unreachable, "; raise maxclients")
    } else {
        (ErrorKind::Server, "")
    }
}

/// An error of ours as one of `redis`, whose connections return no others.
pub(super) fn carry(error: Error) -> RedisError {
    io::Error::other(error).into()
}

/// What [`carry`] was given.
pub(super) fn carried(error: &RedisError) -> Option<&Error> {
    io_error(error)?.get_ref()?.downcast_ref()
}

/// The error of a stream. `source` of an `io::Error` would lead past it.
pub(super) fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared = error.source()?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    shared.downcast_ref()
}

#[cfg(test)]
mod tests {
    use redis::RedisConnectionInfo;
    use redis::aio::MultiplexedConnection;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Returns what is read of a server that answers a new connection so, and closes it.
    async fn told(answer: &[u8]) -> Error {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let settings = RedisConnectionInfo::default();
        let made = MultiplexedConnection::new(&settings, ours).await;
        classify("connecting", &made.err().expect("no connection"))
    }

    /// Whatever `redis` says of it: no code tells the two apart.
    #[tokio::test]
    async fn an_answer_that_is_cut_off_at_any_byte_is_one_of_the_line() {
        let answers: [&[u8]; 18] = [
            b"+OK\r\n",
            b"-NOPERM no right\r\n",
            b":-12\r\n",
            b"$5\r\nhello\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*3\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n+x\r\n",
            b"_\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"(123456789012345678901234567890\r\n",
            b"!10\r\nERR a\r\nb c\r\n",
            b"=5\r\ntxt:b\r\n",
            b"%2\r\n+a\r\n:1\r\n$1\r\nc\r\n%1\r\n+b\r\n:2\r\n",
            b"~2\r\n:1\r\n:2\r\n",
            b"|1\r\n+ttl\r\n:3600\r\n*1\r\n+value\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        ];
        for answer in answers {
            for end in 0..answer.len() {
                let error = told(&answer[..end]).await;
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{}: {error}", answer[..end].escape_ascii());
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_answer_of_redis_is_unsupported_cut_off_or_not() {
        let others: [&[u8]; 10] = [
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>",
            b"HT",
            b"SSH-2.0-OpenSSH_9.2p1\r\n",
            b"220 mail.example.com ESMTP\r\n",
            b"\x15\x03\x01\0\x02\x02\x28",
            b"\0\x01\x02\x03",
            b"\r\n",
            b"$x\r\n",
            b"*one\r\n+tw",
            b"$2\r\nlong",
        ];
        for other in others {
            let error = told(other).await;
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{}: {error}", other.escape_ascii());
        }
    }

    #[test]
    fn what_goes_through_redis_comes_out_as_it_was() {
        let error = Error::invalid("x");
        assert_eq!(carried(&carry(error.clone())), Some(&error));
        assert!(carried(&io::Error::other("x").into()).is_none());
        assert!(carried(&(redis::ErrorKind::Client, "x").into()).is_none());
    }
}

//! Classifies errors of the server and of connections, and adds advice.
//!
//! Classification uses error codes. The texts differ between Redis and Valkey and between versions, so they decide only for
//! errors without a code of their own (`by_text`).

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use redis::RedisError;

use crate::error::{Error, ErrorKind, Redirect};
use crate::escape::{escape_line, text_of};

/// Advice for a topic that is being destroyed.
pub const DESTROYING_ADVICE: &str = "; if the program that began this is gone, call Console::destroy or `keylapse destroy` again: it continues, or opens the topic";

const PARTITIONS_ADVICE: &str = "; use the same number of partitions everywhere: if the topic was repartitioned, \
     restart this program with the new number, `.partitions(…)`";

const UNKNOWN_ADVICE: &str = "; keylapse needs it: a proxy or a service in between may refuse it (connect without), or the \
     server is older than Redis 7.0 or Valkey 7.2";

/// A part of the server's error if the user may not use the selected database.
pub const NO_DATABASE: &str = "permissions to access database";

// Parts of the server's errors if the selected database does not exist.
const DATABASES_END: &str = "DB index is out of range";
const NO_DATABASES: &str = "SELECT is not allowed in cluster mode";

/// A part of the error of `redis` if the name of a host does not resolve.
const NOT_RESOLVED: &str = "failed to lookup address";

const DATABASE_ADVICE: &str = "; the URL selects it (0 by default), and the user's ACL does not grant it: name \
     another at the URL's end, as in /3, or grant this one with db=";

/// Advice for a topic that is being repartitioned.
pub const REPARTITIONING_ADVICE: &str = "; if the program that began this is gone, call Console::repartition or `keylapse partitions` again with the same number: it continues";

/// Converts an error of `redis` into an [`Error`] with advice. `doing` names the failed operation.
pub fn classify(doing: &str, error: &RedisError) -> Error {
    use {ErrorKind as K, redis::ErrorKind as R};
    if let Some(own) = own_error_in(error) {
        return Error::new(own.kind(), format!("{doing}: {own}"));
    }
    let text = escape_line(&text_of(error), 200);
    let (kind, what) = match (error.code(), error.kind()) {
        (Some(code), _) => {
            let (kind, advice) = by_code(code, error);
            let detail = escape_line(error.detail().unwrap_or_default(), 200);
            (kind, format!("{} {detail}{advice}", escape_line(code, 40)))
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
            let advice = "the server there does not speak Redis' protocol; check host and port";
            (K::Unsupported, format!("{advice} ({text})"))
        }
        (None, R::Io) => (K::Unreachable, format!("{text}{}", network_advice(error))),
        (None, R::InvalidClientConfig) => (K::Invalid, text),
        _ => (K::Server, text),
    };
    Error::new(kind, format!("{doing}: {what}")).with_code(error.code()).with_redirect(redirect(error))
}

/// Returns advice for an error of the network.
fn network_advice(error: &RedisError) -> &'static str {
    if error.is_connection_refusal() {
        "; nothing listens there: is the server running, and are host and port right?"
    } else if text_of(error).contains(NOT_RESOLVED) {
        "; the name of the host does not resolve on this machine: is it spelled correctly?"
    } else {
        ""
    }
}

/// Returns whether the selected database does not exist on the server.
pub fn is_of_no_database(error: &Error) -> bool {
    let text = error.to_string();
    error.kind() == ErrorKind::Unsupported
        && [DATABASES_END, NO_DATABASES].iter().any(|part| text.contains(part))
}

/// Returns whether the server, or a proxy in front of it, does not have the command.
pub fn is_of_unknown_command(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported && error.to_string().contains(UNKNOWN_ADVICE)
}

/// Returns whether the connection closed in the middle of an answer. `redis` 1.8.1 reports this as a parse error with a
/// certain text.
pub(super) fn is_cut_off(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Parse
        && error.detail().is_some_and(|detail| detail.contains("end of input"))
}

/// Classifies the error of a call in database `db`. The message names the database if the user may not use it, as the
/// server's own error does not.
pub(super) fn classify_in(db: i64, doing: &str, error: &RedisError) -> Error {
    if is_of_database(error) {
        return classify(&format!("{doing} in database {db}"), error);
    }
    classify(doing, error)
}

/// Returns whether the user may not select the database, or not use it. Valkey has had such users since 9.1.
pub(super) fn is_of_database(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(NO_DATABASE))
}

fn redirect(error: &RedisError) -> Option<Redirect> {
    let (to, slot) = error.redirect_node()?;
    Some(Redirect { once: error.code() == Some("ASK"), slot, to: to.into() })
}

/// Classifies the error of a connection that could not be made. A server at its limit of clients sends an error and closes
/// the connection; the client mostly sees only the close.
pub(super) fn classify_refusal(doing: &str, error: &RedisError) -> Error {
    if !error.is_connection_dropped() || error.is_connection_refusal() {
        return classify(doing, error);
    }
    let text = escape_line(&text_of(error), 200);
    let message =
        format!("{doing}: the server closed the connection ({text}); has it reached its maxclients?");
    Error::new(ErrorKind::Unreachable, message)
}

fn by_code(code: &str, error: &RedisError) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match code {
        "OOM" => (K::OutOfMemory, "; raise maxmemory or remove data: armed timers still run"),
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
        // Envoy answers an unknown command with these codes.
        "unsupported" | "invalid" => (K::Unsupported, UNKNOWN_ADVICE),
        "ERR" => by_text(error.detail().unwrap_or_default()),
        _ => (K::Server, ""),
    }
}

/// Classifies errors with the code ERR, which many different errors share.
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
            "; the server has fewer databases: name another, or raise `databases` (`cluster-databases` of a cluster)",
        )
    } else if detail.contains("max number of clients") {
        (ErrorKind::Unreachable, "; raise maxclients")
    } else {
        (ErrorKind::Server, "")
    }
}

/// Wraps an [`Error`] in a `RedisError`, which all connections return.
pub(super) fn into_redis_error(error: Error) -> RedisError {
    io::Error::other(error).into()
}

/// Returns the [`Error`] that [`into_redis_error`] has wrapped.
pub(super) fn own_error_in(error: &RedisError) -> Option<&Error> {
    io_error(error)?.get_ref()?.downcast_ref()
}

/// Returns the I/O error of the stream. `source()` of an `io::Error` returns its inner error, so it cannot find the
/// `io::Error`.
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

    /// Returns the error of a connection whose server sends `answer` and closes it.
    async fn error_after(answer: &[u8]) -> Error {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let settings = RedisConnectionInfo::default();
        let made = MultiplexedConnection::new(&settings, ours).await;
        classify("connecting", &made.err().expect("no connection"))
    }

    /// `redis` reports a truncated answer and a foreign protocol with the same kind of error.
    #[tokio::test]
    async fn an_answer_that_is_cut_off_at_any_byte_is_a_connection_error() {
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
                let error = error_after(&answer[..end]).await;
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
            let error = error_after(other).await;
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{}: {error}", other.escape_ascii());
        }
    }

    #[test]
    fn what_goes_through_redis_comes_out_as_it_was() {
        let error = Error::invalid("x");
        assert_eq!(own_error_in(&into_redis_error(error.clone())), Some(&error));
        assert!(own_error_in(&io::Error::other("x").into()).is_none());
        assert!(own_error_in(&(redis::ErrorKind::Client, "x").into()).is_none());
    }
}

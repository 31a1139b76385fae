//! In which order a server says what a command has caused, and what the command is answered: the facts that
//! `src/events/calls.rs` rests on.

use keylapse_support::{Binary, Server};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

use crate::scene::{now, servers, until_time};

const SCRIPT: &str = "return redis.call('PEXPIRETIME', KEYS[1])";
/// Keys of each form.
const KEYS: usize = 100;

/// What arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrives {
    /// That the key has expired.
    Expired,
    /// An answer.
    Answer,
}
use Arrives::{Answer, Expired};

/// Whether this server announces what a command causes on its own connection before the command's answer. Redis 7.2
/// changed that (its pull request 12326), and Valkey began later.
fn announces_first(binary: &Binary) -> bool {
    let version = binary.version();
    !version.is_valkey && version.number < (7, 2, 0)
}

#[tokio::test]
async fn what_a_command_causes_has_been_announced_before_the_answer_of_the_next() {
    for binary in servers() {
        let (version, first) = (binary.version(), announces_first(&binary));
        let server = Server::builder().binary(binary).config("notify-keyspace-events", "Ex").start().await;
        // Nothing expires but what is read.
        server.cmd(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).await;
        let mut line = Line::subscribed(&server).await;
        let script = format!("EVAL \"{SCRIPT}\" 1");
        for reads in ["EXISTS", "PEXPIRETIME", "GET", &script] {
            for behind in [None, Some("TIME"), Some("PING")] {
                write_overdue(&server).await;
                for key in 0..KEYS {
                    let next = behind.map_or_else(String::new, |next| format!("{next}\r\n"));
                    line.send(&format!("{reads} {key}\r\n{next}")).await;
                    let mut expected = if first { vec![Expired, Answer] } else { vec![Answer, Expired] };
                    expected.extend(behind.map(|_| Answer));
                    let mut arrived = Vec::new();
                    for _ in &expected {
                        arrived.push(line.read().await);
                    }
                    assert_eq!(arrived, expected, "{version}: {reads}, then {behind:?}");
                }
            }
        }
    }
}

/// Keys whose deadlines have passed, and that the server has not found yet.
async fn write_overdue(server: &Server) {
    let mut pipeline = redis::pipe();
    (0..KEYS).for_each(|key| _ = pipeline.cmd("SET").arg(key).arg("").arg("PX").arg(1).ignore());
    pipeline.exec_async(&mut server.conn().await).await.unwrap();
    until_time(now() + 5).await;
}

/// A connection of which each byte is seen.
struct Line(BufStream<TcpStream>);

impl Line {
    /// In RESP3, to the expired keys of this server.
    async fn subscribed(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        let mut line = Self(BufStream::new(stream));
        line.send("HELLO 3\r\nSUBSCRIBE __keyevent@0__:expired\r\n").await;
        assert_eq!(line.read().await, Answer);
        line.read().await;
        line
    }

    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// The next answer or announcement, whole.
    async fn read(&mut self) -> Arrives {
        let (mut left, mut arrives) = (1, None);
        while left > 0 {
            let mut head = String::new();
            self.0.read_line(&mut head).await.unwrap();
            assert!(!head.starts_with('-'), "{head}");
            let count = || head[1..].trim().parse::<i64>().unwrap();
            left += match &head[..1] {
                "*" | ">" => count(),
                "%" => 2 * count(),
                "$" if count() >= 0 => {
                    let mut text = vec![0; usize::try_from(count()).unwrap() + 2];
                    self.0.read_exact(&mut text).await.unwrap();
                    0
                }
                _ => 0,
            };
            left -= 1;
            arrives.get_or_insert(if head.starts_with('>') { Expired } else { Answer });
        }
        arrives.unwrap()
    }
}

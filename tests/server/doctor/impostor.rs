//! What answers like a server, and is none: for findings that no server at hand shows.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Whatever is told to it, it says what was chosen for that command.
pub(super) struct Impostor {
    port: u16,
    task: JoinHandle<()>,
}

/// Answers by the first word of a command, in capitals, as the protocol has them; behind it `canary` where the key is one.
/// `{key}` stands for the second word, `{an hour ago}` for that time as TIME gives it.
#[derive(Clone)]
struct Answers(HashMap<&'static str, Vec<String>>);

impl Impostor {
    /// Several answers to one command are given one after the other on each connection, the last for ever.
    pub(super) async fn answering(answers: &[(&'static str, &[&str])]) -> Self {
        let mut all: HashMap<_, Vec<String>> = HashMap::new();
        for (command, said) in
            [("HELLO", &["%1\r\n+proto\r\n:3\r\n"][..]), ("CLIENT", &["+OK\r\n"])].iter().chain(answers)
        {
            all.insert(*command, said.iter().map(|said| (*said).to_owned()).collect());
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Answers(all.clone())));
            }
        });
        Self { port, task }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, mut answers: Answers) {
    let (mut heard, mut page) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(size @ 1..) = stream.read(&mut page).await {
        heard.extend_from_slice(&page[..size]);
        while let Some((words, used)) = words(&heard) {
            heard.drain(..used);
            if stream.write_all(answers.to(&words).as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

impl Answers {
    fn to(&mut self, words: &[String]) -> String {
        let command = words[0].to_uppercase();
        let key = words.get(1).map_or("", String::as_str);
        let of_canary = format!("{command} canary");
        let special = key.ends_with(":canary") && self.0.contains_key(&*of_canary);
        let said = match self.0.get_mut(if special { &*of_canary } else { &*command }) {
            None => return format!("-ERR unknown command '{command}'\r\n"),
            Some(said) if said.len() > 1 => said.remove(0),
            Some(said) => said[0].clone(),
        };
        said.replace("{key}", &bulk(key)).replace("{an hour ago}", &an_hour_ago())
    }
}

/// The first command, if it is there as a whole, and its length.
fn words(heard: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 0;
    let number = |mark: u8, at: &mut usize| {
        let line = &heard[*at..];
        let end = line.windows(2).position(|two| two == b"\r\n")?;
        assert_eq!(line[0], mark);
        *at += end + 2;
        std::str::from_utf8(&line[1..end]).ok()?.parse::<usize>().ok()
    };
    let mut words = Vec::new();
    for _ in 0..number(b'*', &mut at)? {
        let size = number(b'$', &mut at)?;
        let word = heard.get(at..at + size)?;
        heard.get(at + size..at + size + 2)?;
        words.push(String::from_utf8_lossy(word).into_owned());
        at += size + 2;
    }
    Some((words, at))
}

fn an_hour_ago() -> String {
    let then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - Duration::from_secs(3600);
    format!("*2\r\n{}{}", bulk(&then.as_secs().to_string()), bulk(&then.subsec_micros().to_string()))
}

/// A text of any length, as an answer.
pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

//! `keylapse health`: probes a `keylapse serve` or `keylapse run`, for container images without a shell.

use std::io;
use std::time::Duration;

use keylapse_console::parse_span;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::exit::{CliError, Exit};
use crate::output::{Output, short};

/// The longest answer that is read.
const LONGEST: u64 = 64 << 10;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Probe the program at this URL: http://host:port, and its path prefix.
    ///
    /// HTTPS is not supported, as certificates are not checked: use the probes of the platform there.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7117", value_parser = parse_at)]
    at: ProbeEndpoint,
    /// Ask whether the program is alive, instead of whether it is ready.
    #[arg(long)]
    live: bool,
    /// Wait this long for the answer.
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = parse_span)]
    within: Duration,
}

/// Host and port, and the path prefix of the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProbeEndpoint {
    host: String,
    prefix: String,
}

#[derive(Serialize)]
struct ProbeResult<'a> {
    healthy: bool,
    status: u16,
    message: &'a str,
}

pub(crate) async fn run(args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let path = if args.live { "/livez" } else { "/readyz" };
    let answer = match timeout(args.within, ask(&args.at, path)).await {
        Ok(answer) => answer.map_err(|error| CliError::Unreachable(format!("{}: {error}", args.at.host)))?,
        Err(_) => return Err(CliError::Unreachable(format!("{} does not answer in time", args.at.host))),
    };
    let (status, says) = read(&answer).ok_or_else(|| {
        CliError::Unreachable(format!("the program at {} does not speak HTTP", args.at.host))
    })?;
    let healthy = status == 200;
    let says = short(says.trim(), 1000);
    if out.is_json() {
        out.line("health", &ProbeResult { healthy, status, message: &says })?;
    } else {
        out.print_line(format!("{status} {says}"))?;
    }
    Ok(if healthy { Exit::Success } else { Exit::ProblemsFound })
}

async fn ask(at: &ProbeEndpoint, path: &str) -> io::Result<String> {
    let ProbeEndpoint { host, prefix } = at;
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET {prefix}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns the status and the body of an answer.
fn read(answer: &str) -> Option<(u16, &str)> {
    let status = answer.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, body))
}

fn parse_at(text: &str) -> Result<ProbeEndpoint, String> {
    let advice = "write http://host:port, such as http://127.0.0.1:7117";
    let rest = text.strip_prefix("http://").ok_or(advice)?;
    let (host, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (name, port) = host.rsplit_once(':').ok_or(advice)?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@?#".contains(&byte);
    if name.is_empty() || port.parse::<u16>().is_err() || !rest.bytes().all(is_plain) {
        return Err(advice.to_owned());
    }
    Ok(ProbeEndpoint { host: host.to_owned(), prefix: prefix.trim_end_matches('/').to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let at =
            |host: &str, prefix: &str| ProbeEndpoint { host: host.to_owned(), prefix: prefix.to_owned() };
        assert_eq!(parse_at("http://127.0.0.1:7117"), Ok(at("127.0.0.1:7117", "")));
        assert_eq!(parse_at("http://[::1]:7117/timers/"), Ok(at("[::1]:7117", "/timers")));
        for bad in [
            "",
            "127.0.0.1:7117",
            "https://a:1",
            "http://a",
            "http://:1",
            "http://a:x",
            "http://a:1/\r\n",
            "http://u@a:1",
        ] {
            assert!(parse_at(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_answer_has_a_status_and_words() {
        assert_eq!(read("HTTP/1.1 200 OK\r\na: b\r\n\r\nok\n"), Some((200, "ok\n")));
        for bad in ["", "HTTP/1.1 ", "HTTP/1.1 abc\r\n\r\n", "+PONG", "HTTP/1.1 200 OK"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}

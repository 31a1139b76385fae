//! The tasks of a connection, which read commands, execute them and write replies.

use std::sync::Weak;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::ClientSession;
use crate::intercept::{CommandRequest, Intervention};
use crate::outbox::ConnectionOutbox;
use crate::reply::RedisReply;
use crate::resp::{Invalid, Protocol, RespParser};
use crate::server::{SharedServer, TestServer};

/// Serves a stream in a task, until the stream ends or the server is dropped.
pub(crate) fn serve(server: &TestServer, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
    server.0.expire_in_background(server);
    let outbox = ConnectionOutbox::default();
    let client = server.0.open(outbox.clone());
    tokio::spawn(converse(std::sync::Arc::downgrade(&server.0), client, outbox, stream));
}

/// Accepts connections until the server is dropped.
pub(crate) async fn accept(
    server: Weak<SharedServer>,
    listener: TcpListener,
    dropped: tokio::sync::watch::Receiver<()>,
) {
    let mut dropped = dropped;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = dropped.changed() => return,
        };
        let Some(server) = server.upgrade().map(TestServer) else { return };
        if let Ok((stream, _)) = accepted {
            // Otherwise the kernel delays small replies.
            let _ = stream.set_nodelay(true);
            serve(&server, stream);
        }
    }
}

async fn converse(
    server: Weak<SharedServer>,
    client: ClientSession,
    outbox: ConnectionOutbox,
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
) {
    let id = client.id;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = async {
        read(&server, client, &outbox, &mut reader).await;
        outbox.close();
        // The other branch still writes the last replies.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = reading => {}
        _ = write(&outbox, &mut writer) => {}
    }
    let _ = writer.shutdown().await;
    if let Some(server) = server.upgrade() {
        server.engine().close(id);
    }
}

pub(crate) async fn write(
    outbox: &ConnectionOutbox,
    writer: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    while let Some(bytes) = outbox.next().await {
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
    Ok(())
}

async fn read(
    server: &Weak<SharedServer>,
    mut client: ClientSession,
    outbox: &ConnectionOutbox,
    reader: &mut (impl AsyncRead + Unpin),
) {
    let mut parser = RespParser::default();
    loop {
        match reader.read_buf(parser.buffer()).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Some(server) = server.upgrade() else { return };
        if answer_all(&server, &mut client, outbox, &mut parser).is_none() {
            return;
        }
    }
}

/// Answers the commands that have arrived. Returns `None` if the connection is to end.
fn answer_all(
    server: &SharedServer,
    client: &mut ClientSession,
    outbox: &ConnectionOutbox,
    parser: &mut RespParser,
) -> Option<()> {
    loop {
        let args = match parser.next() {
            Ok(Some(args)) => args,
            Ok(None) => return Some(()),
            Err(Invalid(text)) => {
                outbox.send(&RedisReply::Error(format!("ERR {text}")), Protocol::Resp2);
                return None;
            }
        };
        if outbox.is_closed() {
            return None;
        }
        if outbox.is_hung() {
            continue;
        }
        let request = CommandRequest { connection: client.id, args: &args };
        match server.hook().map_or(Intervention::Execute, |hook| hook(&request)) {
            Intervention::Execute => _ = server.execute(client, &args, Some(outbox)),
            Intervention::Refuse(text) => outbox.send(&RedisReply::Error(text), client.protocol),
            Intervention::Unanswered => {
                server.execute(client, &args, None);
                return None;
            }
            Intervention::Hang => {
                outbox.hang();
                server.execute(client, &args, None);
            }
        }
        if client.leaves {
            return None;
        }
    }
}

//! One connection: reads commands, has them executed, writes what is to be sent.

use std::sync::Weak;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::intercept::{Intervention, Request};
use crate::outbox::Outbox;
use crate::reply::Reply;
use crate::resp::{Invalid, Parser, Protocol};
use crate::server::{Server, Shared};

/// Serves a stream in a task of its own, until it ends or the server does.
pub(crate) fn serve(server: &Server, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
    server.0.expire_in_background(server);
    let outbox = Outbox::default();
    let client = server.0.open(outbox.clone());
    tokio::spawn(converse(std::sync::Arc::downgrade(&server.0), client, outbox, stream));
}

/// Takes connections until the server is gone.
pub(crate) async fn accept(
    server: Weak<Shared>,
    listener: TcpListener,
    gone: tokio::sync::watch::Receiver<()>,
) {
    let mut gone = gone;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = gone.changed() => return,
        };
        let Some(server) = server.upgrade().map(Server) else { return };
        if let Ok((stream, _)) = accepted {
            // Without it small answers wait for one another.
            let _ = stream.set_nodelay(true);
            serve(&server, stream);
        }
    }
}

async fn converse(
    server: Weak<Shared>,
    client: Client,
    outbox: Outbox,
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
) {
    let id = client.id;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = async {
        read(&server, client, &outbox, &mut reader).await;
        outbox.close();
        // What was answered before the end is still to be written.
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

pub(crate) async fn write(outbox: &Outbox, writer: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    while let Some(bytes) = outbox.next().await {
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
    Ok(())
}

async fn read(
    server: &Weak<Shared>,
    mut client: Client,
    outbox: &Outbox,
    reader: &mut (impl AsyncRead + Unpin),
) {
    let mut parser = Parser::default();
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

/// Answers the commands that have arrived; nothing once the connection is to end.
fn answer_all(server: &Shared, client: &mut Client, outbox: &Outbox, parser: &mut Parser) -> Option<()> {
    loop {
        let args = match parser.next() {
            Ok(Some(args)) => args,
            Ok(None) => return Some(()),
            Err(Invalid(text)) => {
                outbox.send(&Reply::Error(format!("ERR {text}")), Protocol::Resp2);
                return None;
            }
        };
        if outbox.is_closed() {
            return None;
        }
        if outbox.is_hung() {
            continue;
        }
        let request = Request { connection: client.id, args: &args };
        match server.hook().map_or(Intervention::Execute, |hook| hook(&request)) {
            Intervention::Execute => _ = server.execute(client, &args, Some(outbox)),
            Intervention::Refuse(text) => outbox.send(&Reply::Error(text), client.protocol),
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

//! One client's connection and its requests. While the body of a request is missing, the connection counts as idle, and a
//! new one may replace it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::{Layer, ServiceExt};
use tracing::debug;

use crate::limits::ServerLimits;
use crate::serve::slots::{ActiveRequestGuard, ConnectionSlot};

/// Maximum bytes of a request's header.
const HEAD_BYTES: usize = 64 << 10;

pub(super) struct Connection {
    pub(super) routes: Router,
    pub(super) from: SocketAddr,
    pub(super) slot: ConnectionSlot,
    pub(super) closed: ServerShutdown,
    pub(super) limits: ServerLimits,
}

/// Signals the shutdown of the server to answers that have no end of their own.
#[derive(Clone, Debug)]
pub(crate) struct ServerShutdown(watch::Receiver<()>);

impl ServerShutdown {
    pub(super) fn new(closed: watch::Receiver<()>) -> Self {
        Self(closed)
    }

    /// Completes when the shutdown begins.
    pub(crate) async fn begins(mut self) {
        // The sender sends nothing. Its drop completes the wait with an error.
        _ = self.0.changed().await;
    }
}

impl Connection {
    pub(super) async fn begin(self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write));
        let stream = Box::pin(stream);
        let Some(acceptor) = acceptor else { return self.serve(stream).await };
        let accepted = tokio::select! {
            accepted = timeout(self.limits.head, acceptor.accept(stream)) => accepted,
            () = self.slot.wait_for_eviction() => return,
        };
        match accepted {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) => debug!(%error, from = %self.from, "TLS handshake failed"),
            Err(_) => debug!(from = %self.from, "TLS handshake timed out"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        let Self { routes, from, slot, closed, limits } = self;
        let routes = Extension(closed.clone()).layer(Extension(ConnectInfo(from)).layer(routes));
        let routes = Extension(slot.clone()).layer(routes);
        let its_slot = slot.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let (routes, slot) = (routes.clone(), its_slot.clone());
            async move {
                if !is_probe(request.uri().path()) {
                    slot.leave_probe_slot().await;
                }
                let (request, underway) = ReceivingRequest::begin(request, slot);
                let response = routes.oneshot(request).await?;
                underway.has_come();
                // The body keeps the guard until the body is written or dropped.
                Ok::<_, Infallible>(response.map(|body| {
                    body.map_frame(move |frame| {
                        let _ = &underway;
                        frame
                    })
                }))
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_BYTES);
        let connection = http.serve_connection(TokioIo::new(stream), answer);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = slot.wait_for_eviction() => return debug!(%from, "closed an idle connection in favour of a new one"),
            () = closed.begins() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, %from, "connection ended early");
        }
    }
}

/// Returns whether a path is one of those for probes, which have reserved slots.
fn is_probe(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    ["livez", "readyz", "metrics"].contains(&last) && !path.contains("/api/")
}

/// A request, which counts as active once all of it has arrived.
#[derive(Clone)]
struct ReceivingRequest {
    slot: ConnectionSlot,
    busy: Arc<OnceLock<ActiveRequestGuard>>,
}

/// The body of a request. Its end makes the request active.
struct TrackedBody {
    body: Incoming,
    of: ReceivingRequest,
}

impl ReceivingRequest {
    fn begin(request: Request<Incoming>, slot: ConnectionSlot) -> (Request, Self) {
        let of = Self { slot, busy: Arc::default() };
        if request.body().is_end_stream() {
            of.has_come();
        }
        let arriving = |body| Body::new(TrackedBody { body, of: of.clone() });
        (request.map(arriving), of)
    }

    /// Marks the request as active: its body is complete, or the route has answered without the rest.
    fn has_come(&self) {
        self.busy.get_or_init(|| self.slot.busy());
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.of.has_come();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! One client's connection, and the requests that arrive on it: as long as the body of one is waited for, its connection
//! counts as idle, and gives way to others.

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

use crate::patience::Patience;
use crate::serve::seats::{Busy, Seat};

/// The largest head of a request.
const HEAD_BYTES: usize = 64 << 10;

pub(super) struct Connection {
    pub(super) routes: Router,
    pub(super) from: SocketAddr,
    pub(super) seat: Seat,
    pub(super) closed: Closing,
    pub(super) patience: Patience,
}

/// Whether the server is about to end: for answers that would go on for ever.
#[derive(Clone, Debug)]
pub(crate) struct Closing(watch::Receiver<()>);

impl Closing {
    pub(super) fn new(closed: watch::Receiver<()>) -> Self {
        Self(closed)
    }

    /// Completes when it is.
    pub(crate) async fn begins(mut self) {
        // The sender says nothing: it goes.
        _ = self.0.changed().await;
    }
}

impl Connection {
    pub(super) async fn begin(self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.patience.write));
        let stream = Box::pin(stream);
        let Some(acceptor) = acceptor else { return self.serve(stream).await };
        let accepted = tokio::select! {
            accepted = timeout(self.patience.head, acceptor.accept(stream)) => accepted,
            () = self.seat.is_wanted() => return,
        };
        match accepted {
            Ok(Ok(stream)) => self.serve(stream).await,
            Ok(Err(error)) => debug!(%error, from = %self.from, "no TLS"),
            Err(_) => debug!(from = %self.from, "no TLS in time"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        let Self { routes, from, seat, closed, patience } = self;
        let routes = Extension(closed.clone()).layer(Extension(ConnectInfo(from)).layer(routes));
        let routes = Extension(seat.clone()).layer(routes);
        let its_seat = seat.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let (routes, seat) = (routes.clone(), its_seat.clone());
            async move {
                if !is_probe(request.uri().path()) {
                    seat.is_no_probe().await;
                }
                let (request, underway) = Underway::begin(request, seat);
                let response = routes.oneshot(request).await?;
                underway.has_come();
                // Its body has it, until it is written or given up.
                Ok::<_, Infallible>(response.map(|body| {
                    body.map_frame(move |frame| {
                        let _ = &underway;
                        frame
                    })
                }))
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(patience.head).max_buf_size(HEAD_BYTES);
        let connection = http.serve_connection(TokioIo::new(stream), answer);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = seat.is_wanted() => return debug!(%from, "a connection that is waited for gives way to another"),
            () = closed.begins() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, %from, "a connection has ended early");
        }
    }
}

/// Returns whether probes ask for this, which have places of their own.
fn is_probe(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    ["livez", "readyz", "metrics"].contains(&last) && !path.contains("/api/")
}

/// A request, which is worked on once all of it has come.
#[derive(Clone)]
struct Underway {
    seat: Seat,
    busy: Arc<OnceLock<Busy>>,
}

/// The body of a request.
struct Arriving {
    body: Incoming,
    of: Underway,
}

impl Underway {
    fn begin(request: Request<Incoming>, seat: Seat) -> (Request, Self) {
        let of = Self { seat, busy: Arc::default() };
        if request.body().is_end_stream() {
            of.has_come();
        }
        let arriving = |body| Body::new(Arriving { body, of: of.clone() });
        (request.map(arriving), of)
    }

    /// All of it has, or as much as is wanted.
    fn has_come(&self) {
        self.busy.get_or_init(|| self.seat.busy());
    }
}

impl hyper::body::Body for Arriving {
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

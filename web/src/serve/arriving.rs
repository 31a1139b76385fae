//! A request that arrives: as long as its body is waited for its connection counts as idle, and gives way to others.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};

use crate::serve::seats::{Busy, Seat};

/// A request, which is worked on once all of it has come.
#[derive(Clone)]
pub(super) struct Underway {
    seat: Seat,
    busy: Arc<OnceLock<Busy>>,
}

/// The body of a request.
struct Arriving {
    body: Incoming,
    of: Underway,
}

impl Underway {
    pub(super) fn begin(request: Request<Incoming>, seat: Seat) -> (Request, Self) {
        let of = Self { seat, busy: Arc::default() };
        if request.body().is_end_stream() {
            of.has_come();
        }
        let arriving = |body| Body::new(Arriving { body, of: of.clone() });
        (request.map(arriving), of)
    }

    /// All of it has, or as much as is wanted.
    pub(super) fn has_come(&self) {
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

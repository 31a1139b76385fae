//! What the library says, line by line.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Everything that is said on this thread, at any level, as it was said: the
/// usual formatters escape some of it themselves.
#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}={value}", field.name()).unwrap();
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        for span in context.event_scope(event).into_iter().flatten() {
            line.0 += span.extensions().get::<Line>().map_or("", |line| &line.0);
        }
        self.0.lock().unwrap().push(line.0);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line(format!(" SPAN {}", attributes.metadata().name()));
        attributes.record(&mut line);
        self.0.lock().unwrap().push(line.0.clone());
        context.span(id).expect("the span").extensions_mut().insert(line);
    }
}

impl Capture {
    /// For tests on one thread: spawned tasks then speak here, too.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let capture = Self::default();
        let guard = keylapse_support::subscribe(tracing_subscriber::registry().with(capture.clone()));
        (capture, guard)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|line| !line.contains("mio::") && !line.contains("tokio")).cloned().collect()
    }

    /// Lines that say this, and are meant for an operator.
    pub(crate) fn loud(&self, what: &str) -> usize {
        let loud = |line: &&String| line.starts_with("WARN") || line.starts_with("ERROR");
        self.lines().iter().filter(loud).filter(|line| line.contains(what)).count()
    }

    pub(crate) fn assert_is_clean(&self, secret: &str) {
        for line in self.lines() {
            assert!(!line.contains(secret), "a secret in the log: {line}");
            assert!(!line.contains(|c: char| c.is_control()), "a control character in the log: {line:?}");
            assert!(line.len() < 1700, "a line of {} bytes: {line}", line.len());
        }
    }
}

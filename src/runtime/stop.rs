//! A request to stop, heard by many.

use tokio::sync::watch;

/// Asks; stays asked.
#[derive(Debug)]
pub(crate) struct Stop(watch::Sender<bool>);

/// Hears it.
#[derive(Clone, Debug)]
pub(crate) struct Stopped(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn new() -> (Self, Stopped) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Stopped(receiver))
    }

    pub(crate) fn ask(&self) {
        self.0.send_replace(true);
    }
}

impl Stopped {
    /// Returns once it was asked, or nobody can ask any more.
    pub(crate) async fn asked(&mut self) {
        let _ = self.0.wait_for(|asked| *asked).await;
    }
}

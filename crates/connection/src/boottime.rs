//! A clock that advances while the machine is suspended, like the server's clock.
//!
//! tokio's clock and timers stop during a suspension (`CLOCK_MONOTONIC` in `clock_gettime(2)`). A listener that was
//! suspended past the end of its lease must not trust the lease. On systems other than Linux this clock is tokio's.

use std::time::Duration;

use tokio::time::Instant;

/// Returns the current time of this clock. Only differences between two times have a meaning. Leases are measured with it.
pub fn now() -> Instant {
    Instant::now() + suspended()
}

#[cfg(target_os = "linux")]
pub use self::linux::BoottimeSleep;
#[cfg(target_os = "linux")]
use self::linux::suspended;
#[cfg(not(target_os = "linux"))]
pub use self::other::TokioSleep as BoottimeSleep;
#[cfg(not(target_os = "linux"))]
use self::other::suspended;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::sync::OnceLock;

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
        timerfd_create, timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Duration, Instant, now};

    /// A shorter difference is noise: the two clocks are read one after the other, and no suspension is this short.
    const MIN_SUSPENSION: Duration = Duration::from_millis(50);

    /// Returns how long the machine was suspended since the first call.
    pub(super) fn suspended() -> Duration {
        static AT_FIRST: OnceLock<Duration> = OnceLock::new();
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let monotonic = read(ClockId::Monotonic);
        let ahead = read(ClockId::Boottime).saturating_sub(monotonic);
        let suspended = ahead.saturating_sub(*AT_FIRST.get_or_init(|| ahead));
        if suspended < MIN_SUSPENSION { Duration::ZERO } else { suspended }
    }

    /// A timer on this clock, for one task.
    #[derive(Debug)]
    pub struct BoottimeSleep(Option<AsyncFd<OwnedFd>>);

    impl BoottimeSleep {
        /// Creates a timer. It uses tokio's timer in virtual time, and if the system cannot create a timer of this clock.
        #[allow(
            deprecated,
            reason = "the replacement is newer than the oldest supported tokio; an OwnedFd is sound in both"
        )]
        pub fn new(virtual_time: bool) -> Self {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let open = || AsyncFd::new(timerfd_create(TimerfdClockId::Boottime, flags)?);
            Self((!virtual_time).then(open).and_then(io::Result::ok))
        }

        /// Waits until `until`, which is a time of this clock.
        pub async fn wait(&self, until: Instant) {
            let left = until.saturating_duration_since(now());
            match &self.0 {
                Some(timer) if wait_for(timer, left).await.is_ok() => {}
                _ => tokio::time::sleep(left).await,
            }
        }
    }

    async fn wait_for(timer: &AsyncFd<OwnedFd>, left: Duration) -> io::Result<()> {
        // A value of zero would disarm the timer.
        let it_value = Timespec::try_from(left.max(Duration::from_nanos(1))).map_err(io::Error::other)?;
        let it_interval = Timespec::default();
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        loop {
            let mut ready = timer.readable().await?;
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
            if let Ok(read) = read {
                return read.map(drop);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use super::{Duration, Instant, now};

    pub(super) fn suspended() -> Duration {
        Duration::ZERO
    }

    /// A timer on this clock, for one task.
    #[derive(Debug)]
    pub struct TokioSleep;

    impl TokioSleep {
        /// Creates a timer, which is tokio's.
        pub fn new(_virtual_time: bool) -> Self {
            Self
        }

        /// Waits until `until`, which is a time of this clock.
        pub async fn wait(&self, until: Instant) {
            tokio::time::sleep(until.saturating_duration_since(now())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_waits_until_each_of_several_times() {
        let alarm = BoottimeSleep::new(false);
        for wait in [0, 30, 10] {
            let until = now() + Duration::from_millis(wait);
            tokio::time::timeout(Duration::from_secs(20), alarm.wait(until)).await.expect("the timer fires");
            assert!(now() >= until);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_in_virtual_time_follows_the_runtimes_clock() {
        let (alarm, began) = (BoottimeSleep::new(true), now());
        alarm.wait(began + Duration::from_secs(3600)).await;
        assert_eq!(now() - began, Duration::from_secs(3600));
    }
}

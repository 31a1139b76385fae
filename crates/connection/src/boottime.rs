//! A clock that goes on while the machine is suspended, as the server's does.
//!
//! tokio's stands still then, and so do its timers (`CLOCK_MONOTONIC` in `clock_gettime(2)`). Whoever sleeps over the
//! end of his lease must not wake up and trust it. Where there is no such clock, this is tokio's.

use std::time::Duration;

use tokio::time::Instant;

/// The time by that clock. Differences count, and nothing else; leases are measured by it.
pub fn now() -> Instant {
    Instant::now() + suspended()
}

#[cfg(target_os = "linux")]
pub use self::linux::Alarm;
#[cfg(target_os = "linux")]
use self::linux::suspended;
#[cfg(not(target_os = "linux"))]
pub use self::other::Alarm;
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

    /// Two clocks are not read at one moment. No suspension is as short as this.
    const NOISE: Duration = Duration::from_millis(50);

    /// For how long the machine was suspended since this was first asked.
    pub(super) fn suspended() -> Duration {
        static AT_FIRST: OnceLock<Duration> = OnceLock::new();
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let monotonic = read(ClockId::Monotonic);
        let ahead = read(ClockId::Boottime).saturating_sub(monotonic);
        let suspended = ahead.saturating_sub(*AT_FIRST.get_or_init(|| ahead));
        if suspended < NOISE { Duration::ZERO } else { suspended }
    }

    /// Wakes one task at moments of this clock.
    #[derive(Debug)]
    pub struct Alarm(Option<AsyncFd<OwnedFd>>);

    impl Alarm {
        /// Returns an alarm. In virtual time, and where the system has no such timer, it is tokio's.
        #[allow(
            deprecated,
            reason = "what replaces it is newer than the oldest tokio we take; an OwnedFd is sound in both"
        )]
        pub fn new(virtual_time: bool) -> Self {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let open = || AsyncFd::new(timerfd_create(TimerfdClockId::Boottime, flags)?);
            Self((!virtual_time).then(open).and_then(io::Result::ok))
        }

        /// Returns at this moment, or a little later.
        pub async fn wait(&self, until: Instant) {
            let left = until.saturating_duration_since(now());
            match &self.0 {
                Some(timer) if wait_for(timer, left).await.is_ok() => {}
                _ => tokio::time::sleep(left).await,
            }
        }
    }

    async fn wait_for(timer: &AsyncFd<OwnedFd>, left: Duration) -> io::Result<()> {
        // Nothing at all would turn it off.
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

    /// Wakes one task at moments of this clock.
    #[derive(Debug)]
    pub struct Alarm;

    impl Alarm {
        /// An alarm: it is tokio's.
        pub fn new(_virtual_time: bool) -> Self {
            Self
        }

        /// Returns at this moment, or a little later.
        pub async fn wait(&self, until: Instant) {
            tokio::time::sleep(until.saturating_duration_since(now())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_wakes_at_its_moment_and_again_at_the_next() {
        let alarm = Alarm::new(false);
        for wait in [0, 30, 10] {
            let until = now() + Duration::from_millis(wait);
            tokio::time::timeout(Duration::from_secs(20), alarm.wait(until)).await.expect("it wakes");
            assert!(now() >= until);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_virtual_time_it_is_the_runtimes() {
        let (alarm, began) = (Alarm::new(true), now());
        alarm.wait(began + Duration::from_secs(3600)).await;
        assert_eq!(now() - began, Duration::from_secs(3600));
    }
}

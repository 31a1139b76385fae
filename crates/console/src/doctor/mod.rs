//! Looks at servers before anything of ours is there, and at topics once they are: what is amiss, what that means, and
//! the line that mends it.
//!
//! Checks stand by their subjects, and each thing that can be found stands in one table, [`codes()`]. Nothing needs a right that
//! keylapse does not need: what may not be asked is found out by trying. What is written has names that begin with
//! `<namespace>:doctor:`, and a time to live of at most a minute, or half of what is measured.

mod codes;
mod events;
mod examination;
mod reach;
mod report;
mod rights;
mod service;
mod settings;
mod time;
mod topics;

pub use self::codes::{Code, codes};
pub use self::report::{Diagnosis, Finding, Lateness, Severity, Summary};

use keylapse::inside::ClientInside as _;
use std::future::IntoFuture;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};

use crate::Console;
use crate::error::{Error, Result};
use keylapse::Client;

use examination::{ServerExamination, ServerKind};
use topics::TopicChecks;

/// How long may be measured.
const MIN_MEASURE_TIME: Duration = Duration::from_secs(1);
const MAX_MEASURE_TIME: Duration = Duration::from_secs(3600);

/// An examination, about to begin: set options, then `.await` it.
#[derive(Debug)]
#[must_use = "nothing is looked at until the request is awaited"]
pub struct DoctorRequest<'a> {
    client: &'a Client,
    measure: Option<Duration>,
}

impl Console {
    /// Looks whether keylapse can do its work here: at each server, primaries and the replicas that can be reached, and at
    /// the topics that are registered.
    ///
    /// It needs no topic, no listener and no right that keylapse itself does not need, and never fails: a server that
    /// cannot be reached is a finding. Each question waits for its answer no longer than
    /// [`answer_within`](Client::answer_within) says. Where the user lacks rights, trying them leaves lines in the server's
    /// `ACL LOG`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use keylapse::Client;
    /// use keylapse_console::Console;
    ///
    /// # async fn look() -> keylapse::Result<()> {
    /// let console = Console::new(Client::new("redis://127.0.0.1/")?);
    /// let diagnosis = console.doctor().measure(Duration::from_secs(30)).await;
    /// for finding in &diagnosis.findings {
    ///     println!("{finding}");
    /// }
    /// println!("{}", diagnosis.summary());
    /// # Ok(())
    /// # }
    /// ```
    pub fn doctor(&self) -> DoctorRequest<'_> {
        DoctorRequest { client: &self.client, measure: None }
    }
}

impl DoctorRequest<'_> {
    /// Measures besides, for this long (a second to an hour), how late expired keys are announced: 200 keys on each primary that nobody reads,
    /// beside 200 that are read when they are due. Default: it is only predicted.
    ///
    /// Their deadlines lie in the first half of the time. A key that nobody reads can take as long as is predicted.
    pub fn measure(mut self, time: Duration) -> Self {
        self.measure = Some(time.clamp(MIN_MEASURE_TIME, MAX_MEASURE_TIME));
        self
    }

    async fn look(self) -> Diagnosis {
        let Self { client, measure } = self;
        let known = match client.check_settings() {
            Ok(()) => ServerExamination::for_known_servers(client).await,
            Err(error) => Err(error),
        };
        match known {
            Ok(servers) => all(client, servers, measure).await,
            Err(error) => unreachable(client, &error).await,
        }
    }
}

async fn all(client: &Client, servers: Vec<ServerExamination>, measure: Option<Duration>) -> Diagnosis {
    let with_replicas = |server| with_replicas(client, server, measure);
    let mut cases: Vec<ServerExamination> =
        join_all(servers.into_iter().map(with_replicas)).await.into_iter().flatten().collect();
    once(&mut cases);
    let serves = cases.iter().any(|case| case.serves);
    let mut diagnosis = Diagnosis::default();
    for case in cases {
        diagnosis.findings.extend(case.findings);
        diagnosis.lateness.add(&case.lateness);
    }
    if serves {
        diagnosis.findings.extend(TopicChecks::of(client).examine().await);
    }
    diagnosis
}

/// All nodes of a cluster say that it is down: one primary is enough, and comes first.
fn once(cases: &mut Vec<ServerExamination>) {
    let says = |case: &ServerExamination| case.has_finding(&[codes::SLOTS_UNSERVED]);
    let primary = cases.iter().position(|case| says(case) && !case.info.is_replica());
    let Some(place) = primary.or_else(|| cases.iter().position(says)) else { return };
    let first = cases.remove(place);
    for case in &mut *cases {
        case.findings.retain(|finding| finding.code != codes::SLOTS_UNSERVED.code);
    }
    cases.insert(0, first);
}

/// A server, and then the replicas that it has named.
async fn with_replicas(
    client: &Client,
    server: ServerExamination,
    measure: Option<Duration>,
) -> Vec<ServerExamination> {
    let case = examine(server, measure).await;
    let replicas = case.replicas(client);
    let mut cases = vec![case];
    cases.extend(join_all(replicas.into_iter().map(|replica| examine(replica, None))).await);
    cases
}

/// For a cluster none of whose nodes names the others, and for sentinels that name nobody. The first server of the URL that can
/// be reached shows why.
async fn unreachable(client: &Client, error: &Error) -> Diagnosis {
    let mut cases = Vec::new();
    for server in ServerExamination::for_url_endpoints(client) {
        let case = glance(server).await;
        // A sentinel that watches the primary leads on to it.
        let behind = if case.findings.is_empty() { case.for_named_primary(client).await } else { None };
        cases.push(case);
        if let Some(primary) = behind {
            cases.push(glance(primary).await);
        }
    }
    let says = |case: &ServerExamination, code| case.has_finding(&[code]);
    let explains = |case: &&ServerExamination| {
        !case.findings.is_empty() && !says(case, codes::UNREACHABLE) && !says(case, codes::ANSWERS)
    };
    let is_primary =
        |case: &&ServerExamination| says(case, codes::UNREACHABLE) && case.asked == ServerKind::Server;
    let findings = match cases.iter().find(explains).or_else(|| cases.iter().find(is_primary)) {
        Some(case) => case.findings.clone(),
        None => {
            let nodes = client.store().target().endpoints.to_string();
            let cli = cases.first().map_or("redis-cli", |case| &case.cli);
            vec![Finding::new(&codes::UNREACHABLE, Some(&nodes), error.to_string(), &[("cli", cli)])]
        }
    };
    Diagnosis { findings, ..Diagnosis::default() }
}

/// Goes over one server, up to where it answers no more.
async fn examine(mut case: ServerExamination, measure: Option<Duration>) -> ServerExamination {
    if reach::answers(&mut case).await
        && let Err(error) = go_over(&mut case, measure).await
    {
        case.add_finding(&codes::LOST, error.to_string());
    }
    case
}

/// Looks only at what the URL leads to, and whether that serves anybody.
async fn glance(mut case: ServerExamination) -> ServerExamination {
    if reach::answers(&mut case).await
        && let Err(error) = reach::serves(&mut case).await
    {
        case.add_finding(&codes::UNREACHABLE, error.to_string());
    }
    case
}

async fn go_over(case: &mut ServerExamination, measure: Option<Duration>) -> Result<()> {
    case.serves = reach::serves(case).await?;
    if !case.serves {
        return Ok(());
    }
    case.clocks = time::clocks(case).await?;
    reach::transport(case);
    settings::read(case).await?;
    settings::flags(case);
    settings::buffers(case);
    settings::eviction(case);
    settings::persistence(case);
    settings::replication(case);
    time::predicted(case);
    reach::scripts(case).await?;
    let heard = events::canary(case).await?;
    rights::check(case).await?;
    if let (Some(window), Some(earshot)) = (measure, heard) {
        time::measure(case, earshot, window).await?;
    }
    time::clock(case).await
}

impl<'a> IntoFuture for DoctorRequest<'a> {
    type Output = Diagnosis;
    type IntoFuture = BoxFuture<'a, Diagnosis>;

    fn into_future(self) -> Self::IntoFuture {
        self.look().boxed()
    }
}

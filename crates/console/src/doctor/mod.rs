//! Examines servers, before the first use or later, and the topics on them. Each finding has a meaning and, for a fault, the
//! command line that corrects it.
//!
//! [`codes()`] has all kinds of findings. The doctor needs no permission that keylapse does not need; it tries commands
//! where it may not ask for permissions. Its keys begin with `<namespace>:doctor:` and have a TTL of at most one minute, or
//! half of the measuring time.

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

const MIN_MEASURE_TIME: Duration = Duration::from_secs(1);
const MAX_MEASURE_TIME: Duration = Duration::from_secs(3600);

/// A request to examine servers and topics. Set options, then `.await` it.
#[derive(Debug)]
#[must_use = "the request does nothing until it is awaited"]
pub struct DoctorRequest<'a> {
    client: &'a Client,
    measure: Option<Duration>,
}

impl Console {
    /// Examines whether keylapse can work here. It covers the primaries, the replicas that can be reached, and the
    /// registered topics.
    ///
    /// The examination needs no topic, no listener and no permission that keylapse does not need. It never fails: a server
    /// that cannot be reached is a finding. Each command waits for its answer as long as
    /// [`answer_within`](Client::answer_within) allows. If the user lacks permissions, the trials add entries to the
    /// server's `ACL LOG`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use keylapse::Client;
    /// use keylapse_console::Console;
    ///
    /// # async fn examine() -> keylapse::Result<()> {
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
    /// Measures how late expired keys are announced, for a time from one second to one hour. By default, the lateness is
    /// only predicted.
    ///
    /// The measurement writes 400 keys on each primary, and reads half of them when they are due. Their deadlines are in the
    /// first half of the time. The event of a key that is not read can take as long as the prediction.
    pub fn measure(mut self, time: Duration) -> Self {
        self.measure = Some(time.clamp(MIN_MEASURE_TIME, MAX_MEASURE_TIME));
        self
    }

    async fn examine(self) -> Diagnosis {
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
    keep_one_slot_finding(&mut cases);
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

/// Keeps one finding of unserved slots, because each node of a cluster reports them. It is a primary's, if possible, and
/// comes first.
fn keep_one_slot_finding(cases: &mut Vec<ServerExamination>) {
    let reports = |case: &ServerExamination| case.has_finding(&[codes::SLOTS_UNSERVED]);
    let primary = cases.iter().position(|case| reports(case) && !case.info.is_replica());
    let Some(place) = primary.or_else(|| cases.iter().position(reports)) else { return };
    let first = cases.remove(place);
    for case in &mut *cases {
        case.findings.retain(|finding| finding.code != codes::SLOTS_UNSERVED.code);
    }
    cases.insert(0, first);
}

/// Examines a server, then the replicas that it names.
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

/// Explains why no servers could be found: no node of the cluster names the others, or no sentinel names a primary. The
/// first reachable server of the URL shows the reason.
async fn unreachable(client: &Client, error: &Error) -> Diagnosis {
    let mut cases = Vec::new();
    for server in ServerExamination::for_url_endpoints(client) {
        let case = glance(server).await;
        // A sentinel without findings watches the primary, so the primary itself has the reason.
        let behind = if case.findings.is_empty() { case.for_named_primary(client).await } else { None };
        cases.push(case);
        if let Some(primary) = behind {
            cases.push(glance(primary).await);
        }
    }
    let has = |case: &ServerExamination, code| case.has_finding(&[code]);
    let explains = |case: &&ServerExamination| {
        !case.findings.is_empty() && !has(case, codes::UNREACHABLE) && !has(case, codes::ANSWERS)
    };
    let is_primary =
        |case: &&ServerExamination| has(case, codes::UNREACHABLE) && case.asked == ServerKind::Server;
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

/// Runs all checks of one server. A connection error ends them.
async fn examine(mut case: ServerExamination, measure: Option<Duration>) -> ServerExamination {
    if reach::answers(&mut case).await
        && let Err(error) = run_checks(&mut case, measure).await
    {
        case.add_finding(&codes::LOST, error.to_string());
    }
    case
}

/// Checks only whether the server fits the URL and serves calls.
async fn glance(mut case: ServerExamination) -> ServerExamination {
    if reach::answers(&mut case).await
        && let Err(error) = reach::serves(&mut case).await
    {
        case.add_finding(&codes::UNREACHABLE, error.to_string());
    }
    case
}

async fn run_checks(case: &mut ServerExamination, measure: Option<Duration>) -> Result<()> {
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
    let subscription = events::canary(case).await?;
    rights::check(case).await?;
    if let (Some(window), Some(subscription)) = (measure, subscription) {
        time::measure(case, subscription, window).await?;
    }
    time::clock(case).await
}

impl<'a> IntoFuture for DoctorRequest<'a> {
    type Output = Diagnosis;
    type IntoFuture = BoxFuture<'a, Diagnosis>;

    fn into_future(self) -> Self::IntoFuture {
        self.examine().boxed()
    }
}

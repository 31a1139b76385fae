//! The same commands on a cluster, and behind sentinels over TLS.

use std::path::Path;
use std::time::Duration;

use keylapse::{Client, Schedule, Servers, Tls, Topic};
use keylapse_support::{Authority, skipped, tls_settings, write};
use keylapse_testing::{LocalCluster, SentinelGroup};

use crate::commands::scene::{Do, Ran, run_at};

const HOUR: Duration = Duration::from_secs(3600);
const LETTER: &str = r#"{"v":1,"type":"dead_letter","topic":"order.unpaid","key":"order:unpaid:dead","id":"00000000000000a7",
"deadline_ms":1795599000000,"at_ms":1795599060000,"reason":"exhausted","attempt":5,"payload":"\"Succeed\""}"#;

/// The program, with how it gets to a server in front of each command.
struct Program<'a> {
    url: &'a str,
    access: &'a [&'a str],
}

impl Program<'_> {
    fn run(&self, args: &[&str], input: &[u8]) -> Ran {
        run_at(self.url, &[self.access, args].concat(), input)
    }

    /// Runs to a good end, and says this.
    fn says(&self, args: &[&str], text: &str) -> String {
        self.says_of(args, b"", text)
    }

    fn says_of(&self, args: &[&str], input: &[u8], text: &str) -> String {
        let ran = self.run(args, input);
        assert!(ran.code == 0 && ran.out.contains(text), "{args:?} does not say {text}: {ran:?}");
        ran.out
    }
}

/// What somebody on call does in a day.
async fn all_works(client: Client, program: &Program<'_>) {
    let orders = Topic::<Do>::new("order:unpaid:{id}").expect("a topic").partitions(5);
    let schedule = Schedule::connect(client).await.expect("a schedule");
    for n in 0..20 {
        let armed = schedule.arm(&orders, n, HOUR, &Do::Succeed).await.expect("an arming");
        assert!(armed.is_armed());
    }
    program.says(&["topics"], "order.unpaid  managed");
    program.says(&["arm", "order:unpaid:new", "--when", "2h", "--payload", "\"Succeed\""], "armed, due at");
    program.says_of(&["import"], LETTER.replace('\n', "").as_bytes(), "imported=1 skipped=0");
    let status = program.says(&["--json", "status"], "\"timers\":21");
    assert!(status.contains("\"dead\":1"), "{status}");
    assert_eq!(program.says(&["--json", "ls", "order.unpaid"], "order:unpaid:new").lines().count(), 21);
    program.says(&["ls", "order.unpaid", "--state", "dead"], "order:unpaid:dead");
    program.says(&["show", "order:unpaid:new"], "state         waiting");
    program.says(&["why", "order:unpaid:dead"], "died: exhausted");
    program.says(&["dead", "replay", "order.unpaid", "--yes", "--expect", "1"], "done=1 skipped=0 failed=0");
    program.says(&["pause", "order.unpaid", "--reason", "the shop moves"], "paused");
    program.says(&["status"], "paused: the shop moves");
    program.says(&["resume", "order.unpaid"], "resumed");
    program.says(&["reschedule", "order:unpaid:new", "--to", "3h"], "due at");
    program.says(&["cancel", "order:unpaid:new"], "cancelled");
    program.says(&["verify"], "faults=0");
    program.says(&["check", "--max-dead", "0", "--allow", "unserved"], "breaches=0");
    let exported = program.says(&["export", "order.unpaid"], "order:unpaid:7\"");
    program.says_of(&["import"], exported.as_bytes(), "imported=0 skipped=21");
    program.says(&["cancel", "--in", "order.unpaid", "--yes", "--expect", "21"], "done=21");
    assert_eq!(program.run(&["tail", "--for", "10ms"], b"").code, 1, "nothing happens");
    program.says(&["partitions", "order.unpaid", "--to", "7"], "7 partitions instead of 5");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_on_a_cluster() {
    let cluster = LocalCluster::builder().replicas_per_primary(0).start().await.expect("a cluster");
    let url = cluster.url();
    let program = Program { url: &url, access: &[] };
    all_works(Client::new(&url).expect("a client"), &program).await;
    let doctor = program.run(&["doctor"], b"");
    for node in cluster.nodes() {
        assert!(doctor.out.contains(&format!("127.0.0.1:{}\n", node.port())), "{doctor:?}");
    }
    program.says(&["destroy", "order.unpaid", "--confirm", "order.unpaid"], "0 timers");
    assert_eq!(program.run(&["topics"], b"").code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_behind_sentinels_over_tls_with_passwords_in_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name in UTF-8").to_owned();
    let Some(group) = guarded(folder.path()).await else { return };
    let (ca, cert, key) = (path("ca.pem"), path("operator.pem"), path("operator.key"));
    let (password, of_sentinels) = (path("password"), path("sentinel-password"));
    let access = [
        ["--user", "default"],
        ["--password-file", &password],
        ["--sentinel-user", "default"],
        ["--sentinel-password-file", &of_sentinels],
        ["--tls-ca", &ca],
        ["--tls-cert", &cert],
        ["--tls-key", &key],
        ["--tls-name", "redis.shop"],
    ];
    let url = group.url();
    let tls = Tls::new().ca_file(&ca).client_certificate(&cert, &key).server_name("redis.shop");
    let servers = Servers::at(&url).password("of-servers").sentinel_password("of-sentinels").tls(tls);
    let program = Program { url: &url, access: access.as_flattened() };
    all_works(servers.try_into().expect("a client"), &program).await;

    // Each of them is needed. Each of those of a certificate needs the other.
    for (left_out, code) in [(1, 3), (3, 3), (4, 3), (5, 2), (7, 3)] {
        let mut access = access.to_vec();
        let [option, _] = access.remove(left_out);
        let refused = Program { url: &url, access: access.as_flattened() }.run(&["status"], b"");
        assert_eq!((refused.code, refused.out.as_str()), (code, ""), "{option}: {refused:?}");
    }
}

/// Servers and sentinels with passwords, where each side has to show a certificate; none where the server was built
/// without TLS. The certificate is for a name by which nobody can find them.
async fn guarded(folder: &Path) -> Option<SentinelGroup> {
    let authority = Authority::new("the CA of this test");
    write(folder, "ca.pem", &authority.pem);
    authority.issue(folder, "server", &["redis.shop"]);
    authority.issue(folder, "operator", &["operator"]);
    write(folder, "password", "of-servers\n");
    write(folder, "sentinel-password", "of-sentinels\n");
    let builder =
        SentinelGroup::builder().replicas(1).password("of-servers").sentinel_password("of-sentinels");
    let settings = tls_settings(folder, 0).into_iter().filter(|(name, _)| name != "tls-port");
    let builder = settings.fold(builder, |builder, (name, value)| {
        let value = if name == "tls-auth-clients" { "yes" } else { &value };
        let line = format!("{name} {value}");
        builder.config(&line).sentinel_config(&line)
    });
    match builder.start().await {
        Err(error) if error.to_string().contains("Failed finding TLS support") => {
            skipped("this server was built without TLS");
            None
        }
        started => Some(started.expect("sentinels")),
    }
}

//! What a listener says of itself where others find it.

use keylapse::fleet::ListenerReport;
use keylapse_testserver::CallFault;

use super::*;

const LISTENERS: &str = "keylapse:listeners";

async fn others(bed: &TestBed) -> Vec<ListenerReport> {
    bed.schedule().listeners().await.expect("an answer")
}

#[tokio::test(start_paused = true)]
async fn a_listener_reports_every_five_seconds_by_one_call() {
    let (bed, listening) = bed_with(topic(), take_time).await;
    bed.advance(secs(1)).await;
    let before = (bed.calls().made("save_report").len(), stats(&listening).handled);
    for _ in 0..60 {
        arm(&bed, "1", secs(0), 0).await;
        bed.advance(secs(1)).await;
    }
    assert_eq!(bed.calls().made("save_report").len() - before.0, 12);
    assert_eq!(stats(&listening).handled - before.1, 60);
    let [report] = &others(&bed).await[..] else { panic!("one listener") };
    let handled = report.topics["a"].counts["handled"];
    assert!((55..=60).contains(&handled), "{handled}, as of the last report");
    assert_eq!(report.topics["a"].lateness.count(), handled);
    assert_eq!(bed.command(["TTL", LISTENERS]), RedisReply::Int(-1));
}

#[tokio::test(start_paused = true)]
async fn who_serves_a_topic_is_known_until_it_stops_or_says_nothing_for_15_s() {
    let bed = TestBed::counting();
    let other = Topic::<u32>::new("b:{id}").expect("the pattern is fine");
    let both = bed.listen(|listener| listener.on(topic(), succeed).on(other.clone(), succeed)).await.unwrap();
    let one = listen(&bed, topic(), succeed).await;
    let two = listen(&bed, topic(), succeed).await;
    let serving = async |topic: &Topic<u32>| bed.schedule().serving(topic).await.expect("an answer").len();
    assert_eq!((others(&bed).await.len(), serving(&topic()).await, serving(&other).await), (3, 3, 1));
    one.stop().await.expect("in order");
    assert_eq!((serving(&topic()).await, serving(&other).await), (2, 1));
    both.crash().await;
    let beat = async |secs: u64| {
        for _ in 0..secs {
            arm(&bed, "1", Duration::ZERO, 0).await; // what never changes is not reported in virtual time
            bed.advance(Duration::from_secs(1)).await;
        }
    };
    beat(14).await;
    assert_eq!((serving(&topic()).await, serving(&other).await), (2, 1));
    beat(3).await;
    assert_eq!((serving(&topic()).await, serving(&other).await), (1, 0));
    assert_eq!(bed.command(["HLEN", LISTENERS]), RedisReply::Int(2), "it is not forgotten yet");
    beat(590).await;
    assert_eq!(bed.command(["HLEN", LISTENERS]), RedisReply::Int(1));
    two.stop().await.expect("in order");
    assert_eq!(bed.command(["EXISTS", LISTENERS]), RedisReply::Int(0));
}

#[tokio::test(start_paused = true)]
async fn a_report_says_who_and_where_and_how() {
    let (bed, _) = bed_with(topic().concurrency(7), stuck).await;
    arm_all(&bed, &["1", "2"], 0).await;
    bed.advance(secs(6)).await;
    let [report] = &others(&bed).await[..] else { panic!("one listener") };
    assert_eq!((report.id.len(), report.pid), (16, std::process::id()));
    let version = format!("\nversion = \"{}\"\n", report.version);
    assert!(include_str!("../../Cargo.toml").contains(&version), "{report:?}");
    assert!(!cfg!(target_os = "linux") || !report.host.is_empty());
    assert_eq!((report.running, report.limit), (2, 1000));
    assert!(report.at() <= bed.now() && report.at() + secs(6) > bed.now(), "{report:?}");
    let node = &report.nodes[0];
    assert_eq!(
        (&node.node[..], &node.mode[..], &node.gap, node.gaps),
        ("in.this.process:6379", "expired", &None, 0)
    );
    let of_topic = &report.topics["a"];
    assert_eq!((of_topic.running, of_topic.limit, of_topic.counts["claimed"]), (2, 7, 2));
    assert!(!of_topic.counts.contains_key("handled"), "what is nothing is left out");
    bed.command(["CONFIG", "SET", "notify-keyspace-events", ""]);
    bed.advance(secs(10)).await;
    let node = &others(&bed).await[0].nodes[0];
    assert_eq!((&node.mode[..], node.gap.as_deref()), ("scan_only", Some("silent")));
}

#[tokio::test(start_paused = true)]
async fn what_others_have_left_there_is_forgotten_and_breaks_nobody() {
    let bed = TestBed::counting();
    bed.command([
        "HSET",
        LISTENERS,
        "junk",
        "\u{1}",
        "old",
        r#"{"at":7,"id":"old"}"#,
        "odd",
        r#"{"at":"x"}"#,
    ]);
    let _listening = listen(&bed, topic(), succeed).await;
    assert_eq!(others(&bed).await.len(), 1);
    assert_eq!(bed.command(["HLEN", LISTENERS]), RedisReply::Int(1));
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_refused_is_said_once_and_harms_nothing() {
    let (_guard, log) = crate::listening::log::log();
    let bed = TestBed::counting();
    bed.calls().fail("save_report", CallFault::Refused("NOPERM"), 3);
    let _listening = listen(&bed, topic(), succeed).await;
    for _ in 0..20 {
        arm(&bed, "1", Duration::ZERO, 0).await;
        bed.advance(secs(1)).await;
    }
    assert_eq!((bed.all_runs().len(), others(&bed).await.len()), (20, 1));
    let said = log.lines().iter().filter(|line| line.contains("cannot write this listener's report")).count();
    assert_eq!((said, log.lines().len()), (1, 1), "{:#?}", log.lines());
}

use super::*;
use crate::attached::Attached;
use crate::lapse::Lapse;
use crate::listener::Listener;
use crate::outcome::{Done, Failure};
use crate::testing::TestBed;
use crate::topic::Topic;

/// Else what was enrolled before it and is gone would never be judged.
#[tokio::test(start_paused = true)]
async fn the_time_of_an_anchor_is_asked_for_with_each_canary_until_it_is_known() {
    let bed = TestBed::new();
    let lapsed = |_: Lapse<crate::Expired<u32>>| std::future::ready(Ok::<_, Failure>(Done));
    let topic = Attached::new(Topic::<u32>::new("a:{id}").unwrap());
    let listener = Listener::builder(bed.client()).attach(topic, lapsed).build().unwrap();
    let (touches, mut asked) = mpsc::channel(1);
    let others = Touch { id: 1000, keys: Vec::new(), capture: Capture::default(), horizon: None };
    touches.try_send(others).expect("there is room for one");
    let deadlines = Arc::new(KnownDeadlines::new());
    let mut reader =
        StreamReader::new(listener.runtime.clone(), touches, Arc::default(), deadlines, HashMap::new());
    let canary = |number| Heard::Canary(Canary { number, before: number - 1, writes: true, expires: true });

    reader.heard(canary(1)).await;
    assert_eq!(asked.try_recv().map(|touch| touch.id), Ok(1000), "and no other found room");
    reader.heard(canary(2)).await;
    let id = asked.try_recv().expect("it is asked again").id;
    reader.heard(canary(3)).await;
    assert!(asked.try_recv().is_err(), "the question is on its way");
    reader.heard(Heard::Touched(Touched { id, answer: None, refused: None })).await;
    reader.heard(canary(4)).await;
    let id = asked.try_recv().expect("it was not answered").id;
    let answer = Some((ServerTime::from_ms(5), Vec::new()));
    reader.heard(Heard::Touched(Touched { id, answer, refused: None })).await;
    reader.heard(canary(5)).await;
    assert!(asked.try_recv().is_err(), "it is known");
}

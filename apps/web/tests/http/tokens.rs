//! Tokens that have names, rights and topics.

use keylapse::{Key, Topic};
use keylapse_web::{Access, Web};
use serde_json::json;

use crate::http::answer::Answer;
use crate::http::audit::{hear, lines};
use crate::http::shop::{HOUR, PAYLOAD, Shop};
use crate::http::site::{FORM, Site};

const ORDERS: &str = "11111111111111111111111111111111";
const LOOKS: &str = "22222222222222222222222222222222";
const ALL: &str = "33333333333333333333333333333333";
const JSON: &str = "Content-Type: application/json";

fn access() -> Access {
    let text = format!("orders act {ORDERS} order*\nlooks read {LOOKS} order\nops act {ALL}\n");
    Access::to_loopback().tokens(&text).expect("tokens")
}

/// With topics `order` and `cart`.
async fn open() -> (Shop, Site) {
    let shop = Shop::open().await;
    let carts = Topic::named("cart", "cart:{id}").expect("a topic");
    let armed = shop.schedule.arm(&carts, Key("cart:1"), HOUR, &PAYLOAD.to_owned()).await;
    assert!(armed.expect("an arming").is_armed());
    let access = access();
    let site = Site::serve(Web::new(shop.console.clone(), access.clone()), &access).await;
    (shop, site)
}

async fn ask(site: &Site, token: &str, method: &str, path: &str, kind: &str, body: &str) -> Answer {
    site.ask(method, path, &[&format!("Authorization: Bearer {token}"), kind], body).await
}

async fn get(site: &Site, token: &str, path: &str) -> Answer {
    ask(site, token, "GET", path, JSON, "").await
}

#[tokio::test]
async fn a_token_is_for_its_topics_in_each_route_of_the_api() {
    let (shop, site) = open().await;
    let (timer, in_an_hour) = ("timers/cart:1", json!({"in": "1h"}).to_string());
    let drop_all = json!({"action": "cancel", "expect": 1}).to_string();
    for (method, path, body) in [
        ("GET", "", ""),
        ("GET", "/entries", ""),
        ("GET", "/journal", ""),
        ("GET", "/timers/cart:1", ""),
        ("GET", "/timers/cart:1/why", ""),
        ("PUT", "/timers/cart:2", &*in_an_hour),
        ("DELETE", "/timers/cart:1", ""),
        ("POST", "/timers/cart:1/reschedule", &in_an_hour),
        ("POST", "/timers/cart:1/run-now", ""),
        ("POST", "/dead-letters/cart:1/a-1/replay", "{}"),
        ("DELETE", "/dead-letters/cart:1/a-1", ""),
        ("POST", "/bulk", &drop_all),
        ("POST", "/pause", r#"{"reason": "a"}"#),
        ("POST", "/resume", ""),
        ("GET", "/destinations", ""),
        ("POST", "/destinations/try", r#"{"destination": "a"}"#),
    ] {
        for topic in ["cart", "c%61rt", "nothing"] {
            let path = format!("/api/v1/topics/{topic}{path}");
            ask(&site, ORDERS, method, &path, JSON, body).await.refused(403, "not for this topic");
        }
    }
    for path in ["/status?topic=cart", "/check?max_dead=0&topic=order&topic=cart", "/tail?topic=cart"] {
        get(&site, ORDERS, &format!("/api/v1{path}")).await.refused(403, "not for this topic");
    }
    for path in ["/api/v1/doctor", "/metrics"] {
        get(&site, LOOKS, path).await.refused(403, "some topics");
        assert_eq!(get(&site, ALL, path).await.status, 200);
    }
    // On its own topic it may act, and the other timer is still there.
    ask(&site, ORDERS, "PUT", "/api/v1/topics/order/timers/order:2", JSON, &in_an_hour).await.with(201);
    ask(&site, LOOKS, "DELETE", "/api/v1/topics/order/timers/order:2", JSON, "")
        .await
        .refused(403, "only read");
    get(&site, ALL, &format!("/api/v1/topics/cart/{timer}")).await.with(200);
    let (access, below) = (access(), "/shop/timers");
    let web = Web::new(shop.console.clone(), access.clone()).prefix(below).expect("a prefix");
    let site = Site::serve(web, &access).await;
    get(&site, ORDERS, &format!("{below}/api/v1/topics/cart")).await.refused(403, "not for this topic");
    get(&site, ORDERS, &format!("{below}/api/v1/topics/order")).await.with(200);
}

#[tokio::test]
async fn lists_have_the_topics_of_the_token_alone() {
    let (_shop, site) = open().await;
    for (token, names) in [(ORDERS, json!(["order"])), (ALL, json!(["cart", "order"]))] {
        for path in ["/status", "/topics"] {
            let answer = get(&site, token, &format!("/api/v1{path}")).await.with(200);
            let topics = answer["topics"].as_array().expect("topics");
            let found: Vec<_> = topics.iter().map(|topic| topic["name"].clone()).collect();
            assert_eq!(json!(found), names, "{path}: {answer}");
        }
        let checked = get(&site, token, "/api/v1/check?min_listeners=1").await.with(200);
        assert_eq!(json!(checked["topics"]), json!(names.as_array().expect("names").len()), "{checked}");
    }
    let (status, all) = (get(&site, ORDERS, "/api/v1/status?count=1").await, "more_topics");
    assert_eq!(status.with(200)[all], json!(0), "what it is not for is not counted");
}

#[tokio::test]
async fn pages_show_the_topics_of_the_token_alone_and_act_on_no_other() {
    let (shop, site) = open().await;
    for path in ["/topics", "/dead", "/listeners", "/tail"] {
        let answer = get(&site, ORDERS, path).await;
        assert!(answer.status == 200 && !answer.body.contains("cart"), "{path}: {answer:?}");
    }
    let topics = get(&site, ORDERS, "/topics").await.body;
    assert!(topics.contains("?name=order") && topics.contains("1 topic"), "{topics}");
    for path in [
        "/topic?name=cart",
        "/destinations?topic=cart",
        "/timer?topic=cart&key=cart:1",
        "/tail?topic=cart",
        "/servers",
        "/topic/bulk?name=cart&state=waiting&verb=cancel",
    ] {
        assert_eq!(get(&site, ORDERS, path).await.status, 403, "{path}");
    }
    for (path, form) in [
        ("/timer/act", "topic=cart&key=cart:1&verb=cancel"),
        ("/topic/act", "topic=cart&verb=pause&reason=a"),
        ("/topic/act", "topic=cart&verb=try-now&destination=a"),
        ("/topic/bulk", "name=cart&state=waiting&verb=cancel&expect=1"),
    ] {
        assert_eq!(ask(&site, ORDERS, "POST", path, FORM, form).await.status, 403, "{path}");
    }
    let cart = shop.console.topic("cart").await.expect("the topic").overview().await.expect("its overview");
    assert!(cart.timers == 1 && cart.paused.is_none(), "{cart:?}");
}

#[tokio::test]
async fn each_action_is_written_down_with_the_name_of_its_token() {
    hear();
    let shop = Shop::open().await;
    let access = access().behind_proxy(true);
    let site = Site::serve(Web::new(shop.console.clone(), access.clone()), &access).await;
    let login = site.ask("POST", "/login", &[FORM], &format!("token={ALL}")).await;
    let cookie = login.lines.iter().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let cookie = format!("Cookie: {}", cookie.split(';').next().expect("a value"));
    let bearer = format!("Authorization: Bearer {ORDERS}");
    for (head, key, words) in [
        (&*bearer, "order:by-a-token", r#"by="token" name="orders" "#),
        (&*cookie, "order:by-a-cookie", r#"by="cookie" name="ops" "#),
    ] {
        let (path, head) =
            (format!("/api/v1/topics/order/timers/{key}"), [head, JSON, "X-Forwarded-For: ::1, 192.0.2.7"]);
        site.ask("PUT", &path, &head, r#"{"in": "1h"}"#).await.with(201);
        let [line] = &lines(key)[..] else { panic!("{:?}", lines(key)) };
        assert!(line.contains(words) && line.contains("forwarded=192.0.2.7"), "{line}");
    }
}

#[tokio::test]
async fn who_asks_a_program_with_topics_of_its_own_acts_on_no_other() {
    let (shop, _) = open().await;
    let access = Access::to_loopback();
    let web = Web::new(shop.console.clone(), access.clone()).arming_only_of(|name| name == "order");
    let site = Site::serve(web, &access).await;
    let arm = json!({"in": "1h"});
    site.say("PUT", "/api/v1/topics/order/timers/order:2", &arm).await.with(201);
    site.say("PUT", "/api/v1/topics/cart/timers/cart:2", &arm).await.refused(403, "--any-topic");
    site.ask("DELETE", "/api/v1/topics/cart/timers/cart:1", &[], "").await.refused(403, "--any-topic");
    assert_eq!(site.get("/metrics").await.status, 200);
}

#[tokio::test]
async fn other_tokens_take_the_place_of_those_before_and_end_their_visits() {
    let (shop, access) = (Shop::open().await, access());
    let site = Site::serve(Web::new(shop.console.clone(), access.clone()), &access).await;
    let login = async |token: &str| site.ask("POST", "/login", &[FORM], &format!("token={token}")).await;
    let cookies = async |token: &str| {
        let answer = login(token).await;
        let line = answer.lines.iter().find_map(|line| line.strip_prefix("set-cookie: ").map(str::to_owned));
        format!("Cookie: {}", line.expect("a cookie").split(';').next().expect("a value"))
    };
    let (ops, orders, looks) = (cookies(ALL).await, cookies(ORDERS).await, cookies(LOOKS).await);
    let comes_in = async |head: &str| site.ask("GET", "/api/v1/topics", &[head], "").await.status == 200;
    assert!(comes_in(&ops).await && comes_in(&orders).await && comes_in(&looks).await);
    let other = format!("ops act {}\norders read {ORDERS}\nlooks read {LOOKS} cart", "4".repeat(32));
    access.replace_tokens(&Access::to_loopback().tokens(&other).expect("tokens")).expect("tokens");
    assert!(!comes_in(&ops).await, "its token is another");
    assert!(!comes_in(&orders).await, "its right is another");
    assert!(comes_in(&looks).await);
    assert_eq!((login(ALL).await.status, login(&"4".repeat(32)).await.status), (403, 303));
    let none = access.replace_tokens(&Access::to_loopback()).expect_err("a refusal");
    assert!(none.to_string().contains("restart it") && !comes_in("X: y").await);
}

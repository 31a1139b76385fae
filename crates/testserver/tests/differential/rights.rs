//! What users may not do.

use super::pair::with_each;

const RULES: &[&str] = &[
    "on >p ~a* &c* +@all",
    "on >p ~a* &c* +@all -incr -config|set",
    "on >p ~* &* -@all +get +set +eval +evalsha +multi +exec +config|get",
    "on >p %R~a* %W~b* &* +@all",
    "on >p ~a* +@all -@dangerous",
    "on >p resetkeys -@all +get +eval ~x (~a* +set +get +eval)",
    "off >p ~* +@all",
];

const COMMANDS: &[&str] = &[
    "GET a",
    "GET b",
    "SET a 1",
    "SET b 1",
    "DEL b",
    "INCR a",
    "MGET a b",
    "RENAME a b",
    "PUBLISH c x",
    "PUBLISH d x",
    "SPUBLISH d x",
    "CONFIG GET maxmemory",
    "CONFIG SET maxmemory 0",
    "KEYS *",
    "INFO nothing",
    "EVAL return(1) 1 a",
    "EVAL return(1) 1 b",
    "EVAL return(1) 1 x",
    "EVAL return(redis.call('get','b')) 0",
    "EVAL return(redis.pcall('get','b')) 0",
    "EVAL return(redis.call('incr','a')) 0",
    "EVAL return(redis.call('spublish','d','x')) 0",
    "EVAL return(redis.pcall('set','a','x')) 1 a",
    "EVALSHA nope 1 b",
    "MULTI",
    "GET b",
    "SET a 1",
    "EXEC",
    "ACL WHOAMI",
    "DISCARD",
];

#[tokio::test]
async fn users_are_refused_alike() {
    with_each(async |pair| {
        for rules in RULES {
            pair.clear().await;
            let set: Vec<&str> =
                ["ACL", "SETUSER", "u", "reset"].into_iter().chain(rules.split(' ')).collect();
            pair.same_or_note(&set).await;
            pair.same_or_note(&["AUTH", "u", "p"]).await;
            for line in COMMANDS {
                pair.same_or_note(&line.split(' ').collect::<Vec<_>>()).await;
            }
            pair.same_or_note(&["AUTH", "u", "wrong"]).await;
            pair.same_or_note(&["AUTH", "default", "x"]).await;
        }
        for rule in ["foo", "+nope", "+@nope", "(+get", "(+nope)"] {
            pair.same_or_note(&["ACL", "SETUSER", "u", rule]).await;
        }
        pair.finish();
    })
    .await;
}

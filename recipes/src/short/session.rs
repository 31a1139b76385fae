use keylapse::{Attached, Done, Expired, Lapse, Topic};

use crate::stage::World;

#[derive(serde::Serialize, serde::Deserialize)]
pub struct Session {
    pub user: String,
}

/// Returns the topic of sessions, which another program writes with `SET session:{id} … EX 1800`. keylapse keeps a
/// copy of each value of up to 4,096 bytes.
pub fn sessions() -> keylapse::Result<Attached<Session>> {
    Ok(Attached::new(Topic::new("session:{id}")?).keep_values(4096))
}

/// Runs after a session has expired, and receives its value.
pub async fn ended(lapse: Lapse<Expired<Session>>, world: World) -> anyhow::Result<Done> {
    let user = lapse.payload().value().map_or("somebody", |session| session.user.as_str());
    world.act(user, &lapse.id()).await?;
    Ok(Done)
}

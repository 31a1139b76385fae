use keylapse::{Attached, Done, Expired, Lapse, Topic};

use crate::stage::World;

#[derive(serde::Serialize, serde::Deserialize)]
pub struct Session {
    pub user: String,
}

/// Sessions that another program writes, `SET session:{id} … EX 1800`, with a copy of what is in them.
pub fn sessions() -> keylapse::Result<Attached<Session>> {
    Ok(Attached::new(Topic::new("session:{id}")?).keep_values(4096))
}

/// Runs once when a session has expired, with its value.
pub async fn ended(lapse: Lapse<Expired<Session>>, world: World) -> anyhow::Result<Done> {
    let user = lapse.payload().value().map_or("somebody", |session| session.user.as_str());
    world.act(user, &lapse.id()).await?;
    Ok(Done)
}

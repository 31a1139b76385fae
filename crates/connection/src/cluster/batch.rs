//! Calls about several slots, together for each server.

use std::collections::BTreeMap;

use futures::future::join_all;
use redis::{Cmd, Value, pipe};

use crate::cluster::Cluster;
use crate::endpoint::Endpoint;
use crate::error::Result;

impl Cluster {
    /// Sends commands to the owners of their slots, in one request to each. What is sent on is sent again by itself.
    pub async fn each(&self, doing: &str, commands: &[(u16, Cmd)]) -> Vec<Result<Value>> {
        let mut by_owner = BTreeMap::<_, Vec<_>>::new();
        for (place, (slot, _)) in commands.iter().enumerate() {
            let owner = self.map.borrow().owner(*slot).cloned();
            by_owner.entry(owner).or_default().push(place);
        }
        let requests = by_owner.into_iter().map(|(owner, places)| async move {
            let answers = match owner {
                None => join_all(places.iter().map(|place| self.one(doing, &commands[*place]))).await,
                Some(owner) => self.together(doing, &owner, commands, &places).await,
            };
            places.into_iter().zip(answers).collect::<Vec<_>>()
        });
        let mut answers: Vec<_> = join_all(requests).await.into_iter().flatten().collect();
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn one(&self, doing: &str, (slot, command): &(u16, Cmd)) -> Result<Value> {
        self.at(*slot, |seat| async move { seat.call(doing, command).await }).await
    }

    /// These of the commands, in one request.
    async fn together(
        &self,
        doing: &str,
        owner: &Endpoint,
        commands: &[(u16, Cmd)],
        places: &[usize],
    ) -> Vec<Result<Value>> {
        let mut pipeline = pipe();
        for place in places {
            pipeline.add_command(commands[*place].1.clone());
        }
        let (seat, first) = (self.server(owner).seat(), commands[places[0]].0);
        let sent = async { Ok(seat.call_each(doing, &pipeline).await) };
        let answers = self.made_at(first, &seat, sent).await;
        let answers = answers.unwrap_or_else(|error| vec![Err(error); places.len()]);
        if answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.code().is_none())) {
            self.suspect();
        }
        let settled = places.iter().zip(answers).map(|(place, answer)| async move {
            match answer {
                Err(error) if error.redirect().is_some() || error.code() == Some("TRYAGAIN") => {
                    self.one(doing, &commands[*place]).await
                }
                answer => answer,
            }
        });
        join_all(settled).await
    }
}
